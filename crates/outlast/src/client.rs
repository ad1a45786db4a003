//! The client: starts, sends, cancels and looks.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::event::TurnRecord;
use outlast_core::limits::{
    HEADERS_BYTES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, PAGE_RUNS_MAX, REASON_BYTES_MAX,
};
use outlast_core::{
    Codec, Counts, Headers, IntoDuration, MessageBody, NewMessage, Order, Outcome, Page, Payload, PlainJson,
    RunId, RunQuery, RunView, Start, StartKey, Started, Status, Timestamp, WorkerView, World, WorldError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::pause;
use crate::error::Error;
use crate::ids;
use crate::json::IntoJson;
use crate::upkeep;
use crate::workflow::{WorkflowHandle, contained};

/// How often a call is repeated, with the same ids, when the world does not answer.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);

/// When a waiter first looks whether the run is stuck, and how often then.
const STUCK_LOOK_FIRST: Duration = Duration::from_secs(1);
const STUCK_LOOK: Duration = Duration::from_secs(10);

type BoxedCall<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Starts runs, sends to them, cancels them and looks at them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    world: Arc<dyn World>,
    codec: Arc<dyn Codec>,
}

impl Client {
    /// A client of a world.
    pub fn new(world: Arc<dyn World>) -> Self {
        Self { world, codec: Arc::new(PlainJson) }
    }

    /// The same client with a codec, which the workers of its runs need too.
    #[must_use]
    pub fn with_codec(mut self, codec: impl Codec + 'static) -> Self {
        self.codec = Arc::new(codec);
        self
    }

    /// Starts a run. Await the builder; when that returns, the start survives any crash.
    ///
    /// # Errors
    ///
    /// `Invalid`, with what the workflow's `check` says, when it refuses the input. `Limit` when the input
    /// or key is too long, `Conflict` when the key names a run of another
    /// workflow or input, `Unavailable` when the world does not answer.
    pub fn start<H, M>(&self, workflow: H, input: impl Borrow<H::Input>) -> StartCall<'_, H::Output>
    where
        H: WorkflowHandle<M>,
    {
        let input = input.borrow();
        let checked = contained(|| workflow.check(input));
        let input = checked.and_then(|()| Ok(Payload::json(input)?));
        StartCall::new(self, workflow.name().into(), workflow.version(), input)
    }

    /// Starts a run of a workflow that is known by its name only, with JSON as input: a text or a
    /// [`serde_json::Value`].
    ///
    /// When a worker of this process has the code, the input must be one of the workflow: it is decoded
    /// and checked before anything is written. Otherwise the worker that takes the run finds out, and the
    /// run fails.
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
    /// `Invalid` when the text is not JSON, or not an input of the workflow; those of
    /// [`start`](Self::start).
    pub fn start_json(
        &self,
        workflow: impl Into<String>,
        version: u32,
        input: impl IntoJson,
    ) -> StartCall<'_, serde_json::Value> {
        let start = StartCall::new(self, Cow::Owned(workflow.into()), version, input.into_json());
        StartCall { is_unchecked: true, ..start }
    }

    /// A run that was started before, by its id. It is not looked up: calls on it say if there is none.
    pub fn handle<O: DeserializeOwned>(&self, run: RunId) -> RunHandle<O> {
        RunHandle { client: self.clone(), run, is_new: false, output: PhantomData }
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

    /// Sends a payload to a hook of a run. Await the call; when that returns, the payload is kept until
    /// the run takes it, whether it waits for it already or not.
    ///
    /// Which hooks a run will ask for, and of what type, only its code knows. A payload for a name that
    /// it never asks for stays where it is; one of another type is an error in the workflow, which may
    /// wait again and gets the next one.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Conflict` when the run has ended, `Limit` when its inbox is full.
    pub async fn send<T: Serialize + Sync + ?Sized>(
        &self,
        run: RunId,
        hook: &str,
        payload: &T,
    ) -> Result<(), Error> {
        check_text("the hook's name", hook, NAME_BYTES_MAX)?;
        let payload = self.codec.encode(Payload::json(payload)?)?;
        self.post(run, MessageBody::Hook { name: hook.into(), payload }).await?;
        Ok(())
    }

    /// Asks a run to stop. A run that has ended already stays as it is.
    ///
    /// The workflow is told once: timers, hooks and pauses between attempts that are open at that moment
    /// fail with an error that [is cancelled](Error::is_cancelled), one after the other. A step that is
    /// being attempted is told through [its context](crate::StepContext::cancelled), and its real
    /// outcome is awaited. What the workflow asks for afterwards works as always, so it can clean up.
    /// If it then returns an error the run is `cancelled`; if it returns an output, `completed`.
    ///
    /// A run that no worker has begun is cancelled at once, whether its code is there or not. A stuck
    /// run keeps the message until it can go on. Further cancels of a run that was told change nothing.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn cancel(&self, run: RunId, reason: &str) -> Result<Cancel, Error> {
        check_bytes("the reason", reason.len(), REASON_BYTES_MAX)?;
        match self.post(run, MessageBody::Cancel { reason: reason.into() }).await {
            Ok(()) => {}
            Err(WorldError::Conflict(_)) => return Ok(Cancel::AlreadyEnded(self.run(run).await?.status)),
            Err(error) => return Err(error.into()),
        }
        if self.world.run(run).await?.status == Status::Pending {
            upkeep::end_without_worker(&self.world).await?;
        }
        Ok(Cancel::Requested)
    }

    async fn post(&self, run: RunId, body: MessageBody) -> Result<(), WorldError> {
        let message = NewMessage { id: ids::message(), run, body, headers: Headers::new() };
        let sent = persist(|| self.world.send(vec![message.clone()])).await?;
        first(sent).map(drop)
    }

    /// A run as it is now.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn run(&self, run: RunId) -> Result<RunView, Error> {
        Ok(self.world.run(run).await?)
    }

    /// The whole history of a run, turn by turn.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn history(&self, run: RunId) -> Result<Vec<TurnRecord>, Error> {
        Ok(upkeep::read_history(&*self.world, run).await?)
    }

    /// The whole history of a run as JSON that people can read: the run, its workflow and version, and its
    /// turns with an event per line. Payloads are as stored.
    ///
    /// `assert_replays` in `outlast-testkit` tests code with such files; [`History`](outlast_core::History)
    /// reads them back.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn export(&self, run: RunId) -> Result<String, Error> {
        let turns = self.history(run).await?;
        Ok(outlast_core::History { run, turns }.to_json())
    }

    /// A page of runs. A limit of 0 is a page of the greatest size.
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

    /// The newest runs in one of these statuses; of all when none is given.
    ///
    /// # Errors
    ///
    /// `Unavailable`.
    pub async fn newest(&self, statuses: &[Status], limit: usize) -> Result<Vec<RunView>, Error> {
        let query =
            RunQuery { statuses: statuses.to_vec(), order: Order::NewestFirst, limit, ..RunQuery::default() };
        Ok(self.runs(query).await?.runs)
    }

    /// How many runs are in each status.
    ///
    /// # Errors
    ///
    /// `Unavailable`.
    pub async fn counts(&self) -> Result<Counts, Error> {
        Ok(self.world.counts().await?)
    }

    /// The workers that are joined.
    ///
    /// # Errors
    ///
    /// `Unavailable`.
    pub async fn workers(&self) -> Result<Vec<WorkerView>, Error> {
        Ok(self.world.workers().await?)
    }

    /// Lets a stuck run be tried again, by any build.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Conflict` when the run is not stuck.
    pub async fn resume(&self, run: RunId) -> Result<(), Error> {
        Ok(self.world.resume(run).await?)
    }
}

