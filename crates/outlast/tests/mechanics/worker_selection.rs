//! Which worker gets which run, and in which order; the reports of workers.

use outlast::core::WorkerStatus;
use outlast::prelude::*;
use outlast::{Because, ErrorKind, RunId, Status, Wait, Workflow};

use super::faulty_world::Call;
use super::queued::{serving, step_run};
use super::test_engine::{StepCalls, TestEngine, on_every_world, pause_between_reads};

on_every_world! {
    a_run_is_given_to_a_worker_that_serves_its_queue,
    a_start_is_not_handed_to_a_worker_that_does_not_serve_its_queue,
    a_start_with_a_priority_waits_in_line,
    workflows_have_queues_and_priorities_that_a_start_may_change,
    children_have_queues_and_priorities,
    urgent_runs_come_first_and_old_ones_before_them,
    urgent_steps_come_first_and_old_ones_before_them,
    a_start_in_no_queue_is_refused,
    a_run_in_a_queue_without_workers_is_explained,
    a_wait_for_a_queued_step_says_who_serves_it,
    a_queued_step_without_its_code_says_so,
    workers_report_their_activity_and_that_they_drain,
    a_worker_with_retention_needs_no_other_code,
}

#[workflow]
async fn job(ctx: Context, word: String) -> Result<String, Error> {
    ctx.note(&word).await
}

fn word(text: &str) -> String {
    text.to_owned()
}

async fn a_run_is_given_to_a_worker_that_serves_its_queue(engine: TestEngine) {
    let _usual = engine.worker(job).await;
    let run = engine.client.start(job, word("night")).queue("night").await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Pending);
    let _night = engine.builder().queues(["night"]).register(job).start().await.unwrap();
    assert_eq!(run.output().await.unwrap(), "night");
    let view = engine.view(run.id()).await;
    assert_eq!((&*view.queue, view.priority), ("night", 0));
}

async fn a_start_is_not_handed_to_a_worker_that_does_not_serve_its_queue(engine: TestEngine) {
    let _usual = engine.worker(job).await;
    engine.settle().await;
    engine.client.start(job, word("usual")).await.unwrap().output().await.unwrap();
    assert_eq!(engine.faults.count(Call::Start), 0, "handed over");
    engine.client.start(job, word("night")).queue("night").await.unwrap();
    assert_eq!(engine.faults.count(Call::Start), 1);
    let _night = engine.builder().queues(["night"]).register(job).start().await.unwrap();
    engine.settle().await;
    engine.client.start(job, word("again")).queue("night").await.unwrap().output().await.unwrap();
    assert_eq!(engine.faults.count(Call::Start), 1, "handed to the one that serves it");
}

async fn a_start_with_a_priority_waits_in_line(engine: TestEngine) {
    let _worker = engine.worker(job).await;
    let run = engine.client.start(job, word("urgent")).priority(9).await.unwrap();
    assert_eq!(engine.faults.count(Call::Start), 1);
    assert_eq!(run.output().await.unwrap(), "urgent");
}

#[workflow(queue = "reports", priority = 3)]
async fn report(ctx: Context, word: String) -> Result<String, Error> {
    ctx.note(&word).await
}

async fn workflows_have_queues_and_priorities_that_a_start_may_change(engine: TestEngine) {
    const REPORT: Workflow<String, String> = Workflow::new("report").queue("far").priority(5);
    let line = async |run: RunId| {
        let view = engine.view(run).await;
        (view.queue.to_string(), view.priority)
    };
    let client = &engine.client;
    let own = client.start(report, word("a")).await.unwrap();
    assert_eq!(line(own.id()).await, (word("reports"), 3));
    let by_name = client.start(REPORT, word("a")).await.unwrap();
    assert_eq!(line(by_name.id()).await, (word("far"), 5));
    let changed = client.start(report, word("a")).queue("night").priority(0).await.unwrap();
    assert_eq!(line(changed.id()).await, (word("night"), 0));
    let many = client.start_many(report, [word("a")]).await.remove(0).unwrap();
    assert_eq!(line(many.id()).await, (word("reports"), 3));
    let many = client.start_many(report, [word("a")]).queue("night").priority(1).await.remove(0).unwrap();
    assert_eq!(line(many.id()).await, (word("night"), 1));
}

