//! Two processes on one file, or on one schema of a server.

use std::collections::{BTreeMap, BTreeSet};

use outlast::Client;
use tempfile::TempDir;

use crate::chains;
use crate::ledger::{Effect, Place};
use crate::loops::all_links;
use crate::picture::{Picture, block_on, tally};
use crate::process::{Ending, Orders, Process, Program, until};
#[cfg(feature = "postgres")]
use crate::server::Schema;

const RUNS: u32 = 40;

/// Runs that a process holds at the same time: few, so that the other one gets some.
const LIVE: usize = 4;

#[test]
fn two_processes_share_the_work_and_no_run_has_two_owners() {
    share(&Scene::on_a_file());
}

#[test]
fn when_one_of_two_processes_is_killed_the_other_finishes_everything() {
    finish(&Scene::on_a_file());
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;

    #[test]
    fn two_processes_share_the_work_and_no_run_has_two_owners() {
        share(&Scene::on_a_server());
    }

    #[test]
    fn when_one_of_two_processes_is_killed_the_other_finishes_everything() {
        finish(&Scene::on_a_server());
    }
}

fn share(scene: &Scene) {
    let place = &scene.place;
    let (first, second) = (live(place), live(place));
    let both = BTreeSet::from([first.id(), second.id()]);
    assert_eq!((first.end(), second.end()), (Ending::Done, Ending::Done));

    check_end(place);
    let effects = place.effects();
    assert_eq!(tally(&effects), all_links(RUNS), "every step was made once");
    let mut owners: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for effect in &effects {
        owners.entry(&effect.key).or_default().insert(effect.pid);
    }
    assert!(owners.values().all(|pids| pids.len() == 1), "a run that never waits stays with its owner");
    assert_eq!(owners.into_values().flatten().collect::<BTreeSet<_>>(), both, "both did some of the work");
}

fn finish(scene: &Scene) {
    let place = &scene.place;
    let (victim, survivor) = (live(place), live(place));
    let (dead, alive) = (victim.id(), survivor.id());
    let count = |effects: &[Effect], pid| effects.iter().filter(|effect| effect.pid == pid).count();
    until("both to work", || {
        let effects = place.effects();
        (count(&effects, dead) > 30 && count(&effects, alive) > 5).then_some(())
    });
    victim.kill();
    assert_eq!(survivor.end(), Ending::Done);

    check_end(place);
    let effects = place.effects();
    let tally = tally(&effects);
    assert_eq!(tally.keys().collect::<Vec<_>>(), all_links(RUNS).keys().collect::<Vec<_>>());
    let again: Vec<_> = tally.iter().filter(|(_, count)| **count > 1).collect();
    assert!(again.len() <= LIVE, "the dead process had {LIVE} steps under way, but made again are {again:?}");
    for ((key, op, _), _) in again {
        let pids: Vec<_> = effects
            .iter()
            .filter(|effect| effect.key == *key && effect.op == *op)
            .map(|effect| effect.pid)
            .collect();
        assert_eq!(pids, [dead, alive], "step {op} of {key} was made again by the survivor, once");
    }
}

/// A world with runs that no worker has seen yet.
struct Scene {
    place: Place,
    _folder: TempDir,
    #[cfg(feature = "postgres")]
    _schema: Option<Schema>,
}

impl Scene {
    fn on_a_file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path());
        start(&place);
        Self {
            place,
            _folder: folder,
            #[cfg(feature = "postgres")]
            _schema: None,
        }
    }

    #[cfg(feature = "postgres")]
    fn on_a_server() -> Self {
        let (folder, schema) = (tempfile::tempdir().unwrap(), Schema::make(0));
        let place = Place { elsewhere: Some(schema.url.clone()), ..Place::new(folder.path()) };
        start(&place);
        Self { place, _folder: folder, _schema: Some(schema) }
    }
}

fn start(place: &Place) {
    block_on(async {
        let client = Client::new(outlast::open(&place.url()).await?);
        chains::start(&client, place, RUNS).await
    });
}

fn live(place: &Place) -> Process {
    let program = Program::Chains { starts: 0, live: LIVE };
    Process::start(Orders { program, place: place.clone(), point: None })
}

fn check_end(place: &Place) {
    Picture::take(place).check_end((0..RUNS).map(chains::key));
    assert_eq!(place.report().outputs, chains::outputs(RUNS));
}
