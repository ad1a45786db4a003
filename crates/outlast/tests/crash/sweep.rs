//! The sweep: a program is killed at every one of its commit points.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use outlast::Timestamp;
use tempfile::TempDir;

use crate::child::{ChildArgs, ChildExit, ChildProcess, Program};
use crate::mixed_program::{ExpectedRun, Replay, StartOrder};
use crate::process_folder::{Effect, Outputs, ProcessFolder};
use crate::snapshot::{AttemptCounts, WorldSnapshot, attempt_counts, check_attempt_counts};
use crate::{
    compensating_program, failing_program, forked_program, long_program, mixed_program, orchestrated_program,
    retried_program, token_program,
};

/// The number of concurrent trials.
const CONCURRENT_TRIALS: usize = 3;

/// The number of points depends on how turns are batched. So the sweep continues after the last point of the reference
/// until this many children have ended before their kill point.
const SURVIVED_MIN: u64 = 5;

/// The time within which the next process must continue every run. Less than the session time of 10 s, so that a
/// takeover by an expired session fails the test; much more than a takeover takes.
const TAKEOVER_TIME_MAX: Duration = Duration::from_secs(8);

const SEQUENTIAL: Program = Program::Mixed(StartOrder::Sequential, Replay::WhenNeeded);
const CONCURRENT: Program = Program::Mixed(StartOrder::Concurrent, Replay::WhenNeeded);
const REPLAYED: Program = Program::Mixed(StartOrder::Concurrent, Replay::EveryTurn);
const FAILING: Program = Program::Failing;
const COMPENSATING: Program = Program::Compensating;
const RETRIED: Program = Program::Retried;
const FORKED: Program = Program::Forked;
const TOKENS: Program = Program::Tokens;
const LONG: Program = Program::Long;
const ORCHESTRATED: Program = Program::Orchestrated;

/// The runs of a program.
fn runs(program: Program) -> &'static [ExpectedRun] {
    match program {
        Program::Failing => &failing_program::RUNS,
        Program::Compensating => &compensating_program::RUNS,
        Program::Retried => &retried_program::RUNS,
        Program::Forked => &forked_program::RUNS,
        Program::Tokens => &token_program::RUNS,
        Program::Long => &long_program::RUNS,
        Program::Orchestrated => &orchestrated_program::RUNS,
        _ => &mixed_program::RUNS,
    }
}

#[test]
fn runs_one_after_another_survive_a_kill_at_every_commit_point() {
    sweep(SEQUENTIAL, WorldLocation::File, KillPoints::All, KillsPerTrial::Once);
}

#[test]
fn runs_at_the_same_time_survive_a_kill_at_every_commit_point() {
    sweep(CONCURRENT, WorldLocation::File, KillPoints::All, KillsPerTrial::Once);
}

#[test]
fn runs_that_are_always_replayed_survive_a_kill_at_every_commit_point() {
    sweep(REPLAYED, WorldLocation::File, KillPoints::All, KillsPerTrial::Once);
}

#[test]
fn a_process_that_takes_over_may_be_killed_at_every_commit_point_too() {
    sweep(CONCURRENT, WorldLocation::File, KillPoints::All, KillsPerTrial::Twice);
}

#[test]
fn runs_in_trouble_survive_a_kill_at_every_commit_point() {
    sweep(FAILING, WorldLocation::File, KillPoints::All, KillsPerTrial::Once);
}

#[test]
fn runs_that_are_retried_survive_a_kill_at_every_commit_point() {
    sweep(RETRIED, WorldLocation::File, KillPoints::All, KillsPerTrial::Once);
}

#[test]
fn runs_that_are_forked_survive_a_kill_at_every_commit_point() {
    sweep(FORKED, WorldLocation::File, KillPoints::All, KillsPerTrial::Once);
}

#[test]
fn runs_that_compensate_survive_a_kill_at_every_commit_point() {
    sweep(COMPENSATING, WorldLocation::File, KillPoints::All, KillsPerTrial::Once);
}

#[test]
fn runs_with_tokens_and_replies_survive_a_kill_at_every_commit_point() {
    sweep(TOKENS, WorldLocation::File, KillPoints::All, KillsPerTrial::Once);
}

#[test]
fn runs_that_loop_continue_and_stream_survive_a_kill_at_every_commit_point() {
    sweep(LONG, WorldLocation::File, KillPoints::All, KillsPerTrial::Once);
}

