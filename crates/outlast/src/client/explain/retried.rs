//! The last retry of a run, as part of an explanation.

use std::borrow::Cow;

use outlast_core::cut::{is_skipped, retried_ranges};
use outlast_core::{Event, MessageBody, RunView, Timestamp, TurnRecord};
use serde::Serialize;

use super::sentence::moment_text;
use crate::client::{ACTOR_HEADER, Client};
use crate::error::Error;
use crate::worker::read_all::read_inbox;

/// A retry of a run, as part of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Retried {
    /// When the run was retried.
    pub at: Timestamp,
    /// The operation from which it continues.
    pub reopens: u64,
    /// The reason given by the caller; empty if there is none.
    pub reason: String,
    /// Who asked for it, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Whether a worker has continued the run since. Otherwise the request is still in the inbox.
    pub is_recorded: bool,
}

impl Client {
    /// The last retry of a run that has not ended: in its inbox, or recorded.
    pub(super) async fn last_retry(
        &self,
        view: &RunView,
        history: &[TurnRecord],
    ) -> Result<Option<Retried>, Error> {
        if view.ended_at.is_some() {
            return Ok(None);
        }
        if view.sent > view.consumed {
            let unread = self.repeat(|| read_inbox(&*self.world, view.id, view.consumed)).await?;
            let unread = unread.into_iter().rev().find_map(|message| match message.body {
                MessageBody::Retry(request) => Some(Retried {
                    at: message.at,
                    reopens: request.reopens.0,
                    reason: request.reason,
                    actor: message.headers.get(ACTOR_HEADER).cloned(),
                    is_recorded: false,
                }),
                _ => None,
            });
            if unread.is_some() {
                return Ok(unread);
            }
        }
        let recorded = history.iter().rev().find_map(|turn| {
            turn.events.iter().rev().find_map(|event| match event {
                Event::RunRetried(retried) => Some(Retried {
                    at: turn.at,
                    reopens: retried.reopens.0,
                    reason: retried.reason.clone(),
                    actor: retried.actor.clone(),
                    is_recorded: true,
                }),
                _ => None,
            })
        });
        Ok(recorded)
    }
}

impl Retried {
    /// The retry as a sentence.
    pub(super) fn sentence(&self, now: Timestamp) -> String {
        let actor = self.actor.as_ref().map(|actor| format!(" by {actor}")).unwrap_or_default();
        let reason = if self.reason.is_empty() { String::new() } else { format!(" (\"{}\")", self.reason) };
        let (at, op) = (moment_text(self.at, now), self.reopens);
        format!(" It was retried at {at}{actor}{reason}, and continues from operation {op}.")
    }
}

/// The history without the events that a retry has made skipped: of a retry that no turn has recorded, without a cancel.
/// The numbers of its events are wrong, so that it is of use only for a search.
pub(super) fn replayed_events<'a>(
    history: &'a [TurnRecord],
    retried: Option<&Retried>,
) -> Cow<'a, [TurnRecord]> {
    let Some(retried) = retried else { return Cow::Borrowed(history) };
    let skips = retried_ranges(history);
    let mut history = history.to_vec();
    for turn in &mut history {
        let mut number = turn.seq;
        turn.events.retain(|event| {
            number += 1;
            let is_over = !retried.is_recorded && matches!(event, Event::CancelRequested { .. });
            !is_skipped(&skips, number - 1) && !is_over
        });
    }
    Cow::Owned(history)
}
