//! Waiting for outputs: one timer for all callers, which notices timeouts, stuck runs and lost notifications.
//!
//! The clock is tokio's, which is paused: hours pass in no time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use outlast::core::event::{FORMAT, RULES};
use outlast::core::turn::LastTurn;
use outlast::core::{Busy, ClaimRequest, Clock, Code, Join, SessionId, SuspectRoom, Then, Turn, TurnId};
use outlast::prelude::*;
use outlast::{MemoryWorld, RunId, Stuck, StuckReason, Timestamp, World};
use outlast_testkit::TestClock;
use tokio::time::Instant;

use super::faulty_world::{Call, Faults, FaultyWorld};

/// Tokio's time, which a test can pause. For the engine it is real time: it polls and has timeouts.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        TestClock::BEGIN.plus(self.0.elapsed())
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        if at == Timestamp::NEVER {
            return Box::pin(std::future::pending());
        }
        let due = self.0 + at.since(TestClock::BEGIN);
        Box::pin(async move {
            tokio::time::sleep_until(due).await;
            Busy::uncounted()
        })
    }

    fn busy(&self) -> Busy {
        Busy::uncounted()
    }

    fn is_virtual(&self) -> bool {
        false
    }
}

/// Lets this time pass.
#[allow(clippy::disallowed_methods, reason = "the time is paused, so nothing waits")]
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

const ASKS: Workflow<(), u32> = Workflow::new("asks");

fn open() -> (Arc<dyn World>, Faults, Client) {
    let inner = Arc::new(MemoryWorld::new(Arc::new(TokioClock(Instant::now()))));
    let (world, faults) = FaultyWorld::wrap(inner, TestClock::new());
    let client = Client::new(world.clone());
    (world, faults, client)
}

async fn start(client: &Client, count: usize) -> Vec<RunHandle<u32>> {
    let mut runs = Vec::new();
    for _ in 0..count {
        runs.push(client.start(ASKS, ()).await.unwrap());
    }
    runs
}

/// Waits for the outputs of the runs, each in a task of its own.
fn wait_for_outputs(
    runs: &[RunHandle<u32>],
    client: &Client,
) -> Vec<tokio::task::JoinHandle<Result<u32, Error>>> {
    let wait = |run: &RunHandle<u32>| {
        let handle = client.handle::<u32>(run.id());
        tokio::spawn(async move { handle.output().await })
    };
    runs.iter().map(wait).collect()
}

/// Marks these runs as stuck, as a worker of an unknown build.
async fn mark_stuck(world: &Arc<dyn World>, runs: &[RunId]) {
    let (session, queues): (_, Arc<[Arc<str>]>) = (SessionId::from_bits(7), Arc::from(["default".into()]));
    let code: Arc<[Code]> = Arc::from([Code { workflow: "asks".into(), version: 1 }]);
    let join = Join {
        session,
        host: "test".into(),
        pid: 1,
        build: "broken".into(),
        code: code.clone(),
        queues: queues.clone(),
        time: Duration::from_secs(3_600),
        rules: RULES,
        format: FORMAT,
    };
    world.join(join).await.unwrap();
    let request = ClaimRequest {
        limit: 1_000,
        code,
        queues,
        build: "broken".into(),
        format: FORMAT,
        suspects: SuspectRoom::Nothing,
        ends_overdue_from: Timestamp::NEVER,
    };
    let claimed = world.claim(session, request).await.unwrap().claimed;
    let turn = |(number, claimed): (usize, &outlast::core::Claimed)| {
        let stuck = Stuck::new(StuckReason::Diverged, "no such step").in_build("broken");
        let then = if runs.contains(&claimed.run) { Then::Stuck(stuck) } else { Then::Release };
        let id = TurnId::from_bits(1_000 + number as u128);
        Turn { then, ..Turn::following(&LastTurn::of(claimed), id, claimed.turn_at, "broken".into()) }
    };
    let turns: Vec<_> = claimed.iter().enumerate().map(turn).collect();
    let answers = world.commit(session, &turns).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    world.leave(session).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_callers_cost_few_calls() {
    let (_world, faults, client) = open();
    let runs = start(&client, 1_000).await;
    let waiting = wait_for_outputs(&runs, &client);
    pass(Duration::from_secs(3_600)).await;
    assert!(waiting.iter().all(|caller| !caller.is_finished()));
    assert_eq!((faults.count(Call::Run), faults.count(Call::Runs)), (0, 0), "no run is stuck");
    let checks = faults.count(Call::Counts);
    assert!((360..=362).contains(&checks), "one check every ten seconds, not {checks}");
    let reads = faults.count(Call::Ended) - runs.len();
    assert!(reads <= checks * 100, "{reads} reads by {checks} checks");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn an_end_is_noticed_though_its_notification_was_lost() {
    let (_world, faults, client) = open();
    let runs = start(&client, 250).await;
    let (lost, gate) = (runs[200].id(), faults.hold(Call::Ended));
    let handle = client.handle::<u32>(lost);
    let caller = tokio::spawn(async move { handle.output().await });
    // The caller's call never returns, so it is not notified.
    gate.wait_for_call().await;
    let others = wait_for_outputs(&runs[..200], &client);
    client.terminate(lost, "test").await.unwrap();
    assert!(caller.await.unwrap().unwrap_err().is_cancelled());
    others.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn callers_are_told_that_their_run_is_stuck() {
    for awaited in [1, 20] {
        let (world, faults, client) = open();
        let runs = start(&client, 30).await;
        let waiting = wait_for_outputs(&runs[..awaited], &client);
        pass(Duration::from_secs(60)).await;
        let stuck: Vec<_> = runs.iter().map(RunHandle::id).collect();
        mark_stuck(&world, &stuck).await;
        let began = Instant::now();
        for (caller, run) in waiting.into_iter().zip(&runs) {
            let error = caller.await.unwrap().unwrap_err();
            assert!(error.is_stuck(), "{error}");
            assert_eq!(error.message(), format!("run {} is stuck: no such step", run.id()));
        }
        assert!(began.elapsed() <= Duration::from_secs(11), "with the next check");
        let calls = (faults.count(Call::Run), faults.count(Call::Runs));
        assert_eq!(calls, if awaited == 1 { (1, 0) } else { (0, 1) }, "as few calls as possible");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_a_timeout_gives_up_in_time() {
    let (_world, _faults, client) = open();
    let runs = start(&client, 3).await;
    let waiting = wait_for_outputs(&runs, &client);
    let began = Instant::now();
    let within = async |time: &str| {
        let error = runs[0].output_within(time).await.unwrap_err();
        (error.is_timeout(), began.elapsed().as_secs())
    };
    let (long, short, medium) = join!(within("1h"), within("3s"), within("20s"));
    assert_eq!((long, short, medium), ((true, 3_600), (true, 3), (true, 20)));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The timer runs on the runtime of the first caller.
#[test]
fn callers_keep_waiting_when_the_runtime_of_another_caller_shuts_down() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let client = first.block_on(async { Client::new(outlast::open("memory:").await.unwrap()) });
    let run = first.block_on(client.start(ASKS, ()).into_future()).unwrap();
    let early = run.output_within("1ms");
    assert!(first.block_on(early).unwrap_err().is_timeout());
    let late = std::thread::spawn(move || {
        let late = second.block_on(run.output_within("200ms"));
        late.unwrap_err().is_timeout()
    });
    drop(first);
    assert!(late.join().unwrap());
}
