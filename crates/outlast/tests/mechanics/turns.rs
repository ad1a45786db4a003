//! Turns and commits: their content, batching, the codec, and starts on a local worker.

use futures_util::future::join_all;
use outlast::core::{Event, Payload, PayloadError};
use outlast::prelude::*;
use outlast::{Codec, ErrorKind, RunId, Status, StuckReason};

use super::faulty_world::{Call, Gate};
use super::test_engine::{StepCalls, StepState, TestEngine, note, on_every_world, trace, traces};

on_every_world! {
    each_turn_records_its_id_time_and_build,
    a_sequential_step_costs_one_commit,
    headers_survive,
    payloads_pass_the_codec_and_no_plain_text_is_stored,
    a_client_without_the_codec_gets_an_error_with_its_name,
    a_worker_without_the_codec_does_not_end_the_run,
    while_one_commit_is_under_way_the_next_batch_gathers,
    an_invalid_turn_does_not_affect_others_of_its_batch,
    a_start_beside_a_worker_is_one_commit_with_the_first_step,
    a_start_is_plain_when_the_worker_is_full,
    a_start_is_plain_when_the_worker_has_not_the_code,
    a_handed_over_start_with_a_known_key_returns_the_run_of_that_key,
}

#[workflow]
async fn two_turns(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await?;
    ctx.hook::<u32>("x").await.map(drop)
}

async fn each_turn_records_its_id_time_and_build(engine: TestEngine) {
    let first = engine.worker_of_build("one", two_turns).await;
    engine.settle().await;
    let run = engine.client.start(two_turns, ()).await.unwrap();
    engine.settle().await;
    first.stop().await.unwrap();
    let _second = engine.worker_of_build("two", two_turns).await;
    engine.run_to("2h").await;
    engine.send(run.id(), "x", 1).await;
    run.output().await.unwrap();
    let turns = engine.turns(run.id()).await;
    let recorded: Vec<_> = turns.iter().map(|turn| (turn.seq, turn.at, &*turn.build)).collect();
    let (begin, later, last) =
        (engine.time_after_begin("0s"), engine.time_after_begin("1h"), engine.time_after_begin("2h"));
    assert_eq!(recorded, [(0, begin, "one"), (2, later, "two"), (4, last, "two")]);
    assert!(turns.is_sorted_by(|a, b| a.id < b.id), "ids are unique and rise");
}

async fn a_sequential_step_costs_one_commit(engine: TestEngine) {
    #[workflow]
    async fn ten_steps(ctx: Context) -> Result<(), Error> {
        for _ in 0..10 {
            ctx.note("step").await?;
        }
        Ok(())
    }
    let _worker = engine.worker(ten_steps).await;
    let run = engine.client.start(ten_steps, ()).await.unwrap();
    run.output().await.unwrap();
    assert_eq!(engine.faults.count(Call::Commit), 11);
}

async fn headers_survive(engine: TestEngine) {
    let worker = engine.worker(two_turns).await;
    let handed_over =
        engine.client.start(two_turns, ()).header("trace", "abc").header("by", "ada").await.unwrap();
    worker.stop().await.unwrap();
    let plain = engine.client.start(two_turns, ()).header("trace", "def").await.unwrap();
    for (run, trace) in [(handed_over.id(), "abc"), (plain.id(), "def")] {
        let turns = engine.turns(run).await;
        let Event::RunStarted(started) = &turns[0].events[0] else { panic!("{turns:?}") };
        assert_eq!(started.headers["trace"], trace);
    }
}

/// A codec that inverts every bit.
#[derive(Debug)]
pub(super) struct Xor;

impl Codec for Xor {
    fn encode(&self, plain: Payload) -> Result<Payload, PayloadError> {
        let turned: Vec<u8> = plain.bytes().iter().map(|byte| byte ^ 0xff).collect();
        Ok(Payload::coded("xor", turned))
    }

    fn decode(&self, stored: Payload) -> Result<Payload, PayloadError> {
        match stored.codec() {
            None => Ok(stored),
            Some("xor") => {
                let turned: Vec<u8> = stored.bytes().iter().map(|byte| byte ^ 0xff).collect();
                Ok(Payload::from_json_text(turned))
            }
            Some(other) => Err(PayloadError::Coded(other.into())),
        }
    }
}

#[workflow]
async fn secretive(ctx: Context, word: String) -> Result<String, Error> {
    let noted = ctx.note(&word).await?;
    let sent = ctx.hook::<String>("x").await?;
    let called =
        ctx.call("join", (noted, sent), async |(a, b): (String, String)| Ok::<_, StepError>(a + &b)).await?;
    ctx.sleep("1m").await?;
    Ok(called)
}

