//! Committing turns: the fence, the history, what becomes of the run, and the outbox.
//!
//! Turns whose order does not matter are one statement. When somebody else has locked a row that one of them changes,
//! the statement is given up soon and tried again without waiting: what can be locked is committed, and the others
//! are answered as blocked. Turns that come again and were blocked before wait longer, by connections of their own, and
//! without the session's row.
//!
//! When the database refuses a statement, and would take others, its turns are tried apart, by halves. The one that it
//! refuses comes again a few times, by itself.

use std::collections::{BTreeSet, HashSet};

use outlast_core::refusal::{key_taken, session_gone};
use outlast_core::state::{fenced, invalid, missed_message};
use outlast_core::turn::BasedOn;
use outlast_core::{
    Committed, Ended, Event, MessageBody, Outcome, RunId, SessionId, Started, Then, Turn, WorldError,
};
use tokio_postgres::Row;

use crate::blocked::Lane;
use crate::clock::Time;
use crate::error::{corrupt, known_rules};
use crate::fields::Rows;
use crate::message::Values1;
use crate::outbox::{Outboxes, outbox, receivers};
use crate::refused::others_work;
use crate::row::{Damaged, get, maybe_moment, maybe_text, moment, stored};
use crate::start::STATEMENT_BYTES_MAX;
use crate::store::{Failed, Store};
use crate::text::stored as stored_text;
use crate::told::{News, Told};
use crate::turn;

type Answer = Result<Committed, WorldError>;

/// How long a batch waits for each lock, in milliseconds.
const BATCH_WAIT_MS: i64 = 50;

/// How long turns that were blocked before wait for each lock, in milliseconds.
const BLOCKED_WAIT_MS: i64 = 1_000;

/// How often a statement is tried again that others were in the way of: one with several turns is soon divided, and one
/// turn is soon tried apart.
const MANY_TRIES_MAX: usize = 2;
const ONE_TRIES_MAX: usize = 5;

/// How a statement waits for rows that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// A short time, then the whole statement is refused.
    Shortly,
    /// Not at all: the turns that need them are left out.
    Skips,
    /// Longer, by a connection for that: first until the rows are free, without the session's row; then not at all.
    Longer,
}

/// The turns from `first` on that can be one statement.
///
/// They are committed as if one after the other: no run has two turns, none has its turn behind one that sends to it, no
/// key is asked for twice, and keys of children and of the turns' own runs are not mixed, since each kind is
/// inserted in the order of its keys. Nor are keys and turns without events: whoever waits for a key must not have the
/// session for itself.
fn gather(turns: &[Turn], first: usize) -> Vec<usize> {
    let (mut runs, mut keys) = (HashSet::<RunId>::new(), HashSet::<&str>::new());
    let (mut has_own_key, mut has_child_key, mut is_exclusive) = (false, false, false);
    let mut bytes = 0;
    let mut gathered = Vec::new();
    for (index, turn) in turns.iter().enumerate().skip(first) {
        bytes += size_of(turn);
        let (own_key, child_keys) = keys_of(turn);
        has_own_key |= own_key.is_some();
        has_child_key |= !child_keys.is_empty();
        is_exclusive |= turn::is_exclusive(turn);
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
        gathered.push(index);
    }
    gathered
}

/// The keys that a turn asks for: of its own run, and of its children.
fn keys_of(turn: &Turn) -> (Option<&str>, Vec<&str>) {
    let own = match &turn.based_on {
        BasedOn::Turn(_) => None,
        BasedOn::Start(start) => start.key.as_ref().map(|key| key.text.as_str()),
    };
    let children = outbox(turn).into_iter().flat_map(|outbox| &outbox.children);
    (own, children.filter_map(|child| child.start.key.as_ref().map(|key| key.text.as_str())).collect())
}

/// Whether a turn asks for a key.
fn has_keys(turn: &Turn) -> bool {
    let (own, children) = keys_of(turn);
    own.is_some() || !children.is_empty()
}

