//! Simulation: the whole engine, several workers and clients, on one thread and in virtual time.
//!
//! A seed decides everything: the programs that workflows are, what clients do, and what goes wrong. The
//! world inside is [`MemoryWorld`](outlast::MemoryWorld), which is the specification; what is tested is
//! the engine around it. Calls to the world fail, are done and not answered, arrive late, out of order,
//! twice, or after their caller is gone; workers are killed at their calls, frozen beyond their session,
//! cut off, stopped and replaced.
//!
//! A real world can be the one inside too ([`check_seed_on`]): the simulation stands still while it is called.
//! And the programs can be run in real time ([`check_in_earnest`]).
//!
//! Then it becomes calm: nothing goes wrong any more, hooks get what they wait for, and every run must
//! come to its end. What is looked at while it happens and in the end stands in the table.
//!
//! | rule | where |
//! |---|---|
//! | what was acknowledged is there: starts, payloads, outputs | `check.rs` |
//! | only the holder commits, on the run's last turn; nobody gets a run that another one holds | `witness.rs` |
//! | histories only grow, without gaps, and are what was committed | `witness.rs`, `check.rs` |
//! | an attempt begins after the commit that announces it, and not before its time | `ledger.rs` |
//! | an attempt is made once per hold; at most once where the step says so | `ledger.rs` |
//! | outcomes are those of attempts, one per operation | `check.rs` |
//! | timers do not fire early; turns do not go back in time | `check.rs`, `witness.rs` |
//! | one run per key; a repeat is answered like the first | `witness.rs`, `client.rs` |
//! | payloads are recorded once, in their order, as they were sent | `hooks.rs` |
//! | the first open hook that can read a payload takes it; one that none can read is rejected, and the waits stay | `hooks.rs` |
//! | a payload is refused when the run keeps too many, and only then | `inside.rs` |
//! | an attempt has the heartbeat details of the failed or lost one before it, and no others | `ledger.rs` |
//! | parents and children agree how children ended | `check.rs` |
//! | a session is lost only when something happened to its worker | `inside.rs` |
//! | every run ends, and nobody is stuck without a reason | `check.rs`, `inside.rs` |
//! | histories replay, whole and in part | `check.rs` |
//! | counts are those of the runs | `check.rs` |
//!
//! That it finds bugs was tried by breaking the engine on purpose, one way at a time. How many of the
//! seeds named failed then:
//!
//! | broken on purpose | seeds that failed | what they said |
//! |---|---|---|
//! | commits are accepted from sessions that are gone or do not hold the run | 68 of 3,000 | is gone, and committed a turn |
//! | commits are accepted on another turn than the last | 27 of 6,000 | an invalid turn |
//! | a start is acknowledged before its commit | 54 of 400 | acknowledged, and there is none |
//! | consumed messages are not recorded as such | 3 of 3 | consumed nothing and was told |
//! | attempts that end during a commit are forgotten | 78 of 400 | pending for ever |
//! | attempts begin before the commit that announces them | 373 of 400 | it was not announced |
//! | a timer may fire over a message that came first | 7 of 6,000 | fired a timer without reading it |
//! | a step that is attempted at most once is attempted after a crash | 17 of 400 | attempted more than once |
//! | runs of a claim without an answer are not handed back | 27 of 400 | pending for ever |
//! | a message that was read is read again | 49 of 400 | told twice |
//! | timers fire 50 ms early | 35 of 400 | fired early |
//! | parents are not told of the end of children | 174 of 400 | waiting for ever |
//! | a dropped step that waits for its limit is attempted | 36 of 3,000 | it was dropped before |

mod census;
mod check;
mod client;
mod clock;
mod coverage;
mod crew;
mod earnest;
mod faults;
mod generate;
mod hooks;
mod inside;
mod ledger;
mod node;
mod program;
mod signal;
mod stage;
mod still;
mod values;
mod witness;
mod world;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use outlast::Simulated;
use outlast_core::{Clock, History, World};
use parking_lot::Mutex;

pub use self::coverage::{Coverage, Situation};
pub use self::earnest::check_in_earnest;
pub use self::witness::Tally;

