//! Cuts: events that make a replay skip a part of the history.
//!
//! A cut event names the first event that a replay skips; the skipped range ends before the cut event itself. It
//! carries everything that outlives the range, so that a replay can begin with it: the parameters of the start, the
//! number of the next operation, the children that have not ended, and the places of payloads that no hook has taken.
//!
//! [`ReplayHistory`] is the only code that decides what is skipped. Everything that reads a history for a replay uses
//! it: the replay itself, with its recorded values and patches, and the end of a run without its code. Views and
//! exports show all events.
//!
//! A claim loads only the turns from [`replay_from`](crate::HolderColumns::replay_from) on. The turns with payloads that
//! earlier generations have received are read by their places, and those before a loop by their numbers
//! ([`missing_turns`]).

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::{Event, OpNumber, RunStarted, TurnRecord};
use crate::id::RunId;
use crate::iteration::{IterationCut, IterationEnded, SkippedRange};
use crate::run::{ParentEnd, read_text, write_text};
use crate::time::Timestamp;
use crate::token::CarriedToken;

/// The beginning of a generation: a run continues with another input and without the history of its past.
#[derive(Clone, Debug, PartialEq)]
pub struct RunContinued {
    /// The number of the first event that a replay skips.
    pub skips_from: u64,
    /// The number of the generation that begins. The first one, which `run_started` begins, has the number 1.
    pub generation: u64,
    /// The number of its first operation. Numbers are never used twice in the life of a run.
    pub next_op: OpNumber,
    /// The start of the run, with the input, version and tags of this generation.
    pub started: RunStarted,
    /// The children of earlier generations that have not ended.
    pub children: Vec<CarriedChild>,
    /// Where the payloads are that no hook has taken, in the order of their arrival.
    pub kept: Vec<EventPlace>,
    /// How often the same input has failed before, when the run is retried.
    pub failed_tries: u32,
    /// The first events of the turns with which the previous generations began that are not deleted, in order.
    pub previous: Vec<u64>,
    /// The tokens that earlier generations have taken and that the run still holds.
    pub tokens: Vec<CarriedToken>,
}

impl RunContinued {
    /// The beginning of the first generation of a run.
    pub fn of_start(started: RunStarted) -> Self {
        let next_op = OpNumber(0);
        Self {
            skips_from: 0,
            generation: 1,
            next_op,
            started,
            children: Vec::new(),
            kept: Vec::new(),
            failed_tries: 0,
            previous: Vec::new(),
            tokens: Vec::new(),
        }
    }
}

/// A child that has not ended at a cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CarriedChild {
    /// The operation that requested it. It is not open any more.
    #[serde(with = "op_as_number")]
    pub op: OpNumber,
    /// The child.
    pub run: RunId,
    /// Its workflow's name.
    #[serde(serialize_with = "write_text", deserialize_with = "read_text")]
    pub workflow: Arc<str>,
    /// What happens to it when the run ends first.
    pub on_parent_end: ParentEnd,
    /// Whether a cancel of the run does not reach it.
    #[serde(default, rename = "shielded", skip_serializing_if = "std::ops::Not::not")]
    pub is_shielded: bool,
}

/// The place of an event in a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EventPlace {
    /// The number of the first event of its turn.
    pub turn: u64,
    /// Its own number.
    pub event: u64,
}

/// The part of a history that a replay needs.
#[derive(Clone, Debug)]
pub struct ReplayHistory {
    /// The beginning of the last generation.
    pub begin: RunContinued,
    /// The time of the turn with that event.
    pub begun_at: Timestamp,
    /// The payloads that earlier generations received and that no hook has taken, as `hook_received` events.
    pub kept: Vec<KeptEvent>,
    /// The turn with the beginning, and all later turns.
    pub turns: Vec<TurnRecord>,
    /// The numbers of the events of these turns that a replay skips, in order. The first range includes the beginning.
    pub skips: Vec<Range<u64>>,
    /// Where a replay continues after iterations that it skips, in order.
    pub resumes: Vec<LoopResume>,
}

