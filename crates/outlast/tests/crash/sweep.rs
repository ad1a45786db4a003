//! The sweep: a program killed at every one of its commit points.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use outlast::Timestamp;
use tempfile::TempDir;

use crate::ledger::{Outputs, Place};
use crate::medley::{Company, Expected, Replay};
use crate::picture::{Picture, Tally, check_tally, tally};
use crate::process::{Ending, Orders, Process, Program};
use crate::{medley, troubles};

/// Children at the same time.
const LANES: usize = 3;

/// How many points there are depends on how turns fall into batches. So the sweep goes on behind the
/// last point of the reference until so many programs have ended before they reached theirs.
const ENDED_MIN: u64 = 5;

/// By when the next process has gone on with every run. Less than a session's 10 s, so that nobody
/// waited for one to expire; far more than it takes.
const TAKEOVER_MAX: Duration = Duration::from_secs(8);

const ALONE: Program = Program::Medley(Company::Alone, Replay::WhenNeeded);
const TOGETHER: Program = Program::Medley(Company::Together, Replay::WhenNeeded);
const REPLAYED: Program = Program::Medley(Company::Together, Replay::EveryTurn);
const TROUBLED: Program = Program::Troubles;

/// The runs of a program.
fn runs(program: Program) -> &'static [Expected] {
    match program {
        Program::Troubles => &troubles::RUNS,
        _ => &medley::RUNS,
    }
}

#[test]
fn runs_one_after_another_survive_a_kill_at_every_commit_point() {
    sweep(ALONE, Ground::File, Points::All, Kills::Once);
}

#[test]
fn runs_at_the_same_time_survive_a_kill_at_every_commit_point() {
    sweep(TOGETHER, Ground::File, Points::All, Kills::Once);
}

#[test]
fn runs_that_are_always_replayed_survive_a_kill_at_every_commit_point() {
    sweep(REPLAYED, Ground::File, Points::All, Kills::Once);
}

#[test]
fn a_process_that_takes_over_may_be_killed_at_every_commit_point_too() {
    sweep(TOGETHER, Ground::File, Points::All, Kills::Twice);
}

#[test]
fn runs_in_trouble_survive_a_kill_at_every_commit_point() {
    sweep(TROUBLED, Ground::File, Points::All, Kills::Once);
}

#[test]
#[ignore = "takes a minute: cargo xtask chaos --sweep"]
fn runs_in_trouble_survive_a_kill_at_every_commit_point_of_their_recovery() {
    sweep(TROUBLED, Ground::File, Points::All, Kills::Twice);
}

