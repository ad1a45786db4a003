//! Streams and published state: chunks of steps and of workflows.

use outlast_core::limits::{CHUNKS_READ_MAX, STREAM_CHUNKS_MAX, STREAMS_MAX};
use outlast_core::{
    AttemptId, ChunkContent, ChunkKind, ChunkOrigin, EntryBody, OpNumber, Payload, RunId, StateWrite,
    StreamAppend, StreamPage, StreamView, StreamWrite, StreamWritten, Turn, WorldError,
};

use super::case::{one, text};
use super::turn_ext::{TurnExt, wait};
use super::{Case, TestWorker, assert_refused};

const OP: OpNumber = OpNumber(1);

/// Chunks with the texts `first`, `first + 1`, ….
fn chunks(first: u64, count: u64) -> Vec<ChunkContent> {
    (first..first + count).map(|number| ChunkContent::of(&number.to_string()).unwrap()).collect()
}

/// A write of an attempt to stream `s`. The texts of its chunks are their ordinals.
fn new_write(run: RunId, attempt: AttemptId, first: u64, count: u64) -> StreamWrite {
    StreamWrite {
        run,
        stream: "s".into(),
        op: OP,
        attempt,
        first,
        chunks: chunks(first, count),
        keep_last: None,
        closes: false,
    }
}

impl TestWorker {
    /// The attempt that the worker begins after `count` others.
    fn attempt(&self, count: u64) -> AttemptId {
        AttemptId::new(self.session, count)
    }

    async fn write(&self, write: StreamWrite) -> Result<StreamWritten, WorldError> {
        one(self.world.write_chunks(self.session, vec![write]).await)
    }

    async fn write_done(&self, write: StreamWrite) -> StreamWritten {
        self.write(write).await.expect("the world accepts the chunks")
    }
}

/// The entries of a page: `#` and the index, `>` and the text of a chunk; `!` marks superseded ones.
fn lines(page: &StreamPage) -> Vec<String> {
    let line = |entry: &outlast_core::StreamEntry| {
        let mark = if entry.is_superseded { "!" } else { "" };
        let body = match &entry.body {
            EntryBody::Chunk(chunk) => chunk.payload.decode::<serde_json::Value>().unwrap().to_string(),
            EntryBody::Restarted { from } => format!("restarted from {from}"),
            _ => "?".into(),
        };
        format!("{mark}{} {}", entry.index, body.trim_matches('"'))
    };
    page.entries.iter().map(line).collect()
}

impl Case {
    async fn page(&self, run: RunId, stream: &str) -> StreamPage {
        self.world.chunks(run, stream, 0, CHUNKS_READ_MAX).await.expect("the world reads the stream")
    }

    async fn lines(&self, run: RunId) -> Vec<String> {
        lines(&self.page(run, "s").await)
    }

    async fn stream(&self, run: RunId, name: &str) -> StreamView {
        let streams = self.world.streams(run).await.expect("the world lists the streams");
        streams.into_iter().find(|stream| &*stream.name == name).expect("the stream exists")
    }
}

/// The turn also appends to a stream.
fn appending(mut turn: Turn, append: StreamAppend) -> Turn {
    turn.outbox.get_or_insert_default().writes.streams.push(append);
    turn
}

/// The turn also publishes a state.
fn publishing(mut turn: Turn, payload: Option<Payload>, dropped: u64) -> Turn {
    turn.outbox.get_or_insert_default().writes.state = Some(StateWrite { payload, dropped });
    turn
}

fn append(stream: &str, first: u64, count: u64) -> StreamAppend {
    StreamAppend { stream: stream.into(), chunks: chunks(first, count), ..StreamAppend::default() }
}

