//! What can be done to a run without its workflow's code.

use std::sync::Arc;

use outlast_core::event::{FORMAT, TurnRecord};
use outlast_core::limits::{HISTORY_TURNS_READ_MAX, SESSION_DEFAULT};
use outlast_core::turn::From;
use outlast_core::{
    ClaimRequest, Claimed, Event, Failure, FailureKind, Join, Message, MessageBody, RunId, SessionId, Status,
    Then, Turn, World, WorldError,
};

use crate::ids;

/// Runs that one call cancels at the most, when no worker is joined to do it.
const UNBORN_MAX: usize = 100;

/// The whole history of a run.
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

/// The events that cancel a run which had no turn yet, and the position of the last message read.
pub(crate) fn unborn_cancel(inbox: Vec<Message>) -> Option<(Vec<Event>, u64)> {
    let mut events = Vec::new();
    for message in inbox {
        match message.body {
            MessageBody::Hook { name, payload } => {
                events.push(Event::HookReceived { name, message: message.id, payload });
            }
            MessageBody::Cancel { reason } => {
                let failure = Failure::new(FailureKind::Cancelled, format!("cancelled: {reason}"));
                events.push(Event::CancelRequested { message: message.id, reason, pauses: Vec::new() });
                events.push(Event::RunCancelled { failure });
                return Some((events, message.position));
            }
            _ => {}
        }
    }
    None
}

/// Cancels a run that had no turn yet, when no worker is joined to do it.
pub(crate) async fn cancel_unborn(world: &Arc<dyn World>, run: RunId) -> Result<(), WorldError> {
    if world.run(run).await?.status != Status::Pending {
        return Ok(());
    }
    let session = ids::session();
    let join = Join {
        session,
        host: "client".into(),
        pid: std::process::id(),
        build: "client".into(),
        code: Arc::from([]),
        time: SESSION_DEFAULT,
    };
    world.join(join).await?;
    let done = cancel_unborn_under(world, session).await;
    world.leave(session).await?;
    done
}

async fn cancel_unborn_under(world: &Arc<dyn World>, session: SessionId) -> Result<(), WorldError> {
    // A worker that was killed may still have its row.
    world.takeover(session).await?;
    if world.workers().await?.len() > 1 {
        return Ok(());
    }
    let request = ClaimRequest {
        limit: UNBORN_MAX,
        code: Arc::from([]),
        build: "client".into(),
        format: FORMAT,
        suspect: false,
        known: Arc::new(|_, _| false),
    };
    let work = world.claim(session, request).await?;
    let turns: Vec<_> =
        work.claimed.into_iter().filter_map(|claimed| cancelling_turn(world, claimed)).collect();
    world.commit(session, &turns).await.map(drop)
}

fn cancelling_turn(world: &Arc<dyn World>, claimed: Claimed) -> Option<Turn> {
    let (events, consumed) = unborn_cancel(claimed.inbox)?;
    Some(Turn {
        run: claimed.run,
        id: ids::turn(),
        from: From::Turn(claimed.turn),
        seq: claimed.seq,
        at: world.clock().now().max(claimed.turn_at),
        build: "client".into(),
        events,
        consumed,
        fired_until: None,
        clears_crashes: false,
        then: Then::End(Status::Cancelled),
    })
}
