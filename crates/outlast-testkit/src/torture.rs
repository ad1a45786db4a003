//! Torture: a workflow is run again and again, each time with a crash at another commit, and must always do the same.

mod compare;
mod drive;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use outlast::{
    Client, Error, HookFor, Input, Register, RunHandle, RunId, StepError, StepHandle, WorkflowFn,
    WorkflowHandle,
};
use outlast_core::IntoDuration;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::compare::Observed;
use self::drive::{Answer, Script};
use crate::world::{CrashPoint, TestWorld, TestWorldBuilder};

/// The maximum number of commits at which a workflow is crashed. The time grows with its square.
const COMMITS_MAX: usize = 500;

/// The id of every tortured run. It is constant, so that random numbers and the ids of children are the same in every
/// run.
const RUN: RunId = RunId::from_bits(0x01bc_0000_0000_0000_0000_0000_0000_0002);

/// Runs a workflow once undisturbed, and then once for each commit with a crash before it, and once with a crash after
/// it. Every one of these runs must request the same operations, get the same outcomes and end in the same way.
///
/// A crash before a commit also is a crash between the effect of a step and its record: the attempts whose outcomes
/// the commit contains are repeated. Every run uses a new [`TestWorld`], so time is virtual, and each run is replayed
/// after every turn: code that is not deterministic is detected without a crash.
///
/// The workflow is registered; add the code of its steps and children, or mocks. Await the returned builder.
///
/// ```
/// use outlast::prelude::*;
/// use outlast_testkit::torture;
///
/// #[step]
/// async fn charge(cents: u64) -> Result<String, StepError> {
///     Err(StepError::msg(format!("there is no bank to pay {cents} to")))
/// }
///
/// #[workflow]
/// async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
///     let payment = ctx.step(charge, cents).await?;
///     ctx.hook::<bool>("review").timeout("3d").await?;
///     ctx.sleep("365d").await?;
///     Ok(payment)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let report = torture(checkout, 4200)
///     .mock(charge, |cents| Ok(format!("payment of {cents}")))
///     .answer("review", &true)
///     .await;
/// assert!(report.crashes() >= 6, "{report}");
/// # }
/// ```
///
/// # Panics
///
/// At the first run that differs from the undisturbed one, is stuck, or does not end. The message names the commit and
/// shows the difference.
///
/// It also panics if two undisturbed runs differ, for example because a step returns a random number: mock that step,
/// or [ignore values](Torture::ignore_values).
#[track_caller]
pub fn torture<F, Args, M, I>(workflow: F, input: I) -> Torture<<F as WorkflowHandle<Args>>::Output, ()>
where
    F: WorkflowFn<Args> + WorkflowHandle<Args> + Register<(), M> + Copy,
    I: Input<<F as WorkflowHandle<Args>>::Input> + 'static,
    <F as WorkflowHandle<Args>>::Output: 'static,
{
    Torture {
        workflow: WorkflowHandle::<Args>::name(&workflow),
        location: Location::caller(),
        start: Box::new(move |client| {
            let call = input.with(|input| client.start(workflow, input).id(RUN));
            call.into_future()
        }),
        world: Box::new(move || TestWorld::builder().register(workflow)),
        script: Script::default(),
        after_each: None,
        accepts: None,
        ignores_values: false,
    }
}

type StartRun<O> = dyn for<'a> Fn(&'a Client) -> Starting<'a, O>;

type IsAccepted<O> = dyn Fn(&Result<O, Error>) -> bool;

/// What a run did, and its outcome.
type EndedRun<O> = (Observed, Result<O, Error>);

type Starting<'a, O> = Pin<Box<dyn Future<Output = Result<RunHandle<O>, Error>> + Send + 'a>>;

/// The options of a torture, created by [`torture`]. Await it to begin.
#[must_use = "nothing runs until the torture is awaited"]
pub struct Torture<O, S> {
    workflow: &'static str,
    location: &'static Location<'static>,
    start: Box<StartRun<O>>,
    world: Box<dyn Fn() -> TestWorldBuilder<S>>,
    script: Script,
    after_each: Option<Box<dyn FnMut()>>,
    accepts: Option<Box<IsAccepted<O>>>,
    ignores_values: bool,
}

