//! An action as a command and as a request, to be copied.

use std::borrow::Cow;

use maud::{Markup, html};

use super::parts::copy;
use crate::site::Site;

/// The same action for a terminal: each text with a button that copies it.
pub(crate) fn as_command(site: &Site, command: &str, request: &str) -> Markup {
    html! {
        details.command {
            summary { "As a command" }
            @for (text, what) in [(command, "the command"), (request, "the request")] {
                div.with-copy { pre { (text) } (copy(site, text, what)) }
            }
        }
    }
}

/// A request to the API, for a shell. The address and the access key are variables, so that no key is shown.
pub(crate) fn curl(method: &str, path: &str, body: Option<&str>) -> String {
    let body = match body {
        Some(body) => {
            format!(" -H 'Content-Type: application/json' -d {}", quoted(body))
        }
        None => String::new(),
    };
    format!(
        "curl -X {method} -H \"Authorization: Bearer $OUTLAST_ACCESS_KEY\"{body} \"$OUTLAST_SERVER{path}\""
    )
}

/// A text as one word of a shell.
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@=+,".contains(&byte);
    match !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', "'\\''"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_shell_cannot_end_itself() {
        assert_eq!(quoted("order-42"), "order-42");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("'; rm -rf ~; '"), r"''\''; rm -rf ~; '\'''");
        assert_eq!([quoted(""), quoted("--yes"), quoted("$(x)")], ["''", "'--yes'", "'$(x)'"]);
    }

    #[test]
    fn a_request_names_no_key_and_no_host() {
        let body = r#"{"reason":"it's late"}"#;
        let expected = r#"curl -X POST -H "Authorization: Bearer $OUTLAST_ACCESS_KEY" -H 'Content-Type: application/json' -d '{"reason":"it'\''s late"}' "$OUTLAST_SERVER/api/runs/x/cancel""#;
        assert_eq!(curl("POST", "/api/runs/x/cancel", Some(body)), expected);
        let delete =
            r#"curl -X DELETE -H "Authorization: Bearer $OUTLAST_ACCESS_KEY" "$OUTLAST_SERVER/api/runs/x""#;
        assert_eq!(curl("DELETE", "/api/runs/x", None), delete);
    }
}
