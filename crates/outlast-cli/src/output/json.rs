//! JSON output.

use serde::Serialize;
use serde_json::value::RawValue;

use super::escape::safe_json;
use crate::exit::CommandError;

/// A document on one line.
pub(crate) fn one_document(value: &impl Serialize) -> Result<String, CommandError> {
    let json = serde_json::to_string(value).map_err(|error| CommandError::failure(error.to_string()))?;
    Ok(safe_json(&json).into_owned())
}

/// A document with line breaks. Numbers keep all their digits.
pub(crate) fn pretty_document(value: &impl Serialize) -> Result<String, CommandError> {
    let json = one_document(value)?;
    Ok(indented(&json))
}

/// A stored value with line breaks.
pub(crate) fn pretty_raw(json: &RawValue) -> String {
    indented(&safe_json(json.get()))
}

/// Valid JSON with line breaks and indentation. It works on the text, so large numbers are not rounded.
fn indented(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let (mut depth, mut is_string, mut is_escaped) = (0usize, false, false);
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if is_string {
            text.push(character);
            is_string = is_escaped || character != '"';
            is_escaped = character == '\\' && !is_escaped;
            continue;
        }
        match character {
            '{' | '[' => {
                text.push(character);
                while characters.peek().is_some_and(|next| next.is_ascii_whitespace()) {
                    characters.next();
                }
                if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    text.push(end);
                } else {
                    depth += 1;
                    break_line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut text, depth);
                text.push(character);
            }
            ',' => {
                text.push(',');
                break_line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => {
                is_string = other == '"';
                text.push(other);
            }
        }
    }
    text
}

fn break_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indentation_changes_no_value() {
        let json = r#"{"id":1970670598291982290,"a":[1.10,{}],"s":"a \"{,}\" \\","e":[ ]}"#;
        let pretty = indented(json);
        assert!(pretty.contains("1970670598291982290") && pretty.contains("1.10"), "{pretty}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&pretty), read(json));
        assert_eq!(indented(r#"{"a":1}"#), "{\n  \"a\": 1\n}");
        assert_eq!(indented("[]"), "[]");
    }
}
