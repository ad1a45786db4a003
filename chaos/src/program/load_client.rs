//! The client of the workload: starts transfers, answers and cancels them, and logs what was acknowledged.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast::{
    Client, Error, ErrorKind, ListOrder, RunId, RunQuery, RunView, Status, StuckReason, Wait, World,
};

use super::Result;
use super::booking::{self, BOOKING, PAID, booking, late_booking, unsteady_booking};
use super::newest_format;
use super::transfer::{APPROVAL, Transfer, TransferKind, batch, transfer};
use super::workdir::{Ack, LogFiles};

/// The maximum number of open runs.
const OPEN_RUNS_MAX: usize = 48;

/// The maximum number of starts in one tick, so that answers are not delayed.
const STARTS_PER_TICK: usize = 8;

/// The size of the range of transfer numbers of a client, so that two clients can run beside each other.
pub(crate) const NUMBERS: u64 = 1_000_000;

/// Every `BATCH_EVERY`-th start is a batch of `BATCH_SIZE` transfers.
const BATCH_EVERY: u64 = 12;
const BATCH_SIZE: u64 = 4;

/// Of the transfers that use the newest format, one in this many is paused.
const PAUSED_EVERY: u64 = 4;

/// Every `BOOKING_EVERY`-th other start is a booking; of `BOOKING_KINDS` of these, one is unsteady and one late.
const BOOKING_EVERY: u64 = 2;
const BOOKING_KINDS: u64 = 6;

/// Starts and answers transfers.
pub(crate) struct LoadClient {
    client: Client,
    logs: Arc<LogFiles>,
    seed: u64,
    chance: fastrand::Rng,
    /// The first number of its range of [`NUMBERS`] transfers.
    first: u64,
    /// The number of the next transfer.
    next: u64,
    starts: u64,
    /// A start that the world did not answer; it is repeated.
    retry: Option<PendingStart>,
    /// The keys of runs that it started and that have not ended.
    open: BTreeSet<String>,
    /// The number of calls that the world did not answer.
    pub(crate) unanswered: u64,
    may_be_unavailable: bool,
    /// Whether bookings are its runs.
    has_bookings: bool,
    /// Whether it starts bookings, and pauses transfers.
    uses_new_code: bool,
    /// The transfers that it has paused.
    paused: BTreeSet<RunId>,
    /// The number of the next booking.
    next_booking: u64,
    /// The keys of bookings that have ended, and may be restarted or forked.
    ended_bookings: BTreeSet<String>,
    /// The runs that were stuck as poison, because their workers were killed too often, and were resumed.
    pub(crate) resumed: BTreeSet<RunId>,
}

/// A start.
#[derive(Clone, Debug)]
enum PendingStart {
    Single(Transfer),
    Batch(Vec<Transfer>),
    /// A booking with this number.
    Booking(u64),
    /// One that fails once, and begins again.
    Unsteady(u64),
    /// One that fails until it is retried and paid.
    Late(u64),
}

impl LoadClient {
    pub(crate) fn new(world: Arc<dyn World>, logs: Arc<LogFiles>, seed: u64) -> Self {
        let chance = fastrand::Rng::with_seed(seed);
        let client = Client::new(world);
        Self {
            client,
            logs,
            seed,
            chance,
            first: 0,
            next: 0,
            starts: 0,
            retry: None,
            open: BTreeSet::new(),
            unanswered: 0,
            may_be_unavailable: false,
            has_bookings: false,
            uses_new_code: false,
            paused: BTreeSet::new(),
            next_booking: 0,
            ended_bookings: BTreeSet::new(),
            resumed: BTreeSet::new(),
        }
    }

    /// The same client, for a world that may be unavailable: failed calls are repeated later.
    pub(crate) fn retrying(mut self) -> Self {
        self.may_be_unavailable = true;
        self
    }

    /// The same client, which also starts bookings, and pauses and resumes transfers.
    pub(crate) fn with_bookings(mut self) -> Self {
        (self.has_bookings, self.uses_new_code) = (true, true);
        self
    }

    /// Starts no more bookings, and pauses no more transfers: nobody has the code for them now.
    pub(crate) fn stop_using_new_code(&mut self) {
        self.uses_new_code = false;
    }

    /// The number of transfers that it has paused.
    pub(crate) fn paused(&self) -> usize {
        self.paused.len()
    }

    /// The same client, with this number for its first transfer.
    pub(crate) fn numbered_from(mut self, first: u64) -> Self {
        (self.first, self.next) = (first, first);
        self
    }

    /// The number of started transfers, in batches and alone.
    pub(crate) fn transfers(&self) -> u64 {
        self.next - self.first
    }