/// Chunks have indexes without gaps, the time of their write and an origin. Every kind is read back unchanged.
pub async fn chunks_are_read_as_they_were_written(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    let attempt = worker.attempt(0);
    let kinds = vec![
        ChunkContent::of("a\u{0}\"b\\ö").unwrap(),
        ChunkContent::of(&serde_json::json!({ "n": [1, null] })).unwrap(),
        ChunkContent::of(&()).unwrap(),
        ChunkContent::of_bytes(&[0, 255, 7]).unwrap(),
        ChunkContent { kind: ChunkKind::Text, payload: Payload::coded("zip", vec![0, 159, 146, 150]) },
    ];
    let before = case.clock.now();
    worker.write_done(StreamWrite { chunks: kinds.clone(), ..new_write(run, attempt, 0, 0) }).await;
    worker.write_done(new_write(run, attempt, 5, 2)).await;
    let page = case.page(run, "s").await;
    let read: Vec<_> = page.entries.iter().take(5).map(|entry| entry.body.clone()).collect();
    assert_eq!(read, kinds.into_iter().map(EntryBody::Chunk).collect::<Vec<_>>());
    let indexes: Vec<_> = page.entries.iter().map(|entry| entry.index).collect();
    assert_eq!(indexes, [0, 1, 2, 3, 4, 5, 6]);
    assert!(page.entries.iter().all(|entry| entry.origin == ChunkOrigin::Step { op: OP, attempt }));
    assert!(page.entries.iter().all(|entry| entry.at >= before && !entry.is_superseded));
    assert_eq!((page.first, page.end, page.next, page.is_closed), (0, 7, 7, false));
}

/// A repeated write changes nothing, also if only a part of it is known, and a gap is refused.
pub async fn a_repeated_write_changes_nothing(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    let attempt = worker.attempt(3);
    for write in [(0, 2), (0, 2), (1, 3), (0, 1), (4, 0)] {
        worker.write_done(new_write(run, attempt, write.0, write.1)).await;
    }
    assert_eq!(case.lines(run).await, ["0 0", "1 1", "2 2", "3 3"]);
    assert_refused!(worker.write(new_write(run, attempt, 5, 1)).await, Invalid);
    assert_eq!(case.page(run, "s").await.end, 4);
}

/// Only the session that holds the run writes, and only with attempts of its own.
pub async fn only_the_holder_writes(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("other").await);
    let claimed = case.held(&worker).await;
    let run = claimed.run;
    assert_refused!(other.write(new_write(run, other.attempt(0), 0, 1)).await, Fenced);
    assert_refused!(worker.write(new_write(run, other.attempt(0), 0, 1)).await, Fenced);
    let unknown = RunId::from_bits(case.id());
    assert_refused!(worker.write(new_write(unknown, worker.attempt(0), 0, 1)).await, Fenced);
    worker.write_done(new_write(run, worker.attempt(0), 0, 1)).await;
    worker.commit_done(case.turn(&claimed).steps(1).then(wait())).await;
    assert_refused!(worker.write(new_write(run, worker.attempt(0), 1, 1)).await, Fenced);
    worker.leave().await;
    assert_refused!(worker.write(new_write(run, worker.attempt(0), 1, 1)).await, Fenced);
    assert_eq!(case.lines(run).await, ["0 0"]);
}

/// A refused write does not affect the others of its call.
pub async fn each_write_of_a_call_has_its_own_answer(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    let unknown = RunId::from_bits(case.id());
    let (good, bad) = (new_write(run, worker.attempt(0), 0, 1), new_write(unknown, worker.attempt(0), 0, 1));
    let more = new_write(run, worker.attempt(0), 1, 1);
    let answers = worker.world.write_chunks(worker.session, vec![good, bad, more]).await.unwrap();
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(case.lines(run).await, ["0 0", "1 1"]);
}

