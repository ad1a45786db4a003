//! Events without the tokens of hooks, for readers who must not send to them.

use std::sync::Arc;

use super::Event;
use crate::payload::Payload;
use crate::token::TokenHash;

/// The name of the recorded value that is a generated token.
pub const GENERATED_TOKEN: &str = "outlast:token";

/// How generated tokens begin, so that they are found in texts.
pub const GENERATED_TOKEN_PREFIX: &str = "olt_";

/// The hexadecimal digits that follow the prefix.
const GENERATED_TOKEN_DIGITS: usize = 64;

/// So many digits after the prefix are the beginning of a token: a preview may end within one.
const HIDDEN_DIGITS_MIN: usize = 8;

/// A text that stands for a token: the same for the same token, and different for different ones. It is as long as a
/// generated token.
pub fn hidden_token(token: &str) -> Arc<str> {
    let hash = TokenHash::of(token).to_string();
    format!("hidden-{}", &hash[..GENERATED_TOKEN_PREFIX.len() + GENERATED_TOKEN_DIGITS - "hidden-".len()])
        .into()
}

/// A text in which each generated token is replaced by the text that [stands for](hidden_token) it; `None` if there is none.
/// Its length is the same. Generated tokens are secrets also where a workflow puts them: in the URL of a webhook that is the
/// input of a step, for example.
pub fn without_generated_tokens(text: &[u8]) -> Option<Vec<u8>> {
    let prefix = GENERATED_TOKEN_PREFIX.as_bytes();
    let mut changed: Option<Vec<u8>> = None;
    let mut from = 0;
    while let Some(found) =
        text.get(from..).and_then(|rest| rest.windows(prefix.len()).position(|part| part == prefix))
    {
        let begin = from + found;
        let digits = text[begin + prefix.len()..].iter().take(GENERATED_TOKEN_DIGITS);
        let digits = digits.take_while(|byte| byte.is_ascii_hexdigit()).count();
        from = begin + prefix.len() + digits;
        if digits < HIDDEN_DIGITS_MIN {
            continue;
        }
        let changed = changed.get_or_insert_with(|| text.to_vec());
        match std::str::from_utf8(&text[begin..from]) {
            Ok(token) if digits == GENERATED_TOKEN_DIGITS => {
                changed[begin..from].copy_from_slice(hidden_token(token).as_bytes());
            }
            _ => changed[begin + prefix.len()..from].fill(b'x'),
        }
    }
    changed
}

impl Event {
    /// The event with a text that [stands for](hidden_token) each token. A replay of such events does the same as one of the
    /// original ones.
    #[must_use]
    pub fn without_tokens(mut self) -> Self {
        match &mut self {
            Self::TokenRequested(requested) => requested.token = hidden_token(&requested.token),
            Self::HookReceived { to, .. } => to.token = to.token.as_deref().map(hidden_token),
            Self::RunContinued(continued) => {
                for carried in &mut continued.tokens {
                    carried.token = hidden_token(&carried.token);
                }
            }
            Self::ValueRecorded { name, value: Ok(value), .. } if **name == *GENERATED_TOKEN => {
                *value = hidden_value(value);
            }
            _ => {}
        }
        self
    }
}

/// The recorded value of a token that is hidden. A value that a codec has encoded says nothing to others.
pub fn hidden_value(value: &Payload) -> Payload {
    let token = value.decode::<String>();
    token.ok().and_then(|token| Payload::json(&*hidden_token(&token)).ok()).unwrap_or_else(|| value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{OpNumber, TokenRequested};

    #[test]
    fn generated_tokens_are_found_in_texts() {
        let token = |digit: &str| format!("{GENERATED_TOKEN_PREFIX}{}", digit.repeat(GENERATED_TOKEN_DIGITS));
        let hidden =
            |text: &str| String::from_utf8(without_generated_tokens(text.as_bytes()).unwrap()).unwrap();
        let text =
            format!("{{\"url\":\"https://a/webhooks/{}\",\"other\":\"olt_{}\"}}", token("a"), token("b"));
        let expected = text
            .replace(&token("a"), &hidden_token(&token("a")))
            .replace(&token("b"), &hidden_token(&token("b")));
        assert_eq!(hidden(&text), expected);
        assert_eq!(hidden_token(&token("a")).len(), token("a").len());
        let cut = &token("c")[..token("c").len() - 1];
        for end in ["", "\""] {
            assert_eq!(hidden(&format!("a {cut}{end}")), format!("a olt_{}{end}", "x".repeat(63)));
        }
        for text in ["", "olt_", "olt_ab", &format!("olt_{}", "x".repeat(64)), &token("a")[1..]] {
            assert_eq!(without_generated_tokens(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn no_event_shows_a_token_that_is_hidden() {
        let requested = TokenRequested {
            op: OpNumber(1),
            name: "review".into(),
            token: "a-secret".into(),
            is_generated: true,
            metadata: None,
            webhook: None,
            keep_for: None,
        };
        let value = Ok(Payload::json("a-secret").unwrap());
        let events = [
            Event::ValueRecorded { op: OpNumber(0), name: GENERATED_TOKEN.into(), value },
            Event::TokenRequested(Box::new(requested)),
        ];
        let mut text = String::new();
        Event::write_all(&events.map(Event::without_tokens), &mut text);
        assert!(!text.contains("a-secret"), "{text}");
        assert_eq!(text.matches(&*hidden_token("a-secret")).count(), 2, "{text}");
        assert_ne!(hidden_token("a-secret"), hidden_token("another"));
    }
}
