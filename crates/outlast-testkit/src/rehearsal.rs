//! A rehearsal: one workflow function, driven by a test that plays everybody else.

mod open;
mod report;

use std::borrow::Borrow;
use std::marker::PhantomData;

use outlast::rehearse::LoneRun;
use outlast::{Error, StepError, StepHandle, WorkflowDefinition, WorkflowFn, WorkflowHandle};
use outlast_core::{Event, Headers, IntoDuration, Judgement, Payload, Status, Stuck, Timestamp, TurnRecord};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::open::OpenWork;
use crate::TestClock;

/// One workflow function on its own: no world, no worker, no runtime, no waiting.
///
/// The test plays everybody else. It says how steps end, what hooks receive and how much time passes,
/// and asserts what the workflow asked for. No code of a step runs, and steps need no registration.
/// After everything that the workflow is told, its whole history is replayed and compared: code that asks
/// for operations of another kind or name or in another order the second time is found out. The inputs of
/// operations are not compared.
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
/// // The same workflow, and nobody answers:
/// let mut run = Rehearsal::of(checkout, 4200);
/// run.completes(charge, "payment 7".to_owned());
/// run.advances("3d");
/// assert!(run.output().unwrap_err().is_timeout());
/// ```
///
/// Every method panics, with a report of what the workflow asked for so far and what is open, when the
/// run is not where the test thinks it is, and when the workflow diverges, panics or awaits something
/// foreign.
#[derive(Debug)]
pub struct Rehearsal<O> {
    run: LoneRun,
    workflow: &'static str,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned> Rehearsal<O> {
    /// The run that `workflow` begins with `input`, in its state when it first waits.
    ///
    /// # Panics
    ///
    /// When the workflow's `check` refuses the input, as it would refuse a start:
    ///
    /// ```should_panic
    /// # use outlast::prelude::*;
    /// # use outlast_testkit::Rehearsal;
    /// fn is_positive(cents: &u64) -> Result<(), Error> {
    ///     if *cents > 0 { Ok(()) } else { Err(Error::msg("the amount must be positive")) }
    /// }
    ///
    /// #[workflow(check = is_positive)]
    /// async fn pay(ctx: Context, cents: u64) -> Result<(), Error> {
    ///     ctx.sleep("1h").await
    /// }
    ///
    /// Rehearsal::of(pay, 0); // panics: the check of workflow `pay` refuses the input: the amount must be positive
    /// ```
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

    /// Asserts that a step with this input was asked for and has not ended.
    #[track_caller]
    pub fn asks_for<H, M>(&self, step: H, input: impl Borrow<H::Input>)
    where
        H: StepHandle<M>,
    {
        self.step_with(step.name(), input.borrow());
    }

    /// Ends a step with an output: the one of this name that was asked for first and is still open.
    #[track_caller]
    pub fn completes<H, M>(&mut self, step: H, output: impl Borrow<H::Output>)
    where
        H: StepHandle<M>,
        H::Output: Serialize,
    {
        let open = self.first_step(step.name());
        self.end(&open, Ok(payload(output.borrow())));
    }

    /// Ends the step that was asked for with this input, where several of one name are open.
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

    /// Ends a step with an error, for good: it was fatal, or the step's attempts are used up. It is the
    /// step of this name that was asked for first and is still open.
    #[track_caller]
    pub fn fails<H, M>(&mut self, step: H, error: impl Into<StepError>)
    where
        H: StepHandle<M>,
    {
        let open = self.first_step(step.name());
        self.end(&open, Err(error.into()));
    }

    /// As [`fails`](Self::fails), for the step that was asked for with this input.
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

    /// Ends a child with an output: the one of this workflow that was started first and is still open.
    #[track_caller]
    pub fn child_completes<H, M>(&mut self, workflow: H, output: impl Borrow<H::Output>)
    where
        H: WorkflowHandle<M>,
        H::Output: Serialize,
    {
        let open = self.first_child(workflow.name());
        self.end_child(&open, Ok(payload(output.borrow())));
    }

    /// Ends the child that was started with this input, where several of one workflow are open.
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

    /// As [`child_fails`](Self::child_fails), for the child that was started with this input.
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

    /// Ends the sleeps that are open early, as [`wake`](outlast::Client::wake) does.
    #[track_caller]
    pub fn wakes(&mut self) {
        self.must_go_on("it does not sleep");
        let told = self.run.wake();
        self.check(told);
    }

