//! Streams and published state: what readers see, in every order of events.

use outlast::core::limits::{CHUNK_BYTES_MAX, STREAM_BUFFER_BYTES_MAX, TURN_CHUNKS_BYTES_MAX};
use outlast::core::{Payload, PayloadError};
use outlast::prelude::*;
use outlast::{Binary, ChunkKind, ChunkOrigin, Codec, RunId, Status, StreamItem, StreamTail};

use super::faulty_world::Call;
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    a_workflow_writes_each_chunk_once,
    a_replay_writes_nothing,
    a_lost_answer_writes_nothing_twice,
    a_turn_in_parts_writes_once,
    what_is_too_large_is_dropped_and_counted,
    a_state_is_published_with_its_turn,
    a_watch_ends_with_its_run,
    a_reader_follows_a_step_while_it_writes,
    a_failed_attempt_is_superseded,
    an_attempt_of_a_lost_worker_is_superseded,
    the_end_of_an_attempt_waits_for_its_last_chunk,
    a_lost_answer_to_a_write_is_repeated_without_a_trace,
    an_attempt_ends_although_the_world_panics_at_its_chunks,
    a_write_waits_while_the_buffer_is_full,
    a_chunk_that_is_too_large_is_an_error_of_the_step,
    an_attempt_cannot_write_after_its_end,
    a_closed_stream_ends_its_readers,
    a_stream_keeps_what_it_is_asked_to_keep,
    a_queued_step_writes_to_its_own_run,
    concurrent_steps_share_a_stream,
    chunks_pass_through_the_codec,
    a_blocking_step_writes,
    bytes_and_text_and_json_are_told_apart,
    nothing_is_written_for_runs_without_streams,
}

#[workflow]
async fn logging(ctx: Context) -> Result<(), Error> {
    ctx.stream("log").write("starting");
    ctx.note("a").await?;
    ctx.stream("log").write("between");
    ctx.sleep("1h").await?;
    ctx.stream("log").write("done");
    Ok(())
}

async fn texts(engine: &TestEngine, run: RunId, stream: &str) -> Vec<String> {
    engine.client.stream::<String>(run, stream).await.unwrap().values()
}

