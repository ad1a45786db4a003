//! The check before a deploy: replays the open runs of a world with the code of a worker, and changes nothing.

mod report;

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;

use outlast_core::limits::HISTORIES_READ_MAX;
use outlast_core::{
    BuiltInRuns, Codec, Event, ListOrder, MessageBody, QueuedSteps, RunId, RunQuery, RunView, Status, Stuck,
    StuckReason, TurnRecord, World, WorldError,
};

pub use self::report::{CheckFinding, CheckReport, CheckedWorkflow};
use crate::authoring::registry::Registered;
use crate::client::Client;
use crate::error::Error;
use crate::replay::Machine;
use crate::testing::history::was_polled;
use crate::worker::read_all::{add_missing_turns, read_inbox};

/// The statuses of runs that have not ended.
const OPEN: [Status; 4] = [Status::Pending, Status::Running, Status::Waiting, Status::Stuck];

/// A check of the open runs of a world; created by [`WorkerBuilder::check`](crate::WorkerBuilder::check). Await it to
/// get the [report](CheckReport).
#[must_use = "nothing is checked until the call is awaited"]
pub struct CheckCall {
    code: Result<CheckedCode, Error>,
    on_progress: Option<OnProgress>,
}

type OnProgress = Box<dyn FnMut(&CheckReport) + Send>;

/// The code that is checked, and the world with the runs.
pub(super) struct CheckedCode {
    pub(super) code: Arc<Registered>,
    pub(super) codec: Arc<dyn Codec>,
    pub(super) world: Arc<dyn World>,
}

impl CheckCall {
    pub(super) fn new(code: Result<CheckedCode, Error>) -> Self {
        Self { code, on_progress: None }
    }

    /// Calls `listener` with the report so far, after every 64 runs.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// let check = Worker::builder(world).register(greet).check();
    /// let report = check.on_progress(|so_far| eprintln!("{} runs", so_far.runs())).await?;
    /// # assert!(report.is_ok());
    /// # Ok(()) }
    /// ```
    pub fn on_progress(mut self, listener: impl FnMut(&CheckReport) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(listener));
        self
    }

    async fn call(self) -> Result<CheckReport, Error> {
        let Self { code, mut on_progress } = self;
        let code = code?;
        let client = Client::new(code.world.clone());
        let mut query = RunQuery {
            statuses: OPEN.to_vec(),
            order: ListOrder::OldestFirst,
            queued_steps: QueuedSteps::Listed,
            built_in: BuiltInRuns::Listed,
            // Runs that start meanwhile would make the list endless.
            created_before: Some(code.world.clock().now().plus(std::time::Duration::from_micros(1))),
            ..RunQuery::default()
        };
        let mut report = CheckReport::default();
        loop {
            let page = client.runs(query.clone()).await?;
            for views in page.runs.chunks(HISTORIES_READ_MAX) {
                code.check_runs(&client, views, &mut report).await?;
                if let Some(on_progress) = &mut on_progress {
                    on_progress(&report);
                }
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(report),
            }
        }
    }
}

impl CheckedCode {
    /// Checks at most as many runs as one call to the world reads.
    async fn check_runs(
        &self,
        client: &Client,
        views: &[RunView],
        report: &mut CheckReport,
    ) -> Result<(), Error> {
        let has_code = |view: &&RunView| self.code.workflow(&view.workflow, view.version).is_some();
        let (known, unknown): (Vec<_>, Vec<_>) = views.iter().partition(has_code);
        unknown.into_iter().for_each(|view| report.add_without_code(view));
        let runs: Vec<_> = known.iter().map(|view| view.id).collect();
        let histories =
            client.repeat_each(runs, |runs| async move { self.world.histories(&runs).await }).await?;
        for (view, history) in known.into_iter().zip(histories) {
            let history = match history {
                Ok(history) => self.open_history(client, view.id, history).await,
                Err(error) => Err(error),
            };
            match history {
                Ok(Some(history)) => report.add(view, self.replay(view, history)),
                // It has ended or was deleted since it was listed.
                Ok(None) | Err(WorldError::NotFound(_)) => {}
                Err(error @ WorldError::Corrupt(_)) => {
                    let (reason, message) = (StuckReason::Unreadable, error.to_string());
                    report.add(view, Err(Stuck::new(reason, message)));
                }
                Err(error) => return Err(error.into()),
            }
            // A replay does not suspend, and there may be many.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// What a worker that claims the run would replay; `None` if the run has ended.
    async fn open_history(
        &self,
        client: &Client,
        run: RunId,
        mut history: Vec<TurnRecord>,
    ) -> Result<Option<Vec<TurnRecord>>, WorldError> {
        let mut retry = None;
        if has_ended(&history) {
            // Until a worker has recorded a retry, the history ends with the end of the run.
            let inbox = client.repeat(|| read_inbox(&*self.world, run, 0)).await?;
            retry = inbox.into_iter().rev().find_map(|message| match message.body {
                MessageBody::Retry(request) => Some(request),
                _ => None,
            });
            if retry.is_none() {
                return Ok(None);
            }
            // Read again, as the retry may be newer than the history, and decides which turns are needed.
            history = client.repeat(|| self.history(run)).await?;
        }
        let complete = || add_missing_turns(&*self.world, run, history.clone());
        let history = client.repeat(complete).await?;
        Ok(Some(match retry {
            Some(request) if has_ended(&history) => request.split(history).replayed,
            _ => history,
        }))
    }

    async fn history(&self, run: RunId) -> Result<Vec<TurnRecord>, WorldError> {
        let answer = self.world.histories(&[run]).await?.pop();
        answer.unwrap_or_else(|| Err(WorldError::not_found(format!("run {run}"))))
    }

    /// Replays a run; the error says why a worker with this code could not continue it.
    fn replay(&self, view: &RunView, history: Vec<TurnRecord>) -> Result<(), Stuck> {
        let mut machine = if was_polled(&history) {
            Machine::replay(view.id, history, self.code.clone(), &self.codec)?
        } else {
            // It has not begun: only its input matters.
            let Some((Event::RunStarted(started), at)) = first_event(&history) else { return Ok(()) };
            Machine::new(view.id, started, self.code.clone(), &self.codec, at)?
        };
        let problem = machine.cannot_attempt(&*self.code);
        machine.drop_here();
        problem.map_or(Ok(()), Err)
    }
}

fn first_event(history: &[TurnRecord]) -> Option<(&Event, outlast_core::Timestamp)> {
    let turn = history.first()?;
    Some((turn.events.first()?, turn.at))
}

/// Whether the history ends with the end of the run.
fn has_ended(history: &[TurnRecord]) -> bool {
    let last = history.last().and_then(|turn| turn.events.last());
    last.and_then(Status::of_final).is_some()
}

impl IntoFuture for CheckCall {
    type Output = Result<CheckReport, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}

impl fmt::Debug for CheckCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckCall").finish_non_exhaustive()
    }
}
