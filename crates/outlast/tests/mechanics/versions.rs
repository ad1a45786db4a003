//! Versions, patches and renames: runs continue when code changes.

use outlast::core::event::RULES;
use outlast::core::{Event, History};
use outlast::prelude::*;
use outlast::{RunId, Status};

use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    two_versions_of_a_workflow_live_in_one_worker,
    a_worker_claims_only_the_versions_it_has,
    a_patch_divides_runs_by_when_they_came_there,
    a_patched_run_continues_after_a_crash,
    a_renamed_workflow_continues_runs_of_its_old_name,
    an_exported_history_replays_and_other_code_gets_the_first_difference,
    a_run_that_had_no_turn_replays,
    new_runs_get_the_lowest_rules_that_every_joined_worker_knows,
    a_worker_is_given_no_run_whose_format_it_cannot_read,
    a_run_taken_between_the_join_of_an_older_worker_and_a_beat_is_never_given_to_it,
}

#[workflow(name = "greet")]
async fn greet_v1(ctx: Context) -> Result<u32, Error> {
    ctx.sleep("1h").await?;
    ctx.note("one").await?;
    Ok(ctx.version())
}

#[workflow(name = "greet", version = 2)]
async fn greet_v2(ctx: Context) -> Result<u32, Error> {
    ctx.note("two").await?;
    Ok(ctx.version())
}

