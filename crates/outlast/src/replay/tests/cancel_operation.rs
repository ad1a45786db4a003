//! Operations that the workflow cancels itself.

use expect_test::{Expect, expect};
use outlast_core::{Event, OpNumber, Payload};

use super::{Case, check, check_replay, history, state_text};
use crate::prelude::*;
use crate::replay::Delivery;

#[step]
async fn charge() -> Result<String, StepError> {
    Ok("paid".into())
}

const SEARCH: Workflow<(), String> = Workflow::new("search");

/// Waits for a minute, cancels everything, and awaits it.
#[workflow]
async fn stop_all(ctx: Context) -> Result<String, Error> {
    let step = ctx.step(charge, ());
    let timer = ctx.sleep("1h");
    let hook = ctx.hook::<String>("review");
    let child = ctx.child(SEARCH, ());
    ctx.sleep("1m").await?;
    step.cancel();
    timer.cancel();
    hook.cancel();
    child.cancel();
    let waits = (timer.await.is_err_and(|error| error.is_cancelled()), hook.await.is_err());
    let ends = join!(step, child);
    Ok(format!("{waits:?} {ends:?}"))
}

const STARTED: &str = "
    0 step_started charge
    1 timer_started 1h
    2 hook_opened review
    3 child_started search null
    4 timer_started 1m
    4 timer_fired
";

