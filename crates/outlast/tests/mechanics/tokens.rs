//! Hooks that are open under a token.

use outlast::core::Wait;
use outlast::prelude::*;
use outlast::{ErrorKind, OpenHook, RunId, Status, TokenDelivery};

use super::test_engine::{StepCalls, TestEngine, on_every_world, pause_between_reads};

on_every_world! {
    of_two_runs_one_gets_a_token_and_the_other_learns_who_has_it,
    payloads_for_a_token_arrive_in_order_and_only_there,
    a_payload_for_a_token_survives_a_crash,
    a_closed_token_is_free,
    the_token_of_an_ended_run_is_closed_and_free,
    a_kept_token_stays_taken,
    a_generated_token_is_secret_and_stays_the_same,
    metadata_are_read_without_waking_the_run,
    a_run_takes_over_its_own_token_with_its_payloads,
    a_token_outlives_a_generation,
    a_closed_token_does_not_outlive_its_generation,
    a_terminated_run_frees_its_tokens,
    a_cancelled_run_frees_its_tokens,
    a_restarted_run_has_no_token,
    tokens_in_skipped_iterations_are_free,
    a_repeated_payload_is_delivered_once,
    an_invalid_token_is_an_error_of_the_operation,
    views_show_open_hooks_with_their_tokens,
    a_token_that_is_dropped_in_the_turn_of_its_request_is_free,
    a_payload_for_a_token_that_was_closed_before_it_was_read_is_discarded,
}

const REVIEW: Hook<u32> = Hook::new("review");

/// Opens a token, and takes this many payloads.
#[workflow]
async fn reviews(ctx: Context, (token, count): (String, u32)) -> Result<Vec<u32>, Error> {
    let open = ctx.open_hook(REVIEW).token(token).await?;
    take(&open, count).await
}

async fn take(open: &OpenHook<u32>, count: u32) -> Result<Vec<u32>, Error> {
    let mut taken = Vec::new();
    while taken.len() < count as usize {
        taken.push(open.next().timeout("1d").await?);
    }
    Ok(taken)
}

/// Waits until a run has taken a token.
async fn wait_for_token(engine: &TestEngine, token: &str, run: RunId) {
    while engine.client.token(token).await.unwrap().is_none_or(|view| view.run != run || !view.is_open) {
        engine.settle().await;
        pause_between_reads().await;
    }
}

async fn of_two_runs_one_gets_a_token_and_the_other_learns_who_has_it(engine: TestEngine) {
    let _worker = engine.worker(reviews).await;
    let input = ("order-42".to_owned(), 1);
    let runs = [
        engine.client.start(reviews, &input).await.unwrap(),
        engine.client.start(reviews, &input).await.unwrap(),
    ];
    engine.settle().await;
    let owner = loop {
        engine.settle().await;
        let statuses = [engine.status(runs[0].id()).await, engine.status(runs[1].id()).await];
        match statuses {
            [Status::Failed, Status::Waiting] => break 1,
            [Status::Waiting, Status::Failed] => break 0,
            [Status::Failed, Status::Failed] => panic!("nobody got the token"),
            _ => pause_between_reads().await,
        }
    };
    let error = runs[1 - owner].output().await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert_eq!(error.conflicting_run(), Some(runs[owner].id()));
    assert!(error.to_string().contains(&runs[owner].id().to_string()), "{error}");
    assert_eq!(engine.client.send_to_token("order-42", &7).await.unwrap(), TokenDelivery::Delivered);
    assert_eq!(runs[owner].output().await.unwrap(), [7]);
}

async fn payloads_for_a_token_arrive_in_order_and_only_there(engine: TestEngine) {
    let _worker = engine.worker(reviews).await;
    let a = engine.client.start(reviews, ("a".to_owned(), 3)).await.unwrap();
    let b = engine.client.start(reviews, ("b".to_owned(), 1)).await.unwrap();
    wait_for_token(&engine, "a", a.id()).await;
    wait_for_token(&engine, "b", b.id()).await;
    for (token, payload) in [("a", 1), ("b", 10), ("a", 2)] {
        assert_eq!(engine.client.send_to_token(token, &payload).await.unwrap(), TokenDelivery::Delivered);
    }
    // A payload that is sent by name goes to an open hook of that name, with or without a token.
    engine.send(a.id(), "review", 3).await;
    assert_eq!(a.output().await.unwrap(), [1, 2, 3]);
    assert_eq!(b.output().await.unwrap(), [10]);
    assert_eq!(engine.client.send_to_token("nobody", &1).await.unwrap(), TokenDelivery::Unknown);
}

