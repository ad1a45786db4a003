//! Reconcile: steps check whether an earlier attempt had its effect, before they are attempted again.

use std::time::Duration;

use outlast::ErrorKind;
use outlast::prelude::*;

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    the_effect_of_a_lost_worker_is_found_and_not_repeated,
    a_missing_effect_of_a_lost_worker_is_made,
    the_first_attempt_is_not_looked_up,
    the_effect_of_a_failed_attempt_is_found,
    an_error_of_the_look_is_one_of_the_attempt,
    the_timeout_is_for_the_look_and_the_attempt_together,
    a_run_that_was_handed_over_looks_once_per_attempt,
    several_parameters_and_no_context_do_as_well,
    a_blocking_step_looks_too,
    at_most_once_looks_instead_of_failing_as_unknown,
    at_most_once_is_attempted_when_it_did_not_happen,
    at_most_once_is_unknown_when_the_look_fails,
}

/// Charges, then never returns unless the gate of this name is open.
#[step(reconcile = look_up, attempts = 3, initial = "1s")]
async fn pay(cx: StepContext<StepState>, what: String) -> Result<String, StepError> {
    cx.state().log("paid");
    if what == "fails" && cx.attempt() == 1 {
        return Err(StepError::msg("no answer"));
    }
    cx.state().wait_for_gate(&what).await;
    Ok(what)
}

/// Finds the payment when the test has opened the gate.
async fn look_up(cx: StepContext<StepState>, what: String) -> Result<Option<String>, StepError> {
    cx.state().log(format!("looked, attempt {}", cx.attempt()));
    if what == "illegible" && cx.state().count(&format!("looked, attempt {}", cx.attempt())) == 1 {
        return Err(StepError::msg("the ledger is illegible"));
    }
    if what == "slow" {
        cx.state().wait_for_gate("the ledger's key").await;
    }
    let is_there = cx.state().logged().contains(&"entered".to_owned());
    Ok(is_there.then(|| format!("{what}, found")))
}

#[workflow]
async fn paying(ctx: Context, what: String) -> Result<String, Error> {
    ctx.step(pay, what).await
}

/// Runs `paying` on a worker that is lost while it pays.
async fn pay_and_crash(engine: &TestEngine, what: &str) -> RunHandle<String> {
    let worker = engine.worker((paying, pay)).await;
    let run = engine.client.start(paying, what.to_owned()).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    engine.crash(worker);
    run
}

async fn the_effect_of_a_lost_worker_is_found_and_not_repeated(engine: TestEngine) {
    let run = pay_and_crash(&engine, "a chair").await;
    engine.steps.log("entered");
    let _worker = engine.worker((paying, pay)).await;
    assert_eq!(run.output().await.unwrap(), "a chair, found");
    assert_eq!(engine.steps.logged(), ["paid", "entered", "looked, attempt 1"]);
    let history = engine.history(run.id()).await;
    assert_eq!(history.matches("step_completed").count(), 1, "{history}");
}

async fn a_missing_effect_of_a_lost_worker_is_made(engine: TestEngine) {
    let run = pay_and_crash(&engine, "a chair").await;
    engine.steps.open("a chair");
    let _worker = engine.worker((paying, pay)).await;
    assert_eq!(run.output().await.unwrap(), "a chair");
    assert_eq!(engine.steps.logged(), ["paid", "looked, attempt 1", "paid"]);
}

async fn the_first_attempt_is_not_looked_up(engine: TestEngine) {
    engine.steps.open("a chair");
    // Both a run that the local worker takes at its start, and a run that it claims.
    let claimed = engine.client.start(paying, "a chair".to_owned()).await.unwrap();
    let _worker = engine.worker((paying, pay)).await;
    claimed.output().await.unwrap();
    engine.client.start(paying, "a chair".to_owned()).await.unwrap().output().await.unwrap();
    assert_eq!(engine.steps.logged(), ["paid", "paid"]);
}

async fn the_effect_of_a_failed_attempt_is_found(engine: TestEngine) {
    let _worker = engine.worker((paying, pay)).await;
    let run = engine.client.start(paying, "fails".to_owned()).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    engine.steps.log("entered");
    engine.advance("1s").await;
    assert_eq!(run.output().await.unwrap(), "fails, found");
    assert_eq!(engine.steps.logged(), ["paid", "entered", "looked, attempt 2"]);
}

async fn an_error_of_the_look_is_one_of_the_attempt(engine: TestEngine) {
    let run = pay_and_crash(&engine, "illegible").await;
    engine.steps.log("entered");
    let _worker = engine.worker((paying, pay)).await;
    engine.settle().await;
    // Reconciling fails before attempts 1 and 2, and before attempt 3: no attempt is left.
    engine.advance("3s").await;
    let error = run.output().await.unwrap_err();
    assert_eq!((error.message(), error.attempts()), ("the ledger is illegible", 3));
    assert!(error.is_exhausted());
    assert_eq!(engine.steps.count("paid"), 1);
}

async fn the_timeout_is_for_the_look_and_the_attempt_together(engine: TestEngine) {
    #[workflow]
    async fn in_time(ctx: Context) -> Result<String, Error> {
        ctx.step(pay, "slow".to_owned()).attempts(2).timeout("10s").await
    }
    let worker = engine.worker((in_time, pay)).await;
    let run = engine.client.start(in_time, ()).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    engine.crash(worker);
    let _worker = engine.worker((in_time, pay)).await;
    engine.steps.wait_for_log("looked, attempt 1", 1).await;
    engine.clock.advance(Duration::from_secs(10)); // attempt 1 is over in its look
    engine.wait_for_history(run.id(), |history| history.contains("step_retried")).await;
    engine.steps.open("the ledger's key");
    engine.clock.advance(Duration::from_secs(1)); // attempt 2 looks, finds nothing, and begins to pay
    engine.steps.wait_for_log("paid", 2).await;
    engine.clock.advance(Duration::from_secs(10));
    let error = run.output().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(engine.steps.logged(), ["paid", "looked, attempt 1", "looked, attempt 2", "paid"]);
}

