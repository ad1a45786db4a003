//! Payloads that no open hook can decode are rejected, and the run continues to wait. The headers of a payload reach
//! the workflow, and the headers of a start reach its steps.

use outlast::core::{Event, Judgement, Timestamp};
use outlast::prelude::*;
use outlast::{OperationKind, Status, StuckReason};

use super::outages::Lines;
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world, with_timeout};
use super::turns::Xor;

on_every_world! {
    a_malformed_payload_is_rejected_and_the_order_still_waits,
    a_rejection_is_shown_by_views_and_explain,
    a_rejection_does_not_repeat_the_payload,
    a_kept_payload_is_judged_when_a_hook_opens,
    the_first_open_hook_that_can_read_a_payload_takes_it,
    a_rejected_payload_stays_rejected_when_another_build_can_read_it,
    a_rejection_survives_a_crash,
    headers_and_time_of_a_message_reach_the_workflow_through_a_crash,
    headers_of_a_start_reach_steps_in_place_and_queued_ones,
    a_payload_of_an_unknown_codec_makes_the_run_stuck_and_is_not_rejected,
}

#[workflow(name = "order")]
async fn order(ctx: Context) -> Result<String, Error> {
    match ctx.hook::<u32>("paid").timeout("3d").await {
        Ok(cents) => Ok(format!("paid {cents}")),
        Err(error) => {
            ctx.note("undone").await?;
            Err(error)
        }
    }
}

async fn a_malformed_payload_is_rejected_and_the_order_still_waits(engine: TestEngine) {
    let _worker = engine.worker(order).await;
    let run = engine.client.start(order, ()).await.unwrap();
    engine.run_to("1d").await;
    run.send("paid", "seven").await.unwrap();
    engine.settle().await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.wake_at), (Status::Waiting, Some(engine.time_after_begin("3d"))));
    assert_eq!((view.sent, view.consumed), (1, 1), "it is read once");
    engine.send(run.id(), "paid", 7).await;
    assert_eq!(run.output().await.unwrap(), "paid 7");
    assert_eq!(engine.steps.count("undone"), 0);
    engine
        .assert_history(
            run.id(),
            r#"0 hook_opened paid
         hook_received paid "seven"
         hook_received paid 7
         run_completed "paid 7""#,
        )
        .await;
}

async fn a_rejection_is_shown_by_views_and_explain(engine: TestEngine) {
    let _worker = engine.worker(order).await;
    let run = engine.client.start(order, ()).await.unwrap();
    run.send("paid", "seven").await.unwrap();
    run.send("paid", &true).await.unwrap();
    engine.settle().await;
    let operations = engine.client.operations(run.id()).await.unwrap();
    let hook = operations.iter().find(|operation| operation.kind == OperationKind::Hook).unwrap();
    assert!(hook.is_open());
    let reasons: Vec<_> = hook.rejected.iter().map(|rejection| rejection.reason.as_str()).collect();
    assert!(reasons.len() == 2 && reasons[0].contains("the payload is not a `u32`"), "{reasons:?}");
    let sentence = engine.client.explain(run.id()).await.unwrap().sentence;
    assert!(sentence.contains("2 were rejected, the last one: the payload is not a `u32`"), "{sentence}");
    assert!(!sentence.contains("kept"), "{sentence}");
}

async fn a_rejection_does_not_repeat_the_payload(engine: TestEngine) {
    let _worker = engine.worker(order).await;
    let run = engine.client.start(order, ()).await.unwrap();
    run.send("paid", "alice@example.com").await.unwrap();
    engine.settle().await;
    let operations = engine.client.operations(run.id()).await.unwrap();
    let mut texts: Vec<_> =
        operations.iter().flat_map(|op| &op.rejected).map(|rejection| rejection.reason.clone()).collect();
    texts.push(engine.client.explain(run.id()).await.unwrap().sentence);
    for turn in engine.turns(run.id()).await {
        texts.extend(turn.events.iter().filter_map(|event| match event {
            Event::HookReceived { judgement: Judgement::Rejected(reason), .. } => Some(reason.clone()),
            _ => None,
        }));
    }
    assert_eq!(texts.len(), 3, "{texts:?}");
    for text in texts {
        assert!(!text.contains("alice"), "{text}");
        assert!(text.contains("`u32`: invalid type: string, expected u32 at line 1 column 19"), "{text}");
    }
}

async fn a_kept_payload_is_judged_when_a_hook_opens(engine: TestEngine) {
    #[workflow]
    async fn late(ctx: Context) -> Result<u32, Error> {
        ctx.sleep("1h").await?;
        ctx.hook::<u32>("paid").await
    }
    let _worker = engine.worker(late).await;
    let run = engine.client.start(late, ()).await.unwrap();
    run.send("paid", "seven").await.unwrap();
    engine.send(run.id(), "paid", 7).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 7);
    engine
        .assert_history(
            run.id(),
            r#"0 timer_started 1h
         hook_received paid "seven"
         hook_received paid 7
         0 timer_fired
         1 hook_opened paid
         hook_rejected paid
         1 hook_taken
         run_completed 7"#,
        )
        .await;
}

async fn the_first_open_hook_that_can_read_a_payload_takes_it(engine: TestEngine) {
    #[workflow]
    async fn either(ctx: Context) -> Result<(u32, String), Error> {
        try_join!(ctx.hook::<u32>("x"), ctx.hook::<String>("x"))
    }
    let _worker = engine.worker(either).await;
    let run = engine.client.start(either, ()).await.unwrap();
    run.send("x", "seven").await.unwrap();
    engine.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), (7, "seven".to_owned()));
}

