//! BW: what a run costs the server: commits, and bytes of its log.

use std::time::Duration;

use outlast::prelude::*;

use super::b1::STEPS;
use super::child::measure_in_child;
use super::counting::{count_at_once, worker};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::env::{Env, WorldKind, block_on};
use crate::server::{Database, Sql};
use crate::stopwatch::{Stopwatch, pause};

/// Runs one after the other, and runs at once.
const ALONE_RUNS: usize = 1_000;
const AT_ONCE_RUNS: usize = 10_000;

/// How long the server may take to forget the connections of a process that has ended.
const LEAVE_PATIENCE: Duration = Duration::from_secs(30);

/// How often it is asked.
const LOOK: Duration = Duration::from_millis(10);

/// Commits and log per run, alone and under load.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BW",
    what: "commits and bytes of log per run of 3 steps, one after the other and 10,000 at once",
    worlds: &[WorldKind::Postgres],
    rows: &[
        told("BW alone", "per run of 3 steps, one after the other", "commits"),
        told("BW alone log", "per run of 3 steps, one after the other", "bytes"),
        told("BW load", "per run of 3 steps, 10,000 at once", "commits"),
        told("BW load log", "per run of 3 steps, 10,000 at once", "bytes"),
    ],
    run,
};

const fn told(id: &'static str, what: &'static str, unit: &'static str) -> Row {
    Row { id, what, unit, target: Target::Told.everywhere() }
}

/// The hidden subcommand that works.
pub(crate) const COMMAND: &str = "bw-child";

/// What the parent tells its child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BwPlan {
    /// Where the world is.
    url: String,
    /// How many runs there are in all.
    runs: usize,
    /// How many of them at once.
    at_once: usize,
}

fn run(env: &Env) -> Result<Vec<Measurement>> {
    let database = env.database()?;
    let cost = |runs: usize, at_once: usize| -> Result<[f64; 2]> {
        let before = Spent::look(database)?;
        measure_in_child(&[COMMAND, &env.url(), &runs.to_string(), &at_once.to_string()])?;
        let after = Spent::look(database)?;
        let per_run = |before: i64, after: i64| (after - before) as f64 / runs as f64;
        Ok([per_run(before.commits, after.commits), per_run(before.log_bytes, after.log_bytes)])
    };
    // The first makes the tables.
    cost(1, 1)?;
    let (alone, at_once) = (cost(ALONE_RUNS, 1)?, cost(AT_ONCE_RUNS, AT_ONCE_RUNS)?);
    Ok(alone.into_iter().chain(at_once).map(Measurement::absolute).collect())
}

/// Client and worker in one process, as in B1.
pub(crate) fn child(plan: &BwPlan) -> Result<()> {
    block_on(async {
        let world = outlast::open(&plan.url).await?;
        let worker = worker(&world).await?;
        let client = Client::new(world);
        for _ in 0..plan.runs / plan.at_once {
            count_at_once(&client, plan.at_once, STEPS).await?;
        }
        Ok(worker.stop().await?)
    })
}

/// What the server has done so far.
#[derive(Clone, Copy, Debug)]
struct Spent {
    commits: i64,
    log_bytes: i64,
}

impl Spent {
    /// Looks when nobody is connected to the database: a connection counts for itself, and adds up at its end.
    fn look(database: &Database) -> Result<Self> {
        let mut sql: Sql = database.server.sql()?;
        let name = database.name();
        let connected = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND backend_type = 'client backend'"
        );
        let watch = Stopwatch::start();
        while sql.one::<i64>(&connected)? > 0 {
            if watch.elapsed() > LEAVE_PATIENCE {
                return Err("the connections of a process that ended are still there".into());
            }
            pause(LOOK);
        }
        let commits = format!("SELECT xact_commit FROM pg_stat_database WHERE datname = '{name}'");
        let log = "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint";
        Ok(Self { commits: sql.one(&commits)?, log_bytes: sql.one(log)? })
    }
}
