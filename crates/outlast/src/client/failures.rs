//! Failed runs, and what live pages read: flags, runs by id, the length of a history.

use outlast_core::limits::{PAGE_RUNS_MAX, RUNS_BY_ID_MAX};
use outlast_core::{FailureQuery, FlagCounts, RunId, RunView};

use super::Client;
use crate::error::Error;

impl Client {
    /// Returns failed runs, those that ended last first. With a limit of 0, there are at most 1,000.
    ///
    /// [`RunView::failure`] says why each of them failed. Its fingerprint is the same for failures that differ only in
    /// numbers and ids, so it groups them:
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use std::collections::BTreeMap;
    /// use outlast::FailureQuery;
    ///
    /// # #[workflow] async fn import(_ctx: Context, file: u32) -> Result<(), Error> { Err(Error::msg(format!("file {file} is empty"))) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(import).start().await?;
    /// # let client = Client::new(world);
    /// for file in [1, 2, 3] {
    ///     assert!(client.start(import, file).await?.output().await.is_err());
    /// }
    /// let mut groups: BTreeMap<_, usize> = BTreeMap::new();
    /// for run in client.failures(FailureQuery::default()).await? {
    ///     let fingerprint = run.failure.map(|failure| failure.fingerprint);
    ///     *groups.entry((run.workflow, fingerprint)).or_default() += 1;
    /// }
    /// assert_eq!(groups.into_values().collect::<Vec<_>>(), [3]);
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn failures(&self, mut query: FailureQuery) -> Result<Vec<RunView>, Error> {
        if query.limit == 0 || query.limit > PAGE_RUNS_MAX {
            query.limit = PAGE_RUNS_MAX;
        }
        Ok(self.repeat(|| self.world.failures(query.clone())).await?)
    }

    /// Returns the number of runs with each flag, counted up to 1,000. [`list().flag(…)`](super::ListCall::flag) lists
    /// them.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn flag_counts(&self) -> Result<FlagCounts, Error> {
        Ok(self.repeat(|| self.world.flag_counts()).await?)
    }

    /// Returns the current states of runs, in the order in which they are given. Runs that do not exist are left out.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn runs_by_id(&self, runs: &[RunId]) -> Result<Vec<RunView>, Error> {
        let mut views = Vec::with_capacity(runs.len());
        for part in runs.chunks(RUNS_BY_ID_MAX) {
            views.extend(self.repeat(|| self.world.runs_by_id(part)).await?);
        }
        Ok(views)
    }

    /// Returns the number of events in the history of a run, which is the number of its next event. It costs one
    /// lookup: a page that shows a run calls it to see whether there is something new.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Unavailable` if the world does not respond.
    pub async fn event_count(&self, run: RunId) -> Result<u64, Error> {
        Ok(self.repeat(|| self.world.event_count(run)).await?)
    }
}
