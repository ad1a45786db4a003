//! Reading a whole history or inbox, page by page.

use outlast_core::event::TurnRecord;
use outlast_core::limits::{HISTORY_TURNS_READ_MAX, INBOX_READ_MAX};
use outlast_core::{Message, RunId, World, WorldError};

/// Reads the whole history of a run.
pub(crate) async fn read_history(world: &dyn World, run: RunId) -> Result<Vec<TurnRecord>, WorldError> {
    let mut history: Vec<TurnRecord> = Vec::new();
    loop {
        let from = history.last().map_or(0, |turn| turn.seq + turn.events.len() as u64);
        let page = world.history(run, from, HISTORY_TURNS_READ_MAX).await?;
        let is_last = page.len() < HISTORY_TURNS_READ_MAX;
        history.extend(page);
        if is_last {
            return Ok(history);
        }
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
