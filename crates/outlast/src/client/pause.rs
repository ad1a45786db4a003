//! Pausing and resuming runs.

use std::future::IntoFuture;

use outlast_core::limits::REASON_BYTES_MAX;
use outlast_core::{MessageBody, RunId, WorldError};

use super::control::Controlled;
use super::{BoxedCall, Client, check_bytes};
use crate::error::Error;

impl Client {
    /// Pauses a run: it does not continue until it is resumed. Await the returned builder.
    ///
    /// The worker that holds the run begins no more attempts, lets the running ones end, keeps their outcomes, and
    /// releases the run. Nothing is delivered to the workflow meanwhile: messages stay in the run's inbox, and its
    /// timers keep running. Everything that arrived or became due is delivered when the run is
    /// [resumed](Self::resume), in the order of time. A pause changes no outcome.
    ///
    /// A cancel and the run's deadline end the pause, so that the workflow can clean up; [`terminate`](Self::terminate)
    /// ends the run. The children of the run and its queued steps continue.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::Controlled;
    ///
    /// # #[workflow] async fn nap(ctx: Context) -> Result<(), Error> { ctx.sleep("1ms").await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let client = Client::new(world.clone());
    /// let run = client.start(nap, ()).await?;
    /// assert_eq!(client.pause(run.id()).reason("the bank is closed").await?, Controlled::Requested);
    /// assert_eq!(run.pause().await?, Controlled::Already);
    /// assert_eq!(run.view().await?.shown_status(), "paused");
    ///
    /// # let worker = Worker::builder(world).register(nap).start().await?;
    /// assert_eq!(client.resume(run.id()).await?, Controlled::Requested);
    /// run.output().await?;
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run; `Conflict` if the run has ended, was asked to stop, or is held by a worker
    /// of a build that cannot pause runs; `Limit` if its inbox is full or the reason is longer than 4 KiB;
    /// `Unavailable` if the world does not respond.
    pub fn pause(&self, run: RunId) -> PauseCall<'_> {
        PauseCall { client: self, run, reason: String::new() }
    }

    /// Ends the pause of a run. If the run is not paused, lets every build try it again, including builds that have
    /// failed to continue it: a stuck run is then tried at once, a waiting run continues when its wait ends.
    ///
    /// You need the latter only if the same build should try again; a worker of another build tries a stuck run
    /// without it. Returns [`Nothing`](Controlled::Nothing) if the run was neither paused nor stuck.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run; `Conflict` if the run has ended, or is not paused and a worker holds it;
    /// `Unavailable` if the world does not respond.
    pub async fn resume(&self, run: RunId) -> Result<Controlled, Error> {
        let view = self.run(run).await?;
        if view.marks.is_paused() {
            return match self.post_plain(run, MessageBody::Resume).await {
                Ok(_) => Ok(Controlled::Requested),
                Err(error) => Err(error.into()),
            };
        }
        let is_needed = view.stuck.is_some() || !view.failed_builds.is_empty();
        self.retry_failed_builds(run).await?;
        Ok(if is_needed { Controlled::Requested } else { Controlled::Nothing })
    }

    /// Lets every build try a run again.
    async fn retry_failed_builds(&self, run: RunId) -> Result<(), Error> {
        let mut attempts = 0;
        let resume = || {
            attempts += 1;
            self.world.resume(run)
        };
        let answer = self.repeat(resume).await;
        if attempts > 1 && matches!(answer, Err(WorldError::Conflict(_))) {
            // An earlier attempt may have resumed the run without an answer, and a worker holds it since.
            if !self.run(run).await?.status.is_final() {
                return Ok(());
            }
        }
        Ok(answer?)
    }
}

/// A call that pauses a run; created by [`Client::pause`]. Await it to pause the run.
#[must_use = "the run is not paused until the call is awaited"]
#[derive(Debug)]
pub struct PauseCall<'a> {
    client: &'a Client,
    run: RunId,
    reason: String,
}

impl PauseCall<'_> {
    /// Sets the reason, which [`explain`](Client::explain) shows while the run is paused.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    async fn call(self) -> Result<Controlled, Error> {
        let Self { client, run, reason } = self;
        check_bytes("the reason", reason.len(), REASON_BYTES_MAX)?;
        let view = client.run(run).await?;
        if view.marks.is_paused() {
            return Ok(Controlled::Already);
        }
        client.post_plain(run, MessageBody::Pause { reason }).await?;
        Ok(Controlled::Requested)
    }
}

impl<'a> IntoFuture for PauseCall<'a> {
    type Output = Result<Controlled, Error>;
    type IntoFuture = BoxedCall<'a, Controlled>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
