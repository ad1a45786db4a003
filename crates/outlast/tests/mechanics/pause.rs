//! Pausing: nothing is delivered to a paused run, nothing is lost, and no outcome changes.

use outlast::core::limits::SESSION_DEFAULT;
use outlast::core::queue::default_queues;
use outlast::core::{ClaimRequest, Code, Join, SessionId, SuspectRoom};
use outlast::prelude::*;
use outlast::{Because, Controlled, ErrorKind, Marks, RunId, Status, Timestamp};

use super::faulty_world::Call;
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    a_pause_at_every_commit_changes_no_outcome,
    a_pause_at_every_commit_and_a_crash_lose_nothing,
    a_running_attempt_ends_and_its_outcome_is_delivered_after_the_pause,
    a_run_that_is_resumed_before_its_attempt_ends_continues,
    what_became_due_is_delivered_in_the_order_of_time,
    a_cancel_ends_the_pause_and_the_workflow_cleans_up,
    a_cancel_during_an_attempt_of_a_paused_run_reaches_it,
    a_deadline_ends_the_pause,
    a_deadline_ends_the_pause_of_a_run_whose_workflow_has_returned,
    a_paused_run_is_terminated_without_its_code,
    a_crash_while_paused_attempts_the_step_again_after_the_pause,
    another_worker_continues_after_the_pause,
    a_step_that_is_attempted_at_most_once_is_not_lost,
    an_attempt_that_waits_for_a_permit_does_not_begin,
    a_failed_attempt_is_retried_after_the_pause,
    a_run_that_has_not_begun_begins_after_the_pause,
    a_stuck_run_is_paused_and_resumed,
    a_child_continues_while_its_parent_is_paused,
    a_queued_step_can_be_paused,
    pause_and_resume_report_what_they_did,
    a_run_that_an_older_build_holds_is_not_paused,
    a_paused_run_is_explained,
    a_pause_after_a_request_to_stop_has_no_effect,
}

/// Attempted at most once.
#[step(at_most_once)]
async fn pay(cx: StepContext<StepState>) -> String {
    cx.state().log("paid");
    "paid".to_owned()
}

/// Every kind of operation that waits or is attempted.
#[workflow]
async fn journey(ctx: Context) -> Result<String, Error> {
    let first = ctx.note("first").await?;
    let (left, attempts) = try_join!(ctx.note("left"), ctx.flaky(2))?;
    ctx.sleep("10s").await?;
    let paid = ctx.step(pay, ()).await?;
    let answer = ctx.hook::<u32>("answer").timeout("1h").await?;
    let child = ctx.child(leg, ()).await?;
    Ok(format!("{first} {left} {attempts} {paid} {answer} {child}"))
}

#[workflow]
async fn leg(ctx: Context) -> Result<String, Error> {
    ctx.note("leg").await
}

const OUTPUT: &str = "first left 3 paid 7 leg";
const STEPS: [(&str, usize); 5] = [("first", 1), ("left", 1), ("flaky", 3), ("paid", 1), ("leg", 1)];

/// Waits until the run has ended; if it is paused, asserts that it does not continue, and resumes it. Returns how often
/// it was resumed.
async fn drive(engine: &TestEngine, run: RunId) -> usize {
    let mut resumed = 0;
    while !engine.status(run).await.is_final() {
        engine.advance("1m").await;
        let view = engine.view(run).await;
        if !view.marks.is_paused() {
            continue;
        }
        assert_eq!(view.owner, None, "{view:?}");
        let history = engine.history(run).await;
        engine.advance("10m").await;
        assert_eq!(engine.history(run).await, history);
        assert_eq!(engine.client.resume(run).await.unwrap(), Controlled::Requested);
        resumed += 1;
    }
    resumed
}

