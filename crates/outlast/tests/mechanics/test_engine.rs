//! The environment of the tests: a world under virtual time, workers, and helpers for observation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use outlast::core::{Event, TurnRecord, duration::duration_text};
use outlast::prelude::*;
use outlast::{
    MemoryWorld, Register, RunId, RunView, Status, StepOperation, Stuck, Timestamp, WorkerBuilder, World,
};
use outlast_testkit::TestClock;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;

use super::faulty_world::{Faults, FaultyWorld, SkewedClock};

/// The session time of workers: a crash costs this much virtual time.
pub(super) const SESSION: Duration = Duration::from_secs(1);

/// Generates a test on every world for each listed function.
///
/// `threads:` before a name runs it on a runtime with several threads.
macro_rules! on_every_world {
    ($($name:ident),* $(,)?) => { $($crate::mechanics::test_engine::on_every_world!(@ $name, "current_thread");)* };
    (threads: $($name:ident),* $(,)?) => { $($crate::mechanics::test_engine::on_every_world!(@ $name, "multi_thread");)* };
    (@ $name:ident, $flavor:literal) => {
        mod $name {
            #[tokio::test(flavor = $flavor)]
            async fn memory() {
                $crate::mechanics::test_engine::with_timeout(async {
                    let engine = $crate::mechanics::test_engine::TestEngine::memory().await;
                    super::$name(engine).await;
                })
                .await;
            }

            #[tokio::test(flavor = $flavor)]
            async fn sqlite() {
                $crate::mechanics::test_engine::with_timeout(async {
                    let engine = $crate::mechanics::test_engine::TestEngine::sqlite().await;
                    super::$name(engine).await;
                })
                .await;
            }

            #[tokio::test(flavor = $flavor)]
            async fn postgres() {
                throwaway::needs_postgres!();
                $crate::mechanics::test_engine::with_timeout(async {
                    let engine = $crate::mechanics::test_engine::TestEngine::postgres().await;
                    super::$name(engine).await;
                })
                .await;
            }
        }
    };
}
pub(crate) use on_every_world;

/// The time limit of a test in real time: much more than any test needs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a test with a time limit, so that a hanging test fails.
pub(super) async fn with_timeout(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(TIMEOUT, Box::pin(test)).await;
    assert!(ended.is_ok(), "the test still waits after {TIMEOUT:?} of real time");
}

/// A world, its clock, and a client of it.
pub(super) struct TestEngine {
    pub(super) clock: TestClock,
    /// The clock of the inner world, which sets the times of messages.
    pub(super) inner_clock: Arc<SkewedClock>,
    pub(super) faults: Faults,
    pub(super) world: Arc<dyn World>,
    pub(super) client: Client,
    pub(super) steps: StepState,
    _folder: Option<TempDir>,
}

impl TestEngine {
    pub(super) async fn memory() -> Self {
        Self::on("memory:", None).await
    }

    pub(super) async fn sqlite() -> Self {
        Self::sqlite_with("sync=full").await
    }

    /// On a file, with these parameters of the URL.
    pub(super) async fn sqlite_with(parameters: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/runs.db?{parameters}", folder.path().display());
        Self::on(&url, Some(folder)).await
    }

    /// In a new schema on the server for tests.
    pub(super) async fn postgres() -> Self {
        Self::postgres_with("pool=4").await
    }

    /// In a new schema, with these parameters of the URL.
    pub(super) async fn postgres_with(parameters: &str) -> Self {
        let url = throwaway::postgres::new_schema_url("mechanics");
        Self::on(&format!("{url}&{parameters}"), None).await
    }

    /// In memory, with effects on other runs that are applied after the commit.
    pub(super) fn deferred() -> Self {
        let clock = TestClock::new();
        let inner_clock = SkewedClock::new(clock.clone());
        let inner = MemoryWorld::new(inner_clock.clone()).with_deferred_effects();
        Self::with_world(Arc::new(inner), clock, inner_clock, None)
    }

    async fn on(url: &str, folder: Option<TempDir>) -> Self {
        let clock = TestClock::new();
        let inner_clock = SkewedClock::new(clock.clone());
        let inner = outlast::open_with_clock(url, inner_clock.clone()).await.unwrap();
        Self::with_world(inner, clock, inner_clock, folder)
    }

