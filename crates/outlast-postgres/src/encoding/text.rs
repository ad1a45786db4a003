//! Texts that users choose. Postgres cannot store the character NUL, so it is escaped.

use std::borrow::Cow;

/// The escape character, from the private use area of Unicode: texts rarely contain it.
const ESCAPE: char = '\u{E000}';

/// The text with NUL escaped, as it is stored. Different texts stay different.
pub(crate) fn escape_nul(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => escaped.extend([ESCAPE, '0']),
            ESCAPE => escaped.extend([ESCAPE, '1']),
            character => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// The original of an escaped text.
pub(crate) fn unescape_nul(escaped: &str) -> Cow<'_, str> {
    if !escaped.contains(ESCAPE) {
        return Cow::Borrowed(escaped);
    }
    let mut text = String::with_capacity(escaped.len());
    let mut characters = escaped.chars();
    while let Some(character) = characters.next() {
        match character {
            ESCAPE if characters.next() == Some('0') => text.push('\0'),
            character => text.push(character),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_texts_have_no_nul_and_unescape_to_the_original() {
        for text in ["", "plain", "a\0b", "\0", "\u{E000}", "\u{E000}0", "\0\u{E000}1\0", "ключ"] {
            let escaped = escape_nul(text);
            assert!(!escaped.contains('\0'));
            assert_eq!(unescape_nul(&escaped), text);
        }
    }
}
