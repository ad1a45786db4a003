//! Requests to webhooks as a server accepts them: looked up, checked, and sent to the run.

use std::fmt;
use std::sync::Arc;

use outlast_core::limits::{KEY_BYTES_MAX, TOKEN_BYTES_MAX, WEBHOOK_BODY_BYTES_MAX};
use outlast_core::{RunId, TokenHash, TokenView, WebhookReply, WebhookResponse, WebhookTerms};

use super::{WebhookError, WebhookRequest, WebhookSecrets};
use crate::client::{Client, NOT_ANSWERED, PostedAsk, TOKEN_MOVED, TokenDelivery};
use crate::error::{Error, ErrorKind};

/// The headers with the id of a delivery: that of Standard Webhooks, and the usual one of HTTP.
const DELIVERY_IDS: [&str; 2] = ["webhook-id", "idempotency-key"];

impl Client {
    /// Looks a webhook up by its token, without waking its run. Returns `None` if there is none: no run has the token, or it is
    /// that of a hook which is not a webhook.
    ///
    /// A server of `outlast-server` does this for each request to `/webhooks/…`. Use it to accept requests in a server of
    /// your own:
    ///
    /// ```
    /// use outlast::prelude::*;
    /// use outlast::webhook::{WebhookReply, WebhookRequest, WebhookSecrets};
    ///
    /// async fn handle(client: &Client, token: &str, request: WebhookRequest) -> Result<WebhookReply, Error> {
    ///     let secrets = WebhookSecrets::new().with("bank", std::env::var("BANK_SECRET").unwrap_or_default());
    ///     let Some(webhook) = client.webhook(token).await? else { return Ok(WebhookReply::new(404, "")) };
    ///     match webhook.accept(request, &secrets).await {
    ///         Ok(accepted) => accepted.reply().await, // set a timeout, if workflows respond themselves
    ///         Err(refusal) => Ok(WebhookReply::new(refusal.status(), refusal.to_string())),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn webhook(&self, token: &str) -> Result<Option<WebhookEntry>, Error> {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
            return Ok(None);
        }
        let Some(view) = self.repeat(|| self.world().token(TokenHash::of(token))).await? else {
            return Ok(None);
        };
        let terms = view.webhook.clone();
        Ok(terms.map(|terms| WebhookEntry { client: self.clone(), token: token.into(), view, terms }))
    }
}

/// A webhook that was looked up; from [`Client::webhook`].
pub struct WebhookEntry {
    client: Client,
    token: String,
    view: TokenView,
    terms: Arc<WebhookTerms>,
}

/// Why a request to a webhook is not accepted. Nothing was stored, except that this is not known after
/// [`Failed`](Self::Failed).
#[derive(Debug)]
#[non_exhaustive]
pub enum WebhookRefusal {
    /// The run has ended, or has closed the webhook.
    Ended,
    /// The webhook does not allow the method. These are allowed.
    Method(Vec<String>),
    /// The body is too large.
    TooLarge,
    /// The signature is missing, wrong or too old.
    NotSigned(WebhookError),
    /// The server does not have the secret with this name.
    NoSecret(String),
    /// The secret with this name cannot be used, for this reason.
    BadSecret(String, &'static str),
    /// The world refused the request, or does not respond.
    Failed(Error),
}

impl WebhookRefusal {
    /// The status of the response: 401, 405, 410, 413, 429 or 503.
    pub fn status(&self) -> u16 {
        match self {
            Self::Ended => 410,
            Self::Method(_) => 405,
            Self::TooLarge => 413,
            Self::NotSigned(_) => 401,
            Self::Failed(error) if error.kind() == ErrorKind::Limit => 429,
            Self::NoSecret(_) | Self::BadSecret(..) | Self::Failed(_) => 503,
        }
    }
}

/// What the sender may know: the reasons of the server are for its log.
impl fmt::Display for WebhookRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the webhook is closed; do not send to it any more"),
            Self::Method(allowed) => write!(f, "the webhook accepts {}", allowed.join(", ")),
            Self::TooLarge => write!(f, "the body has more than {WEBHOOK_BODY_BYTES_MAX} bytes"),
            Self::NotSigned(error) => error.fmt(f),
            Self::NoSecret(_) | Self::BadSecret(..) => {
                f.write_str("the server cannot check signatures of this webhook at the moment; send the request again later")
            }
            Self::Failed(error) if error.kind() == ErrorKind::Limit => {
                f.write_str("too many requests to this webhook wait to be processed; send the request again later")
            }
            Self::Failed(_) => f.write_str("the server cannot store the request at the moment; send it again"),
        }
    }
}

impl std::error::Error for WebhookRefusal {}

impl WebhookEntry {
    /// The run that has opened the webhook.
    pub fn run(&self) -> RunId {
        self.view.run
    }

    /// The webhook's name.
    pub fn name(&self) -> &str {
        &self.view.hook
    }

    /// How requests are handled.
    pub fn terms(&self) -> &WebhookTerms {
        &self.terms
    }

