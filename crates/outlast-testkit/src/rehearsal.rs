//! A rehearsal: one workflow function, driven by a test that plays everybody else.

mod forks;
mod open;
mod report;
mod tokens;
pub(crate) mod webhooks;

use std::borrow::Borrow;
use std::marker::PhantomData;

use outlast::test_support::rehearse::LoneRun;
use outlast::{Error, HookFor, StepError, StepHandle, WorkflowDefinition, WorkflowFn, WorkflowHandle};
use outlast_core::{Event, Headers, IntoDuration, Judgement, Payload, Status, Stuck, Timestamp, TurnRecord};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::open::OpenWork;
use crate::TestClock;

/// One workflow function on its own: no world, no worker, no runtime, no waiting.
///
/// The test decides how steps end, what hooks receive and how much time passes, and asserts the operations that the
/// workflow requested. No code of a step runs, and steps need no registration. After each of these decisions the whole
/// history is replayed and compared, so code that is not deterministic is detected: operations of another kind or name
/// or in another order. The inputs of operations are not compared.
///
/// Time begins at [`TestClock::BEGIN`], and `ctx.random()` gives the same numbers in every rehearsal.
///
/// Steps are named by their functions. A step in place, `ctx.call("fetch-user", …)`, is named by a
/// [`Step`](outlast::Step) constant with that name.
///
/// ```
/// use outlast::prelude::*;
/// use outlast_testkit::Rehearsal;
///
/// #[step]
/// async fn charge(cents: u64) -> Result<String, StepError> {
///     Err(StepError::msg(format!("there is no bank to pay {cents} to"))) // does not run here
/// }
///
/// #[workflow]
/// async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
///     let payment = ctx.step(charge, cents).await?;
///     let approved = ctx.hook::<bool>("review").timeout("3d").await?;
///     ctx.sleep("1h").await?;
///     Ok(format!("{payment}, approved: {approved}"))
/// }
///
/// let mut run = Rehearsal::of(checkout, 4200);
/// run.asks_for(charge, 4200);
/// run.completes(charge, "payment 7".to_owned());
/// run.waits_for_hook("review");
/// run.receives("review", &true);
/// run.advances("1h");
/// assert_eq!(run.output().unwrap(), "payment 7, approved: true");
///
/// // The same workflow without an answer:
/// let mut run = Rehearsal::of(checkout, 4200);
/// run.completes(charge, "payment 7".to_owned());
/// run.advances("3d");
/// assert!(run.output().unwrap_err().is_timeout());
/// ```
///
/// Every method panics, with a report of the requested and open operations, when the run is not in the expected state,
/// and when the workflow diverges, panics or awaits something other than an operation.
#[derive(Debug)]
pub struct Rehearsal<O> {
    run: LoneRun,
    workflow: &'static str,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned> Rehearsal<O> {
    /// Starts `workflow` with `input`, and executes it until it waits for the first time.
    #[track_caller]
    pub fn of<F, Args>(workflow: F, input: impl Borrow<<F::Definition as WorkflowDefinition>::Input>) -> Self
    where
        F: WorkflowFn<Args>,
        F::Definition: WorkflowDefinition<Output = O>,
    {
        let name = <F::Definition as WorkflowDefinition>::NAME;
        if let Err(error) = <F::Definition as WorkflowDefinition>::check(input.borrow()) {
            panic!("the check of workflow `{name}` refuses the input: {error}");
        }
        match LoneRun::begin(workflow, payload(input.borrow()), TestClock::BEGIN) {
            Ok(run) => Self { run, workflow: name, output: PhantomData },
            Err(stuck) => panic!("workflow `{name}` cannot continue: {}", stuck.message),
        }
    }

    /// Asserts that a step with this input was requested and has not ended.
    #[track_caller]
    pub fn asks_for<H, M>(&self, step: H, input: impl Borrow<H::Input>)
    where
        H: StepHandle<M>,
    {
        self.step_with(step.name(), input.borrow());
    }

