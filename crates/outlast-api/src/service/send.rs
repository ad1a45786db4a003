//! Sending to hooks.

use outlast_core::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX};
use outlast_core::{Payload, RunId};
use serde_json::value::RawValue;

use super::problems::{check_name, of_payload};
use super::start::ACTOR_HEADER;
use super::{Caller, Service};
use crate::problem::Problem;
use crate::send::{SendRequest, SentJson};

impl Service {
    /// `POST /api/runs/{id}/hooks/{name}`. The idempotency key is that of the request's headers.
    ///
    /// # Errors
    ///
    /// `not_found`, `run_ended`, `limit` if the inbox is full, `too_long`, `invalid_request`.
    pub async fn send(
        &self,
        caller: &Caller,
        run: RunId,
        hook: &str,
        request: SendRequest,
        idempotency_key: Option<&str>,
    ) -> Result<SentJson, Problem> {
        check_name("", hook, NAME_BYTES_MAX)?;
        let key = match (request.key, idempotency_key) {
            (Some(_), Some(_)) => {
                let message = "the request has an Idempotency-Key header too; use one of them";
                return Err(Problem::field("/key", message));
            }
            (Some(key), None) => Some(key),
            (None, key) => key.map(|key| format!("http:{}:{key}", caller.scope)),
        };
        if let Some(key) = &key {
            check_name("/key", key, KEY_BYTES_MAX)?;
        }
        let payload: &RawValue = request.payload.as_deref().unwrap_or(RawValue::NULL);
        Payload::json(payload).map_err(|error| of_payload("/payload", &error))?;
        let mut call = self.client.send(run, hook, payload).header(ACTOR_HEADER, &caller.actor);
        if let Some(key) = key {
            call = call.key(key);
        }
        if let Err(error) = call.await {
            return Err(self.refused_by(run, error).await);
        }
        Ok(SentJson { delivery: "delivered".into(), run: self.run(run).await? })
    }
}
