//! Starts: keys and their windows, chosen ids, delays, deadlines, and many at once.

use std::collections::BTreeSet;

use outlast::core::limits::{BATCH_STARTS_MAX, DEADLINE_GRACE};
use outlast::prelude::*;
use outlast::{ErrorKind, RunQuery, Status, Timestamp};

use super::faulty_world::Call;
use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    tags_headers_and_the_deadline_belong_to_the_run,
    choices_that_make_no_sense_are_errors_at_the_await,
    a_delayed_run_begins_at_its_moment,
    a_delay_that_is_over_is_none,
    a_delayed_run_keeps_its_messages_until_it_begins,
    a_delayed_run_can_be_cancelled_before_it_begins,
    a_key_counts_for_its_window,
    a_key_without_a_window_counts_for_ever,
    a_key_names_the_same_run_for_another_version,
    a_chosen_id_is_the_runs_id,
    a_chosen_id_is_not_another_runs,
    a_chosen_id_may_be_repeated_while_a_worker_has_the_run,
    a_deadline_cancels_a_run_that_waits,
    a_deadline_that_passed_without_a_worker_counts,
    a_run_past_its_deadline_is_not_begun,
    a_run_that_ends_in_time_is_not_affected_by_its_deadline,
    an_attempt_is_asked_to_stop_at_the_deadline_and_awaited,
    a_retry_past_the_deadline_is_not_made,
    a_run_past_its_deadline_without_code_is_ended,
    many_starts_keep_their_order,
    an_invalid_start_does_not_affect_others_of_its_batch,
    a_key_twice_among_many_is_one_run,
    many_runs_may_begin_later_and_have_deadlines,
    a_lost_answer_to_many_starts_doubles_nothing,
    a_world_that_does_not_answer_fails_all_that_are_left,
}

mod threads {
    use super::*;
    on_every_world! { threads: many_tasks_with_one_key_start_one_run }
    pub(super) use super::many_tasks_with_one_key_start_one_run;
}

#[workflow]
async fn echo(ctx: Context, number: u32) -> Result<u32, Error> {
    ctx.note("echo").await?;
    Ok(number)
}

#[workflow]
async fn other(_ctx: Context, number: u32) -> Result<u32, Error> {
    Ok(number)
}

#[workflow]
async fn patient(ctx: Context) -> Result<u32, Error> {
    match ctx.hook::<u32>("x").await {
        Err(error) if error.is_cancelled() => {
            ctx.shielded().note("cleaned up").await?;
            Err(error)
        }
        taken => taken,
    }
}

