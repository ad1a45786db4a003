//! Starting one run.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::duration::InvalidDuration;
use outlast_core::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX};
use outlast_core::queue::{check_name, check_workflow_name, default_queue};
use outlast_core::refusal::check_start;
use outlast_core::{
    Event, Headers, IntoDuration, KeyPolicy, Payload, RunId, Start, StartKey, Started, Tags, Timestamp,
    WorldError,
};

use super::{BoxedCall, Client, RunHandle, check_headers, check_text};
use crate::authoring::workflow::WorkflowHandle;
use crate::client::within::Within;
use crate::error::Error;
use crate::ids;

impl Client {
    /// Creates an id for a new run, to be passed to [`StartCall::id`]. Ids are ordered by time, as lists expect.
    pub fn new_id(&self) -> RunId {
        ids::run()
    }
}

/// A call that starts a run; created by [`Client::start`]. Await it to start the run.
#[must_use = "nothing starts until the call is awaited"]
#[derive(Debug)]
pub struct StartCall<'a, O> {
    client: &'a Client,
    template: StartTemplate,
    input: Result<Payload, Error>,
    /// Whether the input has not been decoded and checked yet.
    is_unchecked: bool,
    key: Option<String>,
    window: Option<Duration>,
    policy: KeyPolicy,
    id: Option<RunId>,
    output: PhantomData<fn() -> O>,
}

/// The options that all starts of one call share.
#[derive(Clone, Debug)]
pub(super) struct StartTemplate {
    workflow: Cow<'static, str>,
    version: u32,
    pub(super) queue: Arc<str>,
    pub(super) priority: u8,
    pub(super) headers: Headers,
    pub(super) tags: Tags,
    begin: Option<StartTime>,
    deadline: Option<StartTime>,
    /// The first option that is not valid.
    problem: Option<InvalidDuration>,
    /// The first name that is reserved. A restart copies tags and headers of the engine.
    reserved_name: Option<String>,
}

/// A time, relative to the start or absolute.
#[derive(Clone, Copy, Debug)]
enum StartTime {
    In(Duration),
    At(Timestamp),
}

impl StartTime {
    /// The time, for a start that is made at `now`.
    fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::In(duration) => now.plus(duration),
            Self::At(moment) => moment,
        }
    }
}

impl<'a, O> StartCall<'a, O> {
    pub(super) fn new(client: &'a Client, template: StartTemplate, input: Result<Payload, Error>) -> Self {
        Self {
            client,
            template,
            input,
            is_unchecked: false,
            key: None,
            window: None,
            policy: KeyPolicy::Kept,
            id: None,
            output: PhantomData,
        }
    }

    /// The same start, whose input a worker of this process checks if it has the code.
    pub(super) fn unchecked(self) -> Self {
        Self { is_unchecked: true, ..self }
    }

