//! Commits: check the fence, append to the history, change the run's row, and deliver the outbox.
//!
//! One statement commits as many turns as possible ([`batch`]); most calls need only one. Two kinds of problems divide
//! a call into several statements:
//!
//! **Locks.** Another transaction may have locked a row that a turn changes. Then:
//!
//! 1. The statement gives up after a short wait ([`LockWait::Short`]).
//! 2. It is repeated without waiting ([`LockWait::Skip`]): turns whose rows can be locked are committed, and the others
//!    are answered as `Blocked`.
//! 3. The caller repeats blocked turns in a call of their own. They wait longer ([`LockWait::Long`]), on connections of
//!    their own and without a lock on the session's row, so that other commits of the session are not delayed.
//!
//! **Rejections.** The database may reject a statement because of one of its turns, for example by a trigger. Then the
//! statement is divided in half, repeatedly, until the rejected turn is alone. It is retried some times, isolated from
//! other turns, before it is rejected permanently ([`rejected_turns`](super::rejected_turns)).

mod batch;

use std::collections::HashSet;

use outlast_core::refusal::{key_taken, session_gone};
use outlast_core::state::{fenced, invalid, missed_message};
use outlast_core::turn::BasedOn;
use outlast_core::{Committed, Ended, Outcome, RunId, SessionId, Started, Then, Turn, WorldError};
use tokio_postgres::Row;

use self::batch::{CommitBatch, batchable_turns, requests_keys, turn_bytes};
use crate::clock::TimeSource;
use crate::connection::database::{CallError, Database, Parameter};
use crate::encoding::row::{InvalidRow, get, maybe_text, maybe_timestamp, timestamp, to_i64};
use crate::encoding::text::escape_nul;
use crate::encoding::turn::{self, SimpleTurn};
use crate::error::{corrupt_error, known_rules};
use crate::notifications::subscribers::{ChangeNotice, Subscribers};
use crate::write::blocked_turns::BlockedTurns;
use crate::write::rejected_turns::can_commit;
use crate::write::streams::written_run;

type TurnAnswer = Result<Committed, WorldError>;

/// How a statement waits for rows that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockWait {
    /// For a short time. If a row is still locked, the whole statement fails.
    Short,
    /// Not at all. Turns whose rows are locked are left out.
    Skip,
    /// Longer, on a connection for blocked turns: first until the rows are free, without a lock on the session's row,
    /// and then as [`Skip`](Self::Skip).
    Long,
}

/// How a turn ends its run, if it does.
fn run_end(turn: &Turn) -> Option<Ended> {
    match (&turn.then, turn.events.last().and_then(Outcome::of_final)) {
        (Then::End(_), Some(outcome)) => Some(Ended { run: turn.run, outcome }),
        _ => None,
    }
}

/// Whether the turn starts its run.
fn is_start(turn: &Turn) -> bool {
    matches!(turn.based_on, BasedOn::Start(_))
}

/// One call of `commit`.
pub(crate) struct CommitCall<'a> {
    database: &'a Database,
    blocked_turns: &'a BlockedTurns,
    time: &'a TimeSource,
    subscribers: &'a Subscribers,
    session: SessionId,
    turns: &'a [Turn],
    /// One answer per turn.
    pub(crate) answers: Vec<TurnAnswer>,
    /// The changes to publish after the call.
    pub(crate) notice: ChangeNotice,
    /// Errors of turns that do not depend on the database.
    check_errors: Vec<Option<WorldError>>,
    /// Whether all turns of the call were blocked before.
    is_retry: bool,
}

impl<'a> CommitCall<'a> {
    pub(crate) fn new(
        database: &'a Database,
        blocked_turns: &'a BlockedTurns,
        time: &'a TimeSource,
        subscribers: &'a Subscribers,
        session: SessionId,
        turns: &'a [Turn],
    ) -> Self {
        let check_errors: Vec<_> = turns.iter().map(|turn| turn::check(turn).err()).collect();
        let answers = vec![Ok(Committed::Done); turns.len()];
        Self {
            database,
            blocked_turns,
            time,
            subscribers,
            session,
            turns,
            answers,
            notice: ChangeNotice::default(),
            check_errors,
            is_retry: false,
        }
    }

    /// Commits all turns. Returns an error if the whole call failed; errors of single turns are in `answers`.
    pub(crate) async fn run(&mut self) -> Result<(), WorldError> {
        let cache = &self.subscribers.recently_started;
        cache.add(self.turns.iter().filter(|turn| is_start(turn)).map(|turn| turn.run));
        let result = self.commit_all().await;
        for (turn, answer) in self.turns.iter().zip(&self.answers).filter(|(turn, _)| is_start(turn)) {
            if result.is_err() || !matches!(answer, Ok(Committed::Done)) {
                cache.remove(turn.run);
            }
        }
        result
    }

