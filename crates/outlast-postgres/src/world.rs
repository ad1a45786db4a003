//! [`PostgresWorld`]: the contract, method by method.

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::Pool;
use outlast_core::refusal::{check_batch, check_join, check_starts, no_run};
use outlast_core::turn::HeldRun;
use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ChangeSignal, ClaimRequest, Clock, Committed, Counts, Description, Effects, Ended,
    HeartbeatDetails, Join, Message, NewMessage, Page, Pruned, Report, RunId, RunQuery, RunView, Sent,
    SessionId, Start, Started, Timestamp, Turn, TurnRecord, Work, WorkerView, World, WorldError,
};

use crate::blocked::{LANE_CONNECTIONS, Lane};
use crate::clock::{DatabaseClock, SharedClock, Time};
use crate::commit::Commit;
use crate::connect::Connector;
use crate::greet::{Owner, greet};
use crate::group::Groups;
use crate::home::{Home, within};
use crate::looks::Looks;
use crate::migrate::up_to_date;
use crate::options::PostgresOptions;
use crate::poll::poll;
use crate::row::moment;
use crate::side::Side;
use crate::sql::Sql;
use crate::store::Store;
use crate::told::Told;
use crate::url::parse;
use crate::voice::Voice;
use crate::{claim, list, page, prune, session};

/// A world in a schema of a Postgres database.
///
/// Any number of processes may open it; each worker's death is noticed by the others. Dropping the world
/// closes its connections, and frees the locks of sessions that have not left.
#[derive(Debug)]
pub struct PostgresWorld {
    store: Store,
    /// For beats: however busy the pool is, no session is lost for that.
    lifeline: Store,
    /// For turns that wait for a row that somebody else has locked.
    lane: Lane,
    side: Option<Side>,
    /// Tells other processes by the pool, where there is no side.
    aside: Option<tokio::task::JoinHandle<()>>,
    told: Told,
    time: Time,
    clock: Arc<dyn Clock>,
    groups: Groups,
    looks: Looks,
    /// What tells its schema from others of that name.
    identity: String,
    /// What tells its hints from those of others.
    origin: u64,
    home: Home,
}

impl PostgresWorld {
    /// Opens the world that a URL such as `postgres://user@host/database?schema=outlast` names, and makes
    /// its schema if it is not there.
    ///
    /// What the URL leaves out is taken from the variables of libpq (`PGHOST`, `PGUSER`, `PGPASSWORD`, …). Its
    /// own parameters are `schema`, `pool` (connections), `timeout` (seconds of one statement) and `migrate`
    /// (`auto` or `off`).
    ///
    /// # Errors
    ///
    /// [`WorldError::Invalid`] when the URL makes no sense, or names no user, database or host that there is;
    /// [`WorldError::Conflict`] when the schema is newer than this build, or old and not to be changed, or
    /// the server too old or a replica; [`WorldError::Unavailable`] when the server does not answer.
    pub async fn open(url: &str, mut options: PostgresOptions) -> Result<Self, WorldError> {
        let address = parse(url, &mut options)?;
        let home = Home::start()?;
        let connector = Connector::new(&address, home.handle().clone(), options.timeout)?;
        let pool = connector.pool(options.pool)?;
        Self::begin(home, pool, Some(connector), &address.place, options, Owner::World).await
    }