    /// Asserts that the run waits for a payload for this hook.
    #[track_caller]
    pub fn waits_for_hook(&self, hook: &str) {
        if !open::hooks(&self.run).iter().any(|open| open == hook) {
            self.fail(&format!("it does not wait for hook `{hook}`"));
        }
    }

    /// Sends a payload to a hook. As in a world, one that nobody waits for yet is kept, and one that no open
    /// hook can read is [rejected](Self::rejected): the run goes on waiting.
    #[track_caller]
    pub fn receives<T: Serialize + ?Sized>(&mut self, hook: &str, value: &T) {
        self.receives_with(hook, value, Headers::new());
    }

    /// Sends a payload to a hook with headers, which the workflow can read with
    /// [`received`](outlast::HookOperation::received).
    #[track_caller]
    pub fn receives_with<T: Serialize + ?Sized>(&mut self, hook: &str, value: &T, headers: Headers) {
        self.must_go_on(&format!("hook `{hook}` cannot receive anything"));
        let told = self.run.receive(hook, payload(value), headers);
        self.check(told);
    }

    /// Why payloads for this hook were rejected, in the order in which that happened.
    pub fn rejected(&self, hook: &str) -> Vec<String> {
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

    /// Asserts that a timer is open that is due after this time, from now.
    #[track_caller]
    pub fn sleeps_for(&self, time: impl IntoDuration) {
        let until = self.moment_after(time);
        if !open::timers(&self.run).contains(&until) {
            let time = report::time_until(until, self.run.now());
            self.fail(&format!("it does not sleep for {time}"));
        }
    }

    /// Lets time pass: timers and timeouts that are due meanwhile fire, in their order.
    #[track_caller]
    pub fn advances(&mut self, time: impl IntoDuration) {
        self.must_go_on("time does not matter to it");
        let told = self.run.advance_to(self.moment_after(time));
        self.check(told);
    }

    /// Asks the run to stop. Open hooks, timers and children end as cancelled, and what the workflow asks for
    /// from now on fails as cancelled; open steps go on until the test says how they end. What is
    /// [shielded](outlast::Context::shielded) is not touched.
    #[track_caller]
    pub fn cancels(&mut self, reason: &str) {
        self.must_go_on("it cannot be cancelled");
        let told = self.run.cancel(reason);
        self.check(told);
    }

    /// What the workflow returned.
    ///
    /// # Errors
    ///
    /// The workflow's own error. Whether it ended as failed or as cancelled says
    /// [`status`](Self::status).
    ///
    /// # Panics
    ///
    /// When it has not ended; the report says what it waits for.
    #[track_caller]
    pub fn output(&self) -> Result<O, Error> {
        match self.run.output() {
            Some(output) => output,
            None => self.fail("it has not ended"),
        }
    }

    /// How the run ended: `Completed`, `Failed` or `Cancelled`; nothing while it goes on.
    pub fn status(&self) -> Option<Status> {
        self.run.ended()
    }

    /// What is open now, in the order in which it was asked for, one text for each operation.
    pub fn open(&self) -> Vec<String> {
        report::open(&self.run)
    }

    /// The time now, as the workflow would see it.
    pub fn now(&self) -> Timestamp {
        self.run.now()
    }

    /// All that happened so far, as a worker would have recorded it.
    pub fn history(&self) -> &[TurnRecord] {
        self.run.history()
    }

    #[track_caller]
    fn end(&mut self, step: &OpenWork, outcome: Result<Payload, StepError>) {
        let told = self.run.end_step(step.op, &step.name, outcome);
        self.check(told);
    }

    #[track_caller]
    fn end_child(&mut self, child: &OpenWork, outcome: Result<Payload, Error>) {
        let told = self.run.end_child(child.op, outcome);
        self.check(told);
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

    // A closure has no caller, so a panic in one would not name the test's line.
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
    fn moment_after(&self, time: impl IntoDuration) -> Timestamp {
        match time.into_duration() {
            Ok(time) => self.run.now().plus(time),
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn must_go_on(&self, otherwise: &str) {
        if self.run.ended().is_some() {
            self.fail(otherwise);
        }
    }

    #[track_caller]
    fn check(&self, told: Result<(), Stuck>) {
        if let Err(stuck) = told {
            self.fail(&format!("it cannot continue: {}", stuck.message));
        }
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("workflow `{}`: {what}\n{}", self.workflow, report::report(&self.run))
    }
}

/// Whether two payloads hold the same value, however it is written.
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