async fn a_payload_for_a_token_survives_a_crash(engine: TestEngine) {
    let worker = engine.worker(reviews).await;
    let run = engine.client.start(reviews, ("order-42".to_owned(), 3)).await.unwrap();
    wait_for_token(&engine, "order-42", run.id()).await;
    engine.client.send_to_token("order-42", &1).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    engine.client.send_to_token("order-42", &2).await.unwrap();
    let _worker = engine.worker(reviews).await;
    engine.client.send_to_token("order-42", &3).await.unwrap();
    assert_eq!(run.output().await.unwrap(), [1, 2, 3]);
}

/// Opens a token, closes it, and waits for a payload by name.
#[workflow]
async fn closes(ctx: Context, is_dropped: bool) -> Result<u32, Error> {
    let open = ctx.open_hook(REVIEW).token("order-42").await?;
    if is_dropped {
        drop(open);
    } else {
        open.close();
    }
    ctx.hook(REVIEW).await
}

async fn a_closed_token_is_free(engine: TestEngine) {
    let _worker = engine.worker((closes, reviews)).await;
    for is_dropped in [true, false] {
        let run = engine.client.start(closes, is_dropped).await.unwrap();
        engine.wait_for_status(run.id(), Status::Waiting).await;
        engine.settle().await;
        assert_eq!(engine.client.token("order-42").await.unwrap(), None);
        assert_eq!(engine.client.send_to_token("order-42", &1).await.unwrap(), TokenDelivery::Unknown);
        let other = engine.client.start(reviews, ("order-42".to_owned(), 1)).await.unwrap();
        wait_for_token(&engine, "order-42", other.id()).await;
        engine.client.send_to_token("order-42", &2).await.unwrap();
        assert_eq!(other.output().await.unwrap(), [2]);
        engine.send(run.id(), "review", 3).await;
        assert_eq!(run.output().await.unwrap(), 3);
    }
}

async fn the_token_of_an_ended_run_is_closed_and_free(engine: TestEngine) {
    let _worker = engine.worker(reviews).await;
    let run = engine.client.start(reviews, ("order-42".to_owned(), 0)).await.unwrap();
    assert_eq!(run.output().await.unwrap(), [0; 0]);
    assert_eq!(engine.client.send_to_token("order-42", &1).await.unwrap(), TokenDelivery::Closed);
    let other = engine.client.start(reviews, ("order-42".to_owned(), 1)).await.unwrap();
    wait_for_token(&engine, "order-42", other.id()).await;
    engine.client.send_to_token("order-42", &2).await.unwrap();
    assert_eq!(other.output().await.unwrap(), [2]);
}

#[workflow]
async fn keeps(ctx: Context) -> Result<(), Error> {
    ctx.open_hook(REVIEW).token("order-42").keep_for("1h").await?.close();
    ctx.sleep("10m").await
}

async fn a_kept_token_stays_taken(engine: TestEngine) {
    let _worker = engine.worker((keeps, reviews)).await;
    let run = engine.client.start(keeps, ()).await.unwrap();
    engine.run_to("30m").await;
    assert_eq!(engine.status(run.id()).await, Status::Completed);
    engine.client.delete(run.id()).await.unwrap();
    assert_eq!(engine.client.send_to_token("order-42", &1).await.unwrap(), TokenDelivery::Closed);
    let early = engine.client.start(reviews, ("order-42".to_owned(), 0)).await.unwrap();
    assert_eq!(early.output().await.unwrap_err().conflicting_run(), Some(run.id()));
    engine.run_to("61m").await;
    let late = engine.client.start(reviews, ("order-42".to_owned(), 0)).await.unwrap();
    assert_eq!(late.output().await.unwrap(), [0; 0]);
}

#[workflow]
async fn generated(ctx: Context) -> Result<(String, u32), Error> {
    let open = ctx.open_hook(REVIEW).await?;
    ctx.note(open.token()).await?;
    let payload = open.next().await?;
    Ok((open.token().to_owned(), payload))
}

