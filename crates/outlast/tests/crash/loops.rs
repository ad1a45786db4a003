//! A program killed from outside at random instants, again and again, on one file.

use std::time::Duration;

use crate::chains;
use crate::ledger::Place;
use crate::picture::{Picture, Tally, check_tally, tally};
use crate::process::{Ending, Orders, Process, Program, nap, until};

const KILLS: usize = 10;

/// Runs in flight from the beginning.
const RUNS: u32 = 50;

/// Runs that each life adds, so that there is always something to interrupt.
const RUNS_PER_LIFE: u32 = 5;

#[test]
fn a_program_killed_again_and_again_loses_and_doubles_nothing() {
    let seed = std::env::var("OUTLAST_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("seed: OUTLAST_SEED={seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let place = Place::new(folder.path());
    let mut starts = RUNS;
    let live = |starts| {
        let program = Program::Chains { starts, live: 10_000 };
        Process::start(Orders { program, place: place.clone(), point: None })
    };

    let (mut crashes, mut is_near_poison) = (Vec::new(), false);
    for life in 1.. {
        assert!(life <= 4 * KILLS, "the program ends before it can be killed");
        let mut process = live(starts);
        starts += RUNS_PER_LIFE;
        // A run that dies with it once too often is held for the cause, and rightly so: it must get on.
        if std::mem::take(&mut is_near_poison) {
            assert_eq!(process.end(), Ending::Done);
            continue;
        }
        let enough = place.effects().len() + chance.usize(1..=15);
        until("some steps", || (place.effects().len() >= enough || process.has_ended()).then_some(()));
        nap(Duration::from_millis(chance.u64(0..40)));
        if process.has_ended() {
            continue;
        }
        process.kill();
        let crash = Picture::take(&place.copy_database(&format!("at-kill-{life}")));
        crash.check_seen(&place.acks(), &place.effects());
        is_near_poison = crash.is_near_poison();
        crashes.push(crash);
        if crashes.len() == KILLS {
            break;
        }
    }
    assert_eq!(live(starts).end(), Ending::Done);

    Picture::take(&place).check_end((0..starts).map(chains::key));
    assert_eq!(place.report().outputs, chains::outputs(starts));
    let extra = check_tally(&tally(&place.effects()), &all_links(starts), &crashes, |_| true);
    println!("{starts} runs, {KILLS} kills, {extra} attempts made once more");
}

/// Every step of every run.
pub(crate) fn all_links(starts: u32) -> Tally {
    let links = (0..starts)
        .flat_map(|run| (0..chains::STEPS).map(move |op| ((chains::key(run), u64::from(op), 1), 1)));
    links.collect()
}