    /// Commits the turns in order, in parts: as many turns as one statement can commit, or a single one.
    async fn commit_all(&mut self) -> Result<(), WorldError> {
        self.is_retry = self.all_were_blocked();
        let lock_wait = if self.is_retry { LockWait::Skip } else { LockWait::Short };
        let rejected_turns = &self.blocked_turns.rejected_turns;
        if rejected_turns.all_were_rejected(self.turns) {
            // Each try may take long, so it must not occupy a connection that other calls need.
            self.database = &self.blocked_turns.database;
        }
        let isolated = rejected_turns.isolated(self.turns);
        let is_isolated = |index: &usize| isolated.contains(&self.turns[*index].id);
        let mut next = 0;
        while next < self.turns.len() {
            let mut part = batchable_turns(self.turns, next);
            if !isolated.is_empty() {
                // An isolated turn is a part of its own.
                let own_part = if is_isolated(&part[0]) { 1 } else { part.len() };
                let until_isolated =
                    part.iter().skip(1).position(is_isolated).map_or(part.len(), |nth| nth + 1);
                part.truncate(own_part.min(until_isolated));
            }
            next += part.len();
            if let [index] = part[..]
                && self.commit_alone(index, lock_wait).await?
            {
                continue;
            }
            self.commit_part(part, lock_wait).await?;
        }
        Ok(())
    }

    /// Whether all turns of the call were blocked before. Only then the call waits for their locks: the first time, the
    /// caller gets an answer immediately, because other turns may wait for the same call.
    fn all_were_blocked(&self) -> bool {
        self.turns.iter().all(|turn| self.blocked_turns.was_blocked(turn.run))
    }

