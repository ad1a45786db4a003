//! The request to stop a run, as part of an explanation.

use outlast_core::{Event, MessageBody, RunView, Timestamp, TurnRecord};
use serde::Serialize;

use super::retried::{Retried, replayed_events};
use crate::client::Client;
use crate::error::Error;
use crate::worker::read_all::read_inbox;
use crate::worker::without_earlier_requests;

/// A request to stop that a run has received.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stopping {
    /// The reason given in the request.
    pub reason: String,
    /// When the run was asked to stop.
    pub at: Timestamp,
    /// Whether the workflow has been notified and is cleaning up. Otherwise the request is still in the inbox.
    pub is_told: bool,
}

impl Client {
    /// The request to stop a run: delivered, or still in its inbox.
    pub(super) async fn stopping(
        &self,
        view: &RunView,
        history: &[TurnRecord],
        retried: Option<&Retried>,
    ) -> Result<Option<Stopping>, Error> {
        let history = replayed_events(history, retried);
        let delivered = history.iter().rev().find_map(|turn| {
            turn.events.iter().find_map(|event| match event {
                Event::CancelRequested { reason, .. } => {
                    Some(Stopping { reason: reason.clone(), at: turn.at, is_told: true })
                }
                _ => None,
            })
        });
        if delivered.is_some() || view.ended_at.is_some() || view.sent <= view.consumed {
            return Ok(delivered);
        }
        let unread = self.repeat(|| read_inbox(&*self.world, view.id, view.consumed)).await?;
        Ok(without_earlier_requests(unread).into_iter().find_map(|message| match message.body {
            MessageBody::Cancel { reason }
            | MessageBody::Terminate { reason }
            | MessageBody::Compensate { reason } => Some(Stopping { reason, at: message.at, is_told: false }),
            _ => None,
        }))
    }
}
