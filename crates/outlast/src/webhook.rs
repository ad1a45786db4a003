//! Webhooks: hooks whose payloads are HTTP requests, and the signatures of such requests.
//!
//! A workflow opens a webhook with [`Context::webhook`](crate::Context::webhook), and gets a URL. A server of
//! `outlast-server` accepts the requests to it; [`Client::webhook`](crate::Client::webhook) is what it uses, for servers of
//! your own.
//!
//! Two forms of signatures are supported: [`StandardWebhooks`], with a timestamp and a delivery id, and [`HmacSha256`], the
//! plain signature of the body. Both accept several secrets, so that a secret can be replaced without a gap.
//!
//! ```
//! use outlast::prelude::*;
//! use outlast::webhook::WebhookRequest;
//!
//! #[workflow]
//! async fn payment(ctx: Context) -> Result<u64, Error> {
//!     let paid = ctx.webhook("paid").verify("bank").await?;
//!     ctx.publish(&paid.url()?); // for whoever sends the requests
//!     let request = paid.next().timeout("3d").await?;
//!     request.json()
//! }
//!
//! // In a test, which needs no server and no signature:
//! let mut run = outlast_testkit::Rehearsal::of(payment, ());
//! run.receives_request("paid", WebhookRequest::post("4200"));
//! assert_eq!(run.output().unwrap(), 4200);
//! ```

mod open;

mod request;

mod ingress;

mod secrets;

mod standard;

mod hmac_sha256;

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

pub use outlast_core::{WebhookReply, WebhookResponse, WebhookTerms};

pub use self::hmac_sha256::HmacSha256;
pub use self::ingress::{AcceptedWebhook, WebhookEntry, WebhookRefusal};
pub use self::open::{NextWebhookRequest, OpenWebhook, ReceivedRequest, WebhookOperation};
pub use self::request::WebhookRequest;
pub use self::secrets::WebhookSecrets;
pub use self::standard::{StandardWebhooks, VerifiedWebhook};

/// Why a request is not accepted, or a secret cannot be used. It contains neither the secret nor the right signature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WebhookError {
    /// The secret is not in the right form.
    BadSecret(&'static str),
    /// A header is missing, or not in the right form.
    BadHeader(&'static str),
    /// The request was signed too long ago, or its time is in the future. It may be a repeat of an old request.
    BadTime,
    /// No signature was made with one of the secrets.
    BadSignature,
}

impl fmt::Display for WebhookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadSecret(remedy) => write!(f, "the secret of the webhook cannot be used; {remedy}"),
            Self::BadHeader(name) => {
                write!(f, "the webhook has no valid header `{name}`; it may come from another sender")
            }
            Self::BadTime => f.write_str(
                "the webhook was signed too long ago, or in the future; check the clocks of both sides, or ask the \
                 sender to deliver it again",
            ),
            Self::BadSignature => f.write_str(
                "the signature of the webhook is wrong; check that the secret is the sender's, and that the body is \
                 verified as it was received",
            ),
        }
    }
}

impl std::error::Error for WebhookError {}

/// The keys of signatures: one, or several while one of them is replaced.
#[derive(Clone)]
struct Keys(Vec<Vec<u8>>);

impl Keys {
    /// The signature by the first key.
    fn sign(&self, parts: &[&[u8]]) -> Vec<u8> {
        self.0
            .first()
            .and_then(|key| authenticate(key, parts))
            .map_or_else(Vec::new, |mac| mac.finalize().into_bytes().to_vec())
    }

    /// Whether one of the keys made the signature. The time does not depend on the contents of the signature.
    fn verify(&self, parts: &[&[u8]], signature: &[u8]) -> bool {
        // Without stopping at the first: the time does not tell which key it was.
        self.0.iter().fold(false, |found, key| {
            let is_valid = authenticate(key, parts).is_some_and(|mac| mac.verify_slice(signature).is_ok());
            found | is_valid
        })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// The code of a message in several parts.
fn authenticate(key: &[u8], parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
    // A key of any length is accepted.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac)
}
