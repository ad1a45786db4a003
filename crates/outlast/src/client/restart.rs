//! Restarting runs: new runs with the input of earlier ones.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::marker::PhantomData;

use outlast_core::{Event, Payload, RESTARTED_FROM, RunId, RunStarted, WorldError};
use serde::Serialize;

use super::start::StartTemplate;
use super::{ACTOR_HEADER, BoxedCall, Client, RunHandle, StartCall};
use crate::error::Error;

impl Client {
    /// Starts a new run with the workflow and input of another one, which is not changed. Await the returned builder.
    ///
    /// The new run has the newest version of the workflow that a joined worker has, and the queue, priority, headers
    /// and tags that the other one was started with. Its key, parent and deadline are not copied.
    /// [`RunView::restarted_from`](crate::RunView::restarted_from) names the other run, and so does the tag
    /// `outlast:restarted_from`, by which lists find the restarts of a run.
    ///
    /// Specify the type of the workflow's output, as with [`handle`](Self::handle):
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn double(ctx: Context, number: u32) -> Result<u32, Error> { Ok(2 * number) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(double).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start(double, 21).key("double-21").await?;
    /// let again = client.restart::<u32>(run.id()).await?;
    /// assert_eq!(again.output().await?, 42);
    /// assert_eq!(again.view().await?.restarted_from(), Some(run.id()));
    ///
    /// let corrected = run.restart().with_input(&4).await?;
    /// assert_eq!(corrected.output().await?, 8);
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Invalid` if it is a queued step or the input does not fit the workflow,
    /// `Corrupt` if its start cannot be read, `Unavailable` if the world does not respond.
    pub fn restart<O>(&self, run: RunId) -> RestartCall<'_, O> {
        RestartCall { client: self, run, input: None, key: None, output: PhantomData }
    }

    /// How a run was started.
    pub(super) async fn run_started(&self, run: RunId) -> Result<RunStarted, Error> {
        let history = self.repeat(|| self.world.history(run, 0, 1)).await?;
        match history.into_iter().next().and_then(|turn| turn.events.into_iter().next()) {
            Some(Event::RunStarted(started)) => Ok(*started),
            _ => Err(Error::of_world(&WorldError::corrupt(format!(
                "the history of run {run} does not begin with `run_started`; start a new run with its input"
            )))),
        }
    }

    /// The newest version of a workflow that a joined worker has; at least this one.
    async fn newest_version(&self, workflow: &str, at_least: u32) -> Result<u32, Error> {
        let workers = self.repeat(|| self.world.workers()).await?;
        let code = workers.iter().flat_map(|worker| &worker.code);
        let versions = code.filter(|code| &*code.workflow == workflow).map(|code| code.version);
        Ok(versions.max().unwrap_or(at_least).max(at_least))
    }
}

/// A call that restarts a run; created by [`Client::restart`]. Await it to start the new run.
#[must_use = "nothing starts until the call is awaited"]
#[derive(Debug)]
pub struct RestartCall<'a, O> {
    client: &'a Client,
    run: RunId,
    input: Option<Result<Payload, Error>>,
    key: Option<String>,
    output: PhantomData<fn() -> O>,
}

impl<'a, O> RestartCall<'a, O> {
    /// Sets another input. Several parameters are a tuple.
    pub fn with_input<T: Serialize + ?Sized>(mut self, input: &T) -> Self {
        self.input = Some(Payload::json(input).map_err(Error::from));
        self
    }

    /// Sets a key of the new run, which makes the restart idempotent: a later restart with the same key returns the
    /// same new run.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    async fn call(self) -> Result<RunHandle<O>, Error>
    where
        O: 'static,
    {
        let (client, run) = (self.client, self.run);
        let started = client.run_started(run).await?;
        let input = match self.input {
            Some(input) => input?,
            None => client.codec.decode(started.input)?,
        };
        let version = client.newest_version(&started.workflow, started.version).await?;
        let mut template = StartTemplate::new(Cow::Owned(started.workflow.to_string()), version);
        template.queue = started.queue;
        template.priority = started.priority;
        template.headers = started.headers;
        crate::telemetry::trace::remove_context(&mut template.headers);
        template.tags = started.tags;
        template.ending = started.ending;
        template.tags.insert(RESTARTED_FROM.into(), run.to_string());
        if let Some(actor) = &client.actor {
            template.headers.insert(ACTOR_HEADER.into(), actor.to_string());
        }
        let start: StartCall<'a, O> = StartCall::new(client, template, Ok(input)).unchecked();
        match self.key {
            Some(key) => start.key(key).await,
            None => start.await,
        }
    }
}

impl<'a, O: 'static> IntoFuture for RestartCall<'a, O> {
    type Output = Result<RunHandle<O>, Error>;
    type IntoFuture = BoxedCall<'a, RunHandle<O>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
