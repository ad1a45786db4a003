//! Committing turns: the fence, the history, and what becomes of the run.

use outlast_core::refusal::session_gone;
use outlast_core::turn::From;
use outlast_core::{
    Committed, Ended, Outcome, SessionId, Start, Started, Status, Stuck, Then, Timestamp, TurnId, WorldError,
};
use rusqlite::{OptionalExtension, params};

use crate::beyond::reach;
use crate::error::Refusal;
use crate::holdings::Holding;
use crate::row::{maybe_word, number, reason, stored, word};
use crate::sql;
use crate::start::{Birth, Born, insert};
use crate::turn::NewTurn;
use crate::tx::{Standing, Tx};

/// Commits a turn, all or nothing: every check comes before the first write.
pub(crate) fn commit(tx: &mut Tx<'_>, new: &NewTurn) -> Result<Committed, Refusal> {
    let standing = tx.standing(new.session)?;
    new.check()?;
    match &new.turn.from {
        _ if standing == Standing::Gone => Err(session_gone(new.session).into()),
        From::Start(start) => commit_start(tx, new, start),
        From::Turn(from) => commit_next(tx, new, *from, standing),
    }
}

/// Commits a turn of a run that the session holds.
fn commit_next(
    tx: &mut Tx<'_>,
    new: &NewTurn,
    from: TurnId,
    standing: Standing,
) -> Result<Committed, Refusal> {
    let turn = &new.turn;
    let known = if standing == Standing::Ours { tx.holding(turn.run, new.session) } else { None };
    let holding = match known {
        Some(holding) => holding,
        None => match find(tx, new)? {
            Found::Repeat => return Ok(Committed::Done),
            Found::Held(holding) => holding,
        },
    };
    if holding.turn == turn.id {
        return Ok(Committed::Done);
    }
    if holding.turn != from {
        return Err(new.fenced(&format!("it was computed from {from}, the last turn is {}", holding.turn)));
    }
    check(new, &holding)?;
    if let Some(until) = turn.fired_until {
        check_fired(tx, new, until)?;
    }
    if let Ok(Some(beyond)) = &new.beyond {
        check_consumed(tx, new)?;
        reach(tx, new, beyond)?;
    }
    write(tx, new, &holding)?;
    Ok(Committed::Done)
}

enum Found {
    Repeat,
    Held(Holding),
}

/// Reads from the file what the holdings do not know.
fn find(tx: &Tx<'_>, new: &NewTurn) -> Result<Found, Refusal> {
    let mut statement = tx.connection.prepare_cached(sql::RUN_TIP)?;
    let tip = statement
        .query_row([&new.run], |row| {
            let owner: Option<SessionId> = maybe_word(row, 1)?;
            let (turn, next_seq) = (word(row, 2)?, number(row, 3)?);
            let ahead: Option<i64> = row.get(8)?;
            let (turn, next_seq) = match ahead {
                Some(ahead) if ahead > stored(next_seq) => (word(row, 7)?, number(row, 8)?),
                _ => (turn, next_seq),
            };
            Ok((owner, Holding { session: new.session, turn, next_seq, consumed: number(row, 5)? }))
        })
        .optional()?;
    match tip {
        None => Err(new.fenced("there is no such run")),
        Some((_, holding)) if holding.turn == new.turn.id => Ok(Found::Repeat),
        Some((owner, holding)) if owner == Some(new.session) => Ok(Found::Held(holding)),
        Some((Some(owner), _)) => Err(new.fenced(&format!("session {owner} holds it"))),
        Some((None, _)) => Err(new.fenced("nobody holds it")),
    }
}

fn check(new: &NewTurn, holding: &Holding) -> Result<(), Refusal> {
    let turn = &new.turn;
    if turn.seq != holding.next_seq {
        let why = format!("it begins with event {}, the next one is {}", turn.seq, holding.next_seq);
        return Err(new.invalid(&why));
    }
    match &turn.then {
        Then::Stuck(_) => {}
        _ if turn.consumed < holding.consumed => {
            return Err(new.invalid("it consumed less than the turn before"));
        }
        Then::End(status) => check_end(new, *status)?,
        _ => {}
    }
    Ok(())
}

fn check_end(new: &NewTurn, status: Status) -> Result<(), Refusal> {
    if new.outcome.as_ref().map(Outcome::status) == Some(status) {
        return Ok(());
    }
    Err(new.invalid(&format!("it ends as {status} and its last event does not say so")))
}

