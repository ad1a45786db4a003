//! The check of streams: a reader sees the chunks of the attempt that counts, all of them and in order.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::{ChunkOrigin, EntryBody, Event, OpNumber, StreamEntry};

use super::check::FinalRun;
use super::coverage::{Coverage, Situation};
use super::effective::Counting;
use super::environment::Environment;
use super::orchestration::STREAM;

/// The number of entries that are read: more than a run writes.
const ENTRIES_MAX: usize = 1_000;

/// The chunks of one operation that a reader presents: the execution that wrote each, and its number.
type Presented = BTreeMap<OpNumber, Vec<(u64, u8)>>;

/// Compares what a reader sees of a run with what its attempts have written.
pub(super) async fn check_streams(
    env: &Environment,
    final_run: &FinalRun,
    violations: &mut Vec<String>,
    coverage: &mut Coverage,
) {
    let run = final_run.view.id;
    if !env.profile.is_orchestrated {
        return;
    }
    let entries = match env.inner.chunks(run, STREAM, 0, ENTRIES_MAX).await {
        Ok(page) => page.entries,
        Err(error) => return violations.push(format!("the stream of run {run} cannot be read: {error}")),
    };
    if entries.iter().any(|entry| entry.is_superseded) {
        coverage.record(Situation::ChunksSuperseded);
    }
    let presented = match presented(&entries) {
        Ok(presented) => presented,
        Err(violation) => return violations.push(format!("run {run}: {violation}")),
    };
    let attempt_log = env.attempt_log.lock();
    let mut steps = BTreeSet::new();
    for Counting { number, event, .. } in final_run.effective() {
        if let Event::StepStarted { op, name, .. } = event
            && &**name == "stream_work"
        {
            steps.insert(*op);
        }
        let Event::StepCompleted { op, output } = event else { continue };
        // A fork does not copy the streams of the other run.
        if !steps.contains(op) || number < final_run.copied() {
            continue;
        }
        let output = output.decode::<u64>().unwrap_or_default();
        let Some((execution, chunks)) = attempt_log.wrote.get(&output) else { continue };
        let expected: Vec<_> = (0..*chunks).map(|chunk| (*execution, chunk)).collect();
        let seen = presented.get(op).cloned().unwrap_or_default();
        if seen != expected {
            violations.push(format!("step {op} of run {run} wrote {expected:?}, and readers see {seen:?}"));
        }
        if !seen.is_empty() {
            coverage.record(Situation::ChunksRead);
        }
    }
}

/// The chunks that a reader presents. Those of one operation are of one attempt, in the order in which it wrote them.
fn presented(entries: &[StreamEntry]) -> Result<Presented, String> {
    let mut presented = Presented::new();
    for (entry, index) in entries.iter().zip(0..) {
        if entry.index != index {
            return Err(format!("entry {index} of the stream has the number {}", entry.index));
        }
        let (ChunkOrigin::Step { op, .. }, EntryBody::Chunk(chunk)) = (&entry.origin, &entry.body) else {
            continue;
        };
        if entry.is_superseded {
            continue;
        }
        let (execution, number) =
            chunk.payload.decode().map_err(|error| format!("a chunk is damaged: {error}"))?;
        let chunks = presented.entry(*op).or_default();
        if number as usize != chunks.len() || chunks.iter().any(|(other, _)| *other != execution) {
            return Err(format!("after {chunks:?} of step {op} comes chunk {number} of {execution}"));
        }
        chunks.push((execution, number));
    }
    Ok(presented)
}

#[cfg(test)]
mod tests {
    use outlast_core::{AttemptId, ChunkContent, SessionId, Timestamp};

    use super::*;

    fn entry(index: u64, execution: u64, number: u8, is_superseded: bool) -> StreamEntry {
        StreamEntry {
            index,
            at: Timestamp::from_micros(1),
            origin: ChunkOrigin::Step {
                op: OpNumber(2),
                attempt: AttemptId::new(SessionId::from_bits(7), 1),
            },
            body: EntryBody::Chunk(ChunkContent::of(&(execution, number)).unwrap()),
            is_superseded,
        }
    }

    #[test]
    fn readers_see_the_chunks_of_one_attempt_in_order() {
        let of_two = [entry(0, 5, 0, true), entry(1, 6, 0, false), entry(2, 6, 1, false)];
        assert_eq!(presented(&of_two).unwrap()[&OpNumber(2)], [(6, 0), (6, 1)]);
        presented(&[entry(0, 5, 0, false), entry(1, 6, 1, false)]).unwrap_err();
        presented(&[entry(0, 5, 0, false), entry(1, 5, 0, false)]).unwrap_err();
        presented(&[entry(0, 5, 0, false), entry(2, 5, 1, false)]).unwrap_err();
    }
}
