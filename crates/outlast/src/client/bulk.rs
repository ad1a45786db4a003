//! The same call for many runs.

use std::time::Duration;

use outlast_core::limits::{BULK_REFUSALS_MAX, PAGE_RUNS_MAX};
use outlast_core::{BuiltInRuns, ListOrder, QueuedSteps, RunId, RunQuery, RunView, Status};

use super::control::{Cancel, Controlled};
use super::{Client, ListCall};
use crate::clock::{monotonic, pause};
use crate::error::Error;
use crate::ids;

/// The statuses of runs that have not ended.
const UNFINISHED: [Status; 4] = [Status::Pending, Status::Running, Status::Waiting, Status::Stuck];

/// The statuses of runs that have ended.
const ENDED: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];

impl Client {
    /// Makes the same call for all runs that a query lists, one after the other, the oldest first.
    ///
    /// Queued steps, built-in runs and runs in [quarantine](Self::quarantine) are left out, and so are runs that start
    /// after the call. Every call is idempotent, so an interrupted bulk call can be repeated. A run that refuses the
    /// call does not stop it: the [result](Bulk) lists the refusals.
    ///
    /// If the query names no status, cancel, terminate, pause and resume select runs that have not ended, and delete
    /// selects those that have.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn nap(ctx: Context) -> Result<(), Error> { ctx.sleep("1d").await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// for _ in 0..3 {
    ///     client.start(nap, ()).tag("customer", "ada").await?;
    /// }
    /// let naps = || client.bulk(client.list().workflow(nap).tag("customer", "ada"));
    /// assert_eq!(naps().dry_run().terminate("moved away").await?.selected, 3);
    /// assert_eq!(naps().rate(100).terminate("moved away").await?.requested, 3);
    /// assert_eq!(naps().delete().await?.requested, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The calls fail as `Unavailable` if the world does not respond. What was done before stays done.
    pub fn bulk(&self, query: impl Into<RunQuery>) -> BulkCall<'_> {
        BulkCall { client: self, query: query.into(), is_dry_run: false, rate: None, key: None }
    }
}

/// A call for many runs; created by [`Client::bulk`].
#[must_use = "nothing happens until a method such as `cancel` is called and awaited"]
#[derive(Clone, Debug)]
pub struct BulkCall<'a> {
    client: &'a Client,
    query: RunQuery,
    is_dry_run: bool,
    /// The number of calls per second.
    rate: Option<u32>,
    key: Option<String>,
}

/// The result of a bulk call.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Bulk {
    /// The number of runs that the query selected.
    pub selected: u64,
    /// The number of runs for which the request was accepted. Always 0 in a dry run.
    pub requested: u64,
    /// The number of runs for which the same was requested before.
    pub already: u64,
    /// The number of runs for which there was nothing to do.
    pub nothing: u64,
    /// The number of runs that refused the call.
    pub refused: u64,
    /// The first 1,000 refusals.
    pub refusals: Vec<BulkRefusal>,
}

/// A run that refused a bulk call.
#[derive(Debug)]
#[non_exhaustive]
pub struct BulkRefusal {
    /// The run.
    pub run: RunId,
    /// The reason.
    pub error: Error,
}

/// What a bulk call does with each run.
#[derive(Clone, Debug)]
enum Verb {
    Cancel(String),
    Terminate(String),
    Pause(String),
    Resume,
    Restart,
    Delete,
}

