//! Recorded values, and sleeping until a time.

use outlast::prelude::*;
use outlast::{ErrorKind, Status, Timestamp};

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world, trace, traces};

on_every_world! {
    a_value_is_computed_once_through_a_crash,
    a_value_over_the_limit_fails_its_call_and_the_run_continues,
    a_float_that_json_does_not_have_is_an_error_where_it_is_written,
    a_some_that_json_cannot_tell_from_none_is_an_error_where_it_is_written,
    details_of_an_error_past_the_limit_are_left_out_of_the_history,
    a_run_sleeps_until_a_moment_through_a_crash,
    a_time_in_the_past_is_due_at_once,
    a_run_knows_its_metadata,
    an_attempt_knows_its_metadata,
}

async fn a_value_is_computed_once_through_a_crash(engine: TestEngine) {
    #[workflow]
    async fn quote(ctx: Context) -> Result<u32, Error> {
        let run = ctx.run();
        let quote = || {
            trace(run, "quoted");
            4200 + traces(run, "quoted")
        };
        let quote: u32 = ctx.record("quote", quote)?;
        ctx.sleep("3d").await?;
        ctx.note("late").await?;
        Ok(quote)
    }
    let worker = engine.worker(quote).await;
    let run = engine.client.start(quote, ()).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.worker(quote).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 4201);
    assert_eq!(traces(run.id(), "quoted"), 1);
    engine
        .assert_history(
            run.id(),
            "0 value_recorded quote 4201
         1 timer_started 3d
         1 timer_fired
         2 step_started note
         2 step_completed \"late\"
         run_completed 4201",
        )
        .await;
}

async fn a_value_over_the_limit_fails_its_call_and_the_run_continues(engine: TestEngine) {
    #[workflow]
    async fn large(ctx: Context) -> Result<String, Error> {
        let error = ctx.record("large", || "x".repeat(5 * 1024 * 1024)).unwrap_err();
        ctx.sleep("1m").await?;
        Ok(error.message().chars().take(30).collect())
    }
    let _worker = engine.worker(large).await;
    let run = engine.client.start(large, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), "the payload has 5242882 bytes,");
}

#[workflow]
async fn until(ctx: Context, moment: Timestamp) -> Result<Timestamp, Error> {
    ctx.sleep_until(moment).await?;
    Ok(ctx.now())
}

async fn a_float_that_json_does_not_have_is_an_error_where_it_is_written(engine: TestEngine) {
    #[step]
    async fn divide(cx: StepContext<StepState>, by: f64) -> Result<f64, StepError> {
        cx.state().log("divided");
        Ok(0.0 / by)
    }
    #[workflow]
    async fn divides(ctx: Context) -> Result<(), Error> {
        for problem in [
            ctx.step(divide, 0.0).await.unwrap_err(),
            ctx.step(divide, f64::INFINITY).await.unwrap_err(),
            ctx.record("nan", || f64::NAN).unwrap_err(),
        ] {
            assert_eq!(problem.kind(), ErrorKind::Invalid);
            assert!(problem.message().contains("which JSON does not have"), "{problem}");
        }
        ctx.sleep("1m").await
    }
    let _worker = engine.worker((divides, divide)).await;
    let run = engine.client.start(divides, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(engine.steps.count("divided"), 1, "another attempt would not end better");
}

async fn a_some_that_json_cannot_tell_from_none_is_an_error_where_it_is_written(engine: TestEngine) {
    type Nested = Option<Option<u32>>;

    #[step]
    async fn echo_nested(cx: StepContext<StepState>, value: Nested) -> Result<Nested, StepError> {
        cx.state().log("echoed");
        Ok(value.map(|value| value.filter(|number| *number > 0)))
    }
    #[workflow]
    async fn nests(ctx: Context, value: Nested) -> Result<Nested, Error> {
        // An input and a recorded value, and the output of a step.
        for problem in [
            ctx.step(echo_nested, Some(None)).await.unwrap_err(),
            ctx.step(echo_nested, Some(Some(0))).await.unwrap_err(),
            ctx.record("nested", || Some(())).unwrap_err(),
        ] {
            assert_eq!(problem.kind(), ErrorKind::Invalid);
            assert!(problem.message().contains("which JSON cannot tell from `None`"), "{problem}");
        }
        assert_eq!(ctx.step(echo_nested, None).await?, None);
        assert_eq!(ctx.step(echo_nested, Some(Some(7))).await?, Some(Some(7)));
        let received: Nested = ctx.hook("value").await?;
        assert_eq!((value, received), (Some(Some(1)), Some(Some(2))));
        Ok(Some(None))
    }
    let _worker = engine.worker((nests, echo_nested)).await;
    let is_refused = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("which JSON cannot tell from `None`"), "{error}");
    };
    is_refused(engine.client.start(nests, Some(None)).await.unwrap_err());
    let run = engine.client.start(nests, Some(Some(1))).await.unwrap();
    is_refused(engine.client.send(run.id(), "value", &Some(None::<u32>)).await.unwrap_err());
    engine.client.send(run.id(), "value", &Some(Some(2))).await.unwrap();
    is_refused(run.output().await.unwrap_err());
    assert_eq!(engine.steps.count("echoed"), 3, "another attempt would not end better");
}