/// The first write of a newer attempt supersedes what older attempts of the operation wrote, in all streams of the run.
/// Attempts that are older are refused. Chunks of other operations and of the workflow stay.
pub async fn a_newer_attempt_supersedes_older_ones(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    let (old, new) = (worker.attempt(4), worker.attempt(6));
    let other_op = StreamWrite { op: OpNumber(2), ..new_write(run, worker.attempt(5), 0, 1) };
    worker.write_done(new_write(run, old, 0, 2)).await;
    worker.write_done(other_op).await;
    worker.write_done(StreamWrite { stream: "t".into(), ..new_write(run, old, 0, 1) }).await;
    worker.write_done(new_write(run, new, 0, 1)).await;
    assert_eq!(case.lines(run).await, ["!0 0", "!1 1", "2 0", "3 restarted from 0", "4 0"]);
    assert_eq!(lines(&case.page(run, "t").await), ["!0 0", "1 restarted from 0"]);
    assert_refused!(worker.write(new_write(run, old, 2, 1)).await, Fenced);
    assert_refused!(
        worker.write(StreamWrite { stream: "u".into(), ..new_write(run, old, 0, 1) }).await,
        Fenced
    );
    worker.write_done(new_write(run, new, 0, 2)).await;
    worker.write_done(new_write(run, worker.attempt(7), 0, 1)).await;
    let page = case.lines(run).await;
    assert_eq!(page[3..], ["!3 restarted from 0", "!4 0", "!5 1", "6 restarted from 4", "7 0"]);
}

/// After a takeover the attempts of the new holder are the newer ones, whatever their ids.
pub async fn an_attempt_of_the_next_holder_is_newer(case: Case) {
    let heir = case.join("wf").await;
    let doomed = case.join_elsewhere("wf").await;
    let run = case.start("wf").await;
    doomed.claim_one().await;
    let lost = doomed.attempt(9);
    doomed.write_done(new_write(run, lost, 0, 3)).await;
    case.crash(doomed).await;
    heir.takeover().await;
    heir.claim_one().await;
    assert!(heir.attempt(0) < lost, "the session of the heir is older");
    heir.write_done(new_write(run, heir.attempt(0), 0, 2)).await;
    assert_eq!(case.lines(run).await, ["!0 0", "!1 1", "!2 2", "3 restarted from 0", "4 0", "5 1"]);
}

/// Writes to a closed stream are only counted. A newer attempt of the step that closed it opens it again.
pub async fn a_closed_stream_counts_later_writes(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    let attempt = worker.attempt(0);
    worker.write_done(StreamWrite { closes: true, ..new_write(run, attempt, 0, 1) }).await;
    let late = worker.write_done(new_write(run, attempt, 1, 2)).await;
    assert!(late.is_closed);
    worker.write_done(new_write(run, attempt, 1, 2)).await;
    let stream = case.stream(run, "s").await;
    assert_eq!((stream.end, stream.late, stream.is_closed), (1, 2, true));
    let other = StreamWrite { op: OpNumber(2), ..new_write(run, worker.attempt(1), 0, 1) };
    assert!(worker.write_done(other).await.is_closed, "another step does not open it");
    worker.write_done(new_write(run, worker.attempt(2), 0, 1)).await;
    assert_eq!(case.lines(run).await, ["!0 0", "1 restarted from 0", "2 0"]);
    assert!(!case.stream(run, "s").await.is_closed);
}

/// The end of a run closes its streams without a write.
pub async fn the_end_of_a_run_closes_its_streams(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    worker.write_done(new_write(claimed.run, worker.attempt(0), 0, 1)).await;
    assert!(!case.page(claimed.run, "never").await.is_closed);
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    let page = case.page(claimed.run, "s").await;
    assert!(page.is_closed && page.end == 1, "{page:?}");
    assert!(case.stream(claimed.run, "s").await.is_closed);
    let never = case.page(claimed.run, "never").await;
    assert!(never.is_closed && never.entries.is_empty(), "{never:?}");
}

