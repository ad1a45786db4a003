//! Creating and changing schedules.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::{CATCH_UP_MAX, NAME_BYTES_MAX};
use outlast_core::queue::{check_name, check_workflow_name};
use outlast_core::refusal::check_start;
use outlast_core::{
    Headers, IntoDuration, KeyPolicy, Payload, RunId, Sent, Start, StartKey, Tags, Timestamp, WorldError,
};

use super::schedule_handle::ScheduleHandle;
use super::start::StartTemplate;
use super::{ACTOR_HEADER, BoxedCall, Client, check_headers, check_text};
use crate::authoring::input::Input;
use crate::authoring::json::IntoJson;
use crate::authoring::step::StepHandle;
use crate::authoring::workflow::{WorkflowHandle, catch_check_panic};
use crate::error::Error;
use crate::ids;
use crate::schedule::{
    CatchUp, Firing, FiringInput, Overlap, RuleChanges, SCHEDULE_TAG, SCHEDULE_VERSION, SCHEDULE_WORKFLOW,
    ScheduleAnswer, ScheduleCommand, ScheduleState, ScheduleTarget, check_cron, check_interval,
    check_timezone, key_of,
};

/// How often a schedule is created again, if the one with its name ends meanwhile.
const CREATE_TRIES_MAX: usize = 10;

impl Client {
    /// Creates a schedule, which starts runs of a workflow repeatedly, or changes the one with this name.
    ///
    /// The returned builder says when it fires; [`start`](ScheduleBuilder::start) says what it starts. Creating the same
    /// schedule again changes nothing, so a program can do it whenever it starts. If the definition differs, the schedule
    /// gets the new one, and instants before that are not caught up.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn report(ctx: Context, team: String) -> Result<(), Error> { Ok(()) }
    /// # #[workflow] async fn poll(ctx: Context) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// use outlast::{CatchUp, Overlap};
    ///
    /// let nightly = client.schedule("nightly-report").cron("0 3 * * MON-FRI").timezone("Europe/Berlin");
    /// nightly.start(report, "sales").await?;
    ///
    /// let polling = client.schedule("poll").every("30s").jitter("5s");
    /// polling.overlap(Overlap::Skip).catch_up(CatchUp::None).start(poll, ()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A schedule is a run in the queue of the workflow that it starts. Every worker that serves this queue executes it,
    /// whether it has the code of the workflow or not. It keeps that queue when its definition changes.
    pub fn schedule(&self, name: impl Into<String>) -> ScheduleBuilder<'_> {
        ScheduleBuilder::new(self, name.into(), Save::Create)
    }

    pub(super) async fn command_schedule(
        &self,
        run: RunId,
        command: &ScheduleCommand,
    ) -> Result<Sent, WorldError> {
        let actor = self.actor.iter().map(|actor| (ACTOR_HEADER.to_owned(), actor.to_string()));
        let message = self.command_message(run, command, actor.collect());
        self.post(message.map_err(|error| WorldError::limit(error.to_string()))?).await
    }
}

/// How the definition of a schedule is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Save {
    /// Creates it, or replaces its definition.
    Create,
    /// Creates it, if there is none with its name.
    CreateNew,
    /// Changes one that exists.
    Update,
}

/// The definition of a schedule; created by [`Client::schedule`] and
/// [`ScheduleHandle::update`](crate::ScheduleHandle::update).
#[must_use = "nothing is scheduled until `.start(…)` is awaited"]
#[derive(Debug)]
pub struct ScheduleBuilder<'a> {
    client: &'a Client,
    name: String,
    save: Save,
    changes: RuleChanges,
    queue: Option<Arc<str>>,
    priority: Option<u8>,
    tags: Tags,
    headers: Headers,
    deadline_micros: Option<u64>,
    problem: Option<Error>,
}

impl<'a> ScheduleBuilder<'a> {
    fn new(client: &'a Client, name: String, save: Save) -> Self {
        Self {
            client,
            name,
            save,
            changes: RuleChanges::default(),
            queue: None,
            priority: None,
            tags: Tags::new(),
            headers: Headers::new(),
            deadline_micros: None,
            problem: None,
        }
    }

    pub(super) fn update(client: &'a Client, name: String) -> Self {
        Self::new(client, name, Save::Update)
    }

