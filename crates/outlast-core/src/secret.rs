//! Secrets in payloads: values that are stored and used, and never shown.
//!
//! A secret is stored as an object with one field: `{"outlast:secret": value}`. Whatever shows payloads to people or to other
//! programs replaces such objects with [`SECRET_SHOWN`]. The stored value is as safe as the world: only a codec encrypts it.

use std::borrow::Cow;

/// The name of the field that marks a secret.
pub const SECRET_FIELD: &str = "outlast:secret";

/// What is shown instead of a secret.
pub const SECRET_SHOWN: &str = "•••";

/// Returns a JSON text with [`SECRET_SHOWN`] in place of each secret. Everything else is unchanged, so numbers keep all their
/// digits.
///
/// A string that contains JSON with a secret is changed in the same way.
pub fn without_secrets(json: &str) -> Cow<'_, str> {
    if !may_contain_secret(json) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len());
    let mut open: Vec<Container> = Vec::new();
    let mut rest = json;
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' { string_length(rest) } else { first.len_utf8() };
        let (token, after) = rest.split_at(length);
        rest = after;
        match first {
            '{' | '[' => {
                open.push(Container { begin: shown.len(), is_secret: false });
                shown.push(first);
            }
            '}' | ']' => {
                shown.push(first);
                if let Some(secret) = open.pop().filter(|closed| closed.is_secret) {
                    shown.truncate(secret.begin);
                    push_placeholder(&mut shown);
                }
            }
            '"' if may_contain_secret(token) => {
                let text = serde_json::from_str::<String>(token).ok();
                match (&text, open.last_mut()) {
                    (Some(text), Some(object))
                        if text == SECRET_FIELD && after.trim_start().starts_with(':') =>
                    {
                        object.is_secret = true;
                        shown.push_str(token);
                    }
                    (Some(text), _) => match without_secrets(text) {
                        Cow::Borrowed(_) => shown.push_str(token),
                        Cow::Owned(changed) if changed == *text => shown.push_str(token),
                        Cow::Owned(changed) => shown.push_str(&serde_json::Value::from(changed).to_string()),
                    },
                    (None, _) => push_placeholder(&mut shown),
                }
            }
            _ => shown.push_str(token),
        }
    }
    // The text ends within a secret: it is not JSON.
    if let Some(secret) = open.iter().find(|container| container.is_secret) {
        shown.truncate(secret.begin);
        push_placeholder(&mut shown);
    }
    Cow::Owned(shown)
}

/// An object or array that is not closed yet.
struct Container {
    /// Where it begins in the result.
    begin: usize,
    is_secret: bool,
}

/// Whether a text may contain the field. Its letters can be written as escapes.
fn may_contain_secret(text: &str) -> bool {
    text.contains(SECRET_FIELD) || text.contains("\\u")
}

fn push_placeholder(shown: &mut String) {
    shown.push('"');
    shown.push_str(SECRET_SHOWN);
    shown.push('"');
}

/// The number of bytes of the string with which a text begins, with its quotes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, shown: &str) {
        assert_eq!(without_secrets(json), shown);
    }

    #[test]
    fn secrets_are_replaced_wherever_they_are() {
        check(r#"{"outlast:secret":"4242"}"#, r#""•••""#);
        check(r#"[1,{"outlast:secret":{"a":[1,"}"]}},2]"#, r#"[1,"•••",2]"#);
        check(r#"{"a":{"card":{"outlast:secret":42}},"n":1.10}"#, r#"{"a":{"card":"•••"},"n":1.10}"#);
        check("{ \"outlast:secret\" : [ 1 ] }", r#""•••""#);
        check(r#"{"outlast:secret":{"outlast:secret":1}}"#, r#""•••""#);
        check(r#"{"outlast:secret":1,"more":2}"#, r#""•••""#);
        check(r#"{"more":2,"outlast:secret":1}"#, r#""•••""#);
    }

    #[test]
    fn the_field_can_be_written_with_escapes_or_within_a_string() {
        check(r#"{"outlast\u003asecret":"4242"}"#, r#""•••""#);
        check(r#"{"outlast:secre\u0074":"4242"}"#, r#""•••""#);
        check(r#"{"input":"{\"outlast:secret\":\"4242\"}"}"#, r#"{"input":"\"•••\""}"#);
        check(r#"["[\"{\\\"outlast:secret\\\":7}\"]"]"#, r#"["[\"\\\"•••\\\"\"]"]"#);
    }

    #[test]
    fn everything_else_is_unchanged() {
        for json in [
            r#"{"id":1970670598291982290,"text":"a \"quoted\" {","exact":1.10}"#,
            r#""outlast:secret""#,
            r#"["outlast:secret",{"secret":1}]"#,
            r#"{"name":"outlast:secret","umlaut":"\u00fc"}"#,
            "",
            "not JSON",
        ] {
            check(json, json);
        }
        assert!(matches!(without_secrets(r#"{"a":1}"#), Cow::Borrowed(_)));
    }

    #[test]
    fn a_text_that_is_cut_does_not_show_its_secret() {
        let whole = r#"{"a":{"outlast:secret":["4242"]}}"#;
        for end in (0..whole.len()).filter(|end| whole.is_char_boundary(*end)) {
            assert!(!without_secrets(&whole[..end]).contains("42"), "{end}");
        }
    }
}
