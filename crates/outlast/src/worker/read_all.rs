//! Reading a whole history or inbox, page by page.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use outlast_core::cut::missing_turns;
use outlast_core::event::TurnRecord;
use outlast_core::limits::{HISTORY_TURNS_READ_MAX, INBOX_READ_MAX};
use outlast_core::{Message, RunId, World, WorldError};

/// Reads the history of a run from an event on, which is the first one of a turn.
pub(crate) async fn read_history(
    world: &dyn World,
    run: RunId,
    from: u64,
) -> Result<Vec<TurnRecord>, WorldError> {
    let mut history: Vec<TurnRecord> = Vec::new();
    loop {
        let from = history.last().map_or(from, |turn| turn.seq + turn.events.len() as u64);
        let page = world.history(run, from, HISTORY_TURNS_READ_MAX).await?;
        let is_last = page.len() < HISTORY_TURNS_READ_MAX;
        history.extend(page);
        if is_last {
            return Ok(history);
        }
    }
}

/// The turns that are read at once in search of several that are not far from each other.
const NEARBY_TURNS: usize = 100;

/// Reads single turns of a history, given by the numbers of their first events. Turns that do not exist are left out.
async fn read_turns(
    world: &dyn World,
    run: RunId,
    mut firsts: BTreeSet<u64>,
) -> Result<Vec<TurnRecord>, WorldError> {
    let mut turns = Vec::new();
    while let Some(first) = firsts.first().copied() {
        let nearby = if firsts.len() > 1 { NEARBY_TURNS } else { 1 };
        let page = world.history(run, first, nearby).await?;
        let last = page.last().map_or(first, |turn| turn.seq.max(first));
        turns.extend(page.into_iter().filter(|turn| firsts.contains(&turn.seq)));
        firsts.retain(|first| *first > last);
    }
    Ok(turns)
}

/// Adds the turns that a replay of the history needs: those with payloads that no hook has taken, and those before a
/// loop.
pub(crate) async fn add_missing_turns(
    world: &dyn World,
    run: RunId,
    mut history: Vec<TurnRecord>,
) -> Result<Vec<TurnRecord>, WorldError> {
    // Twice: the turns before a loop may need others.
    for _ in 0..2 {
        let missing = missing_turns(&history);
        if missing.is_empty() {
            break;
        }
        let mut turns = read_turns(world, run, missing.single).await?;
        for range in missing.ranges {
            turns.extend(read_range(world, run, range).await?);
        }
        turns.append(&mut history);
        turns.sort_by_key(|turn| turn.seq);
        turns.dedup_by_key(|turn| turn.seq);
        history = turns;
    }
    Ok(history)
}

/// Reads the turns whose first events are in a range.
async fn read_range(
    world: &dyn World,
    run: RunId,
    range: RangeInclusive<u64>,
) -> Result<Vec<TurnRecord>, WorldError> {
    let (mut turns, mut from) = (Vec::new(), *range.start());
    // Few in most cases: the code before a loop.
    let mut limit = NEARBY_TURNS;
    loop {
        let page = world.history(run, from, limit).await?;
        let is_last = page.len() < limit || page.last().is_some_and(|turn| turn.seq >= *range.end());
        turns.extend(page.into_iter().filter(|turn| range.contains(&turn.seq)));
        if is_last {
            return Ok(turns);
        }
        from = turns.last().map_or(from, |turn: &TurnRecord| turn.seq + 1);
        limit = HISTORY_TURNS_READ_MAX;
    }
}

/// Reads all messages of a run after a position.
pub(crate) async fn read_inbox(
    world: &dyn World,
    run: RunId,
    after: u64,
) -> Result<Vec<Message>, WorldError> {
    let mut inbox: Vec<Message> = Vec::new();
    loop {
        let page = world.inbox(run, inbox.last().map_or(after, |last| last.position)).await?;
        let is_last = page.len() < INBOX_READ_MAX;
        inbox.extend(page);
        if is_last {
            return Ok(inbox);
        }
    }
}