async fn a_run_that_was_handed_over_looks_once_per_attempt(engine: TestEngine) {
    #[workflow]
    async fn two(ctx: Context) -> Result<String, Error> {
        let (first, _) = try_join!(ctx.step(pay, "first".to_owned()), ctx.blocked("beside"))?;
        // Asked for by the worker that attempts it: nobody else can have.
        Ok(first + &ctx.step(pay, "second".to_owned()).await?)
    }
    let worker = engine.worker((two, pay)).await;
    let run = engine.client.start(two, ()).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    engine.steps.wait_for_log("began beside", 1).await;
    engine.crash(worker);
    for gate in ["first", "second", "beside"] {
        engine.steps.open(gate);
    }
    let _worker = engine.worker((two, pay)).await;
    assert_eq!(run.output().await.unwrap(), "firstsecond");
    assert_eq!((engine.steps.count("looked, attempt 1"), engine.steps.count("paid")), (1, 3));
}

async fn several_parameters_and_no_context_do_as_well(engine: TestEngine) {
    #[step(reconcile = sum_of, initial = "1s")]
    async fn sum(cx: StepContext, left: u32, right: u32) -> Result<u32, StepError> {
        Err(StepError::msg(format!("attempt {}: {left} and {right}", cx.attempt())))
    }
    async fn sum_of(left: u32, right: u32) -> Result<Option<u32>, std::num::ParseIntError> {
        Ok(Some(left + right))
    }
    #[step(reconcile = anything, initial = "1s")]
    async fn nothing() -> Result<u32, StepError> {
        Err(StepError::msg("not yet"))
    }
    async fn anything(cx: StepContext) -> Result<Option<u32>, StepError> {
        Ok(Some(cx.attempt()))
    }
    #[workflow]
    async fn summing(ctx: Context) -> Result<u32, Error> {
        let (sum, attempt) = try_join!(ctx.step(sum, (40, 2)), ctx.step(nothing, ()))?;
        Ok(sum * 100 + attempt)
    }
    let _worker = engine.worker((summing, sum, nothing)).await;
    let run = engine.client.start(summing, ()).await.unwrap();
    engine.settle().await;
    engine.advance("1s").await;
    assert_eq!(run.output().await.unwrap(), 4202);
}

async fn a_blocking_step_looks_too(engine: TestEngine) {
    #[step(blocking, reconcile = look_up, initial = "1s")]
    fn pay_slowly(cx: StepContext<StepState>, what: String) -> Result<String, StepError> {
        cx.state().log("paid");
        if cx.attempt() < 3 { Err(StepError::msg("no answer")) } else { Ok(what) }
    }
    #[workflow]
    async fn slowly(ctx: Context) -> Result<String, Error> {
        ctx.step(pay_slowly, "a table".to_owned()).await
    }
    let _worker = engine.worker((slowly, pay_slowly)).await;
    let run = engine.client.start(slowly, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.matches("step_retried").count() == 1).await;
    engine.clock.advance(Duration::from_secs(1));
    engine.wait_for_history(run.id(), |history| history.matches("step_retried").count() == 2).await;
    engine.steps.log("entered");
    engine.clock.advance(Duration::from_secs(2));
    assert_eq!(run.output().await.unwrap(), "a table, found");
    assert_eq!(engine.steps.logged(), ["paid", "looked, attempt 2", "paid", "entered", "looked, attempt 3"]);
}

#[step(at_most_once, reconcile = look_up)]
async fn pay_once(cx: StepContext<StepState>, what: String) -> Result<String, StepError> {
    cx.state().log("paid");
    cx.state().wait_for_gate(&what).await;
    Ok(what)
}

#[workflow]
async fn paying_once(ctx: Context, what: String) -> Result<String, Error> {
    ctx.step(pay_once, what).await
}

async fn pay_once_and_crash(engine: &TestEngine, what: &str) -> RunHandle<String> {
    let worker = engine.worker((paying_once, pay_once)).await;
    let run = engine.client.start(paying_once, what.to_owned()).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    engine.crash(worker);
    run
}

async fn at_most_once_looks_instead_of_failing_as_unknown(engine: TestEngine) {
    let run = pay_once_and_crash(&engine, "a chair").await;
    engine.steps.log("entered");
    let _worker = engine.worker((paying_once, pay_once)).await;
    assert_eq!(run.output().await.unwrap(), "a chair, found");
    assert_eq!(engine.steps.count("paid"), 1);
}

async fn at_most_once_is_attempted_when_it_did_not_happen(engine: TestEngine) {
    let run = pay_once_and_crash(&engine, "a chair").await;
    engine.steps.open("a chair");
    let _worker = engine.worker((paying_once, pay_once)).await;
    assert_eq!(run.output().await.unwrap(), "a chair");
    assert_eq!(engine.steps.logged(), ["paid", "looked, attempt 1", "paid"]);
}

async fn at_most_once_is_unknown_when_the_look_fails(engine: TestEngine) {
    let run = pay_once_and_crash(&engine, "illegible").await;
    let _worker = engine.worker((paying_once, pay_once)).await;
    let error = run.output().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(error.message().ends_with("the ledger is illegible"), "{error}");
    assert_eq!(engine.steps.count("paid"), 1);
}
