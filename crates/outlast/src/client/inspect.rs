//! Inspecting runs and workers.

use outlast_core::definition::DEFINITIONS;
use outlast_core::event::TurnRecord;
use outlast_core::limits::HISTORY_TURNS_READ_MAX;
use outlast_core::{
    Counts, DefinitionView, Event, History, MarkCounts, OperationKind, QueueView, RecordQuery, RunId,
    RunView, WorkerView,
};

use super::{Client, ListCall, OperationsCall};
use crate::error::Error;
use crate::worker::read_all::read_history;
use crate::worker::retention::RETENTION;

impl Client {
    /// Returns the current state of a run.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Unavailable` if the world does not respond.
    pub async fn run(&self, run: RunId) -> Result<RunView, Error> {
        Ok(self.repeat(|| self.world.run(run)).await?)
    }

    /// Returns the whole history of a run, turn by turn. Payloads are returned as stored. [`events`](Self::events) lists
    /// a part of it, or leaves the payloads out.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); also `Corrupt` if an event is damaged.
    pub async fn history(&self, run: RunId) -> Result<Vec<TurnRecord>, Error> {
        Ok(self.repeat(|| read_history(&*self.world, run, 0)).await?)
    }

    /// The whole history of a run without payloads, which are discarded page by page.
    pub(super) async fn history_without_payloads(&self, run: RunId) -> Result<Vec<TurnRecord>, Error> {
        let mut history: Vec<TurnRecord> = Vec::new();
        loop {
            let from = history.last().map_or(0, |turn| turn.seq + turn.events.len() as u64);
            let page = self.repeat(|| self.world.history(run, from, HISTORY_TURNS_READ_MAX)).await?;
            let is_last = page.len() < HISTORY_TURNS_READ_MAX;
            history.extend(page.into_iter().map(|turn| {
                let events = turn.events.into_iter().map(Event::without_payloads).collect();
                TurnRecord { events, ..turn }
            }));
            if is_last {
                return Ok(history);
            }
        }
    }

    /// Returns the whole history of a run as readable JSON: the run, its workflow and version, and its turns with one
    /// event per line. Payloads are returned as stored.
    ///
    /// `assert_replays` in `outlast-testkit` tests changed code with such files; [`History`] reads them back.
    ///
    /// # Errors
    ///
    /// As [`history`](Self::history).
    pub async fn export(&self, run: RunId) -> Result<String, Error> {
        let turns = self.history(run).await?;
        Ok(History { run, turns }.to_json())
    }

