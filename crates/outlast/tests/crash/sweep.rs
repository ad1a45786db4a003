//! The sweep: a program killed at every one of its commit points.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::ledger::{Outputs, Place};
use crate::medley::BRANCHES;
use crate::picture::{Picture, Tally, check_tally, tally};
use crate::process::{Ending, Orders, Process, Program};

/// Children at the same time.
const LANES: usize = 3;

/// By when the next process has gone on with every run. Less than a session's 10 s, so that nobody
/// waited for one to expire; far more than it takes.
const TAKEOVER_MAX: Duration = Duration::from_secs(8);

#[test]
fn a_program_killed_at_any_commit_point_goes_on_and_ends_the_same() {
    sweep(Program::Medley);
}

#[test]
fn a_paranoid_program_killed_at_any_commit_point_goes_on_and_ends_the_same() {
    sweep(Program::ParanoidMedley);
}

/// What a program does when nobody kills it.
struct Reference {
    points: u64,
    outputs: Outputs,
    tally: Tally,
}

fn sweep(program: Program) {
    let reference = reference(program);
    let next = AtomicU64::new(1);
    let (killed, extra) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let point = next.fetch_add(1, Ordering::SeqCst);
                    if point > reference.points {
                        break;
                    }
                    let seen = Trial::new(program, point).run(&reference);
                    killed.fetch_add(u64::from(seen.was_killed), Ordering::SeqCst);
                    extra.fetch_add(seen.extra as u64, Ordering::SeqCst);
                }
            });
        }
    });
    let (killed, extra) = (killed.into_inner(), extra.into_inner());
    println!("{program:?}: {} points, killed at {killed}, {extra} attempts made once more", reference.points);
    // How many points there are depends on how turns fall into batches; few ends come before their point.
    assert!(killed * 10 >= reference.points * 9, "only {killed} of {} points were reached", reference.points);
}

fn reference(program: Program) -> Reference {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::new(folder.path());
    let ending = Process::start(Orders { program, folder: folder.path().into(), point: None }).end();
    assert_eq!(ending, Ending::Done);
    Picture::take(&place).check_end(keys());
    let (report, tally) = (place.report(), tally(&place.effects()));
    assert_eq!(report.outputs, expected_outputs());
    assert!(tally.values().all(|count| *count == 1), "without a crash every attempt is made once: {tally:?}");
    Reference { points: report.points, outputs: report.outputs, tally }
}

fn keys() -> Vec<String> {
    BRANCHES.map(|(key, _)| key.into()).into()
}

fn expected_outputs() -> Outputs {
    let outputs = [
        ("sequence", "one two three"),
        ("parallel", "a b c left right"),
        ("nap", "before after"),
        ("review", "early late true tell"),
        ("flaky", "attempt 3"),
        ("race", "won prize"),
        ("stopped", "Cancelled: cancelled: enough"),
    ];
    outputs.map(|(key, output)| (key.into(), output.into())).into()
}

/// One point: a life that ends there, and a second one.
struct Trial {
    program: Program,
    point: u64,
    folder: TempDir,
}

struct Seen {
    was_killed: bool,
    extra: usize,
}

impl Trial {
    fn new(program: Program, point: u64) -> Self {
        Self { program, point, folder: tempfile::tempdir().unwrap() }
    }

    fn run(self, reference: &Reference) -> Seen {
        let place = Place::new(self.folder.path());
        let ending = self.live(Some(self.point));
        let crash = Picture::take(&place.copy_database("at-kill"));
        crash.check_seen(&place.acks(), &place.effects());
        assert_eq!(self.live(None), Ending::Done);

        let end = Picture::take(&place);
        end.check_end(keys());
        assert_eq!(place.report().outputs, reference.outputs);
        check_takeover(&crash, &end, &place);
        let tally = tally(&place.effects());
        let crashes = [crash];
        let extra = check_tally(&tally, &reference.tally, &crashes);
        check_branches(&tally);
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
            eprintln!("{:?} failed at point {}; its folder stays: {folder}", self.program, self.point);
        }
    }
}

/// The second process went on at once with all that the first one left.
fn check_takeover(crash: &Picture, end: &Picture, place: &Place) {
    let second = place.lives()[1];
    for (key, left) in crash.runs.iter().filter(|(_, run)| !run.view.status.is_final()) {
        let next = &end.runs[key].history[left.history.len()];
        let waited = next.at.since(second);
        assert!(waited < TAKEOVER_MAX, "run {key} went on {waited:?} after the second process began");
    }
}

/// At most one more attempt for each branch that was under way.
fn check_branches(tally: &Tally) {
    let mut extra: BTreeMap<&str, usize> = BTreeMap::new();
    for ((key, _, _), count) in tally {
        *extra.entry(key).or_default() += count - 1;
    }
    for (key, branches) in BRANCHES {
        assert!(extra[key] <= branches, "{} attempts too many in {key}: {tally:?}", extra[key]);
    }
}
