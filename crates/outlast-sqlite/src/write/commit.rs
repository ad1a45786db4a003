//! Committing turns: core judges a turn and computes the run's row; here both are applied to the file.

use outlast_core::format::FIRST_FORMAT;
use outlast_core::refusal::session_gone;
use outlast_core::state::fenced;
use outlast_core::{Committed, Ended, Position, SessionId, Start, Started, Status, Timestamp, Verdict};
use rusqlite::{Error, OptionalExtension, params};

use crate::connection::error::Refusal;
use crate::schema::columns;
use crate::schema::row::{maybe_word, moment, number, ready_times, stored, word};
use crate::schema::sql;
use crate::write::lease_cache::Holding;
use crate::write::outbox::deliver;
use crate::write::start::{Born, insert};
use crate::write::turn::NewTurn;
use crate::write::tx::{Standing, Tx};

/// Commits a turn, all or nothing: every check comes before the first write.
pub(crate) fn commit(tx: &mut Tx<'_>, new: &NewTurn) -> Result<Committed, Refusal> {
    let standing = tx.standing(new.session)?;
    new.check()?;
    if standing == Standing::Gone {
        return Err(session_gone(new.session).into());
    }
    match &new.start {
        Some(start) => commit_start(tx, new, start),
        None => commit_next(tx, new, standing),
    }
}

/// Commits a turn of a run that is there.
fn commit_next(tx: &mut Tx<'_>, new: &NewTurn, standing: Standing) -> Result<Committed, Refusal> {
    let known = if standing == Standing::Ours { tx.holding(new.terms.run, new.session) } else { None };
    let mut position = match known {
        Some(holding) => holding.position(),
        None => position(tx, &new.run)?.ok_or_else(|| fenced(new.terms.run, "there is no such run"))?,
    };
    if new.terms.consumed > position.sent {
        position.sent = sent(tx, &new.run)?;
    }
    let missed = if new.terms.fired_until.is_some() { missed(tx, new)? } else { None };
    if new.terms.judge(new.session, &position, missed)? == Verdict::Repeated {
        return Ok(Committed::Done);
    }
    if let Ok(Some(outbox)) = &new.outbox {
        deliver(tx, new, outbox)?;
    }
    write(tx, new, position.consumed)?;
    Ok(Committed::Done)
}

/// Reads from the file what the holdings do not know. How many messages were sent is read when a turn says that
/// it consumed some.
fn position(tx: &Tx<'_>, run: &str) -> Result<Option<Position>, Error> {
    let mut statement = tx.connection.prepare_cached(sql::RUN_TIP)?;
    let tip = statement.query_row([run], |row| {
        let (next_event, consumed) = (number(row, 2)?, number(row, 3)?);
        let ahead: Option<i64> = row.get(5)?;
        let is_ahead = ahead.is_some_and(|ahead| ahead > stored(next_event));
        let (turn, next_event) = if is_ahead { (4, number(row, 5)?) } else { (1, next_event) };
        let (owner, turn) = (maybe_word::<SessionId>(row, 0)?, word(row, turn)?);
        Ok(Position { owner, turn, next_event, consumed, sent: consumed })
    });
    tip.optional()
}

fn sent(tx: &Tx<'_>, run: &str) -> Result<u64, Error> {
    tx.connection.prepare_cached(sql::RUN_RECEIVER)?.query_row([run], |row| number(row, 1))
}

/// When the first message was accepted that the turn has not consumed.
fn missed(tx: &Tx<'_>, new: &NewTurn) -> Result<Option<Timestamp>, Error> {
    let mut statement = tx.connection.prepare_cached(sql::INBOX_MISSED)?;
    statement.query_row(params![new.run, stored(new.terms.consumed)], |row| moment(row, 0)).optional()
}

/// Writes the row, unless the turn only adds to the history; then the history.
fn write(tx: &mut Tx<'_>, new: &NewTurn, consumed_before: u64) -> Result<(), Error> {
    let consumed = new.change.consumed.unwrap_or(consumed_before);
    if new.change.must_write(consumed_before) {
        write_row(tx, new, consumed)?;
    } else if new.change.format > FIRST_FORMAT {
        tx.execute(sql::RUN_RAISE, params![new.run, new.change.format])?;
    }
    if consumed > consumed_before {
        tx.execute(sql::INBOX_BLANK, params![new.run, stored(consumed_before), stored(consumed)])?;
    }
    if new.added > 0 {
        insert_turn(tx, new)?;
    }
    settle(tx, new, consumed);
    Ok(())
}

