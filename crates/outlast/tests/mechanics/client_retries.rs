//! Calls of a client during an outage: they are repeated for a while, and take effect once.

use std::time::Duration;

use outlast::core::{NewMessage, Sent, Start, Started, World, WorldError};
use outlast::prelude::*;
use outlast::{Controlled, ErrorKind, RunHandle, RunQuery, Status, TokenDelivery, Within};
use tokio::time::Instant;

use super::faulty_world::Call;
use super::outages::pass;
use super::test_engine::{TestEngine, on_every_world, with_timeout};

on_every_world! {
    only_the_starts_without_an_answer_are_repeated,
    a_send_whose_element_has_no_answer_is_delivered_once,
    a_resume_without_an_answer_is_repeated,
}

#[workflow]
async fn ask(ctx: Context, name: String) -> Result<String, Error> {
    let answer = ctx.hook::<String>("answer").await?;
    Ok(format!("{name}: {answer}"))
}

#[tokio::test(start_paused = true)]
async fn every_call_outlasts_a_short_outage() {
    with_timeout(async {
        let engine = TestEngine::memory().await;
        let (client, clock) = (&engine.client, engine.world.clock());
        let run = client.start(ask, "ada").key("k").await.unwrap().id();
        macro_rules! outlasts {
            ($call:expr) => {{
                engine.faults.set_unavailable(true);
                let outage = async {
                    pass(Duration::from_secs(3)).await;
                    engine.faults.set_unavailable(false);
                };
                let (answer, ()) = tokio::join!(async { $call.await }, outage);
                answer.unwrap_or_else(|error: Error| panic!("{}: {error}", stringify!($call)))
            }};
        }
        assert!(outlasts!(client.start(ask, "bob")).is_new());
        assert!(outlasts!(client.start(ask, "eve").id(client.new_id())).is_new());
        let many = async { Ok(client.start_many(ask, ["x", "y"]).await) };
        assert!(outlasts!(many).iter().all(|run| run.as_ref().is_ok_and(RunHandle::is_new)));
        outlasts!(client.send(run, "answer", "yes"));
        outlasts!(client.wake(run));
        outlasts!(client.resume(run));
        assert_eq!(outlasts!(client.run(run)).status, Status::Pending);
        assert_eq!(outlasts!(client.history(run)).len(), 1);
        outlasts!(client.export(run));
        outlasts!(client.operations(run));
        assert_eq!(outlasts!(client.list()).runs.len(), 5);
        assert!(outlasts!(client.children(run)).runs.is_empty());
        assert_eq!(outlasts!(client.newest(&[], 2)).len(), 2);
        assert!(outlasts!(client.find::<String>("k")).is_some());
        assert_eq!(outlasts!(client.by_key("k").id()), run);
        assert_eq!(outlasts!(client.counts())[&Status::Pending], 5);
        assert!(outlasts!(client.workers()).is_empty());
        outlasts!(client.explain(run));
        outlasts!(client.cancel(run, "enough"));
        outlasts!(client.terminate(outlasts!(client.list()).runs[0].id, "enough"));
        assert_eq!(outlasts!(client.prune(clock.now().plus(Duration::from_secs(1)))), 2);
    })
    .await;
}

#[step(attempts = 1)]
async fn break_down(why: String) -> Result<String, StepError> {
    Err(StepError::msg(why))
}

#[workflow]
async fn fails(ctx: Context, why: String) -> Result<String, Error> {
    ctx.step(break_down, why).await
}

/// Makes a call while the world does not respond, for three seconds.
async fn outlasts<T>(engine: &TestEngine, what: &str, call: impl IntoFuture<Output = Result<T, Error>>) -> T {
    engine.faults.set_unavailable(true);
    let outage = async {
        pass(Duration::from_secs(3)).await;
        engine.faults.set_unavailable(false);
    };
    let (answer, ()) = tokio::join!(call.into_future(), outage);
    answer.unwrap_or_else(|error| panic!("{what}: {error}"))
}

