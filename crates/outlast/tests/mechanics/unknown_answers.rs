//! Unknown answers: a call that is repeated with its id is executed once.

use outlast::core::event::FORMAT;
use outlast::core::{ClaimRequest, Code, SuspectRoom};
use outlast::prelude::*;
use outlast::{ErrorKind, RunQuery, Status, Timestamp};

use super::faulty_world::Call;
use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    a_commit_without_an_answer_is_repeated_and_doubles_nothing,
    a_commit_that_was_not_done_is_repeated_and_loses_nothing,
    a_handed_over_start_without_an_answer_is_one_run,
    a_start_without_an_answer_is_one_run,
    a_start_with_a_key_and_without_an_answer_is_new,
    a_send_without_an_answer_is_delivered_once,
    a_cancel_without_an_answer_is_delivered_once,
    a_call_that_is_never_answered_is_an_error_and_not_a_hang,
    runs_of_a_claim_without_an_answer_are_found_and_continue,
    a_run_is_handed_back_only_after_two_looks_a_second_apart,
    a_beat_raises_doubt_only_after_two_differing_counts,
    a_lost_inbox_does_not_lose_the_run,
}

#[workflow]
async fn errands(ctx: Context) -> Result<u32, Error> {
    ctx.note("one").await?;
    ctx.flaky(1).await?;
    ctx.note("two").await?;
    let payload = ctx.hook::<u32>("x").timeout("1h").await?;
    ctx.note("three").await?;
    Ok(payload)
}

const HISTORY: &str = "
    0 step_started note
    0 step_completed \"one\"
    1 step_started flaky
    1 step_retried 1s
    1 step_completed 2
    2 step_started note
    2 step_completed \"two\"
    3 hook_opened x
    hook_received x 7
    4 step_started note
    4 step_completed \"three\"
    run_completed 7";

/// Runs the errands, with faults planned before.
async fn run_errands(engine: &TestEngine, faults: &str) {
    let before = engine.steps.logged().len();
    let run = engine.client.start(errands, ()).await.unwrap();
    engine.advance("1m").await;
    engine.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), 7, "{faults}");
    engine.assert_history(run.id(), HISTORY).await;
    assert_eq!(engine.steps.logged()[before..], ["one", "flaky", "flaky", "two", "three"], "{faults}");
}

async fn a_commit_without_an_answer_is_repeated_and_doubles_nothing(engine: TestEngine) {
    let _worker = engine.worker(errands).await;
    for skip in 0..6 {
        engine.faults.lose_answer(Call::Commit, skip);
        run_errands(&engine, &format!("the answer of commit {skip} is lost")).await;
        assert_eq!(engine.faults.left(), 0, "there was a commit {skip}");
    }
}

async fn a_commit_that_was_not_done_is_repeated_and_loses_nothing(engine: TestEngine) {
    let _worker = engine.worker(errands).await;
    for skip in 0..6 {
        engine.faults.refuse(Call::Commit, skip);
        engine.faults.refuse(Call::Commit, 0);
        run_errands(&engine, &format!("commit {skip} is refused twice")).await;
        assert_eq!(engine.faults.left(), 0, "there was a commit {skip}");
    }
}

#[workflow]
async fn greet(ctx: Context, name: String) -> Result<String, Error> {
    ctx.note(&name).await
}

async fn count_runs(engine: &TestEngine) -> usize {
    engine.client.runs(RunQuery::default()).await.unwrap().runs.len()
}

async fn a_handed_over_start_without_an_answer_is_one_run(engine: TestEngine) {
    let _worker = engine.worker(greet).await;
    engine.settle().await;
    engine.faults.lose_answer(Call::Commit, 0);
    let run = engine.client.start(greet, "ada".to_owned()).key("k").await.unwrap();
    assert!(run.is_new());
    assert_eq!(run.output().await.unwrap(), "ada");
    assert_eq!((engine.steps.logged().len(), count_runs(&engine).await), (1, 1));
    assert_eq!(engine.faults.count(Call::Start), 0, "it was handed over");
}

async fn a_start_without_an_answer_is_one_run(engine: TestEngine) {
    engine.faults.lose_answer(Call::Start, 0);
    engine.faults.lose_answer(Call::Start, 0);
    let run = engine.client.start(greet, "ada".to_owned()).await.unwrap();
    assert_eq!(engine.faults.count(Call::Start), 3);
    let _worker = engine.worker(greet).await;
    assert_eq!(run.output().await.unwrap(), "ada");
    assert_eq!((engine.steps.logged().len(), count_runs(&engine).await), (1, 1));
}

async fn a_start_with_a_key_and_without_an_answer_is_new(engine: TestEngine) {
    engine.faults.lose_answer(Call::Start, 0);
    let first = engine.client.start(greet, "ada".to_owned()).key("k").await.unwrap();
    let second = engine.client.start(greet, "ada".to_owned()).key("k").await.unwrap();
    assert_eq!(first.id(), second.id());
    assert_eq!((first.is_new(), second.is_new()), (true, false));
}

