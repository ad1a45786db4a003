//! Generations: what outlives `continue_as`, and what does not.

use expect_test::expect;

use super::{Case, check_with, history};
use crate::prelude::*;

/// Counts payloads, three in each generation, and ends with the generation that has the last one.
#[workflow]
async fn counts(ctx: Context, before: u32) -> Result<(u64, u32), Error> {
    let mut total = before;
    for _ in 0..2 {
        match ctx.hook::<u32>("add").await? {
            0 => return Ok((ctx.generation(), total)),
            add => total += add,
        }
    }
    ctx.continue_as(&total)
}

#[test]
fn a_workflow_continues_with_its_next_input_and_new_operation_numbers() {
    check_with(
        counts,
        5.into(),
        "
        0 hook_opened add
        0 hook_received add 1
        1 hook_opened add
        1 hook_received add 2
        ",
        expect![[r#"
            - run_continued 2 2 8 children [] kept [] tags {}
            2 hook_opened add
            waits for 2 hook add
        "#]],
    );
}

#[test]
fn a_replay_begins_with_the_last_generation() {
    check_with(
        counts,
        5.into(),
        "
        0 hook_opened nothing
        0 step_completed 3
        7 value_recorded x 1
        - run_continued 4 9 30
        9 hook_opened add
        9 hook_received add 0
        ",
        expect![[r#"
            - run_completed [4,30]
        "#]],
    );
}

#[test]
fn operation_numbers_have_64_bits() {
    check_with(
        counts,
        5.into(),
        "
        0 hook_opened nothing
        - run_continued 4 4611686018427387911 30
        4611686018427387911 hook_opened add
        4611686018427387911 hook_received add 1
        4611686018427387912 hook_opened add
        4611686018427387912 hook_received add 2
        ",
        expect![[r#"
            - run_continued 5 4611686018427387913 33 children [] kept [] tags {}
            4611686018427387913 hook_opened add
            waits for 4611686018427387913 hook add
        "#]],
    );
}

#[test]
fn kept_payloads_reach_the_next_generation_in_their_order() {
    check_with(
        counts,
        0.into(),
        "
        0 hook_opened add
        - hook_received other 9
        0 hook_received add 1
        1 hook_opened add
        1 hook_received add 2
        - hook_received add 3
        - hook_received add 4
        - hook_received add 5
        - hook_received other 8
        - hook_received add 0
        ",
        expect![[r#"
            - run_continued 2 2 3 children [] kept [2] tags {}
            2 hook_opened add
            3 hook_opened add
            - run_continued 3 4 10 children [] kept [2] tags {}
            4 hook_opened add
            5 hook_opened add
            - run_completed [3,15]
        "#]],
    );
}

/// Continues while everything is open.
#[workflow]
async fn leaves_everything_open(ctx: Context, generation: u32) -> Result<u64, Error> {
    ctx.tag("generation", generation.to_string())?;
    if generation == 2 {
        let random = ctx.random();
        ctx.hook::<u32>("go").await?;
        return Ok(random);
    }
    let _step = ctx.call("work", (), async |()| Ok::<_, StepError>(()));
    let _timer = ctx.sleep("1h");
    let _hook = ctx.hook::<u32>("other");
    let _child = ctx.child(counts, 1);
    let _waits = ctx.child(counts, 2).on_parent_end(ParentEnd::Wait);
    let _stops = ctx.child(counts, 3).cancel_on_drop();
    let _queued = ctx.step(far, ());
    ctx.hook::<u32>("go").await?;
    ctx.continue_as(&2)
}

#[step(queue = "far")]
async fn far() {}

#[test]
fn open_operations_are_dropped_and_children_are_carried() {
    let case = Case::new(leaves_everything_open, 1.into());
    let text = case.run_live(history::parse("- hook_received go 1"));
    // The random numbers of a generation depend on its first operation.
    expect![[r#"
        0 step_started work null
        1 timer_started 1h
        2 hook_opened other
        3 child_started counts 1 cancel
        4 child_started counts 2 wait
        5 child_started counts 3 cancel
        6 step_started far null
        7 hook_opened go
        6 step_dropped
        5 operation_cancelled
        5 child_dropped
        4 child_dropped
        3 child_dropped
        2 hook_closed
        1 timer_cancelled
        0 step_dropped
        - run_continued 2 8 2 children [3, 4, 5] kept [] tags {"generation": "1"}
        8 hook_opened go
        waits for 8 hook go
        starts 3 counts 1
        starts 4 counts 2
        starts 5 counts 3
        starts 6 step:far null
        terminates a queued step: its parent R does not wait for it any more
        cancels a child: its parent R does not need it any more
        tag generation = 2
    "#]]
    .assert_eq(&text);
}

/// Starts a child and continues without it.
#[workflow]
async fn forgets_its_child(ctx: Context, generation: u32) -> Result<u32, Error> {
    if generation == 1 {
        let _child = ctx.child(counts, 1);
        ctx.hook::<u32>("go").await?;
        return ctx.continue_as(&2);
    }
    let first = ctx.child(counts, 10);
    let child = first.await?;
    Ok(child.1)
}

#[test]
fn the_end_of_a_child_of_an_earlier_generation_reaches_no_other_operation() {
    check_with(
        forgets_its_child,
        1.into(),
        "
        0 child_started counts 1
        1 hook_opened go
        1 hook_received go 1
        0 child_completed [7,7]
        ",
        expect![[r#"
            0 child_dropped
            - run_continued 2 2 2 children [0] kept [] tags {}
            2 child_started counts 10 cancel
            waits for 2 child counts
            starts 2 counts 10
        "#]],
    );
    check_with(
        forgets_its_child,
        1.into(),
        "
        0 child_started counts 1
        1 hook_opened go
        1 hook_received go 1
        2 child_completed [8,8]
        ",
        expect![[r#"
            0 child_dropped
            - run_continued 2 2 2 children [0] kept [] tags {}
            2 child_started counts 10 cancel
            - run_completed 8
            starts 2 counts 10
            cancels a child: its parent R has ended
        "#]],
    );
}

#[workflow]
async fn ignores_a_cancel(ctx: Context, generation: u32) -> Result<u32, Error> {
    let _ = ctx.sleep("1h").await;
    ctx.continue_as(&(generation + 1))
}

#[test]
fn a_cancelled_run_does_not_continue() {
    check_with(
        ignores_a_cancel,
        1.into(),
        "
        0 timer_started 1h
        0 cancel_requested enough
        ",
        expect![[r#"
            - run_cancelled cancelled cancelled: enough
        "#]],
    );
}

#[test]
fn code_that_continues_where_its_history_does_not_has_diverged() {
    check_with(
        ignores_a_cancel,
        1.into(),
        "
        0 timer_started 1h
        at 1h
        0 timer_fired
        1 timer_started 1h
        1 timer_fired
        ",
        expect![[r#"
            stuck, diverged: run R diverged at operation 1: history has timer 1h, code asked for the next generation of the run; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[workflow]
async fn does_not_wait(ctx: Context, generation: u32) -> Result<u32, Error> {
    if generation >= 3 {
        ctx.sleep("1h").await?;
    }
    ctx.continue_as(&(generation + 1))
}

#[workflow]
async fn never_waits(ctx: Context, generation: u32) -> Result<u32, Error> {
    ctx.continue_as(&(generation + 1))
}

#[test]
fn a_generation_that_does_not_wait_is_followed_by_another_in_the_same_turn() {
    check_with(
        does_not_wait,
        1.into(),
        "",
        expect![[r#"
        - run_continued 2 0 2 children [] kept [] tags {}
        - run_continued 3 0 3 children [] kept [] tags {}
        0 timer_started 1h
        waits for 0 timer 1h
    "#]],
    );
    check_with(
        never_waits,
        1.into(),
        "",
        expect![[r#"
        stuck, hung: run R has continued as a new generation 1000 times in one turn, and was polled 1000 times, which is the limit; let each generation await something before it continues
    "#]],
    );
}

#[workflow]
async fn swallows_the_request(ctx: Context, _generation: u32) -> Result<u32, Error> {
    let _: Result<u32, Error> = ctx.continue_as(&2);
    ctx.sleep("1h").await?;
    Ok(7)
}

#[workflow]
async fn continues_with_another_type(ctx: Context, _generation: u32) -> Result<u32, Error> {
    ctx.sleep("1h").await?;
    ctx.continue_as(&"two")
}

#[test]
fn only_a_returned_request_with_a_fitting_input_continues() {
    check_with(
        swallows_the_request,
        1.into(),
        "
        0 timer_started 1h
        0 timer_fired
        ",
        expect![[r#"
            - run_completed 7
        "#]],
    );
    check_with(
        continues_with_another_type,
        1.into(),
        "
        0 timer_started 1h
        0 timer_fired
        ",
        expect![[r#"
            stuck, undecodable: the recorded input of workflow `continues_with_another_type` cannot be read as `u32`: invalid type: string, expected u32 at line 1 column 5; add `#[serde(default)]` if a field was added, or deploy a build that can read it
        "#]],
    );
}

/// Has both branches of a patch: the answer of one generation does not bind the next.
#[workflow]
async fn patched_once(ctx: Context, generation: u32) -> Result<bool, Error> {
    let is_new = ctx.patched("new");
    let value: u32 = ctx.record("value", || 10 * generation)?;
    ctx.sleep("1h").await?;
    if generation < 2 { ctx.continue_as(&(generation + value)) } else { Ok(is_new) }
}

#[test]
fn values_and_patches_belong_to_their_generation() {
    check_with(
        patched_once,
        1.into(),
        "
        0 value_recorded value 1
        1 timer_started 1h
        1 timer_fired
        ",
        expect![[r#"
            - run_continued 2 2 2 children [] kept [] tags {}
            - version_chosen new
            2 value_recorded value 20
            3 timer_started 1h
            waits for 3 timer 1h
        "#]],
    );
    check_with(
        patched_once,
        1.into(),
        "
        - version_chosen new
        0 value_recorded value 77
        1 timer_started 1h
        1 timer_fired
        - run_continued 2 2 5
        2 value_recorded value 78
        3 timer_started 1h
        3 timer_fired
        ",
        expect![[r#"
            - run_completed false
        "#]],
    );
}