    /// Ends a step with an output: the first open step of this name.
    #[track_caller]
    pub fn completes<H, M>(&mut self, step: H, output: impl Borrow<H::Output>)
    where
        H: StepHandle<M>,
        H::Output: Serialize,
    {
        let open = self.first_step(step.name());
        self.end(&open, Ok(payload(output.borrow())));
    }

    /// Ends the step with this input, if several of one name are open.
    #[track_caller]
    pub fn completes_for<H, M>(
        &mut self,
        step: H,
        input: impl Borrow<H::Input>,
        output: impl Borrow<H::Output>,
    ) where
        H: StepHandle<M>,
        H::Output: Serialize,
    {
        let open = self.step_with(step.name(), input.borrow());
        self.end(&open, Ok(payload(output.borrow())));
    }

    /// Ends a step with a final error: it was fatal, or the step's attempts are used up. It is the first open step of
    /// this name.
    #[track_caller]
    pub fn fails<H, M>(&mut self, step: H, error: impl Into<StepError>)
    where
        H: StepHandle<M>,
    {
        let open = self.first_step(step.name());
        self.end(&open, Err(error.into()));
    }

    /// As [`fails`](Self::fails), for the step with this input.
    #[track_caller]
    pub fn fails_for<H, M>(&mut self, step: H, input: impl Borrow<H::Input>, error: impl Into<StepError>)
    where
        H: StepHandle<M>,
    {
        let open = self.step_with(step.name(), input.borrow());
        self.end(&open, Err(error.into()));
    }

    /// Asserts that a child with this input was started and has not ended.
    #[track_caller]
    pub fn asks_for_child<H, M>(&self, workflow: H, input: impl Borrow<H::Input>)
    where
        H: WorkflowHandle<M>,
    {
        self.child_with(workflow.name(), input.borrow());
    }

    /// Ends a child with an output: the first open child of this workflow.
    #[track_caller]
    pub fn child_completes<H, M>(&mut self, workflow: H, output: impl Borrow<H::Output>)
    where
        H: WorkflowHandle<M>,
        H::Output: Serialize,
    {
        let open = self.first_child(workflow.name());
        self.end_child(&open, Ok(payload(output.borrow())));
    }

    /// Ends the child with this input, if several of one workflow are open.
    #[track_caller]
    pub fn child_completes_for<H, M>(
        &mut self,
        workflow: H,
        input: impl Borrow<H::Input>,
        output: impl Borrow<H::Output>,
    ) where
        H: WorkflowHandle<M>,
        H::Output: Serialize,
    {
        let open = self.child_with(workflow.name(), input.borrow());
        self.end_child(&open, Ok(payload(output.borrow())));
    }

    /// Ends a child with an error; one that [is cancelled](Error::is_cancelled) ends it as cancelled.
    #[track_caller]
    pub fn child_fails<H, M>(&mut self, workflow: H, error: impl Into<Error>)
    where
        H: WorkflowHandle<M>,
    {
        let open = self.first_child(workflow.name());
        self.end_child(&open, Err(error.into()));
    }

    /// As [`child_fails`](Self::child_fails), for the child with this input.
    #[track_caller]
    pub fn child_fails_for<H, M>(
        &mut self,
        workflow: H,
        input: impl Borrow<H::Input>,
        error: impl Into<Error>,
    ) where
        H: WorkflowHandle<M>,
    {
        let open = self.child_with(workflow.name(), input.borrow());
        self.end_child(&open, Err(error.into()));
    }

    /// Ends the open sleeps early, as [`wake`](outlast::Client::wake) does.
    #[track_caller]
    pub fn wakes(&mut self) {
        self.require_running("it does not sleep");
        let result = self.run.wake();
        self.check(result);
    }

    /// Asserts that the run waits for a payload for this hook.
    #[track_caller]
    pub fn waits_for_hook(&self, hook: impl AsRef<str>) {
        let hook = hook.as_ref();
        if !open::hooks(&self.run).iter().any(|open| open == hook) {
            self.fail(&format!("it does not wait for hook `{hook}`"));
        }
    }