impl<O, S: Send + Sync + 'static> Torture<O, S> {
    /// Adds code: steps, and the workflows of children.
    pub fn register<R: Register<S, M> + Clone + 'static, M>(mut self, code: R) -> Self {
        let world = self.world;
        self.world = Box::new(move || world().register(code.clone()));
        self
    }

    /// Runs `code` instead of the step's own; see [`TestWorldBuilder::mock`].
    pub fn mock<H, M>(
        mut self,
        step: H,
        code: impl Fn(H::Input) -> Result<H::Output, StepError> + Send + Sync + 'static,
    ) -> Self
    where
        H: StepHandle<M> + Copy + 'static,
        H::Input: DeserializeOwned,
        H::Output: Serialize,
    {
        let (world, code) = (self.world, Arc::new(code));
        self.world = Box::new(move || {
            let code = code.clone();
            world().mock(step, move |input| code(input))
        });
        self
    }

    /// Uses worlds that the test builds itself, with a state or other settings. It is called for every run. The code
    /// that was registered before is not used, not even the workflow.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast_testkit::{TestWorld, torture};
    /// # #[derive(Default)] struct Bank;
    /// # #[step] async fn charge(cx: StepContext<Bank>, cents: u64) -> u64 { let Bank = cx.state(); cents }
    /// # #[workflow] async fn checkout(ctx: Context, cents: u64) -> Result<u64, Error> { ctx.step(charge, cents).await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// torture(checkout, 4200)
    ///     .world(|| TestWorld::builder().state(Bank::default()).register((checkout, charge)).on_sqlite())
    ///     .await;
    /// # }
    /// ```
    pub fn world<T>(self, build: impl Fn() -> TestWorldBuilder<T> + 'static) -> Torture<O, T> {
        let Self { workflow, location, start, world: _, script, after_each, accepts, ignores_values } = self;
        let world = Box::new(build);
        Torture { workflow, location, start, world, script, after_each, accepts, ignores_values }
    }

    /// Sends this payload when the run waits for the hook. Several answers for one hook are sent one after the other,
    /// each when the run waits for it again.
    ///
    /// # Panics
    ///
    /// When the payload has no JSON form.
    #[track_caller]
    pub fn answer<T: Serialize + ?Sized>(self, hook: impl HookFor<T>, payload: &T) -> Self {
        self.answer_after("0s", hook, payload)
    }

    /// Sends this payload when the run has waited for the hook for this time; see [`answer`](Self::answer).
    ///
    /// # Panics
    ///
    /// When the payload has no JSON form, or the text is not a duration.
    #[track_caller]
    pub fn answer_after<T>(mut self, time: impl IntoDuration, hook: impl HookFor<T>, payload: &T) -> Self
    where
        T: Serialize + ?Sized,
    {
        let after = time.into_duration().unwrap_or_else(|error| panic!("{error}"));
        let payload = serde_json::to_value(payload).unwrap_or_else(|error| panic!("{error}"));
        self.script.answers.push(Answer { hook: hook.hook_name().into(), after, payload });
        self
    }

    /// Cancels every run this long after its start, if it has not ended by then.
    ///
    /// # Panics
    ///
    /// When the text is not a duration.
    #[track_caller]
    pub fn cancel_after(mut self, time: impl IntoDuration, reason: impl Into<String>) -> Self {
        let after = time.into_duration().unwrap_or_else(|error| panic!("{error}"));
        self.script.cancel = Some((after, reason.into()));
        self
    }

    /// Calls a function after each run, the undisturbed one included: for assertions about effects outside of the
    /// world, such as the number of payments at a mocked bank. If it panics, the report names the crash.
    pub fn after_each(mut self, check: impl FnMut() + 'static) -> Self {
        self.after_each = Some(Box::new(check));
        self
    }

    /// Accepts a run that ends in another way than the undisturbed one if this function returns true for its outcome.
    /// Use it for steps that are attempted [at most once](outlast::Step::at_most_once): after a crash their outcome is
    /// unknown.
    pub fn accept(mut self, is_accepted: impl Fn(&Result<O, Error>) -> bool + 'static) -> Self {
        self.accepts = Some(Box::new(is_accepted));
        self
    }

    /// Compares only the kinds and names of operations, and whether they and the run succeeded: not inputs, outputs,
    /// messages and times. Use it for steps that return something else each time.
    pub fn ignore_values(mut self) -> Self {
        self.ignores_values = true;
        self
    }
}