/// The event of a payload that no hook has taken.
#[derive(Clone, Debug)]
pub struct KeptEvent {
    /// Its place in the history.
    pub place: EventPlace,
    /// The time of its turn.
    pub at: Timestamp,
    /// The event, a `hook_received`.
    pub event: Event,
}

/// Where a replay continues after iterations that it skips.
#[derive(Clone, Debug)]
pub struct LoopResume {
    /// The operation of the last event before the skipped range.
    pub after: OpNumber,
    /// The time of the turn with the cut.
    pub at: Timestamp,
    /// The cut.
    pub ended: IterationEnded,
    /// The payloads that no hook had taken.
    pub kept: Vec<KeptEvent>,
}

impl ReplayHistory {
    /// The part of `history` that a replay needs. `history` need not contain turns that a replay skips, except those
    /// with kept payloads.
    ///
    /// # Errors
    ///
    /// What is wrong with the history, for a person: "lacks event 7 …".
    pub fn of(mut history: Vec<TurnRecord>) -> Result<Self, String> {
        let parts = ReplayedParts::of(&history)?;
        let ReplayedParts { turn, index, skips, cuts } = parts;
        let begin = match &history[turn].events[index] {
            Event::RunContinued(continued) => (**continued).clone(),
            Event::RunStarted(started) => RunContinued::of_start((**started).clone()),
            _ => return Err(NO_BEGINNING.into()),
        };
        let kept_of = |places: &[EventPlace]| -> Result<Vec<_>, String> {
            places.iter().map(|place| kept_event(&history, *place)).collect()
        };
        let kept = kept_of(&begin.kept)?;
        let mut resumes = Vec::new();
        for (after, turn, index) in cuts {
            let Event::IterationEnded(ended) = &history[turn].events[index] else { continue };
            let places = ended.cut.as_ref().map_or(&[][..], |cut| &cut.kept);
            let (at, kept) = (history[turn].at, kept_of(places)?);
            resumes.push(LoopResume { after, at, ended: (**ended).clone(), kept });
        }
        let turns = history.split_off(turn);
        Ok(Self { begun_at: turns[0].at, begin, kept, turns, skips, resumes })
    }

    /// The events after the beginning.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.turns_with_events().flat_map(|(_, events)| events)
    }

    /// The turns, and for each the events that a replay does not skip.
    pub fn turns_with_events(&self) -> impl Iterator<Item = (&TurnRecord, impl Iterator<Item = &Event>)> {
        self.turns.iter().map(|turn| {
            let numbered = (turn.seq..).zip(&turn.events);
            (turn, numbered.filter(|(number, _)| !is_skipped(&self.skips, *number)).map(|(_, event)| event))
        })
    }
}

/// Whether an event is in one of these ranges.
pub fn is_skipped(skips: &[Range<u64>], number: u64) -> bool {
    skips.iter().any(|skip| skip.contains(&number))
}

/// The beginning of the last generation and the events after it that a replay does not skip, without kept payloads.
/// `None` when the history has no beginning.
pub fn last_generation(
    history: &[TurnRecord],
) -> Option<(&RunStarted, &[CarriedChild], impl Iterator<Item = &Event>)> {
    let ReplayedParts { turn, index, skips, .. } = ReplayedParts::of(history).ok()?;
    let (started, children): (_, &[CarriedChild]) = match &history[turn].events[index] {
        Event::RunContinued(continued) => (&continued.started, &continued.children),
        Event::RunStarted(started) => (started, &[]),
        _ => return None,
    };
    let numbered = history[turn..].iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
    let since = numbered.filter(move |(number, _)| !is_skipped(&skips, *number)).map(|(_, event)| event);
    Some((started, children, since))
}

/// The numbers of the events that a replay skips, including the beginning of the last generation. Empty when the history
/// has no beginning.
pub fn skipped_events(history: &[TurnRecord]) -> Vec<Range<u64>> {
    let Ok(parts) = ReplayedParts::of(history) else { return Vec::new() };
    let begin = history[parts.turn].seq + parts.index as u64;
    let mut skips = parts.skips;
    if let Some(first) = skips.first_mut() {
        *first = 0..begin;
    }
    skips
}