async fn a_pause_at_every_commit_changes_no_outcome(engine: TestEngine) {
    let _worker = engine.worker((journey, leg, pay)).await;
    let (mut resumed, mut commits) = (0, 0);
    for skip in 0.. {
        let id = engine.client.new_id();
        let before: Vec<_> = STEPS.iter().map(|(step, _)| engine.steps.count(step)).collect();
        let client = engine.client.clone();
        engine.faults.before_commit(skip, async move {
            // Before the first commit there is no run, and after the last one it has ended.
            let _refused = client.pause(id).reason("at a commit").await;
        });
        let run = engine.client.start(journey, ()).id(id).await.unwrap();
        engine.send(id, "answer", 7).await;
        resumed += drive(&engine, id).await;
        assert_eq!(run.output().await.unwrap(), OUTPUT, "paused before commit {skip}");
        for ((step, count), before) in STEPS.iter().zip(before) {
            assert_eq!(engine.steps.count(step) - before, *count, "{step}, paused before commit {skip}");
        }
        assert_eq!(engine.view(id).await.marks, Marks::NONE);
        if engine.faults.left() > 0 {
            break;
        }
        commits += 1;
    }
    assert!(resumed >= 6 && commits >= resumed, "{resumed} of {commits}");
}

async fn a_pause_at_every_commit_and_a_crash_lose_nothing(engine: TestEngine) {
    let mut worker = engine.worker((journey, leg, pay)).await;
    for skip in [1, 3, 5, 6] {
        let id = engine.client.new_id();
        let client = engine.client.clone();
        engine.faults.before_commit(skip, async move {
            let _refused = client.pause(id).await;
        });
        let run = engine.client.start(journey, ()).id(id).await.unwrap();
        engine.send(id, "answer", 7).await;
        engine.advance("1m").await;
        engine.crash(worker);
        worker = engine.worker((journey, leg, pay)).await;
        drive(&engine, id).await;
        assert_eq!(run.output().await.unwrap(), OUTPUT, "paused before commit {skip}");
    }
}

#[workflow]
async fn two_steps(ctx: Context) -> Result<String, Error> {
    let first = ctx.blocked("gate").await?;
    let second = ctx.note("second").await?;
    Ok(format!("{first} {second}"))
}

/// Waits until the holder of a run has received the messages that were sent to it before: the claims that begin after
/// further messages follow the claim that returned those.
async fn until_received(engine: &TestEngine, run: RunId) {
    for _ in 0..3 {
        let claims = engine.faults.count(Call::Claim);
        engine.client.wake(run).await.unwrap();
        while engine.faults.count(Call::Claim) == claims {
            tokio::task::yield_now().await;
        }
    }
}

/// Pauses a run during an attempt at one of its steps. Its holder has received the pause.
async fn pause_held(engine: &TestEngine, run: RunId) {
    engine.client.pause(run).await.unwrap();
    until_received(engine, run).await;
}

/// A paused run whose first step has ended.
async fn paused_during_attempt(engine: &TestEngine) -> RunHandle<String> {
    let run = engine.client.start(two_steps, ()).await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    pause_held(engine, run.id()).await;
    assert!(engine.view(run.id()).await.owner.is_some(), "the attempt is awaited");
    engine.steps.open("gate");
    engine.wait_for_view(run.id(), |view| view.owner.is_none()).await;
    run
}

async fn a_running_attempt_ends_and_its_outcome_is_delivered_after_the_pause(engine: TestEngine) {
    let _worker = engine.worker(two_steps).await;
    let run = paused_during_attempt(&engine).await;
    engine.assert_history(run.id(), "0 step_started blocked").await;
    assert_eq!(engine.steps.count("second"), 0);
    run.resume().await.unwrap();
    assert_eq!(run.output().await.unwrap(), "gate second");
    assert_eq!((engine.steps.count("began gate"), engine.steps.count("second")), (1, 1));
}

async fn a_run_that_is_resumed_before_its_attempt_ends_continues(engine: TestEngine) {
    let _worker = engine.worker(two_steps).await;
    let run = engine.client.start(two_steps, ()).await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    let owner = engine.view(run.id()).await.owner;
    for _ in 0..3 {
        pause_held(&engine, run.id()).await;
        run.resume().await.unwrap();
        until_received(&engine, run.id()).await;
    }
    assert_eq!(engine.view(run.id()).await.owner, owner, "its worker still holds it");
    engine.steps.open("gate");
    assert_eq!(run.output().await.unwrap(), "gate second");
    assert_eq!(engine.steps.count("began gate"), 1);
}

