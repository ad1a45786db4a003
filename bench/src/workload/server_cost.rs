//! BW, server cost: commits of the server and bytes of its log per run.

use std::time::Duration;

use outlast::prelude::*;

use super::child_process::measure_in_child;
use super::count_workflow::{count_at_once, worker};
use super::throughput::STEPS;
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::server::{Database, Sql};
use crate::stopwatch::{Stopwatch, pause};

/// Runs one after the other, and runs at once.
const ALONE_RUNS: usize = 1_000;
const AT_ONCE_RUNS: usize = 10_000;

/// How long the server may take to close the connections of a process that has ended.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Commits and log per run, alone and under load.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BW",
    name: "server-cost",
    what: "commits and bytes of log per run of 3 steps, one after the other and 10,000 at once",
    worlds: &[WorldKind::Postgres],
    rows: &[
        row_without_target("BW alone", "per run of 3 steps, one after the other", "commits"),
        row_without_target("BW alone log", "per run of 3 steps, one after the other", "bytes"),
        row_without_target("BW load", "per run of 3 steps, 10,000 at once", "commits"),
        row_without_target("BW load log", "per run of 3 steps, 10,000 at once", "bytes"),
    ],
    run,
};

const fn row_without_target(id: &'static str, what: &'static str, unit: &'static str) -> Row {
    Row { id, what, unit, target: Target::Unlimited.everywhere() }
}

/// The hidden subcommand that works.
pub(crate) const COMMAND: &str = "bw-child";

/// The arguments of the child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerCostArgs {
    /// The URL of the world.
    url: String,
    /// How many runs there are in all.
    runs: usize,
    /// How many of them at once.
    at_once: usize,
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let database = env.database()?;
    let cost = |runs: usize, at_once: usize| -> Result<[f64; 2]> {
        let before = ServerCounters::read_now(database)?;
        measure_in_child(&[COMMAND, &env.url(), &runs.to_string(), &at_once.to_string()])?;
        let after = ServerCounters::read_now(database)?;
        let per_run = |before: i64, after: i64| (after - before) as f64 / runs as f64;
        Ok([per_run(before.commits, after.commits), per_run(before.log_bytes, after.log_bytes)])
    };
    // The first call creates the tables.
    cost(1, 1)?;
    let (alone, at_once) = (cost(ALONE_RUNS, 1)?, cost(AT_ONCE_RUNS, AT_ONCE_RUNS)?);
    Ok(alone.into_iter().chain(at_once).map(Measurement::absolute).collect())
}

/// Client and worker in one process, as in B1.
pub(crate) fn child(options: &ServerCostArgs) -> Result<()> {
    block_on(async {
        let world = outlast::open(&options.url).await?;
        let worker = worker(&world).await?;
        let client = Client::new(world);
        for _ in 0..options.runs / options.at_once {
            count_at_once(&client, options.at_once, STEPS).await?;
        }
        Ok(worker.stop().await?)
    })
}

/// Counters of the server.
#[derive(Clone, Copy, Debug)]
struct ServerCounters {
    commits: i64,
    log_bytes: i64,
}

impl ServerCounters {
    /// Reads the counters when no client is connected to the database: a connection adds its counts at its end.
    fn read_now(database: &Database) -> Result<Self> {
        let mut sql: Sql = database.server.sql()?;
        let name = database.name();
        let connected = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND backend_type = 'client backend'"
        );
        let watch = Stopwatch::start();
        while sql.one::<i64>(&connected)? > 0 {
            if watch.elapsed() > DISCONNECT_TIMEOUT {
                return Err("the connections of a process that has ended are still open".into());
            }
            pause(POLL_INTERVAL);
        }
        let commits = format!("SELECT xact_commit FROM pg_stat_database WHERE datname = '{name}'");
        let log = "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint";
        Ok(Self { commits: sql.one(&commits)?, log_bytes: sql.one(log)? })
    }
}
