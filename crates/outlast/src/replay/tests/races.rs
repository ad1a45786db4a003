//! Order: the first outcome in history is the first that the workflow sees.

use expect_test::expect;

use super::check;
use crate::prelude::*;

#[step]
async fn refund(cents: u64) -> Result<String, StepError> {
    Ok(format!("refunded {cents}"))
}

#[step]
async fn ship() -> Result<String, StepError> {
    Ok("shipped".into())
}

#[workflow]
async fn refund_or_a_minute(ctx: Context) -> Result<String, Error> {
    select! {
        refund = ctx.step(refund, 4200) => refund,
        late = ctx.sleep("60s") => late.map(|()| "too late".to_owned()),
    }
}

#[test]
fn operations_are_requested_in_the_order_of_their_numbers() {
    check(
        refund_or_a_minute,
        "",
        expect![[r#"
        0 step_started refund 4200
        1 timer_started 1m
        waits for 0 step refund
        waits for 1 timer 1m
    "#]],
    );
}

#[test]
fn a_timer_that_fired_first_wins_the_race() {
    check(
        refund_or_a_minute,
        "
        0 step_started  refund
        1 timer_started 60s
        1 timer_fired
        ",
        expect![[r#"
            - run_completed "too late"
        "#]],
    );
}

#[test]
fn an_outcome_that_came_first_wins_the_race() {
    check(
        refund_or_a_minute,
        r#"
        0 step_started   refund
        1 timer_started  60s
        0 step_completed "paid back"
        1 timer_fired
        "#,
        expect![[r#"
            - run_completed "paid back"
        "#]],
    );
}

#[test]
fn the_loser_of_a_race_leaves_no_event_when_the_run_ends_with_it() {
    check(
        refund_or_a_minute,
        r#"
        0 step_started  refund
        1 timer_started 60s
        1 timer_fired
        0 step_completed "after the end"
        "#,
        expect![[r#"
            - run_completed "too late"
        "#]],
    );
}

#[workflow]
async fn either_then_a_nap(ctx: Context) -> Result<String, Error> {
    let winner = select! {
        answer = ctx.hook::<String>("review") => answer?,
        refund = ctx.step(refund, 1) => refund?,
        _ = ctx.sleep("1h") => "nobody".to_owned(),
    };
    ctx.sleep("1d").await?;
    Ok(winner)
}

#[test]
fn a_payload_that_came_first_wins_and_the_losers_are_dropped() {
    check(
        either_then_a_nap,
        r#"
        0 hook_opened   review
        1 step_started  refund
        2 timer_started 1h
        - hook_received review "yes"
        "#,
        expect![[r#"
            2 timer_cancelled
            1 step_dropped
            3 timer_started 1d
            waits for 3 timer 1d
        "#]],
    );
}

#[test]
fn the_outcome_of_a_dropped_step_is_discarded() {
    check(
        either_then_a_nap,
        r#"
        0 hook_opened     review
        1 step_started    refund
        2 timer_started   1h
        0 hook_received   review "yes"
        2 timer_cancelled
        1 step_dropped
        3 timer_started   1d
        1 step_completed  "late"
        2 timer_fired
        3 timer_fired
        "#,
        expect![[r#"
            - run_completed "yes"
        "#]],
    );
}

#[test]
fn a_dropped_step_is_not_attempted_again() {
    check(
        either_then_a_nap,
        r#"
        0 hook_opened     review
        1 step_started    refund
        2 timer_started   1h
        1 step_retried    1 30s busy
        0 hook_received   review "yes"
        2 timer_cancelled
        1 step_dropped
        3 timer_started   1d
        "#,
        expect![[r#"
            waits for 3 timer 1d
        "#]],
    );
}

#[workflow]
async fn all_of_four(ctx: Context) -> Result<Vec<String>, Error> {
    let mut steps: FuturesUnordered<_> = (0..4).map(|cents| ctx.step(refund, cents)).collect();
    let mut seen = Vec::new();
    while let Some(refund) = steps.next().await {
        seen.push(refund.unwrap_or_else(|error| error.to_string()));
    }
    Ok(seen)
}

#[test]
fn futures_unordered_yields_in_the_order_of_history() {
    check(
        all_of_four,
        r#"
        0 step_started   refund 0
        1 step_started   refund 1
        2 step_started   refund 2
        3 step_started   refund 3
        2 step_completed "two"
        0 step_completed "zero"
        3 step_failed    fatal no
        1 step_completed "one"
        "#,
        expect![[r#"
            - run_completed ["two","zero","step `refund` failed: no","one"]
        "#]],
    );
}

#[workflow]
async fn both(ctx: Context) -> Result<(String, String), Error> {
    try_join!(ctx.step(refund, 1), ctx.step(ship, ()))
}

#[test]
fn a_join_needs_both() {
    check(
        both,
        r#"
        0 step_started   refund 1
        1 step_started   ship
        1 step_completed "shipped"
        "#,
        expect![[r#"
            waits for 0 step refund
        "#]],
    );
    check(
        both,
        r#"
        0 step_started   refund 1
        1 step_started   ship
        1 step_completed "shipped"
        0 step_completed "refunded"
        "#,
        expect![[r#"
            - run_completed ["refunded","shipped"]
        "#]],
    );
}

#[test]
fn a_try_join_ends_with_the_first_failure() {
    check(
        both,
        r#"
        0 step_started refund 1
        1 step_started ship
        1 step_failed  fatal no parcel
        "#,
        expect![[r#"
            - run_failed fatal no parcel (step ship x1)
        "#]],
    );
}

#[workflow]
async fn drops_one_early(ctx: Context) -> Result<(), Error> {
    let first = ctx.sleep("1h");
    drop(ctx.step(refund, 7));
    let kept = ctx.step(ship, ());
    first.await?;
    drop(kept);
    ctx.sleep("2h").await
}

#[test]
fn an_operation_dropped_before_it_was_requested_keeps_its_number_and_leaves_no_event() {
    check(
        drops_one_early,
        "",
        expect![[r#"
        0 timer_started 1h
        2 step_started ship null
        waits for 0 timer 1h
        waits for 2 step ship
    "#]],
    );
}

#[test]
fn an_operation_that_ended_before_it_was_polled_keeps_its_outcome_and_drops_without_an_event() {
    check(
        drops_one_early,
        r#"
        0 timer_started  1h
        2 step_started   ship
        2 step_completed "shipped"
        0 timer_fired
        "#,
        expect![[r#"
            3 timer_started 2h
            waits for 3 timer 2h
        "#]],
    );
}

/// Gives way once, as `yield_now` does.
async fn give_way() {
    let mut gave = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut gave, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[workflow]
async fn gives_way(ctx: Context) -> Result<(), Error> {
    let first = ctx.sleep("1h");
    give_way().await;
    let second = ctx.sleep("2h");
    give_way().await;
    drop(first);
    give_way().await;
    second.await
}

#[test]
fn a_run_that_wakes_itself_is_polled_again_and_requests_at_each_suspension() {
    check(
        gives_way,
        "",
        expect![[r#"
        0 timer_started 1h
        1 timer_started 2h
        0 timer_cancelled
        waits for 1 timer 2h
    "#]],
    );
    check(
        gives_way,
        "
        0 timer_started 1h
        1 timer_started 2h
        0 timer_cancelled
        1 timer_fired
        ",
        expect![[r#"
            - run_completed null
        "#]],
    );
}
