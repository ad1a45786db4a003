//! Why a paused run is paused.

use outlast_core::view::operations;
use outlast_core::{MessageBody, TurnRecord};

use super::{Because, Snapshot, unless_damaged};
use crate::client::{ACTOR_HEADER, Client};
use crate::error::Error;
use crate::worker::read_all::read_inbox;

impl Client {
    /// The pause of a run; `None` if the run is not paused, or its deadline has passed and ends the pause.
    pub(super) async fn pause_cause(
        &self,
        snapshot: &Snapshot,
        history: &[TurnRecord],
        damage: &mut Option<String>,
    ) -> Result<Option<Because>, Error> {
        let view = &snapshot.view;
        if !view.marks.is_paused() || view.deadline.is_some_and(|deadline| deadline <= snapshot.now) {
            return Ok(None);
        }
        let unread = self.repeat(|| read_inbox(&*self.world, view.id, view.consumed)).await;
        let unread = unless_damaged(unread.map_err(Error::from), damage)?;
        // The message stays in the inbox while the run is paused.
        let pause = unread.into_iter().rev().find_map(|message| match message.body {
            MessageBody::Pause { reason } => {
                Some((reason, message.at, message.headers.get(ACTOR_HEADER).cloned()))
            }
            _ => None,
        });
        let (reason, since, actor) = pause.unwrap_or((String::new(), view.updated_at, None));
        let attempts = match snapshot.owner().map(|owner| snapshot.held(owner, &operations(history))) {
            Some(Because::Held { attempts, .. }) => attempts,
            _ => Vec::new(),
        };
        Ok(Some(Because::Paused { reason, since, actor, deadline: view.deadline, attempts }))
    }
}
