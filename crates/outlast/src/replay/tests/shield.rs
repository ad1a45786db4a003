//! Shields: operations of `ctx.shielded()` are protected from a cancel and the deadline.

use expect_test::expect;

use super::check;
use crate::prelude::*;

const SHIP: Workflow<u32, String> = Workflow::new("ship");

#[step(attempts = 3)]
async fn refund() -> Result<String, StepError> {
    Ok("refunded".into())
}

#[workflow]
async fn refunds(ctx: Context) -> Result<String, Error> {
    let slept = ctx.sleep("1h").await;
    let refunded = ctx.shielded().step(refund, ()).await?;
    ctx.shielded().sleep("1m").await?;
    slept.map(|()| refunded)
}

#[test]
fn what_is_shielded_works_after_a_cancel_and_is_attempted_again() {
    check(
        refunds,
        "
        0 timer_started 1h
        - cancel_requested stop
        ",
        expect![[r#"
            1 step_started refund null
            waits for 1 step refund
        "#]],
    );
    check(
        refunds,
        "
        0 timer_started 1h
        0 cancel_requested stop
        1 step_started refund
        1 step_retried 1 30s busy
        ",
        expect![[r#"
            waits for 1 retry of refund in 30s
        "#]],
    );
    check(
        refunds,
        r#"
        0 timer_started 1h
        0 cancel_requested stop
        1 step_started refund
        1 step_completed "refunded"
        2 timer_started 1m
        2 timer_fired
        "#,
        expect![[r#"
            - run_cancelled cancelled cancelled: stop
        "#]],
    );
}

#[workflow]
async fn both(ctx: Context) -> Result<String, Error> {
    let shielded = ctx.shielded().shielded();
    let (kept, lost) = (shielded.sleep("2h"), ctx.sleep("1h"));
    let (child, hook) = (shielded.child(SHIP, 1), shielded.hook::<u32>("answer"));
    let lost = lost.await.err().map(|error| error.to_string());
    kept.await?;
    Ok(format!("{lost:?} {} {}", child.await?, hook.await?))
}

#[test]
fn what_was_shielded_before_the_cancel_goes_on() {
    check(
        both,
        "
        0 timer_started 2h
        1 timer_started 1h
        2 child_started ship 1
        3 hook_opened answer
        - cancel_requested stop
        ",
        expect![[r#"
            waits for 0 timer 2h
            waits for 2 child ship
            waits for 3 hook answer
        "#]],
    );
    check(
        both,
        r#"
        0 timer_started 2h
        1 timer_started 1h
        2 child_started ship 1
        3 hook_opened answer
        - cancel_requested stop
        0 timer_fired
        2 child_completed "shipped"
        - hook_received answer 7
        "#,
        expect![[r#"
            - run_completed "Some(\"cancelled: stop\") shipped 7"
        "#]],
    );
}

#[workflow]
async fn leaves_a_child(ctx: Context) -> Result<(), Error> {
    let _child = ctx.shielded().child(SHIP, 1);
    ctx.sleep("1h").await
}

#[test]
fn a_shielded_child_is_told_when_the_run_ends_and_not_before() {
    check(
        leaves_a_child,
        "
        0 child_started ship 1
        1 timer_started 1h
        - cancel_requested stop
        ",
        expect![[r#"
            - run_cancelled cancelled cancelled: stop
            cancels a child: its parent R has ended
        "#]],
    );
}

#[workflow]
async fn drops_it(ctx: Context) -> Result<(), Error> {
    let shielded = ctx.shielded().sleep("2h");
    let _ = ctx.sleep("1h").await;
    drop(shielded);
    ctx.shield(async |ctx| ctx.hook::<()>("done").await).await
}

#[test]
fn a_shield_does_not_protect_from_being_dropped() {
    check(
        drops_it,
        "
        0 timer_started 2h
        1 timer_started 1h
        - cancel_requested stop
        ",
        expect![[r#"
            0 timer_cancelled
            2 hook_opened done
            waits for 2 hook done
        "#]],
    );
}
