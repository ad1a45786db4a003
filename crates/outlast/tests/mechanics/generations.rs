//! `continue_as`: a run goes on with another input and without the history of its past.

use std::time::Duration;

use outlast::core::limits::HISTORY_EVENTS_MAX;
use outlast::core::{Event, History, OperationStatus};
use outlast::prelude::*;
use outlast::{ErrorKind, ParentEnd, RunId, Status, StuckReason};

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world, trace, traces};

on_every_world! {
    a_run_continues_and_stays_the_same_run,
    payloads_that_nobody_took_reach_later_generations,
    a_crash_between_generations_changes_nothing,
    a_claim_loads_as_little_for_the_last_generation_as_for_the_first,
    only_events_since_the_last_cut_count_for_the_limit,
    open_operations_end_with_their_generation,
    children_outlive_a_generation,
    a_terminated_run_cancels_children_of_earlier_generations,
    a_parent_awaits_the_last_generation,
    a_cancelled_run_does_not_continue,
    a_run_with_unsettled_compensations_does_not_continue,
    the_deadline_of_a_run_counts_for_all_its_generations,
    a_generation_begins_with_the_newest_version,
    an_input_that_does_not_fit_makes_the_run_stuck,
    views_mark_what_a_replay_skips,
}

#[workflow]
async fn polls(ctx: Context, (done, of): (u32, u32)) -> Result<(u64, u32), Error> {
    trace(ctx.run(), "called");
    ctx.note(&format!("{done} of {of}")).await?;
    ctx.tag("done", done.to_string())?;
    ctx.sleep("1m").await?;
    if done < of { ctx.continue_as(&(done + 1, of)) } else { Ok((ctx.generation(), done)) }
}

async fn a_run_continues_and_stays_the_same_run(engine: TestEngine) {
    let _worker = engine.worker(polls).await;
    let start = engine.client.start(polls, (1, 3)).key("poll").tag("kind", "poll").priority(3);
    let run = start.header("user", "ada").await.unwrap();
    engine.run_to("90s").await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.generation), (Status::Waiting, 2));
    assert_eq!(view.tags.get("done").map(String::as_str), Some("2"));
    engine
        .assert_history(
            run.id(),
            "
            0 step_started note
            0 step_completed \"1 of 3\"
            1 timer_started 1m
            1 timer_fired
            run_continued 2 next 2
            2 step_started note
            2 step_completed \"2 of 3\"
            3 timer_started 1m
            ",
        )
        .await;
    let again = engine.client.start(polls, (1, 3)).key("poll").await.unwrap();
    assert_eq!(again.id(), run.id(), "the key names the run of the first generation");
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), (3, 3));
    assert_eq!(engine.steps.logged(), ["1 of 3", "2 of 3", "3 of 3"]);
    let view = engine.view(run.id()).await;
    assert_eq!((view.generation, view.key.as_deref(), view.priority), (3, Some("poll"), 3));
    assert_eq!(view.tags.get("kind").map(String::as_str), Some("poll"));
    let turns = engine.turns(run.id()).await;
    let events: Vec<_> = turns.into_iter().flat_map(|turn| turn.events).collect();
    let Some(Event::RunContinued(last)) =
        events.iter().rev().find(|event| matches!(event, Event::RunContinued(_)))
    else {
        panic!("{events:?}")
    };
    assert_eq!((last.started.key.as_deref(), last.started.priority), (Some("poll"), 3));
    assert_eq!(last.started.headers.get("user").map(String::as_str), Some("ada"));
}

/// Adds up payloads, two in each generation, until a 0 comes.
#[workflow]
async fn adds(ctx: Context, mut sums: Vec<u32>) -> Result<Vec<u32>, Error> {
    for _ in 0..2 {
        match ctx.hook::<u32>("add").await? {
            0 => return Ok(sums),
            add => sums.push(add),
        }
    }
    ctx.continue_as(&sums)
}

async fn payloads_that_nobody_took_reach_later_generations(engine: TestEngine) {
    let worker = engine.worker(adds).await;
    let run = engine.client.start(adds, Vec::new()).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    // One turn reads all of them: the first generations keep what later ones take.
    for payload in 1..=7 {
        engine.send(run.id(), "add", payload).await;
        engine.send(run.id(), "other", payload).await;
    }
    let worker = engine.worker(adds).await;
    engine.settle().await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.generation, view.kept, view.status), (4, 7, Status::Waiting));
    // Another worker finds the payloads for `other`, which generations before the last received.
    engine.crash(worker);
    let _worker = engine.worker(adds).await;
    engine.send(run.id(), "add", 8).await;
    engine.send(run.id(), "add", 0).await;
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), (1..=8).collect::<Vec<u32>>());
    assert_eq!(engine.view(run.id()).await.kept, 7);
}

