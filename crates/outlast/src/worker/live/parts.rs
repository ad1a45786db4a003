//! Parts of a turn: a workflow that asks for thousands of operations at once must not keep all other runs waiting while
//! one transaction stores them.
//!
//! A turn can be cut between what the workflow asked for after the last thing that it was told: a history that ends
//! there is one that any worker goes on with. Its future asks for the rest again, and the next turn records that (see
//! `replay/unrecorded.rs`). So the first part has everything that the run was told and all that follows from that: consumed
//! messages, fired timers, columns of the row. The others have only requests, each with the children that it starts. Only the
//! last part lets go of the run or ends it.
//!
//! Attempts begin after the last part. So does everything else that follows a turn, except for what a part alone says:
//! heartbeats and attempts of the steps that it drops.

use std::collections::VecDeque;

use outlast_core::turn::BasedOn;
use outlast_core::{Event, NewChild, NewMessage, Outbox, Tags, Then, Timestamp, Turn, TurnColumns, TurnId};

use super::{Gone, Live, Next};
use crate::ids;

impl Live<'_> {
    /// Commits the other parts of a turn. Answers how to go on when one was refused and is to be computed again.
    pub(super) async fn commit_rest(&mut self, rest: Vec<Turn>) -> Result<Option<Next>, Gone> {
        for part in rest {
            // Rare, and large: not in the state of every run.
            if let Some(again) = Box::pin(self.commit(part, &[], 0)).await? {
                return Ok(Some(again));
            }
        }
        Ok(None)
    }
}

/// What belongs to the first part of a turn.
#[derive(Clone, Copy, Default)]
pub(super) struct First {
    /// The messages up to this position: those behind it came to nothing after all that the turn asked for.
    pub(super) consumed: u64,
    /// The timers, in the same way.
    pub(super) fired_until: Option<Timestamp>,
    /// How many messages to other runs are older than the last thing that the run was told.
    pub(super) settled_messages: usize,
}

/// Cuts a turn into parts, if it has more than `max` requests after what the run was told.
pub(super) fn split(mut turn: Turn, first: First, max: usize) -> (Turn, Vec<Turn>) {
    if turn.events.len() <= max {
        return (turn, Vec::new());
    }
    let mut told = turn.events.iter().rposition(|event| !event.is_decision()).map_or(0, |place| place + 1);
    if turn.events.len() - told <= max {
        return (turn, Vec::new());
    }
    let mut parts = VecDeque::new();
    let mut events = std::mem::take(&mut turn.events).into_iter();
    if matches!(turn.based_on, BasedOn::Start(_)) {
        // Whoever finds a run with nothing else begins it.
        let columns = turn.columns.clone();
        turn.columns = TurnColumns::unchanged(columns.before.clone());
        let id = turn.id;
        parts.push_back(cut_off(&mut turn, id, events.by_ref().take(1).collect(), None));
        turn.columns = columns;
        told -= 1;
    }
    turn.events = events.collect();
    cut(turn, told, first, max, &mut parts);
    match parts.pop_front() {
        Some(first) => (first, parts.into()),
        None => unreachable!("a turn has a part"),
    }
}

/// Cuts a turn behind its first `told` events.
fn cut(mut turn: Turn, told: usize, first: First, max: usize, parts: &mut VecDeque<Turn>) {
    // The answers of patches have no place among the operations, and a replay must know all that the turn relied on.
    let is_patch = |event: &Event| matches!(event, Event::VersionChosen { .. });
    turn.events[told..].sort_by_key(|event| !is_patch(event));
    let patches = turn.events[told..].iter().take_while(|event| is_patch(event)).count();
    let mut count = (told + patches).max(max);
    let (consumed, fired_until) = (turn.consumed, turn.fired_until);
    (turn.consumed, turn.fired_until) = (first.consumed, first.fired_until);
    let mut entries = Entries::of(turn.outbox.take(), first.settled_messages);
    let mut events = std::mem::take(&mut turn.events).into_iter();
    while events.len() > count {
        let events: Vec<_> = events.by_ref().take(count).collect();
        let (id, outbox) = (turn.id.continued(), entries.take_of(&events));
        parts.push_back(cut_off(&mut turn, id, events, outbox));
        count = max;
    }
    turn.events = events.collect();
    turn.outbox = entries.rest();
    turn.consumed = consumed;
    turn.fired_until = fired_until.filter(|_| fired_until != first.fired_until);
    parts.push_back(turn);
}

/// The part of a turn that has these events. The rest of the turn follows it.
fn cut_off(turn: &mut Turn, id: TurnId, events: Vec<Event>, outbox: Option<Box<Outbox>>) -> Turn {
    let part = Turn {
        run: turn.run,
        id,
        based_on: std::mem::replace(&mut turn.based_on, BasedOn::Turn(id)),
        seq: turn.seq,
        at: turn.at,
        build: turn.build.clone(),
        events,
        consumed: turn.consumed,
        fired_until: turn.fired_until.take(),
        columns: turn.columns.clone(),
        outbox,
        then: Then::Hold,
    };
    turn.id = ids::turn();
    turn.seq = part.next_event();
    turn.columns = TurnColumns::unchanged(part.held_columns());
    part
}

/// What a turn does to other runs, as far as no part has it.
struct Entries {
    /// In the order in which they were asked for.
    children: VecDeque<NewChild>,
    /// For the first part: a replay up to what the run was told last does not ask for them again.
    settled: Vec<NewMessage>,
    /// For the last part, when all children are there: some of these may be for them.
    messages: Vec<NewMessage>,
    /// For the first part: they have no event, and a replay sets them again.
    tags: Tags,
}