async fn a_generated_token_is_secret_and_stays_the_same(engine: TestEngine) {
    let worker = engine.worker(generated).await;
    let runs = [
        engine.client.start(generated, ()).await.unwrap(),
        engine.client.start(generated, ()).await.unwrap(),
    ];
    for run in &runs {
        engine.wait_for_status(run.id(), Status::Waiting).await;
    }
    let tokens = engine.steps.logged();
    assert_eq!((tokens.len(), tokens[0].len(), tokens[1].len()), (2, 68, 68));
    assert_ne!(tokens[0], tokens[1]);
    engine.crash(worker);
    let _worker = engine.worker(generated).await;
    for run in runs {
        let mut own = None;
        for token in &tokens {
            if engine.client.token(token).await.unwrap().is_some_and(|view| view.run == run.id()) {
                own = Some(token.clone());
            }
        }
        let own = own.unwrap();
        engine.client.send_to_token(own.clone(), &7).await.unwrap();
        assert_eq!(run.output().await.unwrap(), (own, 7));
    }
}

#[workflow]
async fn describes(ctx: Context) -> Result<u32, Error> {
    let open = ctx.open_hook(REVIEW).token("order-42").metadata(&("Zoë", 42)).await?;
    open.next().await
}

async fn metadata_are_read_without_waking_the_run(engine: TestEngine) {
    let _worker = engine.worker(describes).await;
    let run = engine.client.start(describes, ()).await.unwrap();
    wait_for_token(&engine, "order-42", run.id()).await;
    engine.wait_for_status(run.id(), Status::Waiting).await;
    let before = engine.turns(run.id()).await.len();
    let view = engine.client.token("order-42").await.unwrap().unwrap();
    assert_eq!((view.run, &*view.hook, view.is_open), (run.id(), "review", true));
    assert_eq!(view.metadata.unwrap().decode::<(String, u32)>().unwrap(), ("Zoë".to_owned(), 42));
    assert_eq!(engine.turns(run.id()).await.len(), before);
}

/// Opens one token twice: the second handle takes it over.
#[workflow]
async fn opens_twice(ctx: Context) -> Result<(u32, u32), Error> {
    let first = ctx.open_hook(REVIEW).token("order-42").await?;
    ctx.sleep("1h").await?;
    let second = ctx.open_hook(REVIEW).token("order-42").await?;
    drop(first);
    Ok((second.next().await?, second.next().await?))
}

async fn a_run_takes_over_its_own_token_with_its_payloads(engine: TestEngine) {
    let _worker = engine.worker(opens_twice).await;
    let run = engine.client.start(opens_twice, ()).await.unwrap();
    wait_for_token(&engine, "order-42", run.id()).await;
    engine.client.send_to_token("order-42", &1).await.unwrap();
    engine.run_to("2h").await;
    assert_eq!(engine.client.send_to_token("order-42", &2).await.unwrap(), TokenDelivery::Delivered);
    assert_eq!(run.output().await.unwrap(), (1, 2));
}

/// Opens a token in each of two generations.
#[workflow]
async fn generations(ctx: Context, is_closed: bool) -> Result<u32, Error> {
    if ctx.generation() > 1 {
        ctx.sleep("1h").await?;
        let open = ctx.open_hook(REVIEW).token("order-42").await?;
        return open.next().await;
    }
    let open = ctx.open_hook(REVIEW).token("order-42").await?;
    ctx.sleep("1h").await?;
    if is_closed {
        open.close();
    }
    ctx.continue_as(&is_closed)
}

async fn a_token_outlives_a_generation(engine: TestEngine) {
    let worker = engine.worker((generations, reviews)).await;
    let run = engine.client.start(generations, false).await.unwrap();
    wait_for_token(&engine, "order-42", run.id()).await;
    engine.client.send_to_token("order-42", &7).await.unwrap();
    engine.run_to("90m").await;
    let other = engine.client.start(reviews, ("order-42".to_owned(), 0)).await.unwrap();
    assert_eq!(other.output().await.unwrap_err().conflicting_run(), Some(run.id()));
    engine.crash(worker);
    let _worker = engine.worker((generations, reviews)).await;
    engine.run_to("3h").await;
    assert_eq!(run.output().await.unwrap(), 7, "sent to the first generation");
}

async fn a_closed_token_does_not_outlive_its_generation(engine: TestEngine) {
    let _worker = engine.worker((generations, reviews)).await;
    let run = engine.client.start(generations, true).await.unwrap();
    engine.run_to("90m").await;
    let other = engine.client.start(reviews, ("order-42".to_owned(), 0)).await.unwrap();
    assert_eq!(other.output().await.unwrap(), [0; 0]);
    engine.client.cancel(run.id(), "enough").await.unwrap();
    assert_eq!(run.output().await.unwrap_err().kind(), ErrorKind::Cancelled);
}

