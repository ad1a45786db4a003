//! The step of a bulk action: makes the calls for one page of runs, and selects the next page.

use futures_util::StreamExt;
use futures_util::stream;
use outlast_core::limits::{BULK_CALLS_MAX, BULK_PROBLEMS_MAX};
use outlast_core::{Retry, RunId};
use serde::{Deserialize, Serialize};

use super::order::{BulkOrder, BulkVerb};
use super::progress::{BulkProblem, PageCounts};
use crate::authoring::step::{Step, StepContext};
use crate::client::{Client, Controlled, is_selected};
use crate::error::{Error, ErrorKind, StepError};

/// The step that makes the calls. It is attempted until the world responds.
pub(crate) const BULK_PAGE: Step<BulkPage, BulkPageDone> =
    Step::new("outlast:bulk_page").retry(Retry::network().attempts(u32::MAX));

/// A page of runs, and where the next one begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BulkPage {
    pub(super) order: BulkOrder,
    /// The run of the bulk action, which makes restarts idempotent.
    pub(super) bulk: RunId,
    pub(super) runs: Vec<RunId>,
    /// The end of this page; `None` when there is no further one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<RunId>,
    /// The size of the next page.
    pub(super) limit: usize,
}

/// The results of the calls, and the next page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BulkPageDone {
    pub(super) counts: PageCounts,
    pub(super) runs: Vec<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<RunId>,
}

/// The code of the step.
pub(crate) async fn bulk_page<S>(cx: StepContext<S>, page: BulkPage) -> Result<BulkPageDone, StepError> {
    let client = match &page.order.actor {
        Some(actor) => cx.client().acting_as(actor.as_str()),
        None => cx.client().clone(),
    };
    let counts = page.make_calls(&client).await?;
    let (runs, cursor) = page.select_next(&client).await?;
    Ok(BulkPageDone { counts, runs, cursor })
}

impl BulkPage {
    async fn make_calls(&self, client: &Client) -> Result<PageCounts, StepError> {
        let calls: Vec<_> = self.runs.iter().map(|run| self.call(client, *run)).collect();
        let mut answers = stream::iter(calls).buffer_unordered(BULK_CALLS_MAX);
        let mut counts = PageCounts::default();
        while let Some((run, answer)) = answers.next().await {
            counts.add(run, answer)?;
        }
        Ok(counts)
    }

    async fn call(&self, client: &Client, run: RunId) -> (RunId, Result<Controlled, Error>) {
        (run, client.apply_verb(run, &self.order.verb, Some(&self.bulk.to_string())).await)
    }

    /// The next runs, and where the page after them begins.
    async fn select_next(&self, client: &Client) -> Result<(Vec<RunId>, Option<RunId>), StepError> {
        let mut runs = Vec::new();
        let mut cursor = self.cursor;
        while let Some(after) = cursor
            && runs.len() < self.limit
        {
            let query = self.order.query.page(after, self.order.until, self.limit - runs.len());
            let found = client.runs(query).await?;
            runs.extend(found.runs.iter().filter(|run| is_selected(run)).map(|run| run.id));
            cursor = found.next;
        }
        Ok((runs, cursor))
    }
}

impl PageCounts {
    /// Counts the answer of one run. An error that is not the run's own makes the attempt fail.
    fn add(&mut self, run: RunId, answer: Result<Controlled, Error>) -> Result<(), StepError> {
        match answer {
            Ok(Controlled::Requested) => self.requested += 1,
            Ok(Controlled::Already) => self.already += 1,
            Ok(Controlled::Nothing) => self.nothing += 1,
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error.into()),
            // The run was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => self.nothing += 1,
            Err(error) => {
                self.refused += 1;
                if self.problems.len() < BULK_PROBLEMS_MAX {
                    self.problems.push(BulkProblem::new(run, error.to_string()));
                }
            }
        }
        Ok(())
    }
}

impl Client {
    /// Does to a run what a bulk action does. With a key, a repeated call restarts it only once.
    pub(crate) async fn apply_verb(
        &self,
        run: RunId,
        verb: &BulkVerb,
        key: Option<&str>,
    ) -> Result<Controlled, Error> {
        match verb {
            BulkVerb::Cancel { reason } => self.cancel(run, reason).await.map(Controlled::from),
            BulkVerb::Terminate { reason, compensating } => {
                let call = self.terminate(run, reason);
                let call = if *compensating { call.compensating() } else { call };
                call.await.map(Controlled::from)
            }
            BulkVerb::Pause { reason } => self.pause(run).reason(reason).await,
            BulkVerb::Resume => self.resume(run).await,
            BulkVerb::Retry { reason } => self.retry(run).reason(reason).await,
            BulkVerb::Delete => self.delete(run).await,
            BulkVerb::Restart => {
                let restart = self.restart::<serde_json::Value>(run);
                let restarted = match key {
                    Some(key) => restart.key(format!("{key} {run}")).await?,
                    None => restart.await?,
                };
                Ok(if restarted.is_new() { Controlled::Requested } else { Controlled::Already })
            }
        }
    }
}