    /// Sets a key, which makes the start idempotent: a later start with the same key returns the same run.
    ///
    /// The key stays in use until the run is [pruned](Client::prune), unless the later start has a
    /// [window](Self::key_window). The version of the workflow is not compared. A start with the same key and another
    /// workflow or input is a conflict. Keys are shared by all workflows of a world.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets how long an earlier start with the same key counts. If the earlier start is older, a new run is started,
    /// and the key belongs to the new run from now on.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn digest(ctx: Context, user: u64) -> Result<(), Error> { Ok(()) }
    /// # async fn daily(client: &Client) -> Result<(), Error> {
    /// // However often this is called, at most one digest is started in 24 hours.
    /// client.start(digest, 7).key("digest-7").key_window("24h").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_window(mut self, window: impl IntoDuration) -> Self {
        self.window = self.template.duration(window);
        self
    }

    /// Holds the key only while the run lives: if the run with this key has ended, a new run is started, and the key
    /// belongs to the new run from now on.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn sync(ctx: Context, account: u64) -> Result<(), Error> { Ok(()) }
    /// # async fn sync_now(client: &Client) -> Result<(), Error> {
    /// // At most one sync of an account runs at a time, and the next one may start when it has ended.
    /// client.start(sync, 7).key("sync-7").key_while_running().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_while_running(mut self) -> Self {
        self.policy = KeyPolicy::WhileRunning;
        self
    }

    /// Adds a header, such as a trace context or the caller's identity. The workflow, its steps and its children can
    /// read the headers of the start.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.template.add_header(name.into(), value.into());
        self
    }

    /// Adds a tag, by which [lists](crate::ListCall::tag) can find the run. The workflow can change it and set others
    /// with [`Context::tag`](crate::Context::tag).
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.template.add_tag(name.into(), value.into());
        self
    }

    /// Sets the queue of the run, instead of the workflow's own. Only workers that
    /// [serve the queue](crate::WorkerBuilder::queues) claim the run.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn invoice(ctx: Context, order: u64) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let run = client.start(invoice, 42).queue("night").priority(3).await?;
    /// assert_eq!(&*run.view().await?.queue, "night");
    /// # Ok(())
    /// # }
    /// ```
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.template.queue = queue.into();
        self
    }

    /// Sets the priority of the run, from 0 (the default) to 9. Each level is worth ten seconds of waiting.
    pub fn priority(mut self, priority: u8) -> Self {
        self.template.priority = priority;
        self
    }

    /// Delays the run by a duration. Until then it is `pending`: it can be cancelled and terminated, and it keeps the
    /// payloads that are sent to it.
    pub fn after(mut self, delay: impl IntoDuration) -> Self {
        self.template.set_delay(delay);
        self
    }

    /// Delays the run until a time of the world's clock. If that time has passed, the run begins at once.
    pub fn at(mut self, moment: Timestamp) -> Self {
        self.template.set_start(moment);
        self
    }

    /// Sets a deadline, counted from now, even if the run begins later. At the deadline the run is cancelled, as by
    /// [`Client::cancel`], and can clean up.
    ///
    /// A waiting run is woken for its deadline. If no worker is running then, the run is cancelled when one joins. If
    /// no worker has the run's code one minute later, any worker ends the run.
    pub fn deadline(mut self, time: impl IntoDuration) -> Self {
        self.template.set_time_limit(time);
        self
    }

    /// Like [`deadline`](Self::deadline), but at a given time of the world's clock. A time in the past is an error.
    pub fn deadline_at(mut self, moment: Timestamp) -> Self {
        self.template.set_deadline(moment);
        self
    }

    /// Sets the run's id, so that the caller can store it before the run starts. A start that repeats the id returns
    /// the same run; with another workflow or input it is a conflict.
    ///
    /// Ids are ordered by time, and lists are sorted by them: create one with [`Client::new_id`].
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn invoice(ctx: Context, order: u64) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let id = client.new_id(); // stored in the caller's own database first
    /// let run = client.start(invoice, 42).id(id).await?;
    /// assert_eq!(run.id(), id);
    /// assert!(!client.start(invoice, 42).id(id).await?.is_new());
    /// # Ok(())
    /// # }
    /// ```
    pub fn id(mut self, run: RunId) -> Self {
        self.id = Some(run);
        self
    }

    /// Starts the run inside the caller's own transaction on the world's database: the run starts when the transaction
    /// commits, and does not exist if it rolls back. So an order and the run that processes it are one change.
    ///
    /// Transactions of `rusqlite` and `tokio-postgres` are accepted. See the guide's page on transactions.
    ///
    /// # Errors
    ///
    /// As an ordinary start; also if the transaction is on another database than the world, or if the database
    /// refuses the statement. The call is not repeated automatically.
    pub async fn within<T: Within>(self, transaction: &mut T) -> Result<RunHandle<O>, Error> {
        let client = self.client;
        let (start, _) = self.prepare()?;
        let started = transaction.start(&*client.world, start).await?;
        Ok(RunHandle::new(client, started.run, started.is_new))
    }

    async fn call(self) -> Result<RunHandle<O>, Error> {
        let (client, is_chosen) = (self.client, self.id.is_some());
        let (start, plain) = self.prepare()?;
        let started = if is_chosen {
            client.start_chosen(start, &plain).await?
        } else {
            client.start_run(start).await?
        };
        Ok(RunHandle::new(client, started.run, started.is_new))
    }

    /// The start, validated, and its input before the codec.
    fn prepare(self) -> Result<(Start, Payload), Error> {
        if self.window.is_some() && self.key.is_none() {
            return Err(Error::invalid("a key window needs a key; add `.key(…)`"));
        }
        if self.policy == KeyPolicy::WhileRunning && self.key.is_none() {
            return Err(Error::invalid("`.key_while_running()` needs a key; add `.key(…)`"));
        }
        let (client, plain) = (self.client, self.input?);
        let mut start = self.template.start(client, plain.clone(), self.key)?;
        if let Some(key) = &mut start.key {
            (key.window, key.policy) = (self.window, self.policy);
        }
        if self.is_unchecked
            && let Some(Err(reason)) = client.local.check(&start)
        {
            return Err(Error::invalid(reason));
        }
        start.run = self.id.unwrap_or(start.run);
        Ok((start, plain))
    }
}

impl StartTemplate {
    pub(super) fn new(workflow: Cow<'static, str>, version: u32) -> Self {
        let (queue, priority) = (default_queue(), 0);
        let (headers, tags) = (Headers::new(), Tags::new());
        let (begin, deadline, problem, reserved_name) = (None, None, None, None);
        Self { workflow, version, queue, priority, headers, tags, begin, deadline, problem, reserved_name }
    }

    /// The template for a workflow, with its queue and priority.
    pub(super) fn of<H: WorkflowHandle<M>, M>(workflow: &H) -> Self {
        let queue = workflow.queue().map_or_else(default_queue, Into::into);
        Self { queue, priority: workflow.priority(), ..Self::new(workflow.name().into(), workflow.version()) }
    }