    /// Sends a payload to a hook. As in a world, a payload without an open hook is kept, and one that no open hook can
    /// decode is [rejected](Self::rejected): the run continues to wait.
    #[track_caller]
    pub fn receives<T: Serialize + ?Sized>(&mut self, hook: impl HookFor<T>, value: &T) {
        self.receives_with(hook, value, Headers::new());
    }

    /// Sends a payload to a hook with headers, which the workflow can read with
    /// [`received`](outlast::HookOperation::received).
    #[track_caller]
    pub fn receives_with<T>(&mut self, hook: impl HookFor<T>, value: &T, headers: Headers)
    where
        T: Serialize + ?Sized,
    {
        let hook = hook.hook_name();
        self.require_running(&format!("hook `{hook}` cannot receive anything"));
        let result = self.run.receive(hook, payload(value), headers);
        self.check(result);
    }

    /// The reasons why payloads for this hook were rejected, in order.
    pub fn rejected(&self, hook: impl AsRef<str>) -> Vec<String> {
        let hook = hook.as_ref();
        let events = self.history().iter().flat_map(|turn| &turn.events);
        let reasons = events.filter_map(|event| match event {
            Event::HookReceived { name, judgement: Judgement::Rejected(reason), .. }
            | Event::HookRejected { name, reason, .. }
                if **name == *hook =>
            {
                Some(reason.clone())
            }
            _ => None,
        });
        reasons.collect()
    }

    /// The chunks that the workflow has written to a stream, in order.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast_testkit::Rehearsal;
    /// #[workflow]
    /// async fn import(ctx: Context) -> Result<(), Error> {
    ///     ctx.stream("log").write("starting");
    ///     ctx.publish(&0.5);
    ///     ctx.sleep("1h").await
    /// }
    ///
    /// let run = Rehearsal::of(import, ());
    /// assert_eq!(run.written::<String>("log"), ["starting"]);
    /// assert_eq!(run.published::<f64>(), Some(0.5));
    /// ```
    ///
    /// # Panics
    ///
    /// When a chunk cannot be decoded as a `T`.
    #[track_caller]
    pub fn written<T: DeserializeOwned>(&self, stream: &str) -> Vec<T> {
        let writes = &self.run.writes().streams;
        let chunks =
            writes.iter().filter(|append| *append.stream == *stream).flat_map(|append| &append.chunks);
        let decoded = chunks.map(|chunk| match chunk.payload.decode() {
            Ok(value) => value,
            Err(error) => self.fail(&format!("a chunk of stream `{stream}`: {error}")),
        });
        decoded.collect()
    }

    /// The state that the workflow has published last; `None` if it has published none.
    ///
    /// # Panics
    ///
    /// When the state cannot be decoded as a `T`.
    #[track_caller]
    pub fn published<T: DeserializeOwned>(&self) -> Option<T> {
        let payload = self.run.writes().state.as_ref()?.payload.as_ref()?;
        match payload.decode() {
            Ok(value) => Some(value),
            Err(error) => self.fail(&format!("the published state: {error}")),
        }
    }

    /// Asserts that an open timer is due after this time.
    #[track_caller]
    pub fn sleeps_for(&self, time: impl IntoDuration) {
        let until = self.time_after(time);
        if !open::timers(&self.run).contains(&until) {
            let time = report::time_until(until, self.run.now());
            self.fail(&format!("it does not sleep for {time}"));
        }
    }

    /// Lets time pass: timers and timeouts that are due meanwhile fire, in their order.
    #[track_caller]
    pub fn advances(&mut self, time: impl IntoDuration) {
        self.require_running("time does not matter to it");
        let result = self.run.advance_to(self.time_after(time));
        self.check(result);
    }

    /// Asks the run to stop. Open hooks, timers and children end as cancelled, and what the workflow requests
    /// from now on fails as cancelled; open steps continue until the test ends them. What is
    /// [shielded](outlast::Context::shielded) is not touched.
    #[track_caller]
    pub fn cancels(&mut self, reason: &str) {
        self.require_running("it cannot be cancelled");
        let result = self.run.cancel(reason);
        self.check(result);
    }

