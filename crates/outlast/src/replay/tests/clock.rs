//! Time and chance are the same in every replay.

use expect_test::expect;
use outlast_core::Event;

use super::{Case, START, check, history, turn};
use crate::prelude::*;

#[workflow]
async fn tells_the_time(ctx: Context) -> Result<Vec<String>, Error> {
    let mut times = vec![ctx.now().to_string()];
    ctx.sleep("1h").await?;
    times.push(ctx.now().to_string());
    ctx.hook::<()>("answer").await?;
    times.push(ctx.now().to_string());
    Ok(times)
}

#[test]
fn now_is_the_time_of_the_turn() {
    check(
        tells_the_time,
        "
        0 timer_started 1h
        at 90m
        0 timer_fired
        1 hook_opened answer
        at 1d
        - hook_received answer
        ",
        expect![[r#"
            - run_completed ["2026-01-01T00:00:00.000000Z","2026-01-01T01:30:00.000000Z","2026-01-02T00:00:00.000000Z"]
        "#]],
    );
}

#[workflow]
async fn hurries(ctx: Context) -> Result<String, Error> {
    let begun = ctx.now();
    ctx.sleep("1h").await?;
    Ok(begun.to_string())
}

#[test]
fn a_run_that_was_started_before_a_worker_had_it_begins_at_its_first_turn() {
    let case = Case::new(hurries, serde_json::Value::Null);
    let later = START.plus(std::time::Duration::from_secs(5));
    let (mut live, first) = case.fresh().unwrap();
    let mut events = Vec::new();
    live.set_time(later);
    live.begin(&mut events).unwrap();
    let mut replayed = case.replay(vec![first, turn(later, events)]).unwrap();
    for machine in [&mut live, &mut replayed] {
        let mut events = Vec::new();
        machine
            .deliver(history::delivery(Event::TimerFired { op: outlast_core::OpNumber(0) }), &mut events)
            .unwrap();
        assert_eq!(history::line(&events[1], START), "- run_completed \"2026-01-01T00:00:05.000000Z\"\n");
    }
}

#[workflow]
async fn tosses(ctx: Context) -> Result<(), Error> {
    ctx.sleep(std::time::Duration::from_secs(ctx.random() % 1_000)).await?;
    ctx.hook::<()>(format!("h{}", ctx.random() % 1_000)).await?;
    ctx.hook::<()>(ctx.uuid()).await
}

#[test]
fn chance_depends_on_the_run_alone() {
    check(
        tosses,
        "",
        expect![[r#"
        0 timer_started 5m9s
        waits for 0 timer 5m9s
    "#]],
    );
    check(
        tosses,
        "
        0 timer_started 309s
        0 timer_fired
        ",
        expect![[r#"
            1 hook_opened h680
            waits for 1 hook h680
        "#]],
    );
}

#[test]
fn a_duration_that_the_code_changed_is_no_divergence_and_history_has_the_last_word() {
    check(
        hurries,
        "
        0 timer_started 3h
        - hook_received other
        ",
        expect![[r#"
            waits for 0 timer 3h
            keeps other: [null]
        "#]],
    );
}
