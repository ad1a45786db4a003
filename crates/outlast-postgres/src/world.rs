//! [`PostgresWorld`]: the contract, method by method.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::Pool;
use outlast_core::record::{check_record_batch, check_records};
use outlast_core::refusal::{check_batch, check_join, check_runs_by_id, check_starts, no_run};
use outlast_core::stream::check_writes;
use outlast_core::time::event_or_time;
use outlast_core::turn::HeldRun;
use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ClaimRequest, Clock, Committed, Counts, Description, Ended, FailureQuery, FlagCounts, Fork,
    HeartbeatDetails, Join, MarkCounts, Marks, Message, MessageId, NewMessage, NewRecord, OutcomeSlot, Page,
    Pruned, QuarantineChange, QueueView, RecordQuery, Reopen, Report, RunId, RunQuery, RunView, RunWatch,
    Sent, SessionId, Start, Started, StateView, StoredRecord, StoredReply, StreamPage, StreamView,
    StreamWrite, StreamWritten, Timestamp, TokenHash, TokenView, Transacted, Turn, TurnRecord, Work,
    WorkerView, World, WorldError,
};

use crate::batcher::Batchers;
use crate::clock::{DatabaseClock, SharedClock, TimeSource};
use crate::connection::connector::Connector;
use crate::connection::database::Database;
use crate::connection::io_runtime::{IoRuntime, with_timeout};
use crate::connection::preflight::{PoolOwner, check_server};
use crate::connection::session_connections::SessionConnections;
use crate::connection::url::parse;
use crate::encoding::row::timestamp;
use crate::notifications::claim_hints::ClaimHints;
use crate::notifications::listener::Listener;
use crate::notifications::polling::poll;
use crate::notifications::subscribers::Subscribers;
use crate::options::PostgresOptions;
use crate::read::records::Existing;
use crate::read::{history, page, records, streams, views};
use crate::schema::migrate::ensure_schema;
use crate::schema::statements::Statements;
use crate::write::blocked_turns::{BLOCKED_CONNECTIONS, BlockedTurns};
use crate::write::commit::CommitCall;
use crate::write::transactions::{PgStepWork, StepConnections};
use crate::write::{self, claim, prune, session, tokens};

/// A world in a schema of a Postgres database.
///
/// Any number of processes may open it; when a worker dies, the others take over its runs. Dropping the world closes
/// its connections, and releases the locks of sessions that have not left.
#[derive(Debug)]
pub struct PostgresWorld {
    database: Database,
    /// The connections on which sessions commit.
    session_connections: SessionConnections,
    /// A connection for beats only, so that a busy pool never costs a session.
    beat_database: Database,
    /// A connection for chunks only, so that they do not delay commits.
    stream_database: Database,
    /// The connections for transactional steps.
    steps: StepConnections,
    /// Turns that wait for a row that another transaction has locked, with connections of their own.
    blocked_turns: BlockedTurns,
    listener: Option<Listener>,
    /// Notifies other processes on connections of the pool, if there is no listener connection.
    pool_notifier_task: Option<tokio::task::JoinHandle<()>>,
    subscribers: Subscribers,
    time: TimeSource,
    clock: Arc<dyn Clock>,
    batchers: Batchers,
    claim_hints: ClaimHints,
    /// Distinguishes this schema from others of the same name, in other databases.
    identity: String,
    /// Distinguishes the notifications of this world from those of others.
    origin: u64,
    io_runtime: IoRuntime,
}