/// What a cancel came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The run will be told.
    Requested,
    /// The run had ended before, like this.
    AlreadyEnded(Status),
}

/// A start about to be made; await it.
#[must_use = "nothing starts until the call is awaited"]
#[derive(Debug)]
pub struct StartCall<'a, O> {
    client: &'a Client,
    workflow: Cow<'static, str>,
    version: u32,
    key: Option<String>,
    input: Result<Payload, Error>,
    /// Whether nobody has looked if the input is one of the workflow.
    is_unchecked: bool,
    headers: Headers,
    output: PhantomData<fn() -> O>,
}

impl<'a, O> StartCall<'a, O> {
    fn new(
        client: &'a Client,
        workflow: Cow<'static, str>,
        version: u32,
        input: Result<Payload, Error>,
    ) -> Self {
        let (key, headers) = (None, Headers::new());
        Self { client, workflow, version, key, input, is_unchecked: false, headers, output: PhantomData }
    }

    /// Makes the start idempotent: a later start with this key returns the run of this one.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Something that travels with the run: trace context, the caller's identity.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    async fn call(self) -> Result<RunHandle<O>, Error> {
        check_text("the workflow's name", &self.workflow, NAME_BYTES_MAX)?;
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        check_bytes("the headers together", headers, HEADERS_BYTES_MAX)?;
        let plain = self.input?;
        let key = match self.key {
            Some(text) => {
                check_text("the start key", &text, KEY_BYTES_MAX)?;
                Some(StartKey { text, digest: plain.digest(), window: None })
            }
            None => None,
        };
        let start = Start {
            run: ids::run(),
            turn: ids::turn(),
            workflow: (*self.workflow).into(),
            version: self.version,
            key,
            input: self.client.codec.encode(plain)?,
            headers: self.headers,
            tags: Default::default(),
            parent: None,
            not_before: None,
            deadline: None,
        };
        if self.is_unchecked
            && let Some(Err(reason)) = self.client.world.hosts().check(&start)
        {
            return Err(Error::invalid(reason));
        }
        let started = self.client.start_run(start).await?;
        Ok(RunHandle {
            client: self.client.clone(),
            run: started.run,
            is_new: started.is_new,
            output: PhantomData,
        })
    }
}

