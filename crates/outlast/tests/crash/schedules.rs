//! Three processes serve schedules that fire every second, and are killed again and again: every instant fires exactly
//! once.
//!
//! By default some schedules fire for some seconds. `OUTLAST_SCHEDULES=200x120` sets the number of schedules and of
//! seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast::core::{Clock, ListOrder, RunQuery, World};
use outlast::prelude::*;
use outlast::{CatchUp, Overlap, RunView, Status, SystemClock, Timestamp};

use crate::child::{ChildArgs, ChildProcess, Program, sleep_thread};
use crate::postgres_schema::Schema;
use crate::process_folder::{Outputs, ProcessFolder};
use crate::snapshot::block_on;

const PROCESSES: usize = 3;

#[test]
fn every_instant_of_a_schedule_fires_exactly_once_while_processes_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    check(&ProcessFolder::new(folder.path()));
}

mod on_postgres {
    use super::*;

    #[test]
    fn every_instant_of_a_schedule_fires_exactly_once_while_processes_are_killed() {
        throwaway::needs_postgres!();
        let (folder, schema) = (tempfile::tempdir().unwrap(), Schema::make(0));
        check(&ProcessFolder { world_url: Some(schema.url.clone()), ..ProcessFolder::new(folder.path()) });
    }
}

#[workflow]
async fn fired(ctx: Context) -> Result<i64, Error> {
    ctx.sleep("50ms").await?;
    Ok(ctx.scheduled_at().map_or(0, Timestamp::as_micros))
}

/// The program of the children: a worker, until the process is killed.
pub(crate) async fn run(world: Arc<dyn World>) -> Result<Outputs, Error> {
    let builder = Worker::builder(world).register(fired).session_time(Duration::from_secs(2));
    let _worker = builder.start().await?;
    std::future::pending().await
}

fn check(process_folder: &ProcessFolder) {
    let (schedules, seconds) = size();
    let seed = std::env::var("OUTLAST_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("seed: OUTLAST_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let begin = create(process_folder, schedules, seconds);
    let start_child = || {
        let (process_folder, point) = (process_folder.clone(), None);
        ChildProcess::start(ChildArgs { program: Program::Schedules, process_folder, point })
    };
    let mut children: Vec<_> = (0..PROCESSES).map(|_| start_child()).collect();
    let mut kills = 0;
    while SystemClock.now() < begin.plus(Duration::from_secs(seconds)) {
        sleep_thread(Duration::from_millis(rng.u64(300..1_500)));
        children.swap_remove(rng.usize(..children.len())).kill();
        children.push(start_child());
        kills += 1;
    }
    let patience = SystemClock.now().plus(Duration::from_secs(60 + seconds));
    loop {
        let open = runs_of(process_folder, |_| true, true);
        if open.is_empty() {
            break;
        }
        assert!(SystemClock.now() < patience, "{} runs have not ended: {:?}", open.len(), open.first());
        sleep_thread(Duration::from_millis(100));
    }
    drop(children);

    let mut instants: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for run in runs_of(process_folder, |run| &*run.workflow == "fired", false) {
        assert_eq!(run.status, Status::Completed, "{run:?}");
        let instant = run.key.as_deref().and_then(|key| key.rsplit(':').next()).unwrap().parse().unwrap();
        instants.entry(run.tags["outlast:schedule"].clone()).or_default().push(instant);
    }
    assert_eq!(instants.len(), schedules);
    let expected: Vec<_> = (0..seconds as i64).map(|second| begin.as_micros() + second * 1_000_000).collect();
    for (schedule, mut fired) in instants {
        fired.sort_unstable();
        assert_eq!(fired, expected, "{schedule}");
    }
    println!("{schedules} schedules for {seconds} s: {} firings, {kills} kills", schedules * expected.len());
}

/// The number of schedules, and for how many seconds they fire.
fn size() -> (usize, u64) {
    let text = std::env::var("OUTLAST_SCHEDULES").unwrap_or_else(|_| "12x6".into());
    let (schedules, seconds) = text.split_once('x').unwrap();
    (schedules.parse().unwrap(), seconds.parse().unwrap())
}

/// Creates the schedules, and returns their first instant.
fn create(process_folder: &ProcessFolder, schedules: usize, seconds: u64) -> Timestamp {
    block_on(async {
        let client = Client::new(outlast::open(&process_folder.url()).await?);
        let begin = SystemClock.now().plus(Duration::from_secs(2 + schedules as u64 / 50));
        let end = begin.plus(Duration::from_secs(seconds)).minus(Duration::from_micros(1));
        for number in 0..schedules {
            let schedule = client.schedule(format!("s{number}")).every("1s").start_at(begin).end_at(end);
            let schedule = schedule.overlap(Overlap::Allow).catch_up(CatchUp::All(1_000));
            schedule.start(fired, ()).await?;
        }
        Ok(begin)
    })
}

/// The runs that match, schedules included; only those that have not ended if `is_open` is set.
fn runs_of(
    process_folder: &ProcessFolder,
    is_wanted: impl Fn(&RunView) -> bool,
    is_open: bool,
) -> Vec<RunView> {
    let open = [Status::Pending, Status::Running, Status::Waiting, Status::Stuck];
    block_on(async {
        let client = Client::new(outlast::open(&process_folder.url()).await?);
        let statuses = if is_open { open.to_vec() } else { Vec::new() };
        let built_in = outlast::core::BuiltInRuns::Listed;
        let mut query = RunQuery { statuses, built_in, order: ListOrder::OldestFirst, ..RunQuery::default() };
        let mut runs = Vec::new();
        loop {
            let page = client.runs(query.clone()).await?;
            runs.extend(page.runs.into_iter().filter(&is_wanted));
            query.after = page.next;
            if query.after.is_none() {
                return Ok(runs);
            }
        }
    })
}