    /// Returns the operations of a run so far: steps, timers, hooks, children, recorded values and tags, in the order
    /// in which its workflow requested them.
    ///
    /// Payloads are decoded with the client's codec. A payload that the codec cannot decode is returned as stored.
    /// [`without_payloads`](OperationsCall::without_payloads) leaves them out.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::{OperationKind, OperationStatus};
    ///
    /// #[step]
    /// async fn double(number: u32) -> u32 {
    ///     2 * number
    /// }
    ///
    /// #[workflow]
    /// async fn slow(ctx: Context, number: u32) -> Result<u32, Error> {
    ///     ctx.sleep("10ms").await?;
    ///     ctx.step(double, number).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register((slow, double)).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start(slow, 21).await?;
    /// run.output().await?;
    /// let operations = client.operations(run.id()).await?;
    /// assert_eq!((operations[0].kind, &*operations[0].name), (OperationKind::Timer, "10ms"));
    /// assert_eq!(operations[1].status, OperationStatus::Completed);
    /// assert_eq!(operations[1].input_as::<u32>()?, Some(21));
    /// assert_eq!(operations[1].output_as::<u32>()?, Some(42));
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`history`](Self::history).
    pub fn operations(&self, run: RunId) -> OperationsCall<'_> {
        OperationsCall::new(self, run, None)
    }

    /// Returns the steps among a run's [operations](Self::operations).
    ///
    /// # Errors
    ///
    /// As [`operations`](Self::operations).
    pub fn steps(&self, run: RunId) -> OperationsCall<'_> {
        OperationsCall::new(self, run, Some(OperationKind::Step))
    }

    /// Returns the timers among a run's [operations](Self::operations). [`wake_timer`](Self::wake_timer) ends one.
    ///
    /// # Errors
    ///
    /// As [`operations`](Self::operations).
    pub fn timers(&self, run: RunId) -> OperationsCall<'_> {
        OperationsCall::new(self, run, Some(OperationKind::Timer))
    }

    /// Returns the hooks among a run's [operations](Self::operations).
    ///
    /// # Errors
    ///
    /// As [`operations`](Self::operations).
    pub fn hooks(&self, run: RunId) -> OperationsCall<'_> {
        OperationsCall::new(self, run, Some(OperationKind::Hook))
    }

    /// Lists the children of a run, oldest first. Await the returned builder to get a page;
    /// [`Page::next`](crate::Page::next) is the cursor of the next page. `list().root(run)` lists all descendants.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// async fn count_children(client: &Client, run: outlast::RunId) -> Result<usize, Error> {
    ///     let mut page = client.children(run).await?;
    ///     let mut count = page.runs.len();
    ///     while let Some(next) = page.next {
    ///         page = client.children(run).after(next).await?;
    ///         count += page.runs.len();
    ///     }
    ///     Ok(count)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Unavailable` if the world does not respond.
    pub fn children(&self, run: RunId) -> ListCall<'_> {
        self.list().parent(run).oldest_first().of_existing(run)
    }

    /// Returns the number of runs in each status, including queued steps. Every status is listed, also those without
    /// runs.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn counts(&self) -> Result<Counts, Error> {
        Ok(self.repeat(|| self.world.counts()).await?)
    }

    /// Returns the number of runs with each mark, including queued steps. A run with two marks is counted twice, and
    /// every run is also counted by its [status](Self::counts).
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::Marks;
    ///
    /// # #[workflow] async fn nap(ctx: Context) -> Result<(), Error> { ctx.sleep("1d").await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// client.start(nap, ()).await?.pause().await?;
    /// assert_eq!(client.mark_counts().await?[&Marks::PAUSED], 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn mark_counts(&self) -> Result<MarkCounts, Error> {
        Ok(self.repeat(|| self.world.mark_counts()).await?)
    }

    /// Lists the joined workers, with the queues that they serve and the report of their last beat. A worker whose
    /// session has expired, because it crashed or does not respond, is not listed.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(greet).start().await?;
    /// # let client = Client::new(world);
    /// for worker in client.workers().await? {
    ///     let report = &worker.report;
    ///     println!("process {} on {} serves {}", worker.pid, worker.host, worker.queues.join(", "));
    ///     println!("{}: {} live runs, {} attempts", report.status, report.live, report.attempts);
    /// }
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn workers(&self) -> Result<Vec<WorkerView>, Error> {
        let mut workers = self.repeat(|| self.world.workers()).await?;
        let clock = self.world.clock();
        // Under virtual time sessions are renewed in real time, so the virtual clock does not tell whether one has
        // expired.
        if !clock.is_virtual() {
            workers.retain(|worker| worker.expires_at > clock.now());
        }
        for worker in &mut workers {
            // An internal marker for workers that prune runs; it is not a workflow.
            worker.code.retain(|code| *code.workflow != *RETENTION);
        }
        Ok(workers)
    }

    /// Returns the queues that have runs which are ready, due later or held, by name, with their numbers. The numbers are
    /// counted up to limits, so that the cost does not grow with the runs. A queue that is only served is not among
    /// them; see [`workers`](Self::workers).
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// client.start(greet, "Ada".to_owned()).queue("mail").await?;
    /// let queues = client.queues().await?;
    /// assert_eq!((&*queues[0].name, queues[0].ready, queues[0].running), ("mail", 1, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn queues(&self) -> Result<Vec<QueueView>, Error> {
        Ok(self.repeat(|| self.world.queues()).await?)
    }

    /// Returns what workers have said about their workflows, by workflow, version and build: also of workers that have
    /// stopped. Only the newest definitions are kept.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn definitions(&self) -> Result<Vec<DefinitionView>, Error> {
        let records = self.repeat(|| self.world.records(RecordQuery::of_space(DEFINITIONS))).await?;
        // A definition that a later build has written in another way is left out.
        let mut definitions: Vec<_> = records.iter().filter_map(DefinitionView::of_record).collect();
        let order = |view: &DefinitionView| {
            (view.summary.workflow.clone(), view.summary.version, view.summary.build.clone())
        };
        definitions.sort_by_cached_key(order);
        Ok(definitions)
    }
}