#[test]
fn sagas_schedules_deletions_and_starts_that_send_survive_a_kill_at_every_commit_point() {
    sweep(ORCHESTRATED, WorldLocation::File, KillPoints::All, KillsPerTrial::Once);
}

#[test]
#[ignore = "takes a minute: cargo xtask chaos --sweep"]
fn runs_that_compensate_survive_a_kill_at_every_commit_point_of_their_recovery() {
    sweep(COMPENSATING, WorldLocation::File, KillPoints::All, KillsPerTrial::Twice);
}

#[test]
#[ignore = "takes a minute: cargo xtask chaos --sweep"]
fn runs_in_trouble_survive_a_kill_at_every_commit_point_of_their_recovery() {
    sweep(FAILING, WorldLocation::File, KillPoints::All, KillsPerTrial::Twice);
}

/// On Postgres a sweep takes minutes, since a takeover waits for a while after a session's lock is released. So the
/// tests use some random points; `cargo xtask chaos --sweep --world postgres` uses all.
mod on_postgres {
    use super::*;

    const SERVER: WorldLocation = WorldLocation::Server { hours_ahead: 0 };
    const SOME: KillPoints = KillPoints::Some(6);

    #[test]
    fn runs_one_after_another_survive_a_kill_at_some_commit_points() {
        throwaway::needs_postgres!();
        sweep(SEQUENTIAL, SERVER, SOME, KillsPerTrial::Once);
    }

    #[test]
    fn runs_at_the_same_time_survive_a_kill_at_some_commit_points() {
        throwaway::needs_postgres!();
        sweep(CONCURRENT, SERVER, SOME, KillsPerTrial::Once);
    }

    #[test]
    fn runs_that_are_always_replayed_survive_a_kill_at_some_commit_points() {
        throwaway::needs_postgres!();
        sweep(REPLAYED, SERVER, SOME, KillsPerTrial::Once);
    }

    #[test]
    fn a_process_that_takes_over_may_be_killed_at_some_commit_points_too() {
        throwaway::needs_postgres!();
        sweep(CONCURRENT, SERVER, SOME, KillsPerTrial::Twice);
    }

    #[test]
    fn runs_in_trouble_survive_a_kill_at_some_commit_points() {
        throwaway::needs_postgres!();
        sweep(FAILING, SERVER, SOME, KillsPerTrial::Once);
    }

    #[test]
    fn runs_that_compensate_survive_a_kill_at_some_commit_points() {
        throwaway::needs_postgres!();
        sweep(COMPENSATING, SERVER, SOME, KillsPerTrial::Once);
    }

    #[test]
    fn runs_with_tokens_and_replies_survive_a_kill_at_some_commit_points() {
        throwaway::needs_postgres!();
        sweep(TOKENS, SERVER, SOME, KillsPerTrial::Once);
    }

    #[test]
    fn runs_that_are_retried_survive_a_kill_at_some_commit_points() {
        throwaway::needs_postgres!();
        sweep(RETRIED, SERVER, SOME, KillsPerTrial::Once);
    }

    #[test]
    fn runs_that_are_forked_survive_a_kill_at_some_commit_points() {
        throwaway::needs_postgres!();
        sweep(FORKED, SERVER, SOME, KillsPerTrial::Once);
    }

    #[test]
    fn runs_that_loop_continue_and_stream_survive_a_kill_at_some_commit_points() {
        throwaway::needs_postgres!();
        sweep(LONG, SERVER, SOME, KillsPerTrial::Once);
    }