impl Entries {
    fn of(outbox: Option<Box<Outbox>>, settled_messages: usize) -> Self {
        let Outbox { children, messages: mut settled, tags } =
            outbox.map_or_else(Outbox::default, |outbox| *outbox);
        let messages = settled.split_off(settled_messages.min(settled.len()));
        Self { children: children.into(), settled, messages, tags }
    }

    /// Those that belong to a part with these events.
    fn take_of(&mut self, events: &[Event]) -> Option<Box<Outbox>> {
        let started = |event: &Event| matches!(event, Event::ChildStarted(_) | Event::StepStarted { .. });
        let last = events.iter().filter(|event| started(event)).filter_map(Event::op).max();
        let is_in = |child: &NewChild| child.start.parent.map(|parent| parent.op) <= last;
        let count = self.children.iter().take_while(|child| is_in(child)).count();
        let children = self.children.drain(..count).collect();
        let (messages, tags) = (std::mem::take(&mut self.settled), std::mem::take(&mut self.tags));
        let outbox = Outbox { children, messages, tags };
        (!outbox.is_empty()).then(|| Box::new(outbox))
    }

    /// Those that no part has yet.
    fn rest(self) -> Option<Box<Outbox>> {
        let Self { children, settled: mut messages, messages: last, tags } = self;
        messages.extend(last);
        let outbox = Outbox { children: children.into(), messages, tags };
        (!outbox.is_empty()).then(|| Box::new(outbox))
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::turn::LastTurn;
    use outlast_core::{HolderColumns, MessageBody, MessageId, OpNumber, Payload, RunId};

    use super::*;

    fn message(run: u128) -> NewMessage {
        let (id, run) = (MessageId::from_bits(run), RunId::from_bits(run));
        NewMessage { id, run, body: MessageBody::Wake { op: None }, headers: Default::default() }
    }

    /// A turn that was told something, fired a timer, and asks for seven timers.
    fn turn() -> Turn {
        let last = LastTurn::new(RunId::from_bits(1), TurnId::from_bits(2), 5);
        let at = Timestamp::from_micros(9);
        let timer = |op| Event::TimerStarted { op: OpNumber(op), fire_at: at };
        let told = Event::StepCompleted { op: OpNumber(0), output: Payload::null() };
        let events = [told].into_iter().chain((1..8).map(timer));
        let patch = Event::VersionChosen { name: "patch".into() };
        let before = last.columns.clone();
        Turn {
            events: events.chain([patch]).collect(),
            consumed: 3,
            fired_until: Some(at),
            columns: TurnColumns::changed(
                before,
                HolderColumns { crashes: 0, kept: 4, ..Default::default() },
            ),
            outbox: Some(Box::new(Outbox { messages: vec![message(1), message(2)], ..Outbox::default() })),
            then: Then::Wait { wake_at: Some(at), waits: Vec::new() },
            ..Turn::following(&last, TurnId::from_bits(3), at, "b".into())
        }
    }

    #[test]
    fn the_first_part_has_what_the_run_was_told_and_only_the_last_lets_go_of_it() {
        let whole = turn();
        let belongs = First { consumed: 2, fired_until: whole.fired_until, settled_messages: 1 };
        let (first, rest) = split(whole.clone(), belongs, 3);
        let parts: Vec<_> = std::iter::once(first).chain(rest).collect();
        let sizes: Vec<_> = parts.iter().map(|part| part.events.len()).collect();
        assert_eq!(sizes, [3, 3, 3]);
        assert!(matches!(parts[0].events[1], Event::VersionChosen { .. }), "a replay must know it");
        let continued: Vec<_> = parts.iter().map(|part| part.id.is_continued()).collect();
        assert_eq!(continued, [true, true, false]);
        assert_eq!(parts[0].based_on, whole.based_on);
        for pair in parts.windows(2) {
            assert_eq!(pair[1].based_on, BasedOn::Turn(pair[0].id));
            assert_eq!(pair[1].seq, pair[0].next_event());
            assert_eq!(pair[0].then, Then::Hold);
            assert_eq!(pair[1].columns.before, pair[0].columns.after);
        }
        assert!(parts.iter().all(|part| part.columns.after.kept == 4));
        let consumed: Vec<_> = parts.iter().map(|part| part.consumed).collect();
        assert_eq!(
            consumed,
            [2, 2, 3],
            "what came to nothing is not consumed before what it came to nothing after"
        );
        let fired: Vec<_> = parts.iter().map(|part| part.fired_until).collect();
        assert_eq!(fired, [whole.fired_until, None, None]);
        let sent = |part: &Turn| part.outbox.as_ref().map(|outbox| outbox.messages[0].run.bits());
        assert_eq!(parts.iter().map(sent).collect::<Vec<_>>(), [Some(1), None, Some(2)]);
        assert_eq!(parts[2].then, whole.then);
    }

    #[test]
    fn a_turn_that_asks_for_little_is_whole() {
        let whole = turn();
        assert_eq!(split(whole.clone(), First::default(), 8), (whole.clone(), Vec::new()));
        let told = Event::StepCompleted { op: OpNumber(0), output: Payload::null() };
        let mut told_last = whole;
        told_last.events.push(told);
        assert_eq!(
            split(told_last.clone(), First::default(), 1),
            (told_last, Vec::new()),
            "all of it may follow from that"
        );
    }
}
