//! Stuck: code that awaits what is not an operation, or panics.

use std::task::Poll;

use expect_test::expect;

use super::{check, check_replay, check_with};
use crate::prelude::*;

#[workflow]
async fn waits_for_ever(_ctx: Context) -> Result<(), Error> {
    std::future::pending().await
}

#[test]
fn waiting_with_nothing_open_is_a_foreign_await() {
    check(
        waits_for_ever,
        "",
        expect![[r#"
            stuck, foreign await: run R awaits something that is not an operation of its context: it waits, but no operation is open; common causes are tokio::time, channels, spawned tasks and I/O in workflow code. Move it into a step, or use ctx.sleep, ctx.hook or ctx.call
        "#]],
    );
}

#[workflow]
async fn loses_its_last_wait(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await?;
    std::future::pending().await
}

#[test]
fn waiting_with_nothing_open_any_more_is_a_foreign_await() {
    check(
        loses_its_last_wait,
        "
        0 timer_started 1h
        0 timer_fired
        ",
        expect![[r#"
            stuck, foreign await: run R awaits something that is not an operation of its context: it waits, but no operation is open; common causes are tokio::time, channels, spawned tasks and I/O in workflow code. Move it into a step, or use ctx.sleep, ctx.hook or ctx.call
        "#]],
    );
}

async fn a_thread_wakes() {
    std::future::poll_fn(|cx| {
        let waker = cx.waker().clone();
        std::thread::scope(|scope| drop(scope.spawn(move || waker.wake())));
        Poll::<()>::Pending
    })
    .await;
}

#[workflow]
async fn is_woken_by_a_thread(ctx: Context) -> Result<(), Error> {
    let _timer = ctx.sleep("1h");
    a_thread_wakes().await;
    Ok(())
}

#[test]
fn a_wake_by_another_thread_is_foreign_even_during_a_poll() {
    check(
        is_woken_by_a_thread,
        "",
        expect![[r#"
            stuck, foreign await: run R awaits something that is not an operation of its context: something that is not an operation woke it; common causes are tokio::time, channels, spawned tasks and I/O in workflow code. Move it into a step, or use ctx.sleep, ctx.hook or ctx.call
        "#]],
    );
}

#[workflow]
async fn spins(ctx: Context) -> Result<(), Error> {
    let _timer = ctx.sleep("1h");
    std::future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    })
    .await;
    Ok(())
}

#[test]
fn a_run_that_wakes_itself_for_ever_is_stuck() {
    check(
        spins,
        "",
        expect![[r#"
            stuck, foreign await: run R awaits something that is not an operation of its context: it woke itself 1000 times in a row; common causes are tokio::time, channels, spawned tasks and I/O in workflow code. Move it into a step, or use ctx.sleep, ctx.hook or ctx.call
        "#]],
    );
}

#[workflow]
async fn panics_late(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await?;
    let empty: [u32; 0] = [];
    let index = empty.len() + usize::from(ctx.is_cancelled());
    assert!(index > 0, "no {index}");
    Ok(())
}

#[test]
fn a_panic_in_the_workflows_code_is_stuck_with_what_it_said() {
    check(
        panics_late,
        "
        0 timer_started 1h
        0 timer_fired
        ",
        expect![[r#"
            stuck, panicked: the workflow's code panicked: no 0; fix the code and deploy it
        "#]],
    );
}

#[test]
fn a_panic_is_found_in_replay_too() {
    check_replay(
        panics_late,
        "
        0 timer_started 1h
        0 timer_fired
        - run_completed
        ",
        expect![[r#"
            stuck, panicked: the workflow's code panicked: no 0; fix the code and deploy it
        "#]],
    );
}

#[workflow]
async fn builds_too_late(ctx: Context) -> Result<u32, Error> {
    let answer = ctx.hook::<u32>("answer");
    ctx.sleep("1h").await?;
    answer.timeout("1h").await
}

#[test]
fn a_builder_method_on_a_requested_operation_panics_with_the_remedy() {
    check(
        builds_too_late,
        "
        0 hook_opened   answer
        1 timer_started 1h
        1 timer_fired
        ",
        expect![[r#"
            stuck, panicked: the workflow's code panicked: operation 0 was already requested; call builder methods before the next await; fix the code and deploy it
        "#]],
    );
}

#[test]
fn a_builder_method_on_a_requested_operation_panics_though_its_outcome_is_there() {
    check(
        builds_too_late,
        "
        0 hook_opened   answer
        1 timer_started 1h
        - hook_received answer 1
        1 timer_fired
        ",
        expect![[r#"
            stuck, panicked: the workflow's code panicked: operation 0 was already requested; call builder methods before the next await; fix the code and deploy it
        "#]],
    );
}

#[workflow]
async fn polls_twice(ctx: Context) -> Result<(), Error> {
    let mut timer = ctx.sleep("1h");
    (&mut timer).await?;
    timer.await
}

#[test]
fn an_operation_that_is_polled_after_it_completed_panics() {
    check(
        polls_twice,
        "
        0 timer_started 1h
        0 timer_fired
        ",
        expect![[r#"
            stuck, panicked: the workflow's code panicked: operation 0 was polled after it completed; fix the code and deploy it
        "#]],
    );
}

#[workflow]
async fn doubles(_ctx: Context, number: u32) -> Result<u32, Error> {
    Ok(number * 2)
}

#[test]
fn an_input_that_does_not_fit_makes_the_run_stuck() {
    check_with(
        doubles,
        21.into(),
        "",
        expect![[r#"
        - run_completed 42
    "#]],
    );
    check_with(
        doubles,
        "x".into(),
        "",
        expect![[r#"
            stuck, undecodable: the recorded input of workflow `doubles` cannot be read as `u32`: invalid type: string, expected u32 at line 1 column 3; add `#[serde(default)]` if a field was added, or deploy a build that can read it
        "#]],
    );
    check_with(
        doubles,
        "x".into(),
        "rules 1",
        expect![[r#"
            - run_failed invalid the input of workflow `doubles` does not fit: the payload is not a `u32`: invalid type: string, expected u32 at line 1 column 3
        "#]],
    );
}

#[step]
async fn mail(_number: u32) -> Result<u32, StepError> {
    panic!("an attempt that a workflow polls does nothing");
}

#[workflow]
async fn calls_a_step_directly(ctx: Context) -> Result<u32, Error> {
    ctx.sleep("1h").await?;
    Ok(mail(1).await?)
}

#[test]
fn a_step_that_is_called_directly_is_stuck_with_the_remedy() {
    check(
        calls_a_step_directly,
        "
        0 timer_started 1h
        0 timer_fired
        ",
        expect![[r#"
            stuck, called directly: step `mail` was called directly; write `ctx.step(mail, …)`: otherwise its effect would be repeated by every replay
        "#]],
    );
}

/// What another thread says: hidden here from what a workflow's macro can see.
fn elsewhere<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(ask).join().unwrap()
}

#[workflow]
async fn asks_on_another_thread(ctx: Context) -> Result<u64, Error> {
    ctx.sleep("1h").await?;
    let asked = ctx.clone();
    elsewhere(move || asked.sleep("1m")).await?;
    Ok(ctx.random())
}

#[test]
fn a_context_that_another_thread_uses_during_a_poll_is_stuck_and_asks_for_nothing() {
    check(
        asks_on_another_thread,
        "
        0 timer_started 1h
        0 timer_fired
        ",
        expect![[r#"
            stuck, context outside: `ctx` was used outside of the workflow's own code, in a spawned task or on another thread (it requested a timer); call it from the workflow, and use `join!` or `ctx.parallel` for concurrent work
        "#]],
    );
}

#[test]
fn code_before_the_first_poll_may_use_the_context() {
    let early = Workflow::<(), ()>::new("early");
    let codec: std::sync::Arc<dyn outlast_core::Codec> = std::sync::Arc::new(outlast_core::PlainJson);
    let mut registry = crate::authoring::registry::Registry::new(std::sync::Arc::new(()), codec.clone());
    registry.add_workflow_of(early, |ctx: Context, ()| ctx.sleep("1h"));
    let code = registry.finish().unwrap();
    let case = super::Case { workflow: "early".into(), ..super::Case::new(waits_for_ever, ().into()) };
    let case = super::Case { code, ..case };
    assert_eq!(case.run_live(super::history::parse("")), "0 timer_started 1h\nwaits for 0 timer 1h\n");
}
