//! Texts that users choose, as Postgres can store them: it takes everything but NUL.

use std::borrow::Cow;

/// Stands in front of what replaces a character. It is for private use, so hardly anybody has it.
const MARK: char = '\u{E000}';

/// The text as it is stored. Different texts stay different.
pub(crate) fn stored(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', MARK]) {
        return Cow::Borrowed(text);
    }
    let mut stored = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\0' => stored.extend([MARK, '0']),
            MARK => stored.extend([MARK, '1']),
            letter => stored.push(letter),
        }
    }
    Cow::Owned(stored)
}

/// The text as it was before it was stored.
pub(crate) fn plain(stored: &str) -> Cow<'_, str> {
    if !stored.contains(MARK) {
        return Cow::Borrowed(stored);
    }
    let mut text = String::with_capacity(stored.len());
    let mut letters = stored.chars();
    while let Some(letter) = letters.next() {
        match letter {
            MARK if letters.next() == Some('0') => text.push('\0'),
            letter => text.push(letter),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_has_no_nul_in_between() {
        for text in ["", "plain", "a\0b", "\0", "\u{E000}", "\u{E000}0", "\0\u{E000}1\0", "ключ"] {
            let stored = stored(text);
            assert!(!stored.contains('\0'));
            assert_eq!(plain(&stored), text);
        }
    }
}