#[workflow]
async fn take_until_end(ctx: Context) -> Result<Vec<u32>, Error> {
    let mut taken = Vec::new();
    loop {
        match ctx.hook::<u32>("x").timeout("1h").await {
            Ok(payload) => taken.push(payload),
            Err(error) if error.is_timeout() => return Ok(taken),
            Err(error) => return Err(error),
        }
    }
}

async fn a_send_without_an_answer_is_delivered_once(engine: TestEngine) {
    let _worker = engine.worker(take_until_end).await;
    let run = engine.client.start(take_until_end, ()).await.unwrap();
    engine.faults.lose_answer(Call::Send, 0);
    engine.faults.refuse(Call::Send, 0);
    engine.send(run.id(), "x", 1).await;
    engine.send(run.id(), "x", 2).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), [1, 2]);
}

async fn a_cancel_without_an_answer_is_delivered_once(engine: TestEngine) {
    let _worker = engine.worker(take_until_end).await;
    let run = engine.client.start(take_until_end, ()).await.unwrap();
    engine.settle().await;
    engine.faults.lose_answer(Call::Send, 0);
    run.cancel("enough").await.unwrap();
    assert!(run.output().await.unwrap_err().is_cancelled());
    let history = engine.history(run.id()).await;
    assert_eq!(history.matches("cancel_requested").count(), 1, "{history}");
}

async fn a_call_that_is_never_answered_is_an_error_and_not_a_hang(engine: TestEngine) {
    engine.faults.set_unavailable(true);
    let client = engine.client.retry_unavailable("100ms");
    let error = client.start(greet, "ada".to_owned()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    engine.faults.set_unavailable(false);
    assert_eq!(count_runs(&engine).await, 0);
}

async fn runs_of_a_claim_without_an_answer_are_found_and_continue(engine: TestEngine) {
    let mut runs = Vec::new();
    for name in ["ada", "bob", "eve"] {
        runs.push(engine.client.start(greet, name.to_owned()).await.unwrap());
    }
    engine.faults.lose_answer(Call::Claim, 0);
    let _worker = engine.worker(greet).await;
    // Two calls of `held`, a second apart.
    engine.advance("1s").await;
    for run in &runs {
        run.output().await.unwrap();
        assert_eq!(engine.status(run.id()).await, Status::Completed);
    }
    assert_eq!(engine.faults.left(), 0);
    assert_eq!(engine.steps.logged().len(), 3);
}

async fn a_lost_inbox_does_not_lose_the_run(engine: TestEngine) {
    #[workflow]
    async fn beside(ctx: Context) -> Result<String, Error> {
        let slow = ctx.blocked("slow");
        ctx.sleep("1m").await?;
        slow.await
    }
    let _worker = engine.worker(beside).await;
    let run = engine.client.start(beside, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.faults.refuse(Call::Inbox, 0);
    engine.clock.advance("1m");
    while engine.faults.left() > 0 {
        tokio::task::yield_now().await;
    }
    engine.steps.open("slow");
    assert_eq!(run.output().await.unwrap(), "slow");
}

async fn a_run_is_handed_back_only_after_two_looks_a_second_apart(engine: TestEngine) {
    let run = engine.client.start(greet, "ada".to_owned()).await.unwrap();
    engine.faults.lose_answer(Call::Claim, 0);
    let worker = engine.worker(greet).await;
    engine.settle().await;
    assert_eq!((engine.faults.left(), engine.faults.count(Call::Held)), (0, 1));
    engine.advance("999ms").await;
    assert_eq!(engine.view(run.id()).await.owner, Some(worker.session()), "one look is not enough");
    engine.advance("1ms").await;
    assert_eq!(engine.faults.count(Call::Held), 2);
    assert_eq!(run.output().await.unwrap(), "ada");
}

async fn a_beat_raises_doubt_only_after_two_differing_counts(engine: TestEngine) {
    let worker = engine.worker(greet).await;
    engine.settle().await;
    let run = engine.client.start(greet, "ada".to_owned()).queue("elsewhere").await.unwrap();
    // With the worker's session, without its knowledge.
    let request = ClaimRequest {
        limit: 1,
        code: [Code { workflow: "greet".into(), version: 1 }].into(),
        queues: ["elsewhere".into()].into(),
        build: "b".into(),
        format: FORMAT,
        suspects: SuspectRoom::Nothing,
        ends_overdue_from: Timestamp::NEVER,
    };
    assert_eq!(engine.world.claim(worker.session(), request).await.unwrap().claimed.len(), 1);
    worker.beat().await.unwrap();
    engine.advance("1m").await;
    assert_eq!((engine.faults.count(Call::Held), engine.status(run.id()).await), (0, Status::Running));
    worker.beat().await.unwrap();
    engine.advance("1s").await;
    assert_eq!((engine.faults.count(Call::Held), engine.status(run.id()).await), (2, Status::Pending));
}