/// On Postgres a sweep takes minutes, since the locks of the dead are free for a while before they are taken
/// over. So there are some points by chance, and all of them by `cargo xtask chaos --sweep --world postgres`.
#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;

    const GROUND: Ground = Ground::Server { hours_ahead: 0 };
    const SOME: Points = Points::Some(6);

    #[test]
    fn runs_one_after_another_survive_a_kill_at_some_commit_points() {
        sweep(ALONE, GROUND, SOME, Kills::Once);
    }

    #[test]
    fn runs_at_the_same_time_survive_a_kill_at_some_commit_points() {
        sweep(TOGETHER, GROUND, SOME, Kills::Once);
    }

    #[test]
    fn runs_that_are_always_replayed_survive_a_kill_at_some_commit_points() {
        sweep(REPLAYED, GROUND, SOME, Kills::Once);
    }

    #[test]
    fn a_process_that_takes_over_may_be_killed_at_some_commit_points_too() {
        sweep(TOGETHER, GROUND, SOME, Kills::Twice);
    }

    #[test]
    fn runs_in_trouble_survive_a_kill_at_some_commit_points() {
        sweep(TROUBLED, GROUND, SOME, Kills::Once);
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_runs_in_trouble() {
        sweep(TROUBLED, GROUND, Points::All, Kills::Once);
    }

    #[test]
    fn workers_whose_clocks_are_hours_off_do_all_the_same() {
        sweep(TOGETHER, Ground::Server { hours_ahead: 5 }, Points::Some(3), Kills::Once);
        sweep(TOGETHER, Ground::Server { hours_ahead: -5 }, Points::Some(3), Kills::Once);
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_runs_one_after_another() {
        sweep(ALONE, GROUND, Points::All, Kills::Once);
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_runs_at_the_same_time() {
        sweep(TOGETHER, GROUND, Points::All, Kills::Once);
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_runs_that_are_always_replayed() {
        sweep(REPLAYED, GROUND, Points::All, Kills::Once);
    }

    #[test]
    #[ignore = "takes minutes: cargo xtask chaos --sweep --world postgres"]
    fn every_point_of_a_process_that_takes_over() {
        sweep(TOGETHER, GROUND, Points::All, Kills::Twice);
    }
}

/// Where the runs are.
#[derive(Clone, Copy, Debug)]
enum Ground {
    /// In a file of their own.
    File,
    /// In a schema of their own on a server, whose clock is so many hours ahead of the workers'.
    #[cfg(feature = "postgres")]
    Server { hours_ahead: i64 },
}

impl Ground {
    /// Trials at the same time. On a server they wait, most of the time, for a takeover.
    fn lanes(self) -> usize {
        match self {
            Self::File => LANES,
            #[cfg(feature = "postgres")]
            Self::Server { .. } => 2 * LANES,
        }
    }

    /// How far the time of the runs is ahead of the time of the processes.
    fn ahead(self) -> i64 {
        match self {
            Self::File => 0,
            #[cfg(feature = "postgres")]
            Self::Server { hours_ahead } => hours_ahead * 3_600_000_000,
        }
    }
}

/// The points at which a program dies.
#[derive(Clone, Copy, Debug)]
enum Points {
    All,
    /// So many, by chance.
    #[cfg(feature = "postgres")]
    Some(u64),
}

impl Points {
    /// The points that the trials take one after another, for a life with so many.
    fn of(self, count: u64) -> PointSequence {
        match self {
            Self::All => PointSequence { count, chance: None },
            #[cfg(feature = "postgres")]
            Self::Some(_) => {
                let seed = std::env::var("OUTLAST_SEED")
                    .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
                println!("seed: OUTLAST_SEED={seed}");
                PointSequence { count, chance: Some(seed) }
            }
        }
    }

    /// Whether another trial is made. How many points a life has depends on how turns fall into batches, so some lives
    /// end before they reach their point.
    fn go_on(self, count: u64, so_far: Trials) -> bool {
        match self {
            Self::All => so_far.begun < count || so_far.ended < ENDED_MIN,
            #[cfg(feature = "postgres")]
            Self::Some(some) => {
                let killed_or_running = so_far.begun - so_far.ended;
                so_far.begun < some || (2 * killed_or_running < some && so_far.begun < 4 * some)
            }
        }
    }

    /// Of how many kills half are needed: a sweep that hardly kills proves nothing.
    fn wanted(self, count: u64) -> u64 {
        match self {
            Self::All => count,
            #[cfg(feature = "postgres")]
            Self::Some(some) => some,
        }
    }
}

/// The trials of a sweep so far.
#[derive(Clone, Copy, Default)]
struct Trials {
    begun: u64,
    killed: u64,
    /// Reached their end before their point.
    ended: u64,
    /// Attempts that were made once more.
    extra: usize,
}

/// Which point the trials take.
struct PointSequence {
    count: u64,
    /// The seed of points by chance; without one, they are taken in order.
    chance: Option<u64>,
}

impl PointSequence {
    fn nth(&self, nth: u64) -> u64 {
        self.chance
            .map_or(nth + 1, |seed| fastrand::Rng::with_seed(seed.wrapping_add(nth)).u64(1..=self.count))
    }
}

/// How many lives of a trial end by a kill.
#[derive(Clone, Copy, Debug)]
enum Kills {
    /// One life, which ends at the point.
    Once,
    /// One that ends half way, and another that ends at the point.
    Twice,
}

impl Kills {
    /// The points at which the lives before the one with the chosen point end.
    fn before(self, reference: u64) -> Vec<u64> {
        match self {
            Self::Once => Vec::new(),
            Self::Twice => vec![reference / 2],
        }
    }

    /// How many points the life has that is killed at the chosen one.
    fn points_of_last_life(self, program: Program, ground: Ground, reference: &Reference) -> u64 {
        match self {
            Self::Once => reference.points,
            Self::Twice => Trial::new(program, ground, self.before(reference.points)).run(reference).points,
        }
    }
}

/// What a program does when nobody kills it.
struct Reference {
    points: u64,
    outputs: Outputs,
    tally: Tally,
}

/// Lets a program die at the points, in a fresh place each.
fn sweep(program: Program, ground: Ground, points: Points, kills: Kills) {
    let reference = reference(program, ground);
    let count = kills.points_of_last_life(program, ground, &reference);
    let sequence = points.of(count);
    let trials = Mutex::new(Trials::default());
    let next = || {
        let mut trials = trials.lock().unwrap();
        points.go_on(count, *trials).then(|| {
            trials.begun += 1;
            sequence.nth(trials.begun)
        })
    };
    std::thread::scope(|scope| {
        for _ in 0..ground.lanes() {
            scope.spawn(|| {
                while let Some(point) = next() {
                    let mut lives = kills.before(reference.points);
                    lives.push(point);
                    let seen = Trial::new(program, ground, lives).run(&reference);
                    let mut trials = trials.lock().unwrap();
                    *(if seen.was_killed { &mut trials.killed } else { &mut trials.ended }) += 1;
                    trials.extra += seen.extra;
                }
            });
        }
    });
    let Trials { killed, extra, .. } = trials.into_inner().unwrap();
    println!(
        "{program:?} on {ground:?}: {count} points, killed at {killed}, {extra} attempts made once more"
    );
    let wanted = points.wanted(count);
    assert!(killed * 2 >= wanted, "only {killed} of {wanted} programs were killed");
}

fn reference(program: Program, ground: Ground) -> Reference {
    let trial = Trial::new(program, ground, Vec::new());
    let place = trial.place.clone();
    assert_eq!(trial.live(None), Ending::Done);
    check_end(program, &Picture::take(&place));
    let (report, tally) = (place.report(), tally(&place.effects()));
    let outputs: Outputs = runs(program).iter().map(|run| (run.key.into(), run.output.into())).collect();
    assert_eq!(report.outputs, outputs);
    assert!(tally.values().all(|count| *count == 1), "without a crash every attempt is made once: {tally:?}");
    Reference { points: report.points, outputs, tally }
}

fn check_end(program: Program, end: &Picture) {
    end.check_end(runs(program).iter().map(|run| run.key.into()));
    if program == TROUBLED {
        troubles::check_end(end);
    }
}

/// Lives that end at these points, and a last one that does not.
struct Trial {
    program: Program,
    ground: Ground,
    points: Vec<u64>,
    place: Place,
    folder: TempDir,
    #[cfg(feature = "postgres")]
    schema: Option<crate::server::Schema>,
}

struct Seen {
    /// Of the last life, which nobody killed.
    points: u64,
    /// Whether the last of the points was reached.
    was_killed: bool,
    extra: usize,
}

impl Trial {
    fn new(program: Program, ground: Ground, points: Vec<u64>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path());
        #[cfg(feature = "postgres")]
        if let Ground::Server { hours_ahead } = ground {
            let schema = crate::server::Schema::make(hours_ahead);
            let place = Place { elsewhere: Some(schema.url.clone()), ..place };
            return Self { program, ground, points, place, folder, schema: Some(schema) };
        }
        Self {
            program,
            ground,
            points,
            place,
            folder,
            #[cfg(feature = "postgres")]
            schema: None,
        }
    }

    fn run(self, reference: &Reference) -> Seen {
        let place = self.place.clone();
        let mut ending = Ending::Done;
        let mut crashes = Vec::new();
        for (life, point) in self.points.iter().enumerate() {
            ending = self.live(Some(*point));
            let crash = Picture::take(&place.copy_database(&format!("at-kill-{life}")));
            crash.check_seen(&place.acks(), &place.effects());
            crashes.push(crash);
        }
        assert_eq!(self.live(None), Ending::Done);

        #[cfg(feature = "postgres")]
        if let Some(schema) = &self.schema {
            schema.bury_the_dead();
        }
        let end = Picture::take(&place);
        check_end(self.program, &end);
        assert_eq!(place.session_locks(), 0, "no session's lock is left");
        assert_eq!(place.report().outputs, reference.outputs);
        check_takeover(crashes.last().unwrap(), &end, &place, self.ground.ahead());
        let tally = tally(&place.effects());
        let is_fixed = |key: &str| runs(self.program).iter().any(|run| run.key == key && run.is_fixed);
        let extra = check_tally(&tally, &reference.tally, &crashes, is_fixed);
        check_branches(runs(self.program), &tally, crashes.len());
        Seen { points: place.report().points, was_killed: ending == Ending::Killed, extra }
    }

    fn live(&self, point: Option<u64>) -> Ending {
        Process::start(Orders { program: self.program, place: self.place.clone(), point }).end()
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            let folder = self.folder.path().display();
            eprintln!(
                "{:?} on {:?} failed when killed at {:?}; its folder stays: {folder}",
                self.program, self.ground, self.points
            );
        }
    }
}

/// The last process went on at once with all that the one before it left.
fn check_takeover(crash: &Picture, end: &Picture, place: &Place, ahead: i64) {
    let began = place.lives().last().unwrap().as_micros() + ahead;
    let began = Timestamp::from_micros(began);
    for (key, left) in crash.runs.iter().filter(|(_, run)| !run.view.status.is_final()) {
        let next = &end.runs[key].history[left.history.len()];
        let waited = next.at.since(began);
        assert!(waited < TAKEOVER_MAX, "run {key} went on {waited:?} after the next process began");
    }
}

/// At most one more attempt for each branch and crash.
fn check_branches(runs: &[Expected], tally: &Tally, crashes: usize) {
    let mut extra: BTreeMap<&str, usize> = BTreeMap::new();
    for ((key, _, _), count) in tally {
        *extra.entry(key).or_default() += count - 1;
    }
    for run in runs {
        let (extra, allowed) = (extra[run.key], run.branches * crashes);
        assert!(extra <= allowed, "{extra} attempts too many in {}: {tally:?}", run.key);
    }
}