async fn two_versions_of_a_workflow_live_in_one_worker(engine: TestEngine) {
    let worker = engine.worker_of_build("a", greet_v1).await;
    let old = engine.client.start(greet_v1, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", (greet_v1, greet_v2)).await;
    let new = engine.client.start(greet_v2, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!((old.output().await.unwrap(), new.output().await.unwrap()), (1, 2));
    assert_eq!(engine.view(old.id()).await.version, 1);
}

async fn a_worker_claims_only_the_versions_it_has(engine: TestEngine) {
    let _worker = engine.worker(greet_v1).await;
    let run = engine.client.start(greet_v2, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Pending);
    let _worker = engine.worker(greet_v2).await;
    assert_eq!(run.output().await.unwrap(), 2);
}

#[workflow(name = "order")]
async fn order(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await?;
    ctx.note("charged").await?;
    ctx.sleep("1h").await
}

#[workflow(name = "order")]
async fn patched_order(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await?;
    if ctx.patched("check first") {
        ctx.note("checked").await?;
    }
    ctx.note("charged").await?;
    ctx.sleep("1h").await
}

async fn a_patch_divides_runs_by_when_they_came_there(engine: TestEngine) {
    let worker = engine.worker_of_build("a", order).await;
    let past = engine.client.start(order, ()).await.unwrap();
    engine.advance("90m").await;
    let before = engine.client.start(order, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", patched_order).await;
    engine.clock.run_until_idle().await;
    past.output().await.unwrap();
    before.output().await.unwrap();
    assert_eq!(engine.steps.logged(), ["charged", "checked", "charged"]);
    engine
        .assert_history(
            before.id(),
            "0 timer_started 1h
         0 timer_fired
         version_chosen check first
         1 step_started note
         1 step_completed \"checked\"
         2 step_started note
         2 step_completed \"charged\"
         3 timer_started 1h
         3 timer_fired
         run_completed null",
        )
        .await;
}

async fn a_patched_run_continues_after_a_crash(engine: TestEngine) {
    let worker = engine.worker(patched_order).await;
    let run = engine.client.start(patched_order, ()).await.unwrap();
    engine.advance("90m").await;
    engine.crash(worker);
    let _worker = engine.worker(patched_order).await;
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(engine.steps.logged(), ["checked", "charged"]);
}

async fn a_renamed_workflow_continues_runs_of_its_old_name(engine: TestEngine) {
    #[workflow(name = "purchase", was = "order")]
    async fn purchase(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1h").await?;
        ctx.note("charged").await?;
        assert_eq!(ctx.workflow(), "order");
        ctx.sleep("1h").await
    }
    let worker = engine.worker_of_build("a", order).await;
    let run = engine.client.start(order, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", purchase).await;
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
}

async fn an_exported_history_replays_and_other_code_gets_the_first_difference(engine: TestEngine) {
    let _worker = engine.worker(patched_order).await;
    let run = engine.client.start(patched_order, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    let text = engine.client.export(run.id()).await.unwrap();
    let history = History::from_json(&text).unwrap();
    assert_eq!(history.turns, engine.turns(run.id()).await);
    assert_eq!(outlast::replay(patched_order, history.clone()).unwrap(), 11);
    let error = outlast::replay(order, history).unwrap_err();
    let lines: Vec<_> = error.message().lines().collect();
    assert!(
        lines[0].contains("diverged at operation 2: history has step `note`, code asked for timer 1h"),
        "{error}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with(">   2  step `note`") && line.contains("versions.rs:")),
        "{error}"
    );
}

async fn a_run_that_had_no_turn_replays(engine: TestEngine) {
    let run = engine.client.start(order, ()).await.unwrap();
    let pending = engine.client.export(run.id()).await.unwrap();
    assert_eq!(outlast::replay(order, History::from_json(&pending).unwrap()).unwrap(), 1);
    run.cancel("never mind").await.unwrap();
    let cancelled = engine.client.export(run.id()).await.unwrap();
    assert_eq!(outlast::replay(order, History::from_json(&cancelled).unwrap()).unwrap(), 3);
}

#[workflow]
async fn other(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await
}

async fn rules_of(engine: &TestEngine, run: RunId) -> u32 {
    match &engine.turns(run).await[0].events[0] {
        Event::RunStarted(started) => started.rules,
        event => panic!("{event:?}"),
    }
}

async fn new_runs_get_the_lowest_rules_that_every_joined_worker_knows(engine: TestEngine) {
    let old = engine.builder().rules(1).register(other).start().await.unwrap();
    let new = engine.worker(order).await;
    engine.settle().await;
    let (taken, stored) = (
        engine.client.start(order, ()).await.unwrap(),
        engine.client.start(other, ()).at(engine.time_after_begin("1h")).await.unwrap(),
    );
    assert_eq!((rules_of(&engine, taken.id()).await, rules_of(&engine, stored.id()).await), (1, 1));
    engine.settle().await;
    old.stop().await.unwrap();
    new.beat().await.unwrap();
    let (taken, stored) = (
        engine.client.start(order, ()).await.unwrap(),
        engine.client.start(other, ()).at(engine.time_after_begin("1h")).await.unwrap(),
    );
    assert_eq!((rules_of(&engine, taken.id()).await, rules_of(&engine, stored.id()).await), (RULES, RULES));
}

async fn a_worker_is_given_no_run_whose_format_it_cannot_read(engine: TestEngine) {
    let run = engine.client.start(greet_v2, ()).await.unwrap();
    assert_eq!(rules_of(&engine, run.id()).await, RULES);
    let _old = engine.builder().rules(1).register(greet_v2).start().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Pending);
    let _new = engine.worker(greet_v2).await;
    assert_eq!(run.output().await.unwrap(), 2);
}

async fn a_run_taken_between_the_join_of_an_older_worker_and_a_beat_is_never_given_to_it(engine: TestEngine) {
    // Its own beats come every quarter of an hour of real time.
    let new = engine.builder().session_time("1h").register(greet_v1).start().await.unwrap();
    engine.settle().await;
    let _old = engine.builder().rules(1).register(greet_v1).start().await.unwrap();
    let taken = engine.client.start(greet_v1, ()).await.unwrap();
    assert_eq!(rules_of(&engine, taken.id()).await, RULES, "the last beat did not know the older worker");
    engine.settle().await;
    new.beat().await.unwrap();
    let after = engine.client.start(greet_v1, ()).await.unwrap();
    assert_eq!(rules_of(&engine, after.id()).await, 1);
    engine.settle().await;
    new.stop().await.unwrap();
    engine.run_to("2h").await;
    assert_eq!(after.output().await.unwrap(), 1, "the older worker reads it");
    assert!(!engine.status(taken.id()).await.is_final(), "it waits for a worker that knows its rules");
    let _new = engine.worker(greet_v1).await;
    assert_eq!(taken.output().await.unwrap(), 1);
}