    /// Fires at the local times that match a cron expression of five fields: minute, hour, day of month, month and day of
    /// week. Fields are numbers, names (`MON`, `JAN`), `*`, ranges (`1-5`), steps (`*/15`) and lists (`1,15`). `L` is the
    /// last day, `FRI#2` the second Friday, `FRI#L` the last one. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly`
    /// are short forms. If both days are given, one of them must match.
    ///
    /// When clocks go forward, a local time that does not exist fires at the next valid instant. When clocks go back, a
    /// local time that exists twice fires once, the first time.
    pub fn cron(mut self, expression: impl Into<String>) -> Self {
        let expression = expression.into();
        self.check(check_cron(&expression));
        self.changes.cron = Some(expression);
        self
    }

    /// Sets the time zone of the cron expression, by its IANA name. The default is UTC.
    pub fn timezone(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.check(check_timezone(&name));
        self.changes.timezone = Some(name);
        self
    }

    /// Fires at equal intervals of at least a second. They are counted from the creation of the schedule, or from
    /// [`start_at`](Self::start_at), not from the end of the previous firing.
    pub fn every(mut self, interval: impl IntoDuration) -> Self {
        if let Some(micros) = self.micros(interval) {
            self.check(check_interval(Duration::from_micros(micros)));
            self.changes.every_micros = Some(micros);
        }
        self
    }

    /// Delays each firing by a time up to this one, which differs between schedules and instants, so that many schedules
    /// do not fire at once. The delay of an instant is always the same, and ends before the next instant.
    pub fn jitter(mut self, jitter: impl IntoDuration) -> Self {
        self.changes.jitter_micros = self.micros(jitter);
        self
    }

