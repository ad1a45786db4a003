//! The client of the workload: starts transfers, answers and cancels them, and notes what it was told.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast::{Client, Order, RunId, RunQuery, RunView, Status, StuckReason, Wait, World};

use super::Result;
use super::place::{Ack, Books};
use super::transfer::{APPROVAL, Manner, Transfer, batch, transfer};

/// The runs that are open at the same time.
const OPEN_RUNS_MAX: usize = 48;

/// Starts in one tick, so that answers are not late.
const STARTS_PER_TICK: usize = 8;

/// Every so many starts is a batch, of so many transfers.
const BATCH_EVERY: u64 = 12;
const BATCH_SIZE: u64 = 4;

/// Starts, answers, cancels and waits.
pub(crate) struct Teller {
    client: Client,
    books: Arc<Books>,
    seed: u64,
    chance: fastrand::Rng,
    /// The number of the next transfer.
    next: u64,
    starts: u64,
    /// The keys of runs that it started and that have not ended.
    open: BTreeSet<String>,
    /// The runs that were stuck because their workers were killed too often, and were resumed.
    pub(crate) resumed: BTreeSet<RunId>,
}

impl Teller {
    pub(crate) fn new(world: Arc<dyn World>, books: Arc<Books>, seed: u64) -> Self {
        let chance = fastrand::Rng::with_seed(seed);
        let client = Client::new(world);
        Self {
            client,
            books,
            seed,
            chance,
            next: 0,
            starts: 0,
            open: BTreeSet::new(),
            resumed: BTreeSet::new(),
        }
    }

    /// How many transfers were started, in batches and alone.
    pub(crate) fn transfers(&self) -> u64 {
        self.next
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Answers whom it can, and starts some more. Tells how many are open.
    pub(crate) async fn work(&mut self) -> Result<usize> {
        let open = self.serve().await?;
        for _ in 0..OPEN_RUNS_MAX.saturating_sub(open).min(STARTS_PER_TICK) {
            self.start().await?;
        }
        Ok(open)
    }

    /// Answers whom it can. Tells how many are open.
    pub(crate) async fn serve(&mut self) -> Result<usize> {
        let views = self.open_runs().await?;
        for view in &views {
            self.look_at(view).await?;
        }
        let still: BTreeSet<&str> = views.iter().filter_map(|view| view.key.as_deref()).collect();
        let ended: Vec<_> = self.open.iter().filter(|key| !still.contains(key.as_str())).cloned().collect();
        for key in ended {
            self.open.remove(&key);
            self.books.acks.note(&Ack::Ended(key))?;
        }
        Ok(views.len())
    }

    /// All runs that have not ended.
    pub(crate) async fn open_runs(&self) -> Result<Vec<RunView>> {
        let statuses = Status::ALL.into_iter().filter(|status| !status.is_final()).collect();
        let query = RunQuery { statuses, order: Order::OldestFirst, ..RunQuery::default() };
        Ok(self.client.runs(query).await?.runs)
    }

    async fn start(&mut self) -> Result<()> {
        self.starts += 1;
        if self.starts.is_multiple_of(BATCH_EVERY) {
            let orders: Vec<_> = (0..BATCH_SIZE).map(|_| self.number()).collect();
            let key = format!("batch-{}", orders[0].id);
            self.client.start(batch, &orders).key(&key).await?;
            return self.note_start(key);
        }
        let order = self.number();
        let run = self.client.start(transfer, &order).key(order.key()).await?;
        self.note_start(order.key())?;
        if order.manner == Manner::Approved && order.id.is_multiple_of(3) {
            // Before anyone waits for it, most of the time; a refused debit may have ended it already.
            match run.send(APPROVAL, &true).await {
                Ok(()) => self.books.acks.note(&Ack::Sent(order.key()))?,
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Transfer {
        self.next += 1;
        Transfer::numbered(self.seed, self.next - 1)
    }

    fn note_start(&mut self, key: String) -> Result<()> {
        self.books.acks.note(&Ack::Started(key.clone()))?;
        self.open.insert(key);
        Ok(())
    }

    async fn look_at(&mut self, view: &RunView) -> Result<()> {
        if let Some(stuck) = &view.stuck {
            if stuck.reason != StuckReason::Poison {
                return Err(format!("run {} is stuck ({}): {}", view.id, stuck.reason, stuck.message).into());
            }
            self.resumed.insert(view.id);
            // It stays stuck until it is claimed, and may be resumed already by the last look.
            let _ = self.client.resume(view.id).await;
        }
        let is_asked =
            view.waits.iter().any(|wait| matches!(wait, Wait::Hook { name, .. } if name == APPROVAL));
        let Some(id) = view.key.as_deref().and_then(Transfer::id_of) else { return Ok(()) };
        if !is_asked || view.sent > 0 || self.chance.u8(..3) > 0 {
            return Ok(());
        }
        let order = Transfer::numbered(self.seed, id);
        match order.manner {
            Manner::Approved => self.client.send(view.id, APPROVAL, &true).await?,
            Manner::Refused => self.client.send(view.id, APPROVAL, &false).await?,
            Manner::Cancelled => drop(self.client.cancel(view.id, "changed my mind").await?),
            other => return Err(format!("transfer {id} waits to be approved, but is {other:?}").into()),
        }
        Ok(self.books.acks.note(&Ack::Sent(order.key()))?)
    }
}