    fn with_world(
        inner: Arc<dyn World>,
        clock: TestClock,
        inner_clock: Arc<SkewedClock>,
        folder: Option<TempDir>,
    ) -> Self {
        let (world, faults) = FaultyWorld::wrap(inner, clock.clone());
        let client = Client::new(world.clone());
        let steps = StepState::new(clock.clone());
        Self { clock, inner_clock, faults, world, client, steps, _folder: folder }
    }

    /// The builder of a worker that replays after every turn, with the steps of this module.
    pub(super) fn builder(&self) -> WorkerBuilder<StepState> {
        self.caching_builder().paranoid()
    }

    /// The builder of a worker with the usual cache, with the steps of this module.
    pub(super) fn caching_builder(&self) -> WorkerBuilder<StepState> {
        Worker::builder(self.world.clone())
            .state(self.steps.clone())
            .register((note, blocked, stoppable, flaky))
            .session_time(SESSION)
    }

    pub(super) async fn worker<R: Register<StepState, M>, M>(&self, code: R) -> Worker {
        self.builder().register(code).start().await.unwrap()
    }

    pub(super) async fn worker_of_build<R: Register<StepState, M>, M>(&self, build: &str, code: R) -> Worker {
        self.builder().build(build).register(code).start().await.unwrap()
    }

    /// Crashes the worker's process, and advances the clock by the session time.
    pub(super) fn crash(&self, worker: Worker) {
        worker.crash();
        self.clock.advance(SESSION);
    }

    /// The time this long after the begin of the test.
    pub(super) fn time_after_begin(&self, after: &str) -> Timestamp {
        TestClock::BEGIN.plus(outlast::IntoDuration::into_duration(after).unwrap())
    }

    /// Advances the clock by this time, and lets everything happen that is due meanwhile.
    pub(super) async fn advance(&self, time: &str) {
        let time = outlast::IntoDuration::into_duration(time).unwrap();
        self.clock.run_until(self.clock.now().plus(time)).await;
        self.clock.settle().await;
    }

    /// Advances the clock to this long after the begin of the test, and lets everything happen that is due until then.
    pub(super) async fn run_to(&self, after: &str) {
        self.clock.run_until(self.time_after_begin(after)).await;
        self.clock.settle().await;
    }

    pub(super) async fn settle(&self) {
        self.clock.settle().await;
    }

    pub(super) async fn view(&self, run: RunId) -> RunView {
        self.client.run(run).await.unwrap()
    }

    pub(super) async fn status(&self, run: RunId) -> Status {
        self.view(run).await.status
    }

    /// Waits for a status that is reached while steps are running; otherwise use `settle`.
    pub(super) async fn wait_for_status(&self, run: RunId, status: Status) {
        self.wait_for_view(run, |view| view.status == status).await;
    }

    pub(super) async fn wait_for_view(&self, run: RunId, is_expected: impl Fn(&RunView) -> bool) {
        while !is_expected(&self.view(run).await) {
            pause_between_reads().await;
        }
    }

    /// Waits until the history satisfies the predicate, while steps are running.
    pub(super) async fn wait_for_history(&self, run: RunId, is_expected: impl Fn(&str) -> bool) {
        while !is_expected(&self.history(run).await) {
            pause_between_reads().await;
        }
    }

    /// The output of a run that was stuck and continues with fixed code.
    pub(super) async fn output_after_fix<T: serde::de::DeserializeOwned>(&self, run: &RunHandle<T>) -> T {
        self.settle().await;
        run.output().await.unwrap()
    }

    /// Why the run is stuck; asserts that it is.
    pub(super) async fn stuck(&self, run: RunId) -> Stuck {
        let view = self.view(run).await;
        assert_eq!(view.status, Status::Stuck, "run {run}");
        view.stuck.expect("a stuck run says why")
    }

    pub(super) async fn turns(&self, run: RunId) -> Vec<TurnRecord> {
        self.client.history(run).await.unwrap()
    }

    /// The run's history without its first event, one event per line.
    pub(super) async fn history(&self, run: RunId) -> String {
        let turns = self.turns(run).await;
        let mut seq = 0;
        for turn in &turns {
            assert_eq!(turn.seq, seq, "the history has no gaps");
            seq += turn.events.len() as u64;
        }
        let lines = turns.iter().flat_map(|turn| turn.events.iter().map(|event| line(event, turn.at)));
        lines.skip(1).collect::<Vec<_>>().join("\n")
    }

