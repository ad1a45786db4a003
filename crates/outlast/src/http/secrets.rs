//! The secrets of a worker: they are named in requests, and never recorded or shown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::request::{SecretForm, SecretUse};
use crate::error::StepError;

type SecretSource = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Secrets by name.
#[derive(Clone, Default)]
pub(crate) struct Secrets(BTreeMap<String, SecretSource>);

impl Secrets {
    pub(crate) fn insert(
        &mut self,
        name: String,
        source: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) {
        self.0.insert(name, Arc::new(source));
    }

    /// The value of a header that contains a secret. An error does not show the secret.
    pub(super) fn header_value(&self, used: &SecretUse) -> Result<String, StepError> {
        let name = &used.secret;
        let Some(source) = self.0.get(name) else {
            return Err(StepError::msg(format!(
                "this worker has no secret `{name}`; give it one with `.secret(\"{name}\", …)`"
            )));
        };
        let secret =
            source().map_err(|error| StepError::msg(format!("secret `{name}` cannot be read: {error}")))?;
        Ok(match &used.form {
            SecretForm::Plain => secret,
            SecretForm::Bearer => format!("Bearer {secret}"),
            SecretForm::Basic(user) => {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{secret}")))
            }
        })
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
