//! The client of the workload: starts transfers, answers and cancels them, and notes what it was told.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast::{
    Client, Error, ErrorKind, ListOrder, RunId, RunQuery, RunView, Status, StuckReason, Wait, World,
};

use super::Result;
use super::place::{Ack, Books};
use super::transfer::{APPROVAL, Manner, Transfer, batch, transfer};

/// The runs that are open at the same time.
const OPEN_RUNS_MAX: usize = 48;

/// Starts in one tick, so that answers are not late.
const STARTS_PER_TICK: usize = 8;

/// How many numbers of transfers a client has for itself, so that two clients can work beside each other.
pub(crate) const NUMBERS: u64 = 1_000_000;

/// Every so many starts is a batch, of so many transfers.
const BATCH_EVERY: u64 = 12;
const BATCH_SIZE: u64 = 4;

/// Starts, answers, cancels and waits.
pub(crate) struct Teller {
    client: Client,
    books: Arc<Books>,
    seed: u64,
    chance: fastrand::Rng,
    /// The number of the first transfer; all that follow belong to it, up to [`NUMBERS`].
    first: u64,
    /// The number of the next transfer.
    next: u64,
    starts: u64,
    /// What it could not start, since the world did not answer.
    left: Option<Job>,
    /// The keys of runs that it started and that have not ended.
    open: BTreeSet<String>,
    /// How often the world did not answer, and whether it may.
    pub(crate) unanswered: u64,
    may_be_away: bool,
    /// The runs that were stuck because their workers were killed too often, and were resumed.
    pub(crate) resumed: BTreeSet<RunId>,
}

/// Something to start.
#[derive(Clone, Debug)]
enum Job {
    Alone(Transfer),
    Together(Vec<Transfer>),
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
            first: 0,
            next: 0,
            starts: 0,
            left: None,
            open: BTreeSet::new(),
            unanswered: 0,
            may_be_away: false,
            resumed: BTreeSet::new(),
        }
    }

    /// The same, for a world that is away from time to time: what it did not answer is tried again later.
    pub(crate) fn patient(mut self) -> Self {
        self.may_be_away = true;
        self
    }

    /// The same, for a client whose first transfer has this number.
    pub(crate) fn numbered_from(mut self, first: u64) -> Self {
        (self.first, self.next) = (first, first);
        self
    }

    /// How many transfers were started, in batches and alone.
    pub(crate) fn transfers(&self) -> u64 {
        self.next - self.first
    }

    /// Whether this client started the run: alone, in a batch, or as a batch.
    fn is_own(&self, view: &RunView) -> bool {
        let id = view.key.as_deref().and_then(|key| Transfer::id_of(key).or_else(|| batch_of(key)));
        id.is_some_and(|id| (self.first..self.first + NUMBERS).contains(&id))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Answers whom it can, and starts some more. Tells how many are open.
    pub(crate) async fn work(&mut self) -> Result<usize> {
        let open = self.serve().await?;
        for _ in 0..OPEN_RUNS_MAX.saturating_sub(open).min(STARTS_PER_TICK) {
            if !self.start().await? {
                break;
            }
        }
        Ok(open)
    }

    /// Answers whom it can of its own runs. Tells how many are open, of all clients, for all it knows.
    pub(crate) async fn serve(&mut self) -> Result<usize> {
        let views = self.look().await;
        let Some(views) = self.heard(views)? else { return Ok(OPEN_RUNS_MAX) };
        for view in views.iter().filter(|view| self.is_own(view)).cloned().collect::<Vec<_>>() {
            self.look_at(&view).await?;
        }
        let still: BTreeSet<&str> = views.iter().filter_map(|view| view.key.as_deref()).collect();
        let ended: Vec<_> = self.open.iter().filter(|key| !still.contains(key.as_str())).cloned().collect();
        for key in ended {
            self.open.remove(&key);
            self.books.acks.note(&Ack::Ended(key))?;
        }
        Ok(views.len())
    }

    /// How many of its own runs are open, as of the last look.
    pub(crate) fn own_open(&self) -> usize {
        self.open.len()
    }

    /// All runs that have not ended.
    pub(crate) async fn open_runs(&self) -> Result<Vec<RunView>> {
        Ok(self.look().await?)
    }

    async fn look(&self) -> Result<Vec<RunView>, Error> {
        let statuses = Status::ALL.into_iter().filter(|status| !status.is_final()).collect();
        let query = RunQuery { statuses, order: ListOrder::OldestFirst, ..RunQuery::default() };
        Ok(self.client.runs(query).await?.runs)
    }

    /// An answer, or nothing if the world was away and may be.
    fn heard<T>(&mut self, answer: Result<T, Error>) -> Result<Option<T>> {
        match answer {
            Err(error) if self.may_be_away && error.kind() == ErrorKind::Unavailable => {
                self.unanswered += 1;
                Ok(None)
            }
            answer => Ok(Some(answer?)),
        }
    }

    /// Starts the next; again, with the same key, until the world has answered. Tells whether it has.
    async fn start(&mut self) -> Result<bool> {
        let job = match self.left.take() {
            Some(job) => job,
            None => self.next_job(),
        };
        let started = match &job {
            Job::Together(orders) => {
                let key = format!("{BATCH}{}", orders[0].id);
                self.client.start(batch, orders).key(&key).await.map(|_| (key, None))
            }
            Job::Alone(order) => {
                let run = self.client.start(transfer, order).key(order.key()).await;
                run.map(|run| (order.key(), Some((run, order))))
            }
        };
        let Some((key, alone)) = self.heard(started)? else {
            self.left = Some(job);
            return Ok(false);
        };
        self.note_start(key)?;
        if let Some((run, order)) = alone
            && order.manner == Manner::Approved
            && order.id.is_multiple_of(3)
        {
            // Before anyone waits for it, most of the time; a refused debit may have ended it already.
            match run.send(APPROVAL, &true).await {
                Err(error) if error.is_conflict() => {}
                sent => self.note_sent(sent, order.key())?,
            }
        }
        Ok(true)
    }

    fn next_job(&mut self) -> Job {
        self.starts += 1;
        if self.starts.is_multiple_of(BATCH_EVERY) {
            return Job::Together((0..BATCH_SIZE).map(|_| self.number()).collect());
        }
        Job::Alone(self.number())
    }

    /// Notes that a message was sent. When nobody answered, the next look tells whether it was.
    fn note_sent(&mut self, sent: Result<(), Error>, key: String) -> Result<()> {
        if self.heard(sent)?.is_some() {
            self.books.acks.note(&Ack::Sent(key))?;
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
        let sent = match order.manner {
            Manner::Approved => self.client.send(view.id, APPROVAL, &true).await,
            Manner::Refused => self.client.send(view.id, APPROVAL, &false).await,
            Manner::Cancelled => self.client.cancel(view.id, "changed my mind").await.map(drop),
            other => return Err(format!("transfer {id} waits to be approved, but is {other:?}").into()),
        };
        self.note_sent(sent, order.key())
    }
}

/// What the key of a batch begins with; the number of its first transfer follows.
const BATCH: &str = "batch-";

fn batch_of(key: &str) -> Option<u64> {
    key.strip_prefix(BATCH)?.parse().ok()
}