    /// Tries to commit a simple turn with `commit_one.sql`, which is faster. Returns whether the turn was answered. If
    /// not, the statement for all turns commits it, or finds out what is wrong with it.
    async fn commit_alone(&mut self, index: usize, lock_wait: LockWait) -> Result<bool, WorldError> {
        let turn = &self.turns[index];
        if self.check_errors[index].is_some() {
            return Ok(false);
        }
        let (Some(SimpleTurn { end_status }), BasedOn::Turn(from)) =
            (turn::simple_turn(turn, self.session), &turn.based_on)
        else {
            return Ok(false);
        };
        let texts = [self.session.to_string(), turn.run.to_string(), turn.id.to_string(), from.to_string()];
        let numbers = [turn.seq, turn.next_event(), turn.consumed].map(to_i64);
        let (turn_at, build, events) =
            (turn.at.as_micros(), escape_nul(&turn.build).into_owned(), turn::events_json(turn));
        let at = self.time.statement_time();
        let [session, run, id, from] = &texts;
        let [seq, next, consumed] = &numbers;
        let values: [Parameter<'_>; 12] =
            [session, &at, run, id, from, seq, next, &turn_at, &build, &events, consumed, &end_status];
        let done = self.database.try_times(&self.database.sql.commit_one, &values, 0).await;
        let done = done.and_then(|rows| {
            let committed_at = rows.first().map_or(Ok(None), |row| maybe_timestamp(row, 0));
            committed_at.map_err(|why| CallError::Corrupt(corrupt_error(&self.database.place, &why)))
        });
        match done {
            Ok(Some(committed_at)) => {
                if let Some(ended) = run_end(turn) {
                    self.time.observe(committed_at);
                    self.notice.ended.push(ended);
                }
                self.blocked_turns.forget_written(std::iter::once(turn));
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(failure) if failure.is_conflict() || failure.is_lock_timeout() => Ok(false),
            Err(failure) => {
                Box::pin(self.handle_failure(vec![index], &failure, lock_wait)).await.map(|()| true)
            }
        }
    }

    /// Commits turns with one statement, and with several if that fails.
    async fn commit_part(&mut self, part: Vec<usize>, lock_wait: LockWait) -> Result<(), WorldError> {
        let mut rules = None;
        loop {
            let (mut batch, mut sent) = (CommitBatch::default(), Vec::with_capacity(part.len()));
            for &index in &part {
                let is_invalid = self.check_errors[index].is_some();
                match batch.add(&self.turns[index], self.session, is_invalid, rules) {
                    Ok(()) => sent.push(index),
                    Err(error) => self.answers[index] = Err(error),
                }
            }
            if sent.is_empty() {
                return Ok(());
            }
            let answered = match lock_wait {
                LockWait::Long => self.commit_blocked(&batch, &sent).await,
                _ => batch.commit(self.database, self.time, self.session, lock_wait).await,
            };
            match answered {
                Ok(rows) => {
                    let locked = self.read_answers(&sent, &rows)?;
                    let written = sent.iter().filter(|index| !locked.contains(index));
                    self.blocked_turns.forget_written(written.map(|index| &self.turns[*index]));
                    return Box::pin(self.answer_blocked(locked, lock_wait)).await;
                }
                Err(CallError::Postgres(error)) if known_rules(&error).is_some() => {
                    rules = known_rules(&error)
                }
                Err(failure) => return Box::pin(self.handle_failure(sent, &failure, lock_wait)).await,
            }
        }
    }

    /// Commits turns that were blocked before: waits until their rows are free, and then executes the statement.
    async fn commit_blocked(&self, batch: &CommitBatch, sent: &[usize]) -> Result<Vec<Row>, CallError> {
        let runs: Vec<RunId> = sent.iter().map(|index| self.turns[*index].run).collect();
        let database = &self.blocked_turns.database;
        let commit = async {
            if !batch.requests_keys {
                batch.wait_for_rows(database, self.session).await?;
            }
            batch.commit(database, self.time, self.session, LockWait::Long).await
        };
        self.blocked_turns.wait(&runs, commit).await
    }

    /// Handles the failure of a statement: answers its turns, or divides it.
    async fn handle_failure(
        &mut self,
        part: Vec<usize>,
        failure: &CallError,
        lock_wait: LockWait,
    ) -> Result<(), WorldError> {
        if failure.is_lock_timeout() {
            return self.handle_lock_timeout(part, lock_wait).await;
        }
        if !self.is_caused_by_turns(&part, failure).await {
            return self.answer_unavailable(&part, failure);
        }
        if part.len() == 1 {
            self.answer_rejected(part[0], failure);
        } else if failure.is_timeout() {
            // Dividing the statement would take as long again, and delay all other turns.
            let error = self.database.world_error(failure);
            for index in part {
                self.answers[index] =
                    Err(self.blocked_turns.rejected_turns.isolate(&self.turns[index], &error));
            }
        } else {
            let (first, second) = part.split_at(part.len() / 2);
            Box::pin(self.commit_part(first.to_vec(), lock_wait)).await?;
            Box::pin(self.commit_part(second.to_vec(), lock_wait)).await?;
        }
        Ok(())
    }

    /// Whether one of the turns is the cause of the failure, rather than the server. If the error does not tell, a
    /// commit without turns is tried.
    async fn is_caused_by_turns(&self, part: &[usize], failure: &CallError) -> bool {
        if failure.is_caused_by_turn() || !failure.may_be_caused_by_turn() {
            return failure.is_caused_by_turn();
        }
        let bytes = part.iter().map(|index| turn_bytes(&self.turns[*index])).sum();
        can_commit(self.database, self.session, failure, bytes).await
    }

    /// Whether another transaction has locked a whole table.
    async fn is_table_locked(&self) -> bool {
        self.blocked_turns.table_lock_holder().await.is_ok_and(|holder| holder.is_some())
    }

    /// Handles the timeout of a lock that turns of a statement need. A row can be skipped, but neither a key nor the
    /// lock on the session: turns that request a key are committed one by one, and exclusive turns separately from the
    /// others.
    async fn handle_lock_timeout(&mut self, part: Vec<usize>, lock_wait: LockWait) -> Result<(), WorldError> {
        if part.len() == 1 || lock_wait == LockWait::Long {
            return self.answer_blocked(part, lock_wait).await;
        }
        let (keyed, rest): (Vec<_>, Vec<_>) =
            part.into_iter().partition(|index| requests_keys(&self.turns[*index]));
        let (exclusive, rest): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|index| self.turns[*index].is_exclusive());
        if lock_wait == LockWait::Skip && self.is_table_locked().await {
            return self
                .answer_blocked(keyed.into_iter().chain(exclusive).chain(rest).collect(), lock_wait)
                .await;
        }
        if keyed.is_empty() && rest.is_empty() {
            // Exclusive turns skip locked rows, so they wait for other commits of the session.
            return self.answer_blocked(exclusive, lock_wait).await;
        }
        let mut one_by_one = keyed;
        if lock_wait == LockWait::Skip {
            // They do not wait for the row of an existing run, but, for example, for a child that another transaction
            // starts.
            one_by_one.extend(rest);
        } else if !rest.is_empty() {
            Box::pin(self.commit_part(rest, LockWait::Skip)).await?;
        }
        if !exclusive.is_empty() {
            Box::pin(self.commit_part(exclusive, lock_wait)).await?;
        }
        for index in one_by_one {
            Box::pin(self.commit_part(vec![index], LockWait::Short)).await?;
        }
        Ok(())
    }

    /// Answers turns whose rows are locked as `Blocked`; the caller repeats them separately from other turns. If all
    /// turns of the call were blocked before, waits for the locks instead.
    async fn answer_blocked(&mut self, part: Vec<usize>, lock_wait: LockWait) -> Result<(), WorldError> {
        if part.is_empty() {
            return Ok(());
        }
        if self.is_retry && lock_wait != LockWait::Long {
            return Box::pin(self.commit_part(part, LockWait::Long)).await;
        }
        for index in part {
            self.answers[index] = Err(self.blocked_turns.blocked_error(self.turns[index].run));
        }
        Ok(())
    }

    /// Answers turns that failed because of the server. The whole call fails if these are all its turns.
    fn answer_unavailable(&mut self, part: &[usize], failure: &CallError) -> Result<(), WorldError> {
        let error = self.database.world_error(failure);
        if part.len() == self.turns.len() {
            return Err(error);
        }
        part.iter().for_each(|index| self.answers[*index] = Err(error.clone()));
        Ok(())
    }

    /// Answers a turn that the database rejects: `Blocked` while it is retried, `Invalid` when its retries are used up.
    fn answer_rejected(&mut self, index: usize, failure: &CallError) {
        let turn = &self.turns[index];
        let rejection = self.database.turn_rejection(turn.run, failure);
        self.answers[index] =
            Err(self.blocked_turns.rejected_turns.retry_or_reject(turn, failure, rejection));
    }

    /// Reads the answers for the turns of a statement. Returns the turns that were skipped because their rows are
    /// locked.
    fn read_answers(&mut self, part: &[usize], rows: &[Row]) -> Result<Vec<usize>, WorldError> {
        let (mut not_done, mut locked) = (HashSet::<usize>::new(), Vec::new());
        for row in rows {
            let (nth, code) =
                self.read_answer_row(row).map_err(|why| corrupt_error(&self.database.place, &why))?;
            if code == "gone" {
                part.iter().for_each(|index| self.answers[*index] = Err(session_gone(self.session)));
                return Ok(Vec::new());
            }
            let Some(&index) = nth.checked_sub(1).and_then(|nth| part.get(nth)) else { continue };
            if code == "locked" {
                locked.push(index);
                not_done.insert(index);
                continue;
            }
            let detail = maybe_text(row, 2).map_err(|why| corrupt_error(&self.database.place, &why))?;
            self.answers[index] = self.answer_of_code(index, &code, detail.as_deref().unwrap_or_default());
            if !matches!(self.answers[index], Ok(Committed::Done)) {
                not_done.insert(index);
            }
        }
        let done = part.iter().filter(|index| !not_done.contains(index));
        for index in done {
            self.notice.ended.extend(run_end(&self.turns[*index]));
            self.notice.written.extend(written_run(&self.turns[*index]));
        }
        Ok(locked)
    }

    /// Reads a row of the statement's answer: the number of a turn, from 1, and the code of its result. The row `now`
    /// belongs to no turn and has number 0. Its time, and whether a run may have become ready, are recorded here.
    fn read_answer_row(&mut self, row: &Row) -> Result<(usize, String), InvalidRow> {
        let nth: i32 = get(row, 0)?;
        let code: &str = get(row, 1)?;
        if code == "now" {
            self.time.observe(timestamp(row, 3)?);
            self.notice.has_work |= get::<bool>(row, 4)?;
        }
        Ok((usize::try_from(nth).unwrap_or(0), code.to_owned()))
    }

    /// The answer to a turn whose result has this code: one of those in `160_commit.sql`. `detail` is the text in the
    /// same row, for example the session that holds the run.
    fn answer_of_code(&self, index: usize, code: &str, detail: &str) -> TurnAnswer {
        let turn = &self.turns[index];
        let run = turn.run;
        Err(match code {
            "done" => return Ok(Committed::Done),
            // A repeated start gets the same answer as the first time.
            "existed" => return Ok(Committed::Existed(Started { run, is_new: true })),
            "other" | "taken" => return self.answer_of_existing_key(turn, code, detail),
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
            _ => self.check_errors[index].clone().unwrap_or_else(|| invalid(run, "it failed a check")),
        })
    }

    /// The answer to a start whose key names another run.
    fn answer_of_existing_key(&self, turn: &Turn, code: &str, detail: &str) -> TurnAnswer {
        let (run, workflow) = detail.split_once(' ').unwrap_or((detail, ""));
        let run: RunId = run.parse().map_err(|error| corrupt_error(&self.database.place, &error))?;
        match &turn.based_on {
            BasedOn::Start(start) if code == "taken" => Err(key_taken(start, run, workflow)),
            _ => Ok(Committed::Existed(Started { run, is_new: false })),
        }
    }
}
