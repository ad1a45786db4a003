//! Cancel: delivered once; waits end in order, steps under way are awaited, clean-up works.

use expect_test::expect;

use super::check;
use crate::prelude::*;

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
        let cleaned = ctx.step(clean_up, how).await?;
        ctx.sleep("1m").await?;
        return Err(Error::msg(cleaned));
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

#[test]
fn operations_after_a_cancel_work_normally() {
    check(
        cleans_up,
        r#"
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
