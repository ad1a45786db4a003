//! Ending runs without their code.

use std::future::IntoFuture;

use outlast_core::limits::REASON_BYTES_MAX;
use outlast_core::{MessageBody, RunId};

use super::control::Cancel;
use super::{BoxedCall, Client, check_bytes};
use crate::error::Error;
use crate::worker::read_all::read_history;

impl Client {
    /// Ends a run now, without its code. Await the returned builder. A run that has ended is not changed.
    ///
    /// Use it for a run that is stuck, whose code is gone, or that does not stop when it is cancelled. Nothing is
    /// cleaned up, unless the call is [compensating](TerminateCall::compensating): a step in progress is asked to stop,
    /// but its outcome is discarded. The status of the run is `cancelled`. Its children are cancelled, and callers that
    /// wait for its output get an error that [is cancelled](Error::is_cancelled). Any worker carries out the request; if
    /// none is joined, this call does.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::Status;
    ///
    /// # async fn clear(client: &Client) -> Result<(), Error> {
    /// for run in client.list().status(Status::Stuck).await?.runs {
    ///     client.terminate(run.id, "its workflow was removed").await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`cancel`](Self::cancel).
    pub fn terminate(&self, run: RunId, reason: &str) -> TerminateCall<'_> {
        TerminateCall { client: self, run, reason: reason.into(), is_compensating: false }
    }
}

/// A call that ends a run without its code; created by [`Client::terminate`]. Await it to end the run.
#[must_use = "nothing happens until the call is awaited"]
#[derive(Debug)]
pub struct TerminateCall<'a> {
    client: &'a Client,
    run: RunId,
    reason: String,
    is_compensating: bool,
}

impl TerminateCall<'_> {
    /// Lets the run's registered [compensations](crate::StepOperation::undo) run before it ends. No code of the workflow
    /// runs, so this works for a run that is stuck, or whose code has changed or is gone.
    ///
    /// A worker with the code of the compensating steps runs them. It must also have a workflow with the name and version
    /// of the run registered, unless it is the worker that received the request. A run without registered compensations
    /// ends at once. A run that compensates already is not changed; a call that is not compensating ends it at once.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # async fn undo(client: &Client, stuck: outlast::RunId) -> Result<(), Error> {
    /// client.terminate(stuck, "the supplier is gone").compensating().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn compensating(mut self) -> Self {
        self.is_compensating = true;
        self
    }

    async fn call(self) -> Result<Cancel, Error> {
        let Self { client, run, reason, is_compensating } = self;
        check_bytes("the reason", reason.len(), REASON_BYTES_MAX)?;
        if is_compensating {
            // The list of compensations is in the history. If it cannot be read, no worker could carry this out.
            client.repeat(|| read_history(&*client.world, run, 0)).await?;
        }
        let message = match is_compensating {
            true => MessageBody::Compensate { reason },
            false => MessageBody::Terminate { reason },
        };
        let sent = client.post_plain(run, message).await;
        let answer = client.answer(run, sent).await?;
        if answer == Cancel::Requested {
            client.end_without_worker_if(run, |status| !status.is_final()).await;
        }
        Ok(answer)
    }
}

impl<'a> IntoFuture for TerminateCall<'a> {
    type Output = Result<Cancel, Error>;
    type IntoFuture = BoxedCall<'a, Cancel>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
