//! Asking a run: a payload whose sender waits for a reply.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use outlast_core::duration::InvalidDuration;
use outlast_core::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX, TOKEN_BYTES_MAX};
use outlast_core::queue::check_name;
use outlast_core::time::event_or_time;
use outlast_core::{
    Failure, FailureKind, Headers, HookAddress, IntoDuration, MessageId, Payload, Reply, RunId, TokenView,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::send::{keyed_message, payload_message};
use super::token::{TokenPost, message_id};
use super::{BoxedCall, Client, check_text};
use crate::authoring::hook::AskFor;
use crate::error::Error;
use crate::ids;

/// The code of the error of an ask that nobody answers.
pub(crate) const NOT_ANSWERED: &str = "not_answered";

/// The code of the error of an ask whose payload the run cannot decode.
pub(crate) const REJECTED: &str = "rejected";

impl Client {
    /// Sends a payload to a hook of a run, and waits for its reply. Await the returned builder for the reply.
    ///
    /// The run takes the payload with [`received`](crate::HookOperation::received), and replies with
    /// [`Received::reply`](crate::Received::reply), which has an example. The ask ends with the first of: the reply; an
    /// error with the [code](Error::code) `rejected`, if no open hook can decode the payload; one with the code
    /// `not_answered`, if the operation, the generation or the run that took the payload is over; and its
    /// [timeout](AskCall::timeout), if there is one.
    ///
    /// # Errors
    ///
    /// As above, and as [`Client::send`].
    pub fn ask<T, H>(&self, run: RunId, hook: H, payload: &T) -> AskCall<'_, H::Reply>
    where
        T: Serialize + ?Sized,
        H: AskFor<T>,
    {
        AskCall::new(self, AskTarget::Hook(run, hook.hook_name().to_owned()), Payload::json(payload))
    }

    /// As [`ask`](Self::ask), with the name of a hook as text. The reply is decoded as an `R`.
    pub(crate) fn ask_as<R: DeserializeOwned + Send>(
        &self,
        run: RunId,
        hook: String,
        payload: &(impl Serialize + ?Sized),
    ) -> AskCall<'_, R> {
        AskCall::new(self, AskTarget::Hook(run, hook), Payload::json(payload))
    }

    /// As [`ask`](Self::ask), for the run that holds a token. The reply is decoded as an `R`.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask); `NotFound` if no run holds the token, `Conflict` if the run has closed it or has ended.
    pub fn ask_token<R, T>(&self, token: impl Into<String>, payload: &T) -> AskCall<'_, R>
    where
        T: Serialize + ?Sized,
        R: DeserializeOwned + Send,
    {
        AskCall::new(self, AskTarget::Token(token.into()), Payload::json(payload))
    }

    /// Waits for the reply of a run to a message.
    async fn await_reply(&self, run: RunId, message: MessageId) -> Result<Payload, Error> {
        // Watch before reading, so that no change is missed.
        let mut watch = self.world.watch(run);
        let mut busy = outlast_core::Busy::uncounted();
        loop {
            // Read in this order: a run that has ended replies no more.
            let has_ended = self.repeat(|| self.world.run(run)).await?.status.is_final();
            let reply = self.repeat(|| self.world.reply(run, message)).await?;
            match reply.map(|stored| stored.reply) {
                Some(Reply::Answered(payload)) => return Ok(payload),
                Some(Reply::Rejected(reason)) => {
                    let message = format!("the run cannot read the payload: {reason}");
                    return Err(ask_error(FailureKind::Invalid, REJECTED, message));
                }
                Some(_) => return Err(not_answered("the operation that took the payload is over")),
                None if has_ended => return Err(not_answered("the run has ended")),
                None => {}
            }
            drop(busy);
            busy = self.wait_for_change(&mut watch).await;
        }
    }
}

fn ask_error(kind: FailureKind, code: &str, message: String) -> Error {
    Error::of_failure(Failure::new(kind, message).with_code(code))
}

fn not_answered(why: &str) -> Error {
    ask_error(FailureKind::Conflict, NOT_ANSWERED, format!("nobody replied: {why}"))
}

/// Who is asked.
#[derive(Clone, Debug)]
enum AskTarget {
    Hook(RunId, String),
    Token(String),
}

