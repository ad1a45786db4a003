//! Runs the programs of a simulation in real time and on several threads. Each worker opens the world by itself, as a
//! process of its own would. The only fault is the death of one worker.
//!
//! The seed determines the requests, but not their order. So only the rules are checked that hold for
//! histories, outputs and attempts in any order.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use outlast::{Error, Worker};
use outlast_core::World;
use parking_lot::Mutex;

use super::attempt_log::StepState;
use super::check::check;
use super::client::{Acknowledged, SimulatedClient, unblock_runs};
use super::clock::sleep;
use super::environment::Environment;
use super::node::Node;
use super::observer::Statistics;
use super::program::{FAR, once, play, rare, time_limited, work};

/// Workers at the same time.
const WORKERS: usize = 3;

const CLIENTS: usize = 2;

/// How long runs may take to end: much longer than they need.
const PATIENCE: Duration = Duration::from_secs(120);

/// Long, so that a worker on a busy machine does not lose its session.
const SESSION: Duration = Duration::from_secs(10);

/// Runs the programs of a seed in real time. Each call of `open` opens the same world for another process;
/// it is called outside of any runtime.
///
/// # Errors
///
/// The violated rules, with the end of the trace.
pub fn check_in_real_time(seed: u64, open: impl Fn() -> Arc<dyn World>) -> Result<Statistics, String> {
    let mut worlds: Vec<_> = (0..WORKERS + 2).map(|_| open()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("the runtime does not start: {error}"))?;
    let (statistics, violations, trace) = runtime.block_on(async {
        let inner = worlds.remove(0);
        let env = Environment::in_real_time(inner, seed);
        if let Err(error) = run_simulation(&env, worlds).await {
            env.report_violation(format!("a worker failed: {error}"));
        }
        let mut statistics = env.observer.lock().statistics;
        (statistics.attempts, statistics.attempts_again) = env.attempt_log.lock().count();
        (statistics, env.violations(), env.take_trace().0)
    });
    // Tasks that wait for outputs may still be running.
    runtime.shutdown_background();
    if violations.is_empty() {
        return Ok(statistics);
    }
    let trace = trace.iter().filter(|line| !line.contains(" end ")).cloned().collect::<Vec<_>>();
    Err(format!(
        "seed {seed} failed:\n  {}\nend of the trace:\n{}",
        violations.join("\n  "),
        trace.join("\n")
    ))
}

/// Runs clients and workers, replaces one worker, and then checks everything.
async fn run_simulation(env: &Arc<Environment>, mut worlds: Vec<Arc<dyn World>>) -> Result<(), Error> {
    let acknowledged = Arc::<Mutex<Acknowledged>>::default();
    let mut rng = Rng::with_seed(env.random(|rng| rng.u64(..)));
    let client_tasks: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = SimulatedClient::new(env, &env.node("c"), env.inner.clone(), &acknowledged);
            tokio::spawn(client.run_actions(env.random(|rng| rng.u32(6..16)), Duration::from_millis(100)))
        })
        .collect();
    let mut workers = Vec::new();
    for world in worlds.drain(..WORKERS) {
        let node = env.node("w");
        workers.push((start(env, &node, world, &mut rng).await?, node));
    }
    sleep(Duration::from_millis(rng.u64(0..1_000))).await;
    let (victim, node) = workers.remove(0);
    env.log(&node.name, format_args!("is killed"));
    env.observer.lock().statistics.crashes += 1;
    node.kill();
    victim.crash();
    for world in worlds {
        let node = env.node("w");
        workers.push((start(env, &node, world, &mut rng).await?, node));
    }
    for client in client_tasks {
        // A client that panicked has printed why.
        let _ = client.await;
    }
    let helper = env.node("h");
    let began = env.clock.elapsed();
    while unblock_runs(env, &helper, &acknowledged).await? > 0 && env.clock.elapsed() - began < PATIENCE {
        sleep(Duration::from_millis(50)).await;
    }
    for (worker, _) in workers {
        worker.stop().await?;
    }
    check(env, &acknowledged).await;
    Ok(())
}

async fn start(
    env: &Arc<Environment>,
    node: &Arc<Node>,
    world: Arc<dyn World>,
    rng: &mut Rng,
) -> Result<Worker, Error> {
    let builder = Worker::builder(world)
        .state(StepState { env: env.clone(), node: node.clone() })
        .register((play, rare, work, once, time_limited))
        .build("real-time")
        .queues(["default", FAR])
        .session_time(SESSION)
        .live_runs([2, 5, 100][rng.usize(0..3)])
        .cached_futures([0, 1, 100][rng.usize(0..3)]);
    let builder = builder.part_events([1, 3, 500][rng.usize(0..3)]);
    let builder = if rng.u32(0..4) == 0 { builder.paranoid() } else { builder };
    builder.start().await
}