async fn tags_headers_and_the_deadline_belong_to_the_run(engine: TestEngine) {
    #[workflow]
    async fn about(ctx: Context) -> Result<(String, String, bool), Error> {
        let (tags, headers) = (format!("{:?}", ctx.tags()), format!("{:?}", ctx.headers()));
        Ok((tags, headers, ctx.deadline().is_some()))
    }
    let _worker = engine.worker(about).await;
    let run = engine.client.start(about, ()).tag("customer", "ada").tag("tier", "1").header("who", "me");
    let run = run.deadline("2h").await.unwrap();
    let (tags, headers, has_deadline) = run.output().await.unwrap();
    assert_eq!(tags, r#"{"customer": "ada", "tier": "1"}"#);
    assert_eq!((headers.as_str(), has_deadline), (r#"{"who": "me"}"#, true));

    let late = engine.client.start(about, ()).tag("tier", "2").after("1h").deadline("2h").await.unwrap();
    let view = engine.view(late.id()).await;
    assert_eq!(view.tags, [("tier".to_owned(), "2".to_owned())].into());
    assert_eq!(view.deadline, Some(engine.time_after_begin("2h")), "it counts from now, not from the begin");
}

async fn choices_that_make_no_sense_are_errors_at_the_await(engine: TestEngine) {
    let begin = engine.time_after_begin("0s");
    let start = || engine.client.start(echo, 1);
    let invalid = [
        (start().after("soon"), "`soon` is not a duration"),
        (start().deadline("-1s"), "`-1s` is not a duration"),
        (start().key("k").key_window("a day").after("never"), "`a day` is not a duration"),
        (start().key_window("24h"), "a key window needs a key"),
        (start().deadline("0s"), "is not after now"),
        (start().deadline_at(Timestamp::from_micros(1)), "is not after now"),
        (start().deadline_at(begin), "is not after now"),
        (start().after("2h").deadline("1h"), "set a later one"),
        (start().after("1h").deadline("1h"), "set a later one"),
        (start().key(""), "the start key is empty"),
    ];
    for (call, expected) in invalid {
        let error = call.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut crowded = start();
    for number in 0..33 {
        crowded = crowded.tag(format!("tag {number}"), "");
    }
    let limits = [
        (start().key("k".repeat(257)), "the start key has 257 bytes"),
        (start().tag("", "nameless"), "a tag needs a name"),
        (start().tag("t", "v".repeat(257)), "has 257 bytes"),
        (crowded, "33 tags"),
        (start().header("h", "v".repeat(20_000)), "the headers have 20001 bytes together, the limit is"),
    ];
    for (call, expected) in limits {
        let error = call.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(engine.client.list().await.unwrap().runs.is_empty(), "nothing was started");
}

async fn a_delayed_run_begins_at_its_moment(engine: TestEngine) {
    let _worker = engine.worker(echo).await;
    let after = engine.client.start(echo, 1).after("1h").await.unwrap();
    let at = engine.client.start(echo, 2).at(engine.time_after_begin("2h")).await.unwrap();
    engine.run_to("59m").await;
    assert_eq!(engine.status(after.id()).await, Status::Pending);
    assert_eq!(engine.view(after.id()).await.wake_at, Some(engine.time_after_begin("1h")));
    engine.clock.run_until_idle().await;
    assert_eq!((after.output().await.unwrap(), at.output().await.unwrap()), (1, 2));
    assert_eq!(engine.steps.times("echo"), ["1h", "2h"]);
    let view = engine.view(at.id()).await;
    assert_eq!(
        (view.created_at, view.ended_at),
        (engine.time_after_begin("0s"), Some(engine.time_after_begin("2h")))
    );
}

async fn a_delay_that_is_over_is_none(engine: TestEngine) {
    let _worker = engine.worker(echo).await;
    engine.settle().await;
    let at = engine.client.start(echo, 1).at(Timestamp::from_micros(0)).await.unwrap();
    let after = engine.client.start(echo, 2).after("0s").await.unwrap();
    assert_eq!((at.output().await.unwrap(), after.output().await.unwrap()), (1, 2));
    assert_eq!(engine.faults.count(Call::Start), 0, "they were handed to the worker");
}

async fn a_delayed_run_keeps_its_messages_until_it_begins(engine: TestEngine) {
    let _worker = engine.worker(patient).await;
    let run = engine.client.start(patient, ()).after("1h").await.unwrap();
    run.send("x", &7).await.unwrap();
    run.wake().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Pending);
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 7);
    assert_eq!(engine.view(run.id()).await.ended_at, Some(engine.time_after_begin("1h")));
}

async fn a_delayed_run_can_be_cancelled_before_it_begins(engine: TestEngine) {
    let cancelled = engine.client.start(patient, ()).after("1h").await.unwrap();
    let terminated = engine.client.start(patient, ()).after("1h").await.unwrap();
    cancelled.cancel("changed my mind").await.unwrap();
    terminated.terminate("changed my mind").await.unwrap();
    assert_eq!(engine.status(cancelled.id()).await, Status::Cancelled);
    assert_eq!(engine.status(terminated.id()).await, Status::Cancelled);
    let _worker = engine.worker(patient).await;
    let cancelled = engine.client.start(patient, ()).after("1h").await.unwrap();
    cancelled.cancel("changed my mind").await.unwrap();
    engine.settle().await;
    assert_eq!(engine.view(cancelled.id()).await.ended_at, Some(engine.time_after_begin("0s")));
}

async fn a_key_counts_for_its_window(engine: TestEngine) {
    let start = |number| engine.client.start(echo, number).key("daily").key_window("24h");
    let first = start(1).await.unwrap();
    engine.run_to("23h").await;
    let same = start(1).await.unwrap();
    assert_eq!((same.id(), same.is_new()), (first.id(), false));
    assert_eq!(start(2).await.unwrap_err().kind(), ErrorKind::Conflict);
    engine.run_to("24h").await;
    let next = start(2).await.unwrap();
    assert!(next.is_new() && next.id() != first.id());
    assert_eq!(engine.client.find::<u32>("daily").await.unwrap().unwrap().id(), next.id());
    assert_eq!(engine.view(first.id()).await.key, None, "the key names the new run only");
    // The window begins with the start of the key's current run.
    engine.run_to("47h").await;
    assert_eq!(start(2).await.unwrap().id(), next.id());
    let _worker = engine.worker(echo).await;
    assert_eq!((first.output().await.unwrap(), next.output().await.unwrap()), (1, 2));
    let handed_over = start(2).await.unwrap();
    assert_eq!(handed_over.id(), next.id(), "a worker of this process minds the window, too");
    engine.advance("1h").await;
    assert!(start(3).await.unwrap().is_new());
}

async fn a_key_without_a_window_counts_for_ever(engine: TestEngine) {
    let first = engine.client.start(echo, 1).key("once").key_window("1h").await.unwrap();
    engine.run_to("8760h").await;
    let later = engine.client.start(echo, 1).key("once").await.unwrap();
    assert_eq!((later.id(), later.is_new()), (first.id(), false));
}

async fn a_key_names_the_same_run_for_another_version(engine: TestEngine) {
    const V1: Workflow<u32, u32> = Workflow::new("priced");
    const V2: Workflow<u32, u32> = Workflow::new("priced").at_version(2);
    let first = engine.client.start(V1, 1).key("order-1").await.unwrap();
    let second = engine.client.start(V2, 1).key("order-1").await.unwrap();
    assert_eq!((second.id(), second.is_new()), (first.id(), false));
    assert_eq!(engine.view(first.id()).await.version, 1);
    let conflict = engine.client.start(V2, 2).key("order-1").await.unwrap_err();
    assert!(conflict.is_conflict() && conflict.to_string().contains("another input"), "{conflict}");
    let conflict = engine.client.start(other, 1).key("order-1").await.unwrap_err();
    assert!(conflict.is_conflict() && conflict.to_string().contains("`priced`, not `other`"), "{conflict}");
}

async fn many_tasks_with_one_key_start_one_run(engine: TestEngine) {
    for round in 0..2 {
        // First without a worker; then a local worker takes starts.
        let _worker = if round == 0 { None } else { Some(engine.worker(echo).await) };
        let key = format!("round-{round}");
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let (client, key) = (engine.client.clone(), key.clone());
                tokio::spawn(async move { client.start(echo, 7).key(key).await.unwrap() })
            })
            .collect();
        let mut started = Vec::new();
        for task in tasks {
            started.push(task.await.unwrap());
        }
        let ids: BTreeSet<_> = started.iter().map(RunHandle::id).collect();
        assert_eq!(ids.len(), 1);
        assert_eq!(started.iter().filter(|run| run.is_new()).count(), 1);
    }
    assert_eq!(engine.client.list().await.unwrap().runs.len(), 2);
}

async fn a_chosen_id_is_the_runs_id(engine: TestEngine) {
    let id = engine.client.new_id();
    let first = engine.client.start(echo, 7).id(id).await.unwrap();
    assert_eq!((first.id(), first.is_new()), (id, true));
    let second = engine.client.start(echo, 7).id(id).await.unwrap();
    assert_eq!((second.id(), second.is_new()), (id, false));
    let lost = engine.client.new_id();
    engine.faults.lose_answer(Call::Start, 0);
    assert!(engine.client.start(echo, 7).id(lost).await.unwrap().is_new(), "a repeat of the same call");
    let _worker = engine.worker(echo).await;
    assert_eq!(first.output().await.unwrap(), 7);
    assert!(!engine.client.start(echo, 7).id(id).await.unwrap().is_new());
    assert_eq!(engine.client.list().await.unwrap().runs.len(), 2);
}

async fn a_chosen_id_is_not_another_runs(engine: TestEngine) {
    let run = engine.client.start(echo, 7).await.unwrap();
    for error in [
        engine.client.start(echo, 8).id(run.id()).await.unwrap_err(),
        engine.client.start(other, 7).id(run.id()).await.unwrap_err(),
    ] {
        assert!(error.is_conflict() && error.to_string().contains("choose another id"), "{error}");
    }
    let keyed = engine.client.start(echo, 1).key("k").await.unwrap();
    let same = engine.client.start(echo, 1).key("k").id(engine.client.new_id()).await.unwrap();
    assert_eq!((same.id(), same.is_new()), (keyed.id(), false), "the key was there first");
}

async fn a_chosen_id_may_be_repeated_while_a_worker_has_the_run(engine: TestEngine) {
    #[workflow]
    async fn slow(ctx: Context) -> Result<String, Error> {
        ctx.blocked("gate").await
    }
    let _worker = engine.worker(slow).await;
    let id = engine.client.new_id();
    let run = engine.client.start(slow, ()).id(id).await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    for _ in 0..3 {
        assert!(!engine.client.start(slow, ()).id(id).await.unwrap().is_new());
    }
    engine.steps.open("gate");
    assert_eq!(run.output().await.unwrap(), "gate");
    assert_eq!(engine.steps.count("began gate"), 1);
}

async fn a_deadline_cancels_a_run_that_waits(engine: TestEngine) {
    let _worker = engine.worker(patient).await;
    let run = engine.client.start(patient, ()).deadline("1h").await.unwrap();
    engine.run_to("59m").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.clock.run_until_idle().await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.to_string().contains("its deadline"), "{error}");
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.ended_at), (Status::Cancelled, Some(engine.time_after_begin("1h"))));
    assert_eq!((view.deadline, engine.steps.count("cleaned up")), (None, 1), "it does not count any more");
}