async fn what_became_due_is_delivered_in_the_order_of_time(engine: TestEngine) {
    #[workflow]
    async fn waits(ctx: Context) -> Result<u32, Error> {
        let timer = ctx.sleep("10s");
        let (early, (), late) = try_join!(ctx.hook::<u32>("early"), timer, ctx.hook::<u32>("late"))?;
        Ok(early + late)
    }
    let _worker = engine.worker(waits).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    engine.settle().await;
    run.pause().await.unwrap();
    let turns = engine.turns(run.id()).await.len();
    engine.advance("5s").await;
    engine.send(run.id(), "early", 1).await;
    engine.advance("10s").await;
    engine.send(run.id(), "late", 2).await;
    engine.advance("1h").await;
    assert_eq!(engine.turns(run.id()).await.len(), turns, "nothing is delivered");
    run.resume().await.unwrap();
    assert_eq!(run.output().await.unwrap(), 3);
    let history = engine.history(run.id()).await;
    let place = |text: &str| history.find(text).unwrap();
    assert!(place("hook_received early") < place("timer_fired"), "{history}");
    assert!(place("timer_fired") < place("hook_received late"), "{history}");
}

#[workflow]
async fn tidy(ctx: Context) -> Result<String, Error> {
    match ctx.hook::<u32>("go").await {
        Ok(number) => Ok(number.to_string()),
        Err(error) => {
            ctx.shielded().note("tidied").await?;
            Err(error)
        }
    }
}

async fn a_cancel_ends_the_pause_and_the_workflow_cleans_up(engine: TestEngine) {
    let _worker = engine.worker(tidy).await;
    let run = engine.client.start(tidy, ()).await.unwrap();
    engine.settle().await;
    run.pause().await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    assert!(run.output().await.unwrap_err().is_cancelled());
    assert_eq!(engine.steps.count("tidied"), 1);
    assert_eq!(engine.view(run.id()).await.marks, Marks::NONE);
}

async fn a_cancel_during_an_attempt_of_a_paused_run_reaches_it(engine: TestEngine) {
    #[workflow]
    async fn stops(ctx: Context) -> Result<String, Error> {
        ctx.stoppable("long").await
    }
    let _worker = engine.worker(stops).await;
    let run = engine.client.start(stops, ()).await.unwrap();
    engine.steps.wait_for_log("began long", 1).await;
    pause_held(&engine, run.id()).await;
    run.cancel("enough").await.unwrap();
    assert_eq!(run.output().await.unwrap(), "stopped");
    assert_eq!(engine.steps.count("began long"), 1);
}

async fn a_deadline_ends_the_pause(engine: TestEngine) {
    let _worker = engine.worker((tidy, two_steps)).await;
    let waiting = engine.client.start(tidy, ()).deadline("1m").await.unwrap();
    engine.settle().await;
    waiting.pause().await.unwrap();
    engine.advance("59s").await;
    assert_eq!(engine.view(waiting.id()).await.shown_status(), "paused");
    let attempting = engine.client.start(two_steps, ()).deadline("1s").await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    pause_held(&engine, attempting.id()).await;
    engine.clock.advance("1s");
    assert!(waiting.output().await.unwrap_err().is_cancelled());
    assert_eq!(engine.steps.count("tidied"), 1);
    // The step in progress is awaited, and the next one is refused.
    engine.wait_for_history(attempting.id(), |history| history.contains("cancel_requested")).await;
    engine.steps.open("gate");
    assert!(attempting.output().await.unwrap_err().is_cancelled());
    assert_eq!(engine.steps.count("second"), 0);
}

/// Starts children that it does not wait for, and returns in the same turn.
#[workflow]
async fn leaves(ctx: Context) -> Result<String, Error> {
    for _ in 0..4 {
        ctx.child(leg, ()).abandon().await?;
    }
    Ok("left".into())
}

