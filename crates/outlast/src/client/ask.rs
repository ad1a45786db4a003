//! Asking a run: a payload whose sender waits for a reply.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use outlast_core::duration::InvalidDuration;
use outlast_core::limits::{NAME_BYTES_MAX, TOKEN_BYTES_MAX};
use outlast_core::queue::check_name;
use outlast_core::time::event_or_time;
use outlast_core::{
    Failure, FailureKind, Headers, HookAddress, IntoDuration, MessageId, OpNumber, Payload, Reply, RunId,
    TokenView,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::send::{check_message_key, keyed_message, payload_message};
use super::token::{TokenDelivery, TokenPost, message_id};
use super::{BoxedCall, Client, check_text};
use crate::authoring::hook::AskFor;
use crate::error::Error;
use crate::ids;

/// The code of the error of an ask that nobody answers.
pub(crate) const NOT_ANSWERED: &str = "not_answered";

/// The code of the error of an ask whose token belongs to another operation than expected.
pub(crate) const TOKEN_MOVED: &str = "token_moved";

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
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn ask_as<R: DeserializeOwned + Send>(
        &self,
        run: RunId,
        hook: impl Into<String>,
        payload: &(impl Serialize + ?Sized),
    ) -> AskCall<'_, R> {
        AskCall::new(self, AskTarget::Hook(run, hook.into()), Payload::json(payload))
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

    /// The reply of a run to a message, if there is one.
    async fn read_reply(&self, run: RunId, message: MessageId) -> Result<Option<Payload>, Error> {
        // Read in this order: a run that has ended replies no more.
        let has_ended = self.repeat(|| self.world.run(run)).await?.status.is_final();
        let reply = self.repeat(|| self.world.reply(run, message)).await?;
        match reply.map(|stored| stored.reply) {
            Some(Reply::Answered(payload)) => Ok(Some(payload)),
            Some(Reply::Rejected(reason)) => {
                let message = format!("the run cannot read the payload: {reason}");
                Err(ask_error(FailureKind::Invalid, REJECTED, message))
            }
            Some(_) => Err(not_answered("the operation that took the payload is over")),
            None if has_ended => Err(not_answered("the run has ended")),
            None => Ok(None),
        }
    }

    /// Waits for the reply of a run to a message.
    async fn await_reply(&self, run: RunId, message: MessageId) -> Result<Payload, Error> {
        // Watch before reading, so that no change is missed.
        let mut watch = self.world.watch(run);
        let mut busy = outlast_core::Busy::uncounted();
        loop {
            if let Some(payload) = self.read_reply(run, message).await? {
                return Ok(payload);
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
    wants_reply: bool,
    /// The operation that must hold the token, if it matters.
    holder: Option<(RunId, OpNumber)>,
    reply: PhantomData<fn() -> R>,
}

/// An ask whose payload is stored, and whose reply was not read yet; from [`AskCall::post`].
pub struct PostedAsk<R> {
    client: Client,
    /// The run.
    pub run: RunId,
    /// The message that contains the payload.
    pub message: MessageId,
    /// Whether the payload was stored now, or by an earlier ask with the same key.
    pub delivery: TokenDelivery,
    reply: PhantomData<fn() -> R>,
}

impl<R> std::fmt::Debug for PostedAsk<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostedAsk({} to {})", self.message, self.run)
    }
}

impl<R: DeserializeOwned> PostedAsk<R> {
    /// Waits for the reply, without a timeout.
    ///
    /// # Errors
    ///
    /// As [`Client::ask`], and `Invalid` if the reply is not an `R`.
    pub async fn reply(&self) -> Result<R, Error> {
        let payload = self.client.await_reply(self.run, self.message).await?;
        self.decode(payload)
    }

    /// Waits for the reply, at most for this long. Later replies can still be read with another call.
    ///
    /// # Errors
    ///
    /// As [`reply`](Self::reply), and `Timeout`.
    pub async fn reply_within(&self, time: Duration) -> Result<R, Error> {
        let clock = self.client.world.clock();
        let until = clock.now().plus(time);
        let reply = self.client.await_reply(self.run, self.message);
        match event_or_time(reply, clock.sleep_until(until)).await {
            Ok(reply) => self.decode(reply?),
            Err(_busy) => {
                let message = format!("no reply to message {} of {} arrived in time", self.message, self.run);
                Err(Error::of_failure(Failure::new(FailureKind::Timeout, message)))
            }
        }
    }

    /// The reply, if there is one already.
    #[cfg(feature = "webhooks")]
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) async fn reply_now(&self) -> Result<Option<R>, Error> {
        let payload = self.client.read_reply(self.run, self.message).await?;
        payload.map(|payload| self.decode(payload)).transpose()
    }

    fn decode(&self, payload: Payload) -> Result<R, Error> {
        let decoded = self.client.codec.decode(payload).and_then(|plain| plain.decode());
        decoded.map_err(|error| {
            Error::invalid(format!("the reply to message {} of {}: {error}", self.message, self.run))
        })
    }
}

