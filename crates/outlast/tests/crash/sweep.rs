//! The sweep: a program killed at every one of its commit points.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::ledger::{Outputs, Place};
use crate::medley::{Company, RUNS, Replay};
use crate::picture::{Picture, Tally, check_tally, tally};
use crate::process::{Ending, Orders, Process, Program};

/// Children at the same time.
const LANES: usize = 3;

/// How many points there are depends on how turns fall into batches. So the sweep goes on behind the
/// last point of the reference until so many programs have ended before they reached theirs.
const ENDED_MIN: u64 = 5;

/// By when the next process has gone on with every run. Less than a session's 10 s, so that nobody
/// waited for one to expire; far more than it takes.
const TAKEOVER_MAX: Duration = Duration::from_secs(8);

#[test]
fn runs_one_after_another_survive_a_kill_at_every_commit_point() {
    sweep(Program::Medley(Company::Alone, Replay::WhenNeeded), |point, _| vec![point]);
}

#[test]
fn runs_at_the_same_time_survive_a_kill_at_every_commit_point() {
    sweep(Program::Medley(Company::Together, Replay::WhenNeeded), |point, _| vec![point]);
}

#[test]
fn runs_that_are_always_replayed_survive_a_kill_at_every_commit_point() {
    sweep(Program::Medley(Company::Together, Replay::EveryTurn), |point, _| vec![point]);
}

#[test]
fn a_process_that_takes_over_may_be_killed_at_every_commit_point_too() {
    let program = Program::Medley(Company::Together, Replay::WhenNeeded);
    sweep(program, |point, reference| vec![reference / 2, point]);
}

/// What a program does when nobody kills it.
struct Reference {
    points: u64,
    outputs: Outputs,
    tally: Tally,
}

/// Lets a program die at every point, in a fresh folder each; `kills` says at which points the lives
/// before the last one end.
fn sweep(program: Program, kills: impl Fn(u64, u64) -> Vec<u64> + Sync) {
    let reference = reference(program);
    let next = AtomicU64::new(1);
    let (killed, ended, extra) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let point = next.fetch_add(1, Ordering::SeqCst);
                    if point > reference.points && ended.load(Ordering::SeqCst) >= ENDED_MIN {
                        break;
                    }
                    let seen = Trial::new(program, kills(point, reference.points)).run(&reference);
                    let count = if seen.was_killed { &killed } else { &ended };
                    count.fetch_add(1, Ordering::SeqCst);
                    extra.fetch_add(seen.extra as u64, Ordering::SeqCst);
                }
            });
        }
    });
    let (points, killed, extra) = (reference.points, killed.into_inner(), extra.into_inner());
    println!("{program:?}: {points} points, killed at {killed}, {extra} attempts made once more");
}

fn reference(program: Program) -> Reference {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::new(folder.path());
    let ending = Process::start(Orders { program, folder: folder.path().into(), point: None }).end();
    assert_eq!(ending, Ending::Done);
    Picture::take(&place).check_end(keys());
    let (report, tally) = (place.report(), tally(&place.effects()));
    let outputs: Outputs = RUNS.iter().map(|run| (run.key.into(), run.output.into())).collect();
    assert_eq!(report.outputs, outputs);
    assert!(tally.values().all(|count| *count == 1), "without a crash every attempt is made once: {tally:?}");
    Reference { points: report.points, outputs, tally }
}

fn keys() -> Vec<String> {
    RUNS.iter().map(|run| run.key.into()).collect()
}

/// Lives that end at these points, and a last one that does not.
struct Trial {
    program: Program,
    points: Vec<u64>,
    folder: TempDir,
}

struct Seen {
    /// Whether the last of the points was reached.
    was_killed: bool,
    extra: usize,
}

impl Trial {
    fn new(program: Program, points: Vec<u64>) -> Self {
        Self { program, points, folder: tempfile::tempdir().unwrap() }
    }

    fn run(self, reference: &Reference) -> Seen {
        let place = Place::new(self.folder.path());
        let mut ending = Ending::Done;
        let mut crashes = Vec::new();
        for (life, point) in self.points.iter().enumerate() {
            ending = self.live(Some(*point));
            let crash = Picture::take(&place.copy_database(&format!("at-kill-{life}")));
            crash.check_seen(&place.acks(), &place.effects());
            crashes.push(crash);
        }
        assert_eq!(self.live(None), Ending::Done);

        let end = Picture::take(&place);
        end.check_end(keys());
        assert_eq!(place.session_locks(), 0, "no session's lock is left");
        assert_eq!(place.report().outputs, reference.outputs);
        check_takeover(crashes.last().unwrap(), &end, &place);
        let tally = tally(&place.effects());
        let extra = check_tally(&tally, &reference.tally, &crashes);
        check_branches(&tally, crashes.len());
        Seen { was_killed: ending == Ending::Killed, extra }
    }

    fn live(&self, point: Option<u64>) -> Ending {
        Process::start(Orders { program: self.program, folder: self.folder.path().into(), point }).end()
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            let folder = self.folder.path().display();
            eprintln!(
                "{:?} failed when killed at {:?}; its folder stays: {folder}",
                self.program, self.points
            );
        }
    }
}

/// The last process went on at once with all that the one before it left.
fn check_takeover(crash: &Picture, end: &Picture, place: &Place) {
    let began = *place.lives().last().unwrap();
    for (key, left) in crash.runs.iter().filter(|(_, run)| !run.view.status.is_final()) {
        let next = &end.runs[key].history[left.history.len()];
        let waited = next.at.since(began);
        assert!(waited < TAKEOVER_MAX, "run {key} went on {waited:?} after the next process began");
    }
}

/// At most one more attempt for each branch and crash.
fn check_branches(tally: &Tally, crashes: usize) {
    let mut extra: BTreeMap<&str, usize> = BTreeMap::new();
    for ((key, _, _), count) in tally {
        *extra.entry(key).or_default() += count - 1;
    }
    for run in &RUNS {
        let (extra, allowed) = (extra[run.key], run.branches * crashes);
        assert!(extra <= allowed, "{extra} attempts too many in {}: {tally:?}", run.key);
    }
}