async fn a_workflow_writes_each_chunk_once(engine: TestEngine) {
    let _worker = engine.worker(logging).await;
    let run = engine.client.start(logging, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(texts(&engine, run.id(), "log").await, ["starting", "between"]);
    let history = engine.history(run.id()).await;
    assert!(history.starts_with("0 step_started note\n0 step_completed"), "no number, no event: {history}");
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    let page = engine.client.stream::<String>(run.id(), "log").await.unwrap();
    assert!(page.is_closed && page.chunks.iter().all(|chunk| chunk.origin == ChunkOrigin::Workflow));
    assert_eq!(page.values(), ["starting", "between", "done"]);
}

async fn a_replay_writes_nothing(engine: TestEngine) {
    let worker = engine.worker(logging).await;
    let run = engine.client.start(logging, ()).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.worker(logging).await;
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(texts(&engine, run.id(), "log").await, ["starting", "between", "done"]);
}

async fn a_lost_answer_writes_nothing_twice(engine: TestEngine) {
    let _worker = engine.worker(logging).await;
    engine.faults.lose_answer(Call::Commit, 0);
    engine.faults.lose_answer(Call::Commit, 1);
    let run = engine.client.start(logging, ()).key("k").await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(texts(&engine, run.id(), "log").await, ["starting", "between", "done"]);
}

async fn a_turn_in_parts_writes_once(engine: TestEngine) {
    #[workflow]
    async fn fans_out(ctx: Context) -> Result<(), Error> {
        ctx.note("first").await?;
        ctx.stream("log").write("before");
        let steps: Vec<_> = (0..10).map(|n| ctx.note(&n.to_string())).collect();
        ctx.stream("log").write("after");
        try_join_all(steps).await.map(drop)
    }
    let builder = || engine.builder().part_events(3).register(fans_out);
    let worker = builder().start().await.unwrap();
    let part = engine.faults.hold_part(0);
    let run = engine.client.start(fans_out, ()).await.unwrap();
    part.wait_for_call().await;
    engine.crash(worker);
    part.open();
    let _worker = builder().start().await.unwrap();
    engine.settle().await;
    run.output().await.unwrap();
    assert_eq!(texts(&engine, run.id(), "log").await, ["before", "after"]);
}

async fn what_is_too_large_is_dropped_and_counted(engine: TestEngine) {
    #[workflow]
    async fn verbose(ctx: Context) -> Result<(), Error> {
        ctx.stream("log").write(&"x".repeat(CHUNK_BYTES_MAX));
        ctx.stream("log").write(&f64::NAN);
        ctx.stream("log").write("small");
        let large = "x".repeat(CHUNK_BYTES_MAX - 2);
        for _ in 0..=TURN_CHUNKS_BYTES_MAX / CHUNK_BYTES_MAX {
            ctx.stream("many").write(&large);
        }
        ctx.stream("shut").close();
        ctx.stream("shut").write("late");
        ctx.publish(&1);
        ctx.publish(&large.repeat(2));
        Ok(())
    }
    let _worker = engine.worker(verbose).await;
    let run = engine.client.start(verbose, ()).await.unwrap();
    run.output().await.unwrap();
    assert_eq!(texts(&engine, run.id(), "log").await, ["small"]);
    let streams = engine.client.streams(run.id()).await.unwrap();
    let counts: Vec<_> = streams.iter().map(|s| (&*s.name, s.end, s.dropped, s.late)).collect();
    assert_eq!(counts, [("log", 1, 2, 0), ("many", 3, 2, 0), ("shut", 0, 0, 1)]);
    assert_eq!(engine.client.state::<u32>(run.id()).await.unwrap(), Some(1));
    assert_eq!(engine.world.published(run.id()).await.unwrap().state.unwrap().dropped, 1);
}

#[workflow]
async fn progressing(ctx: Context) -> Result<(), Error> {
    ctx.publish(&0);
    ctx.publish(&1);
    ctx.hook::<u32>("go").await?;
    ctx.publish(&2);
    ctx.hook::<u32>("go").await?;
    Ok(())
}

async fn a_state_is_published_with_its_turn(engine: TestEngine) {
    let worker = engine.worker(progressing).await;
    let run = engine.client.start(progressing, ()).await.unwrap().id();
    engine.settle().await;
    assert_eq!(engine.client.state::<u32>(run).await.unwrap(), Some(1));
    engine.crash(worker);
    let _worker = engine.worker(progressing).await;
    engine.settle().await;
    assert_eq!(engine.world.published(run).await.unwrap().state.unwrap().version, 1, "not by a replay");
    engine.send(run, "go", 1).await;
    engine.settle().await;
    assert_eq!(engine.client.state::<u32>(run).await.unwrap(), Some(2));
    assert!(engine.client.state::<String>(run).await.unwrap_err().message().contains("String"));
}

async fn a_watch_ends_with_its_run(engine: TestEngine) {
    let _worker = engine.worker(progressing).await;
    let run = engine.client.start(progressing, ()).await.unwrap().id();
    let mut watch = engine.client.watch::<u32>(run);
    assert_eq!(watch.next().await.unwrap(), Some(1));
    engine.send(run, "go", 1).await;
    assert_eq!(watch.next().await.unwrap(), Some(2));
    engine.send(run, "go", 1).await;
    assert_eq!(watch.next().await.unwrap(), None);
    assert_eq!(engine.client.watch::<u32>(run).next().await.unwrap(), Some(2), "the state is kept");
}

/// Writes numbers, and waits at a gate after each `gate_every` of them. Fails in its first `fails` attempts at the end.
#[step(attempts = 3, initial = "1s")]
async fn counting(cx: StepContext<StepState>, chunks: u32, fails: u32) -> Result<u32, StepError> {
    for number in 0..chunks {
        cx.stream("numbers").write(&number).await?;
        if number == chunks / 2 {
            cx.state().log("half");
            cx.state().wait_for_gate("rest").await;
        }
    }
    if cx.attempt() <= fails { Err(StepError::msg("again")) } else { Ok(chunks) }
}

#[workflow]
async fn counts(ctx: Context, chunks: u32, fails: u32) -> Result<u32, Error> {
    ctx.step(counting, (chunks, fails)).await
}

async fn next_value(tail: &mut StreamTail<u32>) -> u32 {
    match tail.next().await.unwrap() {
        Some(StreamItem::Chunk(chunk)) => chunk.value,
        other => panic!("{other:?}"),
    }
}

async fn a_reader_follows_a_step_while_it_writes(engine: TestEngine) {
    let _worker = engine.worker((counts, counting)).await;
    let run = engine.client.start(counts, (4, 0)).await.unwrap();
    let mut tail = engine.client.stream::<u32>(run.id(), "numbers").follow().await.unwrap();
    for number in 0..3 {
        assert_eq!(next_value(&mut tail).await, number);
    }
    assert_eq!(engine.status(run.id()).await, Status::Running);
    engine.steps.open("rest");
    assert_eq!(next_value(&mut tail).await, 3);
    assert_eq!(tail.next().await.unwrap(), None);
    assert_eq!(tail.position(), 4);
    assert_eq!(run.output().await.unwrap(), 4);
}

async fn a_failed_attempt_is_superseded(engine: TestEngine) {
    let _worker = engine.worker((counts, counting)).await;
    engine.steps.open("rest");
    let run = engine.client.start(counts, (3, 2)).await.unwrap();
    let mut tail = engine.client.stream::<u32>(run.id(), "numbers").follow().await.unwrap();
    let reader = tokio::spawn(async move { tail.read_to_end().await.unwrap() });
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 3);
    assert_eq!(reader.await.unwrap(), [0, 1, 2]);
    let page = engine.client.stream::<u32>(run.id(), "numbers").await.unwrap();
    assert_eq!(page.chunks.iter().map(|chunk| chunk.index).collect::<Vec<_>>(), [8, 9, 10]);
    let all = engine.client.stream::<u32>(run.id(), "numbers").with_superseded().await.unwrap();
    assert_eq!(all.values(), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

async fn an_attempt_of_a_lost_worker_is_superseded(engine: TestEngine) {
    let worker = engine.worker((counts, counting)).await;
    let run = engine.client.start(counts, (10, 0)).await.unwrap();
    let mut tail = engine.client.stream::<u32>(run.id(), "numbers").follow().await.unwrap();
    for number in 0..6 {
        assert_eq!(next_value(&mut tail).await, number);
    }
    engine.crash(worker);
    engine.steps.open("rest");
    let _worker = engine.worker((counts, counting)).await;
    assert_eq!(tail.next().await.unwrap(), Some(StreamItem::Restarted { op: outlast::OpNumber(0), from: 0 }));
    let rest = tail.read_to_end().await.unwrap();
    assert_eq!(rest, (0..10).collect::<Vec<_>>());
    let mut again = engine.client.stream::<u32>(run.id(), "numbers").follow().await.unwrap();
    assert_eq!(again.read_to_end().await.unwrap(), rest, "a reader that comes later");
}

async fn the_end_of_an_attempt_waits_for_its_last_chunk(engine: TestEngine) {
    let _worker = engine.worker((counts, counting)).await;
    engine.steps.open("rest");
    let gate = engine.faults.hold(Call::WriteChunks);
    let run = engine.client.start(counts, (5, 0)).await.unwrap();
    gate.wait_for_call().await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.history(run.id()).await, "0 step_started counting");
    gate.open();
    assert_eq!(run.output().await.unwrap(), 5);
    let page = engine.client.stream::<u32>(run.id(), "numbers").await.unwrap();
    assert_eq!(page.values(), [0, 1, 2, 3, 4]);
}

async fn a_lost_answer_to_a_write_is_repeated_without_a_trace(engine: TestEngine) {
    let _worker = engine.worker((counts, counting)).await;
    engine.steps.open("rest");
    engine.faults.lose_answer(Call::WriteChunks, 0);
    engine.faults.refuse(Call::WriteChunks, 0);
    let run = engine.client.start(counts, (20, 0)).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 20);
    let page = engine.client.stream::<u32>(run.id(), "numbers").with_superseded().await.unwrap();
    assert_eq!((page.end, page.values()), (20, (0..20).collect()));
    assert_eq!(engine.faults.left(), 0);
}

