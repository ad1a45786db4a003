//! Parts of a turn: when a workflow requests thousands of operations at once, other runs must not wait while a single
//! transaction stores them.
//!
//! A turn can be split between the requests that follow its last delivery: any worker can continue a history that ends
//! there. Its future requests the rest again, and the next turn records that (`has_unrecorded` of the machine). So the
//! first part contains all deliveries and their consequences: consumed messages, fired timers, columns of the row. The
//! other parts contain only requests, each with the children that it starts. Only the last part releases the run or
//! ends it.
//!
//! Attempts begin after the last part, and so does everything else that follows a turn, with one exception: the
//! heartbeats and attempts of dropped steps are handled with the part that drops them.

use std::collections::{BTreeSet, VecDeque};

use outlast_core::turn::BasedOn;
use outlast_core::{
    Event, FreedToken, NewChild, NewMessage, NewReply, NewToken, OpNumber, Outbox, Tags, Then, Timestamp,
    TokenChanges, Turn, TurnColumns, TurnId, WorkflowWrites,
};

use crate::ids;

/// The consumed messages and timers, and the sent messages, that belong to the first part of a turn.
#[derive(Clone, Copy, Default)]
pub(super) struct FirstPart {
    /// The position of the last message that had an effect. Later messages belong to the last part: they must not be
    /// consumed before the requests that precede them are stored.
    pub(super) consumed: u64,
    /// The time up to which timers had an effect.
    pub(super) fired_until: Option<Timestamp>,
    /// The number of messages to other runs that were sent before the last delivery.
    pub(super) settled_messages: usize,
}

/// Splits a turn into parts, if it has more than `max` requests after its last delivery.
pub(super) fn split(mut turn: Turn, first: FirstPart, max: usize) -> (Turn, Vec<Turn>) {
    if turn.events.len() <= max {
        return (turn, Vec::new());
    }
    let last_delivery = turn.events.iter().rposition(Event::stays_in_first_part);
    let mut deliveries = last_delivery.map_or(0, |index| index + 1);
    if turn.events.len() - deliveries <= max {
        return (turn, Vec::new());
    }
    let mut parts = VecDeque::new();
    let mut events = std::mem::take(&mut turn.events).into_iter();
    if matches!(turn.based_on, BasedOn::Start(_)) {
        // The first part is only the start: a worker that claims a run without other events begins it.
        let columns = turn.columns.clone();
        turn.columns = TurnColumns::unchanged(columns.before.clone());
        let id = turn.id;
        parts.push_back(cut_off(&mut turn, id, events.by_ref().take(1).collect(), None));
        turn.columns = columns;
        deliveries -= 1;
    }
    turn.events = events.collect();
    split_behind(turn, deliveries, first, max, &mut parts);
    match parts.pop_front() {
        Some(first) => (first, parts.into()),
        None => unreachable!("a turn has at least one part"),
    }
}

/// Splits a turn whose first `deliveries` events belong to the first part.
fn split_behind(mut turn: Turn, deliveries: usize, first: FirstPart, max: usize, parts: &mut VecDeque<Turn>) {
    // Chosen versions are not ordered relative to operations, and a replay of the first part must know all of them.
    let is_patch = |event: &Event| matches!(event, Event::VersionChosen { .. });
    turn.events[deliveries..].sort_by_key(|event| !is_patch(event));
    let patches = turn.events[deliveries..].iter().take_while(|event| is_patch(event)).count();
    let mut count = (deliveries + patches).max(max);
    let (consumed, fired_until) = (turn.consumed, turn.fired_until);
    (turn.consumed, turn.fired_until) = (first.consumed, first.fired_until);
    let mut remaining = RemainingOutbox::of(turn.outbox.take(), first.settled_messages, &turn.events);
    let mut events = std::mem::take(&mut turn.events).into_iter();
    while events.len() > count {
        let events: Vec<_> = events.by_ref().take(count).collect();
        let (id, outbox) = (turn.id.continued(), remaining.take_for(&events));
        parts.push_back(cut_off(&mut turn, id, events, outbox));
        count = max;
    }
    turn.events = events.collect();
    turn.outbox = remaining.rest();
    turn.consumed = consumed;
    turn.fired_until = fired_until.filter(|_| fired_until != first.fired_until);
    parts.push_back(turn);
}

/// Returns the part of a turn with these events. `turn` becomes the rest, which follows that part.
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

