//! Two processes on one SQLite file, or on one schema of a server.

use std::collections::{BTreeMap, BTreeSet};

use outlast::Client;
use tempfile::TempDir;
use throwaway::wait_until;

use crate::chain_program;
use crate::child::{ChildArgs, ChildExit, ChildProcess, Program};
use crate::postgres_schema::Schema;
use crate::process_folder::{Effect, ProcessFolder};
use crate::repeated_kills::all_attempts;
use crate::snapshot::{WorldSnapshot, attempt_counts, block_on};

const RUNS: u32 = 40;

/// The maximum number of live runs of a process: low, so that both processes get some.
const LIVE: usize = 4;

#[test]
fn two_processes_share_the_work_and_no_run_has_two_owners() {
    check_shared_work(&SharedWorld::on_a_file());
}

#[test]
fn when_one_of_two_processes_is_killed_the_other_finishes_everything() {
    check_survivor_finishes(&SharedWorld::on_a_file());
}

mod on_postgres {
    use super::*;

    #[test]
    fn two_processes_share_the_work_and_no_run_has_two_owners() {
        throwaway::needs_postgres!();
        check_shared_work(&SharedWorld::on_a_server());
    }

    #[test]
    fn when_one_of_two_processes_is_killed_the_other_finishes_everything() {
        throwaway::needs_postgres!();
        check_survivor_finishes(&SharedWorld::on_a_server());
    }
}

fn check_shared_work(shared: &SharedWorld) {
    let process_folder = &shared.process_folder;
    let (first, second) = (start_child(process_folder), start_child(process_folder));
    let both = BTreeSet::from([first.id(), second.id()]);
    assert_eq!((first.end(), second.end()), (ChildExit::Done, ChildExit::Done));

    check_end(process_folder);
    let effects = process_folder.effects();
    assert_eq!(attempt_counts(&effects), all_attempts(RUNS), "every step was made once");
    let mut owners: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for effect in &effects {
        owners.entry(&effect.key).or_default().insert(effect.pid);
    }
    assert!(owners.values().all(|pids| pids.len() == 1), "a run that never waits stays with its owner");
    assert_eq!(owners.into_values().flatten().collect::<BTreeSet<_>>(), both, "both did some of the work");
}

fn check_survivor_finishes(shared: &SharedWorld) {
    let process_folder = &shared.process_folder;
    let (victim, survivor) = (start_child(process_folder), start_child(process_folder));
    let (dead, alive) = (victim.id(), survivor.id());
    let count = |effects: &[Effect], pid| effects.iter().filter(|effect| effect.pid == pid).count();
    wait_until("both to work", || {
        let effects = process_folder.effects();
        (count(&effects, dead) > 30 && count(&effects, alive) > 5).then_some(())
    });
    victim.kill();
    assert_eq!(survivor.end(), ChildExit::Done);

    check_end(process_folder);
    let effects = process_folder.effects();
    let attempt_counts = attempt_counts(&effects);
    assert_eq!(attempt_counts.keys().collect::<Vec<_>>(), all_attempts(RUNS).keys().collect::<Vec<_>>());
    let again: Vec<_> = attempt_counts.iter().filter(|(_, count)| **count > 1).collect();
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

/// A world with runs that no worker has claimed yet.
struct SharedWorld {
    process_folder: ProcessFolder,
    _folder: TempDir,
    _schema: Option<Schema>,
}

impl SharedWorld {
    fn on_a_file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process_folder = ProcessFolder::new(folder.path());
        start(&process_folder);
        Self { process_folder, _folder: folder, _schema: None }
    }

    fn on_a_server() -> Self {
        let (folder, schema) = (tempfile::tempdir().unwrap(), Schema::make(0));
        let process_folder =
            ProcessFolder { world_url: Some(schema.url.clone()), ..ProcessFolder::new(folder.path()) };
        start(&process_folder);
        Self { process_folder, _folder: folder, _schema: Some(schema) }
    }
}

fn start(process_folder: &ProcessFolder) {
    block_on(async {
        let client = Client::new(outlast::open(&process_folder.url()).await?);
        chain_program::start(&client, process_folder, RUNS).await
    });
}

fn start_child(process_folder: &ProcessFolder) -> ChildProcess {
    let program = Program::Chains { starts: 0, live: LIVE };
    ChildProcess::start(ChildArgs { program, process_folder: process_folder.clone(), point: None })
}

fn check_end(process_folder: &ProcessFolder) {
    WorldSnapshot::take(process_folder).check_end((0..RUNS).map(chain_program::key));
    assert_eq!(process_folder.report().outputs, chain_program::outputs(RUNS));
}