impl BulkCall<'_> {
    /// Only counts the runs that would be selected.
    pub fn dry_run(mut self) -> Self {
        self.is_dry_run = true;
        self
    }

    /// Limits the calls to this number per second. At least one is made.
    pub fn rate(mut self, per_second: u32) -> Self {
        self.rate = Some(per_second.max(1));
        self
    }

    /// Sets a key, which makes [`restart`](Self::restart) idempotent: a repeated bulk call with the same key restarts
    /// no run twice.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Asks the runs to stop; see [`Client::cancel`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn cancel(self, reason: &str) -> Result<Bulk, Error> {
        self.apply(Verb::Cancel(reason.into())).await
    }

    /// Ends the runs without their code; see [`Client::terminate`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn terminate(self, reason: &str) -> Result<Bulk, Error> {
        self.apply(Verb::Terminate(reason.into())).await
    }

    /// Pauses the runs; see [`Client::pause`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn pause(self, reason: &str) -> Result<Bulk, Error> {
        self.apply(Verb::Pause(reason.into())).await
    }

    /// Resumes the runs; see [`Client::resume`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn resume(self) -> Result<Bulk, Error> {
        self.apply(Verb::Resume).await
    }

    /// Restarts the runs; see [`Client::restart`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn restart(self) -> Result<Bulk, Error> {
        self.apply(Verb::Restart).await
    }

    /// Deletes the runs; see [`Client::delete`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn delete(self) -> Result<Bulk, Error> {
        self.apply(Verb::Delete).await
    }

    async fn apply(self, verb: Verb) -> Result<Bulk, Error> {
        let mut query = self.all_runs(&verb);
        let mut done = Bulk::default();
        let began_at = monotonic();
        loop {
            let page = self.client.runs(query.clone()).await?;
            for run in page.runs.iter().filter(|run| is_selected(run)) {
                if !self.is_dry_run {
                    self.keep_rate(began_at, done.selected).await;
                    done.add(run.id, self.apply_to(run.id, &verb).await)?;
                }
                done.selected += 1;
            }
            if page.next.is_none() {
                return Ok(done);
            }
            query.after = page.next;
        }
    }

    /// The query for all runs that exist now.
    fn all_runs(&self, verb: &Verb) -> RunQuery {
        let mut query = RunQuery {
            queued_steps: QueuedSteps::LeftOut,
            built_in: BuiltInRuns::LeftOut,
            order: ListOrder::OldestFirst,
            after: Some(RunId::from_bits(0)),
            // A restart must not restart the runs that it starts.
            before: Some(ids::run()),
            limit: PAGE_RUNS_MAX,
            ..self.query.clone()
        };
        if query.statuses.is_empty() {
            query.statuses = match verb {
                Verb::Cancel(_) | Verb::Terminate(_) | Verb::Pause(_) | Verb::Resume => UNFINISHED.into(),
                Verb::Delete => ENDED.into(),
                Verb::Restart => Vec::new(),
            };
        }
        query
    }

    /// Waits until the next call is due, after `calls` of them.
    async fn keep_rate(&self, began_at: Duration, calls: u64) {
        let Some(rate) = self.rate else { return };
        let due = began_at + Duration::from_secs_f64(calls as f64 / f64::from(rate));
        let left = due.saturating_sub(monotonic());
        if !left.is_zero() {
            pause(left).await;
        }
    }

    async fn apply_to(&self, run: RunId, verb: &Verb) -> Result<Controlled, Error> {
        let client = self.client;
        match verb {
            Verb::Cancel(reason) => client.cancel(run, reason).await.map(Controlled::from),
            Verb::Terminate(reason) => client.terminate(run, reason).await.map(Controlled::from),
            Verb::Pause(reason) => client.pause(run).reason(reason).await,
            Verb::Resume => client.resume(run).await,
            Verb::Delete => client.delete(run).await,
            Verb::Restart => {
                let restart = client.restart::<serde_json::Value>(run);
                let restarted = match &self.key {
                    Some(key) => restart.key(format!("{key} {run}")).await?,
                    None => restart.await?,
                };
                Ok(if restarted.is_new() { Controlled::Requested } else { Controlled::Already })
            }
        }
    }
}

impl Bulk {
    /// Counts the answer of one run. An error that is not the run's own ends the bulk call.
    fn add(&mut self, run: RunId, answer: Result<Controlled, Error>) -> Result<(), Error> {
        match answer {
            Ok(Controlled::Requested) => self.requested += 1,
            Ok(Controlled::Already) => self.already += 1,
            Ok(Controlled::Nothing) => self.nothing += 1,
            Err(error) if error.kind() == crate::ErrorKind::Unavailable => return Err(error),
            // The run was deleted meanwhile.
            Err(error) if error.kind() == crate::ErrorKind::NotFound => self.nothing += 1,
            Err(error) => {
                self.refused += 1;
                if self.refusals.len() < BULK_REFUSALS_MAX {
                    self.refusals.push(BulkRefusal { run, error });
                }
            }
        }
        Ok(())
    }
}

/// Whether a bulk call applies to a run.
fn is_selected(run: &RunView) -> bool {
    !run.is_queued_step() && !run.is_built_in() && !run.marks.is_quarantined()
}

impl From<ListCall<'_>> for RunQuery {
    /// The query of a list, for [`Client::bulk`].
    fn from(list: ListCall<'_>) -> Self {
        list.query
    }
}

impl From<Cancel> for Controlled {
    fn from(answer: Cancel) -> Self {
        match answer {
            Cancel::Requested => Self::Requested,
            Cancel::AlreadyRequested => Self::Already,
            Cancel::AlreadyEnded(_) => Self::Nothing,
        }
    }
}