impl<'a, R: DeserializeOwned> AskCall<'a, R> {
    fn new(
        client: &'a Client,
        target: AskTarget,
        payload: Result<Payload, outlast_core::PayloadError>,
    ) -> Self {
        let (payload, headers) = (payload.map_err(Error::from), Headers::new());
        let (key, timeout, wants_reply, holder) = (None, None, true, None);
        Self { client, target, payload, key, timeout, headers, wants_reply, holder, reply: PhantomData }
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

    /// Fails with the code [`TOKEN_MOVED`] if another operation than this one holds the token by now.
    #[cfg(feature = "webhooks")]
    pub(crate) fn held_by(mut self, run: RunId, op: OpNumber) -> Self {
        self.holder = Some((run, op));
        self
    }

    /// Sends a payload whose sender does not wait for a reply.
    #[cfg(feature = "webhooks")]
    pub(crate) fn without_reply(mut self) -> Self {
        self.wants_reply = false;
        self
    }

    async fn call(self) -> Result<R, Error> {
        let timeout = self.timeout.clone().transpose().map_err(|error| Error::invalid(error.to_string()))?;
        let clock = self.client.world.clock();
        let until = timeout.map(|timeout| clock.now().plus(timeout));
        let posted = self.post().await?;
        match until {
            None => posted.reply().await,
            Some(until) => posted.reply_within(until.since(clock.now())).await,
        }
    }

    /// Sends the payload, and does not wait for the reply, which the returned [`PostedAsk`] reads. The timeout of the call
    /// does not apply.
    ///
    /// # Errors
    ///
    /// As [`Client::send`]; for a token `NotFound` if no run holds it, and `Conflict` if the run has closed it or has ended.
    pub async fn post(self) -> Result<PostedAsk<R>, Error> {
        let Self { client, target, payload, key, headers, wants_reply, holder, .. } = self;
        let payload = client.codec.encode(payload?)?;
        let new_id = ids::message();
        // Those of webhooks are the engine's.
        if let Some(key) = key.as_deref().filter(|_| holder.is_none()) {
            check_message_key(key)?;
        }
        let posted = |run, message, delivery| PostedAsk {
            client: client.clone(),
            run,
            message,
            delivery,
            reply: PhantomData,
        };
        match target {
            AskTarget::Hook(run, hook) => {
                check_text("the hook's name", &hook, NAME_BYTES_MAX)?;
                check_name("hook", &hook).map_err(Error::invalid)?;
                let id = match &key {
                    None => new_id,
                    Some(key) => keyed_message(run, key),
                };
                let to = HookAddress { token: None, wants_reply };
                let message = payload_message(id, run, hook.as_str().into(), payload, to, headers)?;
                let sent = client.post(message).await?;
                Ok(posted(run, id, TokenDelivery::of(&sent)))
            }
            AskTarget::Token(token) => {
                check_text("the token", &token, TOKEN_BYTES_MAX)?;
                let message = |view: &TokenView| {
                    if holder.is_some_and(|holder| holder != (view.run, view.op)) {
                        let message = "the token belongs to another operation by now";
                        return Err(ask_error(FailureKind::Conflict, TOKEN_MOVED, message.into()));
                    }
                    let id = message_id(view, key.as_deref(), new_id);
                    let to = HookAddress { token: Some(token.as_str().into()), wants_reply };
                    payload_message(id, view.run, view.hook.clone(), payload.clone(), to, headers.clone())
                };
                match client.post_to_token(&token, message).await? {
                    TokenPost::Sent(sent, delivery) => Ok(posted(sent.run, sent.id, delivery)),
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
