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
    EndPlan, Event, Headers, HookAddress, IntoDuration, KeyPolicy, MessageId, Payload, RunId, Start,
    StartKey, Started, Tags, Timestamp, WorldError,
};

use serde::Serialize;

use super::send::{check_message_key, payload_message};
use super::{BoxedCall, Client, RunHandle, check_headers, check_text};
use crate::authoring::hook::HookFor;
use crate::authoring::workflow::WorkflowHandle;
use crate::client::within::Within;
use crate::error::Error;
use crate::ids;
use crate::telemetry::trace;

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
    existing: ExistingRun,
    id: Option<RunId>,
    output: PhantomData<fn() -> O>,
}

/// What a start does when its key names an earlier run with the same workflow and input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExistingRun {
    Returned,
    Refused,
}

/// The options that all starts of one call share.
#[derive(Clone, Debug)]
pub(super) struct StartTemplate {
    pub(super) workflow: Cow<'static, str>,
    pub(super) version: u32,
    pub(super) queue: Arc<str>,
    pub(super) priority: u8,
    pub(super) headers: Headers,
    pub(super) tags: Tags,
    begin: Option<StartTime>,
    deadline: Option<StartTime>,
    pub(super) ending: Option<Box<EndPlan>>,
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
            existing: ExistingRun::Returned,
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

    /// Refuses the start if a run with this key exists, also if it has the same workflow and input. The error
    /// [is a conflict](Error::is_conflict), and names the run.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn enroll(ctx: Context, user: u64) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// client.start(enroll, 7).key("user-7").key_must_be_new().await?;
    /// let second = client.start(enroll, 7).key("user-7").key_must_be_new().await;
    /// assert!(second.unwrap_err().is_conflict());
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_must_be_new(mut self) -> Self {
        self.existing = ExistingRun::Refused;
        self
    }

