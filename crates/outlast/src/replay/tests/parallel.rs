//! Some of many at a time.

use expect_test::expect;

use super::check;
use crate::prelude::*;

#[step]
async fn double(number: u32) -> Result<u32, StepError> {
    Ok(2 * number)
}

#[workflow]
async fn two_at_a_time(ctx: Context) -> Result<Vec<u32>, Error> {
    ctx.parallel([1, 2, 3], 2, |ctx, number: u32| async move { ctx.step(double, number).await }).await
}

#[test]
fn no_more_than_the_limit_are_under_way() {
    check(
        two_at_a_time,
        "",
        expect![[r#"
        0 step_started double 1
        1 step_started double 2
        waits for 0 step double
        waits for 1 step double
    "#]],
    );
}

#[test]
fn the_next_begins_when_one_ends() {
    check(
        two_at_a_time,
        "
        0 step_started   double 1
        1 step_started   double 2
        1 step_completed 4
        ",
        expect![[r#"
            2 step_started double 3
            waits for 0 step double
            waits for 2 step double
        "#]],
    );
}

#[test]
fn outputs_come_in_the_order_of_the_items() {
    check(
        two_at_a_time,
        "
        0 step_started   double 1
        1 step_started   double 2
        1 step_completed 4
        2 step_started   double 3
        2 step_completed 6
        0 step_completed 2
        ",
        expect![[r#"
            - run_completed [2,4,6]
        "#]],
    );
}

#[test]
fn the_first_error_drops_the_rest() {
    #[workflow]
    async fn all_or_nothing(ctx: Context) -> Result<String, Error> {
        let work = |ctx: Context, number: u32| async move { ctx.step(double, number).await };
        let error = ctx.parallel(1..10, 3, work).await.unwrap_err();
        ctx.sleep("1m").await?;
        Ok(error.message().to_owned())
    }
    check(
        all_or_nothing,
        "
        0 step_started double 1
        1 step_started double 2
        2 step_started double 3
        1 step_failed  fatal no more
        ",
        expect![[r#"
            2 step_dropped
            0 step_dropped
            3 timer_started 1m
            waits for 3 timer 1m
        "#]],
    );
}

#[test]
fn all_outcomes_are_collected_in_the_order_of_the_items() {
    #[workflow]
    async fn each(ctx: Context) -> Result<Vec<String>, Error> {
        let work = |ctx: Context, number: u32| async move { ctx.step(double, number).await };
        let outcomes = ctx.parallel_all([1, 2], 1, work).await;
        Ok(outcomes
            .iter()
            .map(|outcome| format!("{outcome:?}"))
            .collect::<Vec<_>>()
            .iter()
            .map(|text| text.chars().take(3).collect())
            .collect())
    }
    check(
        each,
        "
        0 step_started   double 1
        0 step_failed    fatal no more
        1 step_started   double 2
        1 step_completed 4
        ",
        expect![[r#"
            - run_completed ["Err","Ok("]
        "#]],
    );
}

#[test]
fn no_items_are_done_at_once() {
    #[workflow]
    async fn none(ctx: Context) -> Result<Vec<u32>, Error> {
        ctx.parallel([], 1, |ctx, number: u32| async move { ctx.step(double, number).await }).await
    }
    check(
        none,
        "",
        expect![[r#"
            - run_completed []
        "#]],
    );
}

#[test]
fn a_limit_of_nothing_panics() {
    #[workflow]
    async fn nothing(ctx: Context) -> Result<Vec<u32>, Error> {
        ctx.parallel([1], 0, |ctx, number: u32| async move { ctx.step(double, number).await }).await
    }
    check(
        nothing,
        "",
        expect![[r#"
            stuck, panicked: the workflow's code panicked: the limit of `parallel` must be at least 1; fix the code and deploy it
        "#]],
    );
}
