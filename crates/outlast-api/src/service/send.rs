//! Sending to hooks and tokens, and asking them.

use std::time::Duration;

use outlast::{Error, ErrorKind, PostedAsk, TokenDelivery};
use outlast_core::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX, TOKEN_BYTES_MAX};
use outlast_core::{IntoDuration, Payload, RunId};
use serde_json::value::RawValue;

use super::problems::{check_name, of_error, of_payload};
use super::start::ACTOR_HEADER;
use super::{Caller, Service, convert};
use crate::problem::{Problem, ProblemCode};
use crate::send::{SendRequest, SentJson};

/// The longest time that a request waits for a reply.
const REPLY_TIME_MAX: Duration = Duration::from_secs(60);

/// A request that was checked.
struct CheckedSend {
    payload: Box<RawValue>,
    key: Option<String>,
    reply_within: Option<Duration>,
}

/// What became of a payload, except for the run.
#[derive(Default)]
struct SendOutcome {
    delivery: &'static str,
    answer: Option<&'static str>,
    reply: Option<Box<RawValue>>,
    why: Option<String>,
}

impl SendOutcome {
    fn of(delivery: &'static str) -> Self {
        Self { delivery, ..Self::default() }
    }
}

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
        let CheckedSend { payload, key, reply_within } = checked(caller, request, idempotency_key)?;
        let outcome = match reply_within {
            None => {
                let mut call = self.client.send(run, hook, &*payload).header(ACTOR_HEADER, &caller.actor);
                if let Some(key) = key {
                    call = call.key(key);
                }
                match call.was_delivered().await {
                    Ok(true) => SendOutcome::of("delivered"),
                    Ok(false) => SendOutcome::of("duplicate"),
                    Err(error) => return Err(self.refused_by(run, error).await),
                }
            }
            Some(time) => {
                let mut call = self.client.ask_as(run, hook, &*payload).header(ACTOR_HEADER, &caller.actor);
                if let Some(key) = key {
                    call = call.key(key);
                }
                match call.post().await {
                    Ok(posted) => answer(&posted, time, self.hides_payloads).await?,
                    Err(error) => return Err(self.refused_by(run, error).await),
                }
            }
        };
        self.sent(run, outcome).await
    }

    /// `POST /api/hooks/{token}`. A closed token is an answer, not a problem.
    ///
    /// # Errors
    ///
    /// `not_found` if no run holds the token, `limit` if the inbox is full, `too_long`, `invalid_request`.
    pub async fn send_to_token(
        &self,
        caller: &Caller,
        token: &str,
        request: SendRequest,
        idempotency_key: Option<&str>,
    ) -> Result<SentJson, Problem> {
        check_name("", token, TOKEN_BYTES_MAX)?;
        let CheckedSend { payload, key, reply_within } = checked(caller, request, idempotency_key)?;
        let unknown = || Problem::new(ProblemCode::NotFound, "no run holds this token");
        let view = self.client.token(token).await.map_err(of_error)?.ok_or_else(unknown)?;
        let outcome = match reply_within {
            None => {
                let mut call =
                    self.client.send_to_token(token, &*payload).header(ACTOR_HEADER, &caller.actor);
                if let Some(key) = key {
                    call = call.key(key);
                }
                match call.await {
                    Ok(TokenDelivery::Unknown) => return Err(unknown()),
                    Ok(TokenDelivery::Closed) => SendOutcome::of("closed"),
                    Ok(delivery) => SendOutcome::of(name_of(delivery)),
                    Err(error) => return Err(self.refused_by(view.run, error).await),
                }
            }
            Some(time) => {
                let mut call = self.client.ask_token(token, &*payload).header(ACTOR_HEADER, &caller.actor);
                if let Some(key) = key {
                    call = call.key(key);
                }
                match call.post().await {
                    Ok(posted) => answer(&posted, time, self.hides_payloads).await?,
                    Err(error) if error.kind() == ErrorKind::NotFound => return Err(unknown()),
                    Err(error) if error.kind() == ErrorKind::Conflict => SendOutcome::of("closed"),
                    Err(error) => return Err(self.refused_by(view.run, error).await),
                }
            }
        };
        self.sent(view.run, outcome).await
    }

    async fn sent(&self, run: RunId, outcome: SendOutcome) -> Result<SentJson, Problem> {
        let SendOutcome { delivery, answer, reply, why } = outcome;
        let (delivery, answer) = (delivery.into(), answer.map(Into::into));
        Ok(SentJson { delivery, answer, reply, why, run: self.run(run).await? })
    }
}

fn checked(
    caller: &Caller,
    request: SendRequest,
    idempotency_key: Option<&str>,
) -> Result<CheckedSend, Problem> {
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
    let reply_within = request.reply_within.as_deref().map(|time| match time.into_duration() {
        Ok(time) if time > REPLY_TIME_MAX => {
            let message = "a request waits for at most 60s; repeat it with its key to continue waiting";
            Err(Problem::field("/reply_within", message))
        }
        Ok(time) => Ok(time),
        Err(error) => Err(Problem::field("/reply_within", error.to_string())),
    });
    let payload = request.payload.unwrap_or_else(|| RawValue::NULL.to_owned());
    Payload::json(&payload).map_err(|error| of_payload("/payload", &error))?;
    Ok(CheckedSend { payload, key, reply_within: reply_within.transpose()? })
}

fn name_of(delivery: TokenDelivery) -> &'static str {
    match delivery {
        TokenDelivery::Duplicate => "duplicate",
        TokenDelivery::Closed => "closed",
        _ => "delivered",
    }
}

/// Waits for the reply to a payload.
async fn answer(
    posted: &PostedAsk<Box<RawValue>>,
    time: Duration,
    hides_payloads: bool,
) -> Result<SendOutcome, Problem> {
    let delivery = name_of(posted.delivery);
    let why = |error: &Error| Some(error.message().to_owned());
    match posted.reply_within(time).await {
        Ok(reply) => {
            let reply = (!hides_payloads).then(|| convert::shown_json(reply));
            Ok(SendOutcome { answer: Some("reply"), reply, ..SendOutcome::of(delivery) })
        }
        Err(error) if error.code() == Some("rejected") => {
            Ok(SendOutcome { why: why(&error), ..SendOutcome::of("rejected") })
        }
        Err(error) if error.code() == Some("not_answered") => {
            let why = why(&error);
            Ok(SendOutcome { answer: Some("not_answered"), why, ..SendOutcome::of(delivery) })
        }
        Err(error) if error.is_timeout() => {
            Ok(SendOutcome { answer: Some("timeout"), ..SendOutcome::of(delivery) })
        }
        Err(error) => Err(of_error(error)),
    }
}