impl PostgresWorld {
    /// Opens the world at a URL such as `postgres://user@host/database?schema=outlast`, and creates its schema if it
    /// does not exist.
    ///
    /// Parts that the URL leaves out are taken from the environment variables of libpq (`PGHOST`, `PGUSER`,
    /// `PGPASSWORD`, …). The URL's own parameters are `schema`, `pool` (number of connections), `transactions`
    /// (connections for transactional steps), `timeout` (seconds of one statement) and `migrate` (`auto` or `off`).
    ///
    /// # Errors
    ///
    /// [`WorldError::Invalid`] when the URL is malformed, or its user, database or host does not exist;
    /// [`WorldError::Conflict`] when the schema is newer than this build, or outdated and must not be migrated, or when
    /// the server is too old or a replica; [`WorldError::Unavailable`] when the server does not respond.
    pub async fn open(url: &str, mut options: PostgresOptions) -> Result<Self, WorldError> {
        let target = parse(url, &mut options)?;
        let io_runtime = IoRuntime::start()?;
        let connector = Connector::new(&target, io_runtime.handle().clone(), options.timeout)?;
        let pool = connector.pool(options.pool)?;
        // Boxed because it is large, and called rarely.
        Box::pin(Self::open_with(io_runtime, pool, Some(connector), &target.place, options, PoolOwner::World))
            .await
    }

    /// Opens the world on an existing pool, which may be used for other purposes as well.
    ///
    /// A URL in the options ([`listen`](PostgresOptions::listen)) is for the connections that this world needs for
    /// itself: on them it is notified immediately of changes by other processes, and shows them that it is alive.
    /// Without the URL, this world notifies others on a connection of the pool and polls for their changes every two
    /// seconds; and when this process dies, others notice it only when its sessions expire.
    ///
    /// The planner settings that the world's statements need are set before each of them and reset (`RESET`) after it,
    /// so other statements on these connections keep the settings of the server, the database and the role. The pool
    /// must reach the server itself, not a pooler in transaction mode.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub async fn on_pool(pool: Pool, mut options: PostgresOptions) -> Result<Self, WorldError> {
        let io_runtime = IoRuntime::start()?;
        let (connector, place) = match options.listen.clone() {
            None => (None, format!("a pool?schema={}", options.schema)),
            Some(url) => {
                let target = parse(&url, &mut options)?;
                let connector = Connector::new(&target, io_runtime.handle().clone(), options.timeout)?;
                (Some(connector), target.place)
            }
        };
        // Boxed because it is large, and called rarely.
        Box::pin(Self::open_with(io_runtime, pool, connector, &place, options, PoolOwner::Other)).await
    }

    async fn open_with(
        io_runtime: IoRuntime,
        pool: Pool,
        connector: Option<Connector>,
        place: &str,
        options: PostgresOptions,
        owner: PoolOwner,
    ) -> Result<Self, WorldError> {
        let handle = io_runtime.handle().clone();
        let own_connector = connector.as_ref().filter(|_| owner == PoolOwner::World);
        check_server(&pool, own_connector, place, &handle).await?;
        let sql = Arc::new(Statements::of(&options.schema, options.interface));
        let (place, timeout) = (place.into(), options.timeout);
        let database = Database { pool, owner, sql, place, handle, timeout };
        ensure_schema(&database, &options.schema, options.migrate).await?;
        let beat_database = with_own_connections(connector.as_ref(), &database, 1)?;
        let stream_database = with_own_connections(connector.as_ref(), &database, 1)?;
        let blocked_database = with_own_connections(connector.as_ref(), &database, BLOCKED_CONNECTIONS)?;
        let blocked_turns = BlockedTurns::new(blocked_database, database.clone());
        let time = time_source(options.clock, &database).await?;
        let clock = time.clock();
        let origin = random_origin();
        let subscribers = Subscribers::new(clock.clone());
        let own_connector = connector.clone().filter(|_| owner == PoolOwner::World && !time.is_virtual());
        let steps = StepConnections::new(&connector, &own_connector, &database, options.transactions)?;
        let session_connections = SessionConnections::new(own_connector, COMMIT_CONCURRENCY);
        let listener = connector.map(|connector| {
            let (database, beat_database) = (database.clone(), beat_database.clone());
            Listener::start(connector, database, beat_database, subscribers.clone(), origin, time.clone())
        });
        let mut pool_notifier_task = None;
        if listener.is_none() && !time.is_virtual() {
            io_runtime.handle().spawn(poll(database.clone(), subscribers.clone()));
            let notifier = subscribers.notifier.clone();
            pool_notifier_task =
                Some(io_runtime.handle().spawn(notifier.run_on_pool(database.clone(), origin)));
        }
        let rows = database.call(&database.sql.identity, &[]).await?;
        let identity = rows.first().map_or_else(String::new, |row| row.get(0));
        let batchers = Batchers::new(&database, &time, &subscribers);
        let claim_hints = ClaimHints::new(subscribers.wake_reasons.clone());
        Ok(Self {
            database,
            session_connections,
            beat_database,
            stream_database,
            steps,
            blocked_turns,
            listener,
            pool_notifier_task,
            subscribers,
            time,
            clock,
            batchers,
            claim_hints,
            identity,
            origin,
            io_runtime,
        })
    }

    /// Executes the code of an attempt at a transactional step, and records its outcome in the same transaction: the
    /// effect and the outcome are durable together or not at all.
    ///
    /// Dropping the future rolls the transaction back, unless its last message was sent: then it may commit.
    pub async fn transact(&self, slot: OutcomeSlot, work: PgStepWork) -> Transacted {
        let _busy = self.clock.busy();
        self.steps.transact(&self.time, slot, work).await
    }

    /// The number of transactions of steps that can be open at the same time.
    pub fn transactions_max(&self) -> usize {
        self.steps.max()
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn time(&self) -> &TimeSource {
        &self.time
    }

    /// Reads how a run ended, if it has.
    async fn read_end(&self, run: RunId) -> Result<Option<Ended>, WorldError> {
        let _busy = self.clock.busy();
        self.batchers.ends.call_one(run).await
    }

    /// Sends one message, which may be sent to a token.
    async fn send_one(&self, message: NewMessage) -> Result<Result<Sent, WorldError>, WorldError> {
        let Some(hash) = message.body.token_hash() else {
            let mut answers = self.batchers.sends.call(vec![message]).await?;
            return Ok(answers
                .pop()
                .unwrap_or_else(|| Err(WorldError::Corrupt("there is no answer".into()))));
        };
        let answer = write::send::send_to_token(&self.database, &self.time, &message, hash).await;
        if answer.is_ok() {
            self.subscribers.publish_work();
        }
        Ok(answer)
    }

    /// Distinguishes this world's schema from others of the same name.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }
}