async fn a_deadline_that_passed_without_a_worker_counts(engine: TestEngine) {
    let worker = engine.worker(patient).await;
    let run = engine.client.start(patient, ()).deadline("1h").await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.run_to("90m").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    // An answer after the deadline has no effect.
    run.send("x", &7).await.unwrap();
    let _worker = engine.worker(patient).await;
    assert!(run.output().await.unwrap_err().is_cancelled());
    assert_eq!(engine.steps.count("cleaned up"), 1);

    let saved = engine.client.start(patient, ()).deadline("1h").await.unwrap();
    engine.settle().await;
    saved.send("x", &7).await.unwrap();
    assert_eq!(saved.output().await.unwrap(), 7);
}

async fn a_run_past_its_deadline_is_not_begun(engine: TestEngine) {
    let run = engine.client.start(echo, 1).deadline("1h").await.unwrap();
    engine.run_to("2h").await;
    let _worker = engine.worker(echo).await;
    assert!(run.output().await.unwrap_err().is_cancelled());
    assert_eq!(engine.steps.logged(), Vec::<String>::new());
    let history = engine.history(run.id()).await;
    assert!(history.starts_with("cancel_requested its deadline"), "{history}");
}

async fn a_run_that_ends_in_time_is_not_affected_by_its_deadline(engine: TestEngine) {
    let _worker = engine.worker(echo).await;
    let run = engine.client.start(echo, 7).deadline("1h").await.unwrap();
    assert_eq!(run.output().await.unwrap(), 7);
    engine.run_to("2h").await;
    engine
        .assert_history(run.id(), "0 step_started note\n 0 step_completed \"echo\"\n run_completed 7")
        .await;
}

