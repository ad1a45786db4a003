//! The programs of a simulation in earnest: in real time, on several threads, by workers that have the world
//! to themselves as processes of their own would. Nothing goes wrong but that one of them is gone.
//!
//! A seed decides what is asked for, and not in which order it is done. So the rules are those that hold for
//! histories, outputs and attempts, whatever the order was.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use outlast::{Error, Worker};
use outlast_core::World;
use parking_lot::Mutex;

use super::check::check;
use super::client::{Caller, Promises, help};
use super::clock::sleep;
use super::ledger::Desk;
use super::node::Node;
use super::program::{FAR, hasty, once, play, rare, work};
use super::stage::Stage;
use super::witness::Tally;

/// Workers at the same time.
const WORKERS: usize = 3;

const CLIENTS: usize = 2;

/// How long runs may take to end. Far more than they need.
const PATIENCE: Duration = Duration::from_secs(120);

/// So long a worker may be busy with other things before it loses its session.
const SESSION: Duration = Duration::from_secs(10);

/// Runs the programs of a seed in real time. Each call of `open` opens the same world, as another process would;
/// it is called outside of any runtime.
///
/// # Errors
///
/// What went wrong, with the end of the trace.
pub fn check_in_earnest(seed: u64, open: impl Fn() -> Arc<dyn World>) -> Result<Tally, String> {
    let mut worlds: Vec<_> = (0..WORKERS + 2).map(|_| open()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("there is no runtime: {error}"))?;
    let (tally, wrongs, trace) = runtime.block_on(async {
        let inner = worlds.remove(0);
        let stage = Stage::in_earnest(inner, seed);
        if let Err(error) = play_out(&stage, worlds).await {
            stage.wrong(format!("a worker cannot work: {error}"));
        }
        let mut tally = stage.witness.lock().tally;
        (tally.attempts, tally.attempts_again) = stage.ledger.lock().count();
        (tally, stage.wrongs(), stage.take_trace().0)
    });
    // Waiters of runs that nobody waits for any more.
    runtime.shutdown_background();
    if wrongs.is_empty() {
        return Ok(tally);
    }
    let trace = trace.iter().filter(|line| !line.contains(" end ")).cloned().collect::<Vec<_>>();
    Err(format!(
        "seed {seed} failed:\n  {}\nthe last that happened:\n{}",
        wrongs.join("\n  "),
        trace.join("\n")
    ))
}

/// Clients and workers, one of which is replaced, and then a look at everything.
async fn play_out(stage: &Arc<Stage>, mut worlds: Vec<Arc<dyn World>>) -> Result<(), Error> {
    let promises = Arc::<Mutex<Promises>>::default();
    let mut rng = Rng::with_seed(stage.chance(|rng| rng.u64(..)));
    let callers: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let caller = Caller::new(stage, &stage.node("c"), stage.inner.clone(), &promises);
            tokio::spawn(caller.act(stage.chance(|rng| rng.u32(6..16)), Duration::from_millis(100)))
        })
        .collect();
    let mut workers = Vec::new();
    for world in worlds.drain(..WORKERS) {
        let node = stage.node("w");
        workers.push((start(stage, &node, world, &mut rng).await?, node));
    }
    sleep(Duration::from_millis(rng.u64(0..1_000))).await;
    let (victim, node) = workers.remove(0);
    stage.note(&node.name, format_args!("is killed"));
    stage.witness.lock().tally.crashes += 1;
    node.kill();
    victim.crash();
    for world in worlds {
        let node = stage.node("w");
        workers.push((start(stage, &node, world, &mut rng).await?, node));
    }
    for caller in callers {
        // One that panicked has said so.
        let _ = caller.await;
    }
    let helper = stage.node("h");
    let began = stage.clock.elapsed();
    while help(stage, &helper, &promises).await? > 0 && stage.clock.elapsed() - began < PATIENCE {
        sleep(Duration::from_millis(50)).await;
    }
    for (worker, _) in workers {
        worker.stop().await?;
    }
    check(stage, &promises).await;
    Ok(())
}

async fn start(
    stage: &Arc<Stage>,
    node: &Arc<Node>,
    world: Arc<dyn World>,
    rng: &mut Rng,
) -> Result<Worker, Error> {
    let builder = Worker::builder(world)
        .state(Desk { stage: stage.clone(), node: node.clone() })
        .register((play, rare, work, once, hasty))
        .build("in earnest")
        .queues(["default", FAR])
        .session_time(SESSION)
        .live_runs([2, 5, 100][rng.usize(0..3)])
        .cached_futures([0, 1, 100][rng.usize(0..3)]);
    let builder = builder.part_events([1, 3, 500][rng.usize(0..3)]);
    let builder = if rng.u32(0..4) == 0 { builder.paranoid() } else { builder };
    builder.start().await
}