use self::client::{Caller, Promises, help};
use self::clock::{SimClock, sleep};
use self::crew::{Build, Phase, Slot};
use self::signal::Signal;
use self::stage::Stage;
use self::still::{ShownClock, Still};
use self::values::forget_hooks;
use self::world::SimWorld;

/// How long runs may take to end once all is calm.
const CALM_MAX: Duration = Duration::from_secs(1_200);

/// What a simulation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimReport {
    /// The seed.
    pub seed: u64,
    /// A digest of all that happened, and of all histories.
    pub digest: u64,
    /// What must not be, and was.
    pub wrongs: Vec<String>,
    /// What happened: all of it, or the last of it.
    pub trace: Vec<String>,
    /// How much happened.
    pub tally: Tally,
}

/// From this seed on steps are queued, and workers serve some queues; what the seeds before it found stays
/// as it was.
pub const QUEUED_SEEDS: u64 = 1_000_000;

/// From this seed on what turns do to other runs is done later than their commits, and some workers are of an older
/// build.
pub const DEFERRED_SEEDS: u64 = 2_000_000;

/// Simulates a seed once.
pub fn simulate(seed: u64, keeps_trace: bool) -> SimReport {
    perform(seed, |clock| Stage::new(seed, keeps_trace, clock))
}

/// Simulates a seed once, on another world than the one in memory.
///
/// The world is opened with the clock that it is given, outside of any runtime, and is called by one at a time;
/// the simulation's time stands still meanwhile. Its threads, its statements and its answers are its own.
pub fn simulate_on(
    seed: u64,
    keeps_trace: bool,
    open: impl FnOnce(Arc<dyn Clock>) -> Arc<dyn World>,
) -> SimReport {
    perform(seed, |clock| {
        let shown = ShownClock::new(&clock);
        let world = open(Arc::new(shown.clone()));
        Arc::new(Stage::on(Arc::new(Still::new(world, shown)), seed, keeps_trace, clock))
    })
}

/// Simulates a seed once, and returns the histories of all its runs.
#[doc(hidden)]
pub fn histories(seed: u64) -> Vec<History> {
    let mut seen = None;
    let report = perform(seed, |clock| seen.insert(Stage::new(seed, false, clock)).clone());
    assert!(report.wrongs.is_empty(), "seed {seed} failed: {:?}", report.wrongs);
    let witness = seen.as_ref().map(|stage| stage.witness.lock());
    let runs = witness.iter().flat_map(|witness| &witness.runs);
    runs.map(|(run, seen)| History { run: *run, turns: seen.turns.clone() }).collect()
}

fn perform(seed: u64, set: impl FnOnce(SimClock) -> Arc<Stage>) -> SimReport {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O can be built");
    let clock = {
        let _entered = runtime.enter();
        SimClock::new()
    };
    forget_hooks();
    let stage = set(clock);
    let (report, simulated) = runtime.block_on(async {
        let simulated = Simulated::begin(seed, Arc::new(stage.clock.clone()));
        play_out(&stage).await;
        let wrongs = stage.wrongs();
        let mut tally = stage.witness.lock().tally;
        (tally.attempts, tally.attempts_again) = stage.ledger.lock().count();
        tally.calls = stage.calls();
        let (trace, digest) = stage.take_trace();
        (SimReport { seed, digest, wrongs, trace, tally }, simulated)
    });
    drop(runtime);
    drop(simulated);
    report
}

/// Simulates a seed twice, and compares.
///
/// # Errors
///
/// What went wrong, with the end of the trace and the command that repeats it.
pub fn check_seed(seed: u64) -> Result<Tally, String> {
    let (first, second) = (simulate(seed, false), simulate(seed, false));
    let mut wrongs = first.wrongs.clone();
    if first.digest != second.digest {
        wrongs.push("the same seed was not the same twice: something is not simulated".into());
    }
    verdict(first, &wrongs, &format!("cargo xtask sim --seeds 1 --from {seed}"))
}

