//! Sending to the hooks of a run.

use std::future::IntoFuture;
use std::sync::Arc;

use outlast_core::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX};
use outlast_core::queue::check_name;
use outlast_core::{
    Headers, HookAddress, MessageBody, MessageId, NewMessage, Payload, RunId, Sent, WorldError,
};
use serde::Serialize;

use super::{BoxedCall, Client, check_headers, check_text};
use crate::authoring::hook::HookFor;
use crate::client::within::Within;
use crate::error::Error;
use crate::ids;
use crate::telemetry::trace;

impl Client {
    /// Sends a payload to a hook of a run. Await the returned builder: when it returns, the payload is stored until the
    /// run takes it, whether the run already waits for it or not.
    ///
    /// Only the workflow's code knows the names and types of its hooks, so the call does not check them. A
    /// [`Hook`](crate::Hook) constant that the workflow and the sender share lets the compiler check both. A payload for
    /// a hook that the workflow never opens is kept. A payload that no open hook of its name can decode is rejected:
    /// the run keeps waiting, and the worker logs the reason.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # async fn paid(client: &Client, run: outlast::RunId, delivery: &str) -> Result<(), Error> {
    /// // However often the sender delivers this, the run receives it once.
    /// client.send(run, "paid", &4200).key(delivery).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run; `Conflict` if the run has ended, or if the worker that holds it cannot read
    /// the message; `Limit` if its inbox is full or the payload is too large; `Unavailable` if the world does not
    /// respond.
    pub fn send<T>(&self, run: RunId, hook: impl HookFor<T>, payload: &T) -> SendCall<'_>
    where
        T: Serialize + ?Sized,
    {
        SendCall {
            client: self,
            run,
            hook: hook.hook_name().into(),
            payload: Payload::json(payload).map_err(Error::from),
            key: None,
            headers: Headers::new(),
        }
    }
}

/// A call that sends a payload; created by [`Client::send`]. Await it to send.
#[must_use = "nothing is sent until the call is awaited"]
#[derive(Debug)]
pub struct SendCall<'a> {
    client: &'a Client,
    run: RunId,
    hook: Arc<str>,
    payload: Result<Payload, Error>,
    key: Option<String>,
    headers: Headers,
}

impl SendCall<'_> {
    /// Sets a key, which makes the send idempotent: of several payloads sent to the run with the same key, only the
    /// first is delivered. A repeated send succeeds without effect, even with another payload or after the run has
    /// ended.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a header, such as a trace context or the caller's identity. The workflow reads it with
    /// [`received`](crate::HookOperation::received).
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sends inside the caller's own transaction on the world's database: the payload is sent when the transaction
    /// commits, and not at all if it rolls back. See [`StartCall::within`](crate::StartCall::within).
    ///
    /// # Errors
    ///
    /// As an ordinary send; also if the transaction is on another database than the world.
    pub async fn within<T: Within>(self, transaction: &mut T) -> Result<(), Error> {
        let client = self.client;
        let hook = self.hook.clone();
        let mut message = self.prepare()?;
        // The transaction decides later whether the message is sent; its context is that of this call.
        drop(trace::send_span(&mut message, &hook));
        transaction.send(&*client.world, message).await?;
        Ok(())
    }

    /// Sends, and returns whether the payload was stored now: `false` if one with the same key was sent before.
    ///
    /// # Errors
    ///
    /// As an ordinary send.
    pub async fn was_delivered(self) -> Result<bool, Error> {
        Ok(!self.call().await?.is_repeated)
    }

    async fn call(self) -> Result<Sent, Error> {
        let (client, hook) = (self.client, self.hook.clone());
        let mut message = self.prepare()?;
        let span = trace::send_span(&mut message, &hook);
        let sent = trace::in_span(span, client.post(message)).await;
        if let Some(outcome) = refused_outcome(&sent) {
            client.local.metrics.hook_deliveries.of(outcome).metric.add(1);
        }
        Ok(sent?)
    }

    fn prepare(self) -> Result<NewMessage, Error> {
        check_text("the hook's name", &self.hook, NAME_BYTES_MAX)?;
        check_name("hook", &self.hook).map_err(Error::invalid)?;
        let id = match &self.key {
            Some(key) => {
                check_message_key(key)?;
                keyed_message(self.run, key)
            }
            None => ids::message(),
        };
        let payload = self.client.codec.encode(self.payload?)?;
        payload_message(id, self.run, self.hook, payload, HookAddress::default(), self.headers)
    }
}

/// A message with a payload, whose headers are checked.
pub(super) fn payload_message(
    id: MessageId,
    run: RunId,
    name: Arc<str>,
    payload: Payload,
    to: HookAddress,
    headers: Headers,
) -> Result<NewMessage, Error> {
    headers.keys().try_for_each(|name| check_name("header", name)).map_err(Error::invalid)?;
    check_headers(&headers)?;
    Ok(NewMessage { id, run, body: MessageBody::Hook { name, payload, to }, headers })
}

/// How a payload ends that the run never sees. The run's worker counts the others.
fn refused_outcome(sent: &Result<Sent, WorldError>) -> Option<&'static str> {
    match sent {
        Err(WorldError::Conflict(_)) => Some("closed"),
        Err(WorldError::Limit(_)) => Some("limit"),
        Err(WorldError::NotFound(_)) => Some("not_found"),
        _ => None,
    }
}

/// Checks the key of a message that a program has chosen.
pub(super) fn check_message_key(key: &str) -> Result<(), Error> {
    check_text("the key of a send", key, KEY_BYTES_MAX)?;
    check_name("key", key).map_err(Error::invalid)
}

/// The id of the message with this key. The world accepts each id once.
pub(super) fn keyed_message(run: RunId, key: &str) -> MessageId {
    MessageId::from_bits(Payload::from_json_text(format!("{run} {key}")).digest())
}

impl<'a> IntoFuture for SendCall<'a> {
    type Output = Result<(), Error>;
    type IntoFuture = BoxedCall<'a, ()>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.call().await.map(drop) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_the_same_message_in_every_release() {
        let run = RunId::from_bits(7);
        assert_eq!(keyed_message(run, "delivery-42").to_string(), "msg_0DBS859Y115JR10GAZH52ZAKFK");
        assert_ne!(keyed_message(run, "delivery-42"), keyed_message(run, "delivery-43"));
        assert_ne!(keyed_message(run, "delivery-42"), keyed_message(RunId::from_bits(8), "delivery-42"));
    }
}