async fn an_attempt_is_asked_to_stop_at_the_deadline_and_awaited(engine: TestEngine) {
    #[workflow]
    async fn working(ctx: Context) -> Result<String, Error> {
        let outcome = ctx.stoppable("work").await?;
        Ok(format!("{outcome}, cancelled: {}", ctx.is_cancelled()))
    }
    let _worker = engine.worker(working).await;
    let run = engine.client.start(working, ()).deadline("1h").await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    engine.clock.advance(std::time::Duration::from_secs(3_600));
    assert_eq!(run.output().await.unwrap(), "stopped, cancelled: true");
}

async fn a_retry_past_the_deadline_is_not_made(engine: TestEngine) {
    #[step(attempts = 5)]
    async fn busy(cx: StepContext<super::test_engine::StepState>) -> Result<(), StepError> {
        cx.state().log("attempt");
        Err(StepError::retry_after("busy", "2h"))
    }
    #[workflow]
    async fn insists(ctx: Context) -> Result<(), Error> {
        ctx.step(busy, ()).await
    }
    let _worker = engine.worker((insists, busy)).await;
    let run = engine.client.start(insists, ()).deadline("3h").await.unwrap();
    engine.clock.run_until_idle().await;
    let error = run.output().await.unwrap_err();
    assert_eq!((error.step(), error.attempts()), (Some("busy"), 2), "{error}");
    assert!(!error.is_cancelled() && !error.is_exhausted());
    let (next, deadline) = (engine.time_after_begin("4h"), engine.time_after_begin("3h"));
    let why =
        format!("(not attempted again: that would be at {next}, after the run's deadline of {deadline})");
    assert_eq!(error.message(), format!("busy {why}"));
    let sentence = engine.client.explain(run.id()).await.unwrap().sentence;
    assert!(sentence.contains(&why), "{sentence}");
    assert_eq!(engine.steps.times("attempt"), ["0s", "2h"], "the one at 4h would be too late");
    assert_eq!(
        engine.view(run.id()).await.ended_at,
        Some(engine.time_after_begin("2h")),
        "so it need not wait for it"
    );
}

