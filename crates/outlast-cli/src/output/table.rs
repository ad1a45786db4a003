//! Tables: aligned columns, and a last column that is cut to the width of the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::style::{Look, Tone};

/// How the text of a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// To the left.
    Left,
    /// To the right, for numbers.
    Right,
}

/// A table. Text may contain colours, but nothing else that has no width.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

/// The spaces between columns.
const GAP: usize = 2;

/// The last column is not made narrower than this.
const LAST_MIN: usize = 12;

impl Table {
    /// A table with these columns.
    pub(crate) fn new(columns: impl IntoIterator<Item = (&'static str, Align)>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Removes columns that have no text in any row.
    pub(crate) fn without_empty_columns(mut self) -> Self {
        for index in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|row| row[index].is_empty()) {
                self.columns.remove(index);
                self.rows.iter_mut().for_each(|row| drop(row.remove(index)));
            }
        }
        self
    }

    /// The lines of the table.
    pub(crate) fn lines(&self, look: Look) -> Vec<String> {
        let widths: Vec<usize> = (0..self.columns.len()).map(|index| self.column_width(index)).collect();
        let header: Vec<_> = self.columns.iter().map(|(name, _)| look.paint(Tone::Dim, name)).collect();
        let rows = std::iter::once(&header).chain(&self.rows);
        rows.map(|row| self.line(look, row, &widths)).collect()
    }

    fn column_width(&self, index: usize) -> usize {
        let cells = self.rows.iter().map(|row| width(&row[index]));
        cells.chain([self.columns[index].0.width()]).max().unwrap_or(0)
    }

    fn line(&self, look: Look, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        let last = self.columns.len().saturating_sub(1);
        for (index, cell) in row.iter().enumerate() {
            let space = widths[index].saturating_sub(width(cell));
            match self.columns[index].1 {
                Align::Right => line.push_str(&" ".repeat(space)),
                Align::Left => {}
            }
            if index == last && look.is_terminal {
                let before: usize = widths[..last].iter().map(|width| width + GAP).sum();
                line.push_str(&cut(cell, look.width.saturating_sub(before).max(LAST_MIN), look));
            } else {
                line.push_str(cell);
            }
            if index < last {
                let after = if self.columns[index].1 == Align::Left { space } else { 0 };
                line.push_str(&" ".repeat(after + GAP));
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// The width of a text in columns, without its colours.
pub(crate) fn width(text: &str) -> usize {
    let mut width = 0;
    let mut is_code = false;
    for character in text.chars() {
        match character {
            '\u{1b}' => is_code = true,
            'm' if is_code => is_code = false,
            _ if is_code => {}
            _ => width += character.width().unwrap_or(0),
        }
    }
    width
}

/// The text, cut to a width, with its colours.
pub(crate) fn cut(text: &str, width_max: usize, look: Look) -> String {
    if width(text) <= width_max {
        return text.to_owned();
    }
    let ending = look.either("…", "...");
    let room = width_max.saturating_sub(ending.width());
    let (mut cut, mut used, mut is_code, mut is_full) = (String::new(), 0, false, false);
    for character in text.chars() {
        let is_start = character == '\u{1b}';
        if is_start || is_code {
            is_code = is_start || character != 'm';
            cut.push(character);
            continue;
        }
        let wide = character.width().unwrap_or(0);
        if is_full || used + wide > room {
            if !is_full {
                cut.push_str(ending);
            }
            is_full = true;
            continue;
        }
        used += wide;
        cut.push(character);
    }
    cut
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn columns_are_aligned_by_width_and_the_last_one_is_cut() {
        let mut table = Table::new([("NAME", Align::Left), ("N", Align::Right), ("NOTE", Align::Left)]);
        table.row(["größe".into(), "7".into(), "short".into()]);
        table.row(["日本".into(), "1234".into(), "a note that is much too long".into()]);
        let text = table.lines(Look::plain(32)).join("\n");
        expect![[r#"
            NAME      N  NOTE
            größe     7  short
            日本   1234  a note that is muc…"#]]
        .assert_eq(&text);
    }

    #[test]
    fn a_text_is_cut_with_its_colours() {
        let look = Look { has_colors: true, ..Look::plain(80) };
        let text = look.paint(Tone::Bad, "abcdefgh");
        assert_eq!(cut(&text, 5, look), "\u{1b}[31mabcd…\u{1b}[0m");
    }

    #[test]
    fn columns_without_text_are_left_out() {
        let mut table = Table::new([("A", Align::Left), ("B", Align::Left)]);
        table.row([String::new(), "x".into()]);
        assert_eq!(table.without_empty_columns().lines(Look::plain(80)), ["B", "x"]);
    }
}