async fn an_attempt_ends_although_the_world_panics_at_its_chunks(engine: TestEngine) {
    let _worker = engine.worker((counts, counting)).await;
    engine.steps.open("rest");
    engine.faults.panic_in(Call::WriteChunks);
    // The attempt may return before it learns of the error.
    let _ = engine.client.start(counts, (20, 0)).await.unwrap().output().await;
    let run = engine.client.start(counts, (20, 0)).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 20);
    let page = engine.client.stream::<u32>(run.id(), "numbers").await.unwrap();
    assert_eq!((page.end, page.values()), (20, (0..20).collect()));
}

async fn a_write_waits_while_the_buffer_is_full(engine: TestEngine) {
    const CHUNK: usize = CHUNK_BYTES_MAX - 2;
    #[step]
    async fn flooding(cx: StepContext<StepState>) -> Result<(), StepError> {
        for _ in 0..2 * STREAM_BUFFER_BYTES_MAX / CHUNK {
            cx.stream("flood").write(&"x".repeat(CHUNK)).await?;
            cx.state().log("written");
        }
        Ok(())
    }
    #[workflow]
    async fn floods(ctx: Context) -> Result<(), Error> {
        ctx.step(flooding, ()).await
    }
    let _worker = engine.worker((floods, flooding)).await;
    let gate = engine.faults.hold(Call::WriteChunks);
    let run = engine.client.start(floods, ()).await.unwrap();
    gate.wait_for_call().await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.steps.count("written"), STREAM_BUFFER_BYTES_MAX / CHUNK);
    gate.open();
    run.output().await.unwrap();
    assert_eq!(engine.client.streams(run.id()).await.unwrap()[0].end, 8);
}

