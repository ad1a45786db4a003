//! What every test stands on: a world of either kind under virtual time, workers, and eyes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use outlast::core::{Event, TurnRecord, duration::duration_text};
use outlast::prelude::*;
use outlast::{Register, RunId, RunView, Status, StepOperation, Stuck, Timestamp, WorkerBuilder, World};
use outlast_testkit::TestClock;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;

use super::faulty::{Faults, FaultyWorld};

/// How long the session of a rig's worker lasts: a crash costs so much virtual time.
pub const SESSION: Duration = Duration::from_secs(1);

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
                $crate::mechanics::rig::within_a_minute(async {
                    let rig = $crate::mechanics::rig::Rig::memory().await;
                    super::$name(rig).await;
                })
                .await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test(flavor = $flavor)]
            async fn sqlite() {
                $crate::mechanics::rig::within_a_minute(async {
                    let rig = $crate::mechanics::rig::Rig::sqlite().await;
                    super::$name(rig).await;
                })
                .await;
            }
        }
    };
}
pub(crate) use on_every_world;

/// A test that hangs fails.
pub async fn within_a_minute(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(Duration::from_secs(60), Box::pin(test)).await;
    assert!(ended.is_ok(), "the test still waits after a minute of real time");
}

/// A world, its clock, and a client of it.
pub struct Rig {
    pub clock: TestClock,
    pub faults: Faults,
    pub world: Arc<dyn World>,
    pub client: Client,
    pub desk: Desk,
    _folder: Option<TempDir>,
}

impl Rig {
    pub async fn memory() -> Self {
        Self::on("memory:", None).await
    }

    #[cfg(feature = "sqlite")]
    pub async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/runs.db", folder.path().display());
        Self::on(&url, Some(folder)).await
    }

    async fn on(url: &str, folder: Option<TempDir>) -> Self {
        let clock = TestClock::new();
        let inner = outlast::open_with_clock(url, Arc::new(clock.clone())).await.unwrap();
        let (world, faults) = FaultyWorld::around(inner, clock.clone());
        let client = Client::new(world.clone());
        let desk = Desk::new(clock.clone());
        Self { clock, faults, world, client, desk, _folder: folder }
    }

    /// A worker that replays after every turn, with the steps of this module.
    pub fn builder(&self) -> WorkerBuilder<Desk> {
        self.caching().paranoid()
    }

    /// A worker as users have it, with the steps of this module.
    pub fn caching(&self) -> WorkerBuilder<Desk> {
        Worker::builder(self.world.clone())
            .state(self.desk.clone())
            .register((note, blocked, stoppable, flaky))
            .session_time(SESSION)
    }

    pub async fn worker<R: Register<Desk, M>, M>(&self, code: R) -> Worker {
        self.builder().register(code).start().await.unwrap()
    }

    pub async fn worker_of_build<R: Register<Desk, M>, M>(&self, build: &str, code: R) -> Worker {
        self.builder().build(build).register(code).start().await.unwrap()
    }

    /// The worker's process dies, and its session's time passes.
    pub fn crash(&self, worker: Worker) {
        worker.crash();
        self.clock.advance(SESSION);
    }

    /// The moment so long after the test began.
    pub fn moment(&self, after: &str) -> Timestamp {
        TestClock::BEGIN.plus(outlast::IntoDuration::into_duration(after).unwrap())
    }

    /// Moves the clock to so long after the test began, through everything that happens until then.
    pub async fn run_to(&self, after: &str) {
        self.clock.run_until(self.moment(after)).await;
        self.clock.settle().await;
    }

    pub async fn settle(&self) {
        self.clock.settle().await;
    }

    pub async fn view(&self, run: RunId) -> RunView {
        self.client.run(run).await.unwrap()
    }

    pub async fn status(&self, run: RunId) -> Status {
        self.view(run).await.status
    }

    /// Waits for a status that comes while steps are under way; otherwise settle and look.
    pub async fn until(&self, run: RunId, status: Status) {
        self.until_view(run, |view| view.status == status).await;
    }

    pub async fn until_view(&self, run: RunId, is_it: impl Fn(&RunView) -> bool) {
        while !is_it(&self.view(run).await) {
            tokio::task::yield_now().await;
        }
    }

    /// Why the run is stuck; it must be.
    pub async fn stuck(&self, run: RunId) -> Stuck {
        let view = self.view(run).await;
        assert_eq!(view.status, Status::Stuck, "run {run}");
        view.stuck.expect("a stuck run says why")
    }

    pub async fn turns(&self, run: RunId) -> Vec<TurnRecord> {
        self.client.history(run).await.unwrap()
    }

    /// The run's history without its first event, one event per line.
    pub async fn history(&self, run: RunId) -> String {
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
    pub fn assert_history(&self, run: RunId, expected: &str) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        let expected: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let expected = expected.join("\n");
        async move {
            let history = self.history(run).await;
            assert_eq!(history, expected, "\nhistory:\n{history}\nexpected at {place}:\n{expected}\n");
        }
    }

    /// Sends a payload to a hook.
    pub async fn send(&self, run: RunId, hook: &str, payload: u32) {
        self.client.send(run, hook, &payload).await.unwrap();
    }
}

