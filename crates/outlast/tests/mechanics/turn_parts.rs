//! A turn with many events is committed in parts, and its worker may be lost between two of them.

use std::collections::BTreeSet;

use outlast::core::limits::PART_EVENTS_MAX;
use outlast::core::{Event, TurnRecord, WorldError};
use outlast::prelude::*;
use outlast::{RunId, RunQuery, Status, Undo, WorkerBuilder};

use super::forks::{event, fork, work};
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world, pause_between_reads};

on_every_world! {
    a_large_fan_out_is_committed_in_parts,
    a_worker_that_is_lost_between_parts_is_replaced,
    children_may_end_before_the_rest_is_asked_for,
    a_run_continues_after_a_refused_part,
    steps_of_a_lost_part_are_attempted_once,
    a_run_may_end_in_its_last_part,
    messages_wait_for_the_last_part,
    queued_steps_of_a_fork_are_started_with_the_first_part,
    a_cancelled_queued_step_of_a_fork_is_cancelled_with_the_first_part,
    queued_steps_of_a_retry_are_started_with_the_first_part,
    a_token_is_kept_from_the_turn_on_that_records_its_close,
}

const CHILDREN: u32 = 11;

/// Much fewer events than a turn of these tests has.
const PART: usize = 3;

#[workflow]
async fn leaf(ctx: Context, number: u32) -> Result<u32, Error> {
    ctx.note(&format!("leaf {number}")).await?;
    Ok(number)
}

#[workflow]
async fn fans_out(ctx: Context) -> Result<u32, Error> {
    let children: Vec<_> = (0..CHILDREN).map(|number| ctx.child(leaf, number)).collect();
    Ok(try_join_all(children).await?.into_iter().sum())
}

/// Receives a message before it requests many operations.
#[workflow]
async fn fans_out_later(ctx: Context) -> Result<u32, Error> {
    ctx.note("first").await?;
    let parity: u32 = ctx.record("parity", || 1)?;
    let children: Vec<_> = (0..CHILDREN).map(|number| ctx.child(leaf, number)).collect();
    let more: u32 = ctx.record("more", || 1)?;
    Ok(try_join_all(children).await?.into_iter().sum::<u32>() + parity + more)
}

/// Its children are executed by other workers.
#[workflow]
async fn fans_out_far(ctx: Context) -> Result<u32, Error> {
    let children: Vec<_> = (0..CHILDREN).map(|number| ctx.child(leaf, number).queue("far")).collect();
    Ok(try_join_all(children).await?.into_iter().sum())
}

fn builder(engine: &TestEngine) -> WorkerBuilder<StepState> {
    engine.builder().part_events(PART).register((fans_out, fans_out_later, fans_out_far, leaf))
}

fn asked(turn: &TurnRecord) -> usize {
    turn.events.iter().filter(|event| event.is_decision()).count()
}

/// Asserts that every child of the run was started once and has ended, and that each executed its step once.
async fn assert_children(engine: &TestEngine, run: RunId) {
    assert_children_ended(engine, run).await;
    for number in 0..CHILDREN {
        assert_eq!(engine.steps.count(&format!("leaf {number}")), 1);
    }
}

/// Every child of the run was started once and has ended. A worker that is lost may have attempted the work of some.
async fn assert_children_ended(engine: &TestEngine, run: RunId) {
    let query = RunQuery { parent: Some(run), ..RunQuery::default() };
    let children = engine.client.runs(query).await.unwrap().runs;
    assert!(children.iter().all(|child| child.status == Status::Completed));
    let turns = engine.turns(run).await;
    let started = turns.iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
        Event::ChildStarted(child) => Some(child.run),
        _ => None,
    });
    let started: Vec<_> = started.collect();
    assert_eq!(started.len(), CHILDREN as usize);
    let children: BTreeSet<_> = children.iter().map(|child| child.id).collect();
    assert_eq!(children, started.into_iter().collect::<BTreeSet<_>>());
}

async fn a_large_fan_out_is_committed_in_parts(engine: TestEngine) {
    const { assert!(PART < PART_EVENTS_MAX) };
    let _worker = builder(&engine).start().await.unwrap();
    let run = engine.client.start(fans_out, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), CHILDREN * (CHILDREN - 1) / 2);
    assert_children(&engine, run.id()).await;
    let turns = engine.turns(run.id()).await;
    let asked: Vec<_> = turns.iter().take(5).map(asked).collect();
    assert_eq!(asked, [0, 3, 3, 3, 2], "the start, and the children in parts");
    let continued: Vec<_> = turns.iter().map(|turn| turn.id.is_continued()).collect();
    assert_eq!(continued[..5], [false, true, true, true, false]);
    assert!(!continued[5..].contains(&true));
    assert!(turns[..5].iter().all(|turn| turn.at == turns[0].at), "it is one turn");
}

