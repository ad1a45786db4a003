//! Divergence: kind, name and order of operations are compared with history.

use expect_test::expect;

use super::{Case, check, check_replay, history, stuck_text};
use crate::prelude::*;

#[step(was = "refund_v1")]
async fn refund() -> Result<(), StepError> {
    Ok(())
}

#[step]
async fn ship() -> Result<(), StepError> {
    Ok(())
}

#[workflow]
async fn refund_then_ship(ctx: Context) -> Result<(), Error> {
    ctx.step(refund, ()).await?;
    ctx.step(ship, ()).await
}

#[test]
fn history_has_a_timer_and_the_code_asks_for_a_step() {
    check_replay(
        refund_then_ship,
        "0 timer_started 24h",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has timer 1d, code asked for step `refund`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn history_has_another_step() {
    check_replay(
        refund_then_ship,
        "0 step_started charge",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has step `charge`, code asked for step `refund`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn history_has_a_step_and_the_code_asks_for_nothing_more() {
    check_replay(
        refund_then_ship,
        "
        0 step_started refund
        1 step_started ship
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 1: history has step `ship`, code asked for nothing; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn history_goes_on_where_the_code_has_ended() {
    check_replay(
        refund_then_ship,
        "
        0 step_started   refund
        0 step_completed
        1 step_started   ship
        1 step_completed
        2 step_started   thank
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 2: history has step `thank`, code asked for the run's completion; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn history_ended_and_the_code_goes_on() {
    check_replay(
        refund_then_ship,
        "
        0 step_started   refund
        0 step_completed
        - run_completed
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 1: history has the run's completion, code asked for step `ship`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn history_failed_and_the_code_completes() {
    check_replay(
        refund_then_ship,
        "
        0 step_started   refund
        0 step_completed
        1 step_started   ship
        1 step_completed
        - run_failed     error no parcel
        ",
        expect![[r#"
            stuck, diverged: run R diverged at its end: history has the run's failure (no parcel), code asked for the run's completion; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn history_is_told_an_outcome_of_an_operation_that_is_not_open() {
    check_replay(
        refund_then_ship,
        "
        0 step_started   refund
        1 step_completed
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 1: history has `step_completed`, code asked for nothing; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
    check_replay(
        refund_then_ship,
        "
        0 step_started   refund
        0 step_completed
        1 step_started   ship
        0 step_completed
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has `step_completed`, code asked for nothing; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
    check_replay(
        refund_then_ship,
        "
        0 step_started   refund
        0 step_completed
        1 step_started   ship
        0 step_retried   1 30s no
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has `step_retried`, code asked for nothing; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn an_outcome_of_another_kind_than_its_operation_is_a_divergence() {
    check_replay(
        refund_then_ship,
        "
        0 step_started refund
        0 timer_fired
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has `timer_fired`, code asked for nothing; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn nothing_comes_after_the_end() {
    check_replay(
        naps_with_company,
        "
        0 timer_started 1h
        1 step_started  ship
        0 timer_fired
        - run_completed
        1 step_completed
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 1: history has `step_completed`, code asked for nothing; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
    check_replay(
        naps_with_company,
        "
        0 timer_started 1h
        1 step_started  ship
        0 timer_fired
        - run_completed
        - cancel_requested too late
        ",
        expect![[r#"
            stuck, diverged: run R diverged at its end: history has `cancel_requested`, code asked for nothing; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[workflow]
async fn naps_with_company(ctx: Context) -> Result<(), Error> {
    let nap = ctx.sleep("1h");
    let _company = ctx.step(ship, ());
    nap.await
}

#[workflow]
async fn both_at_once(ctx: Context) -> Result<(), Error> {
    let _ = join!(ctx.step(ship, ()), ctx.step(refund, ()));
    Ok(())
}

#[test]
fn the_order_of_operations_was_swapped() {
    check_replay(
        both_at_once,
        "
        0 step_started refund
        1 step_started ship
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has step `refund`, code asked for step `ship`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn the_code_asks_for_more_than_history_has() {
    check_replay(
        both_at_once,
        "0 step_started ship",
        expect![[r#"
            stuck, diverged: run R diverged at operation 1: history has nothing more, code asked for step `refund`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
    check_replay(
        both_at_once,
        "
        0 step_started   ship
        0 step_completed
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 1: history has `step_completed`, code asked for step `refund`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[workflow]
async fn ends_at_once(ctx: Context) -> Result<u32, Error> {
    drop(ctx);
    Ok(7)
}

#[test]
fn the_code_completes_instead_of_asking() {
    check_replay(
        ends_at_once,
        "0 step_started ship",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has step `ship`, code asked for the run's completion; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[workflow]
async fn fails_at_once(ctx: Context) -> Result<u32, Error> {
    drop(ctx);
    Err(Error::msg("not today"))
}

#[test]
fn the_code_fails_instead_of_completing() {
    check_replay(
        fails_at_once,
        "- run_completed 7",
        expect![[r#"
            stuck, diverged: run R diverged at its end: history has the run's completion, code asked for the run's failure (not today); keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[workflow]
async fn waits_for_review(ctx: Context) -> Result<u32, Error> {
    select! {
        answer = ctx.hook::<u32>("review") => answer,
        _ = ctx.sleep("1h") => {
            ctx.step(ship, ()).await?;
            Ok(0)
        }
    }
}

#[test]
fn a_hook_was_renamed() {
    check_replay(
        waits_for_review,
        "
        0 hook_opened   approval
        1 timer_started 1h
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has hook `approval`, code asked for hook `review`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn a_drop_is_a_decision_too() {
    check_replay(
        waits_for_review,
        "
        0 hook_opened   review
        1 timer_started 1h
        1 timer_fired
        2 step_started  ship
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has step `ship`, code asked for the drop of hook operation 0; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
    check_replay(
        waits_for_review,
        "
        0 hook_opened   review
        1 timer_started 1h
        1 timer_cancelled
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 1: history has the drop of timer operation 1, code asked for nothing; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn a_step_that_was_renamed_accepts_its_old_name() {
    check(
        refund_then_ship,
        "
        0 step_started   refund_v1
        0 step_completed
        ",
        expect![[r#"
            1 step_started ship null
            waits for 1 step ship
        "#]],
    );
}

#[workflow(was = "old_checkout")]
async fn new_checkout(ctx: Context) -> Result<(), Error> {
    ctx.step(ship, ()).await
}

#[test]
fn a_workflow_that_was_renamed_accepts_its_old_runs() {
    let replay_as = |name: &str| {
        let mut case = Case::new(new_checkout, serde_json::Value::Null);
        case.workflow = name.into();
        let mut turns = history::parse("0 step_started ship");
        turns[0].events.insert(0, case.started());
        case.replay(turns).map(|machine| machine.summary()).unwrap_or_else(|stuck| stuck_text(&stuck))
    };
    assert_eq!(replay_as("old_checkout"), replay_as("new_checkout"));
    expect![[r#"
        stuck, unreadable: this worker does not have version 1 of workflow `another`
    "#]]
    .assert_eq(&replay_as("another"));
}

#[test]
fn a_history_without_a_beginning_is_unreadable() {
    let case = Case::new(new_checkout, serde_json::Value::Null);
    let stuck = case.replay(history::parse("0 step_started ship")).unwrap_err();
    expect![[r#"
        stuck, unreadable: the history of run R does not begin with `run_started`
    "#]]
    .assert_eq(&stuck_text(&stuck));
    let stuck = case.replay(Vec::new()).unwrap_err();
    expect![[r#"
        stuck, unreadable: the history of run R does not begin with `run_started`
    "#]]
    .assert_eq(&stuck_text(&stuck));
}
