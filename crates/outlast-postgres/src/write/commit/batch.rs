//! Batches of turns: which turns one statement can commit, and its parameters.

use std::collections::{BTreeSet, HashSet};

use outlast_core::turn::BasedOn;
use outlast_core::{CompensationInput, Event, MessageBody, Outcome, RunId, SessionId, Turn, WorldError};
use tokio_postgres::Row;

use super::LockWait;
use crate::clock::TimeSource;
use crate::connection::database::{CallError, Database, Parameter};
use crate::encoding::json_rows::JsonRows;
use crate::encoding::turn;
use crate::write::outbox::{Outboxes, effective_outbox, receivers};
use crate::write::start::STATEMENT_BYTES_MAX;
use crate::write::streams::{TurnWrites, limits as stream_limits};
use crate::write::tokens::TurnTokens;

/// How long a statement with [`LockWait::Short`] waits for each lock, in milliseconds.
const SHORT_WAIT_MS: i64 = 50;

/// How long a statement with [`LockWait::Long`] waits for each lock, in milliseconds.
const LONG_WAIT_MS: i64 = 1_000;

/// How often a statement is repeated after a conflict with other transactions. Statements with several turns are soon
/// divided instead, and single turns are soon isolated.
const BATCH_TRIES_MAX: usize = 2;
const SINGLE_TRIES_MAX: usize = 5;

/// The indexes of the turns from `first` on that one statement can commit.
///
/// The result must be the same as if they were committed one after the other. Therefore:
///
/// * No run has two turns, and no run has a turn after one that sends to it.
/// * No key is requested twice. Keys of children and of the turns' own runs are not mixed, since each kind is inserted
///   in the order of its keys, to avoid deadlocks.
/// * Keys and exclusive turns are not mixed: a statement that waits for a key must not lock the session exclusively.
pub(super) fn batchable_turns(turns: &[Turn], first: usize) -> Vec<usize> {
    let (mut runs, mut keys) = (HashSet::<RunId>::new(), HashSet::<&str>::new());
    let (mut has_own_key, mut has_child_key, mut is_exclusive) = (false, false, false);
    let mut bytes = 0;
    let mut batchable = Vec::new();
    for (index, turn) in turns.iter().enumerate().skip(first) {
        bytes += turn_bytes(turn);
        let (own_key, child_keys) = requested_keys(turn);
        has_own_key |= own_key.is_some();
        has_child_key |= !child_keys.is_empty();
        is_exclusive |= turn.is_exclusive();
        let mut turn_keys = own_key.into_iter().chain(child_keys);
        let fits = bytes <= STATEMENT_BYTES_MAX
            && runs.insert(turn.run)
            && turn_keys.all(|key| keys.insert(key))
            && !(has_own_key && has_child_key)
            && !(is_exclusive && (has_own_key || has_child_key));
        if !fits && index > first {
            break;
        }
        runs.extend(receivers(turn));
        batchable.push(index);
    }
    batchable
}

/// The keys that a turn requests: for its own run, and for its children.
fn requested_keys(turn: &Turn) -> (Option<&str>, Vec<&str>) {
    let own = match &turn.based_on {
        BasedOn::Turn(_) => None,
        BasedOn::Start(start) => start.key.as_ref().map(|key| key.text.as_str()),
    };
    let children = effective_outbox(turn).into_iter().flat_map(|outbox| &outbox.children);
    (own, children.filter_map(|child| child.start.key.as_ref().map(|key| key.text.as_str())).collect())
}

/// Whether a turn requests a key.
pub(super) fn requests_keys(turn: &Turn) -> bool {
    let (own, children) = requested_keys(turn);
    own.is_some() || !children.is_empty()
}

/// The approximate size of a turn with its outbox, in bytes.
pub(super) fn turn_bytes(turn: &Turn) -> usize {
    let children = effective_outbox(turn).into_iter().flat_map(|outbox| &outbox.children);
    let messages = effective_outbox(turn).into_iter().flat_map(|outbox| &outbox.messages);
    let payloads = messages.map(|message| match &message.body {
        MessageBody::Hook { payload, .. } => payload.bytes().len(),
        MessageBody::ChildEnded { outcome: Outcome::Completed(output), .. } => output.bytes().len(),
        _ => 100,
    });
    let inputs = children.map(|child| child.start.input.bytes().len() + 500);
    let writes = effective_outbox(turn).map(|outbox| outbox.writes.bytes());
    turn.events.iter().map(event_bytes).chain(inputs).chain(payloads).chain(writes).sum()
}

/// The approximate size of an event, in bytes.
fn event_bytes(event: &Event) -> usize {
    let payload = match event {
        Event::RunStarted(started) => started.input.bytes().len(),
        Event::RunCompleted { output }
        | Event::StepCompleted { output, .. }
        | Event::ChildCompleted { output, .. } => output.bytes().len(),
        Event::StepStarted { input, .. } => input.bytes().len(),
        Event::HookReceived { payload, .. } => payload.bytes().len(),
        Event::CompensationRegistered(registered) => match &registered.input {
            CompensationInput::Value(Ok(input)) => input.bytes().len(),
            _ => 0,
        },
        _ => 0,
    };
    payload + 100
}