async fn a_crash_between_generations_changes_nothing(engine: TestEngine) {
    let run = engine.client.start(polls, (1, 5)).await.unwrap();
    for _ in 0..12 {
        let worker = engine.worker(polls).await;
        engine.advance("25s").await;
        engine.crash(worker);
    }
    let _worker = engine.worker(polls).await;
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), (5, 5));
    assert_eq!(engine.steps.logged().len(), 5, "{:?}", engine.steps.logged());
}

async fn a_claim_loads_as_little_for_the_last_generation_as_for_the_first(engine: TestEngine) {
    #[workflow]
    async fn ticks(ctx: Context, done: u32) -> Result<u32, Error> {
        ctx.sleep("1s").await?;
        ctx.hook::<u32>("never").timeout("1s").await.unwrap_or_default();
        ctx.continue_as(&(done + 1))
    }
    let worker = engine.caching_builder().register(ticks).start().await.unwrap();
    let run = engine.client.start(ticks, 1).await.unwrap();
    engine.send(run.id(), "other", 1).await;
    let loaded = async || {
        let histories = engine.world.histories(&[run.id()]).await.unwrap();
        let events = histories[0].as_ref().unwrap().iter().map(|turn| turn.events.len());
        events.sum::<usize>()
    };
    engine.run_to("10s").await;
    let first = loaded().await;
    engine.run_to("400s").await;
    let view = engine.view(run.id()).await;
    assert!(view.generation > 190, "{}", view.generation);
    assert_eq!((loaded().await, view.kept), (first, 1));
    assert!(first < 10, "{first}");
    engine.crash(worker);
    let _worker = engine.worker(ticks).await;
    engine.run_to("410s").await;
    let view = engine.view(run.id()).await;
    assert!(view.generation > 200 && view.stuck.is_none(), "{view:?}");
}

async fn only_events_since_the_last_cut_count_for_the_limit(engine: TestEngine) {
    #[workflow]
    async fn chatters(ctx: Context, generation: u64) -> Result<u64, Error> {
        for number in 0..HISTORY_EVENTS_MAX / 2 {
            ctx.record("number", || number)?;
        }
        ctx.sleep("1s").await?;
        if generation < 4 { ctx.continue_as(&(generation + 1)) } else { Ok(generation) }
    }
    let _worker = engine.caching_builder().register(chatters).start().await.unwrap();
    let run = engine.client.start(chatters, 1).await.unwrap();
    engine.run_to("1m").await;
    assert_eq!(run.output().await.unwrap(), 4);
}

/// Continues while a step, a queued step and a timer are open.
#[workflow]
async fn hurries(ctx: Context, generation: u32) -> Result<u32, Error> {
    if generation == 2 {
        ctx.sleep("1h").await?;
        return Ok(generation);
    }
    let step = ctx.stoppable("gate");
    let hook = ctx.hook::<u32>("go");
    let _queued = ctx.blocked("far").queue("far");
    let _timer = ctx.sleep("1m");
    select! {
        _ = step => {}
        _ = hook => {}
    }
    ctx.continue_as(&2)
}

async fn open_operations_end_with_their_generation(engine: TestEngine) {
    let _worker = engine.worker(hurries).await;
    let run = engine.client.start(hurries, 1).await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    engine.send(run.id(), "go", 1).await;
    engine.steps.wait_for_log("stopped gate", 1).await;
    engine.settle().await;
    engine.run_to("50m").await;
    let operations = engine.client.operations(run.id()).await.unwrap();
    let dropped = operations.iter().filter(|operation| operation.status == OperationStatus::Dropped);
    let dropped: Vec<_> = dropped.map(|operation| operation.op.0).collect();
    assert_eq!(dropped, [0, 2, 3]);
    let far = operations[2].child.unwrap();
    assert_eq!(engine.status(far).await, Status::Cancelled);
    engine.run_to("2h").await;
    assert_eq!(run.output().await.unwrap(), 2);
}

#[workflow]
async fn child(ctx: Context, name: String) -> Result<String, Error> {
    ctx.hook::<u32>("go").await?;
    Ok(name)
}