async fn a_worker_that_is_lost_between_parts_is_replaced(engine: TestEngine) {
    for (lost, workflow) in [(0, "first"), (1, "later"), (2, "later")] {
        let worker = builder(&engine).start().await.unwrap();
        let gate = engine.faults.hold_part(lost);
        let run = match workflow {
            "first" => engine.client.start(fans_out, ()).await.unwrap(),
            _ => engine.client.start(fans_out_later, ()).await.unwrap(),
        };
        gate.wait_for_call().await;
        assert!(engine.turns(run.id()).await.last().unwrap().id.is_continued());
        engine.crash(worker);
        let worker = builder(&engine).start().await.unwrap();
        let more = if workflow == "first" { 0 } else { 2 };
        assert_eq!(run.output().await.unwrap(), CHILDREN * (CHILDREN - 1) / 2 + more);
        assert_children_ended(&engine, run.id()).await;
        worker.stop().await.unwrap();
    }
}

async fn children_may_end_before_the_rest_is_asked_for(engine: TestEngine) {
    let worker = builder(&engine).start().await.unwrap();
    let gate = engine.faults.hold_part(1);
    let run = engine.client.start(fans_out_far, ()).await.unwrap();
    gate.wait_for_call().await;
    // The children of the first two parts end on another worker, and notify their parent.
    let other = builder(&engine).queues(["far"]).start().await.unwrap();
    let query = || RunQuery { parent: Some(run.id()), ..RunQuery::default() };
    loop {
        let children = engine.client.runs(query()).await.unwrap().runs;
        assert_eq!(children.len(), 2 * PART);
        if children.iter().all(|child| child.status == Status::Completed) {
            break;
        }
        pause_between_reads().await;
    }
    other.stop().await.unwrap();
    engine.crash(worker);
    let _worker = builder(&engine).queues(["default", "far"]).start().await.unwrap();
    assert_eq!(run.output().await.unwrap(), CHILDREN * (CHILDREN - 1) / 2);
    assert_children(&engine, run.id()).await;
    let turns = engine.turns(run.id()).await;
    let told = turns.iter().position(|turn| asked(turn) < turn.events.len() && turn.seq > 0).unwrap();
    let before: usize = turns[..told].iter().map(asked).sum();
    assert_eq!(before, CHILDREN as usize, "all children are asked for before the run is told of one");
}

async fn a_run_continues_after_a_refused_part(engine: TestEngine) {
    let worker = builder(&engine).build("1").start().await.unwrap();
    engine.faults.refuse_part(1, WorldError::Invalid("it does not like it".into()));
    let run = engine.client.start(fans_out_later, ()).await.unwrap();
    engine.wait_for_status(run.id(), Status::Stuck).await;
    assert_eq!(engine.steps.count("first"), 1);
    worker.stop().await.unwrap();
    let _worker = builder(&engine).build("2").start().await.unwrap();
    assert_eq!(engine.output_after_fix(&run).await, CHILDREN * (CHILDREN - 1) / 2 + 2);
    assert_children(&engine, run.id()).await;
    assert_eq!(engine.steps.count("first"), 1, "its outcome is in the first part");
}

#[step(at_most_once)]
async fn charge(cx: StepContext<StepState>, number: u32) -> u32 {
    cx.state().log(format!("charge {number}"));
    number
}

#[workflow]
async fn charges(ctx: Context) -> Result<Vec<bool>, Error> {
    let charges: Vec<_> = (0..7).map(|number| ctx.step(charge, number)).collect();
    Ok(join_all(charges).await.into_iter().map(|charged| charged.is_ok()).collect())
}

async fn steps_of_a_lost_part_are_attempted_once(engine: TestEngine) {
    let builder = || engine.builder().part_events(PART).register((charges, charge));
    let worker = builder().start().await.unwrap();
    let gate = engine.faults.hold_part(0);
    let run = engine.client.start(charges, ()).await.unwrap();
    gate.wait_for_call().await;
    engine.crash(worker);
    let _worker = builder().start().await.unwrap();
    let charged = run.output().await.unwrap();
    assert_eq!(
        charged[..PART],
        [false; PART],
        "whether those that were announced were attempted is not known"
    );
    assert_eq!(charged[PART..], [true; 7 - PART], "the others were not announced");
    for number in PART..7 {
        assert_eq!(engine.steps.count(&format!("charge {number}")), 1);
    }
}

#[workflow]
async fn waits(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await
}

