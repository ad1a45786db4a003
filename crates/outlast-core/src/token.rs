//! Tokens: public names of open hooks, and the directory in which each world finds their runs.
//!
//! The run is the truth about a token: only its open hook takes the payloads that are sent to it. The directory finds the
//! run of a token and keeps tokens unique. It contains the SHA-256 of each token and not the token itself, so that
//! nobody can send to a hook who can only read the directory.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cut::op_as_number;
use crate::event::OpNumber;
use crate::event::json::{bytes_of_hex, hex_into};
use crate::id::RunId;
use crate::payload::Payload;
use crate::run::{read_text, write_text};
use crate::time::Timestamp;

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// The hash with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        hex_into(&self.0, &mut text);
        f.write_str(&text)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TokenHash {
    type Err = InvalidTokenHash;

    fn from_str(text: &str) -> Result<Self, InvalidTokenHash> {
        let bytes = bytes_of_hex(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(InvalidTokenHash)
    }
}

/// A text that is not the hash of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hash of a token has 64 hexadecimal digits")]
pub struct InvalidTokenHash;

/// What a turn does to the directory of tokens. Tokens are freed before others are taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenChanges {
    /// Tokens that the run does not hold any more.
    pub freed: Vec<FreedToken>,
    /// Tokens that the run takes, in the order of their hashes.
    pub taken: Vec<NewToken>,
}

impl TokenChanges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.freed.is_empty() && self.taken.is_empty()
    }
}

/// A token that a run frees. Nothing happens if the operation does not hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedToken {
    /// Its hash.
    pub hash: TokenHash,
    /// The operation that took it.
    pub op: OpNumber,
    /// Until when no other run can take it.
    pub kept_until: Option<Timestamp>,
}

/// A token that a run takes.
///
/// If another run holds it, the run receives [`Refused`](crate::MessageBody::Refused) for the operation. A token that the
/// run itself holds belongs to the new operation from then on.
#[derive(Clone, Debug, PartialEq)]
pub struct NewToken {
    /// Its hash.
    pub hash: TokenHash,
    /// The operation.
    pub op: OpNumber,
    /// The hook's name.
    pub hook: Arc<str>,
    /// What anybody who knows the token can read.
    pub metadata: Option<Payload>,
    /// How HTTP requests to the token are handled; `None` for a hook that is not a webhook.
    pub webhook: Option<Arc<WebhookTerms>>,
    /// How long no other run can take it after it was closed, or the run has ended.
    pub keep_for: Option<Duration>,
    /// Whether the run waits for the answer: it receives [`TokenTaken`](crate::MessageBody::TokenTaken).
    pub notify: bool,
}

/// How the server handles HTTP requests to a webhook. It contains no secret, only the name of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookTerms {
    /// The allowed methods; empty means `POST`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// How requests are signed. Others are refused and not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<SignatureTerms>,
    /// How the server responds.
    #[serde(default, skip_serializing_if = "WebhookResponse::is_default")]
    pub response: WebhookResponse,
}

impl WebhookTerms {
    /// Whether requests with this method are accepted.
    pub fn allows(&self, method: &str) -> bool {
        if self.methods.is_empty() {
            method == "POST"
        } else {
            self.methods.iter().any(|known| known == method)
        }
    }
}

/// How the requests to a webhook are signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignatureTerms {
    /// The name of the secret, which the server that receives the requests knows.
    pub secret: String,
    /// The header with the HMAC-SHA256 of the body; `None` for Standard Webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hmac_header: Option<String>,
}

/// How the server responds to a request to a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WebhookResponse {
    /// 202, when the request is stored.
    #[default]
    Accepted,
    /// A fixed response, when the request is stored.
    Fixed(FixedResponse),
    /// The response of the workflow, or 202 if it does not respond in time.
    ByWorkflow,
}

impl WebhookResponse {
    fn is_default(&self) -> bool {
        *self == Self::Accepted
    }
}

/// A response to an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedResponse {
    /// The status code.
    pub status: u16,
    /// The headers, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// A token in the directory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TokenView {
    /// The run that holds it, or held it last.
    pub run: RunId,
    /// The operation that took it.
    pub op: OpNumber,
    /// The hook's name.
    pub hook: Arc<str>,
    /// What the run has published with it.
    pub metadata: Option<Payload>,
    /// How HTTP requests to it are handled; `None` for a hook that is not a webhook.
    pub webhook: Option<Arc<WebhookTerms>>,
    /// When it was taken.
    pub opened_at: Timestamp,
    /// Whether payloads can be sent to it: the run has neither closed it nor ended.
    pub is_open: bool,
}

