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
use crate::limits::{WEBHOOK_HEADERS_MAX, WEBHOOK_REPLY_BYTES_MAX};
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
    /// Where the servers of the worker that took the token can be reached, without a slash at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
}

impl WebhookTerms {
    /// The allowed methods.
    pub fn allowed_methods(&self) -> Vec<&str> {
        match self.methods.is_empty() {
            true => vec!["POST"],
            false => self.methods.iter().map(String::as_str).collect(),
        }
    }

    /// Whether requests with this method are accepted.
    pub fn allows(&self, method: &str) -> bool {
        self.allowed_methods().contains(&method)
    }

    /// The address to which requests are sent; `None` if the worker that took the token did not know it.
    pub fn url(&self, token: &str) -> Option<String> {
        self.public_url.as_ref().map(|public_url| format!("{public_url}/webhooks/{token}"))
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
    Fixed(WebhookReply),
    /// The response of the workflow, or 202 if it does not respond in time.
    ByWorkflow,
}

impl WebhookResponse {
    fn is_default(&self) -> bool {
        *self == Self::Accepted
    }
}

/// The response to a request to a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookReply {
    /// The status code.
    pub status: u16,
    /// The headers, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

impl WebhookReply {
    /// A response with this status and a text.
    pub fn new(status: u16, body: impl Into<String>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    /// Adds a header. Allowed are `content-type`, `location`, `retry-after`, and those that begin with `x-`, except for
    /// `x-content-type-options` and `x-frame-options`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into().to_ascii_lowercase(), value.into()));
        self
    }

    /// Why it cannot be sent, if there is a reason. The response to a webhook must not change what browsers think of the
    /// server, which may also have a dashboard.
    pub fn problem(&self) -> Option<String> {
        if !(200..=599).contains(&self.status) {
            return Some(format!("status {} is not one from 200 to 599", self.status));
        }
        if self.body.len() > WEBHOOK_REPLY_BYTES_MAX {
            let bytes = self.body.len();
            return Some(format!("the body has {bytes} bytes, the limit is {WEBHOOK_REPLY_BYTES_MAX}"));
        }
        if self.headers.len() > WEBHOOK_HEADERS_MAX {
            return Some(format!("it has more than {WEBHOOK_HEADERS_MAX} headers"));
        }
        self.headers.iter().find_map(|(name, value)| {
            let is_other = !["content-type", "location", "retry-after"].contains(&name.as_str());
            let is_custom = name.starts_with("x-")
                && !["x-content-type-options", "x-frame-options"].contains(&name.as_str())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            if is_other && !is_custom {
                return Some(format!(
                    "a response cannot have header `{name}`; allowed are `content-type`, `location`, `retry-after` and \
                     names that begin with `x-`"
                ));
            }
            let is_bad = |byte: u8| byte != b'\t' && !(b' '..=b'~').contains(&byte);
            value.bytes().any(is_bad).then(|| format!("the value of header `{name}` is not printable ASCII"))
        })
    }
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

impl TokenOwner {
    /// The owner that exists or not, and has ended at this time or not at all.
    pub fn of_run(exists: bool, ended_at: Option<Timestamp>) -> Self {
        match ended_at {
            _ if !exists => Self::Deleted,
            None => Self::Open,
            Some(at) => Self::Ended(at),
        }
    }
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
    fn a_reply_cannot_change_what_browsers_think_of_the_server() {
        let plain = WebhookReply::new(200, "ok").header("Content-Type", "text/plain").header("X-Trace", "1");
        assert_eq!(plain.problem(), None);
        for name in
            ["set-cookie", "access-control-allow-origin", "content-length", "x-frame-options", "x-a b", ""]
        {
            let problem = WebhookReply::new(200, "").header(name, "1").problem().unwrap();
            assert!(problem.contains(name), "{problem}");
        }
        assert!(plain.clone().header("x-trace", "a\r\nset-cookie: b").problem().is_some());
        assert!(
            WebhookReply::new(199, "").problem().is_some() && WebhookReply::new(600, "").problem().is_some()
        );
        assert!(WebhookReply::new(200, "a".repeat(WEBHOOK_REPLY_BYTES_MAX + 1)).problem().is_some());
    }

    #[test]
    fn a_webhook_accepts_posts_unless_it_declares_other_methods() {
        let methods = |methods: &[&str]| WebhookTerms {
            methods: methods.iter().map(|&method| method.to_owned()).collect(),
            ..WebhookTerms::default()
        };
        assert!(methods(&[]).allows("POST") && !methods(&[]).allows("GET"));
        assert!(methods(&["GET"]).allows("GET") && !methods(&["GET"]).allows("POST"));
        let known =
            WebhookTerms { public_url: Some("https://a.example/b".into()), ..WebhookTerms::default() };
        assert_eq!(known.url("t").as_deref(), Some("https://a.example/b/webhooks/t"));
        assert_eq!(methods(&[]).url("t"), None);
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