    /// Replaces the run with this key: it loses the key and is cancelled, if it has not ended, and a new run is started,
    /// all in one change. The earlier run may have another workflow or input. The new run does not wait for the end of
    /// the earlier one, which may clean up.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn remind(ctx: Context, text: String) -> Result<(), Error> { ctx.sleep("1h").await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let first = client.start(remind, "at noon").key("user-7").key_replaces().await?;
    /// let second = client.start(remind, "at one").key("user-7").key_replaces().await?;
    /// assert!(first.view().await?.is_cancel_requested && second.is_new());
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_replaces(mut self) -> Self {
        self.policy = KeyPolicy::Replace;
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

    /// Also sends a payload to a hook of the run, whether this call starts it or its key names a run that exists: one
    /// atomic change. Await the returned builder.
    ///
    /// ```
    /// use outlast::prelude::*;
    ///
    /// const ADD: Hook<u32> = Hook::new("add");
    ///
    /// #[workflow]
    /// async fn cart(ctx: Context, customer: String) -> Result<u32, Error> {
    ///     Ok(ctx.hook(ADD).await? + ctx.hook(ADD).await?)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(cart).start().await?;
    /// # let client = Client::new(world);
    /// // The first call starts the cart of the customer, the second one finds it.
    /// client.start(cart, "ada").key("cart-ada").and_send(ADD, &1).await?;
    /// let run = client.start(cart, "ada").key("cart-ada").and_send(ADD, &2).await?;
    /// assert_eq!(run.output().await?, 3);
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Client::start`] and [`Client::send`]; `Conflict` also if the run that the key names has ended, unless the key is
    /// held [only while the run lives](Self::key_while_running).
    pub fn and_send<T: Serialize + ?Sized>(
        self,
        hook: impl HookFor<T>,
        payload: &T,
    ) -> StartAndSendCall<'a, O> {
        let hook = hook.hook_name().into();
        StartAndSendCall {
            start: self,
            hook,
            payload: Payload::json(payload).map_err(Error::from),
            key: None,
        }
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
        let (client, existing) = (self.client, self.existing);
        let (mut start, _) = self.prepare()?;
        let run = start.run;
        // The transaction decides later whether the run starts; its context is that of this call.
        drop(trace::start_span(&mut start));
        let started = transaction.start(&*client.world, start).await?;
        existing.check(run, started)?;
        Ok(RunHandle::new(client, started.run, started.is_new))
    }

    async fn call(self) -> Result<RunHandle<O>, Error> {
        let (client, is_chosen, existing) = (self.client, self.id.is_some(), self.existing);
        let (mut start, plain) = self.prepare()?;
        let run = start.run;
        let span = trace::start_span(&mut start);
        let started = trace::in_span(span, client.start_prepared(start, &plain, is_chosen)).await?;
        existing.check(run, started)?;
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
        let is_refused = self.existing == ExistingRun::Refused;
        if (is_refused || self.policy == KeyPolicy::Replace) && self.key.is_none() {
            let method = if is_refused { "key_must_be_new" } else { "key_replaces" };
            return Err(Error::invalid(format!("`.{method}()` needs a key; add `.key(…)`")));
        }
        if is_refused && self.policy == KeyPolicy::Replace {
            let message = "a start either replaces the run with its key or is refused; remove `.key_must_be_new()` or \
                           `.key_replaces()`";
            return Err(Error::invalid(message));
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

impl ExistingRun {
    /// Refuses the answer to the start of `run` if it names another run.
    fn check(self, run: RunId, started: Started) -> Result<(), Error> {
        if self == Self::Returned || started.run == run {
            return Ok(());
        }
        let message = format!("the key already names run {}, and the start must be a new one", started.run);
        Err(Error::of_world(&WorldError::conflict(message)))
    }
}

/// A call that starts a run, or finds it by its key, and sends it a payload; created by [`StartCall::and_send`]. Await it.
#[must_use = "nothing starts until the call is awaited"]
#[derive(Debug)]
pub struct StartAndSendCall<'a, O> {
    start: StartCall<'a, O>,
    hook: Arc<str>,
    payload: Result<Payload, Error>,
    key: Option<String>,
}

impl<O> StartAndSendCall<'_, O> {
    /// Sets the key of the payload: of several payloads sent to the run with the same key, only the first is delivered.
    /// See [`SendCall::key`](crate::SendCall::key).
    pub fn send_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    async fn call(self) -> Result<RunHandle<O>, Error> {
        let Self { start, hook, payload, key } = self;
        let client = start.client;
        check_text("the hook's name", &hook, NAME_BYTES_MAX)?;
        check_name("hook", &hook).map_err(Error::invalid)?;
        let (start, _) = start.prepare()?;
        let id = match (&key, &start.key) {
            (None, _) => ids::message(),
            (Some(key), start_key) => {
                check_message_key(key)?;
                // The run is not known yet, but its key is.
                let of = start_key.as_ref().map_or_else(|| start.run.to_string(), |key| key.text.clone());
                MessageId::from_bits(Payload::from_json_text(format!("{of} {key}")).digest())
            }
        };
        let payload = client.codec.encode(payload?)?;
        let message = payload_message(id, start.run, hook, payload, HookAddress::default(), Headers::new())?;
        let (started, _) =
            client.repeat(|| client.world.start_and_send(start.clone(), message.clone())).await?;
        Ok(RunHandle::new(client, started.run, started.is_new))
    }
}

impl<'a, O: 'a> IntoFuture for StartAndSendCall<'a, O> {
    type Output = Result<RunHandle<O>, Error>;
    type IntoFuture = BoxedCall<'a, RunHandle<O>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}

impl StartTemplate {
    pub(super) fn new(workflow: Cow<'static, str>, version: u32) -> Self {
        let (queue, priority) = (default_queue(), 0);
        let (headers, tags) = (Headers::new(), Tags::new());
        let (begin, deadline, problem, reserved_name) = (None, None, None, None);
        let ending = None;
        Self {
            workflow,
            version,
            queue,
            priority,
            headers,
            tags,
            begin,
            deadline,
            ending,
            problem,
            reserved_name,
        }
    }

    /// The template for a workflow, with its queue and priority.
    pub(super) fn of<H: WorkflowHandle<M>, M>(workflow: &H) -> Self {
        let queue = workflow.queue().map_or_else(default_queue, Into::into);
        let (priority, ending) = (workflow.priority(), workflow.ending().into_option());
        Self { queue, priority, ending, ..Self::new(workflow.name().into(), workflow.version()) }
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
            ending: self.ending.clone(),
        };
        check_start(&start)?;
        Ok(start)
    }
}

impl Client {
    async fn start_prepared(&self, start: Start, plain: &Payload, is_chosen: bool) -> Result<Started, Error> {
        let (workflow, queue) = (start.workflow.clone(), start.queue.clone());
        let started =
            if is_chosen { self.start_chosen(start, plain).await? } else { self.start_run(start).await? };
        if started.is_new {
            self.local.metrics.run_started(&workflow, &queue);
        }
        Ok(started)
    }

    /// Passes the run to a worker of this process, or leaves it for any worker to claim.
    pub(super) async fn start_run(&self, start: Start) -> Result<Started, WorldError> {
        // A worker that takes the run writes it with its first turn, without the cancel of another run.
        if start.not_before.is_none()
            && !start.replaces()
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