/// A token as a world stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredToken {
    /// The run that holds it, or held it last.
    pub run: RunId,
    /// The operation that took it.
    pub op: OpNumber,
    /// The hook's name.
    pub hook: Arc<str>,
    /// What the run has published with it.
    pub metadata: Option<Payload>,
    /// How HTTP requests to it are handled.
    pub webhook: Option<Arc<WebhookTerms>>,
    /// When it was taken.
    pub opened_at: Timestamp,
    /// How long it is kept after it was closed, or the run has ended.
    pub keep_for: Option<Duration>,
    /// Until when it is kept, once it is closed.
    pub kept_until: Option<Timestamp>,
}

/// What a world knows about the run of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenOwner {
    /// It has not ended.
    Open,
    /// It ended at this time.
    Ended(Timestamp),
    /// It was deleted.
    Deleted,
}

impl StoredToken {
    /// The token as `run` takes it now.
    pub fn of(new: &NewToken, run: RunId, now: Timestamp) -> Self {
        let NewToken { op, hook, metadata, webhook, keep_for, .. } = new.clone();
        Self { run, op, hook, metadata, webhook, opened_at: now, keep_for, kept_until: None }
    }

    /// Whether `run` cannot take it now, because another run holds or keeps it.
    pub fn is_taken_from(&self, run: RunId, owner: TokenOwner, now: Timestamp) -> bool {
        let until = match (self.kept_until, owner) {
            (Some(kept_until), _) => Some(kept_until),
            (None, TokenOwner::Open) => Some(Timestamp::NEVER),
            (None, TokenOwner::Ended(at)) => self.keep_for.map(|keep_for| at.plus(keep_for)),
            (None, TokenOwner::Deleted) => None,
        };
        self.run != run && until.is_some_and(|until| until > now)
    }

    /// Whether payloads can be sent to it.
    pub fn is_open(&self, owner: TokenOwner) -> bool {
        self.kept_until.is_none() && owner == TokenOwner::Open
    }

    /// The token as others see it.
    pub fn view(self, owner: TokenOwner) -> TokenView {
        let is_open = self.is_open(owner);
        let Self { run, op, hook, metadata, webhook, opened_at, .. } = self;
        TokenView { run, op, hook, metadata, webhook, opened_at, is_open }
    }
}

/// A token that a later generation of its run still holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedToken {
    /// The operation that took it.
    #[serde(with = "op_as_number")]
    pub op: OpNumber,
    /// The hook's name.
    #[serde(serialize_with = "write_text", deserialize_with = "read_text")]
    pub hook: Arc<str>,
    /// The token.
    #[serde(serialize_with = "write_text", deserialize_with = "read_text")]
    pub token: Arc<str>,
    /// How long it is kept after it was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_for: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(keep_for: Option<Duration>, kept_until: Option<i64>) -> StoredToken {
        StoredToken {
            run: RunId::from_bits(1),
            op: OpNumber(0),
            hook: "review".into(),
            metadata: None,
            webhook: None,
            opened_at: Timestamp::from_micros(0),
            keep_for,
            kept_until: kept_until.map(Timestamp::from_micros),
        }
    }

    #[test]
    fn a_token_is_taken_until_its_run_closes_it_or_ends_and_the_time_it_is_kept_is_over() {
        let (other, now) = (RunId::from_bits(2), Timestamp::from_micros(10));
        let ended = TokenOwner::Ended(Timestamp::from_micros(5));
        assert!(stored(None, None).is_taken_from(other, TokenOwner::Open, now));
        assert!(!stored(None, None).is_taken_from(RunId::from_bits(1), TokenOwner::Open, now), "its own");
        assert!(!stored(None, None).is_taken_from(other, ended, now));
        assert!(!stored(None, None).is_taken_from(other, TokenOwner::Deleted, now));
        assert!(stored(Some(Duration::from_micros(6)), None).is_taken_from(other, ended, now));
        assert!(!stored(Some(Duration::from_micros(5)), None).is_taken_from(other, ended, now));
        assert!(stored(None, Some(11)).is_taken_from(other, TokenOwner::Deleted, now));
        assert!(!stored(None, Some(10)).is_taken_from(other, TokenOwner::Open, now));
    }

    #[test]
    fn only_a_token_of_a_run_that_has_not_ended_is_open() {
        assert!(stored(None, None).is_open(TokenOwner::Open));
        assert!(!stored(None, Some(9)).is_open(TokenOwner::Open));
        assert!(!stored(None, None).is_open(TokenOwner::Ended(Timestamp::from_micros(1))));
    }

    #[test]
    fn the_text_of_a_hash_reads_back() {
        let hash = TokenHash::from_bytes([0xa7; 32]);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::of("abc").to_string(), known);
        assert!("a7".parse::<TokenHash>().is_err());
    }
}