/// The turns that a replay needs and `history` does not contain, by the numbers of their first events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingTurns {
    /// Turns with kept payloads.
    pub single: BTreeSet<u64>,
    /// Turns before and between iterations that are skipped.
    pub ranges: Vec<RangeInclusive<u64>>,
}

impl MissingTurns {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.single.is_empty() && self.ranges.is_empty()
    }
}

/// The turns that a replay needs and `history` does not contain. Turns that are added may need others, once.
pub fn missing_turns(history: &[TurnRecord]) -> MissingTurns {
    let Some((turn, index)) = last_cut(history) else { return MissingTurns::default() };
    // A range is read as a whole, and its first turn always exists.
    let has = |range: &RangeInclusive<u64>| history.iter().any(|turn| turn.seq == *range.start());
    let ranges: Vec<_> = match &history[turn].events[index] {
        Event::IterationEnded(ended) => {
            let needed = ended.cut.as_ref().map_or_else(Vec::new, IterationCut::needed_turns);
            needed.into_iter().filter(|range| !has(range)).collect()
        }
        _ => Vec::new(),
    };
    let mut places: Vec<EventPlace> = Vec::new();
    match ReplayedParts::of(history) {
        Ok(parts) => {
            let cuts = parts.cuts.iter().map(|(_, turn, index)| (*turn, *index));
            for (turn, index) in cuts.chain([(parts.turn, parts.index)]) {
                places.extend(kept_places(&history[turn].events[index]));
            }
        }
        Err(_) => places.extend(kept_places(&history[turn].events[index])),
    }
    let is_missing = |seq: &u64| history.binary_search_by_key(seq, |turn| turn.seq).is_err();
    let single = places.into_iter().map(|place| place.turn).filter(is_missing).collect();
    MissingTurns { single, ranges }
}

/// The places of the payloads that a cut keeps.
pub fn kept_places(cut: &Event) -> &[EventPlace] {
    match cut {
        Event::RunContinued(continued) => &continued.kept,
        Event::IterationEnded(ended) => ended.cut.as_ref().map_or(&[], |cut| &cut.kept),
        _ => &[],
    }
}

const NO_BEGINNING: &str = "does not begin with `run_started`";

/// Which parts of a history a replay reads, as indexes of turns and events.
struct ReplayedParts {
    /// The event with which the generation begins.
    turn: usize,
    index: usize,
    /// The events of the generation that are skipped. The first range includes the beginning.
    skips: Vec<Range<u64>>,
    /// For each range of skipped iterations: the operation before it, and the cut.
    cuts: Vec<(OpNumber, usize, usize)>,
}

impl ReplayedParts {
    fn of(history: &[TurnRecord]) -> Result<Self, String> {
        let mut parts = Self::of_generation(history)?;
        parts.skips.extend(retried_ranges(history));
        Ok(parts)
    }

    fn of_generation(history: &[TurnRecord]) -> Result<Self, String> {
        let last = last_cut(history);
        let cut = last.and_then(|(turn, index)| match &history[turn].events[index] {
            Event::IterationEnded(ended) => ended.cut.as_ref(),
            _ => None,
        });
        let first = || matches!(history.first()?.events.first()?, Event::RunStarted(_)).then_some((0, 0));
        let Some(cut) = cut else {
            let (turn, index) = last.or_else(first).ok_or(NO_BEGINNING)?;
            let skips = std::iter::once(history[turn].seq..history[turn].seq + index as u64 + 1).collect();
            return Ok(Self { turn, index, skips, cuts: Vec::new() });
        };
        let turn = history
            .binary_search_by_key(&cut.begin, |turn| turn.seq)
            .map_err(|_| format!("lacks event {}, the beginning of a generation with a loop", cut.begin))?;
        let is_beginning = |event: &Event| matches!(event, Event::RunContinued(_) | Event::RunStarted(_));
        let index = history[turn].events.iter().rposition(is_beginning).ok_or(NO_BEGINNING)?;
        let mut parts = Self { turn, index, skips: Vec::new(), cuts: Vec::new() };
        parts.skips.push(history[turn].seq..history[turn].seq + index as u64 + 1);
        for skip in &cut.skips {
            parts.add_skip(history, skip)?;
        }
        Ok(parts)
    }

