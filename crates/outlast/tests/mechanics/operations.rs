//! Operations: which of them get a number, and what happens at the limits.

use outlast::prelude::*;
use outlast::{ErrorKind, RunQuery, Status, StuckReason};

use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    an_operation_gets_its_number_when_it_is_created,
    an_operation_is_requested_at_the_next_suspension_polled_or_not,
    a_timeout_belongs_to_its_operations_own_number,
    a_builder_method_on_a_requested_operation_panics,
    an_input_past_the_limit_is_a_recorded_failure_of_its_step,
    an_output_past_the_limit_is_a_recorded_failure_of_its_step,
    a_workflow_output_past_the_limit_fails_the_run,
    a_name_that_is_too_long_fails_its_operation,
    a_duration_that_is_none_fails_its_operation,
    a_timeout_that_is_no_duration_fails_its_operation,
    calls_over_a_limit_are_refused_and_change_nothing,
    an_input_that_does_not_fit_makes_the_run_stuck,
    a_step_in_place_is_numbered_and_its_input_recorded,
}

async fn an_operation_gets_its_number_when_it_is_created(engine: TestEngine) {
    #[workflow]
    async fn backwards(ctx: Context) -> Result<String, Error> {
        let (first, second, third) = (ctx.note("a"), ctx.sleep("1m"), ctx.note("b"));
        let b = third.await?;
        second.await?;
        Ok(b + &first.await?)
    }
    let _worker = engine.worker(backwards).await;
    let run = engine.client.start(backwards, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), "ba");
    let history = engine.history(run.id()).await;
    assert!(history.starts_with("0 step_started note\n1 timer_started 1m\n2 step_started note"), "{history}");
}

async fn an_operation_is_requested_at_the_next_suspension_polled_or_not(engine: TestEngine) {
    #[workflow]
    async fn unpolled(ctx: Context) -> Result<String, Error> {
        let step = ctx.blocked("early");
        ctx.hook::<u32>("x").await?;
        step.await
    }
    let _worker = engine.worker(unpolled).await;
    let run = engine.client.start(unpolled, ()).await.unwrap();
    engine.steps.wait_for_log("began early", 1).await;
    engine.steps.open("early");
    engine.settle().await;
    engine.send(run.id(), "x", 1).await;
    assert_eq!(run.output().await.unwrap(), "early");
}

async fn a_timeout_belongs_to_its_operations_own_number(engine: TestEngine) {
    #[workflow]
    async fn timed(ctx: Context) -> Result<(), Error> {
        let error = ctx.hook::<u32>("x").timeout("1m").await.unwrap_err();
        assert!(error.is_timeout() && error.message().contains("hook `x`"), "{error}");
        ctx.note("a").timeout("5m").await.map(drop)
    }
    let _worker = engine.worker(timed).await;
    let run = engine.client.start(timed, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    engine
        .assert_history(
            run.id(),
            "0 hook_opened x
         0 timer_fired
         1 step_started note
         1 step_completed \"a\"
         run_completed null",
        )
        .await;
}

async fn a_builder_method_on_a_requested_operation_panics(engine: TestEngine) {
    #[workflow]
    async fn late_step(ctx: Context) -> Result<(), Error> {
        let step = ctx.note("a");
        ctx.sleep("1m").await?;
        step.attempts(2).await.map(drop)
    }
    #[workflow]
    async fn late_hook(ctx: Context) -> Result<(), Error> {
        let hook = ctx.hook::<u32>("x");
        ctx.sleep("1m").await?;
        hook.timeout("1h").await.map(drop)
    }
    let _worker = engine.worker((late_step, late_hook)).await;
    let runs = [
        engine.client.start(late_step, ()).await.unwrap().id(),
        engine.client.start(late_hook, ()).await.unwrap().id(),
    ];
    engine.clock.run_until_idle().await;
    for run in runs {
        let stuck = engine.stuck(run).await;
        assert_eq!(stuck.reason, StuckReason::Panicked);
        assert!(stuck.message.contains("operation 0 was already requested"), "{}", stuck.message);
    }
}

const TOO_LARGE: usize = 5 * 1024 * 1024;

async fn an_input_past_the_limit_is_a_recorded_failure_of_its_step(engine: TestEngine) {
    #[workflow]
    async fn large(ctx: Context) -> Result<String, Error> {
        let error = ctx.note(&"x".repeat(TOO_LARGE)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        ctx.sleep("1m").await?;
        ctx.note("small").await
    }
    let _worker = engine.worker(large).await;
    let run = engine.client.start(large, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), "small");
    assert_eq!(engine.steps.logged(), ["small"]);
    let history = engine.history(run.id()).await;
    assert!(
        history.contains("0 step_failed the payload has 5242882 bytes, the limit is 4194304"),
        "{history}"
    );
}

async fn an_output_past_the_limit_is_a_recorded_failure_of_its_step(engine: TestEngine) {
    #[workflow]
    async fn large(ctx: Context) -> Result<(), Error> {
        let big = async |size: usize| Ok::<String, StepError>("x".repeat(size));
        let error = ctx.call("big", TOO_LARGE, big).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (ErrorKind::Limit, 1), "{error}");
        Ok(())
    }
    let _worker = engine.worker(large).await;
    let run = engine.client.start(large, ()).await.unwrap();
    run.output().await.unwrap();
    let history = engine.history(run.id()).await;
    assert!(history.contains("0 step_failed the payload has"), "{history}");
}