async fn a_deadline_ends_the_pause_of_a_run_whose_workflow_has_returned(engine: TestEngine) {
    let builder = || engine.builder().part_events(2).register((leaves, leg));
    let worker = builder().start().await.unwrap();
    let gate = engine.faults.hold_part(1);
    let run = engine.client.start(leaves, ()).deadline("1m").await.unwrap();
    gate.wait_for_call().await;
    run.pause().await.unwrap();
    // All children are recorded, so the replay returns; the end of the run is not.
    engine.crash(worker);
    let _worker = builder().start().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.shown_status(), "paused");
    engine.advance("1m").await;
    assert_eq!(run.output().await.unwrap(), "left");
}

async fn a_paused_run_is_terminated_without_its_code(engine: TestEngine) {
    let run = engine.client.start(tidy, ()).await.unwrap();
    run.pause().await.unwrap();
    run.terminate("enough").await.unwrap();
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.marks), (Status::Cancelled, Marks::NONE));
}

async fn a_crash_while_paused_attempts_the_step_again_after_the_pause(engine: TestEngine) {
    let worker = engine.worker(two_steps).await;
    let run = engine.client.start(two_steps, ()).await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    pause_held(&engine, run.id()).await;
    engine.crash(worker);
    let _worker = engine.worker(two_steps).await;
    engine.advance("1h").await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.owner, view.marks), (None, Marks::PAUSED));
    assert_eq!(engine.steps.count("began gate"), 1);
    engine.steps.open("gate");
    run.resume().await.unwrap();
    assert_eq!(run.output().await.unwrap(), "gate second");
    assert_eq!(engine.steps.count("began gate"), 2);
}

async fn another_worker_continues_after_the_pause(engine: TestEngine) {
    let first = engine.worker(two_steps).await;
    let run = paused_during_attempt(&engine).await;
    first.stop().await.unwrap();
    let _second = engine.worker_of_build("other", two_steps).await;
    engine.advance("1h").await;
    assert_eq!(engine.view(run.id()).await.shown_status(), "paused");
    run.resume().await.unwrap();
    assert_eq!(run.output().await.unwrap(), "gate second");
    assert_eq!(engine.steps.count("began gate"), 1, "the outcome was stored");
}

async fn a_step_that_is_attempted_at_most_once_is_not_lost(engine: TestEngine) {
    #[workflow]
    async fn pays(ctx: Context) -> Result<String, Error> {
        let (gate, paid) = try_join!(ctx.blocked("gate"), async {
            ctx.note("before").await?;
            ctx.step(pay, ()).await
        })?;
        Ok(format!("{gate} {paid}"))
    }
    let first = engine.worker((pays, pay)).await;
    let id = engine.client.new_id();
    let client = engine.client.clone();
    // Paused just before the commit that announces the payment.
    engine.faults.before_commit(1, async move {
        client.pause(id).await.unwrap();
    });
    let run = engine.client.start(pays, ()).id(id).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    until_received(&engine, id).await;
    engine.steps.open("gate");
    engine.wait_for_view(id, |view| view.owner.is_none()).await;
    first.stop().await.unwrap();
    let _second = engine.worker((pays, pay)).await;
    run.resume().await.unwrap();
    assert_eq!(run.output().await.unwrap(), "gate paid");
    assert_eq!(engine.steps.count("paid"), 1);
}

/// One at a time in a worker.
#[step(limit = 1)]
async fn single(cx: StepContext<StepState>, gate: String) -> String {
    cx.state().log(format!("began {gate}"));
    cx.state().wait_for_gate(&gate).await;
    gate
}

async fn an_attempt_that_waits_for_a_permit_does_not_begin(engine: TestEngine) {
    #[workflow]
    async fn one(ctx: Context, gate: String) -> Result<String, Error> {
        ctx.step(single, gate).await
    }
    let _worker = engine.worker((one, single)).await;
    let first = engine.client.start(one, "a".to_owned()).await.unwrap();
    engine.steps.wait_for_log("began a", 1).await;
    let second = engine.client.start(one, "b".to_owned()).await.unwrap();
    engine.wait_for_history(second.id(), |history| history.contains("step_started")).await;
    second.pause().await.unwrap();
    engine.wait_for_view(second.id(), |view| view.owner.is_none()).await;
    engine.steps.open("a");
    first.output().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.steps.count("began b"), 0);
    engine.steps.open("b");
    second.resume().await.unwrap();
    assert_eq!(second.output().await.unwrap(), "b");
}

