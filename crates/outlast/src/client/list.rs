//! Lists of runs.

use std::future::IntoFuture;
use std::sync::Arc;

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::{
    BuiltInRuns, FlagFilter, ListOrder, Marks, Page, QueuedSteps, RunId, RunQuery, RunView, Status, Timestamp,
};
use serde::de::DeserializeOwned;

use super::{BoxedCall, Client, RunHandle};
use crate::authoring::workflow::WorkflowHandle;
use crate::error::Error;

impl Client {
    /// Lists runs, newest first. The methods of the returned builder narrow the list; await it to get a page.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::Status;
    ///
    /// # #[workflow] async fn invoice(ctx: Context, order: u64) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// for order in 0..25 {
    ///     client.start(invoice, order).tag("customer", "ada").await?;
    /// }
    /// let ada = || client.list().workflow(invoice).tag("customer", "ada").status(Status::Pending).limit(10);
    /// let mut page = ada().await?;
    /// while let Some(next) = page.next {
    ///     page = ada().after(next).await?;
    /// }
    /// assert_eq!(page.runs.len(), 5);
    /// // The previous page:
    /// let back = ada().before(page.prev.unwrap()).await?;
    /// assert_eq!(back.runs.len(), 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Pages are delimited by run ids, so runs that start in the meantime do not shift them. A page may have fewer runs
    /// than its limit, even none, while [`Page::next`] still names another page.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub fn list(&self) -> ListCall<'_> {
        ListCall { client: self, query: RunQuery::default(), existing: None }
    }

    /// Returns a page of runs. With a limit of 0, the page has the maximum size of 1,000 runs.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn runs(&self, mut query: RunQuery) -> Result<Page, Error> {
        if query.limit == 0 || query.limit > PAGE_RUNS_MAX {
            query.limit = PAGE_RUNS_MAX;
        }
        Ok(self.repeat(|| self.world.runs(query.clone())).await?)
    }

    /// Returns the newest runs with one of these statuses, or with any status if none is given.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn newest(&self, statuses: &[Status], limit: usize) -> Result<Vec<RunView>, Error> {
        let query = RunQuery {
            statuses: statuses.to_vec(),
            order: ListOrder::NewestFirst,
            limit,
            ..RunQuery::default()
        };
        Ok(self.runs(query).await?.runs)
    }

    /// Finds the run that was started with a key.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the world does not respond.
    pub async fn find<O: DeserializeOwned>(
        &self,
        key: impl Into<String>,
    ) -> Result<Option<RunHandle<O>>, Error> {
        let query = RunQuery { key: Some(key.into()), limit: 1, ..RunQuery::default() };
        let page = self.runs(query).await?;
        Ok(page.runs.first().map(|run| self.handle(run.id)))
    }
}

/// A call that lists runs; created by [`Client::list`]. Each method narrows the list. Await it to get a page.
#[must_use = "nothing is listed until the call is awaited"]
#[derive(Clone, Debug)]
pub struct ListCall<'a> {
    client: &'a Client,
    pub(super) query: RunQuery,
    /// A run that must exist; otherwise the list is an error.
    existing: Option<RunId>,
}

