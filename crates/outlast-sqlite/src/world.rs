//! [`SqliteWorld`]: the contract, method by method.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use outlast_core::limits::HISTORY_TURNS_READ_MAX;
use outlast_core::refusal::{check_batch, check_histories, check_join, check_starts, no_run, session_gone};
use outlast_core::turn::HeldRun;
use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ChangeSignal, ClaimRequest, Clock, Committed, Counts, Description, Effects, Ended,
    HeartbeatDetails, Join, Message, NewMessage, Page, Pruned, Report, RunId, RunQuery, RunView, Sent,
    SessionId, Start, Started, Timestamp, Turn, TurnRecord, Waiters, Work, WorkerView, World, WorldError,
};

use crate::connection::clock::WorldClock;
use crate::connection::fair_lock::Turnstile;
use crate::connection::file;
use crate::connection::file::Opening;
use crate::notifications::change_watcher::{Lookout, Told};
use crate::notifications::tx_watcher::{Expectations, Expected};
use crate::options::{Durability, SqliteOptions, SqliteUrl};
use crate::read::id_clock_skew::Skew;
use crate::read::page::page;
use crate::read::readers::Readers;
use crate::read::run_ends::Ends;
use crate::read::views as list;
use crate::schema::migrate::Others;
use crate::schema::sql;
use crate::sessions::claim::{Claim, claim, consumed, history, inbox, whole_history};
use crate::sessions::heartbeat::NewDetails;
use crate::sessions::session;
use crate::sessions::session_locks::Locks;
use crate::write::commit::commit;
use crate::write::lease_cache::Holdings;
use crate::write::message::NewLetter;
use crate::write::prune::{Prune, Swept, prune, sweep};
use crate::write::send::send_by_client;
use crate::write::start::{NewRun, start};
use crate::write::turn::NewTurn;
use crate::write::tx::Tx;
use crate::write::writer::{Desk, Writer};

/// A world in one SQLite file.
///
/// Several processes may open the same file; each worker's death is noticed by the others at once.
/// Dropping the world ends its threads, and frees the locks of sessions that have not left.
#[derive(Debug)]
pub struct SqliteWorld {
    // In this order: the threads end before what they need.
    writer: Writer,
    lookout: Lookout,
    readers: Readers,
    ends: Ends,
    expectations: Expectations,
    locks: Arc<Locks>,
    change_signal: Arc<ChangeSignal>,
    waiters: Arc<Waiters>,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    sync: Durability,
}

impl SqliteWorld {
    /// Opens the file that a path or a URL such as `sqlite:shop.db?sync=normal` names, and makes it if
    /// it is not there.
    ///
    /// # Errors
    ///
    /// [`WorldError::Invalid`] when the URL makes no sense, the folder is missing or the file is
    /// read-only; [`WorldError::Conflict`] when the file is another program's, has a schema that this build cannot use, or
    /// has to be migrated to one that joined workers cannot use;
    /// [`WorldError::Corrupt`] when it is not an SQLite file; [`WorldError::Unavailable`] when it
    /// cannot be used now.
    pub fn open(place: &str, options: SqliteOptions) -> Result<Self, WorldError> {
        let url = SqliteUrl::parse(place)?;
        let (path, sync, clock) = (url.path, url.sync.unwrap_or(options.sync), options.clock);
        let opening = Opening { path: path.clone(), sync, statements: options.statements };
        let locks = Arc::new(Locks::beside(&path, clock.is_virtual()));
        let others = Others { locks: &locks, now: clock.now() };
        let connection = file::open(&opening, Some(others))?;
        let clock = WorldClock::go_on(clock, &connection, &path)?;
        let change_signal = Arc::new(ChangeSignal::new(clock.clone()));
        let waiters = Arc::new(Waiters::default());
        let lookout = if clock.is_virtual() {
            Lookout::asleep()
        } else {
            let told = Told { change_signal: change_signal.clone(), waiters: waiters.clone() };
            Lookout::start(&opening, url.poll, told)?
        };
        let readers = Readers::start(&opening)?;
        let expectations = Expectations::new(opening, change_signal.clone(), lookout.ringer());
        let writer = Writer::start(Desk {
            path: path.clone(),
            connection,
            clock: clock.clone(),
            locks: locks.clone(),
            change_signal: change_signal.clone(),
            waiters: waiters.clone(),
            ringer: lookout.ringer(),
            turnstile: Turnstile::beside(&path),
            holdings: Holdings::default(),
            skew: Skew::default(),
        })?;
        let ends = Ends::new(path.clone());
        Ok(Self {
            writer,
            lookout,
            readers,
            ends,
            expectations,
            locks,
            change_signal,
            waiters,
            clock,
            path,
            sync,
        })
    }

    /// Copies the world to a file that must not exist, while everything goes on; see [`backup`](crate::backup()).
    ///
    /// # Errors
    ///
    /// As [`backup`](crate::backup()).
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), WorldError> {
        crate::backup(&self.path, to.as_ref(), self.clock.clone()).await
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Notices when a transaction of the caller's has committed.
    pub(crate) fn expect_commit(&self, expected: Expected) {
        self.expectations.expect(expected);
    }

    /// Lets the file have at most so many pages, or as many as it has when those are more; `None` for no
    /// limit. For tests: as if the disk were that small.
    #[doc(hidden)]
    pub async fn limit_pages(&self, pages: Option<u32>) -> Result<(), WorldError> {
        let limit = |tx: &mut Tx<'_>, pages: &u32| {
            tx.connection.pragma_update_and_check(None, "max_page_count", *pages, |_| Ok(()))?;
            Ok(())
        };
        self.writer.write_one(pages.unwrap_or(u32::MAX - 1), limit).await
    }
}