async fn a_failed_attempt_is_retried_after_the_pause(engine: TestEngine) {
    #[workflow]
    async fn tries(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(2).await
    }
    let _worker = engine.worker(tries).await;
    let run = engine.client.start(tries, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.steps.count("flaky"), 1);
    run.pause().await.unwrap();
    engine.advance("1h").await;
    assert_eq!(engine.steps.count("flaky"), 1, "the pause between attempts is over, and no attempt begins");
    run.resume().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.steps.count("flaky"), 2);
    engine.advance("1m").await;
    assert_eq!(run.output().await.unwrap(), 3);
}

async fn a_run_that_has_not_begun_begins_after_the_pause(engine: TestEngine) {
    let run = engine.client.start(leg, ()).await.unwrap();
    run.pause().await.unwrap();
    let _worker = engine.worker(leg).await;
    engine.advance("1h").await;
    assert_eq!(engine.steps.count("leg"), 0);
    run.resume().await.unwrap();
    assert_eq!(run.output().await.unwrap(), "leg");
}

#[workflow(name = "fixed_later")]
async fn broken(_ctx: Context) -> Result<String, Error> {
    panic!("broken");
}

#[workflow(name = "fixed_later")]
async fn fixed(ctx: Context) -> Result<String, Error> {
    ctx.note("fixed").await
}

async fn a_stuck_run_is_paused_and_resumed(engine: TestEngine) {
    let worker = engine.worker_of_build("a", broken).await;
    let run = engine.client.start(broken, ()).await.unwrap();
    engine.settle().await;
    run.pause().await.unwrap();
    worker.stop().await.unwrap();
    let _fixed = engine.worker_of_build("a", fixed).await;
    engine.settle().await;
    assert_eq!(run.resume().await.unwrap(), Controlled::Requested, "ends the pause");
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Stuck, "the build has failed");
    assert_eq!(run.resume().await.unwrap(), Controlled::Requested, "retries the stuck run");
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), "fixed");
}

async fn a_child_continues_while_its_parent_is_paused(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<String, Error> {
        ctx.child(two_steps, ()).await
    }
    let _worker = engine.worker((parent, two_steps)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    engine.wait_for_status(run.id(), Status::Waiting).await;
    run.pause().await.unwrap();
    engine.steps.open("gate");
    engine.steps.wait_for_log("second", 1).await;
    engine.settle().await;
    let child = engine.client.children(run.id()).await.unwrap().runs.remove(0);
    assert_eq!(child.status, Status::Completed);
    assert_eq!(engine.view(run.id()).await.shown_status(), "paused");
    run.resume().await.unwrap();
    assert_eq!(run.output().await.unwrap(), "gate second");
}

async fn a_queued_step_can_be_paused(engine: TestEngine) {
    #[workflow]
    async fn far(ctx: Context) -> Result<String, Error> {
        ctx.note("far").queue("gpu").await
    }
    let _worker = engine.worker(far).await;
    let run = engine.client.start(far, ()).await.unwrap();
    engine.settle().await;
    let step = engine.client.list().queued_steps().parent(run.id()).await.unwrap().runs.remove(0).id;
    engine.client.pause(step).await.unwrap();
    let _gpu = engine.builder().queues(["gpu"]).start().await.unwrap();
    engine.advance("1h").await;
    assert_eq!(engine.steps.count("far"), 0);
    engine.client.resume(step).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "far");
}