/// The entries of a turn's outbox that no part contains yet.
struct RemainingOutbox {
    /// Each belongs to the part with the event that starts it.
    children: Vec<NewChild>,
    /// The messages that were sent before the last delivery. They belong to the first part, because a replay of that
    /// part does not send them again.
    settled: Vec<NewMessage>,
    /// The other messages. They belong to the last part: some may be for children that other parts start.
    messages: Vec<NewMessage>,
    /// They belong to the first part: no event records them.
    tags: Tags,
    /// They belong to the first part: a replay of that part does not write them again.
    writes: WorkflowWrites,
    /// A token is taken with the part that records its request: if the worker is lost, the next one repeats only requests
    /// that are not recorded, and gets one answer for each. It is freed with the part that records its close, or that takes
    /// it again.
    tokens: TokenChanges,
    /// The requests and closes of tokens in parts that were not taken yet.
    later: BTreeSet<OpNumber>,
    /// They belong to the first part: repeating one changes nothing.
    replies: Vec<NewReply>,
}

impl RemainingOutbox {
    /// All entries of the outbox of a turn with these events. Its first `settled_messages` messages were sent before the
    /// last delivery.
    fn of(outbox: Option<Box<Outbox>>, settled_messages: usize, events: &[Event]) -> Self {
        let Outbox { children, messages: mut settled, tags, writes, tokens, replies } =
            outbox.map_or_else(Outbox::default, |outbox| *outbox);
        let messages = settled.split_off(settled_messages.min(settled.len()));
        let later = operations_of_tokens(events).collect();
        Self { children, settled, messages, tags, writes, tokens, later, replies }
    }

    /// Takes the entries that belong to a part with these events.
    fn take_for(&mut self, events: &[Event]) -> Option<Box<Outbox>> {
        let ops: BTreeSet<_> = events.iter().flat_map(operations_with_new_runs).collect();
        let is_in = |child: &NewChild| child.start.parent.is_none_or(|parent| ops.contains(&parent.op));
        let (children, later) = std::mem::take(&mut self.children).into_iter().partition(is_in);
        self.children = later;
        let (messages, tags) = (std::mem::take(&mut self.settled), std::mem::take(&mut self.tags));
        let writes = std::mem::take(&mut self.writes);
        let (tokens, replies) = (self.take_tokens_for(events), std::mem::take(&mut self.replies));
        let outbox = Outbox { children, messages, tags, writes, tokens, replies };
        (!outbox.is_empty()).then(|| Box::new(outbox))
    }

    /// Takes the changes of tokens that belong to a part with these events.
    fn take_tokens_for(&mut self, events: &[Event]) -> TokenChanges {
        for op in operations_of_tokens(events) {
            self.later.remove(&op);
        }
        let TokenChanges { freed, taken } = std::mem::take(&mut self.tokens);
        let (later, taken): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|new: &NewToken| self.later.contains(&new.op));
        let is_later = |freed: &FreedToken| {
            self.later.contains(&freed.op) || later.iter().any(|new| new.hash == freed.hash)
        };
        let (freed_later, freed) = freed.into_iter().partition(is_later);
        self.tokens = TokenChanges { freed: freed_later, taken: later };
        TokenChanges { freed, taken }
    }

    /// The entries that no part contains.
    fn rest(self) -> Option<Box<Outbox>> {
        let Self { children, settled: mut messages, messages: last, tags, writes, tokens, replies, .. } =
            self;
        messages.extend(last);
        let outbox = Outbox { children, messages, tags, writes, tokens, replies };
        (!outbox.is_empty()).then(|| Box::new(outbox))
    }
}

/// The operations for which an event starts runs. A retry and a fork start those of open operations again.
fn operations_with_new_runs(event: &Event) -> Vec<OpNumber> {
    let restarts = match event {
        Event::ChildStarted(_) | Event::StepStarted { .. } | Event::CompensationStarted { .. } => {
            return event.op().into_iter().collect();
        }
        Event::RunRetried(retried) => &retried.restarts,
        Event::RunForked(forked) => &forked.restarts,
        _ => return Vec::new(),
    };
    restarts.iter().map(|restarted| restarted.op).collect()
}

