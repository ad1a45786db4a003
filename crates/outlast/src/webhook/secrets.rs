//! The secrets with which a server checks signatures, by name.

use std::collections::BTreeMap;
use std::fmt;

use outlast_core::{SignatureTerms, Timestamp};

use super::{HmacSha256, StandardWebhooks, WebhookError, WebhookRefusal, WebhookRequest};

/// The secrets of a server, by the name that [`verify`](super::WebhookOperation::verify) uses. They are never recorded, and not
/// shown in errors or logs.
///
/// A secret that is added under a name that is known already is accepted too: add the new one and the old one while a
/// sender replaces its secret.
#[derive(Clone, Default)]
pub struct WebhookSecrets(BTreeMap<String, Vec<String>>);

impl WebhookSecrets {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a secret. For Standard Webhooks it has the form `whsec_…`; for an HMAC it is used as it is.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        self.0.entry(name.into()).or_default().push(secret.into());
        self
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Checks the signature of a request, and returns the id of the delivery, if it is signed too.
    pub(super) fn check(
        &self,
        terms: &SignatureTerms,
        request: &WebhookRequest,
        now: Timestamp,
    ) -> Result<Option<String>, WebhookRefusal> {
        let missing = || WebhookRefusal::NoSecret(terms.secret.clone());
        let (first, others) =
            self.0.get(&terms.secret).and_then(|known| known.split_first()).ok_or_else(missing)?;
        let bad_secret = |error: WebhookError| match error {
            WebhookError::BadSecret(remedy) => WebhookRefusal::BadSecret(terms.secret.clone(), remedy),
            error => WebhookRefusal::NotSigned(error),
        };
        match &terms.hmac_header {
            None => {
                let first = StandardWebhooks::new(first);
                let verifier = others.iter().fold(first, |all, other| all?.or(other)).map_err(bad_secret)?;
                let verified = verifier.verify(|name| request.header(name), request.bytes(), now);
                Ok(Some(verified.map_err(WebhookRefusal::NotSigned)?.id))
            }
            Some(header) => {
                let first = HmacSha256::new(first);
                let verifier = others.iter().fold(first, |all, other| all?.or(other)).map_err(bad_secret)?;
                let signature = request.header(header).unwrap_or_default();
                verifier.verify(signature, request.bytes()).map_err(WebhookRefusal::NotSigned)?;
                Ok(None)
            }
        }
    }
}

impl fmt::Debug for WebhookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
