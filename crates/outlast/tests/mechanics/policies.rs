//! Retry policies: the growth of pauses, which errors are retried, and notifications.

use std::sync::Arc;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{ErrorKind, Timestamp};
use outlast_testkit::TestClock;
use parking_lot::Mutex;

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    pauses_grow_as_the_retry_says_where_the_step_is_asked_for,
    the_attribute_names_a_preset,
    jitter_is_recorded_and_agrees_with_every_replay,
    only_the_chosen_classes_are_retried,
    an_error_knows_its_class_by_its_sources,
    an_error_can_name_the_moment_of_the_next_attempt,
    exhausted_errors_differ_from_fatal_and_not_retried_ones,
    codes_classes_details_and_causes_reach_the_workflow_after_a_crash,
    a_pause_of_no_time_is_over_at_once,
    on_retry_is_called_exactly_once_per_retry,
    a_panic_in_on_retry_changes_nothing,
}

/// Fails this often.
#[step]
async fn failing(cx: StepContext<StepState>, fails: u32) -> Result<u32, StepError> {
    cx.state().log("attempt");
    if cx.attempt() <= fails { Err(StepError::msg("no")) } else { Ok(cx.attempt()) }
}

#[workflow]
async fn grows(ctx: Context, growth: String) -> Result<u32, Error> {
    let retry = match growth.as_str() {
        "linear" => Retry::linear(),
        "constant" => Retry::constant(),
        _ => Retry::exponential().multiplier(3.0),
    };
    ctx.step(failing, 3).retry(retry.attempts(4).initial("1s").max("2s")).await
}

async fn pauses_grow_as_the_retry_says_where_the_step_is_asked_for(engine: TestEngine) {
    let _worker = engine.worker((grows, failing)).await;
    for growth in ["constant", "linear", "exponential"] {
        let run = engine.client.start(grows, growth.to_owned()).await.unwrap();
        engine.clock.run_until_idle().await;
        assert_eq!(run.output().await.unwrap(), 4);
    }
    let times = engine.steps.times("attempt");
    assert_eq!(times[..4], ["0s", "1s", "2s", "3s"], "constant");
    assert_eq!(times[4..8], ["3s", "4s", "6s", "8s"], "linear: 1 s, 2 s, and 2 s at most");
    assert_eq!(times[8..], ["8s", "9s", "11s", "13s"], "exponential: 1 s, 3 s cut to 2 s");
}

async fn the_attribute_names_a_preset(engine: TestEngine) {
    #[step(retry = "constant", attempts = 3, initial = "5m")]
    async fn steady(cx: StepContext<StepState>) -> Result<(), StepError> {
        cx.state().log("steady");
        Err(StepError::msg("no"))
    }
    #[step(retry = "none")]
    async fn single(cx: StepContext<StepState>) -> Result<(), StepError> {
        cx.state().log("single");
        Err(StepError::msg("no"))
    }
    #[workflow]
    async fn both(ctx: Context) -> Result<u32, Error> {
        let single = ctx.step(single, ()).await.unwrap_err();
        let steady = ctx.step(steady, ()).await.unwrap_err();
        Ok(single.attempts() * 10 + steady.attempts())
    }
    let _worker = engine.worker((both, steady, single)).await;
    let run = engine.client.start(both, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 13);
    assert_eq!(engine.steps.times("steady"), ["0s", "5m", "10m"]);
}