async fn details_of_an_error_past_the_limit_are_left_out_of_the_history(engine: TestEngine) {
    #[step(attempts = 1)]
    async fn fat() -> Result<(), StepError> {
        Err(StepError::msg("fat").with_details("y".repeat(5_000_000)))
    }
    #[workflow]
    async fn heavy(ctx: Context) -> Result<(), Error> {
        ctx.step(fat, ()).await
    }
    let _worker = engine.worker((heavy, fat)).await;
    let run = engine.client.start(heavy, ()).await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!(error.details::<String>(), None);
    let said = "fat (its details are left out: they have 5000002 bytes, the limit is 65536)";
    assert_eq!(error.message(), said);
    assert!(format!("{:?}", engine.turns(run.id()).await).len() < 10_000);
}

async fn a_run_sleeps_until_a_moment_through_a_crash(engine: TestEngine) {
    let moment = engine.time_after_begin("2d");
    let worker = engine.worker(until).await;
    let run = engine.client.start(until, moment).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.crash(worker);
    let _worker = engine.worker(until).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), moment);
}

async fn a_time_in_the_past_is_due_at_once(engine: TestEngine) {
    engine.advance("1h").await;
    let _worker = engine.worker(until).await;
    let run = engine.client.start(until, engine.time_after_begin("1m")).await.unwrap();
    assert_eq!(run.output().await.unwrap(), engine.time_after_begin("1h"));
}

async fn a_run_knows_its_metadata(engine: TestEngine) {
    #[workflow(name = "self-portrait", version = 7)]
    async fn portrait(ctx: Context) -> Result<String, Error> {
        ctx.sleep("1m").await?;
        Ok(format!("{} {} {} {:?}", ctx.run(), ctx.workflow(), ctx.version(), ctx.headers().get("who")))
    }
    let _worker = engine.worker(portrait).await;
    let run = engine.client.start(portrait, ()).header("who", "Ada").await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), format!("{} self-portrait 7 Some(\"Ada\")", run.id()));
}

async fn an_attempt_knows_its_metadata(engine: TestEngine) {
    #[step(name = "mirror")]
    async fn mirror(cx: StepContext<StepState>) -> String {
        format!("{} {} {} {}", cx.run(), cx.step_name(), cx.op(), cx.attempt())
    }
    #[workflow]
    async fn look(ctx: Context) -> Result<String, Error> {
        ctx.note("first").await?;
        ctx.step(mirror, ()).await
    }
    let _worker = engine.worker((look, mirror)).await;
    let run = engine.client.start(look, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), format!("{} mirror 1 1", run.id()));
}