async fn children_have_queues_and_priorities(engine: TestEngine) {
    #[workflow]
    async fn editor(ctx: Context) -> Result<(String, String), Error> {
        let (own, changed) = (ctx.child(report, word("own")), ctx.child(report, word("changed")));
        try_join!(own, changed.queue("night").priority(8))
    }
    let all = ["default", "reports", "night"];
    let _worker = engine.builder().queues(all).register((editor, report)).start().await.unwrap();
    let run = engine.client.start(editor, ()).await.unwrap();
    run.output().await.unwrap();
    let children = engine.client.children(run.id()).await.unwrap().runs;
    let mut lines: Vec<_> = children.iter().map(|child| (&*child.queue, child.priority)).collect();
    lines.sort_unstable();
    assert_eq!(lines, [("night", 8), ("reports", 3)]);
}

async fn urgent_runs_come_first_and_old_ones_before_them(engine: TestEngine) {
    let start = async |name: &str, priority: u8| {
        engine.client.start(job, word(name)).priority(priority).await.unwrap();
    };
    start("old", 0).await;
    engine.advance("25s").await;
    start("usual", 0).await;
    start("soon", 2).await;
    start("now", 9).await;
    let _worker = engine.builder().live_runs(1).register(job).start().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.steps.logged(), ["now", "old", "soon", "usual"]);
}

async fn urgent_steps_come_first_and_old_ones_before_them(engine: TestEngine) {
    #[workflow]
    async fn asks(ctx: Context, word: String, priority: u8) -> Result<String, Error> {
        ctx.note(&word).queue("gpu").priority(priority).await
    }
    let _here = engine.caching_builder().session_time("1h").register(asks).start().await.unwrap();
    let start = async |name: &str, priority: u8| {
        engine.client.start(asks, (word(name), priority)).await.unwrap();
        engine.settle().await;
    };
    start("old", 0).await;
    engine.advance("25s").await;
    start("usual", 0).await;
    start("soon", 2).await;
    start("now", 9).await;
    let _there = engine.builder().queues(["gpu"]).live_runs(1).start().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.steps.logged(), ["now", "old", "soon", "usual"]);
}

async fn a_start_in_no_queue_is_refused(engine: TestEngine) {
    let client = &engine.client;
    let nameless = client.start(job, word("x")).queue("").await.unwrap_err();
    assert_eq!(nameless.kind(), ErrorKind::Invalid, "{nameless}");
    let long = client.start(job, word("x")).queue("q".repeat(129)).await.unwrap_err();
    assert_eq!(long.kind(), ErrorKind::Limit, "{long}");
    let urgent = client.start(job, word("x")).priority(10).await.unwrap_err();
    assert!(urgent.message().contains("there is no priority 10"), "{urgent}");
    assert!(client.list().await.unwrap().runs.is_empty(), "nothing is written");
}

async fn a_run_in_a_queue_without_workers_is_explained(engine: TestEngine) {
    let run = engine.client.start(job, word("night")).queue("night").await.unwrap();
    let why = engine.client.explain(run.id()).await.unwrap();
    let expected = "Start one that serves queue `night` and has workflow `job`, version 1.";
    assert!(why.sentence.ends_with(expected), "{}", why.sentence);
    let _usual = engine.worker(job).await;
    let why = engine.client.explain(run.id()).await.unwrap();
    let Because::NotServed { queue, workers, .. } = &why.because else { panic!("{why:?}") };
    assert_eq!((queue.as_str(), workers[0].queues.join(" ")), ("night", word("default")));
    assert!(why.sentence.starts_with("It is ready, but no joined worker serves queue `night`: process"));
    assert!(
        why.sentence.contains("serves `default`. Start one that serves queue `night` and has"),
        "{why:?}"
    );
}

#[workflow]
async fn far(ctx: Context) -> Result<String, Error> {
    ctx.blocked("slow").queue("gpu").await
}