    /// Sets what happens when an instant comes while an earlier firing is still running. The default is
    /// [`Overlap::Skip`].
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.changes.overlap = Some(overlap);
        self
    }

    /// Sets what happens to instants that nobody served in time. The default is [`CatchUp::Last`].
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        if let CatchUp::All(limit) = catch_up
            && !(1..=CATCH_UP_MAX).contains(&limit)
        {
            self.check(Err(format!("a schedule catches up from 1 to {CATCH_UP_MAX} instants, not {limit}")));
        }
        self.changes.catch_up = Some(catch_up);
        self
    }

    /// Sets the time from which on it fires. An instant at this very time fires. Intervals are counted from it.
    pub fn start_at(mut self, time: Timestamp) -> Self {
        self.changes.start_at = Some(time);
        self
    }

    /// Sets the time from which on it does not fire any more. After its last firing the schedule ends, and its name is
    /// free.
    pub fn end_at(mut self, time: Timestamp) -> Self {
        self.changes.end_at = Some(time);
        self
    }

    /// Pauses the schedule when this many firings in a row have failed or could not be started.
    pub fn pause_after(mut self, failures: u32) -> Self {
        if failures == 0 {
            self.check(Err("a schedule is paused after at least one failure; use 1 or more".into()));
        }
        self.changes.pause_after = Some(failures);
        self
    }

    /// Adds a tag of the firings. All firings have the tag `outlast:schedule` with the name of the schedule.
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(name.into(), value.into());
        self
    }

    /// Adds a header of the firings.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets a deadline of each firing, counted from its start.
    pub fn deadline(mut self, time: impl IntoDuration) -> Self {
        self.deadline_micros = self.micros(time);
        self
    }

    /// Sets the queue of the schedule and its firings, instead of the workflow's own.
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the priority of the firings, from 0 to 9.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Computes the input of each firing by a step, which gets the [`Firing`]. It is executed as a queued step in the
    /// queue of the workflow. A firing whose step fails is not started, and counts as refused.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::Firing;
    ///
    /// #[step]
    /// async fn open_orders(firing: Firing) -> Result<Vec<u64>, StepError> {
    ///     Ok(vec![7, 8]) // read from a database
    /// }
    ///
    /// #[workflow]
    /// async fn remind(ctx: Context, orders: Vec<u64>) -> Result<(), Error> {
    ///     Ok(())
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    ///
    /// client.schedule("reminders").cron("@daily").input_from(open_orders).start(remind).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn input_from<H, M>(self, step: H) -> ComputedSchedule<'a, H::Output>
    where
        H: StepHandle<M, Input = Firing>,
    {
        ComputedSchedule { builder: self, step: step.name(), input: PhantomData }
    }

    /// Sets the workflow and the input of the firings. Await the returned call to create the schedule.
    ///
    /// # Errors
    ///
    /// `Invalid` if the definition is not valid, or the workflow's `check` rejects the input; `Limit` if it exceeds a
    /// limit; `NotFound` if it changes a schedule that does not exist; `Unavailable` if the world does not respond.
    pub fn start<H, M>(mut self, workflow: H, input: impl Input<H::Input>) -> ScheduleCall<'a>
    where
        H: WorkflowHandle<M>,
    {
        let json = input.with(|input| {
            catch_check_panic(|| workflow.check(input))?;
            Ok::<_, Error>(Payload::json(input)?)
        });
        let input = self.json_input(json);
        self.starting(StartTemplate::of(&workflow), input)
    }

    fn json_input(&mut self, json: Result<Payload, Error>) -> FiringInput {
        match json {
            Ok(json) => FiringInput::Json(String::from_utf8_lossy(json.bytes()).into_owned()),
            Err(error) => {
                self.problem.get_or_insert(error);
                FiringInput::Json("null".into())
            }
        }
    }

    /// Sets the workflow by its name, and the input of the firings as JSON: a text or a [`serde_json::Value`]. If a
    /// worker in the same process has the code, the input is checked.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// client.schedule("nightly").cron("@daily").start_json("report", 1, r#""sales""#).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_json(
        mut self,
        workflow: impl Into<String>,
        version: u32,
        input: impl IntoJson,
    ) -> ScheduleCall<'a> {
        let template = StartTemplate::new(Cow::Owned(workflow.into()), version);
        let json = input.into_json().and_then(|json| {
            let start = template.clone().start(self.client, json.clone(), None)?;
            match self.client.local.check(&start) {
                Some(Err(reason)) => Err(Error::invalid(reason)),
                _ => Ok(json),
            }
        });
        let input = self.json_input(json);
        self.starting(template, input)
    }

    /// Changes an existing schedule without changing what it starts.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); `Invalid` if the schedule is new, or if tags, headers, a deadline, a queue or a priority
    /// are set, which belong to what it starts.
    pub fn save(mut self) -> ScheduleCall<'a> {
        if self.save == Save::Create {
            self.check(Err("a new schedule needs a workflow; call `.start(workflow, &input)`".into()));
        }
        let has_options = self.queue.is_some() || self.priority.is_some() || self.deadline_micros.is_some();
        if has_options || !self.tags.is_empty() || !self.headers.is_empty() {
            self.check(Err(
                "tags, headers, deadline, queue and priority belong to the workflow that a schedule starts; \
                            call `.start(workflow, &input)`"
                    .into(),
            ));
        }
        ScheduleCall { builder: self, target: None }
    }

    fn starting(mut self, template: StartTemplate, input: FiringInput) -> ScheduleCall<'a> {
        let target = ScheduleTarget {
            workflow: template.workflow.into_owned(),
            version: template.version,
            queue: self.queue.take().unwrap_or(template.queue).to_string(),
            priority: self.priority.take().unwrap_or(template.priority),
            input,
            tags: std::mem::take(&mut self.tags),
            headers: std::mem::take(&mut self.headers),
            deadline_micros: self.deadline_micros.take(),
            ending: template.ending,
        };
        ScheduleCall { builder: self, target: Some(target) }
    }

    fn check(&mut self, result: Result<(), String>) {
        if let Err(problem) = result {
            self.problem.get_or_insert(Error::invalid(problem));
        }
    }

    fn micros(&mut self, duration: impl IntoDuration) -> Option<u64> {
        match duration.into_duration() {
            Ok(duration) => Some(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)),
            Err(error) => {
                self.problem.get_or_insert(error.into());
                None
            }
        }
    }
}

/// The definition of a schedule whose inputs are computed by a step; created by [`ScheduleBuilder::input_from`].
#[must_use = "nothing is scheduled until `.start(…)` is awaited"]
#[derive(Debug)]
pub struct ComputedSchedule<'a, I> {
    builder: ScheduleBuilder<'a>,
    step: &'static str,
    input: PhantomData<fn() -> I>,
}

