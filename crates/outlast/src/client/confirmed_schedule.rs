//! Changes of schedules whose caller waits until a worker has made them.

use std::ops::Range;
use std::time::Duration;

use outlast_core::limits::REASON_BYTES_MAX;
use outlast_core::{Headers, MessageBody, NewMessage, Payload, RunId, Timestamp};

use super::schedule_handle::{ScheduleHandle, check_range};
use super::{ACTOR_HEADER, Client, check_bytes};
use crate::clock::{monotonic, within};
use crate::error::Error;
use crate::ids;
use crate::schedule::{
    ANSWER_HEADER, COMMAND_HOOK, CommandAnswer, EXPECTED_HEADER, PublishedSchedule, ScheduleAnswer,
    ScheduleCommand,
};

/// Changes a schedule, and waits until a worker has made the change; created by
/// [`ScheduleHandle::confirmed`](crate::ScheduleHandle::confirmed).
///
/// A call fails with the kind [`Timeout`](crate::ErrorKind::Timeout) if no worker has answered in time. The change is
/// stored then, and is made when a worker serves the queue of the schedule.
#[derive(Clone, Debug)]
pub struct ConfirmedSchedule {
    handle: ScheduleHandle,
    time: Duration,
    revision: Option<u64>,
}

impl ConfirmedSchedule {
    pub(super) fn new(handle: ScheduleHandle, time: Duration) -> Self {
        Self { handle, time, revision: None }
    }

    /// Makes changes only if the schedule has this [revision](crate::ScheduleView::revision). Otherwise the answer is
    /// [`Stale`](ScheduleAnswer::Stale), and nothing changes.
    #[must_use]
    pub fn if_revision(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    /// Pauses the schedule; see [`ScheduleHandle::pause`].
    ///
    /// # Errors
    ///
    /// As [`ScheduleHandle::pause`]; `Timeout`.
    pub async fn pause(&self, reason: &str) -> Result<ScheduleAnswer, Error> {
        check_bytes("the reason", reason.len(), REASON_BYTES_MAX)?;
        self.ask(&ScheduleCommand::Pause { reason: reason.into() }).await
    }

    /// Ends a pause.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Timeout`, `Unavailable`.
    pub async fn resume(&self) -> Result<ScheduleAnswer, Error> {
        self.ask(&ScheduleCommand::Resume).await
    }

    /// Fires now; see [`ScheduleHandle::trigger`].
    ///
    /// # Errors
    ///
    /// `NotFound`, `Timeout`, `Unavailable`.
    pub async fn trigger(&self) -> Result<ScheduleAnswer, Error> {
        self.ask(&ScheduleCommand::Trigger).await
    }

    /// Fires all instants of a range in the past; see [`ScheduleHandle::backfill`].
    ///
    /// # Errors
    ///
    /// `NotFound`; `Invalid` if the range is empty or not in the past; `Timeout`; `Unavailable`.
    pub async fn backfill(&self, range: Range<Timestamp>) -> Result<ScheduleAnswer, Error> {
        check_range(&range, self.handle.client().world.clock().now())?;
        self.ask(&ScheduleCommand::backfill(range)).await
    }

    pub(super) async fn ask(&self, command: &ScheduleCommand) -> Result<ScheduleAnswer, Error> {
        let client = self.handle.client();
        let run = self.handle.run().await?;
        let mut watch = client.watch::<PublishedSchedule>(run);
        let message = client.command_message(run, command, self.headers(client))?;
        let id = message.id;
        client.post(message).await.map_err(|error| Error::of_world(&error))?;
        let answered = async {
            while let Some(published) = watch.next().await? {
                let answers = &published.progress.answers;
                if let Some(CommandAnswer { answer, .. }) = answers.iter().find(|answer| answer.message == id)
                {
                    return Ok(*answer);
                }
            }
            Err(self.handle.not_found())
        };
        match within(answered, monotonic() + self.time).await {
            Some(answer) => answer,
            None => Err(self.not_answered().await),
        }
    }

    fn headers(&self, client: &Client) -> Headers {
        let actor = client.actor.iter().map(|actor| (ACTOR_HEADER.to_owned(), actor.to_string()));
        let revision = self.revision.map(|revision| (EXPECTED_HEADER.to_owned(), revision.to_string()));
        actor.chain(revision).chain([(ANSWER_HEADER.to_owned(), "1".to_owned())]).collect()
    }

    async fn not_answered(&self) -> Error {
        let queue = self.handle.view().await.map(|view| view.queue).unwrap_or_default();
        Error::timeout(format!(
            "no worker has answered for schedule `{}` in time; the change is stored, and is made when a worker serves \
             queue `{queue}`",
            self.handle.name()
        ))
    }
}

impl Client {
    pub(super) fn command_message(
        &self,
        run: RunId,
        command: &ScheduleCommand,
        headers: Headers,
    ) -> Result<NewMessage, Error> {
        let payload = self.codec.encode(Payload::json(command)?)?;
        let body = MessageBody::Hook { name: COMMAND_HOOK.into(), payload, to: Default::default() };
        Ok(NewMessage { id: ids::message(), run, body, headers })
    }
}