/// The time of the world: a virtual clock if there is one, otherwise the database's clock, which is read once.
async fn time_source(clock: Option<Arc<dyn Clock>>, database: &Database) -> Result<TimeSource, WorldError> {
    let time = match clock.filter(|clock| clock.is_virtual()) {
        Some(clock) => TimeSource::Virtual(clock),
        None => TimeSource::Database(SharedClock(Arc::new(DatabaseClock::new(database.handle.clone())))),
    };
    let rows = database.call(&database.sql.clock, &[]).await?;
    if let Some(now) = rows.first().and_then(|row| timestamp(row, 0).ok()) {
        time.observe(now);
    }
    Ok(time)
}

/// The database with a pool of its own; with the shared pool, if the world makes no connections.
fn with_own_connections(
    connector: Option<&Connector>,
    database: &Database,
    size: usize,
) -> Result<Database, WorldError> {
    let Some(connector) = connector else { return Ok(database.clone()) };
    Ok(Database { pool: connector.pool(size)?, owner: PoolOwner::World, ..database.clone() })
}

/// The number of commits of one session that are executed at the same time: one waits for the disk while the next is
/// computed.
const COMMIT_CONCURRENCY: usize = 2;

/// How long closing a world waits for the listener's task, and then for the last notification on the pool.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(450);

/// The same for a pool of somebody else: the thread that closes the world may be the one that drives the pool's
/// connections. The notification is sent when that thread continues.
const FOREIGN_POOL_CLOSE_TIMEOUT: Duration = Duration::from_millis(50);