    fn add_skip(&mut self, history: &[TurnRecord], skip: &SkippedRange) -> Result<(), String> {
        let lacks = |op: OpNumber| format!("lacks operation {op} of a loop");
        let is_of_loop = |event: &Event, op: OpNumber| {
            matches!(event, Event::LoopStarted { .. } | Event::IterationEnded(_)) && event.op() == Some(op)
        };
        let find = |first_turn: u64, op: OpNumber| {
            let from = history.partition_point(|turn| turn.seq < first_turn);
            history.iter().enumerate().skip(from).find_map(|(turn, record)| {
                let index = record.events.iter().position(|event| is_of_loop(event, op))?;
                Some((turn, index))
            })
        };
        let (turn, index) = find(skip.after_turn, skip.after).ok_or_else(|| lacks(skip.after))?;
        let after = history[turn].seq + index as u64;
        let (turn, index) = find(skip.until_turn, skip.until).ok_or_else(|| lacks(skip.until))?;
        self.skips.push(after + 1..history[turn].seq + index as u64);
        self.cuts.push((skip.after, turn, index));
        Ok(())
    }
}

/// The indexes of the turn and of the event with the last cut that begins a generation or ends an iteration, and that
/// no retry has made skipped.
fn last_cut(history: &[TurnRecord]) -> Option<(usize, usize)> {
    let retried = retried_ranges(history);
    history.iter().enumerate().rev().find_map(|(index, turn)| {
        let is_cut = |at: &usize| turn.events[*at].is_cut() && !is_skipped(&retried, turn.seq + *at as u64);
        Some((index, (0..turn.events.len()).rev().find(is_cut)?))
    })
}

/// The events that retries of the run have made skipped: each range ends before its `run_retried`. A later retry may
/// skip an earlier one; the ranges are in order and do not overlap.
pub fn retried_ranges(history: &[TurnRecord]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let numbered = history.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
    for (number, event) in numbered {
        if let Event::RunRetried(retried) = event {
            ranges.retain(|range| range.end <= retried.from);
            ranges.push(retried.from..number);
        }
    }
    ranges
}

/// The number of the first event that a replay needs, if nothing from event `before` on is replayed: the first event of
/// the turn with the last cut before it, 0 without one.
pub fn replay_from(history: &[TurnRecord], before: u64) -> u64 {
    let retried = retried_ranges(history);
    let is_cut = |turn: &&TurnRecord| {
        let numbered = (turn.seq..).zip(&turn.events);
        let mut replayed = numbered.filter(|(number, _)| *number < before && !is_skipped(&retried, *number));
        replayed.any(|(_, event)| event.is_cut())
    };
    history.iter().rfind(is_cut).map_or(0, |turn| turn.seq)
}

fn kept_event(history: &[TurnRecord], place: EventPlace) -> Result<KeptEvent, String> {
    let turn = history.iter().find(|turn| turn.seq == place.turn);
    let index = usize::try_from(place.event.saturating_sub(place.turn)).unwrap_or(usize::MAX);
    match turn.and_then(|turn| Some((turn.at, turn.events.get(index)?))) {
        Some((at, event @ Event::HookReceived { .. })) => Ok(KeptEvent { place, at, event: event.clone() }),
        _ => Err(format!("lacks event {}, a payload that no hook has taken", place.event)),
    }
}