    /// Asserts the run's history, ignoring indentation.
    #[track_caller]
    pub(super) fn assert_history(&self, run: RunId, expected: &str) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        let expected: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let expected = expected.join("\n");
        async move {
            let history = self.history(run).await;
            assert_eq!(history, expected, "\nhistory:\n{history}\nexpected at {place}:\n{expected}\n");
        }
    }

    /// Sends a payload to a hook.
    pub(super) async fn send(&self, run: RunId, hook: &str, payload: u32) {
        self.client.send(run, hook, &payload).await.unwrap();
    }
}

fn line(event: &Event, at: Timestamp) -> String {
    let op = event.op().map(|op| format!("{op} ")).unwrap_or_default();
    let detail = match event {
        Event::StepStarted { name, .. } | Event::HookOpened { name, .. } => name.to_string(),
        Event::CompensationRegistered(registered) => registered.step.to_string(),
        Event::CompensationsKept { of, .. } => {
            of.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        }
        Event::CompensationStarted { of, .. } => of.to_string(),
        Event::RunCompensating { ends_as, failure, .. } => format!("{ends_as}: {}", failure.message),
        Event::RunRetrying(retrying) => {
            let pause = duration_text(retrying.retry_at.since(at));
            format!("after try {} in {pause}: {}", retrying.attempt, retrying.failure.message)
        }
        Event::StepCompleted { output, .. }
        | Event::ChildCompleted { output, .. }
        | Event::RunCompleted { output } => format!("{output:?}"),
        Event::ChildStarted(child) => child.workflow.to_string(),
        Event::RunContinued(next) => format!("{} next {}", next.generation, next.next_op),
        Event::TagsSet { tags, .. } => format!("{tags:?}"),
        Event::TimerWoken { ops, .. } => ops.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        Event::StepFailed { failure, .. }
        | Event::ChildFailed { failure, .. }
        | Event::ChildCancelled { failure, .. }
        | Event::RunTerminated { failure, .. }
        | Event::RunFailed { failure }
        | Event::RunCancelled { failure } => failure.message.clone(),
        Event::StepRetried { retry_at, .. } => duration_text(retry_at.since(at)),
        Event::TimerStarted { fire_at, .. } => duration_text(fire_at.since(at)),
        Event::HookReceived { name, payload, .. } => format!("{name} {payload:?}"),
        Event::HookRejected { name, .. } => name.to_string(),
        Event::ValueRecorded { name, value: Ok(value), .. } => format!("{name} {value:?}"),
        Event::ValueRecorded { name, value: Err(failure), .. } => format!("{name} {}", failure.message),
        Event::VersionChosen { name } => name.to_string(),
        Event::CancelRequested { reason, .. } => reason.clone(),
        _ => String::new(),
    };
    format!("{op}{} {detail}", event.kind()).trim_end().to_owned()
}

/// The state of the workers' steps: steps log to it, and wait for gates that the test opens.
#[derive(Clone, Debug)]
pub(super) struct StepState {
    clock: TestClock,
    state: watch::Sender<StepLog>,
}

#[derive(Clone, Debug, Default)]
struct StepLog {
    entries: Vec<(Timestamp, String)>,
    open: BTreeSet<String>,
    concurrent: usize,
    concurrent_max: usize,
}

impl StepState {
    fn new(clock: TestClock) -> Self {
        Self { clock, state: watch::Sender::default() }
    }

    /// Logs a text.
    pub(super) fn log(&self, text: impl Into<String>) {
        let note = (self.clock.now(), text.into());
        self.state.send_modify(|state| state.entries.push(note));
    }

    /// The logged texts.
    pub(super) fn logged(&self) -> Vec<String> {
        self.state.borrow().entries.iter().map(|(_, text)| text.clone()).collect()
    }

    pub(super) fn count(&self, text: &str) -> usize {
        self.state.borrow().entries.iter().filter(|(_, note)| note == text).count()
    }

    /// The times of this text in the log, relative to the begin of the test.
    pub(super) fn times(&self, text: &str) -> Vec<String> {
        let state = self.state.borrow();
        let times = state.entries.iter().filter(|(_, note)| note == text);
        times.map(|(at, _)| duration_text(at.since(TestClock::BEGIN))).collect()
    }

    /// Waits until the text was logged this often.
    pub(super) async fn wait_for_log(&self, text: &str, count: usize) {
        let is_there =
            |state: &StepLog| state.entries.iter().filter(|(_, note)| note == text).count() >= count;
        self.state.subscribe().wait_for(is_there).await.unwrap();
    }

