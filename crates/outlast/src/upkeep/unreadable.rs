//! Runs whose history or inbox this build cannot read: what is needed to end one is found elsewhere.

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::{
    Claimed, Event, ListOrder, Message, MessageBody, Outcome, QueuedSteps, RunId, RunQuery, Status, World,
    WorldError,
};

/// Messages at the end of an inbox among which a terminate is looked for, one call each.
const LAST_MESSAGES: u64 = 32;

/// The last unread messages of a run, as far back as they can be read.
pub(super) async fn inbox(world: &dyn World, claimed: &Claimed) -> Result<Vec<Message>, WorldError> {
    let sent = world.run(claimed.run).await?.sent;
    let first = claimed.consumed.max(sent.saturating_sub(LAST_MESSAGES));
    match super::read_inbox(world, claimed.run, claimed.consumed).await {
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

/// What others are told of the end of a run whose history cannot be read: its row names the parent, and the
/// children name it. Whether one was to go on without it is not known; they are all told.
pub(super) async fn told_by(
    world: &dyn World,
    run: RunId,
    events: &[Event],
) -> Result<Vec<(RunId, MessageBody)>, WorldError> {
    let reason = format!("its parent {run} was ended");
    let mut told = Vec::new();
    let mut query = RunQuery {
        parent: Some(run),
        statuses: vec![Status::Pending, Status::Running, Status::Waiting, Status::Stuck],
        queued_steps: QueuedSteps::Listed,
        order: ListOrder::OldestFirst,
        limit: PAGE_RUNS_MAX,
        ..RunQuery::default()
    };
    loop {
        let page = world.runs(query.clone()).await?;
        told.extend(page.runs.iter().map(|child| {
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
        told.push((parent.run, MessageBody::ChildEnded { op: parent.op, outcome }));
    }
    Ok(told)
}