    #[test]
    fn sagas_schedules_deletions_and_starts_that_send_survive_a_kill_at_some_commit_points() {
        throwaway::needs_postgres!();
        sweep(ORCHESTRATED, SERVER, SOME, KillsPerTrial::Once);
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_runs_with_tokens_retries_forks_loops_generations_and_streams() {
        throwaway::needs_postgres!();
        for program in [TOKENS, RETRIED, FORKED, LONG, ORCHESTRATED] {
            sweep(program, SERVER, KillPoints::All, KillsPerTrial::Once);
        }
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_runs_that_compensate() {
        throwaway::needs_postgres!();
        sweep(COMPENSATING, SERVER, KillPoints::All, KillsPerTrial::Once);
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_runs_in_trouble() {
        throwaway::needs_postgres!();
        sweep(FAILING, SERVER, KillPoints::All, KillsPerTrial::Once);
    }

    #[test]
    fn runs_survive_a_kill_when_the_clocks_of_workers_are_hours_off() {
        throwaway::needs_postgres!();
        sweep(CONCURRENT, WorldLocation::Server { hours_ahead: 5 }, KillPoints::Some(3), KillsPerTrial::Once);
        sweep(
            CONCURRENT,
            WorldLocation::Server { hours_ahead: -5 },
            KillPoints::Some(3),
            KillsPerTrial::Once,
        );
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_runs_one_after_another() {
        throwaway::needs_postgres!();
        sweep(SEQUENTIAL, SERVER, KillPoints::All, KillsPerTrial::Once);
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_runs_at_the_same_time() {
        throwaway::needs_postgres!();
        sweep(CONCURRENT, SERVER, KillPoints::All, KillsPerTrial::Once);
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_runs_that_are_always_replayed() {
        throwaway::needs_postgres!();
        sweep(REPLAYED, SERVER, KillPoints::All, KillsPerTrial::Once);
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_a_process_that_takes_over() {
        throwaway::needs_postgres!();
        sweep(CONCURRENT, SERVER, KillPoints::All, KillsPerTrial::Twice);
    }
}

/// Where the world is.
#[derive(Clone, Copy, Debug)]
enum WorldLocation {
    /// In a new SQLite file.
    File,
    /// In a new schema on a server, whose clock is this many hours ahead of the workers' clocks.
    Server { hours_ahead: i64 },
}

impl WorldLocation {
    /// The number of concurrent trials. On a server they mostly wait for a takeover.
    fn concurrent_trials(self) -> usize {
        match self {
            Self::File => CONCURRENT_TRIALS,
            Self::Server { .. } => 2 * CONCURRENT_TRIALS,
        }
    }

    /// How far the world's clock is ahead of the processes' clocks, in microseconds.
    fn clock_offset(self) -> i64 {
        match self {
            Self::File => 0,
            Self::Server { hours_ahead } => hours_ahead * 3_600_000_000,
        }
    }
}

/// The commit points at which children are killed.
#[derive(Clone, Copy, Debug)]
enum KillPoints {
    All,
    /// This many, at random.
    Some(u64),
}

impl KillPoints {
    /// The sequence of points for a child with `count` points.
    fn of(self, count: u64) -> PointSequence {
        match self {
            Self::All => PointSequence { count, seed: None },
            Self::Some(_) => {
                let seed = std::env::var("OUTLAST_SEED")
                    .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
                println!("seed: OUTLAST_SEED={seed}");
                PointSequence { count, seed: Some(seed) }
            }
        }
    }

    /// Whether another trial is needed. The number of points depends on how turns are batched, so some children end
    /// before they reach their point.
    fn needs_more(self, count: u64, so_far: TrialCounts) -> bool {
        match self {
            Self::All => so_far.started < count || so_far.survived < SURVIVED_MIN,
            Self::Some(some) => {
                let killed_or_running = so_far.started - so_far.survived;
                killed_or_running < some && so_far.started < 4 * some
            }
        }
    }

    /// The number of kills that a sweep of the program must have made, or it proves too little. For all points it is about
    /// 70 % of the usual number, because turns that share a commit also share its points.
    fn kills_min(self, program: Program, kills: KillsPerTrial) -> u64 {
        match (self, kills, program) {
            (Self::Some(some), ..) => some,
            (Self::All, KillsPerTrial::Twice, COMPENSATING) => 18,
            (Self::All, KillsPerTrial::Twice, _) => 35,
            (Self::All, KillsPerTrial::Once, FAILING) => 45,
            (Self::All, KillsPerTrial::Once, COMPENSATING) => 30,
            (Self::All, KillsPerTrial::Once, RETRIED) => 25,
            (Self::All, KillsPerTrial::Once, FORKED) => 15,
            (Self::All, KillsPerTrial::Once, TOKENS) => 8,
            (Self::All, KillsPerTrial::Once, LONG) => 12,
            (Self::All, KillsPerTrial::Once, ORCHESTRATED) => 80,
            (Self::All, KillsPerTrial::Once, SEQUENTIAL) => 105,
            (Self::All, KillsPerTrial::Once, _) => 65,
        }
    }
}

/// The trials of a sweep so far.
#[derive(Clone, Copy, Default)]
struct TrialCounts {
    started: u64,
    killed: u64,
    /// Children that ended before their point.
    survived: u64,
    /// Repeated attempts.
    repeated: usize,
}

/// The sequence of kill points.
struct PointSequence {
    count: u64,
    /// The seed of random points; without one, they ascend.
    seed: Option<u64>,
}

impl PointSequence {
    fn nth(&self, nth: u64) -> u64 {
        self.seed.map_or(nth + 1, |seed| fastrand::Rng::with_seed(seed.wrapping_add(nth)).u64(1..=self.count))
    }
}

/// How many children of a trial are killed.
#[derive(Clone, Copy, Debug)]
enum KillsPerTrial {
    /// One child, at the chosen point.
    Once,
    /// One child half way, and another at the chosen point.
    Twice,
}

impl KillsPerTrial {
    /// The kill points of the children before the last killed one.
    fn before(self, reference: u64) -> Vec<u64> {
        match self {
            Self::Once => Vec::new(),
            Self::Twice => vec![reference / 2],
        }
    }

    /// The number of points of the last killed child.
    fn points_of_last_child(
        self,
        program: Program,
        location: WorldLocation,
        reference: &ReferenceRun,
    ) -> u64 {
        match self {
            Self::Once => reference.points,
            Self::Twice => {
                KilledTrial::new(program, location, self.before(reference.points)).run(reference).points
            }
        }
    }
}

/// The results of a program that is not killed.
struct ReferenceRun {
    points: u64,
    outputs: Outputs,
    attempt_counts: AttemptCounts,
}

/// Kills a program at each of the points, in a new folder each.
fn sweep(program: Program, location: WorldLocation, points: KillPoints, kills: KillsPerTrial) {
    let reference = reference(program, location);
    let count = kills.points_of_last_child(program, location, &reference);
    let sequence = points.of(count);
    let trials = Mutex::new(TrialCounts::default());
    let next = || {
        let mut trials = trials.lock().unwrap();
        points.needs_more(count, *trials).then(|| {
            trials.started += 1;
            sequence.nth(trials.started)
        })
    };
    std::thread::scope(|scope| {
        for _ in 0..location.concurrent_trials() {
            scope.spawn(|| {
                while let Some(point) = next() {
                    let mut kill_points = kills.before(reference.points);
                    kill_points.push(point);
                    let result = KilledTrial::new(program, location, kill_points).run(&reference);
                    let mut trials = trials.lock().unwrap();
                    *(if result.was_killed { &mut trials.killed } else { &mut trials.survived }) += 1;
                    trials.repeated += result.repeated;
                }
            });
        }
    });
    let TrialCounts { killed, repeated, .. } = trials.into_inner().unwrap();
    println!("{program:?} on {location:?}: {count} points, killed at {killed}, {repeated} attempts repeated");
    let kills_min = points.kills_min(program, kills);
    assert!(killed >= kills_min, "only {killed} children were killed at their point, fewer than {kills_min}");
}

fn reference(program: Program, location: WorldLocation) -> ReferenceRun {
    let trial = KilledTrial::new(program, location, Vec::new());
    let process_folder = trial.process_folder.clone();
    assert_eq!(trial.run_child(None), ChildExit::Done);
    check_end(program, &WorldSnapshot::take(&process_folder), &process_folder.effects());
    let (report, attempt_counts) = (process_folder.report(), attempt_counts(&process_folder.effects()));
    let outputs: Outputs = runs(program).iter().map(|run| (run.key.into(), run.output.into())).collect();
    assert_eq!(report.outputs, outputs);
    assert!(
        attempt_counts.values().all(|count| *count == 1),
        "without a crash every attempt is made once: {attempt_counts:?}"
    );
    ReferenceRun { points: report.points, outputs, attempt_counts }
}

fn check_end(program: Program, end: &WorldSnapshot, effects: &[Effect]) {
    end.check_end(runs(program).iter().map(|run| run.key.into()));
    match program {
        FAILING => failing_program::check_end(end),
        COMPENSATING => compensating_program::check_end(end, effects),
        RETRIED => retried_program::check_end(end),
        FORKED => forked_program::check_end(end),
        LONG => long_program::check_end(end),
        ORCHESTRATED => orchestrated_program::check_end(end),
        _ => {}
    }
}

/// Children that are killed at these points, and a last one that is not killed.
struct KilledTrial {
    program: Program,
    location: WorldLocation,
    points: Vec<u64>,
    process_folder: ProcessFolder,
    folder: TempDir,
    schema: Option<crate::postgres_schema::Schema>,
}

struct TrialResult {
    /// The number of points of the last child.
    points: u64,
    /// Whether the last kill point was reached.
    was_killed: bool,
    repeated: usize,
}

impl KilledTrial {
    fn new(program: Program, location: WorldLocation, points: Vec<u64>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process_folder = ProcessFolder::new(folder.path());
        if let WorldLocation::Server { hours_ahead } = location {
            let schema = crate::postgres_schema::Schema::make(hours_ahead);
            let process_folder = ProcessFolder { world_url: Some(schema.url.clone()), ..process_folder };
            return Self { program, location, points, process_folder, folder, schema: Some(schema) };
        }
        Self { program, location, points, process_folder, folder, schema: None }
    }

    fn run(self, reference: &ReferenceRun) -> TrialResult {
        let process_folder = self.process_folder.clone();
        let mut exit = ChildExit::Done;
        let mut crashes = Vec::new();
        for (number, point) in self.points.iter().enumerate() {
            exit = self.run_child(Some(*point));
            let crash = WorldSnapshot::take(&process_folder.copy_database(&format!("at-kill-{number}")));
            crash.check_acknowledged(&process_folder.acks(), &process_folder.effects());
            crashes.push(crash);
        }
        assert_eq!(self.run_child(None), ChildExit::Done);

        if let Some(schema) = &self.schema {
            schema.end_dead_sessions();
        }
        let end = WorldSnapshot::take(&process_folder);
        check_end(self.program, &end, &process_folder.effects());
        assert_eq!(process_folder.session_locks(), 0, "no session's lock is left");
        assert_eq!(process_folder.report().outputs, reference.outputs);
        check_takeover(crashes.last().unwrap(), &end, &process_folder, self.location.clock_offset());
        let attempt_counts = attempt_counts(&process_folder.effects());
        let is_deterministic =
            |key: &str| runs(self.program).iter().any(|run| run.key == key && run.is_deterministic);
        let repeated =
            check_attempt_counts(&attempt_counts, &reference.attempt_counts, &crashes, is_deterministic);
        check_branches(runs(self.program), &attempt_counts, crashes.len());
        TrialResult {
            points: process_folder.report().points,
            was_killed: exit == ChildExit::Killed,
            repeated,
        }
    }

    fn run_child(&self, point: Option<u64>) -> ChildExit {
        ChildProcess::start(ChildArgs {
            program: self.program,
            process_folder: self.process_folder.clone(),
            point,
        })
        .end()
    }
}

impl Drop for KilledTrial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            let folder = self.folder.path().display();
            eprintln!(
                "{:?} on {:?} failed when killed at {:?}; the folder is kept: {folder}",
                self.program, self.location, self.points
            );
        }
    }
}

/// The last process continued all open runs within the time limit.
fn check_takeover(
    crash: &WorldSnapshot,
    end: &WorldSnapshot,
    process_folder: &ProcessFolder,
    clock_offset: i64,
) {
    let began = process_folder.child_starts().last().unwrap().as_micros() + clock_offset;
    let began = Timestamp::from_micros(began);
    for (key, left) in crash.runs.iter().filter(|(_, run)| !run.view.status.is_final()) {
        // A run that the program has deleted is not there any more.
        let Some(run) = end.runs.get(key) else { continue };
        let committed = left.history.last().map_or(0, |turn| turn.seq);
        let next = run.history.iter().find(|turn| turn.seq > committed).unwrap();
        let waited = next.at.since(began);
        assert!(
            waited < TAKEOVER_TIME_MAX,
            "run {key} continued only {waited:?} after the next process began"
        );
    }
}

/// At most one attempt is repeated per branch and crash.
fn check_branches(runs: &[ExpectedRun], attempt_counts: &AttemptCounts, crashes: usize) {
    let mut repeated: BTreeMap<&str, usize> = BTreeMap::new();
    for ((key, _, _), count) in attempt_counts {
        *repeated.entry(key).or_default() += count - 1;
    }
    for run in runs {
        // A run without steps has no attempts.
        let repeated = repeated.get(run.key).copied().unwrap_or(0);
        let allowed = run.branches * crashes;
        assert!(repeated <= allowed, "{repeated} attempts too many in {}: {attempt_counts:?}", run.key);
    }
}