/// The turns of one statement, as its parameters.
#[derive(Debug, Default)]
pub(super) struct CommitBatch {
    rows: JsonRows,
    events: Vec<Option<String>>,
    /// The runs whose rows must be locked.
    locked_runs: BTreeSet<RunId>,
    outboxes: Outboxes,
    /// What the workflows write to streams and publish.
    writes: TurnWrites,
    /// The tokens of the turns, and their replies.
    tokens: TurnTokens,
    /// Whether no other commit of the session may be executed at the same time; see `160_commit.sql`.
    is_exclusive: bool,
    /// Whether a turn requests a key. If another transaction inserts the same key, the turn cannot be skipped.
    pub(super) requests_keys: bool,
    /// The run of the first turn.
    first_run: Option<RunId>,
}

impl CommitBatch {
    /// Adds a turn. `is_invalid` says that it failed a check; it is sent nevertheless, since the fence is checked
    /// first. New runs get at most these rules.
    pub(super) fn add(
        &mut self,
        turn: &Turn,
        session: SessionId,
        is_invalid: bool,
        rules: Option<u32>,
    ) -> Result<(), WorldError> {
        let nth = self.events.len() as i64 + 1;
        self.first_run.get_or_insert(turn.run);
        self.outboxes.add(turn, nth, rules)?;
        self.writes.add(turn, nth);
        self.tokens.add(turn, nth)?;
        let events = turn::events_json(turn);
        self.is_exclusive |= turn.is_exclusive();
        self.requests_keys |= requests_keys(turn);
        if turn::locks_row(turn, session) {
            self.locked_runs.insert(turn.run);
        }
        self.locked_runs.extend(receivers(turn));
        turn::add_turn(&mut self.rows, turn, session, is_invalid);
        self.events.push(events);
        Ok(())
    }

    /// Executes the statement.
    pub(super) async fn commit(
        &self,
        database: &Database,
        time: &TimeSource,
        session: SessionId,
        lock_wait: LockWait,
    ) -> Result<Vec<Row>, CallError> {
        let skips = lock_wait == LockWait::Skip || lock_wait == LockWait::Long && !self.requests_keys;
        let is_exclusive = self.is_exclusive;
        let options =
            self.options_json(lock_wait, &format!(r#""skips":{skips},"is_exclusive":{is_exclusive}"#));
        let (session, at) = (session.to_string(), time.statement_time());
        let locked = self.locked_run_ids();
        let Outboxes { children, messages } = &self.outboxes;
        let (turn_rows, child_rows, message_rows) =
            (self.rows.array(), children.rows.array(), messages.rows.array());
        let mut values: Vec<Parameter<'_>> = vec![
            &session,
            &at,
            &options,
            &locked,
            &turn_rows,
            &self.events,
            &child_rows,
            &children.events,
            &message_rows,
            &messages.bodies,
            &messages.raws,
        ];
        let tries_max = if self.events.len() > 1 { BATCH_TRIES_MAX } else { SINGLE_TRIES_MAX };
        if self.writes.is_empty() && self.tokens.is_empty() {
            return database.try_times(&database.sql.commit, &values, tries_max).await;
        }
        let TurnWrites { streams, packs, states, bodies, raws } = &self.writes;
        let (streams, states, limits) = (streams.array(), states.array(), stream_limits());
        let writes: [Parameter<'_>; 6] = [&streams, packs, &states, bodies, raws, &limits];
        values.extend(writes);
        if self.tokens.is_empty() {
            return database.try_times(&database.sql.commit_writes, &values, tries_max).await;
        }
        let TurnTokens { freed, taken, token_bodies, token_raws, replies, reply_bodies, reply_raws } =
            &self.tokens;
        let (freed, taken, replies) = (freed.array(), taken.array(), replies.array());
        let tokens: [Parameter<'_>; 7] =
            [&freed, &taken, token_bodies, token_raws, &replies, reply_bodies, reply_raws];
        values.extend(tokens);
        database.try_times(&database.sql.commit_tokens, &values, tries_max).await
    }

    /// Waits until the rows are free, without locking the session's row: other commits of the session would have to
    /// wait as well.
    pub(super) async fn wait_for_rows(
        &self,
        database: &Database,
        session: SessionId,
    ) -> Result<(), CallError> {
        let options = self.options_json(LockWait::Long, r#""only_waits":true"#);
        let (session, at, locked) = (session.to_string(), None::<i64>, self.locked_run_ids());
        let (none, texts, raws) = ("[]", Vec::<String>::new(), Vec::<Vec<u8>>::new());
        let values: [Parameter<'_>; 11] =
            [&session, &at, &options, &locked, &none, &texts, &none, &texts, &none, &texts, &raws];
        database.try_call(&database.sql.commit, &values).await.map(drop)
    }

    /// The options of the statement: how long it waits for locks, and `more`. If it waits long, it sets its application
    /// name to that of the first run, so that other processes can find whom the run waits for.
    fn options_json(&self, lock_wait: LockWait, more: &str) -> String {
        let wait_ms = if lock_wait == LockWait::Long { LONG_WAIT_MS } else { SHORT_WAIT_MS };
        let named = self.first_run.filter(|_| lock_wait == LockWait::Long);
        let named = named.map_or_else(String::new, |run| format!(r#","named":"{run}""#));
        format!(r#"{{"wait_ms":{wait_ms},{more}{named}}}"#)
    }

    fn locked_run_ids(&self) -> Vec<String> {
        self.locked_runs.iter().map(ToString::to_string).collect()
    }
}