async fn secret_run(engine: &TestEngine) -> (Worker, RunHandle<String>) {
    let worker = Worker::builder(engine.world.clone())
        .codec(Xor)
        .state(engine.steps.clone())
        .register((secretive, note))
        .build("xor")
        .paranoid();
    let worker = worker.start().await.unwrap();
    let client = engine.client.clone().with_codec(Xor);
    let run = client.start(secretive, "secret".to_owned()).key("k").await.unwrap();
    run.send("x", "secret").await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), "secretsecret");
    let again = client.start(secretive, "secret".to_owned()).key("k").await.unwrap();
    assert!(!again.is_new(), "a key compares the plain input");
    (worker, run)
}

async fn payloads_pass_the_codec_and_no_plain_text_is_stored(engine: TestEngine) {
    let (_worker, run) = secret_run(&engine).await;
    let mut text = String::new();
    for turn in engine.turns(run.id()).await {
        Event::write_all(&turn.events, &mut text);
    }
    assert!(text.contains("xor") && !text.contains("secret\""), "{text}");
    assert_eq!(engine.steps.logged(), ["secret"]);
}

async fn a_client_without_the_codec_gets_an_error_with_its_name(engine: TestEngine) {
    let (_worker, run) = secret_run(&engine).await;
    let error = engine.client.handle::<String>(run.id()).output().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("codec `xor`"), "{error}");
}

async fn a_worker_without_the_codec_does_not_end_the_run(engine: TestEngine) {
    let client = engine.client.clone().with_codec(Xor);
    let run = client.start(secretive, "secret".to_owned()).await.unwrap();
    let _without = engine.worker_of_build("plain", secretive).await;
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Unreadable);
    assert!(stuck.message.contains("codec `xor`"), "{}", stuck.message);
}

/// Signals that a run of this group has begun its first turn.
#[workflow]
async fn counted(ctx: Context, group: u64) -> Result<(), Error> {
    trace(RunId::from_bits(group.into()), "began");
    ctx.note("a").await.map(drop)
}

async fn while_one_commit_is_under_way_the_next_batch_gathers(engine: TestEngine) {
    let group = fastrand::u64(..);
    let commit_concurrency = engine.world.describe().commit_concurrency;
    let _worker = engine.caching_builder().register(counted).start().await.unwrap();
    engine.settle().await;
    let gates: Vec<_> = (0..commit_concurrency).map(|_| engine.faults.hold(Call::Commit)).collect();
    let starts = (0..5).map(|_| async { engine.client.start(counted, group).await.unwrap() });
    let gathered = async {
        while traces(RunId::from_bits(group.into()), "began") < 5 {
            tokio::task::yield_now().await;
        }
        for gate in &gates {
            gate.wait_for_call().await;
        }
        gates.iter().for_each(Gate::open);
    };
    let (runs, ()) = join!(join_all(starts), gathered);
    for run in runs {
        run.output().await.unwrap();
    }
    let mut sizes = vec![1; commit_concurrency];
    sizes.push(5 - commit_concurrency);
    assert_eq!(engine.faults.sizes(Call::Commit)[..=commit_concurrency], sizes);
}

/// Starts runs whose first commit is delayed and whose other commits are batched.
async fn leave_commits_behind(engine: TestEngine) -> (TestEngine, Worker) {
    let group = fastrand::u64(..);
    let worker = engine.caching_builder().register(counted).start().await.unwrap();
    let gate = engine.faults.hold(Call::Commit);
    for _ in 0..3 {
        let client = engine.client.clone();
        tokio::spawn(async move { client.start(counted, group).await.map(drop) });
    }
    gate.wait_for_call().await;
    while traces(RunId::from_bits(group.into()), "began") < 3 {
        tokio::task::yield_now().await;
    }
    (engine, worker)
}

// Not in the list above, since it is about the end of its runtime.
#[test]
fn a_runtime_that_ends_during_a_commit_ends_quietly() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let on_memory = runtime();
    let left = on_memory.block_on(async { leave_commits_behind(TestEngine::memory().await).await });
    drop((on_memory, left));
    {
        let on_sqlite = runtime();
        let left = on_sqlite.block_on(async { leave_commits_behind(TestEngine::sqlite().await).await });
        drop((on_sqlite, left));
    }
}

/// The worker takes the start, but its runtime drops the task of the run at once.
#[test]
fn a_start_returns_although_the_runtime_of_the_local_worker_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (of_worker, of_client) = (runtime(), runtime());
    let (client, worker) = of_worker.block_on(async {
        let world = outlast::open("memory:").await.unwrap();
        let worker = Worker::builder(world.clone()).register(two_turns).start().await.unwrap();
        (Client::new(world), worker)
    });
    drop(of_worker);
    let (sender, started) = std::sync::mpsc::sync_channel(1);
    // A thread of its own: a lock that is never released must fail the test and not hang it.
    std::thread::spawn(move || {
        let run = of_client.block_on(client.start(two_turns, ()).into_future()).unwrap();
        sender.send((run.is_new(), of_client.block_on(client.run(run.id())).unwrap().status)).unwrap();
    });
    let started = started.recv_timeout(std::time::Duration::from_secs(20)).expect("the start must return");
    assert_eq!(started, (true, Status::Pending));
    drop(worker);
}

