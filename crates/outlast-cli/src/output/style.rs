//! Colours, and whether a terminal has them.

use std::fmt::Display;

/// What a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether colours are used.
    pub(crate) has_colors: bool,
    /// Whether characters outside of ASCII are used.
    pub(crate) has_unicode: bool,
    /// Whether a person reads it: ids are short and lines are cut.
    pub(crate) is_terminal: bool,
    /// The number of columns.
    pub(crate) width: usize,
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As the terminal writes.
    Plain,
    /// Headings.
    Strong,
    /// What is less important.
    Dim,
    /// It went well.
    Good,
    /// It went wrong.
    Bad,
    /// Somebody should look at it.
    Warning,
    /// It waits or works.
    Active,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Dim => "2",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warning => "33",
            Self::Active => "36",
        }
    }
}

impl Look {
    /// The text in a colour.
    pub(crate) fn paint(self, tone: Tone, text: impl Display) -> String {
        if !self.has_colors || tone == Tone::Plain {
            return text.to_string();
        }
        format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code())
    }

    /// The first text, or the second in a terminal without Unicode.
    pub(crate) fn either(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.has_unicode { unicode } else { ascii }
    }

    /// A look without colours, for tests.
    #[cfg(test)]
    pub(crate) const fn plain(width: usize) -> Self {
        Self { has_colors: false, has_unicode: true, is_terminal: true, width }
    }
}