/// The operations with which events request and close tokens.
fn operations_of_tokens(events: &[Event]) -> impl Iterator<Item = OpNumber> {
    events.iter().filter_map(|event| match event {
        Event::TokenRequested(requested) => Some(requested.op),
        Event::TokenClosed { op } => Some(*op),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use outlast_core::turn::LastTurn;
    use outlast_core::{HolderColumns, MessageBody, MessageId, Payload, RunId, TokenHash, TokenRequested};

    use super::*;

    fn message(run: u128) -> NewMessage {
        let (id, run) = (MessageId::from_bits(run), RunId::from_bits(run));
        NewMessage { id, run, body: MessageBody::Wake { op: None }, headers: Default::default() }
    }

    /// A turn with a delivery and a fired timer that requests seven timers.
    fn turn() -> Turn {
        let last = LastTurn::new(RunId::from_bits(1), TurnId::from_bits(2), 5);
        let at = Timestamp::from_micros(9);
        let timer = |op| Event::TimerStarted { op: OpNumber(op), fire_at: at };
        let delivery = Event::StepCompleted { op: OpNumber(0), output: Payload::null() };
        let events = [delivery].into_iter().chain((1..8).map(timer));
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
    fn the_first_part_has_all_deliveries_and_only_the_last_releases_the_run() {
        let whole = turn();
        let first_part = FirstPart { consumed: 2, fired_until: whole.fired_until, settled_messages: 1 };
        let (first, rest) = split(whole.clone(), first_part, 3);
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
            "a message without effect is not consumed before the requests that precede it"
        );
        let fired: Vec<_> = parts.iter().map(|part| part.fired_until).collect();
        assert_eq!(fired, [whole.fired_until, None, None]);
        let sent = |part: &Turn| part.outbox.as_ref().map(|outbox| outbox.messages[0].run.bits());
        assert_eq!(parts.iter().map(sent).collect::<Vec<_>>(), [Some(1), None, Some(2)]);
        assert_eq!(parts[2].then, whole.then);
    }

    #[test]
    fn a_token_is_taken_with_its_request_and_freed_when_it_is_taken_again() {
        let requested = |op, token: &str| {
            let (op, name, token) = (OpNumber(op), "hook".into(), token.into());
            let (is_generated, metadata, webhook, keep_for) = (false, None, None, None);
            let requested = TokenRequested { op, name, token, is_generated, metadata, webhook, keep_for };
            Event::TokenRequested(Box::new(requested))
        };
        let taken = |op, token: &str| {
            let (hash, op, hook) = (TokenHash::of(token), OpNumber(op), "hook".into());
            NewToken { hash, op, hook, metadata: None, webhook: None, keep_for: None, notify: true }
        };
        let freed =
            |op, token: &str| FreedToken { hash: TokenHash::of(token), op: OpNumber(op), kept_until: None };
        let tokens = TokenChanges {
            freed: vec![freed(1, "again"), freed(2, "free"), freed(4, "later")],
            taken: vec![taken(3, "reopened"), taken(8, "first"), taken(9, "again")],
        };
        let closed = |op| Event::TokenClosed { op: OpNumber(op) };
        let events = [closed(1), closed(2), requested(8, "first"), requested(9, "again"), closed(4)];
        let outbox = Some(Box::new(Outbox { tokens, ..Outbox::default() }));
        let mut remaining = RemainingOutbox::of(outbox, 0, &events);
        let first = remaining.take_for(&events[..3]).unwrap().tokens;
        let ops = |tokens: &TokenChanges| {
            let freed: Vec<_> = tokens.freed.iter().map(|freed| freed.op.0).collect();
            let taken: Vec<_> = tokens.taken.iter().map(|taken| taken.op.0).collect();
            (freed, taken)
        };
        assert_eq!(ops(&first), (vec![2], vec![3, 8]));
        assert_eq!(ops(&remaining.rest().unwrap().tokens), (vec![1, 4], vec![9]));
    }

    #[test]
    fn a_turn_with_few_requests_is_not_split() {
        let whole = turn();
        assert_eq!(split(whole.clone(), FirstPart::default(), 8), (whole.clone(), Vec::new()));
        let delivery = Event::StepCompleted { op: OpNumber(0), output: Payload::null() };
        let mut delivery_last = whole;
        delivery_last.events.push(delivery);
        assert_eq!(
            split(delivery_last.clone(), FirstPart::default(), 1),
            (delivery_last, Vec::new()),
            "all requests precede the delivery"
        );
    }
}
