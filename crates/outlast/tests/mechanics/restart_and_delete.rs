//! Restarting, deleting and quarantine, for one run and for many.

use outlast::prelude::*;
use outlast::{Controlled, ErrorKind, Marks, RunQuery, Status};

use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    a_restarted_run_is_a_new_one_with_the_same_input,
    a_run_is_restarted_with_another_input,
    a_restart_takes_the_newest_version,
    a_restart_with_a_key_is_idempotent,
    a_run_that_has_ended_is_deleted,
    pruning_and_deleting_leave_quarantined_runs,
    a_bulk_call_applies_to_all_runs_of_the_query,
    a_bulk_call_leaves_out_queued_steps_and_quarantined_runs,
    a_bulk_call_lists_refusals,
    a_bulk_restart_does_not_restart_its_own_runs,
    bulk_pause_and_resume_pages_through_all_runs,
}

#[workflow]
async fn greet(ctx: Context, name: String) -> Result<String, Error> {
    ctx.note(&format!("hello {name}")).await
}

#[workflow]
async fn waiting(ctx: Context) -> Result<u32, Error> {
    ctx.hook("go").await
}

async fn a_restarted_run_is_a_new_one_with_the_same_input(engine: TestEngine) {
    let _worker = engine.worker(greet).await;
    let start = engine.client.start(greet, "Ada".to_owned()).key("ada").tag("team", "x").priority(3);
    let run = start.header("trace", "7").deadline("1d").await.unwrap();
    run.output().await.unwrap();
    let again = engine.client.acting_as("bob").restart::<String>(run.id()).await.unwrap();
    assert_ne!(again.id(), run.id());
    assert_eq!(again.output().await.unwrap(), "hello Ada");
    assert_eq!(engine.steps.count("hello Ada"), 2);
    let view = engine.view(again.id()).await;
    assert_eq!((view.restarted_from(), view.key, view.deadline), (Some(run.id()), None, None));
    assert_eq!((view.priority, view.tags["team"].as_str()), (3, "x"));
    assert_eq!(engine.view(run.id()).await.restarted_from(), None);
    let turns = engine.turns(again.id()).await;
    let outlast::core::Event::RunStarted(started) = &turns[0].events[0] else { panic!("{turns:?}") };
    assert_eq!((started.headers["trace"].as_str(), started.headers["actor"].as_str()), ("7", "bob"));
    let restarts = engine.client.list().tag("outlast:restarted_from", run.id().to_string()).await.unwrap();
    assert_eq!(restarts.runs.len(), 1);
}