impl Drop for SqliteWorld {
    fn drop(&mut self) {
        self.expectations.close();
    }
}

#[async_trait]
impl World for SqliteWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        let _busy = self.clock.busy();
        check_starts(starts.len())?;
        self.writer.write(starts.into_iter().map(NewRun::encode).collect(), start).await
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(move |view| list::run(view, run)).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(move |view| page(view, &query)).await
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(list::counts).await
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        let _listening = self.lookout.listen();
        let told = self.waiters.wait(run);
        let found = {
            let _busy = self.clock.busy();
            self.ends.look(&self.readers, run).await?
        };
        if found.is_some() {
            return Ok(found);
        }
        Ok(match first(told, self.clock.sleep_until(until)).await {
            First::Event(ended) => Some(ended),
            First::Time(_) => None,
        })
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        let _busy = self.clock.busy();
        let limit = limit.min(HISTORY_TURNS_READ_MAX) as i64;
        let read = self.readers.read(move |view| {
            consumed(view, run)?.ok_or_else(|| no_run(run))?;
            Ok(history(view, run, from, limit)?)
        });
        read.await
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        let _busy = self.clock.busy();
        check_histories(runs.len())?;
        let (runs, path) = (runs.to_vec(), self.path.clone());
        self.readers.read(move |view| runs.iter().map(|run| whole_history(view, *run, &path)).collect()).await
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        let _busy = self.clock.busy();
        let letters: Result<Vec<_>, _> = messages.into_iter().map(NewLetter::encode).collect();
        self.writer.write(letters?, send_by_client).await
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        let _busy = self.clock.busy();
        let read = self.readers.read(move |view| {
            let consumed = consumed(view, run)?.ok_or_else(|| no_run(run))?;
            // What is consumed has lost its body; the history has it.
            Ok(inbox(view, run, after.max(consumed))?)
        });
        read.await
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        check_join(&join)?;
        self.locks.acquire(join.session)?;
        self.writer.write_one(join, session::join).await?;
        let locks = self.locks.clone();
        let sweep = move |view: &_| {
            locks.sweep(&session::all(view)?);
            Ok(())
        };
        self.readers.read_once(sweep).await
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        let _busy = self.clock.busy();
        let details = details.iter().map(NewDetails::encode).collect();
        let beating = session::Beating { session, report: report.to_json(), details };
        self.writer.write_one(beating, session::beat).await
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        let _busy = self.clock.busy();
        let read = self.readers.read(move |view| {
            if !view.prepare_cached(sql::SESSION_ROW)?.exists([session.to_string()])? {
                return Err(session_gone(session).into());
            }
            let held = session::held(view, session)?.into_iter().map(|held| held.into_held(session));
            Ok(held.collect())
        });
        read.await
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        self.writer.write_one(session, session::leave).await
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        let _busy = self.clock.busy();
        let (locks, now) = (self.locks.clone(), self.clock.now());
        let look = move |view: &_| session::has_dead(view, &locks, session, now);
        if !self.readers.read_once(look).await? {
            return Ok(0);
        }
        self.writer.write_one(session, session::takeover).await
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        let _busy = self.clock.busy();
        // Before looking: what changes meanwhile rings behind this number.
        let epoch = self.change_signal.epoch();
        let now = self.clock.now();
        let asked = Arc::new(Claim { session, request });
        let looks = asked.clone();
        let found = self.readers.read(move |view| looks.answer_without_write(view, now)).await?;
        if let Some(brought) = found {
            return Ok(brought.into_work(epoch));
        }
        let brought = self.writer.write_one(asked, |tx, asked| claim(tx, asked)).await?;
        Ok(brought.into_work(epoch))
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        let _busy = self.clock.busy();
        check_batch(turns.len())?;
        let turns = turns.iter().map(|turn| NewTurn::encode(session, turn)).collect();
        self.writer.write(turns, commit).await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(list::workers).await
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        self.writer.write_one(run, session::resume).await
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        let _listening = self.lookout.listen();
        match first(self.change_signal.changed_since(epoch), self.clock.sleep_until(until)).await {
            First::Event(busy) | First::Time(busy) => busy,
        }
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        let _busy = self.clock.busy();
        let asked = Prune { before, after, limit };
        let found = self.readers.read(move |view| asked.answer_without_write(view)).await?;
        if let Some(nothing) = found {
            return Ok(nothing);
        }
        let (pruned, mut swept) = self.writer.write_one(asked, prune).await?;
        while swept == Swept::InPart {
            swept = self.writer.write_one((), sweep).await?;
        }
        Ok(pruned)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn describe(&self) -> Description {
        let durability = match self.sync {
            Durability::Full => "survives the death of the process and the loss of power",
            Durability::Normal => {
                "survives the death of the process; the last commits before a loss of power may be lost"
            }
        };
        Description {
            kind: "sqlite",
            place: self.path.display().to_string(),
            durability: durability.into(),
            hints: self.lookout.manner().into(),
            lanes: 1,
            effects: Effects::Inline,
        }
    }
}

/// What came first.
enum First<T> {
    Event(T),
    Time(Busy),
}

/// Waits for an event or a moment; at the same time the event wins.
async fn first<T>(
    event: impl Future<Output = T>,
    mut time: Pin<Box<dyn Future<Output = Busy> + Send>>,
) -> First<T> {
    let mut event = pin!(event);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(happened) = event.as_mut().poll(cx) {
            return Poll::Ready(First::Event(happened));
        }
        time.as_mut().poll(cx).map(First::Time)
    })
    .await
}