    /// Opens the world on a pool that exists, beside whatever else that is used for.
    ///
    /// A URL in the options ([`listen`](PostgresOptions::listen)) is for the two connections that this world
    /// needs for itself: they hear at once what other processes do, and show them that this one lives.
    /// Without it, others hear of what this world does by a connection of the pool, they are noticed by looking
    /// every two seconds, and when this process dies, that is noticed when its sessions expire.
    ///
    /// The planner settings that the world's statements need are set with each of them and reset
    /// (`RESET`) behind it, so other statements on these connections keep those of the server, the database
    /// and the role. The pool must reach the server itself, not a pooler in transaction mode.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub async fn on_pool(pool: Pool, mut options: PostgresOptions) -> Result<Self, WorldError> {
        let home = Home::start()?;
        let (connector, place) = match options.listen.clone() {
            None => (None, format!("a pool?schema={}", options.schema)),
            Some(url) => {
                let address = parse(&url, &mut options)?;
                (Some(Connector::new(&address, home.handle().clone(), options.timeout)?), address.place)
            }
        };
        Self::begin(home, pool, connector, &place, options, Owner::Other).await
    }

    async fn begin(
        home: Home,
        pool: Pool,
        connector: Option<Connector>,
        place: &str,
        options: PostgresOptions,
        owner: Owner,
    ) -> Result<Self, WorldError> {
        let handle = home.handle().clone();
        greet(&pool, owner, place, &handle).await?;
        let sql = Arc::new(Sql::of(&options.schema, options.interface));
        let (place, timeout) = (place.into(), options.timeout);
        let store = Store { pool, owner, sql, place, handle: handle.clone(), timeout };
        up_to_date(&store, &options.schema, options.migrate).await?;
        let lifeline = beside(connector.as_ref(), &store, 1)?;
        let lane = Lane::new(beside(connector.as_ref(), &store, LANE_CONNECTIONS)?, store.clone());
        let time = match options.clock.filter(|clock| clock.is_virtual()) {
            Some(clock) => Time::Virtual(clock),
            None => Time::Database(SharedClock(Arc::new(DatabaseClock::new(handle)))),
        };
        let rows = store.call(&store.sql.clock, &[]).await?;
        if let Some(now) = rows.first().and_then(|row| moment(row, 0).ok()) {
            time.learn(now);
        }
        let clock = time.clock();
        let change_signal = Arc::new(ChangeSignal::new(clock.clone()));
        let voice = Voice::new(time.is_virtual());
        let origin = origin();
        let told = Told {
            change_signal,
            rings: Arc::default(),
            waiters: Arc::default(),
            young: Arc::default(),
            voice,
        };
        let side = connector.map(|connector| {
            Side::start(connector, store.clone(), lifeline.clone(), told.clone(), origin, time.clone())
        });
        let mut aside = None;
        if side.is_none() && !time.is_virtual() {
            home.handle().spawn(poll(store.clone(), told.clone()));
            aside = Some(home.handle().spawn(told.voice.clone().speak_aside(store.clone(), origin)));
        }
        let rows = store.call(&store.sql.identity, &[]).await?;
        let identity = rows.first().map_or_else(String::new, |row| row.get(0));
        let groups = Groups::new(&store, &time, &told);
        let looks = Looks::new(told.rings.clone());
        Ok(Self {
            store,
            lifeline,
            lane,
            side,
            aside,
            told,
            time,
            clock,
            groups,
            looks,
            identity,
            origin,
            home,
        })
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn time(&self) -> &Time {
        &self.time
    }

    async fn look_for_end(&self, run: RunId) -> Result<Option<Ended>, WorldError> {
        let _busy = self.clock.busy();
        self.groups.ends.ask_one(run).await
    }

    /// What tells this world from others.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }
}

/// So many connections beside the pool; the pool itself, where the world makes no connections.
fn beside(connector: Option<&Connector>, store: &Store, size: usize) -> Result<Store, WorldError> {
    let Some(connector) = connector else { return Ok(store.clone()) };
    Ok(Store { pool: connector.pool(size)?, owner: Owner::World, ..store.clone() })
}

/// How many commits of one session are under way at the same time: one waits for the disk while another is
/// computed.
const LANES: usize = 2;

/// How long a world that is closed waits for its connection that listens, and then for the pool.
const LAST_WORDS: Duration = Duration::from_millis(450);

/// The same for a pool of others: what drives it may be the thread that closes the world. What is on its way is sent
/// when that goes on.
const LAST_WORDS_OF_OTHERS: Duration = Duration::from_millis(50);

/// A number that no other world has, in whatever process: in containers all of them may have the same id.
fn origin() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Drop for PostgresWorld {
    fn drop(&mut self) {
        let last = self.side.as_ref().and_then(Side::close).or_else(|| {
            let aside = self.aside.take()?;
            aside.abort();
            Some(aside)
        });
        let (store, voice, origin) = (self.store.clone(), self.told.voice.clone(), self.origin);
        let pools = [self.store.clone(), self.lifeline.clone(), self.lane.store.clone()];
        let stays = pools.clone();
        let goodbye = self.home.handle().spawn(async move {
            if let Some(last) = last {
                let _ = within(&store.handle, LAST_WORDS, last).await;
            }
            // What the connection that listens could not say, because it was away, or because there is none.
            let limit = if store.owner == Owner::World { LAST_WORDS } else { LAST_WORDS_OF_OTHERS };
            let _ = within(&store.handle, limit, voice.say_aside(&store, origin)).await;
            close(&pools);
        });
        self.home.end_after(Some(goodbye));
        close(&stays);
    }
}

/// Closes the pools that are the world's.
fn close(stores: &[Store]) {
    for store in stores.iter().filter(|store| store.owner == Owner::World) {
        store.pool.close();
    }
}