impl Client {
    /// Hands the run to a worker of this process, or leaves it for any worker to claim.
    async fn start_run(&self, start: Start) -> Result<Started, WorldError> {
        if let Ok(answer) = self.world.hosts().take(start.clone()) {
            match answer.await {
                // The worker stopped meanwhile; whether it committed is unknown, so repeat by id.
                Err(WorldError::Unavailable(_) | WorldError::Fenced(_)) => {}
                answered => return answered,
            }
        }
        first(persist(|| self.world.start(vec![start.clone()])).await?)
    }
}

impl<'a, O: 'static> IntoFuture for StartCall<'a, O> {
    type Output = Result<RunHandle<O>, Error>;
    type IntoFuture = BoxedCall<'a, RunHandle<O>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}

/// One run, with the type of its output.
pub struct RunHandle<O> {
    client: Client,
    run: RunId,
    is_new: bool,
    output: PhantomData<fn() -> O>,
}

impl<O> RunHandle<O> {
    /// The run's id.
    pub fn id(&self) -> RunId {
        self.run
    }

    /// Whether the start that returned this handle began the run; false when its key was known.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The run as it is now.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn view(&self) -> Result<RunView, Error> {
        self.client.run(self.run).await
    }

    /// Sends a payload to one of its hooks; see [`Client::send`].
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub async fn send<T: Serialize + Sync + ?Sized>(&self, hook: &str, payload: &T) -> Result<(), Error> {
        self.client.send(self.run, hook, payload).await
    }

    /// Asks the run to stop; see [`Client::cancel`].
    ///
    /// # Errors
    ///
    /// As [`Client::cancel`].
    pub async fn cancel(&self, reason: &str) -> Result<Cancel, Error> {
        self.client.cancel(self.run, reason).await
    }
}

impl<O: DeserializeOwned> RunHandle<O> {
    /// Waits for the run's end, and returns the workflow's output.
    ///
    /// A run that is stuck is not over, and may go on later: with mended code, or when it is
    /// [resumed](Client::resume). But nobody should wait for that in silence, so it is an error here.
    ///
    /// # Errors
    ///
    /// The workflow's own error when it failed; an error that [is cancelled](Error::is_cancelled)
    /// when it was cancelled; one that [is stuck](Error::is_stuck), with the reason, when the run is
    /// found stuck; `Invalid` when the output is not an `O`.
    pub async fn output(&self) -> Result<O, Error> {
        let clock = self.client.world.clock();
        let mut patience = STUCK_LOOK_FIRST;
        loop {
            // A virtual clock does not move by itself, so the time to look is now.
            let until = if clock.is_virtual() {
                self.check_not_stuck().await?;
                Timestamp::NEVER
            } else {
                clock.now().plus(patience)
            };
            if let Some(outcome) = self.wait(until).await? {
                return self.decode(outcome);
            }
            self.check_not_stuck().await?;
            patience = STUCK_LOOK;
        }
    }

    /// Like [`output`](Self::output), but gives up after a time.
    ///
    /// # Errors
    ///
    /// An error that [is a timeout](Error::is_timeout) when the time is over and the run goes on, or
    /// those of `output`.
    pub async fn output_within(&self, time: impl IntoDuration) -> Result<O, Error> {
        let until = self.client.world.clock().now().plus(time.into_duration()?);
        if let Some(outcome) = self.wait(until).await? {
            return self.decode(outcome);
        }
        let status = self.check_not_stuck().await?;
        Err(Error::timeout(format!("run {} has not ended in time; it is {status}, and goes on", self.run)))
    }

    async fn check_not_stuck(&self) -> Result<Status, Error> {
        let view = self.view().await?;
        match view.stuck.filter(|_| view.status == Status::Stuck) {
            None => Ok(view.status),
            Some(stuck) => Err(Error::stuck(format!("run {} is stuck: {}", self.run, stuck.message))),
        }
    }

    async fn wait(&self, until: Timestamp) -> Result<Option<Outcome>, Error> {
        let ended = persist(|| self.client.world.ended(self.run, until)).await?;
        Ok(ended.map(|ended| ended.outcome))
    }

    fn decode(&self, outcome: Outcome) -> Result<O, Error> {
        match outcome {
            Outcome::Completed(output) => Ok(self.client.codec.decode(output)?.decode()?),
            Outcome::Failed(failure) | Outcome::Cancelled(failure) => Err(Error::of_failure(failure)),
        }
    }
}

impl<O> fmt::Debug for RunHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunHandle({})", self.run)
    }
}

/// Repeats a call that the world did not answer. Its ids were made before, so nothing is doubled.
async fn persist<T, F>(mut call: impl FnMut() -> F) -> Result<T, WorldError>
where
    F: Future<Output = Result<T, WorldError>>,
{
    let mut tries = 1;
    loop {
        match call().await {
            Err(error) if error.is_transient() && tries < TRIES => {
                pause(PAUSE * tries).await;
                tries += 1;
            }
            answered => return answered,
        }
    }
}

fn first<T>(mut answers: Vec<Result<T, WorldError>>) -> Result<T, WorldError> {
    if answers.len() == 1 {
        answers.remove(0)
    } else {
        Err(WorldError::Corrupt(format!("the world gave {} answers to one question", answers.len())))
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
    Err(Error::of_world(&WorldError::Limit(message)))
}
