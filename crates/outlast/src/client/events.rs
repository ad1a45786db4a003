//! The events of a run, one by one: all of them, those of an operation, or those of a message.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::ops::Range;
use std::sync::Arc;

use outlast_core::cut::{is_skipped, skipped_events};
use outlast_core::limits::HISTORY_TURNS_READ_MAX;
use outlast_core::{Event, MessageId, OpNumber, RunId, SkippedRange, Timestamp, TurnId, TurnRecord};

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
        EventsCall { client: self, run, operation: None, message: None, from: 0, has_payloads: true }
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
    from: u64,
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
    /// Whether a replay skips it: it belongs to an earlier generation, or to the run before it was retried.
    pub is_skipped: bool,
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

    /// Only the events from this number on. Only the turns with these events are read.
    pub fn from(mut self, number: u64) -> Self {
        self.from = number;
        self
    }

    fn is_selected(&self, event: &Event) -> bool {
        self.operation.is_none_or(|op| event.concerns(op))
            && self.message.is_none_or(|message| event.message() == Some(message))
    }

    async fn read(self) -> Result<Vec<EventView>, Error> {
        let (mut events, mut from) = (Vec::<EventView>::new(), self.from);
        let mut skipped = SkippedEvents::default();
        loop {
            let page = || self.client.world.history(self.run, from, HISTORY_TURNS_READ_MAX);
            let page = self.client.repeat(page).await?;
            let is_last = page.len() < HISTORY_TURNS_READ_MAX;
            for TurnRecord { id: turn, seq, at, build, events: added } in page {
                from = seq + added.len() as u64;
                for (number, event) in (seq..).zip(&added) {
                    skipped.read(number, event);
                }
                let numbered = (seq..).zip(added).filter(|(number, _)| *number >= self.from);
                for (number, event) in numbered.filter(|(_, event)| self.is_selected(event)) {
                    let event = if self.has_payloads { event } else { event.without_payloads() };
                    events.push(EventView {
                        number,
                        at,
                        turn,
                        build: build.clone(),
                        event,
                        is_skipped: false,
                    });
                }
            }
            if is_last {
                let skips = match skipped.is_retried {
                    // A retry may have made an earlier cut skipped: only the whole history tells.
                    true => skipped_events(&self.client.history_without_payloads(self.run).await?),
                    false => skipped.ranges(),
                };
                events.iter_mut().for_each(|event| event.is_skipped = is_skipped(&skips, event.number));
                return Ok(events);
            }
        }
    }
}

/// Finds the events that a replay skips, in a history that is read page by page.
#[derive(Default)]
struct SkippedEvents {
    /// The number of the last event with which a generation began.
    begin: u64,
    /// The events of loops since then, with their numbers.
    loops: BTreeMap<OpNumber, u64>,
    skips: Vec<SkippedRange>,
    /// Whether the run was retried.
    is_retried: bool,
}

impl SkippedEvents {
    fn read(&mut self, number: u64, event: &Event) {
        match event {
            Event::RunContinued(_) => {
                *self = Self { begin: number, is_retried: self.is_retried, ..Self::default() };
            }
            Event::RunRetried(_) => self.is_retried = true,
            Event::LoopStarted { op, .. } => drop(self.loops.insert(*op, number)),
            Event::IterationEnded(ended) => {
                self.loops.insert(ended.op, number);
                if let Some(cut) = &ended.cut {
                    self.skips.clone_from(&cut.skips);
                    let is_end =
                        |op: &OpNumber| cut.skips.iter().any(|skip| [skip.after, skip.until].contains(op));
                    // An enclosing loop may still need the others, as long as they are not skipped.
                    let skip = cut.last_skip().copied();
                    self.loops.retain(|op, _| {
                        is_end(op) || skip.is_none_or(|skip| *op < skip.after || *op > skip.until)
                    });
                }
            }
            _ => {}
        }
    }

    fn ranges(&self) -> Vec<Range<u64>> {
        let number = |op: &OpNumber| self.loops.get(op).copied();
        let skips = self.skips.iter().filter_map(|skip| Some(number(&skip.after)? + 1..number(&skip.until)?));
        std::iter::once(0..self.begin).chain(skips).collect()
    }
}

impl<'a> IntoFuture for EventsCall<'a> {
    type Output = Result<Vec<EventView>, Error>;
    type IntoFuture = BoxedCall<'a, Vec<EventView>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}
