//! Deleting single runs, and the quarantine that prevents it.

use outlast_core::{QuarantineChange, RunId, WorldError};

use super::Client;
use super::control::Controlled;
use crate::error::Error;

impl Client {
    /// Deletes a run that has ended, with its history, inbox and tags. Its key can be used again.
    ///
    /// Returns [`Nothing`](Controlled::Nothing) if there is no such run. [`prune`](Self::prune) deletes runs by their
    /// age.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::Controlled;
    ///
    /// # #[workflow] async fn nap(ctx: Context) -> Result<(), Error> { ctx.sleep("1d").await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let run = client.start(nap, ()).await?;
    /// assert!(client.delete(run.id()).await.is_err()); // it has not ended
    /// run.terminate("not needed").await?;
    /// assert_eq!(client.delete(run.id()).await?, Controlled::Requested);
    /// assert_eq!(client.delete(run.id()).await?, Controlled::Nothing);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Conflict` if the run has not ended, is in [quarantine](Self::quarantine), or has sent messages that are not
    /// delivered yet; `Unavailable` if the world does not respond.
    pub async fn delete(&self, run: RunId) -> Result<Controlled, Error> {
        let mut attempts = 0;
        let delete = || {
            attempts += 1;
            self.world.delete(run)
        };
        match self.repeat(delete).await {
            Ok(()) => Ok(Controlled::Requested),
            // An earlier attempt may have deleted the run without an answer.
            Err(WorldError::NotFound(_)) if attempts > 1 => Ok(Controlled::Requested),
            Err(WorldError::NotFound(_)) => Ok(Controlled::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts a run into quarantine: [pruning](Self::prune), retention, [`delete`](Self::delete) and
    /// [bulk calls](Self::bulk) leave it alone until it is [released](Self::release). A run in any status can be in
    /// quarantine. Otherwise nothing about it changes.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::Controlled;
    ///
    /// # #[workflow] async fn nap(ctx: Context) -> Result<(), Error> { ctx.sleep("1d").await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let run = client.start(nap, ()).await?;
    /// assert_eq!(client.quarantine(run.id()).await?, Controlled::Requested);
    /// assert_eq!(client.quarantine(run.id()).await?, Controlled::Already);
    /// assert_eq!(run.view().await?.shown_status(), "quarantined");
    /// assert_eq!(client.release(run.id()).await?, Controlled::Requested);
    /// assert_eq!(client.release(run.id()).await?, Controlled::Nothing);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Unavailable` if the world does not respond.
    pub async fn quarantine(&self, run: RunId) -> Result<Controlled, Error> {
        let before = self.repeat(|| self.world.quarantine(run, QuarantineChange::Begin)).await?;
        Ok(if before.is_quarantined() { Controlled::Already } else { Controlled::Requested })
    }

    /// Releases a run from [quarantine](Self::quarantine).
    ///
    /// # Errors
    ///
    /// As [`quarantine`](Self::quarantine).
    pub async fn release(&self, run: RunId) -> Result<Controlled, Error> {
        let before = self.repeat(|| self.world.quarantine(run, QuarantineChange::End)).await?;
        Ok(if before.is_quarantined() { Controlled::Requested } else { Controlled::Nothing })
    }
}