/// A call that waits for a reply; created by [`Client::ask`] and [`Client::ask_token`]. Await it.
#[must_use = "nothing is sent until the call is awaited"]
#[derive(Debug)]
pub struct AskCall<'a, R> {
    client: &'a Client,
    target: AskTarget,
    payload: Result<Payload, Error>,
    key: Option<String>,
    timeout: Option<Result<Duration, InvalidDuration>>,
    headers: Headers,
    reply: PhantomData<fn() -> R>,
}

impl<'a, R: DeserializeOwned> AskCall<'a, R> {
    fn new(
        client: &'a Client,
        target: AskTarget,
        payload: Result<Payload, outlast_core::PayloadError>,
    ) -> Self {
        let (payload, headers) = (payload.map_err(Error::from), Headers::new());
        Self { client, target, payload, key: None, timeout: None, headers, reply: PhantomData }
    }

    /// Sets a key. An ask that is repeated with its key, within 7 days and until the run is pruned, gets the same reply,
    /// also if this program was killed in between.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets how long to wait for the reply. The payload stays sent, and the run may reply later.
    pub fn timeout(mut self, timeout: impl IntoDuration) -> Self {
        self.timeout = Some(timeout.into_duration());
        self
    }

    /// Adds a header; see [`SendCall::header`](crate::SendCall::header).
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    async fn call(self) -> Result<R, Error> {
        let client = self.client;
        let timeout = self.timeout.clone().transpose().map_err(|error| Error::invalid(error.to_string()))?;
        let clock = client.world.clock();
        let until = timeout.map(|timeout| clock.now().plus(timeout));
        let (run, message) = self.send().await?;
        let reply = client.await_reply(run, message);
        let payload = match until {
            None => reply.await?,
            Some(until) => match event_or_time(reply, clock.sleep_until(until)).await {
                Ok(reply) => reply?,
                Err(_busy) => {
                    let message = format!("no reply to message {message} of {run} arrived in time");
                    return Err(Error::of_failure(Failure::new(FailureKind::Timeout, message)));
                }
            },
        };
        let decoded = client.codec.decode(payload).and_then(|plain| plain.decode());
        decoded.map_err(|error| Error::invalid(format!("the reply to message {message} of {run}: {error}")))
    }

    /// Sends the payload, and returns the run and the message.
    async fn send(self) -> Result<(RunId, MessageId), Error> {
        let Self { client, target, payload, key, headers, .. } = self;
        let payload = client.codec.encode(payload?)?;
        let new_id = ids::message();
        match target {
            AskTarget::Hook(run, hook) => {
                check_text("the hook's name", &hook, NAME_BYTES_MAX)?;
                check_name("hook", &hook).map_err(Error::invalid)?;
                let id = match &key {
                    None => new_id,
                    Some(key) => {
                        check_text("the key of an ask", key, KEY_BYTES_MAX)?;
                        keyed_message(run, key)
                    }
                };
                let to = HookAddress { token: None, wants_reply: true };
                client.post(payload_message(id, run, hook.as_str().into(), payload, to, headers)?).await?;
                Ok((run, id))
            }
            AskTarget::Token(token) => {
                check_text("the token", &token, TOKEN_BYTES_MAX)?;
                let message = |view: &TokenView| {
                    let id = message_id(view, key.as_deref(), new_id)?;
                    let to = HookAddress { token: Some(token.as_str().into()), wants_reply: true };
                    payload_message(id, view.run, view.hook.clone(), payload.clone(), to, headers.clone())
                };
                match client.post_to_token(&token, message).await? {
                    TokenPost::Sent(sent, _) => Ok((sent.run, sent.id)),
                    TokenPost::Closed => Err(Error::of_failure(Failure::new(
                        FailureKind::Conflict,
                        "the token is closed: its run has closed the hook, or has ended",
                    ))),
                    TokenPost::Unknown => {
                        Err(Error::of_world(&outlast_core::WorldError::not_found("no run holds this token")))
                    }
                }
            }
        }
    }
}

impl<'a, R: DeserializeOwned + Send + 'a> IntoFuture for AskCall<'a, R> {
    type Output = Result<R, Error>;
    type IntoFuture = BoxedCall<'a, R>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
