//! Signatures according to the Standard Webhooks specification.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use outlast_core::Timestamp;
use outlast_core::limits::{WEBHOOK_SIGNATURES_MAX, WEBHOOK_TOLERANCE_DEFAULT};

use super::{Keys, WebhookError};

/// The prefix of a secret.
const SECRET_PREFIX: &str = "whsec_";

/// The prefix of a signature with a symmetric key.
const SIGNATURE_PREFIX: &str = "v1,";

const ID: &str = "webhook-id";
const TIME: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";

/// Signs and verifies webhooks according to [Standard Webhooks](https://www.standardwebhooks.com), with symmetric keys.
///
/// The headers are `webhook-id`, `webhook-timestamp` and `webhook-signature`.
#[derive(Clone, Debug)]
pub struct StandardWebhooks {
    keys: Keys,
    tolerance: Duration,
}

/// A webhook whose signature is right.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedWebhook {
    /// The id of the webhook, the same each time it is delivered. Use it as the key of a send.
    pub id: String,
    /// When it was signed.
    pub at: Timestamp,
}

impl StandardWebhooks {
    /// Creates a verifier with a secret in the form `whsec_…`, with or without the prefix.
    ///
    /// # Errors
    ///
    /// `BadSecret` if it is not base64, or decodes to less than 24 or more than 64 bytes.
    pub fn new(secret: &str) -> Result<Self, WebhookError> {
        Ok(Self { keys: Keys(vec![key_of(secret)?]), tolerance: WEBHOOK_TOLERANCE_DEFAULT })
    }

    /// Adds another secret that is accepted, while a secret is replaced. New signatures are made with the first one.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn or(mut self, secret: &str) -> Result<Self, WebhookError> {
        self.keys.0.push(key_of(secret)?);
        Ok(self)
    }

    /// Sets by how much the time of a webhook may differ from now; the default is 5 minutes.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Verifies a request: its headers by name in lower case, its body as it was received, and the current time.
    ///
    /// # Errors
    ///
    /// Why the request is not accepted.
    pub fn verify<'a>(
        &self,
        header: impl Fn(&str) -> Option<&'a str>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<VerifiedWebhook, WebhookError> {
        let text = |name: &'static str| {
            header(name).filter(|text| !text.is_empty()).ok_or(WebhookError::BadHeader(name))
        };
        let (id, time, signatures) = (text(ID)?, text(TIME)?, text(SIGNATURE)?);
        if !time.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(WebhookError::BadHeader(TIME));
        }
        let seconds: i64 = time.parse().map_err(|_| WebhookError::BadHeader(TIME))?;
        let micros = seconds.checked_mul(1_000_000).ok_or(WebhookError::BadHeader(TIME))?;
        let at = Timestamp::from_micros(micros);
        if at.since(now).max(now.since(at)) > self.tolerance {
            return Err(WebhookError::BadTime);
        }
        let content = content(id, time, body);
        let is_signed = signatures.split(' ').take(WEBHOOK_SIGNATURES_MAX).any(|signature| {
            let signature = signature.strip_prefix(SIGNATURE_PREFIX);
            let signature = signature.and_then(|signature| BASE64_STANDARD.decode(signature).ok());
            signature.is_some_and(|signature| self.keys.verify(&content, &signature))
        });
        if is_signed {
            Ok(VerifiedWebhook { id: id.to_owned(), at })
        } else {
            Err(WebhookError::BadSignature)
        }
    }

    /// Returns the header `webhook-signature` of a webhook with this id, sent at this time. The header
    /// `webhook-timestamp` is the time in whole seconds since 1970.
    pub fn sign(&self, id: &str, at: Timestamp, body: &[u8]) -> String {
        let time = (at.as_micros().div_euclid(1_000_000)).to_string();
        let signature = self.keys.sign(&content(id, &time, body));
        format!("{SIGNATURE_PREFIX}{}", BASE64_STANDARD.encode(signature))
    }
}

/// What is signed.
fn content<'a>(id: &'a str, time: &'a str, body: &'a [u8]) -> [&'a [u8]; 5] {
    [id.as_bytes(), b".", time.as_bytes(), b".", body]
}

