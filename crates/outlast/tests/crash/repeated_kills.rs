//! A program is killed from outside at random times, repeatedly, on one file.

use std::time::Duration;
use throwaway::wait_until;

use crate::chain_program;
use crate::child::{ChildArgs, ChildExit, ChildProcess, Program, sleep_thread};
use crate::process_folder::ProcessFolder;
use crate::snapshot::{AttemptCounts, WorldSnapshot, attempt_counts, check_attempt_counts};

const KILLS: usize = 10;

/// The number of runs that the first child starts.
const RUNS: u32 = 50;

/// The number of runs that each child adds, so that there is always an open run.
const RUNS_PER_CHILD: u32 = 5;

#[test]
fn a_program_killed_repeatedly_loses_and_duplicates_nothing() {
    let seed = std::env::var("OUTLAST_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("seed: OUTLAST_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let process_folder = ProcessFolder::new(folder.path());
    let mut starts = RUNS;
    let start_child = |starts| {
        let program = Program::Chains { starts, live: 10_000 };
        ChildProcess::start(ChildArgs { program, process_folder: process_folder.clone(), point: None })
    };

    let (mut crashes, mut is_near_poison) = (Vec::new(), false);
    for number in 1.. {
        assert!(number <= 4 * KILLS, "the program ends before it can be killed");
        let mut child = start_child(starts);
        starts += RUNS_PER_CHILD;
        // One more kill would leave a run stuck as poison, so let this child finish.
        if std::mem::take(&mut is_near_poison) {
            assert_eq!(child.end(), ChildExit::Done);
            continue;
        }
        let enough = process_folder.effects().len() + rng.usize(1..=15);
        wait_until("some steps", || {
            (process_folder.effects().len() >= enough || child.has_ended()).then_some(())
        });
        sleep_thread(Duration::from_millis(rng.u64(0..40)));
        if child.has_ended() {
            continue;
        }
        child.kill();
        let crash = WorldSnapshot::take(&process_folder.copy_database(&format!("at-kill-{number}")));
        crash.check_acknowledged(&process_folder.acks(), &process_folder.effects());
        is_near_poison = crash.is_near_poison();
        crashes.push(crash);
        if crashes.len() == KILLS {
            break;
        }
    }
    assert_eq!(start_child(starts).end(), ChildExit::Done);

    WorldSnapshot::take(&process_folder).check_end((0..starts).map(chain_program::key));
    assert_eq!(process_folder.report().outputs, chain_program::outputs(starts));
    let repeated = check_attempt_counts(
        &attempt_counts(&process_folder.effects()),
        &all_attempts(starts),
        &crashes,
        |_| true,
    );
    println!("{starts} runs, {KILLS} kills, {repeated} attempts repeated");
}

/// Every step of every run.
pub(crate) fn all_attempts(starts: u32) -> AttemptCounts {
    let links = (0..starts).flat_map(|run| {
        (0..chain_program::STEPS).map(move |op| ((chain_program::key(run), u64::from(op), 1), 1))
    });
    links.collect()
}
