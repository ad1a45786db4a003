//! Requests to webhooks in a rehearsal.

use std::sync::Arc;

use outlast::webhook::{AcceptedWebhook, WebhookReply, WebhookRequest, WebhookResponse, WebhookTerms};
use outlast_core::{Event, Headers, HookAddress, Reply, TurnRecord};
use serde::de::DeserializeOwned;

use super::{Rehearsal, payload};

impl<O: DeserializeOwned> Rehearsal<O> {
    /// Sends a request to a webhook that the workflow has opened, and returns the response of the server. If the workflow
    /// responds itself and has not done so yet, that is 202, as after 30 seconds. Signatures are not checked.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast::webhook::WebhookRequest;
    /// # use outlast_testkit::Rehearsal;
    /// #[workflow]
    /// async fn survey(ctx: Context) -> Result<u8, Error> {
    ///     let webhook = ctx.webhook("rating").manual_response().await?;
    ///     loop {
    ///         let request = webhook.next().await?;
    ///         match request.json() {
    ///             Ok(rating) => {
    ///                 request.respond(200, "thank you")?;
    ///                 return Ok(rating);
    ///             }
    ///             Err(error) => request.respond(400, error.message())?,
    ///         }
    ///     }
    /// }
    ///
    /// let mut run = Rehearsal::of(survey, ());
    /// assert_eq!(run.receives_request("rating", WebhookRequest::post("five")).status, 400);
    /// assert_eq!(run.receives_request("rating", WebhookRequest::post("5")).body, "thank you");
    /// assert_eq!(run.output().unwrap(), 5);
    /// ```
    ///
    /// # Panics
    ///
    /// When the workflow has not opened the webhook, or does not allow the method.
    #[track_caller]
    pub fn receives_request(&mut self, webhook: &str, request: WebhookRequest) -> WebhookReply {
        self.require_running(&format!("webhook `{webhook}` cannot receive anything"));
        let Some((token, terms)) = opened(self.run.history(), webhook) else {
            self.fail(&format!("it has not opened webhook `{webhook}`"))
        };
        if self.run.hook_of_token(&token).is_none() {
            self.fail(&format!("it has closed webhook `{webhook}`"));
        }
        if !terms.allows(request.method()) {
            self.fail(&format!("webhook `{webhook}` does not allow method {}", request.method()));
        }
        let wants_reply = terms.response == WebhookResponse::ByWorkflow;
        let to = HookAddress { token: Some(token), wants_reply };
        let message = match self.run.receive_at(webhook, to, payload(&request), Headers::new()) {
            Ok(message) => message,
            Err(stuck) => {
                self.check(Err(stuck));
                return AcceptedWebhook::stored_reply();
            }
        };
        match (&terms.response, self.run.reply(message)) {
            (WebhookResponse::Fixed(reply), _) => reply.clone(),
            (WebhookResponse::ByWorkflow, Some(Reply::Answered(reply))) => match reply.decode() {
                Ok(reply) => reply,
                Err(error) => self.fail(&format!("its reply is not a response: {error}")),
            },
            _ => AcceptedWebhook::stored_reply(),
        }
    }
}

/// The token and the terms of the webhook of this name that was opened last.
pub(crate) fn opened(history: &[TurnRecord], webhook: &str) -> Option<(Arc<str>, Arc<WebhookTerms>)> {
    let events = history.iter().rev().flat_map(|turn| turn.events.iter().rev());
    let mut requested = events.filter_map(|event| match event {
        Event::TokenRequested(requested) if *requested.name == *webhook => {
            Some((requested.token.clone(), requested.webhook.clone()?))
        }
        _ => None,
    });
    requested.next()
}