async fn a_terminated_run_frees_its_tokens(engine: TestEngine) {
    let _worker = engine.worker(reviews).await;
    let run = engine.client.start(reviews, ("order-42".to_owned(), 1)).await.unwrap();
    wait_for_token(&engine, "order-42", run.id()).await;
    engine.client.terminate(run.id(), "enough").await.unwrap();
    engine.wait_for_status(run.id(), Status::Cancelled).await;
    assert_eq!(engine.client.send_to_token("order-42", &1).await.unwrap(), TokenDelivery::Closed);
    let other = engine.client.start(reviews, ("order-42".to_owned(), 0)).await.unwrap();
    assert_eq!(other.output().await.unwrap(), [0; 0]);
}

async fn a_cancelled_run_frees_its_tokens(engine: TestEngine) {
    let _worker = engine.worker(reviews).await;
    let run = engine.client.start(reviews, ("order-42".to_owned(), 1)).await.unwrap();
    wait_for_token(&engine, "order-42", run.id()).await;
    engine.client.cancel(run.id(), "enough").await.unwrap();
    engine.wait_for_status(run.id(), Status::Cancelled).await;
    let other = engine.client.start(reviews, ("order-42".to_owned(), 0)).await.unwrap();
    assert_eq!(other.output().await.unwrap(), [0; 0]);
}

async fn a_restarted_run_has_no_token(engine: TestEngine) {
    let _worker = engine.worker(reviews).await;
    let run = engine.client.start(reviews, ("order-42".to_owned(), 1)).await.unwrap();
    wait_for_token(&engine, "order-42", run.id()).await;
    let again = engine.client.restart::<Vec<u32>>(run.id()).await.unwrap();
    assert_eq!(again.output().await.unwrap_err().conflicting_run(), Some(run.id()));
}

#[workflow]
async fn iterates(ctx: Context) -> Result<u32, Error> {
    let outer = ctx.open_hook(REVIEW).token("outer").await?;
    let outer = &outer;
    ctx.iterate("reviews", 0_u32, async |ctx: Context, sum: u32| {
        let inner = ctx.open_hook(REVIEW).token(format!("inner-{sum}")).await?;
        let sum = sum + inner.next().await? + outer.next().await?;
        Ok::<_, Error>(if sum < 6 { Next::Again(sum) } else { Next::Done(sum) })
    })
    .await
}

async fn tokens_in_skipped_iterations_are_free(engine: TestEngine) {
    let worker = engine.worker((iterates, reviews)).await;
    let run = engine.client.start(iterates, ()).await.unwrap();
    for sum in [0, 2] {
        let inner = format!("inner-{sum}");
        wait_for_token(&engine, &inner, run.id()).await;
        engine.client.send_to_token(inner, &1).await.unwrap();
        engine.client.send_to_token("outer", &1).await.unwrap();
    }
    wait_for_token(&engine, "inner-4", run.id()).await;
    engine.settle().await;
    assert_eq!(engine.client.token("inner-0").await.unwrap(), None);
    engine.crash(worker);
    let _worker = engine.worker((iterates, reviews)).await;
    engine.client.send_to_token("inner-4", &1).await.unwrap();
    engine.client.send_to_token("outer", &1).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 6);
}

async fn a_repeated_payload_is_delivered_once(engine: TestEngine) {
    let _worker = engine.worker(reviews).await;
    let run = engine.client.start(reviews, ("order-42".to_owned(), 2)).await.unwrap();
    wait_for_token(&engine, "order-42", run.id()).await;
    let send = |payload: u32, key: &'static str| engine.client.send_to_token("order-42", &payload).key(key);
    assert_eq!(send(1, "a").await.unwrap(), TokenDelivery::Delivered);
    assert_eq!(send(9, "a").await.unwrap(), TokenDelivery::Duplicate);
    assert_eq!(send(2, "b").await.unwrap(), TokenDelivery::Delivered);
    assert_eq!(run.output().await.unwrap(), [1, 2]);
    assert_eq!(send(2, "b").await.unwrap(), TokenDelivery::Duplicate, "also after the end");
    assert_eq!(send(3, "c").await.unwrap(), TokenDelivery::Closed);
}

