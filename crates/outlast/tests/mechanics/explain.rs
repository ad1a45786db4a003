//! Explanations: one case per reason for a run's state, as data and as a sentence.

use std::sync::Arc;

use outlast::core::limits::SESSION_DEFAULT;
use outlast::core::queue::default_queues;
use outlast::core::{ClaimRequest, Code, Join, SessionId, SuspectRoom};
use outlast::prelude::*;
use outlast::{Because, Explanation, RunId, Status, StuckReason, Timestamp, Wait};

use super::test_engine::{SESSION, StepCalls, TestEngine, on_every_world};

on_every_world! {
    an_ended_run_says_how_and_when,
    a_terminated_run_says_why,
    a_held_run_names_its_worker_and_its_attempts,
    a_held_run_counts_the_attempt_after_a_pause,
    a_waiting_run_lists_its_waits,
    a_wait_for_a_child_tells_its_status,
    a_pause_tells_how_the_last_attempt_failed,
    a_waiting_run_without_a_worker_says_so,
    a_delayed_run_says_until_when,
    a_ready_run_waits_for_a_worker_with_room,
    a_woken_run_is_ready,
    a_run_that_only_older_builds_could_continue_names_their_format,
    a_run_that_an_older_build_holds_says_what_it_refuses,
    a_run_without_code_is_explained_with_the_joined_workers,
    a_run_without_any_worker_says_which_code_it_needs,
    a_run_of_a_crashed_worker_says_that_it_is_gone,
    a_stuck_run_is_explained_with_the_remedy,
    a_stuck_run_tells_of_another_build,
    a_run_past_its_deadline_says_who_ends_it,
    a_cancelled_run_is_explained,
    a_run_with_a_pending_cancel_is_explained,
    a_payload_that_came_early_is_kept,
    an_explanation_is_json,
}

/// The session of a worker of an older build.
const OLDER: SessionId = SessionId::from_bits(1);

async fn explain(engine: &TestEngine, run: RunId) -> Explanation {
    let explanation = engine.client.explain(run).await.unwrap();
    assert_eq!((explanation.run, explanation.status), (run, engine.status(run).await));
    assert!(explanation.sentence.ends_with('.'), "{}", explanation.sentence);
    explanation
}

/// The sentence, without ids, processes and host names.
fn plain(explanation: &Explanation) -> String {
    let mut words = Vec::new();
    let mut hides_next = false;
    for word in explanation.sentence.split(' ') {
        let is_id = ["run_", "(run_", "wkr_"].iter().any(|prefix| word.starts_with(prefix));
        let is_hidden = std::mem::replace(&mut hides_next, word == "process" || word == "on");
        let end = if word.ends_with(',') { "," } else { "" };
        match word {
            "(process" => {
                hides_next = true;
                words.push(word.to_owned());
            }
            _ if is_id || is_hidden => words.push(format!("…{end}")),
            _ => words.push(word.to_owned()),
        }
    }
    words.join(" ")
}

#[workflow]
async fn nap(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await
}

#[workflow]
async fn fails(_ctx: Context) -> Result<(), Error> {
    Err(Error::msg("no truck"))
}

async fn an_ended_run_says_how_and_when(engine: TestEngine) {
    let _worker = engine.worker((nap, fails)).await;
    let (nap, fails) =
        (engine.client.start(nap, ()).await.unwrap(), engine.client.start(fails, ()).await.unwrap());
    engine.run_to("2h").await;
    let done = explain(&engine, nap.id()).await;
    let at = engine.time_after_begin("1h");
    assert_eq!(done.because, Because::Ended { status: Status::Completed, at, failure: None });
    assert_eq!(done.sentence, "It completed at 2030-01-01T01:00:00Z (1h ago).");
    let failed = nap_failure(&engine, fails.id()).await;
    assert_eq!(failed.sentence, "It failed at 2030-01-01T00:00:00Z (2h ago): no truck.");
}