async fn an_invalid_turn_does_not_affect_others_of_its_batch(engine: TestEngine) {
    // One of two starts in a batch has a key that another process took meanwhile.
    let group = fastrand::u64(..);
    let commit_concurrency = engine.world.describe().commit_concurrency;
    let _worker = engine.caching_builder().register(counted).start().await.unwrap();
    engine.settle().await;
    let gates: Vec<_> = (0..commit_concurrency).map(|_| engine.faults.hold(Call::Commit)).collect();
    let first =
        (0..commit_concurrency).map(|lane| engine.client.start(counted, group).key(format!("first-{lane}")));
    let first = join_all(first.map(IntoFuture::into_future));
    let bad = engine.client.start(counted, group).key("same");
    let good = engine.client.start(counted, group).key("other");
    let gathered = async {
        while traces(RunId::from_bits(group.into()), "began") < commit_concurrency as u32 + 2 {
            tokio::task::yield_now().await;
        }
        engine.world.start(vec![taken("same")]).await.unwrap();
        gates.iter().for_each(Gate::open);
    };
    let (first, bad, good, ()) = join!(first, bad.into_future(), good.into_future(), gathered);
    let mut sizes = vec![1; commit_concurrency];
    sizes.push(2);
    assert_eq!(engine.faults.sizes(Call::Commit)[..=commit_concurrency], sizes);
    assert_eq!(bad.unwrap_err().kind(), ErrorKind::Conflict);
    for run in first {
        run.unwrap().output().await.unwrap();
    }
    good.unwrap().output().await.unwrap();
}

/// A start of another workflow with this key, as another process would make it.
fn taken(key: &str) -> outlast::core::Start {
    let input = Payload::json(&1).unwrap();
    outlast::core::Start {
        run: RunId::from_bits(fastrand::u128(..)),
        turn: outlast::core::TurnId::from_bits(fastrand::u128(..)),
        workflow: "elsewhere".into(),
        version: 1,
        rules: outlast_core::event::RULES,
        queue: outlast::core::queue::default_queue(),
        priority: 0,
        key: Some(outlast::core::StartKey {
            text: key.into(),
            digest: input.digest(),
            window: None,
            policy: Default::default(),
        }),
        input,
        headers: outlast::core::Headers::new(),
        tags: Default::default(),
        parent: None,
        not_before: None,
        deadline: None,
        policy: None,
        requester: None,
        ending: None,
    }
}

async fn a_start_beside_a_worker_is_one_commit_with_the_first_step(engine: TestEngine) {
    #[workflow]
    async fn one_step(ctx: Context) -> Result<String, Error> {
        ctx.blocked("slow").await
    }
    let worker = engine.worker(one_step).await;
    engine.settle().await;
    let run = engine.client.start(one_step, ()).await.unwrap();
    assert_eq!((engine.faults.count(Call::Start), engine.faults.count(Call::Commit)), (0, 1));
    engine.assert_history(run.id(), "0 step_started blocked").await;
    assert_eq!(engine.turns(run.id()).await.len(), 1);
    assert_eq!(engine.view(run.id()).await.owner, Some(worker.session()));
    engine.steps.open("slow");
    assert_eq!(run.output().await.unwrap(), "slow");
}

async fn a_start_is_plain_when_the_worker_is_full(engine: TestEngine) {
    #[workflow]
    async fn slow(ctx: Context) -> Result<String, Error> {
        ctx.blocked("slow").await
    }
    let _worker = engine.builder().live_runs(1).register(slow).start().await.unwrap();
    engine.settle().await;
    let first = engine.client.start(slow, ()).await.unwrap();
    let second = engine.client.start(slow, ()).await.unwrap();
    assert_eq!(engine.faults.count(Call::Start), 1);
    assert_eq!(engine.status(second.id()).await, Status::Pending);
    engine.steps.open("slow");
    first.output().await.unwrap();
    second.output().await.unwrap();
}

async fn a_start_is_plain_when_the_worker_has_not_the_code(engine: TestEngine) {
    let _worker = engine.worker(two_turns).await;
    let run = engine.client.start(Workflow::<(), ()>::new("elsewhere"), ()).await.unwrap();
    assert_eq!(engine.faults.count(Call::Start), 1);
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Pending);
}

async fn a_handed_over_start_with_a_known_key_returns_the_run_of_that_key(engine: TestEngine) {
    #[workflow]
    async fn once(ctx: Context, word: String) -> Result<String, Error> {
        ctx.note(&word).await
    }
    let _worker = engine.worker(once).await;
    let starts = (0..5).map(|_| async { engine.client.start(once, "a".to_owned()).key("k").await.unwrap() });
    let runs = join_all(starts).await;
    assert_eq!(runs.iter().filter(|run| run.is_new()).count(), 1);
    assert!(runs.iter().all(|run| run.id() == runs[0].id()));
    engine.settle().await;
    let steps: &StepState = &engine.steps;
    assert_eq!(steps.count("a"), 1, "a start that was none has no effects");
}