async fn a_run_past_its_deadline_without_code_is_ended(engine: TestEngine) {
    let worker = engine.worker(patient).await;
    let begun = engine.client.start(patient, ()).deadline("1h").await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let fresh = engine.client.start(patient, ()).deadline("1h").await.unwrap();
    let _stranger = engine.worker(echo).await;
    engine.run_to("1h").await;
    assert_eq!(engine.status(begun.id()).await, Status::Waiting);
    engine.clock.run_until_idle().await;
    for run in [begun, fresh] {
        assert!(run.output().await.unwrap_err().is_cancelled());
        let ended_at = engine.view(run.id()).await.ended_at.unwrap();
        assert_eq!(ended_at, engine.time_after_begin("1h").plus(DEADLINE_GRACE));
    }
}

async fn many_starts_keep_their_order(engine: TestEngine) {
    let count = 2 * BATCH_STARTS_MAX as u32 + 100;
    let started = engine.client.start_many(echo, 0..count).tag("batch", "7").header("who", "me").await;
    assert_eq!(engine.faults.sizes(Call::Start), [BATCH_STARTS_MAX, BATCH_STARTS_MAX, 100]);
    assert_eq!(started.len(), count as usize);
    let runs: Vec<_> = started.into_iter().map(Result::unwrap).collect();
    assert!(runs.iter().all(RunHandle::is_new));
    let list = engine.client.list().oldest_first().tag("batch", "7").limit(5).await.unwrap();
    let ids: Vec<_> = runs.iter().map(RunHandle::id).collect();
    assert_eq!(list.runs.iter().map(|run| run.id).collect::<Vec<_>>(), ids[..5]);
    let _worker = engine.worker(echo).await;
    for place in [0, 999, 1_000, 2_099] {
        assert_eq!(runs[place].output().await.unwrap(), place as u32);
    }
    assert!(engine.client.start_many(echo, [] as [u32; 0]).await.is_empty());
}

async fn an_invalid_start_does_not_affect_others_of_its_batch(engine: TestEngine) {
    engine.client.start(echo, 100).key("taken").await.unwrap();
    let keys = ["a", "", "taken", "b", &"k".repeat(300), "c"];
    let call = engine.client.start_many(echo, 0..6).keys(|number| keys[*number as usize]);
    let kinds: Vec<_> =
        call.await.into_iter().map(|run| run.map(|_| ()).map_err(|error| error.kind())).collect();
    let (invalid, limit, conflict) = (ErrorKind::Invalid, ErrorKind::Limit, ErrorKind::Conflict);
    assert_eq!(kinds, [Ok(()), Err(invalid), Err(conflict), Ok(()), Err(limit), Ok(())]);
    assert_eq!(engine.client.list().await.unwrap().runs.len(), 4);

    #[workflow]
    async fn long(_ctx: Context, _text: String) -> Result<(), Error> {
        Ok(())
    }
    let inputs = ["short".to_owned(), "x".repeat(5_000_000), "short, too".to_owned()];
    let started = engine.client.start_many(long, &inputs).await;
    assert!(started[0].is_ok() && started[2].is_ok());
    assert_eq!(started[1].as_ref().unwrap_err().kind(), limit);
    const PICKY: Workflow<u32, u32> = Workflow::new("echo").check(|number| match number {
        0 => Err(Error::msg("not nothing")),
        _ => Ok(()),
    });
    let checked = engine.client.start_many(PICKY, [1, 0, 2]).await;
    assert!(checked[0].is_ok() && checked[2].is_ok());
    assert_eq!(checked[1].as_ref().unwrap_err().to_string(), "not nothing");
    let tagged = engine.client.start_many(echo, [1, 2]).tag("", "nameless").await;
    assert!(tagged.iter().all(|run| run.as_ref().is_err_and(|error| error.kind() == limit)));
}