impl<O: DeserializeOwned, S: Send + Sync + 'static> Torture<O, S> {
    async fn run(mut self) -> TortureReport {
        let undisturbed = self.undisturbed().await;
        let mut report = TortureReport { workflow: self.workflow, crashes: 0, commits: 0 };
        for place in [CrashPlace::Before, CrashPlace::After] {
            for nth in 1.. {
                if nth > COMMITS_MAX {
                    self.fail(&format!(
                        "it has more than {COMMITS_MAX} commits, which is the limit; give it a smaller input"
                    ));
                }
                let Some((crash, ended)) = self.run_with_crash(place, nth).await else { break };
                report.crashes += 1;
                report.commits = report.commits.max(nth);
                self.compare(&undisturbed, &ended, &crash);
            }
        }
        report
    }

    /// The undisturbed run. It is made twice, because what differs without a crash proves nothing with one.
    async fn undisturbed(&mut self) -> Observed {
        let (first, second) = (self.run_without_crash().await, self.run_without_crash().await);
        if let Some(difference) = first.difference(&second, ["in one run", "in another"]) {
            self.fail(&format!(
                "two undisturbed runs differ, so the effect of a crash cannot be seen; mock the steps that return \
                 something else each time, or call `.ignore_values()`{difference}"
            ));
        }
        first
    }

    async fn run_without_crash(&mut self) -> Observed {
        let world = (self.world)().start().await;
        let (ended, _) = self.drive(&world, "without a crash").await;
        drop(world);
        self.check_effects("without a crash");
        ended
    }

    /// Makes a run with a crash; `None` if it has fewer commits.
    async fn run_with_crash(&mut self, place: CrashPlace, nth: usize) -> Option<(String, EndedRun<O>)> {
        let world = (self.world)().start().await;
        world.crash_worker(place.point().nth(nth));
        let crash = format!("with a crash {place} commit {nth}");
        let ended = self.drive(&world, &crash).await;
        let commit = world.crashed_commit();
        drop(world);
        let Some(commit) = commit else {
            self.check_effects("without a crash");
            return None;
        };
        let crash = format!("{crash} ({commit})");
        self.check_effects(&crash);
        Some((crash, ended))
    }

    async fn drive(&self, world: &TestWorld, situation: &str) -> EndedRun<O> {
        let run = match (self.start)(world.client()).await {
            Ok(run) => run,
            Err(error) => self.fail(&format!("the run does not start: {error}")),
        };
        let ended = async {
            self.script.play(world, run.id()).await?;
            let observed = Observed::of(world.client(), run.id(), self.ignores_values).await;
            observed.map_err(|error| error.to_string())
        };
        match ended.await {
            Ok(observed) => (observed, run.output().await),
            Err(why) => {
                let commit = world.crashed_commit().map_or_else(String::new, |commit| format!(" ({commit})"));
                self.fail(&format!("{situation}{commit}, the run does not end: {why}"))
            }
        }
    }

    fn compare(&self, undisturbed: &Observed, (ended, outcome): &EndedRun<O>, crash: &str) {
        let Some(difference) = undisturbed.difference(ended, ["undisturbed", "with the crash"]) else {
            return;
        };
        let is_accepted =
            undisturbed.end() != ended.end() && self.accepts.as_ref().is_some_and(|accepts| accepts(outcome));
        if !is_accepted {
            self.fail(&format!("{crash}, the run is another one{difference}"));
        }
    }

    fn check_effects(&mut self, situation: &str) {
        let Some(check) = &mut self.after_each else { return };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(check)) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
            self.fail(&format!("{situation}, the check after the run fails: {text}"));
        }
    }

    fn fail(&self, what: &str) -> ! {
        panic!("torture of workflow `{}` at {}: {what}", self.workflow, self.location)
    }
}

impl<O: DeserializeOwned + 'static, S: Send + Sync + 'static> IntoFuture for Torture<O, S> {
    type Output = TortureReport;
    type IntoFuture = Pin<Box<dyn Future<Output = TortureReport>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<O, S> fmt::Debug for Torture<O, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Torture").field("workflow", &self.workflow).finish_non_exhaustive()
    }
}

/// On which side of a commit the worker crashes.
#[derive(Clone, Copy, Debug)]
enum CrashPlace {
    Before,
    After,
}

impl CrashPlace {
    fn point(self) -> CrashPoint {
        match self {
            Self::Before => CrashPoint::before_commit(),
            Self::After => CrashPoint::after_commit(),
        }
    }
}

impl fmt::Display for CrashPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::After => "after",
        })
    }
}

/// What a [`torture`] has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TortureReport {
    workflow: &'static str,
    crashes: usize,
    commits: usize,
}

impl TortureReport {
    /// The number of runs with a crash.
    pub fn crashes(&self) -> usize {
        self.crashes
    }

    /// The number of commits of the run with the most commits.
    pub fn commits(&self) -> usize {
        self.commits
    }
}

impl fmt::Display for TortureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workflow, crashes, commits } = self;
        write!(
            f,
            "workflow `{workflow}`: {crashes} runs with a crash, at {commits} commits, ended as the undisturbed one"
        )
    }
}