async fn pause_and_resume_report_what_they_did(engine: TestEngine) {
    let _worker = engine.worker(tidy).await;
    let run = engine.client.start(tidy, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(run.resume().await.unwrap(), Controlled::Nothing);
    assert_eq!(run.pause().await.unwrap(), Controlled::Requested);
    assert_eq!(run.pause().await.unwrap(), Controlled::Already);
    assert_eq!(run.resume().await.unwrap(), Controlled::Requested);
    engine.settle().await;
    assert_eq!(run.resume().await.unwrap(), Controlled::Nothing);
    let error = run.pause().reason("x".repeat(5_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    engine.send(run.id(), "go", 7).await;
    run.output().await.unwrap();
    for error in [run.pause().await.unwrap_err(), run.resume().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("ended"), "{error}");
    }
    let error = engine.client.pause(engine.client.new_id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

async fn a_run_that_an_older_build_holds_is_not_paused(engine: TestEngine) {
    let session = SessionId::from_bits(1);
    let code: std::sync::Arc<[Code]> = [Code { workflow: "tidy".into(), version: 1 }].into();
    let (queues, build) = (default_queues(), std::sync::Arc::<str>::from("old"));
    let join = Join {
        session,
        host: "old".into(),
        pid: 1,
        build: build.clone(),
        code: code.clone(),
        queues: queues.clone(),
        time: SESSION_DEFAULT,
        rules: 2,
        format: 2,
    };
    engine.world.join(join).await.unwrap();
    let run = engine.client.start(tidy, ()).await.unwrap();
    let (suspects, ends_overdue_from) = (SuspectRoom::Nothing, Timestamp::NEVER);
    let request = ClaimRequest { limit: 1, code, queues, build, format: 2, suspects, ends_overdue_from };
    assert_eq!(engine.world.claim(session, request.clone()).await.unwrap().claimed.len(), 1);
    let error = run.pause().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("deploy a newer build"), "{error}");
    engine.world.leave(session).await.unwrap();
    run.pause().await.unwrap();
    run.resume().await.unwrap();
    let _worker = engine.worker(tidy).await;
    engine.send(run.id(), "go", 7).await;
    assert_eq!(run.output().await.unwrap(), "7");
}

async fn a_paused_run_is_explained(engine: TestEngine) {
    let _worker = engine.worker((tidy, two_steps)).await;
    let run = engine.client.start(tidy, ()).deadline("1d").await.unwrap();
    engine.settle().await;
    engine.client.acting_as("ada").pause(run.id()).reason("the bank is closed").await.unwrap();
    engine.advance("1m").await;
    let explained = run.explain().await.unwrap();
    let Because::Paused { reason, actor, deadline, attempts, .. } = &explained.because else {
        panic!("{explained:?}")
    };
    assert_eq!((&**reason, actor.as_deref()), ("the bank is closed", Some("ada")));
    assert!(deadline.is_some() && attempts.is_empty());
    let text = &explained.sentence;
    assert!(text.starts_with("It was paused by ada at"), "{text}");
    assert!(text.contains("the bank is closed. Call `client.resume(run)`"), "{text}");
    let busy = engine.client.start(two_steps, ()).await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    let late = run.output_within("0s").await.unwrap_err();
    assert!(late.to_string().contains("still paused"), "{late}");
    pause_held(&engine, busy.id()).await;
    let text = busy.explain().await.unwrap().sentence;
    assert!(text.contains("when its attempts have ended") && text.contains("blocked"), "{text}");
    engine.client.quarantine(busy.id()).await.unwrap();
    let explained = busy.explain().await.unwrap();
    assert!(explained.is_quarantined && explained.sentence.contains("It is in quarantine"), "{explained:?}");
    engine.steps.open("gate");
}

async fn a_pause_after_a_request_to_stop_has_no_effect(engine: TestEngine) {
    #[step]
    async fn undo(cx: StepContext<StepState>, _undo: Undo<String, String>) -> Result<(), StepError> {
        cx.state().log("undone");
        Ok(())
    }
    #[workflow]
    async fn order(ctx: Context) -> Result<u32, Error> {
        ctx.note("done").undo(undo).await?;
        ctx.hook("never").await
    }
    let worker = engine.worker((order, undo)).await;
    let run = engine.client.start(order, ()).await.unwrap();
    engine.wait_for_status(run.id(), Status::Waiting).await;
    worker.stop().await.unwrap();
    engine.client.terminate(run.id(), "enough").compensating().await.unwrap();
    engine.client.pause(run.id()).await.unwrap();
    let _worker = engine.worker((order, undo)).await;
    engine.wait_for_status(run.id(), Status::Cancelled).await;
    assert_eq!(engine.steps.count("undone"), 1);
}