fn write_row(tx: &mut Tx<'_>, new: &NewTurn, consumed: u64) -> Result<(), Error> {
    let (change, now) = (&new.change, tx.now.as_micros());
    let [if_read, if_unread, if_can_end] = ready_times(change.ready, tx.now);
    let columns = columns::values(&change.columns);
    tx.execute(
        &sql::RUN_CHANGE,
        &*columns::with_values(
            params![
                new.run,
                change.status.as_str(),
                change.owner.map(|session| session.to_string()),
                change.preferred.map(|session| session.to_string()),
                new.id,
                stored(change.next_event),
                change.turn_at.as_micros(),
                change.owner.is_none().then_some(now),
                change.has_ended().then_some(now),
                stored(consumed),
                change.wake_at.map(Timestamp::as_micros),
                new.waits,
                change.requests_cancel,
                change.format,
                if_read,
                if_unread,
                if_can_end,
            ],
            &columns,
        ),
    )?;
    tx.after.rings |= change.owner.is_none() && may_be_claimed(tx, new)?;
    Ok(())
}

/// Whether a worker may have to know of a run that nobody holds any more. Mostly the turn says it; where it depends on
/// the run's messages, the row does.
fn may_be_claimed(tx: &Tx<'_>, new: &NewTurn) -> Result<bool, Error> {
    if new.change.columns.deadline.is_some() {
        return Ok(true);
    }
    match ready_times(new.change.ready, tx.now) {
        [None, None, None] => Ok(false),
        [Some(_), Some(_), Some(_)] => Ok(true),
        _ => {
            let mut statement = tx.connection.prepare_cached(sql::RUN_IS_READY)?;
            statement.query_row([&new.run], |row| row.get(0))
        }
    }
}

fn insert_turn(tx: &Tx<'_>, new: &NewTurn) -> Result<usize, Error> {
    tx.execute(
        sql::TURN_INSERT,
        params![new.run, stored(new.terms.seq), new.id, new.at.as_micros(), &*new.build, new.events],
    )
}

/// Notes what the turn came to: who holds the run now, the counts, whom to tell.
fn settle(tx: &mut Tx<'_>, new: &NewTurn, consumed: u64) {
    if new.change.owner.is_some() {
        note_holding(tx, new, consumed);
        return;
    }
    tx.let_go(new.terms.run);
    tx.count_move(Status::Running, new.change.status);
    note_end(tx, new);
}

fn note_holding(tx: &mut Tx<'_>, new: &NewTurn, consumed: u64) {
    let (session, turn, next_seq) = (new.session, new.terms.id, new.change.next_event);
    tx.hold(new.terms.run, Holding { session, turn, next_seq, consumed });
}

/// Leaves it to be told after the commit that a turn ended its run.
fn note_end(tx: &mut Tx<'_>, new: &NewTurn) {
    if let Some(outcome) = &new.outcome {
        tx.after.ended.push(Ended { run: new.terms.run, outcome: outcome.clone() });
    }
}

/// Commits the first turn of a run that the session started itself.
fn commit_start(tx: &mut Tx<'_>, new: &NewTurn, start: &Start) -> Result<Committed, Refusal> {
    let run = new.terms.run;
    new.terms.validity.clone()?;
    match insert(tx, start, &new.change, &new.waits)? {
        Born::New => {}
        Born::Other(started) => return Ok(Committed::Existed(started)),
        Born::Same if is_repeat_of_start(tx, new)? => return Ok(Committed::Done),
        Born::Same => return Ok(Committed::Existed(Started { run, is_new: true })),
    }
    let is_held = new.change.owner.is_some();
    let is_ready = new.change.ready.if_read.moment(tx.now).is_some();
    tx.after.rings |= is_ready || !is_held && new.change.columns.deadline.is_some();
    insert_turn(tx, new)?;
    if let Ok(Some(outbox)) = &new.outbox {
        deliver(tx, new, outbox)?;
    }
    if is_held {
        note_holding(tx, new, 0);
    }
    note_end(tx, new);
    Ok(Committed::Done)
}

/// Whether the turn itself began the run, and is still its last. A plain start may have used the
/// same id for its turn, but that one has no build.
fn is_repeat_of_start(tx: &Tx<'_>, new: &NewTurn) -> Result<bool, Refusal> {
    let is_last = position(tx, &new.run)?.is_some_and(|position| position.turn == new.terms.id);
    let mut statement = tx.connection.prepare_cached(sql::FIRST_BUILD)?;
    Ok(is_last && statement.query_row([&new.run], |row| row.get::<_, String>(0))? == *new.build)
}
