//! Committing turns. Core decides whether a turn is accepted and computes the run's row; this module reads what core
//! needs, and writes the result.

use outlast_core::format::FIRST_FORMAT;
use outlast_core::refusal::session_gone;
use outlast_core::state::fenced;
use outlast_core::{Committed, Ended, Position, SessionId, Start, Started, Status, Timestamp, Verdict};
use rusqlite::{Error, OptionalExtension, params};

use crate::connection::error::Refusal;
use crate::schema::columns;
use crate::schema::row::{number, parsed, parsed_or_null, ready_times, timestamp, to_i64};
use crate::schema::sql;
use crate::write::lease_cache::CachedLease;
use crate::write::outbox::apply_outbox;
use crate::write::start::{InsertOutcome, insert};
use crate::write::turn::EncodedTurn;
use crate::write::tx::{SessionOwner, Tx};

/// Commits a turn completely or not at all: all checks precede the first write.
pub(crate) fn commit(tx: &mut Tx<'_>, new: &EncodedTurn) -> Result<Committed, Refusal> {
    let session_owner = tx.session_owner(new.session)?;
    new.check()?;
    if session_owner == SessionOwner::Ended {
        return Err(session_gone(new.session).into());
    }
    match &new.start {
        Some(start) => commit_start(tx, new, start),
        None => commit_next(tx, new, session_owner),
    }
}

/// Commits a turn of a run that exists.
fn commit_next(
    tx: &mut Tx<'_>,
    new: &EncodedTurn,
    session_owner: SessionOwner,
) -> Result<Committed, Refusal> {
    let known = if session_owner == SessionOwner::ThisProcess {
        tx.cached_lease(new.terms.run, new.session)
    } else {
        None
    };
    let mut position = match known {
        Some(lease) => lease.position(),
        None => position(tx, &new.run)?.ok_or_else(|| fenced(new.terms.run, "there is no such run"))?,
    };
    // `sent` is only a lower bound so far. Read it if the turn consumed more.
    if new.terms.consumed > position.sent {
        position.sent = sent(tx, &new.run)?;
    }
    let missed = if new.terms.fired_until.is_some() { first_unconsumed_at(tx, new)? } else { None };
    if new.terms.judge(new.session, &position, missed)? == Verdict::Repeated {
        return Ok(Committed::Done);
    }
    if let Ok(Some(outbox)) = &new.outbox {
        apply_outbox(tx, new, outbox)?;
    }
    write(tx, new, position.consumed)?;
    Ok(Committed::Done)
}

/// Reads the position of a run that is not in the cache. The number of sent messages is not read here, but only if the
/// turn has consumed messages.
fn position(tx: &Tx<'_>, run: &str) -> Result<Option<Position>, Error> {
    let mut statement = tx.connection.prepare_cached(sql::RUN_POSITION)?;
    let found = statement.query_row([run], |row| {
        let (next_event, consumed) = (number(row, 2)?, number(row, 3)?);
        let in_history: Option<i64> = row.get(5)?;
        let is_row_outdated = in_history.is_some_and(|in_history| in_history > to_i64(next_event));
        let (turn, next_event) = if is_row_outdated { (4, number(row, 5)?) } else { (1, next_event) };
        let (owner, turn) = (parsed_or_null::<SessionId>(row, 0)?, parsed(row, turn)?);
        Ok(Position { owner, turn, next_event, consumed, sent: consumed })
    });
    found.optional()
}

/// The number of messages that were sent to a run.
fn sent(tx: &Tx<'_>, run: &str) -> Result<u64, Error> {
    tx.connection.prepare_cached(sql::RUN_RECEIVER)?.query_row([run], |row| number(row, 1))
}

/// The time at which the first message was accepted that the turn has not consumed.
fn first_unconsumed_at(tx: &Tx<'_>, new: &EncodedTurn) -> Result<Option<Timestamp>, Error> {
    let mut statement = tx.connection.prepare_cached(sql::INBOX_FIRST_UNCONSUMED)?;
    statement.query_row(params![new.run, to_i64(new.terms.consumed)], |row| timestamp(row, 0)).optional()
}

/// Writes the row, unless the turn only extends the history; then writes the history.
fn write(tx: &mut Tx<'_>, new: &EncodedTurn, consumed_before: u64) -> Result<(), Error> {
    let consumed = new.change.consumed.unwrap_or(consumed_before);
    if new.change.must_write(consumed_before) {
        write_row(tx, new, consumed)?;
    } else if new.change.format > FIRST_FORMAT {
        tx.execute(sql::RUN_RAISE_FORMAT, params![new.run, new.change.format])?;
    }
    if consumed > consumed_before {
        tx.execute(sql::INBOX_CLEAR_CONSUMED, params![new.run, to_i64(consumed_before), to_i64(consumed)])?;
    }
    if new.added > 0 {
        insert_turn(tx, new)?;
    }
    record_result(tx, new, consumed);
    Ok(())
}