/// Pages begin at an index or count from the end, and have at most as many entries as asked for.
pub async fn pages_are_read_by_index(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    for first in [0, 4, 8] {
        worker.write_done(new_write(run, worker.attempt(0), first, 4)).await;
    }
    for (from, limit, expected) in [
        (0, 3, 0..3),
        (3, 3, 3..6),
        (-2, 10, 10..12),
        (-50, 2, 0..2),
        (12, 5, 12..12),
        (99, 5, 12..12),
        (5, 100, 5..12),
    ] {
        let page = case.world.chunks(run, "s", from, limit).await.unwrap();
        let indexes: Vec<_> = page.entries.iter().map(|entry| entry.index).collect();
        assert_eq!(indexes, expected.clone().collect::<Vec<_>>(), "from {from}");
        assert_eq!((page.next, page.end), (expected.end, 12), "from {from}");
        assert!(lines(&page).iter().all(|line| line.split(' ').next() == line.split(' ').next_back()));
    }
    let unknown = case.world.chunks(RunId::from_bits(case.id()), "s", 0, 1).await;
    assert_refused!(unknown, NotFound);
    assert_refused!(case.world.streams(RunId::from_bits(case.id())).await, NotFound);
}

/// A stream keeps its last entries if it is asked to.
pub async fn a_stream_keeps_its_last_entries(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    let attempt = worker.attempt(0);
    worker.write_done(new_write(run, attempt, 0, 5)).await;
    worker.write_done(StreamWrite { keep_last: Some(3), ..new_write(run, attempt, 5, 1) }).await;
    assert_eq!(case.lines(run).await, ["3 3", "4 4", "5 5"]);
    worker.write_done(new_write(run, attempt, 6, 4)).await;
    assert_eq!(case.lines(run).await, ["7 7", "8 8", "9 9"]);
    let stream = case.stream(run, "s").await;
    assert_eq!((stream.first, stream.end, stream.keep_last), (7, 10, Some(3)));
    worker.write_done(new_write(run, worker.attempt(1), 0, 1)).await;
    assert_eq!(case.lines(run).await, ["!9 9", "10 restarted from 0", "11 0"]);
}

/// A run has a limited number of streams; others stay usable.
pub async fn the_number_of_streams_is_limited(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    let write = |name: u64| StreamWrite {
        stream: format!("s{name}").into(),
        ..new_write(run, worker.attempt(0), 0, 1)
    };
    let answers = worker.world.write_chunks(worker.session, (0..STREAMS_MAX).map(write).collect()).await;
    assert!(answers.unwrap().iter().all(Result::is_ok));
    assert_refused!(worker.write(write(STREAMS_MAX)).await, Limit);
    let again = StreamWrite { first: 1, chunks: chunks(1, 1), ..write(0) };
    worker.write_done(again).await;
    assert_eq!(case.world.streams(run).await.unwrap().len() as u64, STREAMS_MAX);
    const { assert!(STREAM_CHUNKS_MAX > CHUNKS_READ_MAX as u64) };
}

/// Streams are listed by name.
pub async fn streams_are_listed_by_name(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    assert_eq!(case.world.streams(run).await.unwrap(), []);
    for name in ["b", "a", "ö"] {
        worker
            .write_done(StreamWrite { stream: name.into(), ..new_write(run, worker.attempt(0), 0, 1) })
            .await;
    }
    let names: Vec<_> = case.world.streams(run).await.unwrap();
    assert_eq!(names.iter().map(|stream| &*stream.name).collect::<Vec<_>>(), ["a", "b", "ö"]);
}

/// What a workflow writes is stored with its turn, once: a repeated turn and a refused one write nothing.
pub async fn chunks_of_a_workflow_are_part_of_its_turn(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    let run = claimed.run;
    let turn = appending(appending(case.turn(&claimed).steps(1), append("s", 0, 2)), append("t", 0, 1));
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.lines(run).await, ["0 0", "1 1"]);
    assert_eq!(lines(&case.page(run, "t").await), ["0 0"]);
    let origins = case.page(run, "s").await.entries;
    assert!(origins.iter().all(|entry| entry.origin == ChunkOrigin::Workflow));
    let refused = Turn { id: outlast_core::TurnId::from_bits(case.id()), ..turn };
    assert_refused!(worker.commit(refused).await, Fenced);
    worker.write_done(new_write(run, worker.attempt(0), 0, 1)).await;
    worker.write_done(new_write(run, worker.attempt(1), 0, 1)).await;
    let expected = ["0 0", "1 1", "!2 0", "3 restarted from 2", "4 0"];
    assert_eq!(case.lines(run).await, expected, "a restart does not concern the workflow");
}