/// Each generation starts a child; the last one awaits its own.
#[workflow]
async fn starts_children(ctx: Context, generation: u32) -> Result<String, Error> {
    let own = ctx.child(child, format!("child {generation}")).on_parent_end(match generation {
        1 => ParentEnd::Cancel,
        2 => ParentEnd::Wait,
        _ => ParentEnd::Abandon,
    });
    if generation < 3 {
        ctx.sleep("1s").await?;
        return ctx.continue_as(&(generation + 1));
    }
    own.await
}

async fn children_of(engine: &TestEngine, run: RunId) -> Vec<RunId> {
    let mut children: Vec<_> =
        engine.client.list().parent(run).await.unwrap().runs.into_iter().map(|view| view.id).collect();
    children.sort();
    children
}

async fn children_outlive_a_generation(engine: TestEngine) {
    let worker = engine.worker((starts_children, child)).await;
    let run = engine.client.start(starts_children, 1).await.unwrap();
    engine.run_to("10s").await;
    let children = children_of(&engine, run.id()).await;
    assert_eq!(children.len(), 3);
    // The end of the second child reaches a generation that did not start it.
    engine.crash(worker);
    let _worker = engine.worker((starts_children, child)).await;
    engine.send(children[2], "go", 1).await;
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting, "it waits for the second child");
    assert_eq!(engine.status(children[0]).await, Status::Waiting);
    engine.send(children[1], "go", 1).await;
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), "child 3");
    assert_eq!(engine.status(children[0]).await, Status::Cancelled, "as its policy says");
}

async fn a_terminated_run_cancels_children_of_earlier_generations(engine: TestEngine) {
    let worker = engine.worker((starts_children, child)).await;
    let run = engine.client.start(starts_children, 1).await.unwrap();
    engine.run_to("10s").await;
    let children = children_of(&engine, run.id()).await;
    engine.crash(worker);
    // A worker without the code of the run ends it.
    let _worker = engine.worker(child).await;
    engine.client.terminate(run.id(), "enough").await.unwrap();
    engine.settle().await;
    assert!(run.output().await.unwrap_err().is_cancelled());
    assert_eq!(engine.status(children[0]).await, Status::Cancelled);
    assert_eq!(engine.status(children[1]).await, Status::Cancelled);
    assert_eq!(engine.status(children[2]).await, Status::Waiting, "it is abandoned");
}

#[workflow]
async fn parent(ctx: Context) -> Result<(u64, u32), Error> {
    ctx.child(polls, (1, 3)).await
}

async fn a_parent_awaits_the_last_generation(engine: TestEngine) {
    let _worker = engine.worker((parent, polls)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), (3, 3));
}

async fn a_cancelled_run_does_not_continue(engine: TestEngine) {
    #[workflow]
    async fn ignores(ctx: Context, generation: u32) -> Result<u32, Error> {
        let _ = ctx.sleep("1m").await;
        ctx.continue_as(&(generation + 1))
    }
    let _worker = engine.worker(ignores).await;
    let run = engine.client.start(ignores, 1).await.unwrap();
    engine.run_to("150s").await;
    engine.client.cancel(run.id(), "enough").await.unwrap();
    engine.settle().await;
    let error = run.output().await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Cancelled, "cancelled: enough"));
    assert_eq!(engine.view(run.id()).await.generation, 3);
}

async fn the_deadline_of_a_run_counts_for_all_its_generations(engine: TestEngine) {
    let worker = engine.worker(polls).await;
    let run = engine.client.start(polls, (1, 1_000)).deadline(Duration::from_secs(150)).await.unwrap();
    engine.run_to("100s").await;
    engine.crash(worker);
    let _worker = engine.worker(polls).await;
    engine.run_to("1h").await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.to_string().contains("its deadline"), "{error}");
    assert_eq!(engine.steps.logged(), ["1 of 1000", "2 of 1000", "3 of 1000"]);
}