async fn jitter_is_recorded_and_agrees_with_every_replay(engine: TestEngine) {
    #[workflow]
    async fn jittery(ctx: Context) -> Result<u32, Error> {
        let retry = Retry::constant().attempts(21).initial("100s").max("100s").jitter(0.01..=0.10);
        ctx.step(failing, 20).retry(retry).await
    }
    let _worker = engine.worker((jittery, failing)).await;
    let run = engine.client.start(jittery, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 21);
    let turns = engine.turns(run.id()).await;
    let pauses = turns.iter().flat_map(|turn| turn.events.iter().map(|event| (turn.at, event)));
    let pauses: Vec<f64> = pauses
        .filter_map(|(at, event)| match event {
            Event::StepRetried { retry_at, .. } => Some(retry_at.since(at).as_secs_f64()),
            _ => None,
        })
        .collect();
    assert_eq!(pauses.len(), 20);
    assert!(pauses.iter().all(|pause| (101.0..=110.0).contains(pause)), "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
    let waited: f64 = pauses.iter().sum();
    let passed = engine.clock.now().since(TestClock::BEGIN).as_secs_f64();
    assert!((waited - passed).abs() < 0.001, "waited {waited}, {passed} passed");
}

/// Fails with an error of this class.
#[step]
async fn classed(cx: StepContext<StepState>, class: Option<ErrorClass>) -> Result<(), StepError> {
    cx.state().log(format!("{class:?}"));
    let error = StepError::msg("no");
    Err(class.into_iter().fold(error, StepError::class))
}

async fn only_the_chosen_classes_are_retried(engine: TestEngine) {
    #[workflow]
    async fn choosy(ctx: Context) -> Result<Vec<u32>, Error> {
        let retry =
            Retry::constant().attempts(2).only(&[ErrorClass::Transient]).unless(&[ErrorClass::Server]);
        let mut attempts = Vec::new();
        for class in [None, Some(ErrorClass::Network), Some(ErrorClass::RateLimit), Some(ErrorClass::Server)]
        {
            attempts.push(ctx.step(classed, class).retry(retry).await.unwrap_err().attempts());
        }
        Ok(attempts)
    }
    let _worker = engine.worker((choosy, classed)).await;
    let run = engine.client.start(choosy, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), [1, 2, 2, 1]);
}

async fn an_error_knows_its_class_by_its_sources(engine: TestEngine) {
    #[workflow]
    async fn connecting(ctx: Context) -> Result<Vec<Option<ErrorClass>>, Error> {
        let connect = async |refused: bool| {
            let kind =
                if refused { std::io::ErrorKind::ConnectionRefused } else { std::io::ErrorKind::NotFound };
            Err::<(), _>(std::io::Error::other(std::io::Error::new(kind, "no way")))
        };
        let retry = Retry::constant().attempts(3).only(&[ErrorClass::Network]);
        let refused = ctx.call("refused", true, connect).retry(retry).await.unwrap_err();
        let missing = ctx.call("missing", false, connect).retry(retry).await.unwrap_err();
        assert_eq!((refused.attempts(), missing.attempts()), (3, 1));
        let timed = ctx.blocked("for ever").timeout("1s").attempts(1).await.unwrap_err();
        Ok(vec![refused.class(), missing.class(), timed.class()])
    }
    let _worker = engine.worker(connecting).await;
    let run = engine.client.start(connecting, ()).await.unwrap();
    while engine.steps.count("began for ever") == 0 {
        tokio::task::yield_now().await;
        if let Some(next) = engine.clock.next_sleeper() {
            engine.clock.advance_to(next);
        }
    }
    engine.clock.advance("1s");
    let classes = [Some(ErrorClass::Network), None, Some(ErrorClass::Transient)];
    assert_eq!(run.output().await.unwrap(), classes);
}

async fn an_error_can_name_the_moment_of_the_next_attempt(engine: TestEngine) {
    #[step]
    async fn quota(cx: StepContext<StepState>, moments: Vec<Timestamp>) -> Result<(), StepError> {
        cx.state().log("attempt");
        match moments.get(cx.attempt() as usize - 1) {
            Some(moment) => Err(StepError::retry_at("used up", *moment)),
            None => Ok(()),
        }
    }
    #[workflow]
    async fn polite(ctx: Context, moments: Vec<Timestamp>) -> Result<(), Error> {
        ctx.step(quota, moments).await
    }
    let _worker = engine.worker((polite, quota)).await;
    let moments = vec![engine.time_after_begin("1h"), engine.time_after_begin("10m")];
    let run = engine.client.start(polite, moments).await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(engine.steps.times("attempt"), ["0s", "1h", "1h"], "a moment that has passed is now");
}

async fn a_pause_of_no_time_is_over_at_once(engine: TestEngine) {
    #[workflow]
    async fn hasty(ctx: Context) -> Result<u32, Error> {
        ctx.sleep("1m").await?;
        ctx.step(failing, 4).retry(Retry::constant().initial("0s")).await
    }
    let _worker = engine.worker((hasty, failing)).await;
    let run = engine.client.start(hasty, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 5);
    assert_eq!(engine.steps.times("attempt"), ["1m"; 5]);
}