#[tokio::test(start_paused = true)]
async fn every_call_that_controls_runs_outlasts_a_short_outage() {
    with_timeout(async {
        let engine = TestEngine::memory().await;
        let client = &engine.client;
        let worker = engine.worker((fails, break_down)).await;
        let failed = client.start(fails, "why").await.unwrap();
        let retried = client.start(fails, "why").await.unwrap();
        assert!(failed.output().await.is_err() && retried.output().await.is_err());
        worker.stop().await.unwrap();
        let run = client.start(ask, "ada").await.unwrap().id();

        assert_eq!(outlasts(&engine, "pause", client.pause(run)).await, Controlled::Requested);
        assert_eq!(outlasts(&engine, "resume", client.resume(run)).await, Controlled::Requested);
        assert_eq!(outlasts(&engine, "retry", retried.retry()).await, Controlled::Requested);
        outlasts(&engine, "restart", failed.restart()).await;
        outlasts(&engine, "fork", failed.fork().at(1)).await;
        assert_eq!(outlasts(&engine, "quarantine", client.quarantine(run)).await, Controlled::Requested);
        assert_eq!(outlasts(&engine, "release", client.release(run)).await, Controlled::Requested);
        assert_eq!(outlasts(&engine, "delete", client.delete(failed.id())).await, Controlled::Requested);
        let delivery = outlasts(&engine, "send_to_token", client.send_to_token("nobody", &1)).await;
        assert_eq!(delivery, TokenDelivery::Unknown);
        assert!(outlasts(&engine, "token", client.token("nobody")).await.is_none());
        let and_send = client.start(ask, "eve").and_send("answer", "yes");
        assert!(outlasts(&engine, "and_send", and_send).await.is_new());
        let schedule = client.schedule("s").every("1h").start(ask, "ivy");
        let schedule = outlasts(&engine, "schedule", schedule).await;
        outlasts(&engine, "trigger", schedule.trigger()).await;
        outlasts(&engine, "schedules", client.schedules()).await;
        assert_eq!(outlasts(&engine, "list", client.list()).await.runs.len(), 5);
        outlasts(&engine, "streams", client.streams(run)).await;
        assert!(outlasts(&engine, "state", client.state::<u32>(run)).await.is_none());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_gives_up_after_ten_seconds_or_the_time_that_the_client_sets() {
    with_timeout(async {
        let engine = TestEngine::memory().await;
        let run = engine.client.start(ask, "ada").await.unwrap().id();
        engine.faults.set_unavailable(true);
        let patient = engine.client.retry_unavailable("30s");
        for (client, seconds) in [(&engine.client, 10), (&patient, 30)] {
            let began = Instant::now();
            let error = client.start(ask, "bob").await.unwrap_err();
            assert_eq!((error.kind(), began.elapsed().as_secs()), (ErrorKind::Unavailable, seconds));
            assert!(error.message().starts_with("the test lost the answer (tried "), "{error}");
            assert!(error.message().ends_with(": make the call again)"), "{error}");
            let began = Instant::now();
            let error = client.run(run).await.unwrap_err();
            assert_eq!((error.kind(), began.elapsed().as_secs()), (ErrorKind::Unavailable, seconds));
        }
        let tries = engine.faults.count(Call::Start);
        assert!((45..120).contains(&tries), "{tries} in 40 seconds, with pauses up to a second");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_without_retries_is_made_once() {
    with_timeout(async {
        let engine = TestEngine::memory().await;
        engine.faults.set_unavailable(true);
        let began = Instant::now();
        let error = engine.client.retry_unavailable("0s").start(ask, "ada").await.unwrap_err();
        assert_eq!(error.message(), "the test lost the answer (tried once: make the call again)");
        assert_eq!((engine.faults.count(Call::Start), began.elapsed()), (1, Duration::ZERO));
        let error = engine.client.retry_unavailable("soon").start(ask, "ada").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    })
    .await;
}

/// A transaction that cannot be used.
struct LostTransaction {
    calls: u32,
}

impl LostTransaction {
    fn fail<T>(&mut self) -> Result<T, WorldError> {
        self.calls += 1;
        Err(WorldError::Unavailable("the connection is lost".into()))
    }
}

impl Within for LostTransaction {
    async fn start(&mut self, _: &dyn World, _: Start) -> Result<Started, WorldError> {
        self.fail()
    }

    async fn send(&mut self, _: &dyn World, _: NewMessage) -> Result<Sent, WorldError> {
        self.fail()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_in_a_transaction_is_not_repeated() {
    with_timeout(async {
        let engine = TestEngine::memory().await;
        let run = engine.client.start(ask, "ada").await.unwrap().id();
        let (mut transaction, began) = (LostTransaction { calls: 0 }, Instant::now());
        let started = engine.client.start(ask, "bob").within(&mut transaction).await;
        assert_eq!(started.unwrap_err().message(), "the connection is lost");
        let sent = engine.client.send(run, "answer", "yes").within(&mut transaction).await;
        assert_eq!(sent.unwrap_err().message(), "the connection is lost");
        assert_eq!((transaction.calls, began.elapsed()), (2, Duration::ZERO));
    })
    .await;
}

async fn only_the_starts_without_an_answer_are_repeated(engine: TestEngine) {
    engine.faults.lose_answers_from(Call::Start, 4);
    engine.faults.lose_answers_from(Call::Start, 5);
    let started = engine.client.start_many(ask, (0..10).map(|number| number.to_string())).await;
    assert!(started.iter().all(|run| run.as_ref().is_ok_and(RunHandle::is_new)));
    assert_eq!(engine.faults.sizes(Call::Start), [10, 6, 1]);
    let runs = engine.client.runs(RunQuery::default()).await.unwrap().runs;
    assert_eq!(runs.len(), 10);
}

async fn a_send_whose_element_has_no_answer_is_delivered_once(engine: TestEngine) {
    let run = engine.client.start(ask, "ada").await.unwrap();
    engine.faults.lose_answers_from(Call::Send, 0);
    engine.client.send(run.id(), "answer", "yes").await.unwrap();
    assert_eq!(engine.faults.count(Call::Send), 2);
    let _worker = engine.worker(ask).await;
    assert_eq!(run.output().await.unwrap(), "ada: yes");
    assert_eq!(engine.client.run(run.id()).await.unwrap().sent, 1);
}

async fn a_resume_without_an_answer_is_repeated(engine: TestEngine) {
    let run = engine.client.start(ask, "ada").await.unwrap().id();
    engine.faults.lose_answer(Call::Resume, 0);
    engine.client.resume(run).await.unwrap();
    assert_eq!(engine.faults.count(Call::Resume), 2);
}