#[async_trait]
impl World for PostgresWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        let _busy = self.clock.busy();
        check_starts(starts.len())?;
        self.groups.starts.ask(starts).await
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        let _busy = self.clock.busy();
        self.groups.views.ask_one(run).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        let _busy = self.clock.busy();
        page::page(&self.store, &query).await
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        let _busy = self.clock.busy();
        list::counts(&self.store).await
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        let told = self.told.waiters.wait(run);
        let is_young = self.told.young.contains(run);
        if !is_young {
            let ended = self.look_for_end(run).await?;
            if ended.is_some() {
                return Ok(ended);
            }
        }
        match first(told, self.clock.sleep_until(until)).await {
            First::Event(ended) => Ok(Some(ended)),
            // A hint may be lost.
            First::Time(_) if is_young => self.look_for_end(run).await,
            First::Time(_) => Ok(None),
        }
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        let _busy = self.clock.busy();
        claim::consumed(&self.store, run).await?.ok_or_else(|| no_run(run))?;
        claim::history(&self.store, run, from, limit).await
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        let _busy = self.clock.busy();
        claim::histories(&self.store, runs).await
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        let _busy = self.clock.busy();
        self.groups.sends.ask(messages).await
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        let _busy = self.clock.busy();
        let consumed = claim::consumed(&self.store, run).await?.ok_or_else(|| no_run(run))?;
        // What is consumed may have lost its body; the history has it.
        claim::inbox(&self.store, run, after.max(consumed)).await
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        check_join(&join)?;
        if let Some(side) = &self.side {
            side.lock(join.session).await?;
        }
        session::join(&self.store, &self.time, &join, self.side.is_some()).await
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        let _busy = self.clock.busy();
        session::beat(&self.lifeline, &self.time, session, report, details).await
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        let _busy = self.clock.busy();
        session::held(&self.store, session).await
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        session::leave(&self.store, &self.time, session).await?;
        self.looks.forget(session);
        if let Some(side) = &self.side {
            side.unlock(session).await;
        }
        self.told.ring();
        Ok(())
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        let _busy = self.clock.busy();
        let taken = session::takeover(&self.lifeline, &self.time, session).await?;
        if let Some(side) = &self.side {
            side.looked();
        }
        if taken.sessions > 0 || taken.runs > 0 {
            self.told.ring();
        }
        Ok(taken.runs)
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        let _busy = self.clock.busy();
        // Before looking: what changes meanwhile rings behind this number.
        let epoch = self.told.change_signal.epoch();
        if self.side.is_none() || self.time.is_virtual() {
            // Nothing is heard of other processes.
            return claim::claim(&self.store, &self.time, session, &request, epoch).await;
        }
        let look = self.looks.begin(session, &request, self.clock.now());
        let mut work = match look.only {
            Some(run) => claim::claim_one(&self.store, &self.time, session, &request, epoch, run).await?,
            None => claim::claim(&self.store, &self.time, session, &request, epoch).await?,
        };
        self.looks.end(session, &request, look, &mut work);
        Ok(work)
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        let _busy = self.clock.busy();
        check_batch(turns.len())?;
        let mut commit = Commit::new(&self.store, &self.lane, &self.time, &self.told, session, turns);
        let done = commit.run().await;
        let (answers, news) = (commit.answers, commit.news);
        self.told.tell(news);
        done.map(|()| answers)
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        let _busy = self.clock.busy();
        list::workers(&self.store).await
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        session::resume(&self.store, &self.time, run).await?;
        self.told.ring();
        Ok(())
    }

    async fn blocked_by(&self, run: RunId) -> Result<Option<String>, WorldError> {
        let _busy = self.clock.busy();
        self.lane.blocker(run).await
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        match first(self.told.change_signal.changed_since(epoch), self.clock.sleep_until(until)).await {
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
        prune::prune(&self.store, before, after, limit).await
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn describe(&self) -> Description {
        let hints = match &self.side {
            _ if self.time.is_virtual() => "not at all, since the clock is virtual",
            Some(_) => "at once, by NOTIFY, with a slow poll behind it",
            None => "told at once, by NOTIFY; heard by polling, since there is no connection that listens",
        };
        Description {
            kind: "postgres",
            place: self.store.place.to_string(),
            durability:
                "survives what the server survives: with `fsync` and `synchronous_commit` on, its crash \
                         and the loss of power"
                    .into(),
            hints: hints.into(),
            lanes: LANES,
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
