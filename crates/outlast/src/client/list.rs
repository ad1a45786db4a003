//! Lists of runs.

use std::future::IntoFuture;
use std::sync::Arc;

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::{ListOrder, Page, QueuedSteps, RunId, RunQuery, RunView, Status, Timestamp};
use serde::de::DeserializeOwned;

use super::{BoxedCall, Client, RunHandle};
use crate::authoring::workflow::WorkflowHandle;
use crate::error::Error;

impl Client {
    /// Lists runs, the newest first: all of them, or those that match the filters of the builder. Await it for a page.
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
    /// // And back:
    /// let back = ada().before(page.prev.unwrap()).await?;
    /// assert_eq!(back.runs.len(), 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cursors refer to runs, not to offsets: runs that are started meanwhile do not shift the pages.
    ///
    /// # Errors
    ///
    /// `Unavailable`.
    pub fn list(&self) -> ListCall<'_> {
        ListCall { client: self, query: RunQuery::default(), existing: None }
    }

    /// A page of runs. A limit of 0 means the maximum page size.
    ///
    /// # Errors
    ///
    /// `Unavailable`.
    pub async fn runs(&self, mut query: RunQuery) -> Result<Page, Error> {
        if query.limit == 0 || query.limit > PAGE_RUNS_MAX {
            query.limit = PAGE_RUNS_MAX;
        }
        Ok(self.world.runs(query).await?)
    }

    /// The newest runs in one of these statuses; in any status when none is given.
    ///
    /// # Errors
    ///
    /// `Unavailable`.
    pub async fn newest(&self, statuses: &[Status], limit: usize) -> Result<Vec<RunView>, Error> {
        let query = RunQuery {
            statuses: statuses.to_vec(),
            order: ListOrder::NewestFirst,
            limit,
            ..RunQuery::default()
        };
        Ok(self.runs(query).await?.runs)
    }

    /// The run that was started with a key, if there is one.
    ///
    /// # Errors
    ///
    /// `Unavailable`.
    pub async fn find<O: DeserializeOwned>(
        &self,
        key: impl Into<String>,
    ) -> Result<Option<RunHandle<O>>, Error> {
        let query = RunQuery { key: Some(key.into()), limit: 1, ..RunQuery::default() };
        let page = self.world.runs(query).await?;
        Ok(page.runs.first().map(|run| self.handle(run.id)))
    }
}

/// A list of runs; await it for a page. Each filter narrows it.
#[must_use = "nothing is listed until the call is awaited"]
#[derive(Clone, Debug)]
pub struct ListCall<'a> {
    client: &'a Client,
    query: RunQuery,
    /// A run that must exist; otherwise the list is an error.
    existing: Option<RunId>,
}

impl ListCall<'_> {
    /// Makes the list fail when there is no such run, instead of returning an empty page.
    pub(super) fn of_existing(mut self, run: RunId) -> Self {
        self.existing = Some(run);
        self
    }

    /// Only runs in this status; in one of them, when called more than once.
    pub fn status(mut self, status: Status) -> Self {
        self.query.statuses.push(status);
        self
    }

    /// Only runs of this workflow, of any version.
    pub fn workflow<H: WorkflowHandle<M>, M>(self, workflow: H) -> Self {
        self.workflow_named(workflow.name())
    }

    /// Only runs of the workflow of this name.
    pub fn workflow_named(mut self, name: &str) -> Self {
        self.query.workflow = Some(name.into());
        self
    }

    /// Only runs of this queue.
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.query.queue = Some(queue.into());
        self
    }

    /// Includes queued steps: runs that execute one step of another run. They are omitted by default.
    pub fn queued_steps(mut self) -> Self {
        self.query.queued_steps = QueuedSteps::Listed;
        self
    }

    /// Only the run that this key names.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.query.key = Some(key.into());
        self
    }

    /// Only runs that this one started.
    pub fn parent(mut self, run: RunId) -> Self {
        self.query.parent = Some(run);
        self
    }

    /// Only this run and its descendants.
    pub fn root(mut self, run: RunId) -> Self {
        self.query.root = Some(run);
        self
    }

    /// Only runs with this tag; with all of them, when called more than once.
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.tags.insert(name.into(), value.into());
        self
    }

    /// Only runs that were started at this time or later.
    pub fn created_from(mut self, moment: Timestamp) -> Self {
        self.query.created_from = Some(moment);
        self
    }

    /// Only runs that were started before this time.
    pub fn created_before(mut self, moment: Timestamp) -> Self {
        self.query.created_before = Some(moment);
        self
    }

    /// Only runs with this text in their id, workflow or key; case is ignored.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.query.text = Some(text.into());
        self
    }

    /// The oldest run first.
    pub fn oldest_first(mut self) -> Self {
        self.query.order = ListOrder::OldestFirst;
        self
    }

    /// The page after this run: pass [`Page::next`].
    pub fn after(mut self, run: RunId) -> Self {
        self.query.after = Some(run);
        self
    }

    /// The page before this run: pass [`Page::prev`].
    pub fn before(mut self, run: RunId) -> Self {
        self.query.before = Some(run);
        self
    }

    /// The maximum number of runs of the page. The limit is 1,000, which 0 also means.
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
