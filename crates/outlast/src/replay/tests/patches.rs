//! Patches: one answer per run and name, and it is that of the code which first came there.

use expect_test::expect;

use super::{check, check_replay};
use crate::prelude::*;

#[step]
async fn charge() -> Result<(), StepError> {
    Ok(())
}

#[step]
async fn check_limit() -> Result<(), StepError> {
    Ok(())
}

#[workflow]
async fn patched(ctx: Context) -> Result<bool, Error> {
    ctx.sleep("1m").await?;
    if ctx.patched("limit") {
        ctx.step(check_limit, ()).await?;
    }
    ctx.step(charge, ()).await?;
    Ok(ctx.patched("limit"))
}

#[test]
fn a_run_that_comes_there_first_takes_the_new_side_and_says_so() {
    check(
        patched,
        "
        0 timer_started 1m
        at 1m
        0 timer_fired
        ",
        expect![[r#"
            - version_chosen limit
            1 step_started check_limit null
            waits for 1 step check_limit
        "#]],
    );
}

#[test]
fn a_run_that_said_so_goes_on_with_the_new_side() {
    check(
        patched,
        "
        0 timer_started  1m
        0 timer_fired
        - version_chosen limit
        1 step_started   check_limit
        1 step_completed
        2 step_started   charge
        2 step_completed
        ",
        expect![[r#"
            - run_completed true
        "#]],
    );
}

#[test]
fn a_run_that_was_past_it_keeps_the_old_side() {
    check(
        patched,
        "
        0 timer_started  1m
        0 timer_fired
        1 step_started   charge
        1 step_completed
        ",
        expect![[r#"
            - run_completed false
        "#]],
    );
}

#[test]
fn code_without_the_patch_goes_on_with_the_new_side() {
    #[workflow(name = "patched")]
    async fn cleaned_up(ctx: Context) -> Result<bool, Error> {
        ctx.sleep("1m").await?;
        ctx.step(check_limit, ()).await?;
        ctx.step(charge, ()).await?;
        Ok(true)
    }
    check(
        cleaned_up,
        "
        0 timer_started  1m
        0 timer_fired
        - version_chosen limit
        1 step_started   check_limit
        1 step_completed
        ",
        expect![[r#"
            2 step_started charge null
            waits for 2 step charge
        "#]],
    );
}

#[test]
fn code_from_before_the_patch_diverges() {
    #[workflow(name = "patched")]
    async fn unpatched(ctx: Context) -> Result<bool, Error> {
        ctx.sleep("1m").await?;
        ctx.step(charge, ()).await?;
        Ok(false)
    }
    check_replay(
        unpatched,
        "
        0 timer_started  1m
        0 timer_fired
        - version_chosen limit
        1 step_started   check_limit
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 1: history has step `check_limit`, code asked for step `charge`; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

/// Between the patch and what it would change history has no operation, but it has been replayed until
/// there: the new side would ask for what the run did not ask for at that time.
#[test]
fn a_run_that_waits_right_behind_it_keeps_the_old_side() {
    #[workflow(name = "patched")]
    async fn both_at_once(ctx: Context) -> Result<bool, Error> {
        let charged = ctx.step(charge, ());
        let new = ctx.patched("limit");
        if new {
            ctx.step(check_limit, ()).await?;
        }
        charged.await?;
        Ok(ctx.patched("limit"))
    }
    check(
        both_at_once,
        "
        0 step_started   charge
        0 step_completed
        ",
        expect![[r#"
            - run_completed false
        "#]],
    );
    check(
        both_at_once,
        "
        0 step_started   charge
        - version_chosen limit
        1 step_started   check_limit
        0 step_completed
        1 step_completed
        ",
        expect![[r#"
            - run_completed true
        "#]],
    );
}

#[test]
fn an_answer_as_the_run_ends_is_kept() {
    #[workflow]
    async fn short(ctx: Context) -> Result<bool, Error> {
        Ok(ctx.patched("a") && ctx.patched("b") && ctx.patched("a"))
    }
    check(
        short,
        "",
        expect![[r#"
        - version_chosen a
        - version_chosen b
        - run_completed true
    "#]],
    );
}

#[test]
fn the_version_and_the_name_are_those_of_the_start() {
    #[workflow]
    async fn about(ctx: Context) -> Result<String, Error> {
        Ok(format!("{} {} {:?}", ctx.workflow(), ctx.version(), ctx.headers()))
    }
    check(
        about,
        "",
        expect![[r#"
        - run_completed "about 1 {}"
    "#]],
    );
}
