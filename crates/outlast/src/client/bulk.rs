//! The same call for many runs.

use std::time::Duration;

use outlast_core::limits::{BULK_REFUSALS_MAX, PAGE_RUNS_MAX};
use outlast_core::{BuiltInRuns, ListOrder, QueuedSteps, RunId, RunQuery, RunView};

use super::control::{Cancel, Controlled};
use super::durable_bulk::DurableBulkCall;
use super::{Client, ListCall};
use crate::bulk::BulkVerb;
use crate::clock::{monotonic, pause};
use crate::error::Error;
use crate::ids;

impl Client {
    /// Makes the same call for all runs that a query lists, one after the other, the oldest first.
    ///
    /// Queued steps, built-in runs and runs in [quarantine](Self::quarantine) are left out, and so are runs that start
    /// after the call. Every call is idempotent, so an interrupted bulk call can be repeated. A run that refuses the
    /// call does not stop it: the [result](Bulk) lists the refusals.
    ///
    /// If the query names no status, cancel, terminate, pause and resume select runs that have not ended, delete selects
    /// those that have, and retry those that have failed.
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

impl<'a> BulkCall<'a> {
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

    /// Lets a run make the calls, so that they continue after a crash.
    pub fn durably(self) -> DurableBulkCall<'a> {
        DurableBulkCall::new(self.client, self.query, self.rate)
    }

    /// Asks the runs to stop; see [`Client::cancel`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn cancel(self, reason: &str) -> Result<Bulk, Error> {
        self.apply(BulkVerb::Cancel { reason: reason.into() }).await
    }

    /// Ends the runs without their code; see [`Client::terminate`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn terminate(self, reason: &str) -> Result<Bulk, Error> {
        self.apply(BulkVerb::Terminate { reason: reason.into(), compensating: false }).await
    }

    /// Pauses the runs; see [`Client::pause`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn pause(self, reason: &str) -> Result<Bulk, Error> {
        self.apply(BulkVerb::Pause { reason: reason.into() }).await
    }

    /// Resumes the runs; see [`Client::resume`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn resume(self) -> Result<Bulk, Error> {
        self.apply(BulkVerb::Resume).await
    }

    /// Retries the runs from their failures; see [`Client::retry`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn retry(self, reason: &str) -> Result<Bulk, Error> {
        self.apply(BulkVerb::Retry { reason: reason.into() }).await
    }

    /// Restarts the runs; see [`Client::restart`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn restart(self) -> Result<Bulk, Error> {
        self.apply(BulkVerb::Restart).await
    }

    /// Deletes the runs; see [`Client::delete`].
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn delete(self) -> Result<Bulk, Error> {
        self.apply(BulkVerb::Delete).await
    }

    async fn apply(self, verb: BulkVerb) -> Result<Bulk, Error> {
        let mut query = self.all_runs(&verb);
        let mut done = Bulk::default();
        let began_at = monotonic();
        loop {
            let page = self.client.runs(query.clone()).await?;
            for run in page.runs.iter().filter(|run| is_selected(run)) {
                if !self.is_dry_run {
                    self.keep_rate(began_at, done.selected).await;
                    done.add(run.id, self.client.apply_verb(run.id, &verb, self.key.as_deref()).await)?;
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
    fn all_runs(&self, verb: &BulkVerb) -> RunQuery {
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
            query.statuses = verb.statuses().to_vec();
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
pub(crate) fn is_selected(run: &RunView) -> bool {
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