async fn a_chunk_that_is_too_large_is_an_error_of_the_step(engine: TestEngine) {
    #[step(attempts = 1)]
    async fn too_large(cx: StepContext<StepState>, name: String) -> Result<(), StepError> {
        let bytes = if name == "large" { CHUNK_BYTES_MAX } else { 1 };
        cx.stream(&name).write(&"x".repeat(bytes)).await
    }
    #[workflow]
    async fn large(ctx: Context, name: String) -> Result<(), Error> {
        ctx.step(too_large, name).await
    }
    let _worker = engine.worker((large, too_large)).await;
    let error = engine.client.start(large, "large").await.unwrap().output().await.unwrap_err();
    assert!(error.message().contains("the limit is 262144; write it in smaller chunks"), "{error}");
    let error = engine.client.start(large, "").await.unwrap().output().await.unwrap_err();
    assert!(error.message().contains("the name of a stream is empty"), "{error}");
}

async fn an_attempt_cannot_write_after_its_end(engine: TestEngine) {
    #[step]
    async fn leaves_a_task(cx: StepContext<StepState>) -> Result<(), StepError> {
        cx.stream("log").write("in time").await?;
        tokio::spawn(async move {
            cx.state().wait_for_gate("late").await;
            let refused = cx.stream("log").write("late").await.unwrap_err();
            cx.state().log(refused.to_string());
        });
        Ok(())
    }
    #[workflow]
    async fn leaves(ctx: Context) -> Result<(), Error> {
        ctx.step(leaves_a_task, ()).await?;
        ctx.hook::<u32>("go").await.map(drop)
    }
    let _worker = engine.worker((leaves, leaves_a_task)).await;
    let run = engine.client.start(leaves, ()).await.unwrap();
    engine.settle().await;
    engine.steps.open("late");
    while engine.steps.logged().is_empty() {
        tokio::task::yield_now().await;
    }
    let logged = engine.steps.logged();
    assert!(logged[0].contains("the attempt has ended; write before the step returns"), "{logged:?}");
    assert_eq!(texts(&engine, run.id(), "log").await, ["in time"]);
}

