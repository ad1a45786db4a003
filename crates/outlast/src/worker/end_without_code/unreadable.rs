//! Ending runs whose history or inbox this build cannot read: the necessary data are read from rows of runs instead.

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::{
    BuiltInRuns, Claimed, Event, ListOrder, Message, MessageBody, Outcome, QueuedSteps, RunId, RunQuery,
    Status, World, WorldError,
};

use crate::worker::read_all::read_inbox;

/// The number of messages at the end of an inbox that are searched for a terminate, with one call each.
const LAST_MESSAGES: u64 = 32;

/// Reads the last unread messages of a run, back to the first one that cannot be read.
pub(in crate::worker) async fn inbox(
    world: &dyn World,
    claimed: &Claimed,
) -> Result<Vec<Message>, WorldError> {
    let sent = world.run(claimed.run).await?.sent;
    let first = claimed.consumed.max(sent.saturating_sub(LAST_MESSAGES));
    match read_inbox(world, claimed.run, claimed.consumed).await {
        Err(WorldError::Corrupt(_)) => {}
        read => return read,
    }
    let mut inbox = Vec::new();
    for after in (first..sent).rev() {
        match world.inbox(claimed.run, after).await {
            Ok(messages) => inbox = messages,
            Err(WorldError::Corrupt(_)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(inbox)
}

/// The messages to other runs when a run ends whose history cannot be read. The parent is in the run's row, and the
/// children are found by their parent. It is not known which children are to be abandoned, so all are asked to stop.
pub(in crate::worker) async fn end_messages(
    world: &dyn World,
    run: RunId,
    events: &[Event],
) -> Result<Vec<(RunId, MessageBody)>, WorldError> {
    let reason = format!("its parent {run} was ended");
    let mut messages = Vec::new();
    let mut query = RunQuery {
        parent: Some(run),
        statuses: vec![Status::Pending, Status::Running, Status::Waiting, Status::Stuck],
        queued_steps: QueuedSteps::Listed,
        built_in: BuiltInRuns::Listed,
        order: ListOrder::OldestFirst,
        limit: PAGE_RUNS_MAX,
        ..RunQuery::default()
    };
    loop {
        let page = world.runs(query.clone()).await?;
        messages.extend(page.runs.iter().map(|child| {
            let reason = reason.clone();
            let is_step = child.is_queued_step();
            let body =
                if is_step { MessageBody::Terminate { reason } } else { MessageBody::Cancel { reason } };
            (child.id, body)
        }));
        if page.next.is_none() {
            break;
        }
        query.after = page.next;
    }
    let parent = world.run(run).await?.parent.filter(|parent| parent.awaits);
    if let (Some(parent), Some(outcome)) = (parent, events.last().and_then(Outcome::of_final)) {
        messages.push((parent.run, MessageBody::ChildEnded { op: parent.op, outcome }));
    }
    Ok(messages)
}