#[test]
fn waits_end_at_once_and_work_is_asked_to_stop() {
    check(
        stop_all,
        STARTED,
        expect![[r#"
        0 operation_cancelled
        1 operation_cancelled
        2 operation_cancelled
        3 operation_cancelled
        waits for 0 step charge
        waits for 3 child search
        cancels a child: its parent R does not need it any more
    "#]],
    );
}

#[test]
fn a_step_that_is_being_attempted_completes_with_its_real_outcome() {
    let ends = r#"
        0 operation_cancelled
        1 operation_cancelled
        2 operation_cancelled
        3 operation_cancelled
        0 step_completed "paid"
        3 child_cancelled cancelled stopped
    "#;
    check(
        stop_all,
        &format!("{STARTED}{ends}"),
        expect![[r#"
        - run_completed "(true, true) (Ok(\"paid\"), Err(stopped))"
    "#]],
    );
}

#[test]
fn a_cancelled_step_is_not_attempted_again() {
    let failed = "
        0 operation_cancelled
        1 operation_cancelled
        2 operation_cancelled
        3 operation_cancelled
        0 step_retried 1 1s out of luck
    ";
    check(
        stop_all,
        &format!("{STARTED}{failed}"),
        expect![[r#"
        waits for 3 child search
    "#]],
    );
}

#[test]
fn a_history_without_the_cancel_diverges() {
    let forgotten = "
        0 step_dropped
    ";
    check_replay(
        stop_all,
        &format!("{STARTED}{forgotten}"),
        expect![[r#"
        stuck, diverged: run R diverged at operation 0: history has the drop of step operation 0, code asked for the cancel of operation 0; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
    "#]],
    );
}

/// Checks the requests of a workflow in which no step is attempted.
fn check_without_attempts(workflow: &Case, history: &str, expected: Expect) {
    let mut turns = history::parse(history);
    let deliveries = history::split_deliveries(&mut turns);
    turns[0].events.insert(0, workflow.started());
    let mut machine = workflow.replay(turns).unwrap();
    let (mut events, mut text) = (Vec::new(), String::new());
    for turn in deliveries {
        machine.set_time(turn.at);
        for event in turn.events {
            machine.deliver(history::delivery(event), &mut events).unwrap();
        }
        text = events.iter().map(|event| history::line(event, turn.at)).collect();
        text += &state_text(&machine, turn.at);
    }
    expected.assert_eq(&text);
}

#[test]
fn a_step_that_nobody_attempts_fails_in_the_same_turn() {
    let case = Case::new(stop_all, serde_json::Value::Null);
    check_without_attempts(
        &case,
        STARTED,
        expect![[r#"
        4 timer_fired
        0 operation_cancelled
        1 operation_cancelled
        2 operation_cancelled
        3 operation_cancelled
        0 step_failed cancelled cancelled: by its workflow (step charge x0)
        waits for 3 child search
    "#]],
    );
}

#[workflow]
async fn cancel_before_the_request(ctx: Context) -> Result<String, Error> {
    let (step, child) = (ctx.step(charge, ()), ctx.child(SEARCH, ()));
    step.cancel();
    child.cancel();
    let never = (step.await.unwrap_err(), child.await.unwrap_err());
    ctx.sleep("1m").await?;
    Ok(format!("{never:?}"))
}

#[test]
fn an_operation_that_was_not_requested_ends_without_an_event() {
    check(
        cancel_before_the_request,
        "",
        expect![[r#"
        2 timer_started 1m
        waits for 2 timer 1m
    "#]],
    );
}

#[workflow]
async fn too_late(ctx: Context) -> Result<String, Error> {
    let (mut step, timer) = (ctx.step(charge, ()), ctx.sleep("1m"));
    timer.await?;
    step.cancel();
    step.cancel();
    let paid = (&mut step).await?;
    Ok(paid)
}

#[test]
fn an_operation_that_has_ended_keeps_its_outcome() {
    let history = r#"
        0 step_started charge
        1 timer_started 1m
        0 step_completed "paid"
        1 timer_fired
    "#;
    check(
        too_late,
        history,
        expect![[r#"
        - run_completed "paid"
    "#]],
    );
}

#[workflow]
async fn loses_a_child(ctx: Context) -> Result<(), Error> {
    select! {
        found = ctx.child(SEARCH, ()).cancel_on_drop() => { found?; }
        late = ctx.sleep("1m") => late?,
    }
    ctx.sleep("1h").await
}

#[test]
fn a_child_can_be_cancelled_when_it_is_dropped() {
    let history = "
        0 child_started search null
        1 timer_started 1m
        1 timer_fired
    ";
    check(
        loses_a_child,
        history,
        expect![[r#"
        0 operation_cancelled
        0 child_dropped
        2 timer_started 1h
        waits for 2 timer 1h
        cancels a child: its parent R does not need it any more
    "#]],
    );
}

#[workflow]
async fn first_success(ctx: Context) -> Result<String, Error> {
    let racers = [ctx.hook::<String>("a"), ctx.hook("b"), ctx.hook("c")];
    racers[1].cancel();
    let won = race_ok(racers.into_iter().map(|hook| hook.timeout("1m"))).await;
    ctx.sleep("1h").await?;
    Ok(won?)
}

#[test]
fn the_first_success_wins_a_race_and_the_others_are_dropped() {
    let history = r#"
        0 hook_opened a 1m
        2 hook_opened c 1m
        2 hook_received c "yes"
    "#;
    check(
        first_success,
        history,
        expect![[r#"
        0 hook_closed
        3 timer_started 1h
        waits for 3 timer 1h
    "#]],
    );
}

#[test]
fn a_race_that_nobody_wins_has_all_errors_in_order() {
    let history = "
        0 hook_opened a 1m
        2 hook_opened c 1m
        2 timer_fired
        0 timer_fired
        3 timer_started 1h
        3 timer_fired
    ";
    check(
        first_success,
        history,
        expect![[r#"
        - run_failed error all 3 futures failed: no payload arrived for hook `a` in time; cancelled: by its workflow; no payload arrived for hook `c` in time
    "#]],
    );
}

#[test]
fn a_known_outcome_counts_although_the_workflow_cancels_its_step_first() {
    for rules in [1, 2] {
        let case = Case::new(too_late, serde_json::Value::Null).with_rules(rules);
        let mut turns = history::parse("0 step_started charge\n1 timer_started 1m");
        turns[0].events.insert(0, case.started());
        let mut machine = case.replay(turns).unwrap();
        machine.expect_outcomes(&[OpNumber(0)].into());
        let mut events = Vec::new();
        machine.deliver(Delivery::Timer { op: OpNumber(1) }, &mut events).unwrap();
        let outcome = Ok(Payload::json("paid").unwrap());
        machine.deliver(Delivery::StepEnded { op: OpNumber(0), outcome }, &mut events).unwrap();
        let kinds: Vec<_> = events.iter().map(Event::kind).collect();
        let expected = ["timer_fired", "operation_cancelled", "step_completed", "run_completed"];
        assert_eq!(kinds, expected, "rules {rules}");
    }
}
