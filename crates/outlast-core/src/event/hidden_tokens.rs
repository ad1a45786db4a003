//! Events without the tokens of hooks, for readers who must not send to them.

use std::sync::Arc;

use super::Event;
use crate::payload::Payload;
use crate::token::TokenHash;

/// The name of the recorded value that is a generated token.
pub const GENERATED_TOKEN: &str = "outlast:token";

/// A text that stands for a token: the same for the same token, and different for different ones.
pub fn hidden_token(token: &str) -> Arc<str> {
    let hash = TokenHash::of(token).to_string();
    format!("hidden-{}", &hash[..16]).into()
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