async fn a_rejected_payload_stays_rejected_when_another_build_can_read_it(engine: TestEngine) {
    #[workflow(name = "order")]
    async fn order_of_texts(ctx: Context) -> Result<String, Error> {
        ctx.hook::<String>("paid").timeout("3d").await
    }
    let worker = engine.worker_of_build("a", order).await;
    let run = engine.client.start(order, ()).await.unwrap();
    run.send("paid", "seven").await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", order_of_texts).await;
    run.send("paid", "eight").await.unwrap();
    assert_eq!(run.output().await.unwrap(), "eight");
}

async fn a_rejection_survives_a_crash(engine: TestEngine) {
    let worker = engine.worker(order).await;
    let run = engine.client.start(order, ()).await.unwrap();
    run.send("paid", "seven").await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.worker(order).await;
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.send(run.id(), "paid", 7).await;
    assert_eq!(run.output().await.unwrap(), "paid 7");
    let turns = engine.turns(run.id()).await;
    let rejected = turns
        .iter()
        .flat_map(|turn| &turn.events)
        .filter(|event| matches!(event, Event::HookReceived { judgement: Judgement::Rejected(_), .. }));
    assert_eq!(rejected.count(), 1);
}

async fn headers_and_time_of_a_message_reach_the_workflow_through_a_crash(engine: TestEngine) {
    type Answer = (u32, Option<String>, Timestamp, String);
    #[workflow]
    async fn asks(ctx: Context) -> Result<(Answer, String), Error> {
        let answer = ctx.hook::<u32>("x").received().await?;
        let user = answer.headers.get("user").cloned();
        let answer = (answer.payload, user, answer.at, answer.message.to_string());
        ctx.sleep("1h").await?;
        let kept = ctx.hook::<u32>("y").received().await?;
        Ok((answer, kept.headers.get("user").cloned().unwrap_or_default()))
    }
    let worker = engine.worker(asks).await;
    let run = engine.client.start(asks, ()).await.unwrap();
    engine.run_to("10m").await;
    engine.client.send(run.id(), "y", &1).header("user", "bob").await.unwrap();
    engine.client.send(run.id(), "x", &7).header("user", "ada").await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.worker(asks).await;
    engine.clock.run_until_idle().await;
    let ((payload, user, at, message), kept) = run.output().await.unwrap();
    assert_eq!(
        (payload, user.as_deref(), at, &*kept),
        (7, Some("ada"), engine.time_after_begin("10m"), "bob")
    );
    assert!(message.starts_with("msg_"), "{message}");
}

async fn headers_of_a_start_reach_steps_in_place_and_queued_ones(engine: TestEngine) {
    #[step]
    async fn who(cx: StepContext<StepState>) -> String {
        cx.headers().get("user").cloned().unwrap_or_default()
    }
    #[workflow]
    async fn asks_who(ctx: Context) -> Result<(String, String), Error> {
        try_join!(ctx.step(who, ()), ctx.step(who, ()).queue("far"))
    }
    let _here = engine.worker((asks_who, who)).await;
    let _there = engine.builder().queues(["far"]).register(who).start().await.unwrap();
    let run = engine.client.start(asks_who, ()).header("user", "ada").await.unwrap();
    assert_eq!(run.output().await.unwrap(), ("ada".to_owned(), "ada".to_owned()));
}

async fn a_payload_of_an_unknown_codec_makes_the_run_stuck_and_is_not_rejected(engine: TestEngine) {
    let worker = engine.worker_of_build("a", order).await;
    let run = engine.client.start(order, ()).await.unwrap();
    let coding = engine.client.clone().with_codec(Xor);
    coding.send(run.id(), "paid", &7).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Unreadable, "{}", stuck.message);
    assert!(stuck.message.contains("for hook `paid`"), "{}", stuck.message);
    worker.stop().await.unwrap();
    let builder = Worker::builder(engine.world.clone()).codec(Xor).state(engine.steps.clone()).build("b");
    let _worker = builder.register((order, super::test_engine::note)).start().await.unwrap();
    engine.settle().await;
    assert_eq!(coding.handle::<String>(run.id()).output().await.unwrap(), "paid 7");
}

#[tokio::test]
async fn a_rejection_is_logged_once_with_run_hook_message_and_reason() {
    with_timeout(async {
        let lines = Lines::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let engine = TestEngine::memory().await;
        let worker = engine.worker(order).await;
        let run = engine.client.start(order, ()).await.unwrap();
        run.send("paid", "seven").await.unwrap();
        engine.settle().await;
        engine.crash(worker);
        let _worker = engine.worker(order).await;
        engine.send(run.id(), "paid", 7).await;
        run.output().await.unwrap();
        let logged = lines.with_fields();
        let rejections: Vec<_> = logged.iter().filter(|line| line.contains("rejected")).collect();
        let [line] = rejections[..] else { panic!("one line: {logged:#?}") };
        let run = format!("run={}", run.id());
        for part in ["WARN", &run, "hook=\"paid\"", "message_id=msg_", "the payload is not a `u32`"] {
            assert!(line.contains(part), "{part} is not in: {line}");
        }
    })
    .await;
}
