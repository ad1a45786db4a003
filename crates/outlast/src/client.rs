//! The client: starts runs, sends to them, stops them and inspects them.

mod access;
mod fork;
mod retry;

mod start;
mod start_many;

mod ask;
mod send;
mod token;
pub(crate) mod within;

mod bulk;
mod control;
mod delete;
mod durable_bulk;
mod pause;
mod restart;
mod retried;
mod terminate;

mod confirmed_schedule;
mod schedule;
mod schedule_handle;

mod handle;
mod keyed;
mod output_waiters;

pub(crate) mod local_workers;

mod events;
mod failures;
mod inspect;
mod list;
mod operations;

mod state;
mod stream;

mod explain;

mod backup;
mod metrics;

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::duration::InvalidDuration;
use outlast_core::limits::HEADERS_BYTES_MAX;
use outlast_core::{
    ACTOR_HEADER, Codec, Headers, MessageBody, NewMessage, Payload, PlainJson, RunId, Sent, World, WorldError,
};
use serde::de::DeserializeOwned;

use crate::authoring::input::Input;
use crate::authoring::json::IntoJson;
use crate::authoring::workflow::{WorkflowHandle, catch_check_panic};
use crate::error::Error;
use crate::ids;
use crate::worker::outage::Outage;
use crate::worker::{Worker, WorkerBuilder};

pub use ask::{AskCall, PostedAsk};
#[cfg(feature = "webhooks")]
pub(crate) use ask::{NOT_ANSWERED, TOKEN_MOVED};
pub use backup::backup;
pub(crate) use bulk::is_selected;
pub use bulk::{Bulk, BulkCall, BulkRefusal};
pub use confirmed_schedule::ConfirmedSchedule;
pub use control::{Cancel, Controlled};
pub use durable_bulk::{BulkHandle, DurableBulkCall};
pub use events::{EventView, EventsCall};
pub use explain::{
    Attempting, Because, Compensating, Explanation, JoinedWorker, NextTry, Probe, Retried, Stopping, Waiting,
};
pub use fork::ForkCall;
pub use handle::RunHandle;
pub use keyed::KeyedRun;
pub use list::ListCall;
pub use operations::OperationsCall;
pub use pause::PauseCall;
pub use restart::RestartCall;
pub use retried::RetryCall;
pub use schedule::{ComputedSchedule, ScheduleBuilder, ScheduleCall};
pub use schedule_handle::{ScheduleHandle, SchedulePage, SchedulesCall};
pub use send::SendCall;
pub use start::{StartAndSendCall, StartCall};
pub use start_many::StartManyCall;
pub use state::StateWatch;
pub use stream::{Chunk, ChunkPage, StreamCall, StreamItem, StreamTail};
pub use terminate::TerminateCall;
pub use token::{TokenDelivery, TokenSendCall};
pub use within::Within;

use local_workers::LocalWorkers;
use start::StartTemplate;

type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type BoxedCall<'a, T> = BoxedFuture<'a, Result<T, Error>>;

/// A client of a world: it starts runs, sends to them, stops them and inspects them.
///
/// A client needs no worker in its process. It is cheap to clone. Calls with options are builders: nothing happens
/// until they are awaited. A call that the world does not answer is repeated for 10 s with the same ids, so it is not
/// executed twice, and then fails with the kind [`Unavailable`](crate::ErrorKind::Unavailable);
/// [`retry_unavailable`](Self::retry_unavailable) sets another time.
///
/// ```
/// use outlast::prelude::*;
///
/// #[workflow]
/// async fn greet(ctx: Context, name: String) -> Result<String, Error> {
///     let greeting = ctx.hook::<String>("greeting").await?;
///     Ok(format!("{greeting}, {name}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let world = outlast::open("memory:").await?;
/// let worker = Worker::builder(world.clone()).register(greet).start().await?;
/// let client = Client::new(world);
///
/// let run = client.start(greet, "Ada".to_owned()).key("greet-ada").tag("team", "sales").await?;
/// client.send(run.id(), "greeting", "hello").await?;
/// assert_eq!(run.output().await?, "hello, Ada");
/// assert_eq!(client.list().tag("team", "sales").await?.runs.len(), 1);
/// # worker.stop().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    world: Arc<dyn World>,
    codec: Arc<dyn Codec>,
    outage: Arc<Outage>,
    local: Arc<LocalWorkers>,
    /// How long calls are repeated while the world does not respond.
    retry_time: Result<Duration, InvalidDuration>,
    /// The person or program that controls runs with this client.
    actor: Option<Arc<str>>,
}

impl Client {
    /// Creates a client of a world.
    pub fn new(world: Arc<dyn World>) -> Self {
        let local = LocalWorkers::of(&world);
        let (codec, outage) = (Arc::new(PlainJson), Arc::new(Outage::of_client(local.metrics.clone())));
        Self { world, codec, outage, local, retry_time: Ok(retry::RETRY_TIME), actor: None }
    }

    /// Creates the client of a worker, which the steps of the worker use.
    pub(crate) fn of_worker(world: Arc<dyn World>, codec: Arc<dyn Codec>) -> Self {
        Self { codec, ..Self::new(world) }
    }

    /// Sets the codec that all payloads pass through. The workers of the runs need the same codec.
    #[must_use]
    pub fn with_codec(mut self, codec: impl Codec + 'static) -> Self {
        self.codec = Arc::new(codec);
        self
    }