/// How many bytes a turn has, roughly, with its outbox.
fn size_of(turn: &Turn) -> usize {
    let children = outbox(turn).into_iter().flat_map(|outbox| &outbox.children);
    let messages = outbox(turn).into_iter().flat_map(|outbox| &outbox.messages);
    let payloads = messages.map(|message| match &message.body {
        MessageBody::Hook { payload, .. } => payload.bytes().len(),
        MessageBody::ChildEnded { outcome: Outcome::Completed(output), .. } => output.bytes().len(),
        _ => 100,
    });
    let inputs = children.map(|child| child.start.input.bytes().len() + 500);
    turn.events.iter().map(size).chain(inputs).chain(payloads).sum()
}

/// How many bytes an event has, roughly.
fn size(event: &Event) -> usize {
    let payload = match event {
        Event::RunStarted(started) => started.input.bytes().len(),
        Event::RunCompleted { output }
        | Event::StepCompleted { output, .. }
        | Event::ChildCompleted { output, .. } => output.bytes().len(),
        Event::StepStarted { input, .. } => input.bytes().len(),
        Event::HookReceived { payload, .. } => payload.bytes().len(),
        _ => 0,
    };
    payload + 100
}

/// How a turn ends its run, if it does.
fn end(turn: &Turn) -> Option<Ended> {
    match (&turn.then, turn.events.last().and_then(Outcome::of_final)) {
        (Then::End(_), Some(outcome)) => Some(Ended { run: turn.run, outcome }),
        _ => None,
    }
}

/// The turns of one statement, as its parameters.
#[derive(Debug, Default)]
struct Batch {
    rows: Rows,
    events: Vec<Option<String>>,
    /// The runs whose rows are locked, each once.
    locked: BTreeSet<RunId>,
    outboxes: Outboxes,
    /// Whether no other commit of the session may be under way; see `commit.sql`.
    is_exclusive: bool,
    /// Whether a turn asks for a key: whom that waits for cannot be skipped.
    has_keys: bool,
    /// The run of the first turn.
    first: Option<RunId>,
}

impl Batch {
    fn add(
        &mut self,
        turn: &Turn,
        session: SessionId,
        is_refused: bool,
        rules: Option<u32>,
    ) -> Result<(), WorldError> {
        let nth = self.events.len() as i64 + 1;
        self.first.get_or_insert(turn.run);
        self.outboxes.add(turn, nth, rules)?;
        let events = turn::events(turn);
        self.is_exclusive |= turn::is_exclusive(turn);
        self.has_keys |= has_keys(turn);
        if turn::locks_row(turn, session) {
            self.locked.insert(turn.run);
        }
        self.locked.extend(receivers(turn));
        turn::add(&mut self.rows, turn, session, is_refused);
        self.events.push(events);
        Ok(())
    }