fn key_of(secret: &str) -> Result<Vec<u8>, WebhookError> {
    let text = secret.strip_prefix(SECRET_PREFIX).unwrap_or(secret);
    let key = BASE64_STANDARD
        .decode(text)
        .map_err(|_| WebhookError::BadSecret("it is `whsec_` followed by base64"))?;
    match key.len() {
        24..=64 => Ok(key),
        _ => Err(WebhookError::BadSecret("it has 24 to 64 bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference implementations.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const MESSAGE_ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SIGNED_AT: Timestamp = Timestamp::from_micros(1_614_265_330_000_000);
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn verify(
        webhooks: &StandardWebhooks,
        signature: &str,
        now: Timestamp,
    ) -> Result<VerifiedWebhook, WebhookError> {
        let header = |name: &str| match name {
            ID => Some(MESSAGE_ID),
            TIME => Some("1614265330"),
            SIGNATURE => Some(signature),
            _ => None,
        };
        webhooks.verify(header, BODY, now)
    }

    #[test]
    fn the_published_example_is_signed_and_verified() {
        let webhooks = StandardWebhooks::new(SECRET).unwrap();
        assert_eq!(webhooks.sign(MESSAGE_ID, SIGNED_AT, BODY), SIGNED);
        let delivery = verify(&webhooks, SIGNED, SIGNED_AT).unwrap();
        assert_eq!((&*delivery.id, delivery.at), (MESSAGE_ID, SIGNED_AT));
        assert!(verify(&StandardWebhooks::new(&SECRET[6..]).unwrap(), SIGNED, SIGNED_AT).is_ok());
    }

    #[test]
    fn one_of_several_signatures_and_secrets_is_enough() {
        let other = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let rotating = StandardWebhooks::new(other).unwrap().or(SECRET).unwrap();
        let several = format!("v1a,xyz v1,AAAA v1,? {SIGNED}");
        assert!(verify(&rotating, &several, SIGNED_AT).is_ok());
        let alone = StandardWebhooks::new(other).unwrap();
        assert_eq!(verify(&alone, &several, SIGNED_AT), Err(WebhookError::BadSignature));
        assert_eq!(format!("{rotating:?}"), "StandardWebhooks { keys: 2 secrets, tolerance: 300s }");
    }

    #[test]
    fn an_old_or_future_webhook_is_refused() {
        let webhooks = StandardWebhooks::new(SECRET).unwrap();
        let shifted = |seconds: i64| Timestamp::from_micros(SIGNED_AT.as_micros() + seconds * 1_000_000);
        for (shift, expected) in [(300, true), (-300, true), (301, false), (-301, false)] {
            assert_eq!(verify(&webhooks, SIGNED, shifted(shift)).is_ok(), expected, "{shift}");
        }
        let patient = webhooks.tolerance(Duration::from_secs(3_600));
        assert!(verify(&patient, SIGNED, shifted(3_600)).is_ok());
    }

    #[test]
    fn changed_requests_and_wrong_headers_are_refused() {
        let webhooks = StandardWebhooks::new(SECRET).unwrap();
        let check = |id: &'static str, time: &'static str, signature: &'static str, body: &[u8]| {
            let header = move |name: &str| match name {
                ID => Some(id),
                TIME => Some(time),
                _ => Some(signature),
            };
            webhooks.verify(header, body, SIGNED_AT).unwrap_err()
        };
        assert_eq!(check(MESSAGE_ID, "1614265330", SIGNED, b"{}"), WebhookError::BadSignature);
        assert_eq!(check("msg_other", "1614265330", SIGNED, BODY), WebhookError::BadSignature);
        assert_eq!(check(MESSAGE_ID, "1614265331", SIGNED, BODY), WebhookError::BadSignature);
        assert_eq!(check(MESSAGE_ID, "+1614265330", SIGNED, BODY), WebhookError::BadHeader(TIME));
        assert_eq!(check(MESSAGE_ID, "99999999999999999999", SIGNED, BODY), WebhookError::BadHeader(TIME));
        assert_eq!(check("", "1614265330", SIGNED, BODY), WebhookError::BadHeader(ID));
        assert_eq!(check(MESSAGE_ID, "1614265330", &SIGNED[..20], BODY), WebhookError::BadSignature);
        assert_eq!(webhooks.verify(|_| None, BODY, SIGNED_AT), Err(WebhookError::BadHeader(ID)));
    }

    #[test]
    fn a_bad_secret_is_refused_without_showing_it() {
        for secret in ["whsec_hunter2!", "whsec_AAAA", ""] {
            let error = StandardWebhooks::new(secret).unwrap_err();
            assert!(
                matches!(error, WebhookError::BadSecret(_)) && !error.to_string().contains("hunter2"),
                "{error}"
            );
        }
    }
}
