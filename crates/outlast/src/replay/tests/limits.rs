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
    ctx.hook::<()>("room again").await?;
    Ok(refused)
}

#[test]
fn an_operation_past_the_limit_fails_by_itself() {
    // Those that were dropped before they were requested leave no event.
    check(asks_for_too_much, "", expect![[""]]);
    check(
        asks_for_too_much,
        &format!(
            "
            0 timer_started 1h
            {} hook_opened room again
            - hook_received room
            ",
            OPEN_OPERATIONS_MAX + 1
        ),
        expect![[""]],
    );
}

#[workflow]
async fn naps(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await
}

#[test]
fn payloads_past_the_limit_of_a_hook_fail_the_run() {
    let text = format!("0 timer_started 1h\n{}", "- hook_received spam 1\n".repeat(HOOK_BUFFER_MAX));
    let case = Case::new(naps, serde_json::Value::Null);
    let kept = case.go_on(history::parse(&text));
    assert!(kept.starts_with("waits for 0 timer 1h\nkeeps spam: [1, 1,"), "{}", &kept[..80]);
    let overflown = case.go_on(history::parse(&(text + "- hook_received spam 2")));
    expect![[""]].assert_eq(&overflown);
}

#[workflow]
async fn bad_names(ctx: Context) -> Result<Vec<String>, Error> {
    let long = "h".repeat(NAME_BYTES_MAX + 1);
    let mut errors = Vec::new();
    for name in ["", &long] {
        errors.push(ctx.hook::<()>(name).timeout("1h").await.unwrap_err().to_string());
        errors.push(ctx.call(name, (), async |()| Ok::<(), StepError>(())).attempts(2).await.unwrap_err().to_string());
    }
    errors.push(ctx.sleep("soon").await.unwrap_err().to_string());
    ctx.sleep("1h").await?;
    Ok(errors)
}

#[test]
fn what_cannot_be_asked_for_fails_by_itself_and_leaves_no_event() {
    check(bad_names, "", expect![[""]]);
    check(
        bad_names,
        "
        5 timer_started 1h
        5 timer_fired
        ",
        expect![[""]],
    );
}
