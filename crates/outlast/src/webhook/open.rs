//! Webhooks as the code of a workflow sees them.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use outlast_core::limits::NAME_BYTES_MAX;
use outlast_core::{
    Failure, FailureKind, IntoDuration, MessageId, SignatureTerms, Timestamp, WebhookReply, WebhookResponse,
};

use super::WebhookRequest;
use crate::authoring::context::Context;
use crate::authoring::open_hook::{OpenHook, OpenHookOperation};
use crate::authoring::operation::{Received, ReceivedOperation};
use crate::error::Error;

/// The methods that a webhook can declare.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

impl Context {
    /// Opens a webhook: a hook whose payloads are HTTP requests to a URL of its own. Await the returned builder for an
    /// [`OpenWebhook`], which takes any number of requests.
    ///
    /// ```
    /// use outlast::prelude::*;
    /// use outlast::webhook::WebhookRequest;
    ///
    /// #[step]
    /// async fn order_payment(notify: String) -> Result<(), StepError> {
    ///     Ok(()) // … tells the bank where to send its notifications
    /// }
    ///
    /// #[workflow]
    /// async fn checkout(ctx: Context) -> Result<bool, Error> {
    ///     let bank = ctx.webhook("bank").verify("bank").await?;
    ///     ctx.step(order_payment, bank.url()?).await?;
    ///     let request = bank.next().timeout("3d").await?;
    ///     Ok(request.text()? == "paid")
    /// }
    ///
    /// let mut run = outlast_testkit::Rehearsal::of(checkout, ());
    /// run.completes(order_payment, ());
    /// run.receives_request("bank", WebhookRequest::post("paid"));
    /// assert!(run.output().unwrap());
    /// ```
    ///
    /// A server (`outlast-server`) accepts the requests: it stores them, and then responds. A request may arrive before the
    /// workflow waits for it, and is kept. The URL contains a generated token of 256 bits, which nobody can guess. Like every
    /// [token](Self::open_hook), it is free when the `OpenWebhook` is dropped or closed, or the run has ended.
    #[track_caller]
    pub fn webhook(&self, name: impl AsRef<str>) -> WebhookOperation {
        let mut hook = self.open_hook(name.as_ref());
        hook.webhook_terms();
        WebhookOperation { hook, is_manual: false }
    }
}

/// Opens a webhook; created by [`Context::webhook`].
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct WebhookOperation {
    hook: OpenHookOperation<WebhookRequest>,
    is_manual: bool,
}

impl WebhookOperation {
    /// Chooses the token, for a URL that a sender is configured with once. The operation completes when the world has
    /// answered, and fails with an error that [is a conflict](Error::is_conflict) if another run has the token.
    ///
    /// A chosen token may be guessed: [verify](Self::verify) the signatures of the requests. It has letters, digits, `-`, `_`,
    /// `.` and `~`.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.hook = self.hook.token(token);
        self
    }

    /// Keeps the token for this long after the webhook was closed or the run has ended: senders learn that it is over, and no
    /// other run can take it.
    pub fn keep_for(mut self, duration: impl IntoDuration) -> Self {
        self.hook = self.hook.keep_for(duration);
        self
    }

    /// Sets the allowed methods, instead of `POST`. A method other than `GET`, `HEAD`, `POST`, `PUT`, `PATCH` and `DELETE` is an
    /// error when the operation is awaited.
    pub fn methods<M: AsRef<str>>(mut self, methods: impl IntoIterator<Item = M>) -> Self {
        let methods: Vec<String> = methods.into_iter().map(|method| method.as_ref().to_owned()).collect();
        match methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
            Some(method) => {
                self.refuse(format!(
                    "a webhook cannot have method `{method}`; choose from {}",
                    METHODS.join(", ")
                ));
            }
            None if methods.is_empty() => self.refuse("the webhook has no methods; name at least one"),
            None => {
                // In the order of the list, each once.
                let wanted = METHODS.iter().filter(|known| methods.iter().any(|method| method == *known));
                self.hook.webhook_terms().methods = wanted.map(|&method| method.to_owned()).collect();
            }
        }
        self
    }

    /// Accepts only requests that are signed according to [Standard Webhooks](super::StandardWebhooks), at most five minutes
    /// ago. The server that receives the request knows the secret by this name; it is not recorded.
    pub fn verify(self, secret: impl Into<String>) -> Self {
        self.signed(SignatureTerms { secret: secret.into(), hmac_header: None })
    }

    /// As [`verify`](Self::verify), for requests with the [HMAC-SHA256 of the body](super::HmacSha256) in this header. Such a
    /// signature has no time, so an old request can be repeated.
    pub fn verify_hmac(self, secret: impl Into<String>, header: impl Into<String>) -> Self {
        let header = header.into().to_ascii_lowercase();
        self.signed(SignatureTerms { secret: secret.into(), hmac_header: Some(header) })
    }

    fn signed(mut self, terms: SignatureTerms) -> Self {
        let is_bad = |text: &str| text.is_empty() || text.len() > NAME_BYTES_MAX;
        if is_bad(&terms.secret) || terms.hmac_header.as_deref().is_some_and(is_bad) {
            self.refuse(format!("the name of a secret or header has 1 to {NAME_BYTES_MAX} bytes"));
        }
        self.hook.webhook_terms().signature = Some(terms);
        self
    }

    /// Lets the operation fail.
    fn refuse(&mut self, problem: impl Into<String>) {
        self.hook.fail(Failure::new(FailureKind::Invalid, problem.into()));
    }

    /// Lets the server respond with this status and text as soon as a request is stored. The default is 202 without a body.
    pub fn respond_with(self, status: u16, body: impl Into<String>) -> Self {
        self.respond_as(WebhookReply::new(status, body))
    }

    /// As [`respond_with`](Self::respond_with), with headers.
    pub fn respond_as(mut self, reply: WebhookReply) -> Self {
        if let Some(problem) = reply.problem() {
            self.refuse(problem);
        }
        self.is_manual = false;
        self.hook.webhook_terms().response = WebhookResponse::Fixed(reply);
        self
    }

    /// Lets the workflow respond to each request, with [`ReceivedRequest::respond`]. The server waits for 30 seconds, and then
    /// responds with 202.
    pub fn manual_response(mut self) -> Self {
        self.is_manual = true;
        self.hook.webhook_terms().response = WebhookResponse::ByWorkflow;
        self
    }
}