/// Simulates a seed on another world than the one in memory, as [`simulate_on`] does: once, since what
/// happens inside a real world is not simulated, and may be otherwise the next time.
///
/// # Errors
///
/// As [`check_seed`]; `command` repeats it.
pub fn check_seed_on(
    seed: u64,
    open: impl FnOnce(Arc<dyn Clock>) -> Arc<dyn World>,
    command: &str,
) -> Result<Tally, String> {
    let report = simulate_on(seed, false, open);
    let wrongs = report.wrongs.clone();
    verdict(report, &wrongs, command)
}

fn verdict(report: SimReport, wrongs: &[String], command: &str) -> Result<Tally, String> {
    if wrongs.is_empty() {
        return Ok(report.tally);
    }
    let seed = report.seed;
    let trace = report.trace.iter().filter(|line| !line.contains(" end ")).cloned().collect::<Vec<_>>();
    Err(format!(
        "seed {seed} failed:\n  {}\nthe last that happened:\n{}\nrepeat it with: {command}",
        wrongs.join("\n  "),
        trace.join("\n"),
    ))
}

/// Chaos, then calm, then a look at everything.
async fn play_out(stage: &Arc<Stage>) {
    let promises = Arc::<Mutex<Promises>>::default();
    let phase = Arc::new(Signal::new(Phase::Chaos));
    let (slots, clients) = stage.chance(|rng| (rng.usize(1..4), rng.usize(1..4)));
    let has_older_build = stage.profile.has_older_build;
    let slots = if has_older_build { slots.max(2) } else { slots };
    stage.note("", format_args!("{:?}", stage.profile));
    let slot = |build: Build| Slot {
        stage: stage.clone(),
        promises: promises.clone(),
        phase: phase.clone(),
        build,
        rng: Rng::with_seed(stage.chance(|rng| rng.u64(..))),
    };
    let mut crew = Vec::new();
    for place in 0..slots {
        // Two builds that cannot read the same values are of use only when both are there.
        let has_all = place == 0 || stage.chance(|rng| rng.bool()) && !(has_older_build && place == 1);
        crew.push(tokio::spawn(slot(if has_all { Build::All } else { Build::Some }).fill()));
    }
    let mut callers = Vec::new();
    for _ in 0..clients {
        let node = stage.node("c");
        // Sessions of clients end with a call, or by themselves.
        node.excuse();
        let caller = Caller::new(stage, &node, SimWorld::new(stage, &node), &promises);
        let (actions, pause) = stage.chance(|rng| (rng.u32(2..12), rng.u64(0..4_000)));
        callers.push(tokio::spawn(caller.act(actions, Duration::from_millis(pause))));
    }
    chaos(stage).await;
    stage.calm_down();
    stage.note("", format_args!("calm"));
    phase.set(Phase::Calm);
    calm(stage, &promises).await;
    for caller in callers {
        caller.abort();
    }
    phase.set(Phase::Stop);
    for slot in crew {
        if tokio::time::timeout(CALM_MAX, slot).await.is_err() {
            stage.wrong("a worker does not stop".into());
        }
    }
    check::check(stage, &promises).await;
}

async fn chaos(stage: &Arc<Stage>) {
    let time = stage.chance(|rng| rng.u64(5_000..40_000));
    let mut left = time;
    while left > 0 {
        let nap = stage.chance(|rng| rng.u64(1..5_000)).min(left);
        sleep(Duration::from_millis(nap)).await;
        left -= nap;
        if stage.profile.has_jumps {
            let millis = stage.chance(|rng| rng.i64(-2_000..2_000));
            stage.note("", format_args!("the clock is set by {millis} ms"));
            stage.clock.jump(millis);
        }
    }
}

/// Helps runs to their end.
async fn calm(stage: &Arc<Stage>, promises: &Mutex<Promises>) {
    let (node, began) = (stage.node("h"), stage.clock.elapsed());
    // What is still on its way, and what clients are about to do.
    sleep(Duration::from_secs(25)).await;
    // Twice nothing: a run that has just ended may have left others to be started.
    let mut quiet = 0;
    while quiet < 2 && stage.clock.elapsed() - began < CALM_MAX {
        match help(stage, &node, promises).await {
            Ok(open) => quiet = if open == 0 { quiet + 1 } else { 0 },
            Err(error) => return stage.wrong(format!("the world inside fails: {error}")),
        }
        sleep(Duration::from_secs(2)).await;
    }
}