async fn a_generation_begins_with_the_newest_version(engine: TestEngine) {
    #[workflow(name = "versioned")]
    async fn first(ctx: Context, versions: Vec<u32>) -> Result<Vec<u32>, Error> {
        ctx.sleep("1m").await?;
        let mut versions = versions;
        versions.push(ctx.version());
        ctx.continue_as(&versions)
    }
    #[workflow(name = "versioned", version = 2)]
    async fn second(ctx: Context, mut versions: Vec<u32>) -> Result<Vec<u32>, Error> {
        versions.push(ctx.version());
        ctx.sleep("1m").await?;
        Ok(versions)
    }
    let old = engine.worker_of_build("a", first).await;
    let run = engine.client.start(first, Vec::new()).await.unwrap();
    engine.run_to("70s").await;
    old.stop().await.unwrap();
    let both = engine.worker_of_build("b", (first, second)).await;
    engine.run_to("130s").await;
    assert_eq!(engine.view(run.id()).await.version, 2);
    engine.crash(both);
    let _new = engine.worker_of_build("c", second).await;
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), [1, 1, 2]);
}

async fn an_input_that_does_not_fit_makes_the_run_stuck(engine: TestEngine) {
    #[workflow(name = "typed")]
    async fn wrong(ctx: Context, _input: u32) -> Result<u32, Error> {
        ctx.sleep("1m").await?;
        ctx.continue_as(&"two")
    }
    #[workflow(name = "typed")]
    async fn fixed(ctx: Context, input: u32) -> Result<u32, Error> {
        ctx.sleep("1m").await?;
        if input < 2 { ctx.continue_as(&(input + 1)) } else { Ok(input) }
    }
    let worker = engine.worker_of_build("a", wrong).await;
    let run = engine.client.start(wrong, 1).await.unwrap();
    engine.run_to("2m").await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Undecodable, "{}", stuck.message);
    assert_eq!(engine.view(run.id()).await.generation, 1);
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", fixed).await;
    engine.run_to("1h").await;
    assert_eq!(engine.output_after_fix(&run).await, 2);
}

async fn views_mark_what_a_replay_skips(engine: TestEngine) {
    let worker = engine.worker(polls).await;
    let run = engine.client.start(polls, (1, 3)).await.unwrap();
    engine.run_to("90s").await;
    let operations = engine.client.operations(run.id()).await.unwrap();
    let skipped: Vec<_> = operations.iter().map(|operation| (operation.op.0, operation.is_skipped)).collect();
    assert_eq!(skipped, [(0, true), (1, true), (2, false), (3, false)]);
    let events = engine.client.events(run.id()).await.unwrap();
    let first = events.iter().find(|event| !event.is_skipped).unwrap();
    assert_eq!((first.event.kind(), first.number), ("run_continued", 5));
    assert!(events.iter().all(|event| event.is_skipped == (event.number < 5)));
    // The whole history replays, and so does an export of it.
    let called = traces(run.id(), "called");
    let history = History { run: run.id(), turns: engine.turns(run.id()).await };
    let history = History::from_json(&history.to_json()).unwrap();
    outlast::replay(polls, history).unwrap();
    assert_eq!(traces(run.id(), "called"), called + 1, "only the last generation");
    let explanation = engine.client.explain(run.id()).await.unwrap();
    assert!(explanation.sentence.contains("timer"), "{}", explanation.sentence);
    engine.crash(worker);
}

#[step]
async fn release(cx: StepContext<StepState>, undo: Undo<String, String>) -> Result<(), StepError> {
    cx.state().log(format!("release {}", undo.input));
    Ok(())
}

/// Reserves in each generation, and keeps what it has reserved if it is told to.
#[workflow]
async fn reserves(ctx: Context, (generation, keeps): (u64, bool)) -> Result<u64, Error> {
    ctx.step(super::test_engine::note, format!("seat {generation}")).undo(release).await?;
    if keeps {
        ctx.keep();
    }
    if generation < 3 { ctx.continue_as(&(generation + 1, keeps)) } else { Ok(ctx.generation()) }
}

async fn a_run_with_unsettled_compensations_does_not_continue(engine: TestEngine) {
    let _worker = engine.worker((reserves, release)).await;
    let settled = engine.client.start(reserves, (1, true)).await.unwrap();
    assert_eq!(settled.output().await.unwrap(), 3);
    assert_eq!(engine.steps.logged(), ["seat 1", "seat 2", "seat 3"]);

    let unsettled = engine.client.start(reserves, (1, false)).await.unwrap();
    let error = unsettled.output().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("call `ctx.keep()` before `ctx.continue_as(…)`"), "{error}");
    assert_eq!(engine.steps.logged()[3..], ["seat 1", "release seat 1"]);
    let view = engine.view(unsettled.id()).await;
    assert_eq!((view.status, view.generation), (Status::Failed, 1));
}
