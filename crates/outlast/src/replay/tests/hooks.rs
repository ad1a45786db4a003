//! Hooks: payloads are kept per name, first in first out, and the oldest open operation takes the next.

use expect_test::expect;

use super::check;
use crate::prelude::*;

#[workflow]
async fn three_answers(ctx: Context) -> Result<Vec<u32>, Error> {
    ctx.sleep("1h").await?;
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(ctx.hook::<u32>("answer").await?);
    }
    Ok(answers)
}

#[test]
fn a_payload_sent_before_anyone_waits_is_kept() {
    check(
        three_answers,
        "
        0 timer_started 1h
        - hook_received answer 1
        - hook_received other  9
        - hook_received answer 2
        ",
        expect![[r#"
            waits for 0 timer 1h
            keeps answer: [1, 2]
            keeps other: [9]
        "#]],
    );
}

#[test]
fn kept_payloads_are_taken_in_the_order_they_came() {
    check(
        three_answers,
        "
        0 timer_started 1h
        - hook_received answer 1
        - hook_received answer 2
        0 timer_fired
        ",
        expect![[r#"
            1 hook_opened answer
            2 hook_opened answer
            3 hook_opened answer
            waits for 3 hook answer
        "#]],
    );
    check(
        three_answers,
        "
        0 timer_started 1h
        - hook_received answer 1
        - hook_received answer 2
        0 timer_fired
        1 hook_opened   answer
        2 hook_opened   answer
        3 hook_opened   answer
        - hook_received answer 3
        ",
        expect![[r#"
            - run_completed [1,2,3]
        "#]],
    );
}

#[workflow]
async fn two_of_a_name(ctx: Context) -> Result<(u32, u32), Error> {
    let older = ctx.hook::<u32>("answer");
    let younger = ctx.hook::<u32>("answer");
    try_join!(older, younger)
}

#[test]
fn of_two_hooks_with_one_name_the_older_takes_the_first_payload() {
    check(
        two_of_a_name,
        "
        0 hook_opened   answer
        1 hook_opened   answer
        - hook_received answer 1
        ",
        expect![[r#"
            waits for 1 hook answer
        "#]],
    );
    check(
        two_of_a_name,
        "
        0 hook_opened   answer
        1 hook_opened   answer
        - hook_received answer 1
        - hook_received answer 2
        ",
        expect![[r#"
            - run_completed [1,2]
        "#]],
    );
}

#[workflow]
async fn awaits_the_younger_first(ctx: Context) -> Result<(u32, u32), Error> {
    let older = ctx.hook::<u32>("answer");
    let younger = ctx.hook::<u32>("answer").await?;
    Ok((older.await?, younger))
}

#[test]
fn a_hook_that_nobody_polls_does_not_hold_up_the_next_one() {
    check(
        awaits_the_younger_first,
        "
        0 hook_opened   answer
        1 hook_opened   answer
        - hook_received answer 1
        ",
        expect![[r#"
            waits for 1 hook answer
        "#]],
    );
    check(
        awaits_the_younger_first,
        "
        0 hook_opened   answer
        1 hook_opened   answer
        - hook_received answer 1
        - hook_received answer 2
        ",
        expect![[r#"
            - run_completed [1,2]
        "#]],
    );
}

#[workflow]
async fn review(ctx: Context) -> Result<String, Error> {
    match ctx.hook::<String>("review").timeout("3d").await {
        Err(error) if error.is_timeout() => Ok(format!("nobody: {error}")),
        other => other,
    }
}

#[test]
fn a_hook_ends_with_its_timeout() {
    check(
        review,
        "
        0 hook_opened review 3d
        at 3d
        0 timer_fired
        ",
        expect![[r#"
            - run_completed "nobody: no payload arrived for hook `review` in time"
        "#]],
    );
}

#[test]
fn a_timeout_that_the_code_changed_is_the_one_that_history_has() {
    check(
        review,
        "
        0 hook_opened review 1w
        - hook_received other 1
        ",
        expect![[r#"
            waits for 0 hook review for 7d
            keeps other: [1]
        "#]],
    );
}

#[workflow]
async fn looks_late(ctx: Context) -> Result<String, Error> {
    let answer = ctx.hook::<String>("review").timeout("1h");
    ctx.sleep("2h").await?;
    answer.await
}

#[test]
fn an_answer_given_in_time_does_not_lose_because_nobody_looked() {
    check(
        looks_late,
        r#"
        0 hook_opened   review 1h
        1 timer_started 2h
        at 30m
        - hook_received review "yes"
        at 1h
        0 timer_fired
        at 2h
        1 timer_fired
        "#,
        expect![[r#"
            - run_completed "yes"
        "#]],
    );
}

#[test]
fn an_answer_given_too_late_is_kept() {
    check(
        looks_late,
        r#"
        0 hook_opened   review 1h
        1 timer_started 2h
        at 1h
        0 timer_fired
        - hook_received review "yes"
        "#,
        expect![[r#"
            waits for 1 timer 1h
            keeps review: ["yes"]
        "#]],
    );
}

#[workflow]
async fn gives_up_and_asks_again(ctx: Context) -> Result<u32, Error> {
    let first = ctx.hook::<u32>("answer");
    ctx.sleep("1h").await?;
    drop(first);
    ctx.sleep("2h").await?;
    ctx.hook::<u32>("answer").await
}

#[test]
fn a_payload_that_a_dropped_hook_did_not_return_is_kept() {
    check(
        gives_up_and_asks_again,
        "
        0 hook_opened   answer
        1 timer_started 1h
        - hook_received answer 1
        - hook_received answer 2
        1 timer_fired
        ",
        expect![[r#"
            0 hook_closed
            2 timer_started 2h
            waits for 2 timer 2h
            keeps answer: [1, 2]
        "#]],
    );
    check(
        gives_up_and_asks_again,
        "
        0 hook_opened   answer
        1 timer_started 1h
        - hook_received answer 1
        - hook_received answer 2
        1 timer_fired
        0 hook_closed
        2 timer_started 2h
        2 timer_fired
        ",
        expect![[r#"
            3 hook_opened answer
            - run_completed 1
        "#]],
    );
}

#[test]
fn a_dropped_hook_that_got_nothing_is_closed() {
    check(
        gives_up_and_asks_again,
        "
        0 hook_opened   answer
        1 timer_started 1h
        1 timer_fired
        ",
        expect![[r#"
            0 hook_closed
            2 timer_started 2h
            waits for 2 timer 2h
        "#]],
    );
}

#[workflow]
async fn older_is_dropped(ctx: Context) -> Result<u32, Error> {
    let older = ctx.hook::<u32>("answer");
    let younger = ctx.hook::<u32>("answer");
    ctx.sleep("1h").await?;
    drop(older);
    younger.await
}

#[test]
fn the_payload_of_a_dropped_hook_goes_to_the_next_one_that_waits() {
    check(
        older_is_dropped,
        "
        0 hook_opened   answer
        1 hook_opened   answer
        2 timer_started 1h
        - hook_received answer 7
        2 timer_fired
        ",
        expect![[r#"
            - run_completed 7
        "#]],
    );
}

#[test]
fn a_payload_of_another_type_fails_the_operation_that_takes_it() {
    check(
        three_answers,
        r#"
        0 timer_started 1h
        0 timer_fired
        1 hook_opened   answer
        - hook_received answer "seven"
        "#,
        expect![[r#"
            - run_failed invalid hook `answer`, operation 1 of run_01KC0000000000000000000001: the payload is not a `u32`: invalid type: string "seven", expected u32 at line 1 column 7
        "#]],
    );
}

#[workflow]
async fn answers_of_many(ctx: Context) -> Result<Vec<u32>, Error> {
    let mut hooks: FuturesUnordered<_> = (0..3).map(|_| ctx.hook::<u32>("answer")).collect();
    let mut seen = Vec::new();
    while let Some(answer) = hooks.next().await {
        seen.push(answer?);
    }
    Ok(seen)
}

#[test]
fn many_hooks_of_one_name_see_each_payload_once_in_order() {
    check(
        answers_of_many,
        "
        0 hook_opened   answer
        1 hook_opened   answer
        2 hook_opened   answer
        - hook_received answer 1
        - hook_received answer 2
        - hook_received answer 3
        ",
        expect![[r#"
            - run_completed [1,2,3]
        "#]],
    );
}