/// Writes the run's row as it is after the turn, and notes whether workers must be woken.
fn write_row(tx: &mut Tx<'_>, new: &EncodedTurn, consumed: u64) -> Result<(), Error> {
    let (change, now) = (&new.change, tx.now.as_micros());
    let [if_read, if_unread, if_can_end, if_paused] = ready_times(change.ready, tx.now);
    let columns = columns::values(&change.columns);
    tx.execute(
        &sql::RUN_CHANGE,
        &*columns::append_values(
            params![
                new.run,
                change.status.as_str(),
                change.owner.map(|session| session.to_string()),
                change.preferred.map(|session| session.to_string()),
                new.id,
                to_i64(change.next_event),
                change.turn_at.as_micros(),
                change.owner.is_none().then_some(now),
                change.has_ended().then_some(now),
                to_i64(consumed),
                change.wake_at.map(Timestamp::as_micros),
                new.waits,
                change.requests_cancel,
                change.format,
                if_read,
                if_unread,
                if_can_end,
                if_paused,
                change.clears_marks.bits(),
                change.sets_marks.bits(),
                change.version,
            ],
            &columns,
        ),
    )?;
    tx.after_commit.wakes_workers |= change.owner.is_none() && may_be_claimed(tx, new)?;
    Ok(())
}

/// Whether a run that no session holds any more may be claimed now or later, so that workers must be woken. Usually the
/// turn decides that. If it depends on the run's messages, the stored row decides.
fn may_be_claimed(tx: &Tx<'_>, new: &EncodedTurn) -> Result<bool, Error> {
    if new.change.columns.deadline.is_some() {
        return Ok(true);
    }
    match ready_times(new.change.ready, tx.now) {
        [None, None, None, None] => Ok(false),
        [Some(_), Some(_), Some(_), Some(_)] => Ok(true),
        _ => {
            let mut statement = tx.connection.prepare_cached(sql::RUN_IS_READY)?;
            statement.query_row([&new.run], |row| row.get(0))
        }
    }
}

fn insert_turn(tx: &Tx<'_>, new: &EncodedTurn) -> Result<usize, Error> {
    tx.execute(
        sql::TURN_INSERT,
        params![new.run, to_i64(new.terms.seq), new.id, new.at.as_micros(), &*new.build, new.events],
    )
}

/// Updates the cache, the counts and the notifications after the turn was written.
fn record_result(tx: &mut Tx<'_>, new: &EncodedTurn, consumed: u64) {
    if new.change.owner.is_some() {
        cache_held_run(tx, new, consumed);
        return;
    }
    tx.drop_lease(new.terms.run);
    tx.count_move(Status::Running, new.change.status);
    add_end(tx, new);
}

/// Caches the run, which its session still holds after the turn.
fn cache_held_run(tx: &mut Tx<'_>, new: &EncodedTurn, consumed: u64) {
    let (session, turn, next_seq) = (new.session, new.terms.id, new.change.next_event);
    tx.cache_lease(new.terms.run, CachedLease { session, turn, next_seq, consumed });
}

/// Adds the end of the run, if the turn ends it, to the notifications after the commit.
fn add_end(tx: &mut Tx<'_>, new: &EncodedTurn) {
    if let Some(outcome) = &new.outcome {
        tx.after_commit.ended_runs.push(Ended { run: new.terms.run, outcome: outcome.clone() });
    }
}

/// Commits the first turn of a run that its session starts.
fn commit_start(tx: &mut Tx<'_>, new: &EncodedTurn, start: &Start) -> Result<Committed, Refusal> {
    let run = new.terms.run;
    new.terms.validity.clone()?;
    match insert(tx, start, &new.change, &new.waits)? {
        InsertOutcome::Inserted => {}
        InsertOutcome::SameKey(started) => return Ok(Committed::Existed(started)),
        InsertOutcome::SameId if is_repeat_of_start(tx, new)? => return Ok(Committed::Done),
        InsertOutcome::SameId => return Ok(Committed::Existed(Started { run, is_new: true })),
    }
    let is_held = new.change.owner.is_some();
    let is_ready = new.change.ready.if_read.moment(tx.now).is_some();
    tx.after_commit.wakes_workers |= is_ready || !is_held && new.change.columns.deadline.is_some();
    insert_turn(tx, new)?;
    if let Ok(Some(outbox)) = &new.outbox {
        apply_outbox(tx, new, outbox)?;
    }
    if is_held {
        cache_held_run(tx, new, 0);
    }
    add_end(tx, new);
    Ok(Committed::Done)
}

/// Whether the turn has already started the run and is still its last one. A plain start may have used the same turn
/// id, but it records no build.
fn is_repeat_of_start(tx: &Tx<'_>, new: &EncodedTurn) -> Result<bool, Refusal> {
    let is_last = position(tx, &new.run)?.is_some_and(|position| position.turn == new.terms.id);
    let mut statement = tx.connection.prepare_cached(sql::FIRST_BUILD)?;
    Ok(is_last && statement.query_row([&new.run], |row| row.get::<_, String>(0))? == *new.build)
}