fn check_fired(tx: &Tx<'_>, new: &NewTurn, until: Timestamp) -> Result<(), Refusal> {
    let mut statement = tx.connection.prepare_cached(sql::INBOX_MISSED)?;
    let params = params![new.run, stored(new.turn.consumed), until.as_micros()];
    if statement.query_row(params, |row| row.get::<_, bool>(0))? {
        return Err(WorldError::Conflict(format!(
            "run {} fired a timer of {until} and has not read a message from before; read its inbox first",
            new.run
        ))
        .into());
    }
    Ok(())
}

/// Checks the position before the run's own row is written, for a turn that writes other rows first.
fn check_consumed(tx: &Tx<'_>, new: &NewTurn) -> Result<(), Refusal> {
    let mut statement = tx.connection.prepare_cached(sql::RUN_RECEIVER)?;
    let sent: u64 = statement.query_row([&new.run], |row| number(row, 1))?;
    if new.turn.consumed > sent { Err(consumed_too_much(new)) } else { Ok(()) }
}

fn consumed_too_much(new: &NewTurn) -> Refusal {
    new.invalid("it consumed more messages than were sent")
}

/// Writes the row first, because its statement also checks the position; then the history.
fn write(tx: &mut Tx<'_>, new: &NewTurn, holding: &Holding) -> Result<(), Refusal> {
    let turn = &new.turn;
    let changed = match &turn.then {
        Then::Hold if turn.consumed == holding.consumed && !turn.clears_row && new.added > 0 => 1,
        Then::Hold => hold(tx, new)?,
        Then::Wait { wake_at, .. } => release(tx, new, Status::Waiting, *wake_at, *wake_at)?,
        Then::Release => release(tx, new, Status::Pending, None, Some(tx.now))?,
        Then::End(status) => end(tx, new, *status)?,
        Then::Stuck(stuck) => stick(tx, new, stuck)?,
    };
    if changed == 0 {
        return Err(consumed_too_much(new));
    }
    let is_stuck = matches!(turn.then, Then::Stuck(_));
    if turn.consumed > holding.consumed && !is_stuck {
        let params = params![new.run, stored(holding.consumed), stored(turn.consumed)];
        tx.execute(sql::INBOX_BLANK, params)?;
    }
    if new.added > 0 {
        insert_turn(tx, new)?;
    }
    settle(tx, new);
    Ok(())
}

fn insert_turn(tx: &Tx<'_>, new: &NewTurn) -> Result<usize, rusqlite::Error> {
    let turn = &new.turn;
    tx.execute(
        sql::TURN_INSERT,
        params![new.run, stored(turn.seq), new.id, turn.at.as_micros(), &*turn.build, new.events],
    )
}

fn hold(tx: &Tx<'_>, new: &NewTurn) -> Result<usize, rusqlite::Error> {
    tx.execute(
        sql::RUN_HOLD,
        params![
            new.run,
            stored(new.turn.consumed),
            new.id,
            stored(new.next_seq()),
            new.turn.at.as_micros(),
            new.turn.clears_deadline,
        ],
    )
}

fn release(
    tx: &mut Tx<'_>,
    new: &NewTurn,
    status: Status,
    wake_at: Option<Timestamp>,
    ready_at: Option<Timestamp>,
) -> Result<usize, rusqlite::Error> {
    // Only a run that waits may find its future again: a worker that releases one stops.
    let preferred = (status == Status::Waiting).then(|| new.session.to_string());
    let mut statement = tx.connection.prepare_cached(sql::RUN_WAIT)?;
    let released = statement.query_row(
        params![
            new.run,
            stored(new.turn.consumed),
            status.as_str(),
            preferred,
            new.id,
            stored(new.next_seq()),
            new.turn.at.as_micros(),
            tx.now.as_micros(),
            wake_at.map(Timestamp::as_micros),
            new.waits,
            ready_at.map(Timestamp::as_micros),
            new.turn.clears_deadline,
        ],
        |row| row.get::<_, bool>(0),
    );
    let released = released.optional()?;
    tx.after.rings |= released == Some(true);
    Ok(usize::from(released.is_some()))
}

fn end(tx: &Tx<'_>, new: &NewTurn, status: Status) -> Result<usize, rusqlite::Error> {
    tx.execute(
        sql::RUN_END,
        params![
            new.run,
            stored(new.turn.consumed),
            status.as_str(),
            new.id,
            stored(new.next_seq()),
            new.turn.at.as_micros(),
            tx.now.as_micros(),
        ],
    )
}

fn stick(tx: &mut Tx<'_>, new: &NewTurn, stuck: &Stuck) -> Result<usize, rusqlite::Error> {
    // It may be ready for those who need no code, or have a deadline.
    tx.after.rings = true;
    tx.execute(
        sql::RUN_STUCK,
        params![
            new.run,
            new.id,
            stored(new.next_seq()),
            new.turn.at.as_micros(),
            tx.now.as_micros(),
            0,
            reason(stuck),
            stuck.message,
            stuck.build,
        ],
    )
}

