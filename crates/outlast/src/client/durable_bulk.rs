//! Bulk actions that survive a crash.

use std::time::Duration;

use outlast_core::limits::{BULK_MATCHED_MAX, REASON_BYTES_MAX};
use outlast_core::queue::BUILT_IN_QUEUE;
use outlast_core::refusal::check_start;
use outlast_core::{MessageBody, NewMessage, Payload, RunId, RunQuery, Start, WorldError};

use super::bulk::is_selected;
use super::schedule::new_start;
use super::{ACTOR_HEADER, Client, check_bytes};
use crate::bulk::{
    BULK_VERSION, BULK_WORKFLOW, BulkInput, BulkOrder, BulkProgress, BulkState, BulkStop, BulkVerb,
    FrozenQuery, STOP_HOOK,
};
use crate::error::{Error, ErrorKind};
use crate::ids;

/// A bulk call that a run makes; created by [`BulkCall::durably`](crate::BulkCall::durably).
///
/// The run is one of the built-in workflow `outlast:bulk`. It continues after a crash, publishes its progress, and can be
/// stopped. Servers execute it, and [workers of built-ins](crate::WorkerBuilder::only_built_ins).
///
/// ```
/// # use outlast::prelude::*;
/// # #[workflow] async fn nap(ctx: Context) -> Result<(), Error> { ctx.sleep("1d").await }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let world = outlast::open("memory:").await?;
/// # let client = Client::new(world.clone());
/// # client.start(nap, ()).await?;
/// let worker = Worker::builder(world).only_built_ins().start().await?;
/// let bulk = client.bulk(client.list().workflow(nap)).durably().at_most(1_000).terminate("moved away").await?;
/// let progress = bulk.completed().await?;
/// assert_eq!(progress.requested, 1);
/// # worker.stop().await
/// # }
/// ```
#[must_use = "nothing happens until a method such as `cancel` is called and awaited"]
#[derive(Clone, Debug)]
pub struct DurableBulkCall<'a> {
    client: &'a Client,
    query: RunQuery,
    rate: Option<u32>,
    at_most: Option<u64>,
}

impl<'a> DurableBulkCall<'a> {
    pub(super) fn new(client: &'a Client, query: RunQuery, rate: Option<u32>) -> Self {
        Self { client, query, rate, at_most: None }
    }

    /// Stops when more runs than this are concerned. A call that selects more now is refused with `Conflict`.
    pub fn at_most(mut self, runs: u64) -> Self {
        self.at_most = Some(runs);
        self
    }

    /// Asks the runs to stop; see [`Client::cancel`].
    ///
    /// # Errors
    ///
    /// `Conflict` if more runs match than [allowed](Self::at_most), `Limit` if the reason is too long, `Unavailable`.
    pub async fn cancel(self, reason: &str) -> Result<BulkHandle, Error> {
        self.start(BulkVerb::Cancel { reason: reason.into() }, reason).await
    }

    /// Ends the runs without their code; see [`Client::terminate`].
    ///
    /// # Errors
    ///
    /// As [`cancel`](Self::cancel).
    pub async fn terminate(self, reason: &str) -> Result<BulkHandle, Error> {
        self.start(BulkVerb::Terminate { reason: reason.into(), compensating: false }, reason).await
    }

    /// Ends the runs without their code, after their compensations; see
    /// [`TerminateCall::compensating`](crate::TerminateCall::compensating).
    ///
    /// # Errors
    ///
    /// As [`cancel`](Self::cancel).
    pub async fn compensate(self, reason: &str) -> Result<BulkHandle, Error> {
        self.start(BulkVerb::Terminate { reason: reason.into(), compensating: true }, reason).await
    }

    /// Pauses the runs; see [`Client::pause`].
    ///
    /// # Errors
    ///
    /// As [`cancel`](Self::cancel).
    pub async fn pause(self, reason: &str) -> Result<BulkHandle, Error> {
        self.start(BulkVerb::Pause { reason: reason.into() }, reason).await
    }

    /// Resumes the runs; see [`Client::resume`].
    ///
    /// # Errors
    ///
    /// As [`cancel`](Self::cancel).
    pub async fn resume(self) -> Result<BulkHandle, Error> {
        self.start(BulkVerb::Resume, "").await
    }

    /// Retries the runs from their failures; see [`Client::retry`].
    ///
    /// # Errors
    ///
    /// As [`cancel`](Self::cancel).
    pub async fn retry(self, reason: &str) -> Result<BulkHandle, Error> {
        self.start(BulkVerb::Retry { reason: reason.into() }, reason).await
    }

    /// Restarts the runs, each once; see [`Client::restart`].
    ///
    /// # Errors
    ///
    /// As [`cancel`](Self::cancel).
    pub async fn restart(self) -> Result<BulkHandle, Error> {
        self.start(BulkVerb::Restart, "").await
    }

    /// Deletes the runs; see [`Client::delete`].
    ///
    /// # Errors
    ///
    /// As [`cancel`](Self::cancel).
    pub async fn delete(self) -> Result<BulkHandle, Error> {
        self.start(BulkVerb::Delete, "").await
    }