async fn a_closed_stream_ends_its_readers(engine: TestEngine) {
    #[step]
    async fn closing(cx: StepContext<StepState>) -> Result<(), StepError> {
        cx.stream("log").write("last").await?;
        cx.stream("log").close().await?;
        cx.stream("log").write("late").await
    }
    #[workflow]
    async fn closes(ctx: Context) -> Result<(), Error> {
        ctx.step(closing, ()).await?;
        ctx.stream("other").write("x");
        ctx.stream("other").close();
        ctx.hook::<u32>("go").await.map(drop)
    }
    let _worker = engine.worker((closes, closing)).await;
    let run = engine.client.start(closes, ()).await.unwrap().id();
    let mut tail = engine.client.stream::<String>(run, "log").follow().await.unwrap();
    assert_eq!(tail.read_to_end().await.unwrap(), ["last"]);
    let mut tail = engine.client.stream::<String>(run, "other").follow().await.unwrap();
    assert_eq!(tail.read_to_end().await.unwrap(), ["x"]);
    engine.settle().await;
    assert_eq!(engine.status(run).await, Status::Waiting);
    assert_eq!(engine.client.streams(run).await.unwrap()[0].late, 1);
}

async fn a_stream_keeps_what_it_is_asked_to_keep(engine: TestEngine) {
    #[step]
    async fn trimming(cx: StepContext<StepState>) -> Result<(), StepError> {
        let stream = cx.stream("step").keep_last(2);
        for number in 0..5 {
            stream.write(&number).await?;
        }
        Ok(())
    }
    #[workflow]
    async fn trims(ctx: Context) -> Result<(), Error> {
        let stream = ctx.stream("flow").keep_last(3);
        (0..5).for_each(|number| stream.write(&number));
        ctx.step(trimming, ()).await
    }
    let _worker = engine.worker((trims, trimming)).await;
    let run = engine.client.start(trims, ()).await.unwrap();
    run.output().await.unwrap();
    let page = engine.client.stream::<u32>(run.id(), "flow").await.unwrap();
    assert_eq!((page.chunks[0].index, page.values()), (2, vec![2, 3, 4]));
    let page = engine.client.stream::<u32>(run.id(), "step").await.unwrap();
    assert_eq!(page.values(), [3, 4]);
}

async fn a_queued_step_writes_to_its_own_run(engine: TestEngine) {
    #[workflow]
    async fn queues(ctx: Context) -> Result<u32, Error> {
        ctx.step(counting, (3, 0)).queue("default").await
    }
    let _worker = engine.worker((queues, counting)).await;
    engine.steps.open("rest");
    let run = engine.client.start(queues, ()).await.unwrap();
    run.output().await.unwrap();
    assert_eq!(engine.client.streams(run.id()).await.unwrap(), []);
    let children = engine.client.operations(run.id()).await.unwrap();
    let child = children[0].child.expect("the operation links to the run of the step");
    let page = engine.client.stream::<u32>(child, "numbers").await.unwrap();
    assert_eq!(page.values(), [0, 1, 2]);
}

async fn concurrent_steps_share_a_stream(engine: TestEngine) {
    #[workflow]
    async fn both(ctx: Context) -> Result<(), Error> {
        let steps: Vec<_> = (0..3).map(|_| ctx.step(counting, (50, 0))).collect();
        try_join_all(steps).await.map(drop)
    }
    let _worker = engine.worker((both, counting)).await;
    engine.steps.open("rest");
    let run = engine.client.start(both, ()).await.unwrap();
    run.output().await.unwrap();
    let page = engine.client.stream::<u32>(run.id(), "numbers").await.unwrap();
    assert_eq!(page.end, 150);
    for op in 0..3 {
        let of_step = page.chunks.iter().filter(
            |chunk| matches!(chunk.origin, ChunkOrigin::Step { op: of, .. } if of == outlast::OpNumber(op)),
        );
        let values: Vec<_> = of_step.map(|chunk| chunk.value).collect();
        assert_eq!(values, (0..50).collect::<Vec<_>>(), "step {op}");
    }
}