async fn nap_failure(engine: &TestEngine, run: RunId) -> Explanation {
    let failed = explain(engine, run).await;
    let Because::Ended { status: Status::Failed, failure: Some(failure), .. } = &failed.because else {
        panic!("{failed:?}")
    };
    assert_eq!(failure.message, "no truck");
    failed
}

async fn a_terminated_run_says_why(engine: TestEngine) {
    let run = engine.client.start(nap, ()).await.unwrap();
    run.terminate("enough!").await.unwrap();
    let ended = run.explain().await.unwrap();
    assert_eq!(ended.sentence, "It was cancelled at 2030-01-01T00:00:00Z (0s ago): terminated: enough!");
}

#[workflow]
async fn works(ctx: Context) -> Result<(), Error> {
    try_join!(ctx.blocked("one"), ctx.blocked("two"))?;
    Ok(())
}

async fn a_held_run_names_its_worker_and_its_attempts(engine: TestEngine) {
    let _worker = engine.worker_of_build("7", works).await;
    let run = engine.client.start(works, ()).await.unwrap();
    engine.steps.wait_for_log("began one", 1).await;
    engine.steps.wait_for_log("began two", 1).await;
    let held = explain(&engine, run.id()).await;
    let Because::Held { worker, since, attempts } = &held.because else { panic!("{held:?}") };
    assert_eq!((worker.build.as_str(), worker.versions.as_slice()), ("7", [1].as_slice()));
    assert_eq!((*since, worker.pid), (engine.time_after_begin("0s"), std::process::id()));
    let attempts: Vec<_> = attempts.iter().map(|step| (step.op, step.step.as_str(), step.attempt)).collect();
    assert_eq!(attempts, [(0, "blocked", 1), (1, "blocked", 1)]);
    let moment = "since 2030-01-01T00:00:00Z";
    let expected = format!(
        "Worker … (process … on … build `7`) has held it {moment} (0s ago); in progress: step `blocked` (attempt 1, {moment}) \
         and step `blocked` (attempt 1, {moment})."
    );
    assert_eq!(plain(&held).replace("on …,", "on …"), expected);
    engine.steps.open("one");
    engine.steps.open("two");
    run.output().await.unwrap();
}

async fn a_held_run_counts_the_attempt_after_a_pause(engine: TestEngine) {
    #[step(attempts = 3, initial = "1m")]
    async fn second_blocks(cx: StepContext<super::test_engine::StepState>) -> Result<(), StepError> {
        if cx.attempt() == 1 {
            return Err(StepError::msg("busy"));
        }
        cx.state().log("second");
        cx.state().wait_for_gate("gate").await;
        Ok(())
    }
    #[workflow]
    async fn retries(ctx: Context) -> Result<(), Error> {
        ctx.step(second_blocks, ()).await
    }
    // A session that does not expire when the clock jumps.
    let builder = engine.builder().session_time(std::time::Duration::from_secs(3_600));
    let _worker = builder.register((retries, second_blocks)).start().await.unwrap();
    let run = engine.client.start(retries, ()).await.unwrap();
    engine.settle().await;
    engine.clock.advance(std::time::Duration::from_secs(60));
    engine.steps.wait_for_log("second", 1).await;
    let held = explain(&engine, run.id()).await;
    let Because::Held { attempts, .. } = &held.because else { panic!("{held:?}") };
    assert_eq!((attempts[0].attempt, attempts[0].since), (2, engine.time_after_begin("1m")));
    engine.steps.open("gate");
    run.output().await.unwrap();
}

#[workflow]
async fn waits(ctx: Context) -> Result<(), Error> {
    ctx.sleep("10m").await?;
    let (a, b) = (ctx.hook::<u32>("a").timeout("3d"), ctx.hook::<u32>("b"));
    try_join!(a, b, ctx.sleep("1d"))?;
    Ok(())
}