fn line(event: &Event, at: Timestamp) -> String {
    let op = event.op().map(|op| format!("{op} ")).unwrap_or_default();
    let detail = match event {
        Event::StepStarted { name, .. } | Event::HookOpened { name, .. } => name.to_string(),
        Event::StepCompleted { output, .. } | Event::RunCompleted { output } => format!("{output:?}"),
        Event::StepFailed { failure, .. }
        | Event::RunFailed { failure }
        | Event::RunCancelled { failure } => failure.message.clone(),
        Event::StepRetried { retry_at, .. } => duration_text(retry_at.since(at)),
        Event::TimerStarted { fire_at, .. } => duration_text(fire_at.since(at)),
        Event::HookReceived { name, payload, .. } => format!("{name} {payload:?}"),
        Event::CancelRequested { reason, .. } => reason.clone(),
        _ => String::new(),
    };
    format!("{op}{} {detail}", event.kind()).trim_end().to_owned()
}

/// Where steps leave traces and wait for the test: the state of the rig's workers.
#[derive(Clone, Debug)]
pub struct Desk {
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
    pub fn leave(&self, text: impl Into<String>) {
        let note = (self.clock.now(), text.into());
        self.state.send_modify(|state| state.notes.push(note));
    }

    /// Traces so far.
    pub fn notes(&self) -> Vec<String> {
        self.state.borrow().notes.iter().map(|(_, text)| text.clone()).collect()
    }

    pub fn count(&self, text: &str) -> usize {
        self.state.borrow().notes.iter().filter(|(_, note)| note == text).count()
    }

    /// How long after the test's begin each trace of this text was left.
    pub fn times(&self, text: &str) -> Vec<String> {
        let state = self.state.borrow();
        let times = state.notes.iter().filter(|(_, note)| note == text);
        times.map(|(at, _)| duration_text(at.since(TestClock::BEGIN))).collect()
    }

    /// Waits until the trace was left so often.
    pub async fn until(&self, text: &str, count: usize) {
        let is_there =
            |state: &DeskState| state.notes.iter().filter(|(_, note)| note == text).count() >= count;
        self.state.subscribe().wait_for(is_there).await.unwrap();
    }

    /// Lets steps that are blocked at `gate` go on, now and later.
    pub fn open(&self, gate: &str) {
        self.state.send_modify(|state| drop(state.open.insert(gate.into())));
    }

    async fn passed(&self, gate: &str) {
        self.state.subscribe().wait_for(|state| state.open.contains(gate)).await.unwrap();
    }

    fn enter(&self) {
        self.state.send_modify(|state| {
            state.inside += 1;
            state.inside_max = state.inside_max.max(state.inside);
        });
    }

    fn exit(&self) {
        self.state.send_modify(|state| state.inside -= 1);
    }

    /// The greatest number of `note` steps that were under way at the same time.
    pub fn crowd(&self) -> usize {
        self.state.borrow().inside_max
    }
}

/// Leaves a trace and returns it.
#[step]
pub async fn note(cx: StepContext<Desk>, word: String) -> String {
    cx.state().enter();
    cx.state().leave(&word);
    tokio::task::yield_now().await;
    cx.state().exit();
    word
}

/// Begins, and ends when the test opens the gate of this name.
#[step]
pub async fn blocked(cx: StepContext<Desk>, gate: String) -> String {
    cx.state().leave(format!("began {gate}"));
    cx.state().passed(&gate).await;
    cx.state().leave(format!("ended {gate}"));
    gate
}

/// As `blocked`, but stops when it is told to.
#[step]
pub async fn stoppable(cx: StepContext<Desk>, gate: String) -> String {
    cx.state().leave(format!("began {gate}"));
    assert!(!cx.is_cancelled());
    select! {
        () = cx.cancelled() => "stopped".to_owned(),
        () = cx.state().passed(&gate) => "done".to_owned(),
    }
}

/// Fails so often, then returns the number of the attempt that succeeded.
#[step(attempts = 4, initial = "1s", multiplier = 2.0)]
pub async fn flaky(cx: StepContext<Desk>, fails: u32) -> Result<u32, StepError> {
    cx.state().leave("flaky");
    if cx.attempt() <= fails {
        return Err(StepError::msg(format!("failure {}", cx.attempt())));
    }
    Ok(cx.attempt())
}

/// The steps of this module, in few words.
pub trait Ask {
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
pub fn trace(run: RunId, what: &'static str) {
    *TRACES.lock().entry((run, what)).or_default() += 1;
}

/// How often workflow code did it.
pub fn traces(run: RunId, what: &'static str) -> u32 {
    TRACES.lock().get(&(run, what)).copied().unwrap_or_default()
}
