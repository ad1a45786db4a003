//! Steps: attempts, failures, inputs.

use std::sync::atomic::{AtomicU32, Ordering};

use expect_test::expect;

use super::{START, check, check_replay, history};
use crate::prelude::*;

#[step(attempts = 3)]
async fn charge(cents: u64) -> Result<String, StepError> {
    Ok(format!("paid {cents}"))
}

#[workflow]
async fn checkout(ctx: Context) -> Result<String, Error> {
    let nap = ctx.sleep("1d");
    let paid = ctx.step(charge, 42).await?;
    nap.await?;
    Ok(paid)
}

#[test]
fn a_failed_attempt_waits_for_its_pause() {
    check(
        checkout,
        "
        0 timer_started 1d
        1 step_started  charge 42
        1 step_retried  1 30s bank is closed
        ",
        expect![[r#"
            waits for 0 timer 1d
            waits for 1 retry of charge in 30s
        "#]],
    );
}

#[test]
fn a_replayed_step_between_two_attempts_is_not_attempted_before_its_time() {
    check_replay(
        checkout,
        "
        0 timer_started 1d
        1 step_started  charge 42
        1 step_retried  1 30s bank is closed
        ",
        expect![[r#"
            waits for 0 timer 1d
            waits for 1 retry of charge in 30s
        "#]],
    );
}

#[test]
fn a_step_may_be_retried_again_and_again() {
    check_replay(
        checkout,
        "
        0 timer_started 1d
        1 step_started  charge 42
        1 step_retried  1 30s bank is closed
        1 step_retried  2 60s bank is still closed
        ",
        expect![[r#"
            waits for 0 timer 1d
            waits for 1 retry of charge in 1m
        "#]],
    );
    check(
        checkout,
        r#"
        0 timer_started  1d
        1 step_started   charge 42
        1 step_retried   1 30s bank is closed
        1 step_retried   2 60s bank is still closed
        1 step_completed "paid"
        "#,
        expect![[r#"
            waits for 0 timer 1d
        "#]],
    );
}

#[test]
fn a_step_that_failed_for_good_is_an_error_that_knows_it() {
    check(
        checkout,
        "
        0 timer_started 1d
        1 step_started  charge 42
        1 step_failed   fatal no money
        ",
        expect![[r#"
            - run_failed fatal no money (step charge x1)
        "#]],
    );
}

#[test]
fn a_pause_that_is_over_makes_the_step_startable_with_the_next_attempt() {
    let case = super::Case::new(checkout, serde_json::Value::Null);
    let mut turns = history::parse(
        "
        0 timer_started 1d
        1 step_started  charge 42
        1 step_retried  1 30s bank is closed
        ",
    );
    turns[0].events.insert(0, case.started());
    let mut machine = case.replay(turns).unwrap();
    assert!(machine.take_due(START).is_empty());
    assert_eq!((machine.take_startable().len(), machine.is_active()), (0, false));
    let due = machine.next_due().unwrap();
    assert!(machine.take_due(due).is_empty(), "a pause is no timer");
    let steps = machine.take_startable();
    assert_eq!(steps.iter().map(|step| (step.op.0, step.attempt)).collect::<Vec<_>>(), [(1, 2)]);
    assert!(machine.is_active() && machine.take_startable().is_empty(), "each is given once");
}

#[step]
async fn count(cents: u64) -> Result<u64, StepError> {
    Ok(cents)
}

#[workflow]
async fn expects_a_number(ctx: Context) -> Result<u64, Error> {
    ctx.step(count, 1).await
}

#[test]
fn an_output_of_another_type_makes_the_run_stuck() {
    check(
        expects_a_number,
        r#"
        0 step_started   count 1
        0 step_completed "one"
        "#,
        expect![[r#"
            stuck, undecodable: the recorded output of step `count` (operation 0) cannot be read as `u64`: invalid type: string, expected u64 at line 1 column 5; add `#[serde(default)]` if a field was added, or deploy a build that can read it
        "#]],
    );
    check(
        expects_a_number,
        r#"
        rules 1
        0 step_started   count 1
        0 step_completed "one"
        "#,
        expect![[r#"
            - run_failed invalid step `count`, operation 0 of run_01KC0000000000000000000001: the payload is not a `u64`: invalid type: string "one", expected u64 at line 1 column 5
        "#]],
    );
}

/// Counts how often it is written.
#[derive(serde::Deserialize)]
struct Counted;

static WRITTEN: AtomicU32 = AtomicU32::new(0);

impl serde::Serialize for Counted {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WRITTEN.fetch_add(1, Ordering::Relaxed);
        serializer.serialize_unit()
    }
}

#[step]
async fn take(_counted: Counted) -> Result<(), StepError> {
    Ok(())
}

#[workflow]
async fn takes_twice(ctx: Context) -> Result<(), Error> {
    ctx.step(take, Counted).await?;
    ctx.step(take, Counted).await
}

#[test]
fn an_input_that_history_has_is_not_encoded_again_and_is_what_an_attempt_gets() {
    let case = super::Case::new(takes_twice, serde_json::Value::Null);
    let mut turns = history::parse(
        r#"
        0 step_started   take "of old"
        0 step_completed
        1 step_started   take "as recorded"
        "#,
    );
    turns[0].events.insert(0, case.started());
    let before = WRITTEN.load(Ordering::Relaxed);
    let mut machine = case.replay(turns).unwrap();
    assert_eq!(WRITTEN.load(Ordering::Relaxed), before);
    let steps = machine.take_startable();
    assert_eq!(steps.iter().map(|step| format!("{:?}", step.input)).collect::<Vec<_>>(), ["\"as recorded\""]);
}

/// A value that has no JSON.
#[derive(serde::Deserialize)]
struct Unwritable;

impl serde::Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _serializer: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it has no words"))
    }
}

#[step]
async fn tell(_it: Unwritable) -> Result<(), StepError> {
    Ok(())
}

#[workflow]
async fn tells(ctx: Context) -> Result<(), Error> {
    let _ = ctx.step(tell, Unwritable).await;
    ctx.step(take, Counted).await
}

#[test]
fn an_input_that_cannot_be_a_payload_is_a_recorded_failure_in_the_same_turn() {
    check(
        tells,
        "",
        expect![[r#"
        0 step_started tell null
        0 step_failed invalid the value cannot be written as JSON: it has no words
        1 step_started take null
        waits for 1 step take
    "#]],
    );
    check(
        tells,
        "
        0 step_started tell
        0 step_failed  invalid it had no words
        1 step_started take
        1 step_failed  error no
        ",
        expect![[r#"
            - run_failed error no (step take x1)
        "#]],
    );
}

#[workflow]
async fn captures_an_operation(ctx: Context) -> Result<(), Error> {
    let timer = ctx.sleep("1h");
    ctx.call("hold", (), move |()| {
        let _ = &timer;
        async { Ok::<_, StepError>(()) }
    })
    .await?;
    ctx.sleep("2h").await
}

#[test]
fn code_in_place_is_let_go_outside_the_lock_when_its_step_completes() {
    check(
        captures_an_operation,
        "
        0 timer_started  1h
        1 step_started   hold
        1 step_completed
        ",
        expect![[r#"
            0 timer_cancelled
            2 timer_started 2h
            waits for 2 timer 2h
        "#]],
    );
}