impl ListCall<'_> {
    /// Makes the list fail when there is no such run, instead of returning an empty page.
    pub(super) fn of_existing(mut self, run: RunId) -> Self {
        self.existing = Some(run);
        self
    }

    /// Lists only runs with this status. If called repeatedly, runs with one of the statuses are listed.
    pub fn status(mut self, status: Status) -> Self {
        self.query.statuses.push(status);
        self
    }

    /// Lists only runs with this mark, such as [`Marks::PAUSED`]. If called repeatedly, runs with one of the marks are
    /// listed.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::Marks;
    ///
    /// # async fn paused(client: &Client) -> Result<(), Error> {
    /// for run in client.list().mark(Marks::PAUSED).await?.runs {
    ///     client.resume(run.id).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn mark(mut self, mark: Marks) -> Self {
        self.query.marks = self.query.marks.with(mark);
        self
    }

    /// Lists only runs of this workflow, of any version.
    pub fn workflow<H: WorkflowHandle<M>, M>(self, workflow: H) -> Self {
        self.workflow_named(workflow.name())
    }

    /// Lists only runs of the workflow with this name, of any version.
    pub fn workflow_named(mut self, name: &str) -> Self {
        self.query.workflow = Some(name.into());
        self
    }

    /// Lists only runs of this queue.
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.query.queue = Some(queue.into());
        self
    }

    /// Also lists queued steps: runs that execute a single step of another run. They are omitted by default.
    pub fn queued_steps(mut self) -> Self {
        self.query.queued_steps = QueuedSteps::Listed;
        self
    }

    /// Also lists runs of built-in workflows, such as [schedules](Client::schedule). They are omitted by default.
    pub fn built_in(mut self) -> Self {
        self.query.built_in = BuiltInRuns::Listed;
        self
    }

    /// Lists only the run with this key.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.query.key = Some(key.into());
        self
    }

    /// Lists only the children of this run.
    pub fn parent(mut self, run: RunId) -> Self {
        self.query.parent = Some(run);
        self
    }

    /// Lists only this run and its descendants.
    pub fn root(mut self, run: RunId) -> Self {
        self.query.root = Some(run);
        self
    }

    /// Lists only runs with this tag. If called repeatedly, runs with all of the tags are listed.
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.tags.insert(name.into(), value.into());
        self
    }

    /// Lists only runs that were started at this time or later.
    pub fn created_from(mut self, moment: Timestamp) -> Self {
        self.query.created_from = Some(moment);
        self
    }

    /// Lists only runs that were started before this time.
    pub fn created_before(mut self, moment: Timestamp) -> Self {
        self.query.created_before = Some(moment);
        self
    }

    /// Lists only runs that ended at this time or later.
    pub fn ended_from(mut self, moment: Timestamp) -> Self {
        self.query.ended_from = Some(moment);
        self
    }

    /// Lists only runs that ended before this time.
    pub fn ended_before(mut self, moment: Timestamp) -> Self {
        self.query.ended_before = Some(moment);
        self
    }

    /// Lists only runs with this flag: those that wait for the next attempt of a step, or those that were asked to stop
    /// and have not ended.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::FlagFilter;
    ///
    /// # async fn retrying(client: &Client) -> Result<(), Error> {
    /// for run in client.list().flag(FlagFilter::Retrying).await?.runs {
    ///     println!("{} of {} waits for its next attempt", run.id, run.workflow);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn flag(mut self, flag: FlagFilter) -> Self {
        self.query.flag = Some(flag);
        self
    }

    /// Lists only runs whose id, workflow or key contains this text, ignoring case.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.query.text = Some(text.into());
        self
    }

    /// Lists the oldest runs first.
    pub fn oldest_first(mut self) -> Self {
        self.query.order = ListOrder::OldestFirst;
        self
    }

    /// Returns the page after this run. Pass [`Page::next`] to get the next page.
    pub fn after(mut self, run: RunId) -> Self {
        self.query.after = Some(run);
        self
    }

    /// Returns the page before this run. Pass [`Page::prev`] to get the previous page.
    pub fn before(mut self, run: RunId) -> Self {
        self.query.before = Some(run);
        self
    }

    /// Sets the maximum number of runs in the page. The default, and the limit, is 1,000.
    pub fn limit(mut self, runs: usize) -> Self {
        self.query.limit = runs;
        self
    }
}

impl<'a> IntoFuture for ListCall<'a> {
    type Output = Result<Page, Error>;
    type IntoFuture = BoxedCall<'a, Page>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            if let Some(run) = self.existing {
                self.client.run(run).await?;
            }
            self.client.runs(self.query).await
        })
    }
}