/// Starts children that it does not wait for, and ends in the same turn.
#[workflow]
async fn ends_at_once(ctx: Context) -> Result<u32, Error> {
    for number in 0..CHILDREN {
        ctx.child(leaf, number).abandon().await?;
    }
    Ok(7)
}

async fn a_run_may_end_in_its_last_part(engine: TestEngine) {
    let builder = || engine.builder().part_events(PART).register((ends_at_once, leaf));
    let worker = builder().start().await.unwrap();
    let gate = engine.faults.hold_part(2);
    let run = engine.client.start(ends_at_once, ()).await.unwrap();
    gate.wait_for_call().await;
    assert_eq!(engine.status(run.id()).await, Status::Running);
    engine.crash(worker);
    let _worker = builder().start().await.unwrap();
    assert_eq!(run.output().await.unwrap(), 7);
    engine.settle().await;
    assert_children_ended(&engine, run.id()).await;
}

/// Its children are started and cancelled in one turn.
#[workflow]
async fn gives_up(ctx: Context) -> Result<u32, Error> {
    let children: Vec<_> = (0..7).map(|_| ctx.child(waits, ())).collect();
    let gone = ctx.child(leaf, 1).abandon();
    gone.await?;
    drop(children);
    Ok(7)
}

async fn messages_wait_for_the_last_part(engine: TestEngine) {
    let builder = || engine.builder().part_events(PART).register((gives_up, waits, leaf));
    for lost in [None, Some(0), Some(1)] {
        let worker = builder().start().await.unwrap();
        let gate = lost.map(|lost| engine.faults.hold_part(lost));
        let run = engine.client.start(gives_up, ()).await.unwrap();
        let worker = match gate {
            Some(gate) => {
                gate.wait_for_call().await;
                engine.crash(worker);
                builder().start().await.unwrap()
            }
            None => worker,
        };
        assert_eq!(run.output().await.unwrap(), 7);
        engine.settle().await;
        let workflow = Some("waits".into());
        let query = RunQuery { parent: Some(run.id()), workflow, ..RunQuery::default() };
        let children = engine.client.runs(query).await.unwrap().runs;
        let status: Vec<_> = children.iter().map(|child| child.status).collect();
        assert_eq!(status, [Status::Cancelled; 7], "their parent has ended");
        worker.stop().await.unwrap();
    }
}

#[step]
async fn far(cx: StepContext<StepState>, name: String) -> String {
    cx.state().log(format!("far {name}"));
    name
}

#[step]
async fn undo_far(cx: StepContext<StepState>, undo: Undo<String, String>) -> Result<(), StepError> {
    cx.state().log(format!("undid {}", undo.input));
    Ok(())
}

const QUEUES: &[&str] = &["default", "far"];

/// The last run that was started for the first operation.
async fn queued_step(engine: &TestEngine, run: RunId) -> RunId {
    let turns = engine.turns(run).await;
    let started = turns.iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
        Event::StepStarted { queued: Some(queued), .. } => Some(queued.run),
        Event::RunForked(forked) => Some(forked.restarts[0].run),
        _ => None,
    });
    started.last().unwrap()
}

fn far_builder(engine: &TestEngine, queues: &[&str]) -> WorkerBuilder<StepState> {
    let code = (queues_all, queues_and_cancels, queues_and_fails, far, undo_far, work);
    engine.builder().part_events(PART).queues(queues.iter().copied()).register(code)
}

/// Crashes the worker before it commits the part behind the next first part, and starts another one.
async fn lose_rest_of_turn<T>(
    engine: &TestEngine,
    worker: Worker,
    queues: &[&str],
    act: impl Future<Output = T>,
) -> (Worker, T) {
    let gate = engine.faults.hold_part(0);
    let done = act.await;
    gate.wait_for_call().await;
    engine.crash(worker);
    (far_builder(engine, queues).start().await.unwrap(), done)
}

#[workflow]
async fn queues_all(ctx: Context) -> Result<u32, Error> {
    let steps: Vec<_> = (0..7).map(|number| ctx.step(far, number.to_string()).queue("far")).collect();
    Ok(try_join_all(steps).await?.len() as u32)
}

async fn queued_steps_of_a_fork_are_started_with_the_first_part(engine: TestEngine) {
    let worker = far_builder(&engine, &["default"]).start().await.unwrap();
    let run = engine.client.start(queues_all, ()).await.unwrap();
    engine.wait_for_status(run.id(), Status::Waiting).await;
    // The first step is open there, and the fork requests the others in its first turn.
    let at = event(&engine, run.id(), "step_started", 1).await;
    let (_worker, copy) = lose_rest_of_turn(&engine, worker, QUEUES, fork(run.fork().at(at))).await;
    engine.advance("1m").await;
    for number in 0..7 {
        assert_eq!(engine.steps.count(&format!("far {number}")), 2, "step {number} of both runs");
    }
    assert_eq!((run.output().await.unwrap(), copy.output().await.unwrap()), (7, 7));
}