    /// Whether this client started the run: alone, in a batch, or as a batch.
    fn is_own(&self, view: &RunView) -> bool {
        let id = view.key.as_deref().and_then(|key| Transfer::id_of(key).or_else(|| batch_of(key)));
        match id {
            Some(id) => (self.first..self.first + NUMBERS).contains(&id),
            None => self.has_bookings,
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Answers its runs, and starts more. Returns how many runs are open.
    pub(crate) async fn tick(&mut self) -> Result<usize> {
        let open = self.answer_runs().await?;
        for _ in 0..OPEN_RUNS_MAX.saturating_sub(open).min(STARTS_PER_TICK) {
            if !self.start().await? {
                break;
            }
        }
        Ok(open)
    }

    /// Answers its own runs. Returns how many runs of all clients are open.
    pub(crate) async fn answer_runs(&mut self) -> Result<usize> {
        let views = self.list_open().await;
        let Some(views) = self.answered(views)? else { return Ok(OPEN_RUNS_MAX) };
        for view in views.iter().filter(|view| self.is_own(view)).cloned().collect::<Vec<_>>() {
            self.handle_run(&view).await?;
        }
        let still: BTreeSet<&str> = views.iter().filter_map(|view| view.key.as_deref()).collect();
        let ended: Vec<_> = self.open.iter().filter(|key| !still.contains(key.as_str())).cloned().collect();
        for key in ended {
            self.open.remove(&key);
            if key.starts_with(BOOKING) {
                self.ended_bookings.insert(key.clone());
            }
            self.logs.acks.append(&Ack::Ended(key))?;
        }
        self.copy_bookings().await?;
        Ok(views.len() + self.retry_late_bookings().await?)
    }

    /// Restarts and forks some of the bookings that have ended.
    async fn copy_bookings(&mut self) -> Result<()> {
        while let Some(key) = self.ended_bookings.first().cloned() {
            let copied = async {
                if !self.uses_new_code {
                    return Ok(());
                }
                let view = self.client.by_key(&key).view().await?;
                booking::copy(&self.client, &view).await
            };
            let copied = copied.await;
            if self.answered(copied)?.is_none() {
                return Ok(());
            }
            self.ended_bookings.remove(&key);
        }
        Ok(())
    }

    /// Retries the late bookings that have failed, and returns how many these are.
    async fn retry_late_bookings(&mut self) -> Result<usize> {
        if !self.has_bookings {
            return Ok(0);
        }
        let workflow = Some("late_booking".into());
        let query = RunQuery { statuses: vec![Status::Failed], workflow, ..RunQuery::default() };
        let failed = self.client.runs(query).await;
        let Some(failed) = self.answered(failed)? else { return Ok(1) };
        for view in &failed.runs {
            match self.client.retry(view.id).await {
                Err(error) if error.is_conflict() => {}
                retried => drop(self.answered(retried)?),
            }
        }
        Ok(failed.runs.len())
    }

    /// The number of its own open runs, at the last check.
    pub(crate) fn own_open(&self) -> usize {
        self.open.len()
    }

    /// All runs that have not ended.
    pub(crate) async fn open_runs(&self) -> Result<Vec<RunView>> {
        Ok(self.list_open().await?)
    }

    async fn list_open(&self) -> Result<Vec<RunView>, Error> {
        let statuses = Status::ALL.into_iter().filter(|status| !status.is_final()).collect();
        let query = RunQuery { statuses, order: ListOrder::OldestFirst, ..RunQuery::default() };
        Ok(self.client.runs(query).await?.runs)
    }

    /// The answer, or `None` if the world was unavailable and that is allowed.
    fn answered<T>(&mut self, answer: Result<T, Error>) -> Result<Option<T>> {
        match answer {
            Err(error) if self.may_be_unavailable && error.kind() == ErrorKind::Unavailable => {
                self.unanswered += 1;
                Ok(None)
            }
            answer => Ok(Some(answer?)),
        }
    }

    /// Makes the next start, with the same key until the world answers. Returns whether it answered.
    async fn start(&mut self) -> Result<bool> {
        let pending = match self.retry.take() {
            Some(pending) => pending,
            None => self.next_job(),
        };
        let started = match &pending {
            PendingStart::Batch(orders) => {
                let key = format!("{BATCH}{}", orders[0].id);
                self.client.start(batch, orders).key(&key).await.map(|_| (key, None))
            }
            PendingStart::Booking(number) => {
                let key = format!("{BOOKING}{number}");
                self.client.start(booking, *number).key(&key).await.map(|_| (key, None))
            }
            PendingStart::Unsteady(number) => {
                let key = format!("unsteady-{number}");
                self.client.start(unsteady_booking, ()).key(&key).await.map(|_| (key, None))
            }
            PendingStart::Late(number) => {
                let key = format!("late-{number}");
                self.client.start(late_booking, ()).key(&key).await.map(|_| (key, None))
            }
            PendingStart::Single(order) => {
                let run = self.client.start(transfer, order).key(order.key()).await;
                run.map(|run| (order.key(), Some((run, order))))
            }
        };
        let Some((key, alone)) = self.answered(started)? else {
            self.retry = Some(pending);
            return Ok(false);
        };
        self.log_start(key)?;
        if let Some((run, order)) = alone
            && order.kind == TransferKind::Approved
            && order.id.is_multiple_of(3)
        {
            // Usually before the run waits for it. A refused debit may have ended the run already.
            match run.send(APPROVAL, &true).await {
                Err(error) if error.is_conflict() => {}
                sent => self.log_sent(sent, order.key())?,
            }
        }
        Ok(true)
    }

    fn next_job(&mut self) -> PendingStart {
        self.starts += 1;
        if self.starts.is_multiple_of(BATCH_EVERY) {
            return PendingStart::Batch((0..BATCH_SIZE).map(|_| self.next_transfer()).collect());
        }
        if self.uses_new_code && self.starts.is_multiple_of(BOOKING_EVERY) {
            self.next_booking += 1;
            let number = self.next_booking - 1;
            return match number % BOOKING_KINDS {
                4 => PendingStart::Unsteady(number),
                5 => PendingStart::Late(number),
                _ => PendingStart::Booking(number),
            };
        }
        PendingStart::Single(self.next_transfer())
    }

    /// Logs that a message was sent. Without an answer, the next check shows whether it was.
    fn log_sent(&mut self, sent: Result<(), Error>, key: String) -> Result<()> {
        if self.answered(sent)?.is_some() {
            self.logs.acks.append(&Ack::Sent(key))?;
        }
        Ok(())
    }

    fn next_transfer(&mut self) -> Transfer {
        self.next += 1;
        Transfer::numbered(self.seed, self.next - 1)
    }

    fn log_start(&mut self, key: String) -> Result<()> {
        self.logs.acks.append(&Ack::Started(key.clone()))?;
        self.open.insert(key);
        Ok(())
    }

    /// Pauses a transfer, unless it has done so before.
    async fn pause_once(&mut self, run: RunId) -> Result<()> {
        if self.paused.contains(&run) {
            return Ok(());
        }
        match self.client.pause(run).await {
            // It has ended, or a worker holds it whose build cannot read pauses.
            Err(error) if error.is_conflict() => Ok(()),
            paused => {
                if self.answered(paused)?.is_some() {
                    self.paused.insert(run);
                }
                Ok(())
            }
        }
    }

    async fn resume_paused(&mut self, run: RunId) -> Result<()> {
        match self.client.resume(run).await {
            // Its deadline or a worker was faster.
            Err(error) if error.is_conflict() => Ok(()),
            resumed => {
                self.answered(resumed)?;
                Ok(())
            }
        }
    }

    async fn handle_run(&mut self, view: &RunView) -> Result<()> {
        if let Some(stuck) = &view.stuck {
            if stuck.reason != StuckReason::Poison {
                return Err(format!("run {} is stuck ({}): {}", view.id, stuck.reason, stuck.message).into());
            }
            self.resumed.insert(view.id);
            // It stays stuck until it is claimed, and may have been resumed by the last check.
            let _ = self.client.resume(view.id).await;
        }
        if view.marks.is_paused() {
            return self.resume_paused(view.id).await;
        }
        let waits_for = |hook: &str| {
            view.waits.iter().any(|wait| matches!(wait, Wait::Hook { name, .. } if name == hook))
        };
        // Not before its retry, which is a message as well.
        if &*view.workflow == "late_booking" && view.sent > 0 && waits_for(PAID) {
            return match self.client.send(view.id, PAID, &true).key(PAID).await {
                Err(error) if error.is_conflict() => Ok(()),
                sent => self.answered(sent).map(drop),
            };
        }
        let waits_for_approval = waits_for(APPROVAL);
        let Some(id) = view.key.as_deref().and_then(Transfer::id_of) else { return Ok(()) };
        let order = Transfer::numbered(self.seed, id);
        if self.uses_new_code && id.is_multiple_of(PAUSED_EVERY) && newest_format::is_used_by(&order) {
            return self.pause_once(view.id).await;
        }
        if !waits_for_approval || view.sent > 0 || self.chance.u8(..3) > 0 {
            return Ok(());
        }
        let sent = match order.kind {
            TransferKind::Approved => self.client.send(view.id, APPROVAL, &true).await,
            TransferKind::Refused => self.client.send(view.id, APPROVAL, &false).await,
            TransferKind::Cancelled => self.client.cancel(view.id, "cancelled by the client").await.map(drop),
            other => return Err(format!("transfer {id} waits to be approved, but is {other:?}").into()),
        };
        self.log_sent(sent, order.key())
    }
}

/// The prefix of the key of a batch; the number of its first transfer follows.
const BATCH: &str = "batch-";

fn batch_of(key: &str) -> Option<u64> {
    key.strip_prefix(BATCH)?.parse().ok()
}
