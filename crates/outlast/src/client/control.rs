//! Control: cancel, terminate, wake, resume, prune.

use outlast_core::limits::{PRUNE_RUNS_MAX, REASON_BYTES_MAX};
use outlast_core::{IntoDuration, MessageBody, OpNumber, RunId, Sent, Status, Timestamp, WorldError};

use super::{Client, check_bytes, persist};
use crate::error::Error;
use crate::worker::end_without_code::end_without_worker;

/// What a cancel or terminate came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The run will be told, or has ended by it.
    Requested,
    /// The run was asked to stop before, or its deadline told it to, and has not ended yet: nothing changes.
    AlreadyRequested,
    /// The run had ended before, like this.
    AlreadyEnded(Status),
}

impl Client {
    /// Asks a run to stop. A run that has ended already stays as it is.
    ///
    /// The workflow is told once: timers, hooks, children and steps that nobody attempts at that moment fail
    /// with an error that [is cancelled](Error::is_cancelled), one after the other. A step that is being
    /// attempted is told through [its context](crate::StepContext::cancelled), and its real outcome is awaited.
    /// What the workflow asks for afterwards fails as cancelled, too, until the run ends; it cleans up with
    /// [`shielded`](crate::Context::shielded) operations, which a cancel does not touch.
    /// If it then returns an error the run is `cancelled`; if it returns an output, `completed`.
    ///
    /// A run that had no turn yet is cancelled at once, also when it is stuck or its code is nowhere. A
    /// stuck run that had turns keeps the message until it can go on; [`terminate`](Self::terminate) does
    /// not wait for that. Further cancels change nothing, and are answered with
    /// [`AlreadyRequested`](Cancel::AlreadyRequested).
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
    /// `NotFound`, `Unavailable`.
    pub async fn cancel(&self, run: RunId, reason: &str) -> Result<Cancel, Error> {
        check_bytes("the reason", reason.len(), REASON_BYTES_MAX)?;
        let message = MessageBody::Cancel { reason: reason.into() };
        let answer = match self.post_plain(run, message).await {
            Ok(sent) if sent.cancel_was_requested => Cancel::AlreadyRequested,
            sent => self.answer(run, sent).await?,
        };
        if !matches!(answer, Cancel::AlreadyEnded(_)) {
            self.end_if(run, |status| status == Status::Pending).await;
        }
        Ok(answer)
    }

    /// Ends a run now, without asking its code: for a run that is stuck, whose code is gone, or that does
    /// not stop when it is cancelled. A run that has ended already stays as it is.
    ///
    /// Nothing is cleaned up: a step that is being attempted is told to stop, but its outcome is discarded.
    /// The run is `cancelled`; its children are cancelled, and whoever awaits it gets an error that
    /// [is cancelled](Error::is_cancelled). Any worker does this; if none is joined, this call does.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::Status;
    ///
    /// # async fn clear(client: &Client) -> Result<(), Error> {
    /// for run in client.list().status(Status::Stuck).await?.runs {
    ///     client.terminate(run.id, "its code will not come back").await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn terminate(&self, run: RunId, reason: &str) -> Result<Cancel, Error> {
        check_bytes("the reason", reason.len(), REASON_BYTES_MAX)?;
        let sent = self.post_plain(run, MessageBody::Terminate { reason: reason.into() }).await;
        let answer = self.answer(run, sent).await?;
        if answer == Cancel::Requested {
            self.end_if(run, |status| !status.is_final()).await;
        }
        Ok(answer)
    }

    /// Ends a run that was told to, if no worker is joined to do it. That it was told is accepted already: if
    /// this fails, the next worker does it.
    async fn end_if(&self, run: RunId, is_wanted: fn(Status) -> bool) {
        let looked = persist(|| self.world.run(run)).await;
        let ended = match looked {
            Ok(view) if is_wanted(view.status) => end_without_worker(&self.world).await,
            other => other.map(drop),
        };
        if let Err(error) = ended {
            tracing::debug!(%run, %error, "a run that was told to stop is left for a worker to end");
        }
    }

    /// What a message came to that asks a run to end.
    async fn answer(&self, run: RunId, sent: Result<Sent, WorldError>) -> Result<Cancel, Error> {
        match sent {
            Ok(_) => Ok(Cancel::Requested),
            Err(WorldError::Conflict(_)) => Ok(Cancel::AlreadyEnded(self.run(run).await?.status)),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends sleeps early: all timers of the run that are open when it is told. The workflow goes on as if
    /// their moment had come. Timeouts of hooks and children, and pauses between attempts, stay as they are.
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
    /// `NotFound`, `Conflict` when the run has ended, `Limit` when its inbox is full.
    pub async fn wake(&self, run: RunId) -> Result<(), Error> {
        Ok(self.post_plain(run, MessageBody::Wake { op: None }).await.map(drop)?)
    }

    /// As [`wake`](Self::wake), but only one timer, by its operation's number, which
    /// [`timers`](Self::timers) tells. Nothing happens when it is not open.
    ///
    /// # Errors
    ///
    /// As [`wake`](Self::wake).
    pub async fn wake_timer(&self, run: RunId, op: OpNumber) -> Result<(), Error> {
        Ok(self.post_plain(run, MessageBody::Wake { op: Some(op) }).await.map(drop)?)
    }

    /// Lets every build continue a run again, those that failed to included. A stuck run is tried at once; a run that
    /// waits goes on when its moment comes.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Conflict` when the run has ended or a worker holds it.
    pub async fn resume(&self, run: RunId) -> Result<(), Error> {
        Ok(self.world.resume(run).await?)
    }

    /// Forgets the runs that ended before a moment, with all that is kept of them; answers how many that
    /// were. Their code need not be there. Their keys are free again.
    ///
    /// It goes through the runs in parts, so that others can work meanwhile, and may be repeated.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast::core::Clock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let month = std::time::Duration::from_secs(30 * 86_400);
    /// let forgotten = client.prune(outlast::SystemClock.now().minus(month)).await?;
    /// # assert_eq!(forgotten, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`prune_older_than`](Self::prune_older_than) takes a time instead of a moment.
    ///
    /// # Errors
    ///
    /// `Unavailable`; what was forgotten until then is forgotten.
    pub async fn prune(&self, ended_before: Timestamp) -> Result<u64, Error> {
        let (mut forgotten, mut after) = (0, None);
        loop {
            let pruned = persist(|| self.world.prune(ended_before, after, PRUNE_RUNS_MAX)).await?;
            forgotten += pruned.runs;
            if pruned.next.is_none() {
                return Ok(forgotten);
            }
            after = pruned.next;
        }
    }

    /// As [`prune`](Self::prune), for the runs that ended longer ago than a time by the world's clock.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let forgotten = client.prune_older_than("30d").await?;
    /// # assert_eq!(forgotten, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` when the text is not a duration; those of [`prune`](Self::prune).
    pub async fn prune_older_than(&self, age: impl IntoDuration) -> Result<u64, Error> {
        let age = age.into_duration()?;
        self.prune(self.world.clock().now().minus(age)).await
    }
}