    async fn start(self, verb: BulkVerb, reason: &str) -> Result<BulkHandle, Error> {
        check_bytes("the reason", reason.len(), REASON_BYTES_MAX)?;
        let Self { client, mut query, rate, at_most } = self;
        // Runs that were started in this microsecond are included, unless their ids are later.
        let (until, now) = (ids::run(), client.world.clock().now());
        let end = now.plus(Duration::from_micros(1));
        query.created_before = Some(query.created_before.map_or(end, |before| before.min(end)));
        let action = verb.name().to_owned();
        let order = BulkOrder {
            query: FrozenQuery::new(&query, &verb),
            verb,
            until,
            rate,
            at_most,
            actor: client.actor.as_deref().map(Into::into),
        };
        let (matched, more) = client.count_matched(&order).await?;
        if at_most.is_some_and(|limit| matched > limit) {
            let message = format!("{matched} runs match, but at most {} are expected", at_most.unwrap_or(0));
            return Err(Error::of_world(&WorldError::conflict(message)));
        }
        let actor = order.actor.clone();
        let progress = BulkProgress { action, matched, more, actor, ..BulkProgress::default() };
        let input = BulkInput { order, progress, runs: Vec::new(), cursor: Some(RunId::from_bits(0)) };
        let start = client.start_of_bulk(&input)?;
        let run = client.start_run(start).await.map_err(|error| Error::of_world(&error))?.run;
        Ok(BulkHandle { client: client.clone(), run })
    }
}

impl Client {
    /// Returns a handle to a durable bulk action.
    pub fn bulk_handle(&self, run: RunId) -> BulkHandle {
        BulkHandle { client: self.clone(), run }
    }

    /// The number of runs that an order concerns, and whether there are more than are counted.
    async fn count_matched(&self, order: &BulkOrder) -> Result<(u64, bool), Error> {
        let mut matched = 0;
        let mut after = Some(RunId::from_bits(0));
        while let Some(cursor) = after {
            let page = self.runs(order.query.page(cursor, order.until, 0)).await?;
            matched += page.runs.iter().filter(|run| is_selected(run)).count() as u64;
            if matched > BULK_MATCHED_MAX {
                return Ok((BULK_MATCHED_MAX, true));
            }
            after = page.next;
        }
        Ok((matched, false))
    }

    fn start_of_bulk(&self, input: &BulkInput) -> Result<Start, Error> {
        let actor = self.actor.iter().map(|actor| (ACTOR_HEADER.to_owned(), actor.to_string()));
        let start = Start {
            input: self.codec.encode(Payload::json(input)?)?,
            headers: actor.collect(),
            ..new_start(BULK_WORKFLOW, BULK_VERSION, BUILT_IN_QUEUE, 0)
        };
        check_start(&start)?;
        Ok(start)
    }
}

/// A durable bulk action; returned when it is started, and by [`Client::bulk_handle`].
#[derive(Clone, Debug)]
pub struct BulkHandle {
    client: Client,
    run: RunId,
}

impl BulkHandle {
    /// Returns the run that makes the calls.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Returns how far it is.
    ///
    /// # Errors
    ///
    /// `NotFound` if the run is not a bulk action, `Unavailable`.
    pub async fn progress(&self) -> Result<BulkProgress, Error> {
        let view = self.client.run(self.run).await?;
        if *view.workflow != *BULK_WORKFLOW {
            return Err(self.not_found());
        }
        if let Some(progress) = self.client.state::<BulkProgress>(self.run).await? {
            return Ok(progress);
        }
        // No worker has served it yet.
        let input = self.client.codec.decode(self.client.run_started(self.run).await?.input)?;
        Ok(input.decode::<BulkInput>()?.progress)
    }

    fn not_found(&self) -> Error {
        Error::of_world(&WorldError::not_found(format!("{} is not a bulk action", self.run)))
    }

    /// Stops it. Calls that are being made are completed; what was done stays done.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Conflict` if it has ended; `Limit` if the reason is too long; `Unavailable`.
    pub async fn stop(&self, reason: &str) -> Result<(), Error> {
        check_bytes("the reason", reason.len(), REASON_BYTES_MAX)?;
        self.progress().await?;
        let payload = self.client.codec.encode(Payload::json(&BulkStop::new(reason, None))?)?;
        let body = MessageBody::Hook { name: STOP_HOOK.into(), payload, to: Default::default() };
        let actor = self.client.actor.iter().map(|actor| (ACTOR_HEADER.to_owned(), actor.to_string()));
        let message = NewMessage { id: ids::message(), run: self.run, body, headers: actor.collect() };
        self.client.post(message).await.map(drop).map_err(|error| Error::of_world(&error))
    }

    /// Waits until it has ended, and returns what it has done.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`; an error that [is cancelled](Error::is_cancelled) if its run was cancelled.
    pub async fn completed(&self) -> Result<BulkProgress, Error> {
        let progress = self.client.handle::<BulkProgress>(self.run).output().await?;
        match progress.state {
            BulkState::Running => {
                Err(Error::of_kind(ErrorKind::Corrupt, "the bulk action ended while it ran"))
            }
            _ => Ok(progress),
        }
    }
}