    /// Returns a builder of a worker on the same world, with the same codec.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn nap(ctx: Context) -> Result<(), Error> { ctx.sleep("1ms").await }
    /// # async fn serve(client: &Client) -> Result<(), Error> {
    /// let worker = client.worker_builder().register(nap).start().await?;
    /// # worker.stop().await
    /// # }
    /// ```
    pub fn worker_builder(&self) -> WorkerBuilder<()> {
        Worker::builder(self.world.clone()).shared_codec(self.codec.clone())
    }

    /// Sets who controls runs with the returned client: a person or a program. Messages that cancel, terminate, wake,
    /// pause and resume runs carry it in the header `actor`, and so do the headers of restarted runs;
    /// [`explain`](Self::explain) names who paused a run.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # async fn stop(client: &Client, run: outlast::RunId) -> Result<(), Error> {
    /// client.acting_as("ada@example.com").pause(run).reason("the bank is closed").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn acting_as(&self, actor: impl Into<Arc<str>>) -> Self {
        Self { actor: Some(actor.into()), ..self.clone() }
    }

    /// Starts a run. Await the returned builder: when it returns, the start is durable.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn invoice(ctx: Context, order: u64) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let run = client
    ///     .start(invoice, 42)
    ///     .key("invoice-42") // a second start with this key returns this run
    ///     .tag("customer", "ada") // lists can filter by tags
    ///     .after("1h") // begin in an hour
    ///     .deadline("3d") // cancel the run if it has not ended in three days
    ///     .await?;
    /// assert!(run.is_new());
    /// assert!(!client.start(invoice, 42).key("invoice-42").await?.is_new());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` if the workflow's `check` rejects the input, with the check's message, or if an option is invalid;
    /// `Limit` if the input, key or tags exceed a limit; `Conflict` if the key belongs to a run of another workflow or
    /// with another input; `Unavailable` if the world does not respond.
    pub fn start<H, M>(&self, workflow: H, input: impl Input<H::Input>) -> StartCall<'_, H::Output>
    where
        H: WorkflowHandle<M>,
    {
        let input = input.with(|input| {
            catch_check_panic(|| workflow.check(input))?;
            Ok(Payload::json(input)?)
        });
        StartCall::new(self, StartTemplate::of(&workflow), input)
    }

    /// Starts a run of a workflow by name, with JSON as input: a text or a [`serde_json::Value`].
    ///
    /// Several parameters are a JSON array. If a worker in the same process has the code, the input is decoded and
    /// checked before anything is written. Otherwise the worker that claims the run does so, and the run fails if the
    /// input does not match.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn greet(ctx: Context, name: String, times: usize) -> Result<String, Error> {
    ///     Ok(format!("hello {name}, ").repeat(times))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(greet).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start_json("greet", 1, r#"["Ada", 2]"#).key("greeting-7").await?;
    /// assert_eq!(run.output().await?, "hello Ada, hello Ada, ");
    ///
    /// let error = client.start_json("greet", 1, r#"["Ada"]"#).await.unwrap_err();
    /// assert!(error.to_string().starts_with("the input of workflow `greet` does not fit: "));
    /// # worker.stop().await }
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` if the text is not JSON, or not an input of the workflow; otherwise as [`start`](Self::start).
    pub fn start_json(
        &self,
        workflow: impl Into<String>,
        version: u32,
        input: impl IntoJson,
    ) -> StartCall<'_, serde_json::Value> {
        StartCall::new(self, StartTemplate::new(Cow::Owned(workflow.into()), version), input.into_json())
            .unchecked()
    }

    /// Returns a handle to an existing run. The run is not looked up: calls on the handle fail if it does not exist.
    ///
    /// Specify the type of the workflow's output, because the id does not contain it:
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// async fn receipt(client: &Client, run: outlast::RunId) -> Result<String, Error> {
    ///     client.handle::<String>(run).output().await
    /// }
    ///
    /// // If you do not need the output, call the client, which needs no type.
    /// async fn stop(client: &Client, run: outlast::RunId) -> Result<(), Error> {
    ///     client.cancel(run, "the customer left").await.map(drop)
    /// }
    /// ```
    pub fn handle<O: DeserializeOwned>(&self, run: RunId) -> RunHandle<O> {
        RunHandle::new(self, run, false)
    }

    /// Sends a message without headers, except that of the actor.
    async fn post_plain(&self, run: RunId, body: MessageBody) -> Result<Sent, WorldError> {
        let actor = self.actor.iter().map(|actor| (ACTOR_HEADER.to_owned(), actor.to_string()));
        self.post(NewMessage { id: ids::message(), run, body, headers: actor.collect() }).await
    }

    async fn post(&self, message: NewMessage) -> Result<Sent, WorldError> {
        self.repeat_one(message, |messages| self.world.send(messages)).await
    }
}

fn check_text(what: &str, text: &str, bytes_max: usize) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{what} is empty; give it at least one character")));
    }
    check_bytes(what, text.len(), bytes_max)
}

fn check_bytes(what: &str, bytes: usize, bytes_max: usize) -> Result<(), Error> {
    if bytes <= bytes_max {
        return Ok(());
    }
    let message = format!("{what} has {bytes} bytes, the limit is {bytes_max}; shorten it");
    Err(Error::of_world(&WorldError::limit(message)))
}

fn check_headers(headers: &Headers) -> Result<(), Error> {
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes <= HEADERS_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "the headers have {bytes} bytes together, the limit is {HEADERS_BYTES_MAX}; use fewer or shorter ones"
    );
    Err(Error::of_world(&WorldError::limit(message)))
}