/// A random number that identifies this world among all processes. A process id would not: in containers many processes
/// have the same one.
fn random_origin() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Drop for PostgresWorld {
    fn drop(&mut self) {
        self.session_connections.close();
        self.steps.close();
        let closing_task = self.listener.as_ref().and_then(Listener::close).or_else(|| {
            let task = self.pool_notifier_task.take()?;
            task.abort();
            Some(task)
        });
        let (database, origin) = (self.database.clone(), self.origin);
        let notifier = self.subscribers.notifier.clone();
        let databases = [
            self.database.clone(),
            self.beat_database.clone(),
            self.stream_database.clone(),
            self.steps.shared.clone(),
            self.blocked_turns.database.clone(),
        ];
        let databases_here = databases.clone();
        let close = self.io_runtime.handle().spawn(async move {
            if let Some(task) = closing_task {
                let _ = with_timeout(&database.handle, CLOSE_TIMEOUT, task).await;
            }
            // Send what the listener connection could not send, because it was lost or does not exist.
            let is_own = database.owner == PoolOwner::World;
            let timeout = if is_own { CLOSE_TIMEOUT } else { FOREIGN_POOL_CLOSE_TIMEOUT };
            let _ = with_timeout(&database.handle, timeout, notifier.send_on_pool(&database, origin)).await;
            close_own_pools(&databases);
        });
        self.io_runtime.end_after(Some(close));
        close_own_pools(&databases_here);
    }
}

/// Closes the pools that belong to the world.
fn close_own_pools(databases: &[Database]) {
    for database in databases.iter().filter(|database| database.owner == PoolOwner::World) {
        database.pool.close();
    }
}