impl<'a, I> ComputedSchedule<'a, I> {
    /// Sets the workflow of the firings; see [`ScheduleBuilder::start`].
    pub fn start<H, M>(self, workflow: H) -> ScheduleCall<'a>
    where
        H: WorkflowHandle<M, Input = I>,
    {
        self.builder.starting(StartTemplate::of(&workflow), FiringInput::Step(self.step.into()))
    }
}

/// A call that creates or changes a schedule; created by [`ScheduleBuilder::start`]. Await it.
#[must_use = "nothing is scheduled until the call is awaited"]
#[derive(Debug)]
pub struct ScheduleCall<'a> {
    builder: ScheduleBuilder<'a>,
    target: Option<ScheduleTarget>,
}

impl ScheduleCall<'_> {
    /// Fails with `Conflict` if there is a schedule with this name, instead of changing it.
    pub fn create_only(mut self) -> Self {
        if self.builder.save == Save::Create {
            self.builder.save = Save::CreateNew;
        }
        self
    }

    /// Replaces the definition of an existing schedule, and waits at most this long until a worker has done it. With a
    /// [revision](crate::ScheduleView::revision), only if the schedule has it.
    ///
    /// # Errors
    ///
    /// As [`ScheduleBuilder::start`]; `NotFound` if there is no such schedule; `Timeout` if no worker answered.
    pub async fn replace(mut self, revision: Option<u64>, time: Duration) -> Result<ScheduleAnswer, Error> {
        self.check()?;
        let ScheduleBuilder { client, name, changes, .. } = self.builder;
        let Some((rule, target)) = changes.new_rule().zip(self.target) else {
            return Err(no_timing());
        };
        check_start(&client.start_of_firing(&target))?;
        let define = ScheduleCommand::Define { rule: Box::new(rule), target: Box::new(target) };
        let confirmed = ScheduleHandle::new(client.clone(), name).confirmed(time);
        let confirmed = match revision {
            Some(revision) => confirmed.if_revision(revision),
            None => confirmed,
        };
        confirmed.ask(&define).await
    }

    /// Checks what does not depend on the world.
    fn check(&mut self) -> Result<(), Error> {
        let ScheduleBuilder { name, changes, problem, .. } = &mut self.builder;
        if let Some(problem) = problem.take() {
            return Err(problem);
        }
        check_text("the schedule's name", name, NAME_BYTES_MAX)?;
        check_name("schedule", name).map_err(Error::invalid)?;
        check_changes(changes)?;
        if let Some(ScheduleTarget { tags, headers, workflow, .. }) = &self.target {
            tags.keys().try_for_each(|name| check_name("tag", name)).map_err(Error::invalid)?;
            headers.keys().try_for_each(|name| check_name("header", name)).map_err(Error::invalid)?;
            check_workflow_name(workflow).map_err(Error::invalid)?;
            check_headers(headers)?;
        }
        Ok(())
    }

    async fn call(mut self) -> Result<ScheduleHandle, Error> {
        self.check()?;
        let ScheduleBuilder { client, name, save, changes, .. } = self.builder;
        let handle = ScheduleHandle::new(client.clone(), name);
        match (save, self.target) {
            (Save::Create, Some(target)) => client.create_schedule(&handle, &changes, target).await?,
            (Save::CreateNew, Some(target)) => {
                client.create_new_schedule(&handle, &changes, target).await?;
            }
            (_, target) => {
                if let Some(target) = &target {
                    check_start(&client.start_of_firing(target))?;
                }
                let (rule, target) = (Box::new(changes), target.map(Box::new));
                handle.command(&ScheduleCommand::Change { rule, target }).await?;
            }
        }
        Ok(handle)
    }
}

