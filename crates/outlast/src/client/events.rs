//! The events of a run, one by one: all of them, those of an operation, or those of a message.

use std::future::IntoFuture;
use std::sync::Arc;

use outlast_core::limits::HISTORY_TURNS_READ_MAX;
use outlast_core::{Event, MessageId, OpNumber, RunId, Timestamp, TurnId, TurnRecord};

use super::{BoxedCall, Client};
use crate::error::Error;

impl Client {
    /// Lists the events of a run, in order: all of them, or those of one
    /// [operation](EventsCall::operation) or [message](EventsCall::message). Await the returned builder.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast::OpNumber;
    /// #[workflow]
    /// async fn review(ctx: Context) -> Result<bool, Error> {
    ///     ctx.sleep("10ms").await?;
    ///     ctx.hook::<bool>("review").await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(review).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start(review, ()).await?;
    /// run.send("review", &true).await?;
    /// run.output().await?;
    /// // What became of operation 1, the hook? The payload itself does not matter.
    /// let events = client.events(run.id()).operation(OpNumber(1)).without_payloads().await?;
    /// let kinds: Vec<_> = events.iter().map(|event| event.event.kind()).collect();
    /// assert_eq!(kinds, ["hook_opened", "hook_taken"]);
    /// # let message = events[1].event.message().unwrap();
    /// # let of_message = client.events(run.id()).message(message).await?;
    /// # assert_eq!(of_message[0].event.kind(), "hook_received");
    /// # worker.stop().await }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`history`](Self::history).
    pub fn events(&self, run: RunId) -> EventsCall<'_> {
        EventsCall { client: self, run, operation: None, message: None, has_payloads: true }
    }
}

/// A call that lists events; created by [`Client::events`]. Await it to get them.
#[must_use = "nothing is read until the call is awaited"]
#[derive(Debug)]
pub struct EventsCall<'a> {
    client: &'a Client,
    run: RunId,
    operation: Option<OpNumber>,
    message: Option<MessageId>,
    has_payloads: bool,
}

/// One event of a run, as [`Client::events`] returns it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EventView {
    /// Its number in the history, from 0.
    pub number: u64,
    /// The time of its turn.
    pub at: Timestamp,
    /// Its turn.
    pub turn: TurnId,
    /// The build of the worker that computed the turn; empty for a start by a client.
    pub build: Arc<str>,
    /// The event. Payloads are as stored.
    pub event: Event,
}

impl EventsCall<'_> {
    /// Only the events of an operation: its request, its outcome, and wakes and cancels that ended it.
    pub fn operation(mut self, op: OpNumber) -> Self {
        self.operation = Some(op);
        self
    }

    /// Only the events of a message: its arrival, and which hook took it.
    pub fn message(mut self, message: MessageId) -> Self {
        self.message = Some(message);
        self
    }

    /// Leaves the payloads out: inputs, outputs, values and heartbeat details are `null`. They are discarded while the
    /// history is read, so that a run with large payloads needs little memory.
    pub fn without_payloads(mut self) -> Self {
        self.has_payloads = false;
        self
    }

    fn is_selected(&self, event: &Event) -> bool {
        self.operation.is_none_or(|op| event.concerns(op))
            && self.message.is_none_or(|message| event.message() == Some(message))
    }

    async fn read(self) -> Result<Vec<EventView>, Error> {
        let (mut events, mut from) = (Vec::new(), 0);
        loop {
            let page = || self.client.world.history(self.run, from, HISTORY_TURNS_READ_MAX);
            let page = self.client.repeat(page).await?;
            let is_last = page.len() < HISTORY_TURNS_READ_MAX;
            for TurnRecord { id: turn, seq, at, build, events: added } in page {
                from = seq + added.len() as u64;
                for (number, event) in (seq..).zip(added).filter(|(_, event)| self.is_selected(event)) {
                    let event = if self.has_payloads { event } else { event.without_payloads() };
                    events.push(EventView { number, at, turn, build: build.clone(), event });
                }
            }
            if is_last {
                return Ok(events);
            }
        }
    }
}

impl<'a> IntoFuture for EventsCall<'a> {
    type Output = Result<Vec<EventView>, Error>;
    type IntoFuture = BoxedCall<'a, Vec<EventView>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}