async fn a_workflow_output_past_the_limit_fails_the_run(engine: TestEngine) {
    #[workflow]
    async fn large(_ctx: Context) -> Result<String, Error> {
        Ok("x".repeat(TOO_LARGE))
    }
    let _worker = engine.worker(large).await;
    let run = engine.client.start(large, ()).await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert_eq!(engine.status(run.id()).await, Status::Failed);
}

async fn a_name_that_is_too_long_fails_its_operation(engine: TestEngine) {
    #[workflow]
    async fn named(ctx: Context) -> Result<String, Error> {
        let long = "n".repeat(129);
        let hook = ctx.hook::<u32>(&long).await.unwrap_err();
        let step = ctx.call(&long, (), async |()| Ok::<(), StepError>(())).await.unwrap_err();
        let empty = ctx.hook::<u32>("").await.unwrap_err();
        assert_eq!((hook.kind(), step.kind()), (ErrorKind::Limit, ErrorKind::Limit));
        assert_eq!(empty.kind(), ErrorKind::Invalid);
        assert!(hook.message().contains("has 129 bytes, the limit is 128"), "{hook}");
        ctx.note("a").await
    }
    let _worker = engine.worker(named).await;
    let run = engine.client.start(named, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "a");
    engine
        .assert_history(run.id(), "3 step_started note\n 3 step_completed \"a\"\n run_completed \"a\"")
        .await;
}

async fn a_duration_that_is_none_fails_its_operation(engine: TestEngine) {
    #[workflow]
    async fn soon(ctx: Context) -> Result<String, Error> {
        let error = ctx.sleep("soon").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        Ok(error.message().to_owned())
    }
    let _worker = engine.worker(soon).await;
    let run = engine.client.start(soon, ()).await.unwrap();
    let message = run.output().await.unwrap();
    assert!(message.contains("`soon`"), "{message}");
}

async fn a_timeout_that_is_no_duration_fails_its_operation(engine: TestEngine) {
    #[workflow]
    async fn soon(ctx: Context) -> Result<u32, Error> {
        ctx.hook::<u32>("x").timeout("soon").await
    }
    let _worker = engine.worker(soon).await;
    let run = engine.client.start(soon, ()).await.unwrap();
    let error = run.output().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.message().contains("`soon`"), "{error}");
}

async fn calls_over_a_limit_are_refused_and_change_nothing(engine: TestEngine) {
    #[workflow]
    async fn echo(_ctx: Context, text: String) -> Result<String, Error> {
        Ok(text)
    }
    let large = "x".repeat(TOO_LARGE);
    let error = engine.client.start(echo, &large).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    let error = engine.client.start(echo, "a".to_owned()).key("k".repeat(257)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert!(error.message().contains("the start key has 257 bytes, the limit is 256"), "{error}");
    let error = engine.client.start(echo, "a".to_owned()).key("").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(engine.client.runs(RunQuery::default()).await.unwrap().runs.is_empty());

    let run = engine.client.start(echo, "a".to_owned()).await.unwrap();
    assert_eq!(run.send("x", &large).await.unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(run.send("n".repeat(129), &1).await.unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(run.send("", &1).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(engine.view(run.id()).await.sent, 0);
}

async fn an_input_that_does_not_fit_makes_the_run_stuck(engine: TestEngine) {
    #[workflow(name = "typed")]
    async fn typed(_ctx: Context, number: u32) -> Result<u32, Error> {
        Ok(number)
    }
    let _worker = engine.worker(typed).await;
    let run = engine.client.start(Workflow::<String, u32>::new("typed"), "seven".to_owned()).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Undecodable);
    assert!(
        stuck.message.contains("the recorded input of workflow `typed` cannot be read as `u32`: "),
        "{}",
        stuck.message
    );
}

async fn a_step_in_place_is_numbered_and_its_input_recorded(engine: TestEngine) {
    #[workflow]
    async fn in_place(ctx: Context) -> Result<u32, Error> {
        let double = async |n: u32| Ok::<u32, StepError>(n * 2);
        let once = ctx.call("double", 2, double).await?;
        ctx.call("double", once, double).await
    }
    let _worker = engine.worker(in_place).await;
    let run = engine.client.start(in_place, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 8);
    engine
        .assert_history(
            run.id(),
            "0 step_started double
         0 step_completed 4
         1 step_started double
         1 step_completed 8
         run_completed 8",
        )
        .await;
}
