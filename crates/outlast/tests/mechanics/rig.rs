//! What every test stands on: a world of either kind under virtual time, workers, and eyes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::sync::atomic::{AtomicU64, Ordering};
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

use super::faulty::{Faults, FaultyWorld, Skewed};

/// How long the session of a rig's worker lasts: a crash costs so much virtual time.
pub(super) const SESSION: Duration = Duration::from_secs(1);

/// Makes each listed function a test on every world.
///
/// `threads:` before a name runs it on a runtime with several threads.
macro_rules! on_every_world {
    ($($name:ident),* $(,)?) => { $($crate::mechanics::rig::on_every_world!(@ $name, "current_thread");)* };
    (threads: $($name:ident),* $(,)?) => { $($crate::mechanics::rig::on_every_world!(@ $name, "multi_thread");)* };
    (@ $name:ident, $flavor:literal) => {
        mod $name {
            #[tokio::test(flavor = $flavor)]
            async fn memory() {
                $crate::mechanics::rig::in_time(async {
                    let rig = $crate::mechanics::rig::Rig::memory().await;
                    super::$name(rig).await;
                })
                .await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test(flavor = $flavor)]
            async fn sqlite() {
                $crate::mechanics::rig::in_time(async {
                    let rig = $crate::mechanics::rig::Rig::sqlite().await;
                    super::$name(rig).await;
                })
                .await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test(flavor = $flavor)]
            async fn postgres() {
                $crate::mechanics::rig::in_time(async {
                    let rig = $crate::mechanics::rig::Rig::postgres().await;
                    super::$name(rig).await;
                })
                .await;
            }
        }
    };
}
pub(crate) use on_every_world;

/// How long a test may take in real time. Far more than any needs: ten thousand children on a busy server do.
const PATIENCE: Duration = Duration::from_secs(120);

/// A test that hangs fails.
pub(super) async fn in_time(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(PATIENCE, Box::pin(test)).await;
    assert!(ended.is_ok(), "the test still waits after {PATIENCE:?} of real time");
}

/// A world, its clock, and a client of it.
pub(super) struct Rig {
    pub(super) clock: TestClock,
    /// The clock of the world inside, by which messages are accepted.
    pub(super) inner_clock: Arc<Skewed>,
    pub(super) faults: Faults,
    pub(super) world: Arc<dyn World>,
    pub(super) client: Client,
    pub(super) desk: Desk,
    _folder: Option<TempDir>,
}

impl Rig {
    pub(super) async fn memory() -> Self {
        Self::on("memory:", None).await
    }

