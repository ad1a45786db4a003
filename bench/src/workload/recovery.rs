//! B7, recovery: how fast runs continue after `kill -9`; checks that nothing was lost or done too often.

pub(super) mod child;
mod effects;

use std::time::Duration;

use outlast::Status;
use outlast::prelude::*;

use self::effects::{Effects, STEPS};
use super::child_process::ChildProcess;
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::{Stopwatch, pause};

/// The runs in flight.
const RUNS: usize = 500;

/// The effects after which the child is killed: half of all.
const EFFECTS_AT_KILL: usize = RUNS * STEPS / 2;

/// The interval at which the parent checks the effects.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Seconds from the restart, or from the kill of one of two, to the last output.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B7",
    name: "recovery",
    what: "500 runs of 10 steps (1 ms each) in flight, SIGKILL half-way, then a restart, on postgres a \
           second process that is there already; exact counts",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[Row {
        id: "B7",
        what: "500 runs of 10 steps killed half-way, until all done",
        unit: "s",
        target: Target::AtMost(3.0).but_on_postgres(Target::AtMost(4.0)),
    }],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let mut faults = Vec::new();
    let (at_kill, seconds) = match env.world {
        WorldKind::Postgres => one_of_two(env, &mut faults)?,
        WorldKind::Sqlite | WorldKind::Memory => restart(env)?,
    };
    faults.extend(Effects::read(&env.folder)?.faults(RUNS));
    let completed = block_on(completed(env))?;
    if completed != RUNS as u64 {
        faults.push(format!("{completed} of {RUNS} runs are completed"));
    }
    if at_kill >= RUNS * STEPS {
        faults.push("all steps were done before the process was killed".into());
    }
    Ok(vec![Measurement { faults, ..Measurement::absolute(seconds) }])
}

/// Kills the only process and starts it again: the effects at the kill, and the seconds since the restart.
fn restart(env: &Environment) -> Result<(usize, f64)> {
    let mut first = process(env)?;
    first.go();
    wait_half_way(env, &mut first)?;
    drop(first);
    let at_kill = Effects::count(&env.folder);
    let watch = Stopwatch::start();
    wait_until_done(&mut process(env)?)?;
    Ok((at_kill, watch.seconds()))
}

/// Kills one of two processes: the effects at the kill, and the seconds until the other had all outputs.
fn one_of_two(env: &Environment, faults: &mut Vec<String>) -> Result<(usize, f64)> {
    let (mut first, mut second) = (process(env)?, process(env)?);
    first.go();
    second.go();
    wait_half_way(env, &mut first)?;
    let (at_kill, pid) = (Effects::count(&env.folder), first.pid());
    let watch = Stopwatch::start();
    drop(first);
    let held = block_on(held(env, pid))?;
    wait_until_done(&mut second)?;
    let seconds = watch.seconds();
    eprint!("  {held} runs held by the one killed");
    if held == 0 {
        faults.push("the process that was killed held no run".into());
    }
    Ok((at_kill, seconds))
}

/// A process that starts the runs, or finds them by their keys, and works until all are done.
fn process(env: &Environment) -> Result<ChildProcess> {
    let (url, folder) = (env.url(), env.folder.display().to_string());
    ChildProcess::start(&[child::COMMAND, &url, &folder, &RUNS.to_string()])
}

/// Waits until half of the effects are there.
fn wait_half_way(env: &Environment, process: &mut ChildProcess) -> Result<()> {
    while Effects::count(&env.folder) < EFFECTS_AT_KILL {
        if let Some(status) = process.ended()? {
            return Err(format!("a process of B7 ended before it was killed: {status}").into());
        }
        pause(POLL_INTERVAL);
    }
    Ok(())
}

fn wait_until_done(process: &mut ChildProcess) -> Result<()> {
    match process.last_line()?.as_str() {
        child::DONE => Ok(()),
        output => Err(format!("a process of B7 ended early with the output `{output}`").into()),
    }
}

/// How many runs the worker of this process holds, alive or not.
async fn held(env: &Environment, pid: u32) -> Result<u64> {
    let workers = env.open().await?.workers().await?;
    Ok(workers.iter().filter(|worker| worker.pid == pid).map(|worker| worker.held).sum())
}

/// How many runs the file says are completed.
async fn completed(env: &Environment) -> Result<u64> {
    let counts = Client::new(env.open().await?).counts().await?;
    Ok(counts.get(&Status::Completed).copied().unwrap_or(0))
}