/// A turn that starts its run can write, and a workflow can close and limit a stream and count what it dropped.
pub async fn a_workflow_closes_and_limits_streams(case: Case) {
    let worker = case.join("wf").await;
    let start = case.new_start("wf");
    let run = start.run;
    let append = StreamAppend { keep_last: Some(2), closes: true, dropped: 3, late: 4, ..append("s", 0, 5) };
    let turn = appending(case.starting_turn(start), append);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn).await;
    assert_eq!(case.lines(run).await, ["3 3", "4 4"]);
    let stream = case.stream(run, "s").await;
    assert_eq!((stream.dropped, stream.late, stream.is_closed), (3, 4, true));
    worker.write_done(new_write(run, worker.attempt(0), 0, 1)).await;
    assert_eq!(case.stream(run, "s").await.late, 5);
}

/// The last published state is kept, also after the end of the run. States that were too large are counted.
pub async fn the_last_published_state_is_kept(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    let run = claimed.run;
    assert_eq!(case.world.published(run).await.unwrap().state, None);
    let first = publishing(case.turn(&claimed).steps(1), None, 2);
    worker.commit_done(first.clone()).await;
    let state = case.world.published(run).await.unwrap().state.unwrap();
    assert_eq!((state.payload, state.version, state.dropped), (None, 0, 2));
    let coded = Payload::coded("zip", vec![0, 159, 146, 150]);
    let second = publishing(case.turn_after(&first).steps(1), Some(coded.clone()), 0);
    worker.commit_done(second.clone()).await;
    worker.commit_done(second.clone()).await;
    let state = case.world.published(run).await.unwrap().state.unwrap();
    assert_eq!((state.payload, state.version, state.dropped), (Some(coded), 1, 2));
    case.clock.advance("1s");
    let end = publishing(case.turn_after(&second), Some(text("done")), 1).completing("out");
    worker.commit_done(end).await;
    let view = case.world.published(run).await.unwrap();
    let state = view.state.unwrap();
    assert_eq!((state.payload, state.version, state.dropped), (Some(text("done")), 2, 3));
    assert!(view.has_ended && state.at == case.clock.now());
    assert_refused!(case.world.published(RunId::from_bits(case.id())).await, NotFound);
}

/// A watch reports chunks, states and the end of its run.
pub async fn a_watch_reports_every_change_of_its_run(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    let mut watch = case.world.watch(claimed.run);
    worker.write_done(new_write(claimed.run, worker.attempt(0), 0, 1)).await;
    drop(watch.changed().await);
    let turn = publishing(case.turn(&claimed).steps(1), Some(text("x")), 0);
    worker.commit_done(turn.clone()).await;
    drop(watch.changed().await);
    worker.commit_done(case.turn_after(&turn).completing("out")).await;
    drop(watch.changed().await);
}

/// A pruned run loses its streams and its state. A new run with the same id has none of them.
pub async fn pruning_deletes_streams_and_states(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    let run = claimed.run;
    worker.write_done(new_write(run, worker.attempt(0), 0, 3)).await;
    let end = publishing(case.turn(&claimed).completing("out"), Some(text("x")), 0);
    worker.commit_done(end).await;
    case.clock.advance("1h");
    case.world.prune(case.clock.now(), None, 100).await.unwrap();
    assert_refused!(case.world.chunks(run, "s", 0, 1).await, NotFound);
    case.try_start(outlast_core::Start { run, ..case.new_start("wf") }).await.unwrap();
    assert_eq!(case.world.streams(run).await.unwrap(), []);
    assert_eq!(case.world.published(run).await.unwrap().state, None);
    worker.claim_one().await;
    worker.write_done(new_write(run, worker.attempt(1), 0, 1)).await;
    assert_eq!(case.lines(run).await, ["0 0"]);
}