    /// Whether a request can be accepted at all, from its method and headers: check it before reading a body.
    ///
    /// If the run has ended, or has closed the webhook, only a request that was accepted before can be accepted: one with
    /// the id of a delivery.
    ///
    /// # Errors
    ///
    /// `Ended` and `Method`.
    pub fn check_head(&self, request: &WebhookRequest) -> Result<(), WebhookRefusal> {
        if !self.view.is_open && delivery_id(request).is_none() {
            return Err(WebhookRefusal::Ended);
        }
        match self.terms.allows(request.method()) {
            true => Ok(()),
            false => Err(WebhookRefusal::Method(
                self.terms.allowed_methods().into_iter().map(Into::into).collect(),
            )),
        }
    }

    /// Checks a request, and sends it to the run. When this returns, the request is stored until the run takes it.
    ///
    /// The signature is checked before anything is stored. A request with the id of an earlier one (the header `webhook-id`,
    /// otherwise `Idempotency-Key`) is not delivered again, and has the same response, also if the run has ended since.
    ///
    /// # Errors
    ///
    /// Why the request is not accepted.
    pub async fn accept(
        &self,
        request: WebhookRequest,
        secrets: &WebhookSecrets,
    ) -> Result<AcceptedWebhook, WebhookRefusal> {
        self.check_head(&request)?;
        if request.bytes().len() > WEBHOOK_BODY_BYTES_MAX {
            return Err(WebhookRefusal::TooLarge);
        }
        let now = self.client.world().clock().now();
        let signed_id = match &self.terms.signature {
            Some(signature) => secrets.check(signature, &request, now)?,
            None => None,
        };
        self.deliver(request, signed_id).await
    }

    /// As [`accept`](Self::accept), without a check of the signature.
    #[cfg(any(test, feature = "test-support"))]
    pub async fn accept_unsigned(&self, request: WebhookRequest) -> Result<AcceptedWebhook, WebhookRefusal> {
        self.check_head(&request)?;
        self.deliver(request, None).await
    }

    async fn deliver(
        &self,
        request: WebhookRequest,
        signed_id: Option<String>,
    ) -> Result<AcceptedWebhook, WebhookRefusal> {
        let id = signed_id.filter(|id| !id.is_empty()).or_else(|| delivery_id(&request).map(str::to_owned));
        let is_manual = self.terms.response == WebhookResponse::ByWorkflow;
        let mut ask = self.client.ask_token::<WebhookReply, _>(self.token.as_str(), &request);
        // The request was checked by the terms of this operation.
        ask = ask.held_by(self.view.run, self.view.op);
        if let Some(id) = id {
            ask = ask.key(self.key(&id));
        }
        let posted = if is_manual { ask.post().await } else { ask.without_reply().post().await };
        match posted {
            Ok(posted) => Ok(AcceptedWebhook { posted, response: self.terms.response.clone() }),
            Err(error) if error.code() == Some(TOKEN_MOVED) => Err(WebhookRefusal::Failed(error)),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {
                Err(WebhookRefusal::Ended)
            }
            Err(error) => Err(WebhookRefusal::Failed(error)),
        }
    }

    /// The key of a delivery. It differs from the keys of other senders, and from that of the same id at another webhook.
    fn key(&self, id: &str) -> String {
        let key = format!("outlast:webhook:{}", TokenHash::of(&format!("{} {id}", self.token)));
        debug_assert!(key.len() <= KEY_BYTES_MAX, "{key}");
        key
    }
}

/// The id of a delivery, if its sender says one.
fn delivery_id(request: &WebhookRequest) -> Option<&str> {
    DELIVERY_IDS.iter().find_map(|name| request.header(name)).filter(|id| !id.is_empty())
}

impl fmt::Debug for WebhookEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookEntry({} of {})", self.view.hook, self.view.run)
    }
}

/// A request that is stored until its run takes it; from [`WebhookEntry::accept`].
#[derive(Debug)]
pub struct AcceptedWebhook {
    posted: PostedAsk<WebhookReply>,
    response: WebhookResponse,
}

impl AcceptedWebhook {
    /// Whether the request was accepted before: nothing was stored.
    pub fn is_duplicate(&self) -> bool {
        self.posted.delivery == TokenDelivery::Duplicate
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.posted.run
    }

    /// The response, if it does not depend on the workflow.
    pub fn immediate_reply(&self) -> Option<WebhookReply> {
        match &self.response {
            WebhookResponse::Fixed(reply) => Some(reply.clone()),
            WebhookResponse::ByWorkflow => None,
            _ => Some(Self::stored_reply()),
        }
    }

    /// The response to a request that is stored, and for which the workflow has no response in time.
    pub fn stored_reply() -> WebhookReply {
        WebhookReply::new(202, "")
    }

    /// Waits for the response. It has no timeout. If the workflow drops the request without a response, or ends, the response
    /// is 202.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond, `Invalid` if the response cannot be read.
    pub async fn reply(self) -> Result<WebhookReply, Error> {
        if let Some(reply) = self.immediate_reply() {
            return Ok(reply);
        }
        match self.posted.reply().await {
            Err(error) if error.code() == Some(NOT_ANSWERED) => Ok(Self::stored_reply()),
            reply => reply,
        }
    }

    /// The response, if the workflow has responded already.
    #[cfg(any(test, feature = "test-support"))]
    pub async fn reply_now(&self) -> Result<Option<WebhookReply>, Error> {
        match self.immediate_reply() {
            Some(reply) => Ok(Some(reply)),
            None => self.posted.reply_now().await,
        }
    }
}
