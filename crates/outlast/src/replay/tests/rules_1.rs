//! Runs with rules 1: they behave as they did before shields, for their whole life.

use expect_test::expect;

use super::check;
use crate::prelude::*;

const SHIP: Workflow<u32, String> = Workflow::new("ship");

#[step(attempts = 3)]
async fn work() -> Result<String, StepError> {
    Ok("worked".into())
}

#[step]
async fn clean_up(what: String) -> Result<String, StepError> {
    Ok(what)
}

#[workflow]
async fn cleans_up(ctx: Context) -> Result<String, Error> {
    let worked = ctx.step(work, ()).await;
    if ctx.is_cancelled() {
        let how = worked.unwrap_or_else(|error| error.to_string());
        let cleaned = ctx.step(clean_up, how).await?;
        ctx.sleep("1m").await?;
        return Err(Error::msg(cleaned));
    }
    worked
}

#[test]
fn operations_after_a_cancel_work_normally() {
    check(
        cleans_up,
        r#"
        rules 1
        0 step_started work
        - cancel_requested stop
        0 step_completed "worked"
        "#,
        expect![[r#"
            1 step_started clean_up "worked"
            waits for 1 step clean_up
        "#]],
    );
    check(
        cleans_up,
        r#"
        rules 1
        0 step_started   work
        - cancel_requested stop
        0 step_completed "worked"
        1 step_started   clean_up "worked"
        1 step_retried   1 10s busy
        "#,
        expect![[r#"
            waits for 1 retry of clean_up in 10s
        "#]],
    );
    check(
        cleans_up,
        r#"
        rules 1
        0 step_started   work
        - cancel_requested stop
        0 step_completed "worked"
        1 step_started   clean_up "worked"
        1 step_completed "clean"
        2 timer_started  1m
        2 timer_fired
        "#,
        expect![[r#"
            - run_cancelled error clean
        "#]],
    );
}

#[test]
fn a_pause_that_was_over_when_the_cancel_came_is_not_ended_in_replay_either() {
    check(
        cleans_up,
        r#"
        rules 1
        0 step_started   work
        0 step_retried   1 10s busy
        - cancel_requested stop
        0 step_completed "second attempt"
        1 step_started   clean_up "second attempt"
        1 step_completed "clean"
        "#,
        expect![[r#"
            2 timer_started 1m
            waits for 2 timer 1m
        "#]],
    );
    check(
        cleans_up,
        r#"
        rules 1
        0 step_started   work
        0 step_retried   1 10s busy
        0 cancel_requested stop
        1 step_started   clean_up "cancelled"
        1 step_completed "clean"
        "#,
        expect![[r#"
            2 timer_started 1m
            waits for 2 timer 1m
        "#]],
    );
}

#[test]
fn a_second_cancel_changes_nothing() {
    check(
        cleans_up,
        r#"
        rules 1
        0 step_started   work
        - cancel_requested stop
        0 step_completed "worked"
        1 step_started   clean_up "worked"
        1 step_completed "clean"
        2 timer_started  1m
        - cancel_requested I said stop
        "#,
        expect![[r#"
            waits for 2 timer 1m
        "#]],
    );
}

#[workflow]
async fn ships(ctx: Context) -> Result<String, Error> {
    let abandoned = ctx.child(SHIP, 7).on_parent_end(ParentEnd::Abandon);
    let ended = ctx.child(SHIP, 1).await;
    ctx.sleep("1m").await?;
    drop(abandoned);
    ended
}

#[test]
fn a_cancel_reaches_the_children_at_once_and_ends_the_wait_for_them() {
    check(
        ships,
        "
        rules 1
        0 child_started ship 7 abandon
        1 child_started ship 1 cancel
        - cancel_requested stop
        ",
        expect![[r#"
            2 timer_started 1m
            waits for 2 timer 1m
            cancels a child: its parent R was cancelled: stop
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
fn tags_are_set_with_the_turn_and_a_bad_one_is_an_error() {
    check(
        tags,
        "rules 1",
        expect![[r#"
            0 tags_set {"tier": "gold"}
            1 timer_started 1h
            waits for 1 timer 1h
            tag tier = gold
        "#]],
    );
    check(
        tags,
        "
        rules 1
        0 tags_set tier gold
        1 timer_started 1h
        1 timer_fired
        ",
        expect![[r#"
            3 tags_set {"tier": "silver"}
            - run_completed "{\"tier\": \"silver\"} a tag needs a name; give it at least one character"
            tag tier = silver
        "#]],
    );
}
#[workflow]
async fn shields(ctx: Context) -> Result<(), Error> {
    let shielded = ctx.shielded();
    ctx.sleep("1h").await?;
    shielded.sleep("2h").await
}

#[test]
fn a_shield_changes_nothing() {
    check(
        shields,
        "
        rules 1
        0 timer_started 1h
        0 timer_fired
        1 timer_started 2h
        - cancel_requested stop
        ",
        expect![[r#"
            - run_cancelled cancelled cancelled: stop
        "#]],
    );
}
