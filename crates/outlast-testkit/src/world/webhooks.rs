//! Requests to webhooks in a test world.

use outlast::RunHandle;
use outlast::webhook::{AcceptedWebhook, WebhookReply, WebhookRequest};

use super::TestWorld;
use crate::rehearsal::webhooks::opened;

impl TestWorld {
    /// Sends a request to a webhook that the run has opened, executes what it causes, and returns the response of the
    /// server. Time does not pass: if the workflow responds itself, and later, the response is 202. Signatures are not
    /// checked.
    ///
    /// ```
    /// use outlast::prelude::*;
    /// use outlast::webhook::WebhookRequest;
    /// use outlast_testkit::TestWorld;
    ///
    /// #[workflow]
    /// async fn payment(ctx: Context) -> Result<u64, Error> {
    ///     let webhook = ctx.webhook("paid").verify("bank").await?;
    ///     webhook.next().timeout("3d").await?.json()
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let world = TestWorld::builder().register(payment).start().await;
    /// let run = world.client().start(payment, ()).await?;
    /// assert_eq!(world.post_webhook(&run, "paid", WebhookRequest::post("4200")).await.status, 202);
    /// assert_eq!(world.run_until_done(&run).await?, 4200);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// When the run has not opened the webhook, or the request is refused.
    pub async fn post_webhook<O>(
        &self,
        run: &RunHandle<O>,
        webhook: &str,
        request: WebhookRequest,
    ) -> WebhookReply {
        self.settle().await;
        let history = match self.client.history(run.id()).await {
            Ok(history) => history,
            Err(error) => panic!("{error}"),
        };
        let Some((token, _)) = opened(&history, webhook) else {
            panic!("run {} has not opened webhook `{webhook}`", run.id());
        };
        let entry = match self.client.webhook(&token).await {
            Ok(Some(entry)) => entry,
            Ok(None) => panic!("run {} has closed webhook `{webhook}`", run.id()),
            Err(error) => panic!("{error}"),
        };
        let accepted = match entry.accept_unsigned(request).await {
            Ok(accepted) => accepted,
            Err(refusal) => panic!("webhook `{webhook}` of run {}: {refusal}", run.id()),
        };
        self.settle().await;
        match accepted.reply_now().await {
            Ok(reply) => reply.unwrap_or_else(AcceptedWebhook::stored_reply),
            Err(error) if error.code() == Some("not_answered") => AcceptedWebhook::stored_reply(),
            Err(error) => panic!("{error}"),
        }
    }
}
