//! Controlling runs: cancel, wake, prune.

use outlast_core::limits::{PRUNE_RUNS_MAX, REASON_BYTES_MAX};
use outlast_core::{IntoDuration, MessageBody, OpNumber, RunId, Sent, Status, Timestamp, WorldError};

use super::{Client, check_bytes};
use crate::error::Error;
use crate::worker::end_without_code::end_without_worker;

/// The result of [`Client::cancel`] or [`Client::terminate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancel {
    /// The request was accepted: the run will be notified, or has ended.
    Requested,
    /// The run was asked to stop before, by a cancel or its deadline, and has not ended yet. Nothing changes.
    AlreadyRequested,
    /// The run had already ended, with this status.
    AlreadyEnded(Status),
}

/// The result of a call that controls a run, if the run has not refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Controlled {
    /// The request was accepted.
    Requested,
    /// The same was requested before, and is still in effect. Nothing changes.
    Already,
    /// There was nothing to do.
    Nothing,
}

impl Client {
    /// Asks a run to stop. A run that has ended is not changed.
    ///
    /// The workflow is notified once. Timers, hooks, children, and steps without an attempt in progress fail with an
    /// error that [is cancelled](Error::is_cancelled). A step in progress is notified through
    /// [its context](crate::StepContext::cancelled), and its real outcome is awaited. Operations that the workflow
    /// requests afterwards also fail as cancelled, until the run ends; it cleans up with
    /// [`shielded`](crate::Context::shielded) operations, which a cancel does not affect. If the workflow then returns
    /// an error, the run is `cancelled`; if it returns an output, the run is `completed`.
    ///
    /// A run without any turn is cancelled at once, even if it is stuck or no worker has its code. A stuck run with
    /// turns keeps the request until it resumes; [`terminate`](Self::terminate) does not wait for that. A repeated
    /// cancel changes nothing, and returns [`AlreadyRequested`](Cancel::AlreadyRequested).
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::{Cancel, Status};
    ///
    /// # #[workflow] async fn nap(ctx: Context) -> Result<(), Error> { ctx.sleep("1d").await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let run = client.start(nap, ()).await?;
    /// assert_eq!(client.cancel(run.id(), "the customer left").await?, Cancel::Requested);
    /// assert!(run.output().await.unwrap_err().is_cancelled());
    /// assert_eq!(run.cancel("again").await?, Cancel::AlreadyEnded(Status::Cancelled));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Limit` if the reason is longer than 4 KiB, `Unavailable` if the world does
    /// not respond.
    pub async fn cancel(&self, run: RunId, reason: &str) -> Result<Cancel, Error> {
        check_bytes("the reason", reason.len(), REASON_BYTES_MAX)?;
        let message = MessageBody::Cancel { reason: reason.into() };
        let answer = match self.post_plain(run, message).await {
            Ok(sent) if sent.cancel_was_requested => Cancel::AlreadyRequested,
            sent => self.answer(run, sent).await?,
        };
        if !matches!(answer, Cancel::AlreadyEnded(_)) {
            self.end_without_worker_if(run, |status| status == Status::Pending).await;
        }
        Ok(answer)
    }

    /// Ends a run that was asked to stop, if no worker is joined to do it. The request is already stored: if this
    /// fails, the next worker ends the run.
    pub(super) async fn end_without_worker_if(&self, run: RunId, is_wanted: fn(Status) -> bool) {
        let view = self.repeat(|| self.world.run(run)).await;
        let ended = match view {
            Ok(view) if is_wanted(view.status) => end_without_worker(&self.world).await,
            other => other.map(drop),
        };
        if let Err(error) = ended {
            tracing::debug!(%run, %error, "a run that was asked to stop is left for a worker to end");
        }
    }

    /// The result of a message that asks a run to end.
    pub(super) async fn answer(&self, run: RunId, sent: Result<Sent, WorldError>) -> Result<Cancel, Error> {
        match sent {
            Ok(_) => Ok(Cancel::Requested),
            Err(WorldError::Conflict(_)) => Ok(Cancel::AlreadyEnded(self.run(run).await?.status)),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the current sleeps of a run early. The workflow continues as if they had elapsed.
    ///
    /// Only timers that are open when the run receives the request end. Timeouts of hooks and children, and pauses
    /// between attempts, are not affected.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn remind(ctx: Context) -> Result<String, Error> {
    ///     ctx.sleep("3d").await?;
    ///     Ok("do not forget".into())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(remind).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start(remind, ()).await?;
    /// client.wake(run.id()).await?; // now, not in three days
    /// assert_eq!(run.output().await?, "do not forget");
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Conflict` if the run has ended, `Limit` if its inbox is full, `Unavailable`
    /// if the world does not respond.
    pub async fn wake(&self, run: RunId) -> Result<(), Error> {
        Ok(self.post_plain(run, MessageBody::Wake { op: None }).await.map(drop)?)
    }

    /// Ends one sleep of a run early: the timer with this operation number, as listed by [`timers`](Self::timers). If
    /// it is not open, nothing happens.
    ///
    /// If the operation is a step that waits for its next attempt, the attempt begins now. The end of a pause is not
    /// recorded: if the worker is lost during that attempt, the next worker waits until the recorded time. The attempts
    /// of a queued step belong to its own run (`child` of [`OperationView`](crate::OperationView)).
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast::RunId;
    /// /// Makes the next attempt of every step of the run now.
    /// async fn attempt_now(client: &Client, run: RunId) -> Result<(), Error> {
    ///     for step in client.steps(run).await?.iter().filter(|step| step.retry_at.is_some()) {
    ///         client.wake_timer(run, step.op).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`wake`](Self::wake).
    pub async fn wake_timer(&self, run: RunId, op: OpNumber) -> Result<(), Error> {
        Ok(self.post_plain(run, MessageBody::Wake { op: Some(op) }).await.map(drop)?)
    }

    /// Deletes the runs that ended before a given time, with all their data, and returns how many were deleted.
    ///
    /// No worker needs to have their code. Runs in [quarantine](Self::quarantine) are left. The keys of deleted runs can be used again. The runs are deleted in batches,
    /// so that other work is not delayed. The call can be repeated.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast::core::Clock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let month = std::time::Duration::from_secs(30 * 86_400);
    /// let deleted = client.prune(outlast::SystemClock.now().minus(month)).await?;
    /// # assert_eq!(deleted, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`prune_older_than`](Self::prune_older_than) takes a duration instead.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond. Runs that were deleted before that stay deleted.
    pub async fn prune(&self, ended_before: Timestamp) -> Result<u64, Error> {
        let (mut deleted, mut after) = (0, None);
        loop {
            let pruned = self.repeat(|| self.world.prune(ended_before, after, PRUNE_RUNS_MAX)).await?;
            deleted += pruned.runs;
            if pruned.next.is_none() {
                return Ok(deleted);
            }
            after = pruned.next;
        }
    }

    /// Deletes the runs that ended longer ago than a duration, by the world's clock; see [`prune`](Self::prune).
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let deleted = client.prune_older_than("30d").await?;
    /// # assert_eq!(deleted, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` if the text is not a duration; otherwise as [`prune`](Self::prune).
    pub async fn prune_older_than(&self, age: impl IntoDuration) -> Result<u64, Error> {
        let age = age.into_duration()?;
        self.prune(self.world.clock().now().minus(age)).await
    }
}
