//! Values that are recorded once, and moments that are slept until.

use std::sync::atomic::{AtomicU32, Ordering};

use expect_test::expect;
use outlast_core::Timestamp;

use super::{START, check, check_replay};
use crate::prelude::*;
use crate::{Error, ErrorKind};

static CALLS: AtomicU32 = AtomicU32::new(0);

#[workflow]
async fn quote(ctx: Context) -> Result<u32, Error> {
    let first: u32 = ctx.record("quote", || CALLS.fetch_add(1, Ordering::Relaxed) + 1)?;
    ctx.sleep("1m").await?;
    let second: u32 = ctx.record("quote", || 100)?;
    Ok(first + second)
}

#[test]
fn a_value_is_computed_once_and_stands_before_what_follows_from_it() {
    check(
        quote,
        "",
        expect![[r#"
        0 value_recorded quote 1
        1 timer_started 1m
        waits for 1 timer 1m
    "#]],
    );
    // The check has replayed it too.
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
}

#[test]
fn a_replay_returns_what_history_has_though_the_code_says_otherwise() {
    check(
        quote,
        "
        0 value_recorded quote 4200
        1 timer_started  1m
        at 1m
        1 timer_fired
        ",
        expect![[r#"
            2 value_recorded quote 100
            - run_completed 4300
        "#]],
    );
}

#[test]
fn a_value_takes_its_place_among_the_operations() {
    #[workflow]
    async fn mixed(ctx: Context) -> Result<u32, Error> {
        let hook = ctx.hook::<u32>("x");
        let forgotten = ctx.sleep("1h");
        let value: u32 = ctx.record("v", || 7)?;
        let timer = ctx.sleep("1m");
        drop(forgotten);
        timer.await?;
        Ok(value + hook.await?)
    }
    check(
        mixed,
        "",
        expect![[r#"
        0 hook_opened x
        2 value_recorded v 7
        3 timer_started 1m
        waits for 0 hook x
        waits for 3 timer 1m
    "#]],
    );
}

#[test]
fn a_value_with_another_name_or_in_another_place_is_a_divergence() {
    check_replay(
        quote,
        "
        0 value_recorded rate 4200
        1 timer_started  1m
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has value `rate`, code asked for value `quote`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
    check_replay(
        quote,
        "0 timer_started 1m",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has timer 1m, code asked for value `quote`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
    check_replay(
        quote,
        "
        0 value_recorded quote 4200
        1 timer_started  1m
        1 timer_fired
        2 timer_started  1m
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 2: history has timer 1m, code asked for value `quote`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
    check_replay(
        quote,
        "
        0 value_recorded quote 4200
        1 timer_started  1m
        1 timer_fired
        - run_completed  1
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 2: history has the run's completion, code asked for value `quote`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn code_that_asks_for_no_value_where_history_has_one_diverges() {
    #[workflow(name = "quote")]
    async fn only_sleeps(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1m").await
    }
    check_replay(
        only_sleeps,
        "
        0 value_recorded quote 4200
        1 timer_started  1m
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 0: history has value `quote`, code asked for timer 1m; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[test]
fn a_value_of_another_type_makes_the_run_stuck_at_once() {
    #[workflow(name = "quote")]
    async fn texts(ctx: Context) -> Result<String, Error> {
        let error = ctx.record("quote", || "seven".to_owned()).unwrap_err();
        ctx.sleep("1m").await?;
        Ok(format!("{:?}: {}", error.kind(), error.message().replace(&ctx.run().to_string(), "R")))
    }
    let history = "
        0 value_recorded quote 4200
        1 timer_started  1m
        1 timer_fired
        ";
    check(
        texts,
        history,
        expect![[r#"
            stuck, undecodable: the recorded value `quote` (operation 0) cannot be read as `String`: invalid type: integer, expected a string at line 1 column 4; add `#[serde(default)]` if a field was added, or deploy a build that can read it
        "#]],
    );
    check(
        texts,
        "
        rules 1
        0 value_recorded quote 4200
        1 timer_started  1m
        1 timer_fired
        ",
        expect![[r#"
            - run_completed "Invalid: value `quote`, operation 0 of R: the payload is not a `String`: invalid type: integer, expected a string at line 1 column 4"
        "#]],
    );
}

#[test]
fn a_value_past_a_limit_is_a_recorded_failure() {
    #[workflow]
    async fn deep(ctx: Context) -> Result<String, Error> {
        let nested = || (0..65).fold(serde_json::Value::Null, |inner, _| serde_json::json!([inner]));
        let error = ctx.record("deep", nested).unwrap_err();
        let unnamed = ctx.record("", || 1).unwrap_err();
        assert_eq!((error.kind(), unnamed.kind()), (ErrorKind::Limit, ErrorKind::Invalid));
        ctx.sleep("1m").await?;
        Ok(unnamed.message().to_owned())
    }
    check(
        deep,
        "",
        expect![[r#"
        0 value_recorded deep failed: limit the payload is nested 65 levels deep, the limit is 64; flatten it
        2 timer_started 1m
        waits for 2 timer 1m
    "#]],
    );
}

#[test]
fn a_closure_that_uses_the_context_panics() {
    #[workflow]
    async fn nested(ctx: Context) -> Result<u64, Error> {
        let seed = ctx.record("seed", || ctx.random())?;
        Ok(seed)
    }
    check(
        nested,
        "",
        expect![[r#"
            stuck, panicked: the workflow's code panicked: the closure of value `seed` uses the context, but a replay does not call the closure; call the context before `ctx.record`; fix the code and deploy it
        "#]],
    );
}

#[test]
fn a_value_recorded_as_the_run_ends_is_kept() {
    #[workflow]
    async fn short(ctx: Context) -> Result<u32, Error> {
        let _never = ctx.sleep("1h");
        ctx.record("v", || 7)
    }
    check(
        short,
        "",
        expect![[r#"
        1 value_recorded v 7
        - run_completed 7
    "#]],
    );
}

const NOON: Timestamp = Timestamp::from_micros(START.as_micros() + 12 * 3_600 * 1_000_000);

#[workflow]
async fn until_noon(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await?;
    ctx.sleep_until(NOON).await
}

#[test]
fn a_moment_is_slept_until() {
    check(
        until_noon,
        "
        0 timer_started 1h
        at 2h
        0 timer_fired
        ",
        expect![[r#"
            1 timer_started 10h
            waits for 1 timer 10h
        "#]],
    );
}

#[test]
fn a_moment_that_is_past_is_due_at_once() {
    check(
        until_noon,
        "
        0 timer_started 1h
        at 13h
        0 timer_fired
        ",
        expect![[r#"
            1 timer_started 0s
            waits for 1 timer 0s
        "#]],
    );
}

#[test]
fn history_keeps_its_moment_though_the_code_has_another() {
    check(
        until_noon,
        "
        0 timer_started 1h
        at 1h
        0 timer_fired
        1 timer_started 3h
        ",
        expect![[r#"
            waits for 1 timer 3h
        "#]],
    );
}