/// Notes what the turn came to: who holds the run now, the counts, whom to tell.
fn settle(tx: &mut Tx<'_>, new: &NewTurn) {
    let turn = &new.turn;
    let status = match &turn.then {
        Then::Hold => {
            let (session, consumed) = (new.session, turn.consumed);
            tx.hold(turn.run, Holding { session, turn: turn.id, next_seq: new.next_seq(), consumed });
            return;
        }
        Then::Wait { .. } => Status::Waiting,
        Then::Release => Status::Pending,
        Then::End(status) => *status,
        Then::Stuck(_) => Status::Stuck,
    };
    tx.let_go(turn.run);
    tx.count_move(Status::Running, status);
    note_end(tx, new);
}

/// Leaves it to be told after the commit that a turn ended its run.
fn note_end(tx: &mut Tx<'_>, new: &NewTurn) {
    if let (Then::End(_), Some(outcome)) = (&new.turn.then, &new.outcome) {
        tx.after.ended.push(Ended { run: new.turn.run, outcome: outcome.clone() });
    }
}

/// Commits the first turn of a run that the session started itself.
fn commit_start(tx: &mut Tx<'_>, new: &NewTurn, start: &Start) -> Result<Committed, Refusal> {
    let turn = &new.turn;
    check_start(new, start)?;
    let (status, owner, preferred) = match &turn.then {
        Then::Hold => (Status::Running, Some(new.session), None),
        Then::Wait { .. } => (Status::Waiting, None, Some(new.session)),
        Then::Release => (Status::Pending, None, None),
        Then::End(status) => (*status, None, None),
        Then::Stuck(_) => (Status::Stuck, None, None),
    };
    let wake_at = if let Then::Wait { wake_at, .. } = &turn.then { *wake_at } else { None };
    let ready_at = if matches!(turn.then, Then::Release) { Some(tx.now) } else { wake_at };
    let deadline = match &turn.then {
        Then::End(_) => None,
        Then::Stuck(_) => start.deadline,
        _ => start.deadline.filter(|_| !turn.clears_deadline),
    };
    let birth = Birth {
        status,
        owner,
        preferred,
        turn: turn.id,
        next_seq: new.next_seq(),
        at: turn.at,
        ended_at: status.is_final().then_some(tx.now),
        wake_at,
        waits: &new.waits,
        ready_at,
        stuck: if let Then::Stuck(stuck) = &turn.then { Some(stuck) } else { None },
        deadline,
    };
    match insert(tx, start, &birth)? {
        Born::New => {}
        Born::Other(started) => return Ok(Committed::Existed(started)),
        Born::Same if is_repeat_of_start(tx, new)? => return Ok(Committed::Done),
        Born::Same => return Ok(Committed::Existed(Started { run: turn.run, is_new: true })),
    }
    tx.after.rings |= ready_at.is_some() || owner.is_none() && deadline.is_some();
    insert_turn(tx, new)?;
    if let Ok(Some(beyond)) = &new.beyond {
        reach(tx, new, beyond)?;
    }
    if owner.is_some() {
        let next_seq = birth.next_seq;
        tx.hold(turn.run, Holding { session: new.session, turn: turn.id, next_seq, consumed: 0 });
    }
    note_end(tx, new);
    Ok(Committed::Done)
}

fn check_start(new: &NewTurn, start: &Start) -> Result<(), Refusal> {
    let turn = &new.turn;
    if start.run != turn.run {
        return Err(new.invalid(&format!("it starts run {}", start.run)));
    }
    if turn.seq != 0 || turn.consumed != 0 {
        return Err(new.invalid("a first turn begins with event 0 and has consumed nothing"));
    }
    match &turn.then {
        Then::End(status) => check_end(new, *status),
        Then::Stuck(_) => Ok(()),
        _ if new.begins => Ok(()),
        _ => Err(new.invalid("a first turn begins with `run_started`")),
    }
}

/// Whether the turn itself began the run, and is still its last. A plain start may have used the
/// same id for its turn, but that one has no build.
fn is_repeat_of_start(tx: &Tx<'_>, new: &NewTurn) -> Result<bool, Refusal> {
    let is_last = match find(tx, new) {
        Ok(found) => matches!(found, Found::Repeat),
        Err(Refusal::World(_)) => false,
        Err(error) => return Err(error),
    };
    let mut statement = tx.connection.prepare_cached(sql::FIRST_BUILD)?;
    Ok(is_last && statement.query_row([&new.run], |row| row.get::<_, String>(0))? == *new.turn.build)
}