async fn a_run_is_restarted_with_another_input(engine: TestEngine) {
    let _worker = engine.worker(greet).await;
    let run = engine.client.start(greet, "Ada".to_owned()).await.unwrap();
    run.output().await.unwrap();
    let again = run.restart().with_input("Bob").await.unwrap();
    assert_eq!(again.output().await.unwrap(), "hello Bob");
    let error = run.restart().with_input(&7).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let error = engine.client.restart::<String>(engine.client.new_id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

async fn a_restart_takes_the_newest_version(engine: TestEngine) {
    #[workflow(name = "greet", version = 2)]
    async fn newer(_ctx: Context, name: String) -> Result<String, Error> {
        Ok(format!("welcome {name}"))
    }
    let worker = engine.worker(greet).await;
    let run = engine.client.start(greet, "Ada".to_owned()).await.unwrap();
    run.output().await.unwrap();
    worker.stop().await.unwrap();
    let _newer = engine.worker((greet, newer)).await;
    let again = run.restart().await.unwrap();
    assert_eq!(again.output().await.unwrap(), "welcome Ada");
    assert_eq!(engine.view(again.id()).await.version, 2);
}

async fn a_restart_with_a_key_is_idempotent(engine: TestEngine) {
    let run = engine.client.start(waiting, ()).await.unwrap();
    let first = run.restart().key("again").await.unwrap();
    let second = run.restart().key("again").await.unwrap();
    assert_eq!((first.id(), first.is_new(), second.is_new()), (second.id(), true, false));
}

async fn a_run_that_has_ended_is_deleted(engine: TestEngine) {
    let _worker = engine.worker(greet).await;
    let run = engine.client.start(greet, "Ada".to_owned()).await.unwrap();
    run.output().await.unwrap();
    assert_eq!(engine.client.delete(run.id()).await.unwrap(), Controlled::Requested);
    assert_eq!(engine.client.delete(run.id()).await.unwrap(), Controlled::Nothing);
    assert_eq!(run.view().await.unwrap_err().kind(), ErrorKind::NotFound);
    let open = engine.client.start(waiting, ()).await.unwrap();
    let error = engine.client.delete(open.id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("it has not ended; terminate it first"), "{error}");
}

async fn pruning_and_deleting_leave_quarantined_runs(engine: TestEngine) {
    let _worker = engine.worker(greet).await;
    let run = engine.client.start(greet, "Ada".to_owned()).await.unwrap();
    run.output().await.unwrap();
    assert_eq!(engine.client.quarantine(run.id()).await.unwrap(), Controlled::Requested);
    assert_eq!(engine.client.quarantine(run.id()).await.unwrap(), Controlled::Already);
    engine.clock.advance("1h");
    assert_eq!(engine.client.prune(engine.clock.now()).await.unwrap(), 0);
    let error = engine.client.delete(run.id()).await.unwrap_err();
    assert!(error.to_string().contains("it is in quarantine; release it first"), "{error}");
    assert_eq!(engine.client.list().mark(Marks::QUARANTINED).await.unwrap().runs[0].id, run.id());
    assert_eq!(engine.client.release(run.id()).await.unwrap(), Controlled::Requested);
    assert_eq!(engine.client.release(run.id()).await.unwrap(), Controlled::Nothing);
    assert_eq!(engine.client.prune(engine.clock.now()).await.unwrap(), 1);
}

async fn a_bulk_call_applies_to_all_runs_of_the_query(engine: TestEngine) {
    let mut runs = Vec::new();
    for number in 0..5 {
        let team = if number < 3 { "a" } else { "b" };
        runs.push(engine.client.start(waiting, ()).tag("team", team).await.unwrap().id());
    }
    let team_a = || engine.client.bulk(engine.client.list().tag("team", "a"));
    let dry = team_a().dry_run().cancel("enough").await.unwrap();
    assert_eq!((dry.selected, dry.requested), (3, 0));
    assert_eq!(team_a().cancel("enough").await.unwrap().requested, 3);
    let again = team_a().cancel("enough").await.unwrap();
    assert_eq!(again.selected, 0, "those that have ended are not selected");
    for (number, run) in runs.iter().enumerate() {
        let expected = if number < 3 { Status::Cancelled } else { Status::Pending };
        assert_eq!(engine.status(*run).await, expected);
    }
    let rest = engine.client.bulk(RunQuery::default()).terminate("enough").await.unwrap();
    assert_eq!((rest.selected, rest.requested), (2, 2));
    assert_eq!(engine.client.bulk(RunQuery::default()).delete().await.unwrap().requested, 5);
    assert!(engine.client.list().await.unwrap().runs.is_empty());
}

async fn a_bulk_call_leaves_out_queued_steps_and_quarantined_runs(engine: TestEngine) {
    #[workflow]
    async fn far(ctx: Context) -> Result<String, Error> {
        ctx.note("far").queue("gpu").await
    }
    let _worker = engine.worker(far).await;
    let run = engine.client.start(far, ()).await.unwrap();
    let kept = engine.client.start(far, ()).await.unwrap();
    engine.client.quarantine(kept.id()).await.unwrap();
    engine.settle().await;
    let query = RunQuery { queued_steps: outlast::core::QueuedSteps::Listed, ..RunQuery::default() };
    let done = engine.client.bulk(query).pause("closed").await.unwrap();
    assert_eq!((done.selected, done.requested), (1, 1));
    assert_eq!(engine.view(run.id()).await.marks, Marks::PAUSED);
    assert_eq!(engine.view(kept.id()).await.marks, Marks::QUARANTINED);
    let steps = engine.client.bulk(engine.client.list().workflow_named("step:note"));
    assert_eq!(steps.terminate("enough").await.unwrap().selected, 0);
}

async fn a_bulk_call_lists_refusals(engine: TestEngine) {
    let open = engine.client.start(waiting, ()).await.unwrap();
    let ended = engine.client.start(waiting, ()).await.unwrap();
    ended.terminate("enough").await.unwrap();
    let all = engine.client.list().status(Status::Pending).status(Status::Cancelled);
    let done = engine.client.bulk(all).delete().await.unwrap();
    assert_eq!((done.selected, done.requested, done.refused), (2, 1, 1));
    assert_eq!(done.refusals[0].run, open.id());
    assert!(done.refusals[0].error.to_string().contains("has not ended"), "{:?}", done.refusals);
}

async fn a_bulk_restart_does_not_restart_its_own_runs(engine: TestEngine) {
    for _ in 0..3 {
        engine.client.start(waiting, ()).await.unwrap();
    }
    let all = || engine.client.bulk(RunQuery::default()).key("deploy-42");
    let done = all().restart().await.unwrap();
    assert_eq!((done.selected, done.requested), (3, 3));
    assert_eq!(engine.client.list().await.unwrap().runs.len(), 6);
    let first_three = engine.client.list().oldest_first().await.unwrap().runs;
    let again =
        engine.client.restart::<u32>(first_three[0].id).key(format!("deploy-42 {}", first_three[0].id));
    assert!(!again.await.unwrap().is_new(), "the key makes a repeated bulk restart idempotent");
}

async fn bulk_pause_and_resume_pages_through_all_runs(engine: TestEngine) {
    let inputs = std::iter::repeat_n((), 1_100);
    let started = engine.client.start_many(waiting, inputs).await;
    assert!(started.iter().all(Result::is_ok));
    let all = || engine.client.bulk(RunQuery::default());
    let done = all().pause("closed").await.unwrap();
    assert_eq!((done.selected, done.requested), (1_100, 1_100));
    assert_eq!(engine.client.mark_counts().await.unwrap()[&Marks::PAUSED], 1_100);
    let again = all().pause("closed").await.unwrap();
    assert_eq!((again.requested, again.already), (0, 1_100));
    let paused = engine.client.list().mark(Marks::PAUSED);
    assert_eq!(engine.client.bulk(paused).resume().await.unwrap().requested, 1_100);
    assert_eq!(engine.client.mark_counts().await.unwrap()[&Marks::PAUSED], 0);
}