async fn exhausted_errors_differ_from_fatal_and_not_retried_ones(engine: TestEngine) {
    #[workflow]
    async fn telling(ctx: Context) -> Result<Vec<(bool, u32)>, Error> {
        let doom = async |fatal: bool| {
            Err::<(), _>(if fatal { StepError::fatal("never") } else { StepError::msg("not now") })
        };
        let fatal = ctx.call("fatal", true, doom).attempts(1).await.unwrap_err();
        assert_eq!(fatal.kind(), ErrorKind::Fatal);
        let exhausted = ctx.call("exhausted", false, doom).attempts(2).await.unwrap_err();
        assert_eq!(exhausted.kind(), ErrorKind::Error);
        let only = Retry::api().only(&[ErrorClass::Network]);
        let unwanted = ctx.call("unwanted", false, doom).retry(only).await.unwrap_err();
        Ok([fatal, exhausted, unwanted].map(|error| (error.is_exhausted(), error.attempts())).into())
    }
    let _worker = engine.worker(telling).await;
    let run = engine.client.start(telling, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), [(false, 1), (true, 2), (false, 1)]);
}

async fn codes_classes_details_and_causes_reach_the_workflow_after_a_crash(engine: TestEngine) {
    #[workflow]
    async fn declined(ctx: Context) -> Result<(), Error> {
        let decline = async |()| {
            let error = StepError::from(std::io::Error::other("x".parse::<u8>().unwrap_err()));
            Err::<(), _>(error.with_code("card_declined").class(ErrorClass::Server).with_details([4, 2]))
        };
        let error = ctx.call("charge", (), decline).attempts(1).await.unwrap_err();
        ctx.hook::<u32>("go").await?;
        Err(error)
    }
    let worker = engine.worker(declined).await;
    let run = engine.client.start(declined, ()).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.worker(declined).await;
    engine.send(run.id(), "go", 1).await;
    let error = run.output().await.unwrap_err();
    assert_eq!((error.step(), error.code()), (Some("charge"), Some("card_declined")));
    assert_eq!((error.class(), error.is_exhausted()), (Some(ErrorClass::Server), true));
    assert_eq!(error.details::<Vec<u32>>(), Some(vec![4, 2]));
    assert_eq!(error.message(), "invalid digit found in string");
}

async fn on_retry_is_called_exactly_once_per_retry(engine: TestEngine) {
    #[workflow]
    async fn retrying(ctx: Context) -> Result<u32, Error> {
        ctx.note("fine").await?;
        ctx.flaky(2).await
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = told.clone();
    let builder = engine.builder().register(retrying).on_retry(move |about| {
        let text = format!("{} {} {} {:?}", about.step, about.attempt, about.message, about.pause);
        listener.lock().push((about.run, text));
    });
    let _worker = builder.start().await.unwrap();
    let run = engine.client.start(retrying, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    let texts = ["flaky 1 failure 1 1s", "flaky 2 failure 2 2s"];
    assert_eq!(*told.lock(), texts.map(|text| (run.id(), text.to_owned())));
}

async fn a_panic_in_on_retry_changes_nothing(engine: TestEngine) {
    #[workflow]
    async fn retrying(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(2).await
    }
    let builder = engine.builder().register(retrying).on_retry(|about| panic!("about {}", about.step));
    let _worker = builder.start().await.unwrap();
    let run = engine.client.start(retrying, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 3);
}

#[tokio::test]
async fn outside_workflows_work_is_retried_after_the_pauses_of_a_clock() {
    let clock = TestClock::new();
    let times = Mutex::new(Vec::new());
    let work = async || {
        times.lock().push(clock.now().since(TestClock::BEGIN).as_secs());
        match times.lock().len() {
            1 => Err(StepError::msg("no")),
            2 => Err(StepError::retry_after("busy", "1m")),
            calls => Ok(calls),
        }
    };
    let retried = outlast::retry_with_clock(&clock, Retry::linear().initial("1s"), work);
    let (calls, ()) = tokio::join!(retried, clock.run_until_idle());
    assert_eq!(calls.unwrap(), 3);
    assert_eq!(*times.lock(), [0, 1, 61]);
}

#[tokio::test]
async fn outside_workflows_the_last_error_is_returned() {
    let mut calls = 0;
    let fatal = outlast::retry(Retry::constant(), || {
        calls += 1;
        async { Err::<(), _>(StepError::fatal("never")) }
    });
    assert!(fatal.await.unwrap_err().is_fatal());
    assert_eq!(calls, 1);
    let error = outlast::retry(Retry::constant().initial("0s").attempts(3), || {
        calls += 1;
        let text = calls.to_string() + "x";
        async move { text.parse::<u32>() }
    });
    let error = Error::from(error.await.unwrap_err());
    assert_eq!((error.is_exhausted(), error.attempts(), calls), (true, 3, 4));
}
