//! Children: started with the turn, awaited, timed out, dropped; what becomes of them when the parent ends.

use expect_test::expect;

use super::{check, check_replay, history};
use crate::prelude::*;

const SHIP: Workflow<u32, String> = Workflow::new("ship");

#[workflow]
async fn ships(ctx: Context) -> Result<String, Error> {
    ctx.child(SHIP, 42).await
}

#[test]
fn a_child_is_started_with_the_turn_that_asks_for_it() {
    check(
        ships,
        "",
        expect![[r#"
            0 child_started ship 42 cancel
            waits for 0 child ship
            starts 0 ship 42
        "#]],
    );
}

#[test]
fn its_output_is_the_operations() {
    check(
        ships,
        r#"
        0 child_started ship 42 cancel
        0 child_completed "on its way"
        "#,
        expect![[r#"
            - run_completed "on its way"
        "#]],
    );
}

#[test]
fn its_failure_is_the_operations_and_so_is_a_refusal() {
    check(
        ships,
        "
        0 child_started ship 42 cancel
        0 child_failed error no truck
        ",
        expect![[r#"
            - run_failed error no truck
        "#]],
    );
    check(
        ships,
        "
        0 child_started ship 42 cancel
        0 child_cancelled cancelled not today
        ",
        expect![[r#"
            - run_failed cancelled not today
        "#]],
    );
}

#[workflow]
async fn ships_in_time(ctx: Context) -> Result<String, Error> {
    match ctx.child(SHIP, 1).timeout("3d").await {
        Err(error) if error.is_timeout() => {
            ctx.sleep("1h").await?;
            Ok("too late".into())
        }
        ended => ended,
    }
}

#[test]
fn a_child_that_takes_too_long_is_cancelled_and_its_end_is_no_surprise() {
    check(
        ships_in_time,
        "
        0 child_started ship 1 cancel 3d
        at 3d
        0 timer_fired
        ",
        expect![[r#"
            1 timer_started 1h
            waits for 1 timer 1h
            cancels a child: its parent did not wait longer
        "#]],
    );
    check(
        ships_in_time,
        "
        0 child_started ship 1 cancel 3d
        at 3d
        0 timer_fired
        1 timer_started 1h
        0 child_cancelled cancelled it was
        1 timer_fired
        ",
        expect![[r#"
            - run_completed "too late"
        "#]],
    );
}

#[workflow]
async fn races(ctx: Context) -> Result<String, Error> {
    let mut child = ctx.child(SHIP, 1);
    select! {
        shipped = &mut child => shipped,
        _ = ctx.sleep("1h") => {
            drop(child);
            ctx.sleep("1h").await?;
            Ok("went on".into())
        }
    }
}

#[test]
fn a_dropped_child_continues_until_the_parent_ends() {
    check(
        races,
        "
        0 child_started ship 1 cancel
        1 timer_started 1h
        at 1h
        1 timer_fired
        ",
        expect![[r#"
            0 child_dropped
            2 timer_started 1h
            waits for 2 timer 1h
        "#]],
    );
    check(
        races,
        "
        0 child_started ship 1 cancel
        1 timer_started 1h
        1 timer_fired
        0 child_dropped
        2 timer_started 1h
        2 timer_fired
        ",
        expect![[r#"
            - run_completed "went on"
            cancels a child: its parent R has ended
        "#]],
    );
}

#[workflow]
async fn hurries(ctx: Context) -> Result<String, Error> {
    let child = ctx.child(SHIP, 1).on_parent_end(ParentEnd::Wait);
    let forgotten = ctx.child(SHIP, 2).on_parent_end(ParentEnd::Abandon);
    ctx.sleep("1h").await?;
    drop((child, forgotten));
    Ok("done".into())
}

#[test]
fn a_run_does_not_end_before_the_children_it_waits_for() {
    let begin = "
        0 child_started ship 1 wait
        1 child_started ship 2 abandon
        2 timer_started 1h
        2 timer_fired
        ";
    check(
        hurries,
        begin,
        expect![[r#"
            0 child_dropped
            1 child_dropped
            waits for 0 child ship
        "#]],
    );
    let dropped = format!("{begin}\n 0 child_dropped\n 1 child_dropped\n");
    check(
        hurries,
        &format!("{dropped} 0 child_completed \"x\""),
        expect![[r#"
            - run_completed "done"
        "#]],
    );
    check(
        hurries,
        &format!("{dropped} 1 child_completed \"y\""),
        expect![[r#"
            waits for 0 child ship
        "#]],
    );
    check(
        hurries,
        &format!("{dropped} - cancel_requested stop"),
        expect![[r#"
            waits for 0 child ship
            cancels a child: its parent R was cancelled: stop
        "#]],
    );
}

#[workflow]
async fn cleans_up(ctx: Context) -> Result<String, Error> {
    let abandoned = ctx.child(SHIP, 7).on_parent_end(ParentEnd::Abandon);
    let ended = ctx.child(SHIP, 1).await;
    ctx.sleep("1m").await?;
    drop(abandoned);
    ended
}

#[test]
fn a_cancel_reaches_the_children_at_once_and_ends_the_wait_for_them() {
    check(
        cleans_up,
        "
        0 child_started ship 7 abandon
        1 child_started ship 1 cancel
        - cancel_requested stop
        ",
        expect![[r#"
            - run_cancelled cancelled cancelled: stop
            cancels a child: its parent R was cancelled: stop
            cancels a child: its parent R has ended
        "#]],
    );
}

#[test]
fn a_terminated_run_takes_its_children_along() {
    check(
        cleans_up,
        "
        0 child_started ship 7 abandon
        1 child_started ship 1 cancel
        - run_terminated no more
        ",
        expect![[r#"
            cancels a child: its parent R was terminated: no more
        "#]],
    );
}

#[workflow]
async fn forgets(ctx: Context) -> Result<bool, Error> {
    let operation = ctx.child(SHIP, 3);
    let id = operation.run();
    Ok(operation.abandon().await? == id)
}

#[test]
fn an_abandoned_child_is_there_at_once() {
    check(
        forgets,
        "",
        expect![[r#"
            0 child_started ship 3 abandon detached
            - run_completed true
            starts 0 ship 3, not awaited
        "#]],
    );
}

#[workflow]
async fn forgets_by_key(ctx: Context) -> Result<String, Error> {
    let run = ctx.child(SHIP, 3).key("parcel-3").abandon().await?;
    Ok(run.to_string())
}

#[test]
fn an_abandoned_child_with_a_key_is_the_run_that_the_key_names() {
    check(
        forgets_by_key,
        "",
        expect![[r#"
            0 child_started ship 3 abandon detached
            waits for 0 child ship
            starts 0 ship 3, not awaited, wants an answer
        "#]],
    );
    check(
        forgets_by_key,
        "
        0 child_started ship 3 abandon detached
        0 child_detached 9
        ",
        expect![[r#"
            - run_completed "run_00000000000000000000000009"
        "#]],
    );
}

#[workflow]
async fn too_deep(ctx: Context) -> Result<String, Error> {
    const DEEP: Workflow<serde_json::Value, String> = Workflow::new("deep");
    let mut value = serde_json::Value::Null;
    for _ in 0..100 {
        value = serde_json::json!([value]);
    }
    Ok(ctx.child(DEEP, value).await.unwrap_err().to_string())
}

#[test]
fn an_input_past_a_limit_fails_the_operation_and_starts_nothing() {
    check(
        too_deep,
        "",
        expect![[r#"
            0 child_started deep null cancel
            0 child_failed limit the payload is nested 100 levels deep, the limit is 64; flatten it
            - run_completed "the payload is nested 100 levels deep, the limit is 64; flatten it"
        "#]],
    );
}

#[test]
fn another_workflow_as_a_child_is_a_divergence() {
    check_replay(
        ships,
        "0 child_started deliver 42 cancel",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has child `deliver`, code asked for child `ship`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
    check_replay(
        ships,
        "
        0 child_started ship 42 cancel
        1 child_completed 3
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 1: history has `child_completed`, code asked for nothing; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[workflow]
async fn naps(ctx: Context) -> Result<String, Error> {
    let (long, short) = join!(ctx.sleep("3d"), ctx.sleep("1d"));
    long?;
    short?;
    ctx.sleep("1h").await?;
    Ok(ctx.now().to_string())
}

#[test]
fn sleeps_can_be_woken() {
    check(
        naps,
        "
        0 timer_started 3d
        1 timer_started 1d
        at 5m
        0 timer_woken
        ",
        expect![[r#"
            waits for 1 timer 23h55m
        "#]],
    );
    check(
        naps,
        "
        0 timer_started 3d
        1 timer_started 1d
        at 5m
        - timer_woken
        ",
        expect![[r#"
            2 timer_started 1h
            waits for 2 timer 1h
        "#]],
    );
}

#[workflow]
async fn tags(ctx: Context) -> Result<String, Error> {
    ctx.tag("tier", "gold")?;
    ctx.sleep("1h").await?;
    let refused = ctx.tag("", "x").unwrap_err();
    ctx.tag("tier", "silver")?;
    Ok(format!("{:?} {refused}", ctx.tags()))
}

#[test]
fn tags_have_neither_number_nor_event_and_a_bad_one_is_an_error() {
    check(
        tags,
        "",
        expect![[r#"
        0 timer_started 1h
        waits for 0 timer 1h
        tag tier = gold
    "#]],
    );
    check(
        tags,
        "
        0 timer_started 1h
        0 timer_fired
        ",
        expect![[r#"
            - run_completed "{\"tier\": \"silver\"} a tag needs a name; give it at least one character"
            tag tier = silver
        "#]],
    );
}

#[workflow]
async fn without_tags(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await?;
    ctx.sleep("2h").await
}

#[workflow]
async fn with_tags(ctx: Context) -> Result<(), Error> {
    ctx.tag("tier", "gold")?;
    ctx.sleep("1h").await?;
    ctx.tag("phase", "second")?;
    ctx.sleep("2h").await
}

#[test]
fn a_tag_that_is_added_to_the_code_does_not_make_runs_under_way_diverge() {
    let history = "
        0 timer_started 1h
        0 timer_fired
        1 timer_started 2h
        ";
    check(
        without_tags,
        history,
        expect![[r#"
        waits for 1 timer 2h
    "#]],
    );
    // The run has passed both places, and its row has what it had.
    check(
        with_tags,
        history,
        expect![[r#"
        waits for 1 timer 2h
    "#]],
    );
}

#[test]
fn tags_of_a_replay_are_written_with_the_next_turn_when_other_code_wrote_the_row() {
    let case = super::Case::new(with_tags, serde_json::Value::Null);
    let mut turns = history::parse("0 timer_started 1h\n 0 timer_fired\n 1 timer_started 2h");
    turns[0].events.insert(0, case.started());
    let mut machine = case.replay(turns).unwrap();
    assert!(machine.take_outbox(|| outlast_core::MessageId::from_bits(0)).is_none());
    machine.rewrite_tags();
    let beyond = machine.take_outbox(|| outlast_core::MessageId::from_bits(0));
    expect![[r#"
        tag phase = second
        tag tier = gold
    "#]]
    .assert_eq(&history::outbox_text(beyond.as_deref()));
}