    pub(super) fn add_header(&mut self, name: String, value: String) {
        self.reserved_name = self.reserved_name.take().or_else(|| check_name("header", &name).err());
        self.headers.insert(name, value);
    }

    pub(super) fn add_tag(&mut self, name: String, value: String) {
        self.reserved_name = self.reserved_name.take().or_else(|| check_name("tag", &name).err());
        self.tags.insert(name, value);
    }

    pub(super) fn set_delay(&mut self, delay: impl IntoDuration) {
        self.begin = self.duration(delay).map(StartTime::In);
    }

    pub(super) fn set_start(&mut self, moment: Timestamp) {
        self.begin = Some(StartTime::At(moment));
    }

    pub(super) fn set_time_limit(&mut self, time: impl IntoDuration) {
        self.deadline = self.duration(time).map(StartTime::In);
    }

    pub(super) fn set_deadline(&mut self, moment: Timestamp) {
        self.deadline = Some(StartTime::At(moment));
    }

    fn duration(&mut self, duration: impl IntoDuration) -> Option<Duration> {
        match duration.into_duration() {
            Ok(duration) => Some(duration),
            Err(error) => {
                self.problem.get_or_insert(error);
                None
            }
        }
    }

    /// The deadline of a start that is made at `now`.
    fn deadline(&self, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        match self.deadline.map(|deadline| deadline.resolve(now)) {
            Some(deadline) if deadline <= now => Err(Error::invalid(format!(
                "the deadline {deadline} is not after now, {now}; set a later one"
            ))),
            deadline => Ok(deadline),
        }
    }

    /// The start of a run with this input, before the codec.
    pub(super) fn start(&self, client: &Client, plain: Payload, key: Option<String>) -> Result<Start, Error> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone().into());
        }
        if let Some(reserved) = &self.reserved_name {
            return Err(Error::invalid(reserved));
        }
        let now = client.world.clock().now();
        check_text("the workflow's name", &self.workflow, NAME_BYTES_MAX)?;
        check_workflow_name(&self.workflow).map_err(Error::invalid)?;
        check_headers(&self.headers)?;
        if let Some(key) = &key {
            check_text("the start key", key, KEY_BYTES_MAX)?;
            check_name("key", key).map_err(Error::invalid)?;
        }
        let start = Start {
            run: ids::run(),
            turn: ids::turn(),
            workflow: (*self.workflow).into(),
            version: self.version,
            rules: outlast_core::event::RULES,
            queue: self.queue.clone(),
            priority: self.priority,
            key: key.map(|text| StartKey {
                text,
                digest: plain.digest(),
                window: None,
                policy: KeyPolicy::Kept,
            }),
            input: client.codec.encode(plain)?,
            headers: self.headers.clone(),
            tags: self.tags.clone(),
            parent: None,
            not_before: self.begin.map(|begin| begin.resolve(now)).filter(|begin| *begin > now),
            deadline: self.deadline(now)?,
            policy: None,
            requester: None,
        };
        check_start(&start)?;
        Ok(start)
    }
}

impl Client {
    /// Passes the run to a worker of this process, or leaves it for any worker to claim.
    pub(super) async fn start_run(&self, start: Start) -> Result<Started, WorldError> {
        if start.not_before.is_none()
            && let Ok(answer) = self.local.take(start.clone())
        {
            match answer.await {
                // The worker stopped. Whether it committed the start is unknown, so repeat the start with the same id.
                Err(WorldError::Unavailable(_) | WorldError::Fenced(_)) => {}
                answered => return answered,
            }
        }
        self.repeat_one(start, |starts| self.world.start(starts)).await
    }

    /// Starts a run whose id the caller has chosen. The run may exist already, and a worker of this process may hold
    /// it, so it is not passed to one.
    async fn start_chosen(&self, start: Start, plain: &Payload) -> Result<Started, Error> {
        let started = self.repeat_one(start.clone(), |starts| self.world.start(starts)).await?;
        if started.run != start.run || !started.is_new {
            return Ok(started);
        }
        // The world returns the same result for a repeated id. The id of the first turn shows which start created the
        // run.
        let history = self.repeat(|| self.world.history(start.run, 0, 1)).await?;
        let Some(first) = history.first().filter(|first| first.id != start.turn) else { return Ok(started) };
        match first.events.first() {
            Some(Event::RunStarted(existing))
                if existing.workflow == start.workflow
                    && self.codec.decode(existing.input.clone())? == *plain =>
            {
                Ok(Started { run: start.run, is_new: false })
            }
            _ => {
                let message = format!(
                    "run {} was started before, with another workflow or input; choose another id",
                    start.run
                );
                Err(Error::of_world(&WorldError::conflict(message)))
            }
        }
    }
}

impl<'a, O: 'static> IntoFuture for StartCall<'a, O> {
    type Output = Result<RunHandle<O>, Error>;
    type IntoFuture = BoxedCall<'a, RunHandle<O>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