async fn a_key_twice_among_many_is_one_run(engine: TestEngine) {
    let keys = |number: &u32| format!("key-{number}");
    let started = engine.client.start_many(echo, [1, 2, 1, 1]).keys(keys).await;
    let runs: Vec<_> = started.into_iter().map(Result::unwrap).collect();
    let new: Vec<_> = runs.iter().map(RunHandle::is_new).collect();
    assert_eq!(new, [true, true, false, false]);
    assert!(runs[2].id() == runs[0].id() && runs[3].id() == runs[0].id() && runs[1].id() != runs[0].id());
    let again = engine.client.start_many(echo, [2, 3]).keys(keys).await;
    let new: Vec<_> = again.into_iter().map(|run| run.unwrap().is_new()).collect();
    assert_eq!(new, [false, true]);
    // The same key for another workflow.
    let conflict = engine.client.start_many(echo, [8, 9]).keys(|_| "one").await;
    assert!(conflict[0].is_ok() && conflict[1].as_ref().is_err_and(Error::is_conflict));
}

async fn many_runs_may_begin_later_and_have_deadlines(engine: TestEngine) {
    let later = engine.client.start_many(echo, [1, 2]).after("1h").deadline("1d").await;
    let at = engine
        .client
        .start_many(echo, [3])
        .at(engine.time_after_begin("2h"))
        .deadline_at(engine.time_after_begin("3d"))
        .await;
    let due = [("1h", "1d"), ("1h", "1d"), ("2h", "3d")];
    let runs: Vec<_> = later.into_iter().chain(at).map(Result::unwrap).collect();
    for (run, (begin, deadline)) in runs.iter().zip(due) {
        let view = engine.view(run.id()).await;
        assert_eq!(
            (view.wake_at, view.deadline),
            (Some(engine.time_after_begin(begin)), Some(engine.time_after_begin(deadline)))
        );
    }
    let _worker = engine.worker(echo).await;
    engine.run_to("3h").await;
    assert_eq!(engine.steps.times("echo"), ["1h", "1h", "2h"]);

    for refused in [
        engine.client.start_many(echo, [1, 2]).after("soon").await,
        engine.client.start_many(echo, [1, 2]).deadline_at(engine.time_after_begin("1h")).await,
    ] {
        let is_invalid = |error: &Error| error.kind() == ErrorKind::Invalid;
        assert!(refused.len() == 2 && refused.iter().all(|run| run.as_ref().is_err_and(is_invalid)));
    }
}

async fn a_lost_answer_to_many_starts_doubles_nothing(engine: TestEngine) {
    engine.faults.lose_answer(Call::Start, 0);
    let started = engine.client.start_many(echo, 0..10).await;
    assert!(started.iter().all(|run| run.as_ref().is_ok_and(RunHandle::is_new)));
    let runs = engine.client.runs(RunQuery::default()).await.unwrap().runs;
    assert_eq!(runs.len(), 10);
}

async fn a_world_that_does_not_answer_fails_all_that_are_left(engine: TestEngine) {
    // The first batch is answered, the second is not.
    engine.faults.refuse(Call::Start, 1);
    let count = 3 * BATCH_STARTS_MAX;
    let started = engine.client.retry_unavailable("0s").start_many(echo, 0..count as u32).await;
    assert_eq!(started.len(), count);
    assert!(started[..BATCH_STARTS_MAX].iter().all(Result::is_ok));
    let is_unavailable = |error: &Error| error.kind() == ErrorKind::Unavailable;
    assert!(started[BATCH_STARTS_MAX..].iter().all(|run| run.as_ref().is_err_and(is_unavailable)));
    assert_eq!(engine.faults.count(Call::Start), 2, "the third batch was not tried");
}