pub(crate) mod op_as_number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::event::OpNumber;

    pub(crate) fn serialize<S: Serializer>(op: &OpNumber, serializer: S) -> Result<S::Ok, S::Error> {
        op.0.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OpNumber, D::Error> {
        u64::deserialize(deserializer).map(OpNumber)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Judgement;
    use crate::id::{MessageId, TurnId};
    use crate::message::Headers;
    use crate::payload::Payload;
    use crate::run::Tags;

    fn started(input: u64) -> RunStarted {
        RunStarted {
            workflow: "w".into(),
            version: 1,
            rules: 2,
            queue: crate::queue::default_queue(),
            priority: 0,
            key: None,
            input: Payload::json(&input).unwrap(),
            headers: Headers::new(),
            tags: Tags::new(),
            parent: None,
            deadline: None,
            policy: None,
            requester: None,
            ending: None,
            forked: None,
        }
    }

    fn received(message: u128) -> Event {
        Event::HookReceived {
            name: "h".into(),
            message: MessageId::from_bits(message),
            payload: Payload::null(),
            headers: Headers::new(),
            at: None,
            judgement: Judgement::Kept,
            to: Default::default(),
        }
    }

    fn dropped(op: u64) -> Event {
        Event::TimerCancelled { op: OpNumber(op) }
    }

    fn continued(generation: u64, kept: &[(u64, u64)]) -> Event {
        let kept = kept.iter().map(|(turn, event)| EventPlace { turn: *turn, event: *event }).collect();
        let begin = RunContinued::of_start(started(generation));
        Event::RunContinued(Box::new(RunContinued {
            generation,
            next_op: OpNumber(generation),
            kept,
            ..begin
        }))
    }

    fn turns(turns: Vec<Vec<Event>>) -> Vec<TurnRecord> {
        let mut seq = 0;
        let mut records = Vec::new();
        for events in turns {
            let next = seq + events.len() as u64;
            let (id, at) = (TurnId::from_bits(seq.into()), Timestamp::from_micros(seq as i64));
            records.push(TurnRecord { id, seq, at, build: "b".into(), events });
            seq = next;
        }
        records
    }

    /// Three generations. The second one keeps a payload of the first, which the third keeps again.
    fn history() -> Vec<TurnRecord> {
        turns(vec![
            vec![Event::from(started(1))],
            vec![dropped(0), received(7), dropped(1)],
            vec![dropped(2), continued(2, &[(1, 2)]), dropped(3)],
            vec![dropped(4), received(8)],
            vec![dropped(5), continued(3, &[(1, 2), (7, 8)]), dropped(6)],
            vec![dropped(7)],
        ])
    }

    #[test]
    fn a_replay_begins_with_the_last_cut_and_the_kept_payloads() {
        let replay = ReplayHistory::of(history()).unwrap();
        assert_eq!((replay.begin.generation, replay.begin.next_op), (3, OpNumber(3)));
        assert_eq!(replay.begun_at, Timestamp::from_micros(9));
        let kept: Vec<_> = replay.kept.iter().map(|kept| kept.event.message().unwrap().bits()).collect();
        assert_eq!(kept, [7, 8]);
        let events: Vec<_> = replay.events().cloned().collect();
        assert_eq!(events, [dropped(6), dropped(7)], "events before the cut in its own turn are skipped");
    }

    #[test]
    fn only_the_turns_from_the_cut_on_and_those_of_kept_payloads_are_needed() {
        let whole = history();
        let mut part = whole.split_at(4).1.to_vec();
        assert_eq!(missing_turns(&part).single, BTreeSet::from([1, 7]));
        assert_eq!(
            ReplayHistory::of(part.clone()).unwrap_err(),
            "lacks event 2, a payload that no hook has taken"
        );
        part.splice(0..0, [whole[1].clone(), whole[3].clone()]);
        assert!(missing_turns(&part).is_empty());
        let (all, some) = (ReplayHistory::of(whole).unwrap(), ReplayHistory::of(part).unwrap());
        assert_eq!(all.events().collect::<Vec<_>>(), some.events().collect::<Vec<_>>());
        assert_eq!((all.begin, all.kept.len()), (some.begin, some.kept.len()));
    }

    fn loop_event(op: u64, of: u64, skips: &[(u64, u64, u64, u64)], kept: &[(u64, u64)]) -> Event {
        let skips = skips.iter().map(|(after, after_turn, until, until_turn)| SkippedRange {
            after: OpNumber(*after),
            after_turn: *after_turn,
            until: OpNumber(*until),
            until_turn: *until_turn,
        });
        let skips: Vec<_> = skips.collect();
        let kept = kept.iter().map(|(turn, event)| EventPlace { turn: *turn, event: *event }).collect();
        let cut = (!skips.is_empty()).then(|| IterationCut { skips, kept, ..IterationCut::default() });
        let (op, of, state) = (OpNumber(op), OpNumber(of), Ok(Payload::null()));
        Event::IterationEnded(Box::new(IterationEnded { op, of, iteration: 1, state, cut }))
    }

    /// A loop with three iterations, of which the first is not skipped, in a generation with a payload that is kept.
    fn history_with_loop() -> Vec<TurnRecord> {
        let begun = Event::LoopStarted { op: OpNumber(1), name: "l".into() };
        turns(vec![
            vec![Event::from(started(1)), dropped(0)],
            vec![dropped(0), begun, dropped(2)],
            vec![received(7), loop_event(3, 1, &[], &[]), dropped(4)],
            vec![dropped(4), loop_event(5, 1, &[(3, 5, 5, 8)], &[(5, 5)]), dropped(6)],
            vec![dropped(6), loop_event(7, 1, &[(3, 5, 7, 11)], &[(5, 5)]), dropped(8)],
            vec![dropped(8)],
        ])
    }

    #[test]
    fn a_replay_skips_iterations_between_the_operations_that_the_last_cut_names() {
        let replay = ReplayHistory::of(history_with_loop()).unwrap();
        let ops: Vec<_> = replay.events().filter_map(Event::op).map(|op| op.0).collect();
        assert_eq!(ops, [0, 0, 1, 2, 3, 7, 8, 8], "iteration 1 is replayed, 2 and 3 are skipped");
        assert_eq!(replay.skips, [0..1, 7..12]);
        let [resume] = &replay.resumes[..] else { panic!("{:?}", replay.resumes) };
        assert_eq!((resume.after, resume.ended.op, resume.kept.len()), (OpNumber(3), OpNumber(7), 1));
        assert_eq!(resume.at, Timestamp::from_micros(11));
        assert_eq!(skipped_events(&history_with_loop()), [0..0, 7..12]);
    }

    #[test]
    fn a_replay_of_a_loop_needs_only_the_turns_before_it_and_since_its_last_cut() {
        let whole = history_with_loop();
        let tail = whole.split_at(4).1.to_vec();
        let missing = missing_turns(&tail);
        assert_eq!((missing.ranges.first(), missing.single), (Some(&(0..=5)), BTreeSet::from([5])));
        assert!(ReplayHistory::of(tail.clone()).unwrap_err().starts_with("lacks event 0"));
        // The beginning is missing even if the cut is in the turn in which the loop began.
        assert_eq!(missing_turns(&whole[1..4]).ranges.first(), Some(&(0..=5)));
        let mut part: Vec<_> = whole[..3].to_vec();
        part.extend(tail);
        assert!(missing_turns(&part).is_empty());
        let (all, some) = (ReplayHistory::of(whole).unwrap(), ReplayHistory::of(part).unwrap());
        assert_eq!(all.events().collect::<Vec<_>>(), some.events().collect::<Vec<_>>());
    }

    #[test]
    fn a_history_without_a_cut_begins_with_its_start() {
        let first = turns(vec![vec![Event::from(started(1)), dropped(0)], vec![dropped(1)]]);
        let (begun, children, events) = last_generation(&first).unwrap();
        assert_eq!((begun, children.len(), events.count()), (&started(1), 0, 2));
        let replay = ReplayHistory::of(first).unwrap();
        assert_eq!(replay.begin, RunContinued::of_start(started(1)));
        assert_eq!(replay.events().count(), 2);
        let without_start = turns(vec![vec![dropped(0)]]);
        assert!(last_generation(&without_start).is_none());
        assert_eq!(ReplayHistory::of(without_start).unwrap_err(), "does not begin with `run_started`");
    }
}