    /// Opens a gate: steps that wait at it continue, now and later.
    pub(super) fn open(&self, gate: &str) {
        self.state.send_modify(|state| {
            state.open.insert(gate.into());
        });
    }

    pub(super) async fn wait_for_gate(&self, gate: &str) {
        self.state.subscribe().wait_for(|state| state.open.contains(gate)).await.unwrap();
    }

    /// Sleeps in virtual time, in a step.
    pub(super) async fn sleep(&self, time: &str) {
        let time = outlast::IntoDuration::into_duration(time).unwrap();
        drop(outlast::core::Clock::sleep_until(&self.clock, self.clock.now().plus(time)).await);
    }

    pub(super) fn enter(&self) {
        self.state.send_modify(|state| {
            state.concurrent += 1;
            state.concurrent_max = state.concurrent_max.max(state.concurrent);
        });
    }

    pub(super) fn exit(&self) {
        self.state.send_modify(|state| state.concurrent -= 1);
    }

    /// The maximum number of concurrent steps between `enter` and `exit`.
    pub(super) fn concurrent_max(&self) -> usize {
        self.state.borrow().concurrent_max
    }
}

/// Pauses between two reads of a test that polls. Without it, the test and the connection that it reads with can keep
/// the cores so busy that the system runs nothing else for many seconds: not even the commits for which the test waits.
#[allow(clippy::disallowed_methods, reason = "between two looks at a condition")]
pub(super) async fn pause_between_reads() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Logs a text and returns it.
#[step]
pub(super) async fn note(cx: StepContext<StepState>, word: String) -> String {
    cx.state().enter();
    cx.state().log(&word);
    tokio::task::yield_now().await;
    cx.state().exit();
    word
}

/// Ends when the test opens the gate of this name.
#[step]
pub(super) async fn blocked(cx: StepContext<StepState>, gate: String) -> String {
    cx.state().log(format!("began {gate}"));
    cx.state().wait_for_gate(&gate).await;
    cx.state().log(format!("ended {gate}"));
    gate
}

/// As `blocked`, but stops when it is cancelled.
#[step]
pub(super) async fn stoppable(cx: StepContext<StepState>, gate: String) -> String {
    cx.state().log(format!("began {gate}"));
    assert!(!cx.is_cancelled());
    select! {
        () = cx.cancelled() => {
            cx.state().log(format!("stopped {gate}"));
            "stopped".to_owned()
        }
        () = cx.state().wait_for_gate(&gate) => "done".to_owned(),
    }
}

/// Fails this often, then returns the number of the successful attempt.
#[step(attempts = 4, initial = "1s", multiplier = 2.0)]
pub(super) async fn flaky(cx: StepContext<StepState>, fails: u32) -> Result<u32, StepError> {
    cx.state().log("flaky");
    if cx.attempt() <= fails {
        return Err(StepError::msg(format!("failure {}", cx.attempt())));
    }
    Ok(cx.attempt())
}

/// Shortcuts for the steps of this module.
pub(super) trait StepCalls {
    fn note(&self, word: &str) -> StepOperation<String, String>;
    fn blocked(&self, gate: &str) -> StepOperation<String, String>;
    fn stoppable(&self, gate: &str) -> StepOperation<String, String>;
    fn flaky(&self, fails: u32) -> StepOperation<u32, u32>;
}

impl StepCalls for Context {
    fn note(&self, word: &str) -> StepOperation<String, String> {
        self.step(note, word.to_owned())
    }

    fn blocked(&self, gate: &str) -> StepOperation<String, String> {
        self.step(blocked, gate.to_owned())
    }

    fn stoppable(&self, gate: &str) -> StepOperation<String, String> {
        self.step(stoppable, gate.to_owned())
    }

    fn flaky(&self, fails: u32) -> StepOperation<u32, u32> {
        self.step(flaky, fails)
    }
}

/// Counters of workflow code outside its run: only tests may do that.
static TRACES: Mutex<BTreeMap<(RunId, &'static str), u32>> = Mutex::new(BTreeMap::new());

/// Counts an action of workflow code, including replays.
pub(super) fn trace(run: RunId, what: &'static str) {
    *TRACES.lock().entry((run, what)).or_default() += 1;
}

/// How often workflow code made the action.
pub(super) fn traces(run: RunId, what: &'static str) -> u32 {
    TRACES.lock().get(&(run, what)).copied().unwrap_or_default()
}
