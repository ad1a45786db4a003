//! Hooks: payloads are kept per name, first in first out, and the oldest open operation takes the next.

use expect_test::expect;
use outlast_core::Event;

use super::{Case, check, check_replay, history};
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
            1 hook_taken 1
            2 hook_opened answer
            2 hook_taken 2
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
        1 hook_taken    1
        2 hook_opened   answer
        2 hook_taken    2
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
fn an_answer_in_time_wins_although_no_worker_was_running() {
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
        0 hook_received answer 1
        - hook_received answer 2
        1 timer_fired
        0 hook_closed
        2 timer_started 2h
        2 timer_fired
        ",
        expect![[r#"
            3 hook_opened answer
            3 hook_taken 1
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
            0 hook_closed
            1 hook_taken 1
            - run_completed 7
        "#]],
    );
}

#[test]
fn a_payload_that_no_open_hook_can_read_is_rejected_and_the_wait_goes_on() {
    check(
        review,
        r#"
        0 hook_opened   review 3d
        at 1d
        - hook_received review 7
        - hook_received review null
        "#,
        expect![[r#"
            waits for 0 hook review for 2d
        "#]],
    );
    check(
        review,
        r#"
        0 hook_opened   review 3d
        ! hook_received review 7
        at 1d
        0 hook_received review "yes"
        "#,
        expect![[r#"
            - run_completed "yes"
        "#]],
    );
    check(
        review,
        r#"
        0 hook_opened   review 3d
        ! hook_received review 7
        at 3d
        0 timer_fired
        "#,
        expect![[r#"
            - run_completed "nobody: no payload arrived for hook `review` in time"
        "#]],
    );
}

#[workflow]
async fn number_or_text(ctx: Context) -> Result<(u32, String), Error> {
    ctx.sleep("1h").await?;
    let older = ctx.hook::<u32>("answer");
    let younger = ctx.hook::<String>("answer");
    try_join!(older, younger)
}

#[test]
fn the_first_open_hook_that_can_read_a_payload_takes_it() {
    check(
        number_or_text,
        r#"
        0 timer_started 1h
        0 timer_fired
        1 hook_opened   answer
        2 hook_opened   answer
        - hook_received answer "seven"
        - hook_received answer true
        "#,
        expect![[r#"
            waits for 1 hook answer
        "#]],
    );
}

#[test]
fn kept_payloads_are_offered_to_all_hooks_that_open_together() {
    check(
        number_or_text,
        r#"
        0 timer_started 1h
        - hook_received answer true
        - hook_received answer "seven"
        - hook_received answer 7
        0 timer_fired
        "#,
        expect![[r#"
            1 hook_opened answer
            2 hook_opened answer
            - hook_rejected answer 1 the payload is not a `u32`: invalid type: boolean, expected u32 at line 1 column 4; the payload is not a `String`: invalid type: boolean, expected a string at line 1 column 4
            2 hook_taken 2
            1 hook_taken 3
            - run_completed [7,"seven"]
        "#]],
    );
}

#[test]
fn a_replay_takes_and_rejects_as_recorded_whatever_the_code_can_read_today() {
    check_replay(
        three_answers,
        "
        0 timer_started 1h
        0 timer_fired
        1 hook_opened   answer
        ! hook_received answer 7
        - hook_received other 1
        ",
        expect![[r#"
            waits for 1 hook answer
            keeps other: [1]
        "#]],
    );
    check_replay(
        three_answers,
        r#"
        0 timer_started 1h
        - hook_received answer 6
        - hook_received answer 7
        0 timer_fired
        1 hook_opened   answer
        - hook_rejected answer 1 no
        1 hook_taken    2
        2 hook_opened   answer
        "#,
        expect![[r#"
            waits for 2 hook answer
        "#]],
    );
}

#[test]
fn a_taken_payload_that_the_code_cannot_read_makes_the_run_stuck() {
    for (before, after) in [
        ("", "1 hook_opened answer\n1 hook_received answer \"seven\""),
        ("- hook_received answer \"seven\"", "1 hook_opened answer\n1 hook_taken 1"),
    ] {
        check_replay(
            three_answers,
            &format!("0 timer_started 1h\n{before}\n0 timer_fired\n{after}"),
            expect![[r#"
                stuck, undecodable: the recorded payload of hook `answer` (operation 1) cannot be read as `u32`: invalid type: string, expected u32 at line 1 column 7; add `#[serde(default)]` if a field was added, or deploy a build that can read it
            "#]],
        );
    }
}

#[test]
fn a_payload_taken_by_a_hook_that_is_not_open_is_a_divergence() {
    check_replay(
        three_answers,
        "
        0 timer_started 1h
        3 hook_received answer 1
        ",
        expect![[r#"
            stuck, diverged: run R diverged at its end: history has `hook_received`, code asked for nothing; keep the old code for this run: put the change behind `ctx.patched("…")`, or register the new code as `version = 2`
        "#]],
    );
}

#[workflow]
async fn numbers_give_way_to_texts(ctx: Context) -> Result<String, Error> {
    let older = ctx.hook::<u32>("answer");
    let younger = ctx.hook::<String>("answer").timeout("3h");
    ctx.sleep("1h").await?;
    drop(older);
    younger.await
}

#[test]
fn the_payload_of_a_dropped_hook_is_rejected_when_the_others_cannot_read_it() {
    check(
        numbers_give_way_to_texts,
        "
        0 hook_opened   answer
        1 hook_opened   answer 3h
        2 timer_started 1h
        - hook_received answer 7
        2 timer_fired
        ",
        expect![[r#"
            0 hook_closed
            - hook_rejected answer 1 the payload is not a `String`: invalid type: integer, expected a string at line 1 column 1
            waits for 1 hook answer for 3h
        "#]],
    );
}

#[test]
fn with_rules_1_a_payload_of_another_type_fails_the_operation_that_takes_it() {
    check(
        three_answers,
        r#"
        rules 1
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

#[test]
fn with_rules_1_the_oldest_hook_takes_a_payload_without_an_event_of_its_own() {
    check(
        three_answers,
        "
        rules 1
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
        gives_up_and_asks_again,
        "
        rules 1
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
    check(
        older_is_dropped,
        "
        rules 1
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

/// A value whose reading panics.
#[derive(Debug)]
struct Explosive;

impl<'de> serde::Deserialize<'de> for Explosive {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("it goes off")
    }
}

#[test]
fn a_panic_while_a_payload_is_read_makes_the_run_stuck() {
    #[workflow]
    async fn takes_anything(ctx: Context) -> Result<(), Error> {
        ctx.hook::<Explosive>("answer").await.map(drop)
    }
    check(
        takes_anything,
        "
        0 hook_opened   answer
        - hook_received answer 7
        ",
        expect![[r#"
            stuck, panicked: the workflow's code panicked: it goes off; fix the code and deploy it
        "#]],
    );
}

#[test]
fn a_payload_that_only_another_codec_can_read_is_not_rejected() {
    let case = Case::new(review, serde_json::Value::Null);
    let mut turns = history::parse("0 hook_opened review 3d\n- hook_received review 7");
    let Some(Event::HookReceived { payload, .. }) = turns.last_mut().and_then(|turn| turn.events.last_mut())
    else {
        unreachable!()
    };
    *payload = outlast_core::Payload::coded("aes", vec![1, 2]);
    expect![[r#"
        stuck, unreadable: the payload of message msg_00000000000000000000000001 for hook `review`: the payload was written by codec `aes`; give the worker or client that codec
    "#]]
    .assert_eq(&case.run_live(turns));
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