#[workflow]
async fn queues_and_cancels(ctx: Context) -> Result<(), Error> {
    let (queued, go) = (ctx.step(far, "one".to_owned()).queue("far").undo(undo_far), ctx.hook::<u32>("go"));
    // The step is cancelled, and its end is awaited.
    select! {
        _ = queued => (),
        _ = go => (),
    }
    let timers: Vec<_> = (0..7).map(|_| ctx.sleep("1h")).collect();
    try_join_all(timers).await.map(drop)
}

async fn a_cancelled_queued_step_of_a_fork_is_cancelled_with_the_first_part(engine: TestEngine) {
    let worker = far_builder(&engine, &["default"]).start().await.unwrap();
    let run = engine.client.start(queues_and_cancels, ()).await.unwrap();
    engine.send(run.id(), "go", 1).await;
    engine.wait_for_history(run.id(), |history| history.contains("timer_started")).await;
    engine.wait_for_status(run.id(), Status::Waiting).await;
    let at = event(&engine, run.id(), "operation_cancelled", 0).await + 1;
    let forking = fork(run.fork().at(at));
    let (_worker, copy) = lose_rest_of_turn(&engine, worker, &["default"], forking).await;
    engine.wait_for_status(copy.id(), Status::Waiting).await;
    for run in [run.id(), copy.id()] {
        assert_eq!(
            engine.view(queued_step(&engine, run).await).await.sent,
            1,
            "only its parent has cancelled it"
        );
    }
    let _far = far_builder(&engine, QUEUES).start().await.unwrap();
    engine.advance("2h").await;
    copy.output().await.unwrap();
    run.output().await.unwrap();
    assert_eq!(engine.steps.count("far one"), 0, "it is cancelled before a worker serves its queue");
}

#[workflow]
async fn queues_and_fails(ctx: Context) -> Result<(), Error> {
    let queued = ctx.step(far, "one".to_owned()).queue("far");
    let bad = ctx.step(work, "bad".to_owned());
    let later = async {
        ctx.step(work, "slow".to_owned()).await?;
        let timers: Vec<_> = (0..7).map(|_| ctx.sleep("1h")).collect();
        try_join_all(timers).await.map(drop)
    };
    // The run fails when the others have ended.
    let rest = async {
        let (bad, later) = futures_util::future::join(bad, later).await;
        later.and(bad)
    };
    futures_util::future::try_join(queued, rest).await.map(drop)
}

async fn queued_steps_of_a_retry_are_started_with_the_first_part(engine: TestEngine) {
    let worker = far_builder(&engine, &["default"]).start().await.unwrap();
    let run = engine.client.start(queues_and_fails, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("step_failed")).await;
    engine.steps.open("slow");
    engine.wait_for_history(run.id(), |history| history.contains("timer_started")).await;
    engine.advance("2h").await;
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    // The outcome of the slow step is recorded again, and the timers are requested in the same turn.
    let retry = async { engine.client.retry(run.id()).await.unwrap() };
    let (_worker, _) = lose_rest_of_turn(&engine, worker, QUEUES, retry).await;
    engine.advance("2h").await;
    assert_eq!(engine.steps.count("far one"), 1, "nobody served its queue before the retry");
    run.output().await.unwrap();
}

async fn a_token_is_kept_from_the_turn_on_that_records_its_close(engine: TestEngine) {
    #[workflow]
    async fn closes_last(ctx: Context) -> Result<(), Error> {
        let open = ctx.open_hook::<u32>("hook").token("kept").keep_for("1h").await?;
        open.next().await?;
        let timers: Vec<_> = (0..7).map(|_| ctx.sleep("9h")).collect();
        drop(open);
        try_join_all(timers).await.map(drop)
    }
    let builder = || engine.builder().part_events(PART).register(closes_last);
    let worker = builder().start().await.unwrap();
    let run = engine.client.start(closes_last, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("token_taken")).await;
    engine.wait_for_status(run.id(), Status::Waiting).await;
    let gate = engine.faults.hold_part(0);
    engine.send(run.id(), "hook", 1).await;
    gate.wait_for_call().await;
    engine.crash(worker);
    engine.clock.advance(std::time::Duration::from_secs(50 * 60));
    let _worker = builder().start().await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("token_closed")).await;
    engine.advance("30m").await;
    assert!(engine.client.token("kept").await.unwrap().is_some(), "it is kept for an hour");
    engine.advance("31m").await;
    assert!(engine.client.token("kept").await.unwrap().is_none());
}