impl Future for WebhookOperation {
    type Output = Result<OpenWebhook, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let is_manual = self.is_manual;
        let (hook, public_url) = ready!(self.hook.poll_taken(cx))?;
        Poll::Ready(Ok(OpenWebhook { hook, public_url, is_manual }))
    }
}

/// An open webhook; created by [`Context::webhook`]. Dropping it frees its token.
#[derive(Debug)]
pub struct OpenWebhook {
    hook: OpenHook<WebhookRequest>,
    public_url: Option<String>,
    is_manual: bool,
}

impl OpenWebhook {
    /// Returns the URL. It is recorded, so it stays the same when the setting of the worker changes. It is a secret: whoever
    /// knows it can send requests.
    ///
    /// # Errors
    ///
    /// `Invalid` if the worker that opened the webhook has no [public URL](crate::WorkerBuilder::public_url).
    pub fn url(&self) -> Result<String, Error> {
        let public_url = self.public_url.as_deref().ok_or_else(|| {
            Error::invalid(format!(
                "the worker that opened webhook `{}` does not know its own address; give it `.public_url(\"https://…\")`",
                self.hook.name()
            ))
        })?;
        Ok(format!("{public_url}/webhooks/{}", self.hook.token()))
    }

    /// Returns the token.
    pub fn token(&self) -> &str {
        self.hook.token()
    }

    /// Returns the webhook's name.
    pub fn name(&self) -> &str {
        self.hook.name()
    }

    /// Waits for the next request. Requests are taken in the order of their arrival. One that arrived while nobody waited is
    /// kept.
    #[track_caller]
    pub fn next(&self) -> NextWebhookRequest {
        NextWebhookRequest { hook: self.hook.next().received(), is_manual: self.is_manual }
    }

    /// Frees the token. Requests that nobody has taken are discarded, and those that wait for a response get 202.
    ///
    /// Dropping it does the same, except when the run continues as a new generation: then the token stays taken.
    pub fn close(self) {
        self.hook.close();
    }
}

/// A wait for a request to a webhook; created by [`OpenWebhook::next`].
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct NextWebhookRequest {
    hook: ReceivedOperation<WebhookRequest>,
    is_manual: bool,
}

impl NextWebhookRequest {
    /// Sets how long to wait. After that the operation fails with a timeout. An invalid duration is an error when the
    /// operation is awaited.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn timeout(mut self, timeout: impl IntoDuration) -> Self {
        self.hook = self.hook.timeout(timeout);
        self
    }

    /// Cancels the wait; see [`HookOperation::cancel`](crate::HookOperation::cancel).
    pub fn cancel(&self) {
        self.hook.cancel();
    }
}

impl Future for NextWebhookRequest {
    type Output = Result<ReceivedRequest, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let received = ready!(Pin::new(&mut self.hook).poll(cx))?;
        Poll::Ready(Ok(ReceivedRequest { received, is_manual: self.is_manual }))
    }
}

/// A request to a webhook that the workflow has taken. It dereferences to the [`WebhookRequest`].
///
/// If the webhook has a [manual response](WebhookOperation::manual_response), and every clone is dropped without one, the
/// server responds with 202.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedRequest {
    received: Received<WebhookRequest>,
    is_manual: bool,
}

impl ReceivedRequest {
    /// Returns when the world accepted the request.
    pub fn at(&self) -> Timestamp {
        self.received.at
    }

    /// Returns the id of the message that contains the request.
    pub fn message(&self) -> MessageId {
        self.received.message
    }

    /// Responds with this status and text. The response is sent after the next commit of the run.
    ///
    /// The server waits for 30 seconds; a later response is stored, and is sent if the sender delivers the request again.
    ///
    /// # Errors
    ///
    /// `Invalid` if the webhook was opened without a [manual response](WebhookOperation::manual_response), the response cannot
    /// be sent, or the request was already responded to.
    pub fn respond(&self, status: u16, body: impl Into<String>) -> Result<(), Error> {
        self.respond_as(&WebhookReply::new(status, body))
    }

    /// As [`respond`](Self::respond), with headers.
    ///
    /// # Errors
    ///
    /// As [`respond`](Self::respond).
    pub fn respond_as(&self, reply: &WebhookReply) -> Result<(), Error> {
        if !self.is_manual {
            return Err(Error::invalid(
                "the server has responded to the request already; open the webhook with `.manual_response()`",
            ));
        }
        match reply.problem() {
            Some(problem) => Err(Error::invalid(problem)),
            None => self.received.reply(reply),
        }
    }
}

impl Deref for ReceivedRequest {
    type Target = WebhookRequest;

    fn deref(&self) -> &WebhookRequest {
        &self.received.payload
    }
}