    async fn commit(
        &self,
        store: &Store,
        time: &Time,
        session: SessionId,
        waits: Waits,
    ) -> Result<Vec<Row>, Failed> {
        let skips = waits == Waits::Skips || waits == Waits::Longer && !self.has_keys;
        let is_exclusive = self.is_exclusive;
        let how = self.how(waits, &format!(r#""skips":{skips},"is_exclusive":{is_exclusive}"#));
        let (session, at) = (session.to_string(), time.at());
        let locked = self.locked_texts();
        let Outboxes { children, messages } = &self.outboxes;
        let values: [Values1<'_>; 11] = [
            &session,
            &at,
            &how,
            &locked,
            &self.rows.json(),
            &self.events,
            &children.rows.json(),
            &children.events,
            &messages.rows.json(),
            &messages.bodies,
            &messages.raws,
        ];
        let tries_max = if self.events.len() > 1 { MANY_TRIES_MAX } else { ONE_TRIES_MAX };
        store.try_times(&store.sql.commit, &values, tries_max).await
    }

    /// Waits until the rows are free, without the session's row: with it, other commits of the session would wait too.
    async fn wait_for_rows(&self, store: &Store, session: SessionId) -> Result<(), Failed> {
        let how = self.how(Waits::Longer, r#""only_waits":true"#);
        let (session, at, locked) = (session.to_string(), None::<i64>, self.locked_texts());
        let (none, texts, raws) = ("[]", Vec::<String>::new(), Vec::<Vec<u8>>::new());
        let values: [Values1<'_>; 11] =
            [&session, &at, &how, &locked, &none, &texts, &none, &texts, &none, &texts, &raws];
        store.try_call(&store.sql.commit, &values).await.map(drop)
    }

    /// How the statement waits, and what else it is told.
    fn how(&self, waits: Waits, more: &str) -> String {
        let wait_ms = if waits == Waits::Longer { BLOCKED_WAIT_MS } else { BATCH_WAIT_MS };
        let named = self.first.filter(|_| waits == Waits::Longer);
        let named = named.map_or_else(String::new, |run| format!(r#","named":"{run}""#));
        format!(r#"{{"wait_ms":{wait_ms},{more}{named}}}"#)
    }

    fn locked_texts(&self) -> Vec<String> {
        self.locked.iter().map(ToString::to_string).collect()
    }
}

/// A commit under way.
pub(crate) struct Commit<'a> {
    pub(crate) store: &'a Store,
    pub(crate) lane: &'a Lane,
    pub(crate) time: &'a Time,
    pub(crate) told: &'a Told,
    pub(crate) session: SessionId,
    pub(crate) turns: &'a [Turn],
    pub(crate) answers: Vec<Answer>,
    pub(crate) news: News,
    pub(crate) refusals: Vec<Option<WorldError>>,
    /// Whether all turns of the call were blocked before.
    is_retry: bool,
}

impl<'a> Commit<'a> {
    pub(crate) fn new(
        store: &'a Store,
        lane: &'a Lane,
        time: &'a Time,
        told: &'a Told,
        session: SessionId,
        turns: &'a [Turn],
    ) -> Self {
        let refusals: Vec<_> = turns.iter().map(|turn| turn::check(turn).err()).collect();
        let answers = vec![Ok(Committed::Done); turns.len()];
        Self {
            store,
            lane,
            time,
            told,
            session,
            turns,
            answers,
            news: News::default(),
            refusals,
            is_retry: false,
        }
    }

    /// Commits all of them; refuses when the whole call came to nothing.
    pub(crate) async fn run(&mut self) -> Result<(), WorldError> {
        self.is_retry = self.were_blocked();
        let waits = if self.is_retry { Waits::Skips } else { Waits::Shortly };
        let refused = &self.lane.refused;
        if refused.were_all(self.turns) {
            // They may take long each time: not by the connections that others need.
            self.store = &self.lane.store;
        }
        let apart = refused.apart(self.turns);
        let is_apart = |index: &usize| apart.contains(&self.turns[*index].id);
        let mut next = 0;
        while next < self.turns.len() {
            let mut part = gather(self.turns, next);
            if !apart.is_empty() {
                let alone = if is_apart(&part[0]) { 1 } else { part.len() };
                let free = part.iter().skip(1).position(is_apart).map_or(part.len(), |nth| nth + 1);
                part.truncate(alone.min(free));
            }
            next += part.len();
            if let [index] = part[..]
                && self.alone(index, waits).await?
            {
                continue;
            }
            self.write(part, waits).await?;
        }
        Ok(())
    }

    /// Whether all turns of the call were blocked before. The first time they are answered at once: their caller may have
    /// others that wait for the same call.
    fn were_blocked(&self) -> bool {
        self.turns.iter().all(|turn| self.lane.has(turn.run))
    }

    /// Commits a plain turn; answers whether that is all. The statement for all turns says what is the matter with it,
    /// if anything is.
    async fn alone(&mut self, index: usize, waits: Waits) -> Result<bool, WorldError> {
        let turn = &self.turns[index];
        if self.refusals[index].is_some() {
            return Ok(false);
        }
        let (Some(end_status), BasedOn::Turn(from)) = (turn::plain_end(turn, self.session), &turn.based_on)
        else {
            return Ok(false);
        };
        let (store, told, time) = (self.store.clone(), self.told.clone(), self.time.clone());
        let texts = [self.session.to_string(), turn.run.to_string(), turn.id.to_string(), from.to_string()];
        let numbers = [turn.seq, turn.next_event(), turn.consumed].map(stored);
        let (turn_at, build, events) =
            (turn.at.as_micros(), stored_text(&turn.build).into_owned(), turn::events(turn));
        let ended = end(turn);
        let is_end = ended.is_some();
        let commit = async move {
            let at = time.at();
            let [session, run, id, from] = &texts;
            let [seq, next, consumed] = &numbers;
            let values: [Values1<'_>; 12] =
                [session, &at, run, id, from, seq, next, &turn_at, &build, &events, consumed, &end_status];
            let rows = store.try_times(&store.sql.commit_one, &values, 0).await?;
            let moment = rows.first().map_or(Ok(None), |row| maybe_moment(row, 0));
            let moment = moment.map_err(|why| Failed::Corrupt(corrupt(&store.place, &why)))?;
            if let (Some(moment), Some(ended)) = (moment, ended) {
                time.learn(moment);
                told.tell(News { ended: vec![ended], ..News::default() });
            }
            Ok(moment.is_some())
        };
        let done = if is_end {
            // In the world's own thread: from there others hear of the end without a detour.
            self.store.handle.spawn(commit).await.unwrap_or(Err(Failed::Closed))
        } else {
            commit.await
        };
        match done {
            Ok(is_done) => {
                if is_done {
                    self.lane.written(std::iter::once(&self.turns[index]));
                }
                Ok(is_done)
            }
            Err(failed) if failed.is_overtaken() || failed.is_locked() => Ok(false),
            Err(failed) => Box::pin(self.failed(vec![index], &failed, waits)).await.map(|()| true),
        }
    }

    /// Commits turns by one statement. If Postgres refuses one of them, they are tried apart.
    async fn write(&mut self, part: Vec<usize>, waits: Waits) -> Result<(), WorldError> {
        let mut rules = None;
        loop {
            let (mut batch, mut sent) = (Batch::default(), Vec::with_capacity(part.len()));
            for &index in &part {
                let is_refused = self.refusals[index].is_some();
                match batch.add(&self.turns[index], self.session, is_refused, rules) {
                    Ok(()) => sent.push(index),
                    Err(error) => self.answers[index] = Err(error),
                }
            }
            if sent.is_empty() {
                return Ok(());
            }
            let answered = match waits {
                Waits::Longer => self.commit_blocked(&batch, &sent).await,
                _ => batch.commit(self.store, self.time, self.session, waits).await,
            };
            match answered {
                Ok(rows) => {
                    let locked = self.read(&sent, &rows)?;
                    let written = sent.iter().filter(|index| !locked.contains(index));
                    self.lane.written(written.map(|index| &self.turns[*index]));
                    return Box::pin(self.blocked(locked, waits)).await;
                }
                Err(Failed::Refused(error)) if known_rules(&error).is_some() => rules = known_rules(&error),
                Err(failed) => return Box::pin(self.failed(sent, &failed, waits)).await,
            }
        }
    }

    /// Commits turns that were blocked before: waits until their rows are free, and tries then.
    async fn commit_blocked(&self, batch: &Batch, sent: &[usize]) -> Result<Vec<Row>, Failed> {
        let runs: Vec<RunId> = sent.iter().map(|index| self.turns[*index].run).collect();
        let store = &self.lane.store;
        let commit = async {
            if !batch.has_keys {
                batch.wait_for_rows(store, self.session).await?;
            }
            batch.commit(store, self.time, self.session, Waits::Longer).await
        };
        self.lane.wait(&runs, commit).await
    }

    /// What becomes of turns whose statement was refused.
    async fn failed(&mut self, part: Vec<usize>, failed: &Failed, waits: Waits) -> Result<(), WorldError> {
        if failed.is_locked() {
            return self.locked(part, waits).await;
        }
        if !self.is_of_turns(&part, failed).await {
            return self.unavailable(&part, failed);
        }
        if part.len() == 1 {
            self.refuse(part[0], failed);
        } else if failed.is_slow() {
            // Whichever it is would take as long again, and all others behind it.
            let error = self.store.world_error(failed);
            for index in part {
                self.answers[index] = Err(self.lane.refused.set_apart(&self.turns[index], &error));
            }
        } else {
            let (first, second) = part.split_at(part.len() / 2);
            Box::pin(self.write(first.to_vec(), waits)).await?;
            Box::pin(self.write(second.to_vec(), waits)).await?;
        }
        Ok(())
    }

    /// Whether turns are refused for what becomes of them, and not because nothing works. If that cannot be told from the
    /// refusal, it is tried.
    async fn is_of_turns(&self, part: &[usize], failed: &Failed) -> bool {
        if failed.is_of_turn() || !failed.may_be_of_turn() {
            return failed.is_of_turn();
        }
        let bytes = part.iter().map(|index| size_of(&self.turns[*index])).sum();
        others_work(self.store, self.session, failed, bytes).await
    }

    /// Somebody else has a row that turns of a statement need. A key cannot be skipped: turns that ask for one are tried
    /// alone. Nor can the session: turns without events are apart from those that need it less.
    async fn locked(&mut self, part: Vec<usize>, waits: Waits) -> Result<(), WorldError> {
        if part.len() == 1 || waits == Waits::Longer {
            return self.blocked(part, waits).await;
        }
        let (keyed, rest): (Vec<_>, Vec<_>) =
            part.into_iter().partition(|index| has_keys(&self.turns[*index]));
        let (exclusive, rest): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|index| turn::is_exclusive(&self.turns[*index]));
        if waits == Waits::Skips && self.lane.table_lock().await.is_ok_and(|who| who.is_some()) {
            return self.blocked(keyed.into_iter().chain(exclusive).chain(rest).collect(), waits).await;
        }
        if keyed.is_empty() && rest.is_empty() {
            // Rows were skipped: other commits of the session are under way.
            return self.blocked(exclusive, waits).await;
        }
        let mut alone = keyed;
        if waits == Waits::Skips {
            // What they wait for is no row of a run that is there: a child that somebody else starts, say.
            alone.extend(rest);
        } else if !rest.is_empty() {
            Box::pin(self.write(rest, Waits::Skips)).await?;
        }
        if !exclusive.is_empty() {
            Box::pin(self.write(exclusive, waits)).await?;
        }
        for index in alone {
            Box::pin(self.write(vec![index], Waits::Shortly)).await?;
        }
        Ok(())
    }

    /// Turns that need a row that somebody else has are answered so, to be tried again apart from others. If they are all
    /// of the call and were blocked before, the call waits for them.
    async fn blocked(&mut self, part: Vec<usize>, waits: Waits) -> Result<(), WorldError> {
        if part.is_empty() {
            return Ok(());
        }
        if self.is_retry && waits != Waits::Longer {
            return Box::pin(self.write(part, Waits::Longer)).await;
        }
        for index in part {
            self.answers[index] = Err(self.lane.error(self.turns[index].run));
        }
        Ok(())
    }

    /// Nothing works: refuses the whole call, when these turns are all of it.
    fn unavailable(&mut self, part: &[usize], failed: &Failed) -> Result<(), WorldError> {
        let error = self.store.world_error(failed);
        if part.len() == self.turns.len() {
            return Err(error);
        }
        part.iter().for_each(|index| self.answers[*index] = Err(error.clone()));
        Ok(())
    }

    /// Answers a refused turn: `Blocked` while it is to be retried, `Invalid` once its retries are used up.
    fn refuse(&mut self, index: usize, failed: &Failed) {
        let turn = &self.turns[index];
        let refusal = self.store.refusal(turn.run, failed);
        self.answers[index] = Err(self.lane.refused.judge(turn, failed, refusal));
    }

    /// Takes the answers for turns; answers those that somebody else blocks.
    fn read(&mut self, part: &[usize], rows: &[Row]) -> Result<Vec<usize>, WorldError> {
        let (mut refused, mut locked) = (HashSet::<usize>::new(), Vec::new());
        for row in rows {
            let (nth, code) = self.told(row).map_err(|why| corrupt(&self.store.place, &why))?;
            if code == "gone" {
                part.iter().for_each(|index| self.answers[*index] = Err(session_gone(self.session)));
                return Ok(Vec::new());
            }
            let Some(&index) = nth.checked_sub(1).and_then(|nth| part.get(nth)) else { continue };
            if code == "locked" {
                locked.push(index);
                refused.insert(index);
                continue;
            }
            let detail = maybe_text(row, 2).map_err(|why| corrupt(&self.store.place, &why))?;
            self.answers[index] = self.answer(index, &code, detail.as_deref().unwrap_or_default());
            if !matches!(self.answers[index], Ok(Committed::Done)) {
                refused.insert(index);
            }
        }
        let done = part.iter().filter(|index| !refused.contains(index));
        self.news.ended.extend(done.filter_map(|index| end(&self.turns[*index])));
        Ok(locked)
    }

    fn told(&mut self, row: &Row) -> Result<(usize, String), Damaged> {
        let nth: i32 = get(row, 0)?;
        let code: &str = get(row, 1)?;
        if code == "now" {
            self.time.learn(moment(row, 3)?);
            self.news.rings |= get::<bool>(row, 4)?;
        }
        Ok((usize::try_from(nth).unwrap_or(0), code.to_owned()))
    }

    /// The answer to a turn that is not simply done.
    fn answer(&self, index: usize, code: &str, detail: &str) -> Answer {
        let turn = &self.turns[index];
        let run = turn.run;
        Err(match code {
            "done" => return Ok(Committed::Done),
            "existed" => return Ok(Committed::Existed(Started { run, is_new: true })),
            "other" | "taken" => return self.existing(turn, code, detail),
            "none" => fenced(run, "there is no such run"),
            "owner" if detail.is_empty() => fenced(run, "nobody holds it"),
            "owner" => fenced(run, &format!("session {detail} holds it")),
            "from" => {
                let from =
                    if let BasedOn::Turn(from) = &turn.based_on { from.to_string() } else { String::new() };
                fenced(run, &format!("it was computed from {from}, the last turn is {detail}"))
            }
            "seq" => invalid(run, &format!("it begins with event {}, the next one is {detail}", turn.seq)),
            "less" => invalid(run, "it consumed less than the turn before"),
            "more" => invalid(run, "it consumed more messages than were sent"),
            "missed" => missed_message(run, turn.fired_until.unwrap_or(turn.at)),
            _ => self.refusals[index].clone().unwrap_or_else(|| invalid(run, "it is refused")),
        })
    }

    /// A start's key names another run.
    fn existing(&self, turn: &Turn, code: &str, detail: &str) -> Answer {
        let (run, workflow) = detail.split_once(' ').unwrap_or((detail, ""));
        let run: RunId = run.parse().map_err(|error| corrupt(&self.store.place, &error))?;
        match &turn.based_on {
            BasedOn::Start(start) if code == "taken" => Err(key_taken(start, run, workflow)),
            _ => Ok(Committed::Existed(Started { run, is_new: false })),
        }
    }
}
