//! Cancel: delivered once; waits end in order, steps under way are awaited, what follows is refused.

use expect_test::expect;
use outlast_core::limits::REFUSALS_MAX;
use outlast_core::{Event, Failure, FailureKind, OpNumber};

use super::{Case, START, check, history, turn};
use crate::prelude::*;
use crate::replay::Delivery;

#[step(attempts = 3)]
async fn work() -> Result<String, StepError> {
    Ok("worked".into())
}

#[step]
async fn clean_up(what: String) -> Result<String, StepError> {
    Ok(what)
}

#[workflow]
async fn naps(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await
}

#[test]
fn a_wait_ends_with_a_cancelled_error_and_the_run_is_cancelled() {
    check(
        naps,
        "
        0 timer_started 1h
        - cancel_requested the customer left
        ",
        expect![[r#"
            - run_cancelled cancelled cancelled: the customer left
        "#]],
    );
}

#[workflow]
async fn three_waits(ctx: Context) -> Result<Vec<String>, Error> {
    let mut seen = Vec::new();
    {
        let (hook, timer) = (ctx.hook::<u32>("answer"), ctx.sleep("1h"));
        let step = ctx.step(work, ());
        let mut waits = FuturesUnordered::<std::pin::Pin<Box<dyn Future<Output = String> + Send>>>::new();
        waits.push(Box::pin(async { format!("step {:?}", step.await.map_err(|e| e.to_string())) }));
        waits.push(Box::pin(async { format!("timer {:?}", timer.await.map_err(|e| e.to_string())) }));
        waits.push(Box::pin(async { format!("hook {:?}", hook.await.map_err(|e| e.to_string())) }));
        while let Some(end) = waits.next().await {
            seen.push(end);
        }
    }
    Ok(seen)
}

#[test]
fn waits_end_in_the_order_of_their_numbers_and_a_step_under_way_is_awaited() {
    check(
        three_waits,
        "
        0 hook_opened   answer
        1 timer_started 1h
        2 step_started  work
        - cancel_requested stop
        ",
        expect![[r#"
            waits for 2 step work
        "#]],
    );
    check(
        three_waits,
        r#"
        0 hook_opened   answer
        1 timer_started 1h
        2 step_started  work
        - cancel_requested stop
        2 step_completed "done all the same"
        "#,
        expect![[r#"
            - run_completed ["hook Err(\"cancelled: stop\")","timer Err(\"cancelled: stop\")","step Ok(\"done all the same\")"]
        "#]],
    );
}

#[test]
fn a_pause_between_attempts_ends_with_the_cancel() {
    check(
        three_waits,
        "
        0 hook_opened   answer
        1 timer_started 1h
        2 step_started  work
        2 step_retried  1 30s busy
        - cancel_requested stop
        ",
        expect![[r#"
            - run_completed ["hook Err(\"cancelled: stop\")","timer Err(\"cancelled: stop\")","step Err(\"step `work` failed: cancelled: stop\")"]
        "#]],
    );
}

#[workflow]
async fn cleans_up(ctx: Context) -> Result<String, Error> {
    let worked = ctx.step(work, ()).await;
    if ctx.is_cancelled() {
        let how = worked.unwrap_or_else(|error| error.to_string());
        let cleaned = ctx.shielded().step(clean_up, how).await?;
        ctx.sleep("1m").await?;
        return Ok(cleaned);
    }
    worked
}

#[test]
fn a_cancel_with_nothing_to_end_is_seen_at_the_next_poll() {
    check(
        cleans_up,
        "
        0 step_started work
        - cancel_requested stop
        ",
        expect![[r#"
            waits for 0 step work
        "#]],
    );
}

#[workflow]
async fn does_not_care(ctx: Context) -> Result<String, Error> {
    let _ = ctx.sleep("1h").await;
    Ok("done anyway".into())
}

#[test]
fn a_run_that_returns_an_output_after_a_cancel_is_completed() {
    check(
        does_not_care,
        "
        0 timer_started 1h
        - cancel_requested stop
        ",
        expect![[r#"
            - run_completed "done anyway"
        "#]],
    );
}

#[workflow]
async fn answer_waits(ctx: Context) -> Result<u32, Error> {
    let answer = ctx.hook::<u32>("answer");
    let _ = ctx.sleep("1h").await;
    answer.await
}

#[test]
fn an_answer_given_before_the_cancel_is_not_lost() {
    check(
        answer_waits,
        "
        0 hook_opened   answer
        1 timer_started 1h
        - hook_received answer 7
        - cancel_requested stop
        ",
        expect![[r#"
            - run_completed 7
        "#]],
    );
}

#[workflow]
async fn two_steps_and_a_hook(ctx: Context) -> Result<u32, Error> {
    ctx.step(work, ()).await?;
    ctx.step(work, ()).await?;
    ctx.hook::<u32>("answer").await
}

#[test]
fn after_a_cancel_operations_are_refused_without_a_number_or_an_event() {
    check(
        two_steps_and_a_hook,
        r#"
        0 step_started work
        - cancel_requested stop
        0 step_completed "worked"
        "#,
        expect![[r#"
            - run_cancelled cancelled cancelled: stop
        "#]],
    );
}

#[test]
fn a_step_that_nobody_attempts_when_the_cancel_is_delivered_never_begins() {
    // The second step is announced by the same turn in which the cancel is delivered.
    check(
        two_steps_and_a_hook,
        r#"
        0 step_started work
        0 step_completed "worked"
        - cancel_requested stop
        "#,
        expect![[r#"
            1 step_started work null
            - run_cancelled cancelled cancelled: stop (step work x0)
        "#]],
    );
}

#[test]
fn a_replay_follows_the_record_of_what_the_cancel_ended() {
    check(
        cleans_up,
        r#"
        0 step_started work
        0 cancel_requested stop
        1 step_started clean_up "step `work` failed: cancelled: stop"
        "#,
        expect![[r#"
            waits for 1 step clean_up
        "#]],
    );
    check(
        cleans_up,
        r#"
        0 step_started work
        0? cancel_requested stop
        1 step_started clean_up "lost"
        1 step_completed "clean"
        "#,
        expect![[r#"
            - run_cancelled cancelled cancelled: stop
        "#]],
    );
}

#[test]
fn a_step_that_a_lost_worker_may_have_attempted_says_so() {
    let case = Case::new(two_steps_and_a_hook, serde_json::Value::Null);
    let mut turns = history::parse("0 step_started work");
    turns[0].events.insert(0, case.started());
    let mut machine = case.replay(turns.clone()).unwrap();
    machine.set_maybe_attempted(&machine.maybe_attempted(START));
    let mut events = Vec::new();
    let cancel = Delivery::Cancel { message: None, reason: "stop".into(), actor: None, at: START };
    machine.deliver(cancel, &mut events).unwrap();
    let Event::CancelRequested { ends, maybe_attempted, .. } = &events[0] else { panic!("{events:?}") };
    assert_eq!((&ends[..], &maybe_attempted[..]), (&[OpNumber(0)][..], &[OpNumber(0)][..]));
    let Some(Event::RunCancelled { failure }) = events.last() else { panic!("{events:?}") };
    assert_eq!(failure.kind, FailureKind::MaybeAttempted);
    turns.push(turn(START, events));
    case.verify(&machine, turns);
}

#[test]
fn an_outcome_that_is_known_when_the_cancel_is_delivered_is_heard() {
    let case = Case::new(two_steps_and_a_hook, serde_json::Value::Null);
    let mut turns = history::parse("0 step_started work");
    turns[0].events.insert(0, case.started());
    let mut machine = case.replay(turns.clone()).unwrap();
    // A worker that is gone has left the outcome in the inbox, behind the cancel.
    machine.set_maybe_attempted(&machine.maybe_attempted(START));
    machine.expect_outcomes(&[OpNumber(0)].into());
    let mut events = Vec::new();
    let cancel = Delivery::Cancel { message: None, reason: "stop".into(), actor: None, at: START };
    machine.deliver(cancel, &mut events).unwrap();
    assert!(machine.lost_when_cancelled().is_empty());
    let outcome = Err(Failure::new(FailureKind::Error, "no luck"));
    machine.deliver(Delivery::StepEnded { op: OpNumber(0), outcome }, &mut events).unwrap();
    let kinds: Vec<_> = events.iter().map(Event::kind).collect();
    assert_eq!(kinds, ["cancel_requested", "step_failed", "run_cancelled"]);
    let Some(Event::RunCancelled { failure }) = events.last() else { panic!("{events:?}") };
    assert_eq!(failure.message, "no luck");
    turns.push(turn(START, events));
    case.verify(&machine, turns);
}

#[test]
fn a_step_that_was_attempted_by_a_lost_worker_when_the_cancel_came_is_not_attempted_again() {
    let case = Case::new(two_steps_and_a_hook, serde_json::Value::Null);
    let first = "0 step_started work\n - cancel_requested stop";
    let second = "0 step_started work\n 0 step_retried 1 1s busy\n at 2s\n - cancel_requested stop";
    for (attempts, text) in [(0, first), (1, second)] {
        let mut turns = history::parse(text);
        turns[0].events.insert(0, case.started());
        let machine = case.replay(turns).unwrap();
        let lost = machine.lost_when_cancelled();
        let [(OpNumber(0), failure)] = &lost[..] else { panic!("{lost:?}") };
        assert_eq!((failure.kind, failure.step.as_deref()), (FailureKind::MaybeAttempted, Some("work")));
        assert_eq!(failure.attempts, attempts);
    }
}

#[test]
fn a_failed_attempt_is_the_last_one_after_a_cancel() {
    check(
        two_steps_and_a_hook,
        "
        0 step_started work
        - cancel_requested stop
        0 step_retried 1 30s busy
        ",
        expect![[r#"
            - run_cancelled error busy (step work x1)
        "#]],
    );
}

#[test]
fn a_second_cancel_changes_nothing() {
    check(
        cleans_up,
        r#"
        0 step_started   work
        - cancel_requested stop
        0 step_completed "worked"
        1 step_started   clean_up "worked"
        - cancel_requested I said stop
        "#,
        expect![[r#"
            waits for 1 step clean_up
        "#]],
    );
}

#[workflow]
async fn asks_for_all(ctx: Context) -> Result<Vec<String>, Error> {
    let mut seen = Vec::new();
    let _ = ctx.sleep("1h").await;
    seen.extend(
        ctx.step(work, ()).attempts(7).timeout("nonsense").queue("").await.err().map(|e| e.to_string()),
    );
    seen.extend(ctx.hook::<u32>("").timeout("1s").await.err().map(|e| e.to_string()));
    let child = ctx.child(CHILD, 7).key("").on_parent_end(ParentEnd::Wait);
    assert_eq!(child.run(), ctx.child(CHILD, 8).run());
    seen.extend(child.await.err().map(|e| e.to_string()));
    seen.extend(ctx.child(CHILD, 7).abandon().await.err().map(|e| e.to_string()));
    drop(ctx.sleep("1s"));
    seen.push(format!("{}", ctx.record("value", || 7_u32)?));
    ctx.tag("state", "stopping")?;
    seen.push(format!("{} {}", ctx.patched("new"), ctx.is_cancelled()));
    Ok(seen)
}

const CHILD: Workflow<u32, String> = Workflow::new("child");

#[test]
fn every_kind_of_operation_is_refused_and_what_is_none_works() {
    check(
        asks_for_all,
        "
        0 timer_started 1h
        - cancel_requested stop
        ",
        expect![[r#"
            1 value_recorded value 7
            - version_chosen new
            - run_completed ["cancelled: stop","cancelled: stop","cancelled: stop","cancelled: stop","7","true true"]
            tag state = stopping
        "#]],
    );
}

#[workflow]
async fn never_stops(ctx: Context) -> Result<(), Error> {
    loop {
        let _ = ctx.sleep("1h").await;
    }
}

#[test]
fn a_workflow_that_ignores_the_cancel_is_stuck() {
    check(
        never_stops,
        "
        0 timer_started 1h
        - cancel_requested stop
        ",
        expect![[r#"
            stuck, ignores cancel: run R was cancelled, and its workflow requested 100000 operations since, all of which failed as cancelled; return the error instead of continuing, and clean up with `ctx.shielded()`
        "#]],
    );
}

#[workflow]
async fn stops_at_the_limit(ctx: Context) -> Result<u64, Error> {
    let _ = ctx.sleep("1h").await;
    let mut refused = 0;
    while refused < REFUSALS_MAX {
        refused += u64::from(ctx.sleep("1h").await.is_err());
    }
    Ok(refused)
}

#[test]
fn so_many_refusals_as_the_limit_are_no_trouble() {
    check(
        stops_at_the_limit,
        "
        0 timer_started 1h
        - cancel_requested stop
        ",
        expect![[r#"
            - run_completed 100000
        "#]],
    );
}

#[workflow]
async fn in_parallel(ctx: Context) -> Result<Vec<String>, Error> {
    let work = |ctx: Context, number: u32| async move {
        match number {
            0 => ctx.sleep("1h").await.map(|()| "slept".to_owned()),
            _ => ctx.step(work, ()).await,
        }
    };
    ctx.parallel([0, 1, 2, 3], 3, work).await
}

#[test]
fn parallel_work_returns_a_cancelled_error_when_all_that_was_begun_has_returned() {
    check(
        in_parallel,
        "
        0 timer_started 1h
        1 step_started work
        2 step_started work
        - cancel_requested stop
        ",
        expect![[r#"
            waits for 1 step work
            waits for 2 step work
        "#]],
    );
    check(
        in_parallel,
        r#"
        0 timer_started 1h
        1 step_started work
        2 step_started work
        - cancel_requested stop
        1 step_completed "worked"
        2 step_failed fatal no
        "#,
        expect![[r#"
            - run_cancelled cancelled cancelled: stop
        "#]],
    );
}
