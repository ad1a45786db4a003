//! B9, two workers: the throughput of two worker processes, compared with one; no step is attempted twice.

use outlast::prelude::*;

use super::count_workflow::count_at_once;
use super::throughput::{RUNS, STEPS, STEPS_TOTAL};
use super::worker_process::{AttemptCounts, WorkerProcess};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::Stopwatch;

/// Runs before, so that threads are up and statements prepared.
const WARM_UP_RUNS: usize = 200;

/// Steps per second of two worker processes, as a multiple of those of one.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B9",
    name: "two-workers",
    what: "B1 with the client apart: two worker processes against one; no step attempted twice",
    worlds: &[WorldKind::Postgres],
    rows: &[Row {
        id: "B9",
        what: "10,000 runs of 3 steps, two worker processes; x one",
        unit: "steps/s",
        target: Target::AtLeast(0.85).everywhere(),
    }],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let mut faults = Vec::new();
    let mut steps_s =
        |name: &str, workers| -> Result<f64> { measure(&env.url_of(name), workers, &mut faults) };
    // In this order, so that neither has the fresher server.
    let (one, two) = (steps_s("one", 1)?, steps_s("two", 2)?);
    let (two_again, one_again) = (steps_s("two_again", 2)?, steps_s("one_again", 1)?);
    let (one, two) = (f64::midpoint(one, one_again), f64::midpoint(two, two_again));
    eprint!("  one {one:.0} steps/s");
    Ok(vec![Measurement { faults, ..Measurement::relative(two, two / one) }])
}

/// Steps per second in an empty world with this many worker processes.
fn measure(url: &str, workers: usize, faults: &mut Vec<String>) -> Result<f64> {
    // Somebody makes the world before they come, so that they join at the same time.
    let world = block_on(async { Ok(outlast::open(url).await?) })?;
    drop(world);
    let processes = (0..workers).map(|_| WorkerProcess::start(url)).collect::<Result<Vec<_>>>()?;
    let seconds = block_on(async {
        let client = Client::new(outlast::open(url).await?);
        count_at_once(&client, WARM_UP_RUNS, STEPS).await?;
        let watch = Stopwatch::start();
        count_at_once(&client, RUNS, STEPS).await?;
        Ok(watch.seconds())
    })?;
    let deeds = processes.into_iter().map(WorkerProcess::stop).collect::<Result<Vec<_>>>()?;
    faults.extend(faults_of(&deeds));
    Ok(STEPS_TOTAL / seconds)
}

/// Nobody was killed and nothing fails, so each step is attempted once; a run that two hold has a step
/// that both attempt.
fn faults_of(deeds: &[AttemptCounts]) -> Vec<String> {
    let expected = (WARM_UP_RUNS + RUNS) as u64 * STEPS;
    let attempts: u64 = deeds.iter().map(|deeds| deeds.attempts).sum();
    let mut faults = Vec::new();
    if attempts != expected {
        faults.push(format!("{attempts} attempts were started for {expected} steps: {deeds:?}"));
    }
    if deeds.iter().any(|deeds| deeds.attempts == 0) {
        faults.push(format!("a worker had nothing to do: {deeds:?}"));
    }
    if deeds.iter().any(|deeds| deeds.sessions_lost > 0) {
        faults.push(format!("a worker lost its session: {deeds:?}"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(workers: &[(u64, u64)]) -> Vec<String> {
        let deeds = workers.iter().map(|(attempts, sessions_lost)| AttemptCounts {
            attempts: *attempts,
            sessions_lost: *sessions_lost,
        });
        faults_of(&deeds.collect::<Vec<_>>())
    }

    #[test]
    fn each_step_is_attempted_once_by_somebody() {
        assert_eq!(faults(&[(30_600, 0)]), [""; 0]);
        assert_eq!(faults(&[(10_600, 0), (20_000, 0)]), [""; 0]);
    }

    #[test]
    fn work_done_twice_or_by_one_alone_or_after_a_lost_session_is_a_fault() {
        assert!(faults(&[(10_601, 0), (20_000, 0)])[0].starts_with("30601 attempts were started for 30600"));
        assert!(faults(&[(30_600, 0), (0, 0)])[0].starts_with("a worker had nothing to do"));
        assert!(faults(&[(30_600, 1)])[0].starts_with("a worker lost its session"));
    }
}
