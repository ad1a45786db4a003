//! Limits: going past one is a failure that says which.

use expect_test::expect;
use outlast_core::limits::{HOOK_BUFFER_MAX, NAME_BYTES_MAX, OPEN_OPERATIONS_MAX};

use super::{Case, check, history};
use crate::prelude::*;

#[workflow]
async fn asks_for_too_much(ctx: Context) -> Result<String, Error> {
    let mut open: Vec<_> = (0..OPEN_OPERATIONS_MAX).map(|_| ctx.sleep("1h")).collect();
    let refused = ctx.sleep("2h").await.map_err(|error| error.to_string()).unwrap_err();
    open.truncate(1);
    ctx.hook::<()>("room").await?;
    Ok(refused)
}

#[test]
fn an_operation_past_the_limit_fails_by_itself() {
    // Those that were dropped before they were requested leave no event.
    check(
        asks_for_too_much,
        "",
        expect![[r#"
        0 timer_started 1h
        20001 hook_opened room
        waits for 0 timer 1h
        waits for 20001 hook room
    "#]],
    );
    check(
        asks_for_too_much,
        &format!(
            "
            0 timer_started 1h
            {} hook_opened room
            - hook_received room
            ",
            OPEN_OPERATIONS_MAX + 1
        ),
        expect![[r#"
            - run_completed "the run has 20000 operations open, which is the limit; await some before asking for more"
        "#]],
    );
}

#[workflow]
async fn naps(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await
}

#[test]
fn with_rules_1_payloads_past_the_limit_of_a_hook_fail_the_run() {
    let text = format!("rules 1\n0 timer_started 1h\n{}", "- hook_received spam 1\n".repeat(HOOK_BUFFER_MAX));
    let case = Case::new(naps, serde_json::Value::Null).with_rules(1);
    let kept = case.run_live(history::parse(&text));
    assert!(kept.starts_with("waits for 0 timer 1h\nkeeps spam: [1, 1,"), "{}", &kept[..80]);
    let overflown = case.run_live(history::parse(&(text + "- hook_received spam 2")));
    expect![[r#"
        - run_failed limit hook `spam` was sent one more payload, but the run already keeps 10000 payloads, which is the limit; send fewer, or take them in a loop
    "#]].assert_eq(&overflown);
}

#[test]
fn payloads_past_the_limit_of_a_hook_do_not_harm_the_run() {
    let text = format!("0 timer_started 1h\n{}", "- hook_received spam 1\n".repeat(HOOK_BUFFER_MAX + 1));
    let kept = Case::new(naps, serde_json::Value::Null).run_live(history::parse(&text));
    assert!(kept.starts_with("waits for 0 timer 1h\nkeeps spam: [1, 1,"), "{}", &kept[..80]);
}

#[workflow]
async fn bad_names(ctx: Context) -> Result<Vec<String>, Error> {
    let long = "h".repeat(NAME_BYTES_MAX + 1);
    let mut errors = Vec::new();
    for name in ["", &long] {
        errors.push(ctx.hook::<()>(name).timeout("1h").await.unwrap_err().to_string());
        errors.push(
            ctx.call(name, (), async |()| Ok::<(), StepError>(())).attempts(2).await.unwrap_err().to_string(),
        );
    }
    errors.push(ctx.sleep("soon").await.unwrap_err().to_string());
    ctx.sleep("1h").await?;
    Ok(errors)
}

#[test]
fn what_cannot_be_asked_for_fails_by_itself_and_leaves_no_event() {
    check(
        bad_names,
        "",
        expect![[r#"
        5 timer_started 1h
        waits for 5 timer 1h
    "#]],
    );
    check(
        bad_names,
        "
        5 timer_started 1h
        5 timer_fired
        ",
        expect![[r#"
            - run_completed ["a hook needs a name","a step needs a name","the name of hook `hhhhhhhhhhhhhhhhhhhh…` has 129 bytes, the limit is 128; shorten it","the name of step `hhhhhhhhhhhhhhhhhhhh…` has 129 bytes, the limit is 128; shorten it","`soon` is not a duration; write numbers with units us, ms, s, m, h, d or w, such as `30s` or `1h30m`"]
        "#]],
    );
}

#[workflow]
async fn bad_timeouts(ctx: Context) -> Result<Vec<String>, Error> {
    const SHIP: Workflow<(), ()> = Workflow::new("ship");
    const WORK: Step<(), ()> = Step::new("work");
    let (step, hook) = (ctx.step(WORK, ()).timeout("later"), ctx.hook::<u32>("a").timeout("soon"));
    let (child, beat) = (ctx.child(SHIP, ()).timeout("never"), ctx.step(WORK, ()).heartbeat_timeout("?"));
    let step = step.await.map(|_| ());
    let errors = [step, hook.await.map(|_| ()), child.await, beat.await.map(|_| ())];
    Ok(errors.into_iter().map(|error| error.unwrap_err().to_string()[..10].to_owned()).collect())
}

#[test]
fn a_timeout_that_is_no_duration_is_the_operations_failure() {
    check(
        bad_timeouts,
        "",
        expect![[r#"
            - run_completed ["`later` is","`soon` is ","`never` is","`?` is not"]
        "#]],
    );
}
