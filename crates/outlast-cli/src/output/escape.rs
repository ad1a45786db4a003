//! Data from outside must not control the terminal.

use std::borrow::Cow;

/// The text without anything that controls a terminal or reorders its line. Line breaks and tabs are escaped too.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |character| is_unsafe(character) || matches!(character, '\n' | '\t'))
}

/// As [`one_line`], but line breaks and tabs stay.
pub(crate) fn several_lines(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe)
}

/// JSON in which such characters are written as `\u` escapes: it has the same meaning.
pub(crate) fn safe_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_unsafe) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_unsafe(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) { safe.extend(character.escape_default()) } else { safe.push(character) }
    }
    Cow::Owned(safe)
}

/// Whether a character controls a terminal, is invisible, or reorders text.
fn is_unsafe(character: char) -> bool {
    let is_control = character.is_control() && !matches!(character, '\n' | '\t');
    is_control
        || matches!(
            character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_control_the_terminal() {
        assert_eq!(one_line("a\u{1b}[31mred"), "a\\u{1b}[31mred");
        assert_eq!(one_line("a\nb\tc\u{0}"), "a\\nb\\tc\\u{0}");
        assert_eq!(one_line("\u{202e}gpj.exe"), "\\u{202e}gpj.exe");
        assert_eq!(one_line("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(several_lines("a\nb\u{7}"), "a\nb\\u{7}");
        assert_eq!(one_line("größe 日本"), "größe 日本");
    }

    #[test]
    fn escaped_json_has_the_same_meaning() {
        let text = "\u{9b}31m\u{202e}\u{7f} ok";
        let json = serde_json::to_string(text).unwrap();
        let safe = safe_json(&json);
        assert!(
            safe.chars().all(|character| character.is_ascii() && !character.is_ascii_control()),
            "{safe}"
        );
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), text);
    }
}