async fn a_wait_for_a_queued_step_says_who_serves_it(engine: TestEngine) {
    let _here = engine.worker(far).await;
    let run = engine.client.start(far, ()).await.unwrap();
    engine.settle().await;
    let why = engine.client.explain(run.id()).await.unwrap();
    let Because::Waits { waits, .. } = &why.because else { panic!("{why:?}") };
    assert_eq!((waits[0].child, waits[0].workers), (Some(Status::Pending), Some(0)));
    assert!(matches!(&waits[0].wait, Wait::Step { name, queue, .. } if name == "blocked" && queue == "gpu"));
    assert!(why.sentence.starts_with("It waits for step `blocked` in queue `gpu` (run_"), "{}", why.sentence);
    assert!(why.sentence.contains("; no joined worker serves it and has the step)"), "{}", why.sentence);
    let _there = serving(&engine, "gpu").await;
    engine.steps.wait_for_log("began slow", 1).await;
    let why = engine.client.explain(run.id()).await.unwrap();
    assert!(
        why.sentence.contains(", running, since") && why.sentence.contains("; 1 worker serves it)"),
        "{why:?}"
    );
    let step = engine.client.explain(step_run(&engine, run.id(), 0).await).await.unwrap();
    assert!(step.sentence.contains("in progress: step `blocked` (attempt 1"), "{}", step.sentence);
}

async fn a_queued_step_without_its_code_says_so(engine: TestEngine) {
    let _here = engine.worker(far).await;
    let run = engine.client.start(far, ()).await.unwrap();
    engine.settle().await;
    let step = step_run(&engine, run.id(), 0).await;
    let why = engine.client.explain(step).await.unwrap();
    assert!(
        why.sentence.ends_with("Start one that serves queue `gpu` and has step `blocked`."),
        "{}",
        why.sentence
    );
    let other = Worker::builder(engine.world.clone()).queues(["gpu"]).register(job).start().await.unwrap();
    let why = engine.client.explain(step).await.unwrap();
    assert!(matches!(why.because, Because::NoCode { .. }), "{why:?}");
    other.stop().await.unwrap();
}

async fn workers_report_their_activity_and_that_they_drain(engine: TestEngine) {
    #[workflow]
    async fn two(ctx: Context) -> Result<(), Error> {
        ctx.note("first").await?;
        try_join!(ctx.blocked("left"), ctx.blocked("right")).map(drop)
    }
    let worker = engine.builder().queues(["default", "gpu"]).register((two, job)).start().await.unwrap();
    engine.client.start(job, word("done")).await.unwrap().output().await.unwrap();
    engine.client.start(two, ()).await.unwrap();
    engine.steps.wait_for_log("began right", 1).await;
    let stopping = tokio::spawn(worker.stop());
    let draining = loop {
        let workers = engine.client.workers().await.unwrap();
        if workers[0].report.status == WorkerStatus::Draining {
            break workers.into_iter().next().unwrap();
        }
        pause_between_reads().await;
    };
    let report = &draining.report;
    assert_eq!((draining.queues.join(" "), draining.pid), (word("default gpu"), std::process::id()));
    assert_eq!((report.live, report.attempts), (1, 2));
    assert_eq!(
        report.steps.iter().map(|(name, count)| (name.as_str(), *count)).collect::<Vec<_>>(),
        [("blocked", 2)]
    );
    assert_eq!((report.completed, report.failed), (1, 0));
    assert!(report.turns >= 3, "{report:?}");
    engine.steps.open("left");
    engine.steps.open("right");
    stopping.await.unwrap().unwrap();
    assert!(engine.client.workers().await.unwrap().is_empty());
}

async fn a_worker_with_retention_needs_no_other_code(engine: TestEngine) {
    let worker = engine.builder().retention("30d").register(job).start().await.unwrap();
    let workers = engine.client.workers().await.unwrap();
    let code: Vec<_> = workers[0].workflows().map(|code| &*code.workflow).collect();
    assert_eq!(code, ["job"]);
    worker.stop().await.unwrap();
}