#[async_trait]
impl World for PostgresWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        let _busy = self.clock.busy();
        check_starts(starts.len())?;
        self.batchers.starts.call(starts).await
    }

    async fn start_and_send(&self, start: Start, message: NewMessage) -> Result<(Started, Sent), WorldError> {
        let _busy = self.clock.busy();
        let answer = write::start::start_and_send(&self.database, &self.time, &start, message).await?;
        self.subscribers.publish_work();
        Ok(answer)
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        let _busy = self.clock.busy();
        self.batchers.views.call_one(run).await
    }

    async fn runs_by_id(&self, runs: &[RunId]) -> Result<Vec<RunView>, WorldError> {
        let _busy = self.clock.busy();
        check_runs_by_id(runs.len())?;
        views::runs_by_id(&self.database, runs).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        let _busy = self.clock.busy();
        page::page(&self.database, &query).await
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        let _busy = self.clock.busy();
        views::counts(&self.database).await
    }

    async fn mark_counts(&self) -> Result<MarkCounts, WorldError> {
        let _busy = self.clock.busy();
        views::mark_counts(&self.database).await
    }

    async fn flag_counts(&self) -> Result<FlagCounts, WorldError> {
        let _busy = self.clock.busy();
        views::flag_counts(&self.database).await
    }

    async fn failures(&self, query: FailureQuery) -> Result<Vec<RunView>, WorldError> {
        let _busy = self.clock.busy();
        views::failures(&self.database, &query).await
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        let end = self.subscribers.waiters.wait(run);
        let is_recent = self.subscribers.recently_started.contains(run);
        if !is_recent {
            let ended = self.read_end(run).await?;
            if ended.is_some() {
                return Ok(ended);
            }
        }
        match event_or_time(end, self.clock.sleep_until(until)).await {
            Ok(ended) => Ok(Some(ended)),
            // The notification of the end may be lost.
            Err(_) if is_recent => self.read_end(run).await,
            Err(_) => Ok(None),
        }
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        let _busy = self.clock.busy();
        history::consumed(&self.database, run).await?.ok_or_else(|| no_run(run))?;
        history::history(&self.database, run, from, limit).await
    }

    async fn event_count(&self, run: RunId) -> Result<u64, WorldError> {
        let _busy = self.clock.busy();
        history::event_count(&self.database, run).await?.ok_or_else(|| no_run(run))
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        let _busy = self.clock.busy();
        history::histories(&self.database, runs).await
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        let _busy = self.clock.busy();
        if messages.iter().all(|message| message.body.token_hash().is_none()) {
            return self.batchers.sends.call(messages).await;
        }
        // Messages to tokens are rare: one after the other, so that those to one run keep their order.
        let mut answers = Vec::with_capacity(messages.len());
        for message in messages {
            answers.push(self.send_one(message).await?);
        }
        Ok(answers)
    }

    async fn reply(&self, run: RunId, message: MessageId) -> Result<Option<StoredReply>, WorldError> {
        let _busy = self.clock.busy();
        tokens::reply(&self.database, run, message).await
    }

    async fn token(&self, hash: TokenHash) -> Result<Option<TokenView>, WorldError> {
        let _busy = self.clock.busy();
        tokens::token(&self.database, hash, self.clock.now()).await
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        let _busy = self.clock.busy();
        let consumed = history::consumed(&self.database, run).await?.ok_or_else(|| no_run(run))?;
        // A consumed message may have lost its body; the history has it.
        history::inbox(&self.database, run, after.max(consumed)).await
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        check_join(&join)?;
        let Some(listener) = &self.listener else {
            return session::join(&self.database, &self.time, &join, false).await;
        };
        let is_locked_here = listener.lock(join.session).await?;
        let joined = session::join(&self.database, &self.time, &join, true).await;
        if joined.is_err() && is_locked_here {
            // A worker that tries again has another session, and would leave one lock behind with each try.
            listener.unlock(join.session).await;
        }
        joined
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        let _busy = self.clock.busy();
        session::beat(&self.beat_database, &self.time, session, report, details).await
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        let _busy = self.clock.busy();
        session::held(&self.database, session).await
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        session::leave(&self.database, &self.time, session).await?;
        self.session_connections.forget(session);
        self.steps.forget(session);
        self.claim_hints.forget(session);
        if let Some(listener) = &self.listener {
            listener.unlock(session).await;
        }
        self.subscribers.publish_work();
        Ok(())
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        let _busy = self.clock.busy();
        let taken = session::takeover(&self.beat_database, &self.time, session).await?;
        if let Some(listener) = self.listener.as_ref().filter(|_| taken.unlocked == 0) {
            listener.takeover_done();
        }
        if taken.sessions > 0 || taken.runs > 0 {
            self.subscribers.publish_work();
        }
        Ok(taken.runs)
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        let _busy = self.clock.busy();
        // Read the epoch before the claim: a change that happens meanwhile then wakes the worker.
        let epoch = self.subscribers.change_signal.epoch();
        if self.listener.is_none() || self.time.is_virtual() {
            // Without notifications from other processes every claim has to search for everything.
            return claim::claim(&self.database, &self.time, session, &request, epoch, None).await;
        }
        let plan = self.claim_hints.plan(session, &request, self.clock.now());
        let mut work = match plan.only_run {
            Some(run) => {
                let database = self.session_connections.database(session, &self.database).await?;
                claim::claim_one(&database, &self.time, session, &request, epoch, run).await?
            }
            None => {
                let returned = Some(&plan.returned);
                claim::claim(&self.database, &self.time, session, &request, epoch, returned).await?
            }
        };
        self.claim_hints.record(session, &request, plan, &mut work);
        Ok(work)
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        let _busy = self.clock.busy();
        check_batch(turns.len())?;
        let database = self.session_connections.database(session, &self.database).await?;
        let mut call =
            CommitCall::new(&database, &self.blocked_turns, &self.time, &self.subscribers, session, turns);
        let done = call.run().await;
        self.subscribers.publish(call.notice);
        done.map(|()| call.answers)
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        let _busy = self.clock.busy();
        views::workers(&self.database).await
    }

    async fn queues(&self) -> Result<Vec<QueueView>, WorldError> {
        let _busy = self.clock.busy();
        views::queues(&self.database, self.clock.now()).await
    }

    async fn put_records(&self, space: &str, records: Vec<NewRecord>) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        check_records(space, &records)?;
        records::put(&self.database, &self.time, space, &records, Existing::Replaced).await.map(drop)
    }

    async fn put_record_if_absent(&self, space: &str, record: NewRecord) -> Result<bool, WorldError> {
        let _busy = self.clock.busy();
        let records = [record];
        check_records(space, &records)?;
        Ok(records::put(&self.database, &self.time, space, &records, Existing::Kept).await? > 0)
    }

    async fn record(&self, space: &str, id: &str) -> Result<Option<StoredRecord>, WorldError> {
        let _busy = self.clock.busy();
        records::record(&self.database, space, id).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Vec<StoredRecord>, WorldError> {
        let _busy = self.clock.busy();
        records::records(&self.database, &query).await
    }

    async fn delete_records(&self, space: &str, ids: &[String]) -> Result<u64, WorldError> {
        let _busy = self.clock.busy();
        check_record_batch(ids.len())?;
        records::delete(&self.database, space, ids).await
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        session::resume(&self.database, &self.time, run).await?;
        self.subscribers.publish_work();
        Ok(())
    }

    async fn reopen(&self, reopen: Reopen) -> Result<Sent, WorldError> {
        let _busy = self.clock.busy();
        let sent = write::reopen::reopen(&self.database, &self.time, &reopen).await?;
        self.subscribers.publish_work();
        Ok(sent)
    }

    async fn fork(&self, fork: Fork) -> Result<Started, WorldError> {
        let _busy = self.clock.busy();
        let started = write::fork::fork(&self.database, &self.time, &fork).await?;
        self.subscribers.publish_work();
        Ok(started)
    }

    async fn blocked_by(&self, run: RunId) -> Result<Option<String>, WorldError> {
        let _busy = self.clock.busy();
        self.blocked_turns.blocker(run).await
    }

    async fn write_chunks(&self, session: SessionId, writes: Vec<StreamWrite>) -> Answers<StreamWritten> {
        let _busy = self.clock.busy();
        check_writes(&writes)?;
        let answers =
            write::streams::write_chunks(&self.stream_database, &self.time, session, &writes).await?;
        let mut written: Vec<RunId> = writes
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| answer.is_ok())
            .map(|(write, _)| write.run)
            .collect();
        written.dedup();
        self.subscribers.publish_written(&written);
        Ok(answers)
    }

    async fn chunks(
        &self,
        run: RunId,
        stream: &str,
        from: i64,
        limit: usize,
    ) -> Result<StreamPage, WorldError> {
        let _busy = self.clock.busy();
        streams::chunks(&self.database, run, stream, from, limit).await
    }

    async fn streams(&self, run: RunId) -> Result<Vec<StreamView>, WorldError> {
        let _busy = self.clock.busy();
        streams::streams(&self.database, run).await
    }

    async fn published(&self, run: RunId) -> Result<StateView, WorldError> {
        let _busy = self.clock.busy();
        streams::published(&self.database, run).await
    }

    fn watch(&self, run: RunId) -> RunWatch {
        self.subscribers.watchers.watch(run)
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        let changed = self.subscribers.change_signal.changed_since(epoch);
        match event_or_time(changed, self.clock.sleep_until(until)).await {
            Ok(busy) | Err(busy) => busy,
        }
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        let _busy = self.clock.busy();
        tokens::prune_tokens(&self.database, &self.time).await?;
        prune::prune(&self.database, before, after, limit).await
    }

    async fn delete_turns(&self, run: RunId, range: Range<u64>, kept: &[u64]) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        prune::delete_turns(&self.database, run, range, kept).await
    }

    async fn quarantine(&self, run: RunId, change: QuarantineChange) -> Result<Marks, WorldError> {
        let _busy = self.clock.busy();
        prune::quarantine(&self.database, run, change).await
    }

    async fn delete(&self, run: RunId) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        prune::delete(&self.database, run).await
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn describe(&self) -> Description {
        let hints = match &self.listener {
            _ if self.time.is_virtual() => "none, since the clock is virtual",
            Some(_) => "immediately, by NOTIFY, and by a slow poll in case one is lost",
            None => "sent immediately, by NOTIFY; received by polling, since there is no listener connection",
        };
        let mut description = Description::new("postgres", self.database.place.to_string());
        description.durability =
            "as durable as the server: with `fsync` and `synchronous_commit` on, data survives its crash and \
             the loss of power"
                .into();
        description.hints = hints.into();
        description.commit_concurrency = COMMIT_CONCURRENCY;
        description
    }
}