    #[cfg(feature = "sqlite")]
    pub(super) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/runs.db", folder.path().display());
        Self::on(&url, Some(folder)).await
    }

    /// In a schema of its own on the server for tests.
    #[cfg(feature = "postgres")]
    pub(super) async fn postgres() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (server, number) = (throwaway::postgres::for_tests(), NEXT.fetch_add(1, Ordering::Relaxed));
        let joint = if server.contains('?') { '&' } else { '?' };
        let schema = format!("mechanics_{}_{number}", std::process::id());
        Self::on(&format!("{server}{joint}schema={schema}&pool=4"), None).await
    }

    /// In memory, where what turns do to other runs is done later than their commits.
    pub(super) fn deferred() -> Self {
        let clock = TestClock::new();
        let inner_clock = Skewed::new(clock.clone());
        let inner = MemoryWorld::new(inner_clock.clone()).with_deferred_effects();
        Self::around(Arc::new(inner), clock, inner_clock, None)
    }

    async fn on(url: &str, folder: Option<TempDir>) -> Self {
        let clock = TestClock::new();
        let inner_clock = Skewed::new(clock.clone());
        let inner = outlast::open_with_clock(url, inner_clock.clone()).await.unwrap();
        Self::around(inner, clock, inner_clock, folder)
    }

    fn around(
        inner: Arc<dyn World>,
        clock: TestClock,
        inner_clock: Arc<Skewed>,
        folder: Option<TempDir>,
    ) -> Self {
        let (world, faults) = FaultyWorld::around(inner, clock.clone());
        let client = Client::new(world.clone());
        let desk = Desk::new(clock.clone());
        Self { clock, inner_clock, faults, world, client, desk, _folder: folder }
    }

    /// A worker that replays after every turn, with the steps of this module.
    pub(super) fn builder(&self) -> WorkerBuilder<Desk> {
        self.caching().paranoid()
    }

    /// A worker as users have it, with the steps of this module.
    pub(super) fn caching(&self) -> WorkerBuilder<Desk> {
        Worker::builder(self.world.clone())
            .state(self.desk.clone())
            .register((note, blocked, stoppable, flaky))
            .session_time(SESSION)
    }

    pub(super) async fn worker<R: Register<Desk, M>, M>(&self, code: R) -> Worker {
        self.builder().register(code).start().await.unwrap()
    }

    pub(super) async fn worker_of_build<R: Register<Desk, M>, M>(&self, build: &str, code: R) -> Worker {
        self.builder().build(build).register(code).start().await.unwrap()
    }

    /// The worker's process dies, and its session's time passes.
    pub(super) fn crash(&self, worker: Worker) {
        worker.crash();
        self.clock.advance(SESSION);
    }

    /// The moment so long after the test began.
    pub(super) fn moment(&self, after: &str) -> Timestamp {
        TestClock::BEGIN.plus(outlast::IntoDuration::into_duration(after).unwrap())
    }

    /// Lets so much time pass, through everything that happens meanwhile.
    pub(super) async fn pass(&self, time: &str) {
        let time = outlast::IntoDuration::into_duration(time).unwrap();
        self.clock.run_until(self.clock.now().plus(time)).await;
        self.clock.settle().await;
    }

    /// Moves the clock to so long after the test began, through everything that happens until then.
    pub(super) async fn run_to(&self, after: &str) {
        self.clock.run_until(self.moment(after)).await;
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

    /// Waits for a status that comes while steps are under way; otherwise settle and look.
    pub(super) async fn until(&self, run: RunId, status: Status) {
        self.until_view(run, |view| view.status == status).await;
    }

    pub(super) async fn until_view(&self, run: RunId, is_it: impl Fn(&RunView) -> bool) {
        while !is_it(&self.view(run).await) {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the history is so, while steps are under way.
    pub(super) async fn until_history(&self, run: RunId, is_it: impl Fn(&str) -> bool) {
        while !is_it(&self.history(run).await) {
            tokio::task::yield_now().await;
        }
    }

    /// The output of a run that was stuck: a run that still is would say so.
    pub(super) async fn mended<T: serde::de::DeserializeOwned>(&self, run: &RunHandle<T>) -> T {
        self.settle().await;
        run.output().await.unwrap()
    }

    /// Why the run is stuck; it must be.
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

    /// The run's history is this, whatever the indentation.
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
        Event::StepCompleted { output, .. }
        | Event::ChildCompleted { output, .. }
        | Event::RunCompleted { output } => format!("{output:?}"),
        Event::ChildStarted(child) => child.workflow.to_string(),
        Event::TagsSet { tags, .. } => format!("{tags:?}"),
        Event::TimerWoken { ops, .. } => ops.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        Event::StepFailed { failure, .. }
        | Event::ChildFailed { failure, .. }
        | Event::ChildCancelled { failure, .. }
        | Event::RunTerminated { failure }
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

/// Where steps leave traces and wait for the test: the state of the rig's workers.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    clock: TestClock,
    state: watch::Sender<DeskState>,
}

#[derive(Clone, Debug, Default)]
struct DeskState {
    notes: Vec<(Timestamp, String)>,
    open: BTreeSet<String>,
    inside: usize,
    inside_max: usize,
}

impl Desk {
    fn new(clock: TestClock) -> Self {
        Self { clock, state: watch::Sender::default() }
    }

    /// Leaves a trace.
    pub(super) fn leave(&self, text: impl Into<String>) {
        let note = (self.clock.now(), text.into());
        self.state.send_modify(|state| state.notes.push(note));
    }

    /// Traces so far.
    pub(super) fn notes(&self) -> Vec<String> {
        self.state.borrow().notes.iter().map(|(_, text)| text.clone()).collect()
    }

    pub(super) fn count(&self, text: &str) -> usize {
        self.state.borrow().notes.iter().filter(|(_, note)| note == text).count()
    }

    /// How long after the test's begin each trace of this text was left.
    pub(super) fn times(&self, text: &str) -> Vec<String> {
        let state = self.state.borrow();
        let times = state.notes.iter().filter(|(_, note)| note == text);
        times.map(|(at, _)| duration_text(at.since(TestClock::BEGIN))).collect()
    }

    /// Waits until the trace was left so often.
    pub(super) async fn until(&self, text: &str, count: usize) {
        let is_there =
            |state: &DeskState| state.notes.iter().filter(|(_, note)| note == text).count() >= count;
        self.state.subscribe().wait_for(is_there).await.unwrap();
    }

    /// Lets steps that are blocked at `gate` go on, now and later.
    pub(super) fn open(&self, gate: &str) {
        self.state.send_modify(|state| {
            state.open.insert(gate.into());
        });
    }

    pub(super) async fn passed(&self, gate: &str) {
        self.state.subscribe().wait_for(|state| state.open.contains(gate)).await.unwrap();
    }

    /// Lets virtual time pass in a step.
    pub(super) async fn pass(&self, time: &str) {
        let time = outlast::IntoDuration::into_duration(time).unwrap();
        drop(outlast::core::Clock::sleep_until(&self.clock, self.clock.now().plus(time)).await);
    }

    pub(super) fn enter(&self) {
        self.state.send_modify(|state| {
            state.inside += 1;
            state.inside_max = state.inside_max.max(state.inside);
        });
    }

    pub(super) fn exit(&self) {
        self.state.send_modify(|state| state.inside -= 1);
    }

    /// The greatest number of steps that entered and were under way at the same time.
    pub(super) fn crowd(&self) -> usize {
        self.state.borrow().inside_max
    }
}

/// Leaves a trace and returns it.
#[step]
pub(super) async fn note(cx: StepContext<Desk>, word: String) -> String {
    cx.state().enter();
    cx.state().leave(&word);
    tokio::task::yield_now().await;
    cx.state().exit();
    word
}

/// Begins, and ends when the test opens the gate of this name.
#[step]
pub(super) async fn blocked(cx: StepContext<Desk>, gate: String) -> String {
    cx.state().leave(format!("began {gate}"));
    cx.state().passed(&gate).await;
    cx.state().leave(format!("ended {gate}"));
    gate
}

/// As `blocked`, but stops when it is told to.
#[step]
pub(super) async fn stoppable(cx: StepContext<Desk>, gate: String) -> String {
    cx.state().leave(format!("began {gate}"));
    assert!(!cx.is_cancelled());
    select! {
        () = cx.cancelled() => {
            cx.state().leave(format!("stopped {gate}"));
            "stopped".to_owned()
        }
        () = cx.state().passed(&gate) => "done".to_owned(),
    }
}

/// Fails so often, then returns the number of the attempt that succeeded.
#[step(attempts = 4, initial = "1s", multiplier = 2.0)]
pub(super) async fn flaky(cx: StepContext<Desk>, fails: u32) -> Result<u32, StepError> {
    cx.state().leave("flaky");
    if cx.attempt() <= fails {
        return Err(StepError::msg(format!("failure {}", cx.attempt())));
    }
    Ok(cx.attempt())
}

/// The steps of this module, in few words.
pub(super) trait Ask {
    fn note(&self, word: &str) -> StepOperation<String>;
    fn blocked(&self, gate: &str) -> StepOperation<String>;
    fn stoppable(&self, gate: &str) -> StepOperation<String>;
    fn flaky(&self, fails: u32) -> StepOperation<u32>;
}

impl Ask for Context {
    fn note(&self, word: &str) -> StepOperation<String> {
        self.step(note, word.to_owned())
    }

    fn blocked(&self, gate: &str) -> StepOperation<String> {
        self.step(blocked, gate.to_owned())
    }

    fn stoppable(&self, gate: &str) -> StepOperation<String> {
        self.step(stoppable, gate.to_owned())
    }

    fn flaky(&self, fails: u32) -> StepOperation<u32> {
        self.step(flaky, fails)
    }
}

/// What workflow code leaves behind outside its run: only tests may do that.
static TRACES: Mutex<BTreeMap<(RunId, &'static str), u32>> = Mutex::new(BTreeMap::new());

/// Counts something that workflow code did, replays included.
pub(super) fn trace(run: RunId, what: &'static str) {
    *TRACES.lock().entry((run, what)).or_default() += 1;
}

/// How often workflow code did it.
pub(super) fn traces(run: RunId, what: &'static str) -> u32 {
    TRACES.lock().get(&(run, what)).copied().unwrap_or_default()
}