/// Reverses the bytes.
#[derive(Debug)]
struct Reversing;

impl Codec for Reversing {
    fn encode(&self, plain: Payload) -> Result<Payload, PayloadError> {
        Ok(Payload::coded("reversed", plain.bytes().iter().rev().copied().collect::<Vec<_>>()))
    }

    fn decode(&self, stored: Payload) -> Result<Payload, PayloadError> {
        let Some("reversed") = stored.codec() else { return Ok(stored) };
        Ok(Payload::from_json_text(stored.bytes().iter().rev().copied().collect::<Vec<_>>()))
    }
}

async fn chunks_pass_through_the_codec(engine: TestEngine) {
    let builder = Worker::builder(engine.world.clone()).codec(Reversing).state(engine.steps.clone());
    let _worker = builder.register((counts, counting, progressing)).start().await.unwrap();
    engine.steps.open("rest");
    let client = engine.client.clone().with_codec(Reversing);
    let run = client.start(counts, (3, 0)).await.unwrap();
    run.output().await.unwrap();
    assert_eq!(client.stream::<u32>(run.id(), "numbers").await.unwrap().values(), [0, 1, 2]);
    let error = engine.client.stream::<u32>(run.id(), "numbers").await.unwrap_err();
    assert!(error.message().contains("codec `reversed`"), "{error}");
    let run = client.start(progressing, ()).await.unwrap().id();
    assert_eq!(client.watch::<u32>(run).next().await.unwrap(), Some(1));
}

async fn a_blocking_step_writes(engine: TestEngine) {
    #[step(blocking)]
    fn blocks(cx: StepContext<StepState>) -> Result<(), StepError> {
        cx.stream("log").blocking_write("from a thread")
    }
    #[workflow]
    async fn waits(ctx: Context) -> Result<(), Error> {
        ctx.step(blocks, ()).await
    }
    let _worker = engine.worker((waits, blocks)).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    run.output().await.unwrap();
    assert_eq!(texts(&engine, run.id(), "log").await, ["from a thread"]);
}

async fn bytes_and_text_and_json_are_told_apart(engine: TestEngine) {
    #[workflow]
    async fn kinds(ctx: Context) -> Result<(), Error> {
        let stream = ctx.stream("all");
        stream.write("a\0b");
        stream.write(&[1, 2]);
        stream.write_bytes(&[0, 159, 146, 150]);
        Ok(())
    }
    let _worker = engine.worker(kinds).await;
    let run = engine.client.start(kinds, ()).await.unwrap();
    run.output().await.unwrap();
    let page = engine.client.stream::<serde_json::Value>(run.id(), "all").await.unwrap();
    let kinds: Vec<_> = page.chunks.iter().map(|chunk| chunk.kind).collect();
    assert_eq!(kinds, [ChunkKind::Text, ChunkKind::Json, ChunkKind::Bytes]);
    assert_eq!(page.chunks[0].value, "a\0b");
    let bytes = engine.client.stream::<Binary>(run.id(), "all").from(-1).await.unwrap();
    assert_eq!(bytes.values(), [Binary(vec![0, 159, 146, 150])]);
}

async fn nothing_is_written_for_runs_without_streams(engine: TestEngine) {
    #[workflow]
    async fn silent(ctx: Context) -> Result<(), Error> {
        ctx.note("a").await?;
        ctx.note("b").await.map(drop)
    }
    let _worker = engine.worker(silent).await;
    let run = engine.client.start(silent, ()).await.unwrap();
    run.output().await.unwrap();
    assert_eq!(engine.faults.count(Call::WriteChunks), 0);
    assert_eq!(engine.client.streams(run.id()).await.unwrap(), []);
    assert_eq!(engine.client.state::<u32>(run.id()).await.unwrap(), None);
    let page = engine.client.stream::<u32>(run.id(), "log").await.unwrap();
    assert!(page.is_closed && page.chunks.is_empty());
}