#[workflow]
async fn opens_invalid(ctx: Context) -> Result<Vec<String>, Error> {
    let empty = ctx.open_hook(REVIEW).token("").await.map(drop);
    let long = ctx.open_hook(REVIEW).token("x".repeat(257)).await.map(drop);
    let large = ctx.open_hook(REVIEW).token("a").metadata(&"x".repeat(5_000)).await.map(drop);
    let never = ctx.open_hook(REVIEW).token("b").keep_for("soon").await.map(drop);
    let errors = [empty, long, large, never].map(|result| format!("{:?}", result.unwrap_err().kind()));
    Ok(errors.into())
}

async fn an_invalid_token_is_an_error_of_the_operation(engine: TestEngine) {
    let _worker = engine.worker(opens_invalid).await;
    let run = engine.client.start(opens_invalid, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), ["Invalid", "Limit", "Limit", "Invalid"]);
}

async fn views_show_open_hooks_with_their_tokens(engine: TestEngine) {
    let _worker = engine.worker(reviews).await;
    let run = engine.client.start(reviews, ("order-42".to_owned(), 1)).await.unwrap();
    wait_for_token(&engine, "order-42", run.id()).await;
    engine.wait_for_status(run.id(), Status::Waiting).await;
    let operations = engine.client.operations(run.id()).await.unwrap();
    let shown: Vec<_> = operations
        .iter()
        .map(|operation| {
            (operation.kind.as_str(), &*operation.name, operation.token.as_deref(), operation.is_open())
        })
        .collect();
    let token = Some("order-42");
    assert_eq!(shown, [("open_hook", "review", token, true), ("hook", "review", token, true)]);
    let explanation = engine.client.explain(run.id()).await.unwrap().sentence;
    assert!(explanation.contains("hook `review`") && explanation.contains("with a token"), "{explanation}");
    assert!(!explanation.contains("order-42"), "the token is a secret: {explanation}");
    let waits = engine.view(run.id()).await.waits;
    assert!(
        matches!(&waits[..], [Wait::Hook { token: Some(token), .. }] if token == "order-42"),
        "{waits:?}"
    );
}

async fn a_token_that_is_dropped_in_the_turn_of_its_request_is_free(engine: TestEngine) {
    #[workflow]
    async fn hesitant(ctx: Context) -> Result<u32, Error> {
        ctx.hook::<u32>("first").await?;
        let (opening, second) = (ctx.open_hook::<u32>("review").token("order-7"), ctx.hook::<u32>("second"));
        select! {
            open = opening => drop(open),
            _ = second => (),
        }
        ctx.hook("end").await
    }
    let run = engine.client.start(hesitant, ()).await.unwrap();
    // Both are read in one turn.
    engine.send(run.id(), "first", 1).await;
    engine.send(run.id(), "second", 2).await;
    let _worker = engine.worker(hesitant).await;
    engine.wait_for_history(run.id(), |history| history.contains("token_closed")).await;
    engine.settle().await;
    assert_eq!(engine.client.token("order-7").await.unwrap(), None);
    engine.send(run.id(), "end", 3).await;
    assert_eq!(run.output().await.unwrap(), 3);
}

async fn a_payload_for_a_token_that_was_closed_before_it_was_read_is_discarded(engine: TestEngine) {
    #[workflow]
    async fn takes_one(ctx: Context) -> Result<u32, Error> {
        let open = ctx.open_hook(REVIEW).token("one").await?;
        let first = open.next().await?;
        drop(open);
        // A replay skips the first iteration.
        let looped = ctx.iterate("loop", 0u32, async |ctx: Context, done: u32| {
            ctx.note(&format!("round {done}")).await?;
            Ok(if done == 2 { Next::Done(done) } else { Next::Again(done + 1) })
        });
        looped.await?;
        ctx.hook::<u32>("end").await?;
        Ok(first)
    }
    let worker = engine.worker(takes_one).await;
    let run = engine.client.start(takes_one, ()).await.unwrap();
    wait_for_token(&engine, "one", run.id()).await;
    worker.stop().await.unwrap();
    engine.client.send_to_token("one", &1).await.unwrap();
    let ask = engine.client.ask_token::<u32, _>("one", &2).post().await.unwrap();
    let _worker = engine.worker(takes_one).await;
    let unanswered = ask.reply_within(std::time::Duration::from_secs(3_600)).await.unwrap_err();
    assert_eq!(unanswered.code(), Some("not_answered"));
    engine.steps.wait_for_log("round 2", 1).await;
    engine.wait_for_status(run.id(), Status::Waiting).await;
    assert_eq!(engine.view(run.id()).await.kept, 0);
    engine.send(run.id(), "end", 1).await;
    assert_eq!(run.output().await.unwrap(), 1);
}