    /// The output of the workflow.
    ///
    /// # Errors
    ///
    /// The workflow's own error. [`status`](Self::status) tells whether it failed or was cancelled.
    ///
    /// # Panics
    ///
    /// When it has not ended; the report contains its open operations.
    #[track_caller]
    pub fn output(&self) -> Result<O, Error> {
        match self.run.output() {
            Some(output) => output,
            None => self.fail("it has not ended"),
        }
    }

    /// How the run ended: `Completed`, `Failed` or `Cancelled`; `None` if it has not ended.
    pub fn status(&self) -> Option<Status> {
        self.run.ended()
    }

    /// The open operations, in the order of their requests, as one text each.
    pub fn open(&self) -> Vec<String> {
        report::open(&self.run)
    }

    /// The current time of the workflow.
    pub fn now(&self) -> Timestamp {
        self.run.now()
    }

    /// The generation of the run: 1, and one more each time it has continued as a new one.
    pub fn generation(&self) -> u64 {
        self.run.generation()
    }

    /// The history so far, as a worker would have recorded it.
    pub fn history(&self) -> &[TurnRecord] {
        self.run.history()
    }

    #[track_caller]
    fn end(&mut self, step: &OpenWork, outcome: Result<Payload, StepError>) {
        let result = self.run.end_step(step.op, &step.name, outcome);
        self.check(result);
    }

    #[track_caller]
    fn end_child(&mut self, child: &OpenWork, outcome: Result<Payload, Error>) {
        let result = self.run.end_child(child.op, outcome);
        self.check(result);
    }

    #[track_caller]
    fn first_child(&self, workflow: &str) -> OpenWork {
        self.first("child", open::children(&self.run), workflow)
    }

    #[track_caller]
    fn child_with<T: Serialize>(&self, workflow: &str, input: &T) -> OpenWork {
        self.with_input("child", open::children(&self.run), workflow, &payload(input))
    }

    #[track_caller]
    fn first_step(&self, name: &str) -> OpenWork {
        self.first("step", open::steps(self.run.history()), name)
    }

    #[track_caller]
    fn step_with<T: Serialize>(&self, name: &str, input: &T) -> OpenWork {
        self.with_input("step", open::steps(self.run.history()), name, &payload(input))
    }

    // Without closures: a panic in a closure would not show the test's line.
    #[track_caller]
    fn first(&self, kind: &str, open: Vec<OpenWork>, name: &str) -> OpenWork {
        match open.into_iter().find(|open| *open.name == *name) {
            Some(found) => found,
            None => self.fail(&format!("{kind} `{name}` is not open")),
        }
    }

    #[track_caller]
    fn with_input(&self, kind: &str, open: Vec<OpenWork>, name: &str, input: &Payload) -> OpenWork {
        match open.into_iter().find(|open| *open.name == *name && is_same(&open.input, input)) {
            Some(found) => found,
            None => self.fail(&format!("{kind} `{name}` with {input:?} is not open")),
        }
    }

    #[track_caller]
    fn time_after(&self, time: impl IntoDuration) -> Timestamp {
        match time.into_duration() {
            Ok(time) => self.run.now().plus(time),
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn require_running(&self, otherwise: &str) {
        if self.run.ended().is_some() {
            self.fail(otherwise);
        }
    }

    #[track_caller]
    fn check(&self, result: Result<(), Stuck>) {
        if let Err(stuck) = result {
            self.fail(&format!("it cannot continue: {}", stuck.message));
        }
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("workflow `{}`: {what}\n{}", self.workflow, report::report(&self.run))
    }
}

/// Whether two payloads have the same value, in any JSON form.
fn is_same(one: &Payload, other: &Payload) -> bool {
    let value = |payload: &Payload| payload.decode::<Value>().ok();
    value(one).is_some_and(|one| value(other).is_some_and(|other| one == other))
}

#[track_caller]
fn payload<T: Serialize + ?Sized>(value: &T) -> Payload {
    match Payload::json(value) {
        Ok(payload) => payload,
        Err(error) => panic!("{error}"),
    }
}