async fn a_waiting_run_lists_its_waits(engine: TestEngine) {
    let _worker = engine.worker(waits).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    engine.run_to("10m").await;
    engine
        .world
        .beat(engine.client.workers().await.unwrap()[0].session, &Default::default(), &[])
        .await
        .unwrap();
    let waits = explain(&engine, run.id()).await;
    let Because::Waits { waits: list, workers: 1, .. } = &waits.because else { panic!("{waits:?}") };
    assert_eq!(list.len(), 3);
    assert!(list.iter().all(|wait| wait.since == engine.time_after_begin("10m")));
    assert!(matches!(&list[0].wait, Wait::Hook { name, until: Some(_), .. } if name == "a"));
    assert_eq!(
        waits.sentence,
        "It waits for a payload for hook `a` (since 2030-01-01T00:10:00Z, until 2030-01-04T00:10:00Z), a \
         payload for hook `b` (since 2030-01-01T00:10:00Z) and a timer that is due at 2030-01-02T00:10:00Z \
         (in 1d)."
    );
}

async fn a_wait_for_a_child_tells_its_status(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<(), Error> {
        try_join!(ctx.child(nap, ()), ctx.child(fails, ()).timeout("2d"))?;
        Ok(())
    }
    let _worker = engine.worker((parent, nap)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    let waits = explain(&engine, run.id()).await;
    let Because::Waits { waits: list, .. } = &waits.because else { panic!("{waits:?}") };
    let children: Vec<_> = list.iter().map(|wait| wait.child).collect();
    assert_eq!(children, [Some(Status::Waiting), Some(Status::Pending)]);
    let moment = "since 2030-01-01T00:00:00Z";
    assert_eq!(
        plain(&waits),
        format!(
            "It waits for child `nap` …, waiting, {moment}) and child `fails` …, pending, {moment}, until \
             2030-01-03T00:00:00Z)."
        )
    );
}

async fn a_pause_tells_how_the_last_attempt_failed(engine: TestEngine) {
    #[workflow]
    async fn retries(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(2).await
    }
    let _worker = engine.worker(retries).await;
    let run = engine.client.start(retries, ()).await.unwrap();
    engine.settle().await;
    let waits = explain(&engine, run.id()).await;
    let Because::Waits { waits: list, .. } = &waits.because else { panic!("{waits:?}") };
    assert_eq!(list[0].failure.as_deref(), Some("failure 1"));
    assert_eq!(
        waits.sentence,
        "It waits for the next attempt at step `flaky`, due at 2030-01-01T00:00:01Z (in 1s); \
         the last attempt failed: failure 1."
    );
}

async fn a_waiting_run_without_a_worker_says_so(engine: TestEngine) {
    let worker = engine.worker(nap).await;
    let run = engine.client.start(nap, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let _stranger = engine.worker(fails).await;
    let waits = explain(&engine, run.id()).await;
    assert!(matches!(waits.because, Because::Waits { workers: 0, .. }));
    assert_eq!(
        waits.sentence,
        "It waits for a timer that is due at 2030-01-01T01:00:00Z (in 1h). No joined worker \
         has workflow `nap`, version 1: start one, otherwise the run does not continue."
    );
}

async fn a_delayed_run_says_until_when(engine: TestEngine) {
    let worker = engine.worker(nap).await;
    let run = engine.client.start(nap, ()).after("90m").await.unwrap();
    let delayed = explain(&engine, run.id()).await;
    assert_eq!(delayed.because, Because::Delayed { until: engine.time_after_begin("90m"), workers: 1 });
    assert_eq!(delayed.sentence, "It begins at 2030-01-01T01:30:00Z (in 1h30m).");
    worker.stop().await.unwrap();
    let delayed = explain(&engine, run.id()).await;
    assert!(delayed.sentence.contains("No joined worker has its code"), "{}", delayed.sentence);
}

async fn a_ready_run_waits_for_a_worker_with_room(engine: TestEngine) {
    let _worker = engine.builder().register((works, nap)).live_runs(1).start().await.unwrap();
    let busy = engine.client.start(works, ()).await.unwrap();
    engine.steps.wait_for_log("began two", 1).await;
    let run = engine.client.start(nap, ()).await.unwrap();
    let ready = explain(&engine, run.id()).await;
    let Because::Ready { since, workers, .. } = &ready.because else { panic!("{ready:?}") };
    assert_eq!((*since, workers.len(), workers[0].held), (engine.time_after_begin("0s"), 1, 1));
    let text = plain(&ready);
    assert!(text.starts_with(
        "It has been ready since 2030-01-01T00:00:00Z (0s ago), and waits for a worker with room:"
    ));
    assert!(text.ends_with("holds 1 run. If this lasts, start another worker."), "{text}");
    engine.steps.open("one");
    engine.steps.open("two");
    busy.output().await.unwrap();
}

/// A worker of an older build that serves `workflow`, without a process.
async fn join_older(engine: &TestEngine, workflow: &str) -> ClaimRequest {
    let code: Arc<[Code]> = [Code { workflow: workflow.into(), version: 1 }].into();
    let (queues, build) = (default_queues(), Arc::<str>::from("old"));
    let join = Join {
        session: OLDER,
        host: "old".into(),
        pid: 1,
        build: build.clone(),
        code: code.clone(),
        queues: queues.clone(),
        time: SESSION_DEFAULT,
        rules: 2,
        format: 2,
    };
    engine.world.join(join).await.unwrap();
    let (suspects, ends_overdue_from) = (SuspectRoom::Nothing, Timestamp::NEVER);
    ClaimRequest { limit: 1, code, queues, build, format: 2, suspects, ends_overdue_from }
}

async fn a_run_that_only_older_builds_could_continue_names_their_format(engine: TestEngine) {
    let worker = engine.worker(nap).await;
    let run = engine.client.start(nap, ()).await.unwrap();
    engine.settle().await;
    run.pause().await.unwrap();
    worker.stop().await.unwrap();
    let request = join_older(&engine, "nap").await;
    run.resume().await.unwrap();
    assert!(engine.world.claim(OLDER, request).await.unwrap().claimed.is_empty());
    let why = explain(&engine, run.id()).await;
    let Because::NotReadable { format: 3, workers } = &why.because else { panic!("{why:?}") };
    assert_eq!((workers.len(), workers[0].format), (1, 2));
    assert_eq!(
        why.sentence,
        "It is ready, but the joined workers that have its code are of older builds, and cannot read format 3, which it needs \
         (process 1 on old reads format 2). Deploy a build like the one that wrote it."
    );
    let _worker = engine.worker(nap).await;
    engine.settle().await;
    assert!(matches!(explain(&engine, run.id()).await.because, Because::Waits { .. }));
}

async fn a_run_that_an_older_build_holds_says_what_it_refuses(engine: TestEngine) {
    let request = join_older(&engine, "nap").await;
    let run = engine.client.start(nap, ()).await.unwrap();
    assert_eq!(engine.world.claim(OLDER, request).await.unwrap().claimed.len(), 1);
    let why = explain(&engine, run.id()).await;
    assert!(matches!(why.because, Because::Held { .. }), "{why:?}");
    assert!(
        why.sentence.contains("Its build is older: until a newer one holds the run, it cannot be paused"),
        "{why:?}"
    );
    assert!(run.pause().await.unwrap_err().is_conflict());
}

async fn a_woken_run_is_ready(engine: TestEngine) {
    let worker = engine.worker(nap).await;
    let (due, told) =
        (engine.client.start(nap, ()).await.unwrap(), engine.client.start(nap, ()).await.unwrap());
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.run_to("30m").await;
    told.wake().await.unwrap();
    assert!(matches!(explain(&engine, told.id()).await.because, Because::NoWorker { .. }));
    assert!(matches!(explain(&engine, due.id()).await.because, Because::Waits { workers: 0, .. }));
    engine.run_to("2h").await;
    assert!(matches!(explain(&engine, due.id()).await.because, Because::NoWorker { .. }));
}

async fn a_run_without_code_is_explained_with_the_joined_workers(engine: TestEngine) {
    #[workflow(name = "nap", version = 2)]
    async fn nap_2(_ctx: Context) -> Result<(), Error> {
        Ok(())
    }
    let _newer = engine.worker_of_build("8", nap_2).await;
    let _stranger = engine.worker_of_build("9", fails).await;
    let run = engine.client.start(nap, ()).await.unwrap();
    let lost = explain(&engine, run.id()).await;
    let Because::NoCode { workflow, version, workers, .. } = &lost.because else { panic!("{lost:?}") };
    assert_eq!((workflow.as_str(), *version), ("nap", 1));
    let joined: Vec<_> = workers.iter().map(|worker| (worker.build.as_str(), &*worker.versions)).collect();
    assert_eq!(joined, [("8", [2].as_slice()), ("9", [].as_slice())]);
    assert_eq!(
        plain(&lost),
        "It is ready, but no joined worker has workflow `nap`, version 1: process … on … (build `8`) \
         has version 2 and process … on … (build `9`) has no version of it. Register it with one of them, or \
         start one that has it."
    );
}

async fn a_run_without_any_worker_says_which_code_it_needs(engine: TestEngine) {
    let run = engine.client.start(nap, ()).await.unwrap();
    let lost = explain(&engine, run.id()).await;
    assert_eq!(
        lost.because,
        Because::NoWorker { workflow: "nap".into(), version: 1, queue: "default".into() }
    );
    assert_eq!(
        lost.sentence,
        "It is ready, but no worker is joined. Start one that has workflow `nap`, version 1."
    );
}

async fn a_run_of_a_crashed_worker_says_that_it_is_gone(engine: TestEngine) {
    let worker = engine.worker(works).await;
    let run = engine.client.start(works, ()).await.unwrap();
    engine.steps.wait_for_log("began one", 1).await;
    worker.crash();
    engine.clock.advance(SESSION * 2);
    let gone = explain(&engine, run.id()).await;
    let Because::WorkerGone { worker, expired_at: Some(_), others, .. } = &gone.because else {
        panic!("{gone:?}")
    };
    assert_eq!((Some(*worker), others.len()), (engine.view(run.id()).await.owner, 0));
    let text = plain(&gone);
    assert!(
        text.starts_with("The worker that holds it, process … on …, seems to be gone: its session expired"),
        "{text}"
    );
    assert!(text.ends_with("No other worker is joined to take the run over: start one."), "{text}");
}

#[workflow]
async fn panics(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await?;
    panic!("a bug")
}

async fn a_stuck_run_is_explained_with_the_remedy(engine: TestEngine) {
    let _worker = engine.worker_of_build("7", panics).await;
    let run = engine.client.start(panics, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    let stuck = explain(&engine, run.id()).await;
    let Because::Stuck { reason: StuckReason::Panicked, message, build, other_builds, .. } = &stuck.because
    else {
        panic!("{stuck:?}")
    };
    assert!(message.contains("a bug") && build == "7" && other_builds.is_empty(), "{stuck:?}");
    let text = &stuck.sentence;
    assert!(text.starts_with("Stuck (panicked): build `7` cannot continue because "), "{text}");
    let remedy = " No worker with a different build is joined. A worker with a different build retries the run automatically: \
                  deploy one. Call `client.resume(run)` to retry with this build, or `client.terminate(run, reason)` to end \
                  the run.";
    assert!(text.ends_with(remedy), "{text}");
}

async fn a_stuck_run_tells_of_another_build(engine: TestEngine) {
    let worker = engine.worker_of_build("7", panics).await;
    let run = engine.client.start(panics, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    worker.stop().await.unwrap();
    // A worker that has joined and has the code, but has not claimed the run.
    let claims = engine.faults.hold(super::faulty_world::Call::Claim);
    let _mended = engine.worker_of_build("8", panics).await;
    claims.wait_for_call().await;
    let stuck = explain(&engine, run.id()).await;
    let Because::Stuck { other_builds, .. } = &stuck.because else { panic!("{stuck:?}") };
    assert_eq!(*other_builds, ["8"]);
    assert!(
        stuck
            .sentence
            .ends_with("A worker with a different build (`8`) is joined and retries it automatically.")
    );
    claims.open();
}

#[workflow]
async fn cleans_up(ctx: Context) -> Result<(), Error> {
    let stopped = ctx.sleep("1h").await;
    ctx.shielded().hook::<()>("clean").await?;
    stopped
}

async fn a_cancelled_run_is_explained(engine: TestEngine) {
    let _worker = engine.worker(cleans_up).await;
    let run = engine.client.start(cleans_up, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(explain(&engine, run.id()).await.stopping, None);
    run.cancel("the customer left").await.unwrap();
    engine.settle().await;
    let why = explain(&engine, run.id()).await;
    assert!(matches!(why.because, Because::Waits { .. }), "{why:?}");
    let stopping = why.stopping.unwrap();
    assert!(stopping.is_told && stopping.reason == "the customer left", "{stopping:?}");
    let text = &why.sentence;
    assert!(text.starts_with("It waits for a payload for hook `clean` (since "), "{text}");
    assert!(text.contains("). It received a request to stop at 20"), "{text}");
    assert!(text.ends_with(" and has not ended yet: the customer left."), "{text}");
    run.send("clean", &()).await.unwrap();
    assert!(run.output().await.unwrap_err().is_cancelled());
    assert_eq!(explain(&engine, run.id()).await.stopping, None);
}

async fn a_run_with_a_pending_cancel_is_explained(engine: TestEngine) {
    let worker = engine.worker(nap).await;
    let run = engine.client.start(nap, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    run.cancel("the customer left").await.unwrap();
    let why = explain(&engine, run.id()).await;
    assert!(matches!(why.because, Because::NoWorker { .. }), "{why:?}");
    assert!(!why.stopping.unwrap().is_told);
    let text = &why.sentence;
    assert!(text.contains("version 1. A request to stop it was sent at 20"), "{text}");
    assert!(text.ends_with(" and is not delivered yet: the customer left."), "{text}");
}

async fn a_payload_that_came_early_is_kept(engine: TestEngine) {
    let _worker = engine.worker(cleans_up).await;
    let run = engine.client.start(cleans_up, ()).await.unwrap();
    run.send("clean", &()).await.unwrap();
    engine.settle().await;
    let text = explain(&engine, run.id()).await.sentence;
    assert!(
        text.ends_with(
            " A payload for hook `clean` has arrived, and is kept until the workflow waits for it."
        ),
        "{text}"
    );
}

async fn a_run_past_its_deadline_says_who_ends_it(engine: TestEngine) {
    let worker = engine.worker(nap).await;
    let run = engine.client.start(nap, ()).deadline("30m").await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.run_to("31m").await;
    let late = explain(&engine, run.id()).await;
    let Because::PastDeadline { deadline, workers: 0, with_code: 0, .. } = late.because else {
        panic!("{late:?}")
    };
    assert_eq!(deadline, engine.time_after_begin("30m"));
    assert_eq!(
        late.sentence,
        "Its deadline, 2030-01-01T00:30:00Z (1m ago), has passed, and no worker is joined. Start one: a \
         worker without its code ends it after a minute."
    );
    let claims = engine.faults.hold(super::faulty_world::Call::Claim);
    let _worker = engine.worker(nap).await;
    claims.wait_for_call().await;
    let late = explain(&engine, run.id()).await;
    assert!(late.sentence.ends_with("a worker that has its code is about to cancel it."), "{late:?}");
    claims.open();
    assert!(run.output().await.unwrap_err().is_cancelled());
}

async fn an_explanation_is_json(engine: TestEngine) {
    let _worker = engine.worker((waits, nap)).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    engine.settle().await;
    let json = serde_json::to_value(explain(&engine, run.id()).await).unwrap();
    assert_eq!(json["run"], run.id().to_string());
    assert_eq!(json["status"], "waiting");
    assert_eq!(json["because"]["kind"], "waits");
    assert_eq!(json["because"]["waits"][0]["on"], "timer");
    assert_eq!(json["because"]["waits"][0]["until"], engine.time_after_begin("10m").as_micros());
    let ready = engine.client.start(fails, ()).await.unwrap();
    let json = serde_json::to_value(explain(&engine, ready.id()).await).unwrap();
    assert_eq!((&json["because"]["kind"], &json["because"]["version"]), (&"no_code".into(), &1.into()));
}