impl Client {
    /// Starts the run of a schedule, or sends it the definition if it exists.
    async fn create_schedule(
        &self,
        handle: &ScheduleHandle,
        changes: &RuleChanges,
        target: ScheduleTarget,
    ) -> Result<(), Error> {
        let rule = changes.new_rule().ok_or_else(no_timing)?;
        check_start(&self.start_of_firing(&target))?;
        for _ in 0..CREATE_TRIES_MAX {
            let state = ScheduleState::new(rule.clone(), target.clone(), self.world.clock().now());
            let started = self.start_run(self.start_of_schedule(handle.name(), &state)?).await?;
            if started.is_new {
                return Ok(());
            }
            let define =
                ScheduleCommand::Define { rule: Box::new(rule.clone()), target: Box::new(target.clone()) };
            match self.command_schedule(started.run, &define).await {
                Ok(Sent { cancel_was_requested: false, .. }) => return Ok(()),
                // It is being deleted: its name is free when it has ended.
                Ok(_) => handle.wait_for_end(started.run).await?,
                Err(WorldError::Conflict(_) | WorldError::NotFound(_)) => {}
                Err(error) => return Err(Error::of_world(&error)),
            }
        }
        let message = format!("schedule `{}` is deleted again and again meanwhile; try again", handle.name());
        Err(Error::of_world(&WorldError::conflict(message)))
    }

    /// Starts the run of a schedule, unless there is one.
    async fn create_new_schedule(
        &self,
        handle: &ScheduleHandle,
        changes: &RuleChanges,
        target: ScheduleTarget,
    ) -> Result<(), Error> {
        let rule = changes.new_rule().ok_or_else(no_timing)?;
        check_start(&self.start_of_firing(&target))?;
        let state = ScheduleState::new(rule, target, self.world.clock().now());
        if self.start_run(self.start_of_schedule(handle.name(), &state)?).await?.is_new {
            return Ok(());
        }
        let message = format!("schedule `{}` exists; change it, or choose another name", handle.name());
        Err(Error::of_world(&WorldError::conflict(message)))
    }

    fn start_of_schedule(&self, name: &str, state: &ScheduleState) -> Result<Start, Error> {
        // All definitions have the same digest: a start with this key returns the schedule whatever its definition.
        let key = StartKey { text: key_of(name), digest: 0, window: None, policy: KeyPolicy::WhileRunning };
        let start = Start {
            key: Some(key),
            input: self.codec.encode(Payload::json(state)?)?,
            ..new_start(SCHEDULE_WORKFLOW, SCHEDULE_VERSION, &state.target.queue, 0)
        };
        check_start(&start)?;
        Ok(start)
    }

    /// A start like those of the firings, to check them against the limits.
    fn start_of_firing(&self, target: &ScheduleTarget) -> Start {
        let ScheduleTarget { workflow, version, queue, priority, tags, headers, .. } = target;
        let start = new_start(workflow, *version, queue, *priority);
        let mut tags = tags.clone();
        tags.insert(SCHEDULE_TAG.into(), String::new());
        Start { tags, headers: headers.clone(), ..start }
    }
}

fn no_timing() -> Error {
    Error::invalid("a schedule needs `.cron(…)` or `.every(…)`")
}

/// A start of a run of the engine, without input.
pub(super) fn new_start(workflow: &str, version: u32, queue: &str, priority: u8) -> Start {
    Start {
        run: ids::run(),
        turn: ids::turn(),
        workflow: workflow.into(),
        version,
        rules: outlast_core::event::RULES,
        queue: queue.into(),
        priority,
        key: None,
        input: Payload::null(),
        headers: Headers::new(),
        tags: Tags::new(),
        parent: None,
        not_before: None,
        deadline: None,
        policy: None,
        requester: None,
        ending: None,
    }
}

/// Checks what contradicts itself.
fn check_changes(changes: &RuleChanges) -> Result<(), Error> {
    if changes.cron.is_some() && changes.every_micros.is_some() {
        return Err(Error::invalid("a schedule has either `.cron(…)` or `.every(…)`, not both"));
    }
    if changes.timezone.is_some() && changes.every_micros.is_some() {
        return Err(Error::invalid("intervals have no time zone; remove `.timezone(…)`, or use `.cron(…)`"));
    }
    match (changes.start_at, changes.end_at) {
        (Some(start), Some(end)) if end <= start => Err(Error::invalid(format!(
            "the schedule ends at {end}, which is not after its start at {start}; set a later end"
        ))),
        _ => Ok(()),
    }
}

impl<'a> IntoFuture for ScheduleCall<'a> {
    type Output = Result<ScheduleHandle, Error>;
    type IntoFuture = BoxedCall<'a, ScheduleHandle>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
