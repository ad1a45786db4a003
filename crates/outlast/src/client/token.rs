//! Tokens: looking them up, and sending to them.

use std::future::IntoFuture;

use outlast_core::limits::TOKEN_BYTES_MAX;
use outlast_core::{
    Headers, HookAddress, MessageId, NewMessage, Payload, Sent, TokenHash, TokenView, WorldError,
};
use serde::Serialize;

use super::send::{check_message_key, keyed_message, payload_message};
use super::{BoxedCall, Client, check_text};
use crate::error::Error;
use crate::ids;

/// What happened to a payload that was sent to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokenDelivery {
    /// It is stored until the run takes it.
    Delivered,
    /// A payload with the same key was sent before. Nothing was stored.
    Duplicate,
    /// The run has closed the hook, or has ended. Nothing was stored.
    Closed,
    /// No run holds the token. Nothing was stored.
    Unknown,
}

impl TokenDelivery {
    /// What happened to a payload that the world has accepted.
    pub(super) fn of(sent: &Sent) -> Self {
        if sent.is_repeated { Self::Duplicate } else { Self::Delivered }
    }
}

impl Client {
    /// Looks a token up, without waking its run: the run, the hook and its metadata. Returns `None` if no run has taken
    /// the token, or the run has closed it.
    ///
    /// # Errors
    ///
    /// `Invalid` if the text cannot be a token, `Unavailable` if the world does not respond.
    pub async fn token(&self, token: &str) -> Result<Option<TokenView>, Error> {
        check_text("the token", token, TOKEN_BYTES_MAX)?;
        let view = self.repeat(|| self.world.token(TokenHash::of(token))).await?;
        let decoded = view.map(|view| {
            let metadata = view.metadata.clone().map(|metadata| self.codec.decode(metadata)).transpose();
            let mut decoded = view;
            decoded.metadata = metadata?;
            Ok::<_, Error>(decoded)
        });
        decoded.transpose()
    }

    /// Sends a payload to the run that holds a token. Await the returned builder: it says what happened to the payload.
    ///
    /// See [`Context::open_hook`](crate::Context::open_hook) for an example.
    ///
    /// # Errors
    ///
    /// `Limit` if the inbox of the run is full or the payload is too large; `Conflict` if the worker that holds the run
    /// cannot read the message; `Unavailable` if the world does not respond.
    pub fn send_to_token<T: Serialize + ?Sized>(
        &self,
        token: impl Into<String>,
        payload: &T,
    ) -> TokenSendCall<'_> {
        TokenSendCall {
            client: self,
            token: token.into(),
            payload: Payload::json(payload).map_err(Error::from),
            key: None,
            headers: Headers::new(),
        }
    }

    /// Sends a message to the run that holds a token, until the token does not move between the lookup and the send.
    pub(super) async fn post_to_token(
        &self,
        token: &str,
        message: impl Fn(&TokenView) -> Result<NewMessage, Error>,
    ) -> Result<TokenPost, Error> {
        loop {
            let Some(view) = self.repeat(|| self.world.token(TokenHash::of(token))).await? else {
                return Ok(TokenPost::Unknown);
            };
            let message = message(&view)?;
            match self.post(message.clone()).await {
                Ok(sent) => return Ok(TokenPost::Sent(Box::new(message), TokenDelivery::of(&sent))),
                Err(WorldError::Conflict(_) | WorldError::NotFound(_)) if !view.is_open => {
                    return Ok(TokenPost::Closed);
                }
                Err(WorldError::Conflict(_) | WorldError::NotFound(_))
                    if self.has_moved(token, &view).await? => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether a token does not belong to the same operation any more, or is closed.
    async fn has_moved(&self, token: &str, before: &TokenView) -> Result<bool, Error> {
        let now = self.repeat(|| self.world.token(TokenHash::of(token))).await?;
        Ok(now.is_none_or(|now| (now.run, now.op, now.is_open) != (before.run, before.op, before.is_open)))
    }
}

/// What became of a message to a token.
pub(super) enum TokenPost {
    Sent(Box<NewMessage>, TokenDelivery),
    Closed,
    Unknown,
}

/// A call that sends a payload to a token; created by [`Client::send_to_token`]. Await it to send.
#[must_use = "nothing is sent until the call is awaited"]
#[derive(Debug)]
pub struct TokenSendCall<'a> {
    client: &'a Client,
    token: String,
    payload: Result<Payload, Error>,
    key: Option<String>,
    headers: Headers,
}

impl TokenSendCall<'_> {
    /// Sets a key, which makes the send idempotent: of several payloads sent to the token with the same key, while the
    /// same run holds it, only the first is delivered.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a header; see [`SendCall::header`](crate::SendCall::header).
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    async fn call(self) -> Result<TokenDelivery, Error> {
        check_text("the token", &self.token, TOKEN_BYTES_MAX)?;
        self.key.as_deref().map_or(Ok(()), check_message_key)?;
        let (client, payload) = (self.client, self.client.codec.encode(self.payload?)?);
        let new_id = ids::message();
        let message = |view: &TokenView| {
            let id = message_id(view, self.key.as_deref(), new_id);
            let to = HookAddress { token: Some(self.token.as_str().into()), wants_reply: false };
            payload_message(id, view.run, view.hook.clone(), payload.clone(), to, self.headers.clone())
        };
        Ok(match client.post_to_token(&self.token, message).await? {
            TokenPost::Sent(_, delivery) => delivery,
            TokenPost::Closed => TokenDelivery::Closed,
            TokenPost::Unknown => TokenDelivery::Unknown,
        })
    }
}

/// The id of a message to a token: from its key, or the new one.
pub(super) fn message_id(view: &TokenView, key: Option<&str>, new: MessageId) -> MessageId {
    key.map_or(new, |key| keyed_message(view.run, key))
}

impl<'a> IntoFuture for TokenSendCall<'a> {
    type Output = Result<TokenDelivery, Error>;
    type IntoFuture = BoxedCall<'a, TokenDelivery>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
