//! Transactions of steps, on a connection of their own.
//!
//! **Problem.** The code of a transactional step changes tables of the user in the same file. Its effect and the record
//! of its outcome must be one transaction. SQLite has one writer at a time, and each commit waits for the disk.
//!
//! **Protocol.** A thread with its own connection takes the steps that wait, and executes them one after the other in
//! one transaction, each in a savepoint: first the code of the step, then the fence (the session is joined and holds the
//! run), then the message with the outcome. A step that fails, or whose outcome is refused, is rolled back to its
//! savepoint. After the COMMIT all of them are answered. Between the code of two steps everything before is consistent,
//! so it does not matter how many steps share a transaction. For other writers the thread is like another process: it
//! takes turns with them by the fair lock, and its transactions are short.
//!
//! **Failures.** SQLite rolls a whole transaction back after some errors, such as a full disk or an interrupted
//! statement. Then each step of the transaction is executed again, in a transaction of its own, so that only the one
//! that causes the error gets it. If a COMMIT fails, the answer is [`Transacted::Unknown`].
//!
//! **The code of the step** runs while the thread holds the write lock of the file, and workers wait for it. Statements
//! that run for longer than the lock timeout are interrupted, and `BEGIN`, `COMMIT` and `ROLLBACK` are refused.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outlast_core::refusal::{outcome_fenced, session_gone, transaction_ended_by_step};
use outlast_core::{Clock, Event, OutcomeSlot, SessionId, Transacted, WorldError};
use parking_lot::Mutex;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, Error, OptionalExtension};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use crate::connection::error::{Refusal, from_sqlite, world_closed};
use crate::connection::fair_lock::FairLock;
use crate::connection::file::{ConnectionSettings, open_writer};
use crate::connection::opened_file::OpenedFile;
use crate::connection::thread::{OwnedThread, monotonic_now};
use crate::read::id_clock_skew::IdClockSkew;
use crate::schema::row::parsed_or_null;
use crate::schema::sql;
use crate::sessions::session_locks::SessionLocks;
use crate::write::lease_cache::LeaseCache;
use crate::write::message::EncodedMessage;
use crate::write::send::send;
use crate::write::tx::Tx;

/// The number of steps that may wait for the thread. Further attempts wait without blocking their threads.
const STEPS_WAITING_MAX: usize = 1_024;

/// The number of steps in one transaction, and the time after which it takes no further one: other writers wait for it.
const STEPS_PER_TRANSACTION_MAX: usize = 256;
const TRANSACTION_TIME: Duration = Duration::from_millis(10);

/// The number of instructions of SQLite's virtual machine between two checks of the time.
const INSTRUCTIONS_PER_CHECK: i32 = 10_000;

/// A savepoint per step. Its name is refused in the code of steps.
const SAVEPOINT: &str = "SAVEPOINT outlast_step";
const RELEASE_SAVEPOINT: &str = "RELEASE outlast_step";
const UNDO_TO_SAVEPOINT: &str = "ROLLBACK TO outlast_step; RELEASE outlast_step";

/// The transaction of a transactional step on SQLite: a connection to the file of the world on which a transaction is
/// open.
///
/// It has the methods of [`rusqlite::Connection`], such as `execute`, `query_row` and `prepare_cached`. The engine begins
/// and ends the transaction, so `BEGIN`, `COMMIT` and `ROLLBACK` are refused; savepoints are allowed. Foreign keys are
/// enforced.
///
/// [`SqliteTx::test`] makes one for unit tests.
pub struct SqliteTx<'a> {
    connection: &'a Connection,
}

impl<'a> SqliteTx<'a> {
    /// The transaction for a unit test of a step, on a connection of the test. It is the test that begins and ends a
    /// transaction on it, if it needs one.
    pub fn test(connection: &'a Connection) -> Self {
        Self { connection }
    }
}

impl Deref for SqliteTx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl fmt::Debug for SqliteTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTx").finish_non_exhaustive()
    }
}

/// The code of one attempt: it returns the events to record, or `None` to roll back. It may be called several times, and
/// what it did before is rolled back each time.
pub type StepWork = Box<dyn FnMut(&SqliteTx<'_>) -> Option<Vec<Event>> + Send>;

/// What the thread for the transactions of steps is made of. It is started when the first step needs it.
#[derive(Debug)]
pub(crate) struct StepTransactions {
    parts: ThreadParts,
    thread: Mutex<Option<RunningThread>>,
}

#[derive(Clone, Debug)]
struct ThreadParts {
    settings: ConnectionSettings,
    file: Arc<OpenedFile>,
    clock: Arc<dyn Clock>,
    locks: Arc<SessionLocks>,
    /// How long a step waits for the write lock, and how long its statements may run.
    lock_timeout: Duration,
}

#[derive(Debug)]
struct RunningThread {
    // Declared first, so that the channel is closed before the thread is joined.
    steps: Sender<WaitingStep>,
    _thread: OwnedThread,
}

/// An attempt that waits for its transaction.
struct WaitingStep {
    slot: OutcomeSlot,
    work: StepWork,
    reply: oneshot::Sender<Transacted>,
    queued_at: Instant,
}

impl StepTransactions {
    pub(crate) fn new(
        settings: &ConnectionSettings,
        file: &Arc<OpenedFile>,
        clock: &Arc<dyn Clock>,
        locks: &Arc<SessionLocks>,
        lock_timeout: Duration,
    ) -> Self {
        let (settings, file, clock, locks) = (settings.clone(), file.clone(), clock.clone(), locks.clone());
        Self { parts: ThreadParts { settings, file, clock, locks, lock_timeout }, thread: Mutex::default() }
    }

    /// Executes an attempt in a transaction, and records its outcome.
    pub(crate) async fn transact(&self, slot: OutcomeSlot, work: StepWork) -> Transacted {
        let _busy = self.parts.clock.busy();
        let steps = match self.steps() {
            Ok(steps) => steps,
            Err(error) => return Transacted::NotBegun(error),
        };
        let (reply, answer) = oneshot::channel();
        let step = WaitingStep { slot, work, reply, queued_at: monotonic_now() };
        if steps.send(step).await.is_err() {
            return Transacted::NotBegun(world_closed());
        }
        // Without an answer the thread has ended, perhaps after a commit.
        answer.await.unwrap_or_else(|_| Transacted::Unknown(world_closed()))
    }

    /// The queue of the thread, which is started if it is not running.
    fn steps(&self) -> Result<Sender<WaitingStep>, WorldError> {
        let mut thread = self.thread.lock();
        if let Some(running) = &*thread {
            return Ok(running.steps.clone());
        }
        let mut transactions = TransactionThread::open(self.parts.clone())?;
        let (steps, mut received) = channel(STEPS_WAITING_MAX);
        let handle = OwnedThread::spawn("outlast-steps", move || transactions.run(&mut received))?;
        *thread = Some(RunningThread { steps: steps.clone(), _thread: handle });
        Ok(steps)
    }
}

/// The thread that executes transactions of steps.
struct TransactionThread {
    parts: ThreadParts,
    connection: Connection,
    fair_lock: FairLock,
    guard: Arc<CodeGuard>,
}

/// How far a step of the current transaction is.
struct ExecutedStep {
    step: WaitingStep,
    ended: Transacted,
}

impl TransactionThread {
    fn open(parts: ThreadParts) -> Result<Self, WorldError> {
        let path = parts.file.path().to_owned();
        let mut connection = open_writer(&parts.settings)?;
        let to_world_error = |error: Error| from_sqlite(&error, &path);
        connection.pragma_update(None, "foreign_keys", true).map_err(to_world_error)?;
        let guard = Arc::new(CodeGuard::new());
        let (authorizer, timer) = (guard.clone(), guard.clone());
        connection
            .authorizer(Some(move |context: AuthContext<'_>| authorizer.judge(&context)))
            .map_err(to_world_error)?;
        connection
            .progress_handler(INSTRUCTIONS_PER_CHECK, Some(move || timer.is_late()))
            .map_err(to_world_error)?;
        // The connection may have opened another file than the writer.
        parts.file.check()?;
        let fair_lock = FairLock::for_database(&path);
        Ok(Self { parts, connection, fair_lock, guard })
    }

    /// Executes steps until the channel is closed.
    fn run(&mut self, received: &mut Receiver<WaitingStep>) {
        while let Some(first) = received.blocking_recv() {
            if !first.reply.is_closed() {
                self.transaction(first, || received.try_recv().ok());
            }
        }
    }

    /// Executes steps in one transaction: the first, and those that wait behind it.
    fn transaction(&mut self, first: WaitingStep, mut next: impl FnMut() -> Option<WaitingStep>) {
        let _busy = self.parts.clock.busy();
        if let Err(error) = self.begin(first.queued_at) {
            let _ = first.reply.send(Transacted::NotBegun(error));
            return;
        }
        let (began_at, mut done) = (monotonic_now(), Vec::new());
        let mut step = Some(first);
        while let Some(mut current) = step.take() {
            let ended = self.execute(&mut current);
            done.push(ExecutedStep { step: current, ended });
            if self.connection.is_autocommit() {
                // SQLite has rolled back everything.
                return self.execute_singly(done);
            }
            if done.len() < STEPS_PER_TRANSACTION_MAX && began_at.elapsed() < TRANSACTION_TIME {
                step = std::iter::from_fn(&mut next).find(|step| !step.reply.is_closed());
            }
        }
        match self.commit() {
            Ok(()) => match self.parts.file.check() {
                Ok(()) => answer(done),
                // The commit is in a file that is not at its path any more.
                Err(error) => fail_committed(done, &error),
            },
            Err(_) if done.len() > 1 => self.execute_singly(done),
            Err(error) => fail_committed(done, &from_sqlite(&error, self.parts.file.path())),
        }
    }

    /// Executes each step of a transaction that was rolled back in a transaction of its own. Steps that ended without an
    /// effect are not executed again.
    fn execute_singly(&mut self, steps: Vec<ExecutedStep>) {
        let is_single = steps.len() == 1;
        for ExecutedStep { step, ended } in steps {
            let is_committed = matches!(ended, Transacted::Committed { .. });
            if is_committed && !is_single {
                self.transaction(step, || None);
            } else {
                let ended = if is_committed { rolled_back_by_sqlite(&self.parts) } else { ended };
                let _ = step.reply.send(ended);
            }
        }
    }

    fn begin(&mut self, queued_at: Instant) -> Result<(), WorldError> {
        self.parts.file.check_stopped()?;
        let wait_max = self.parts.lock_timeout.saturating_sub(queued_at.elapsed());
        let connection = &self.connection;
        let begun = self.fair_lock.begin(wait_max, || connection.execute_batch("BEGIN IMMEDIATE"));
        begun.map_err(|error| self.fair_lock.not_begun_error(&error))
    }

    /// Commits, and rolls back if that fails.
    fn commit(&mut self) -> Result<(), Error> {
        let committed = self.connection.execute_batch("COMMIT");
        if committed.is_err() && !self.connection.is_autocommit() {
            // This fails only if SQLite has already rolled back by itself.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        committed
    }

    /// Executes one step in a savepoint, and records its outcome.
    fn execute(&mut self, step: &mut WaitingStep) -> Transacted {
        let path = self.parts.file.path();
        if let Err(error) = self.connection.execute_batch(SAVEPOINT) {
            return Transacted::Refused(from_sqlite(&error, path));
        }
        self.guard.begin(self.parts.lock_timeout);
        let events = (step.work)(&SqliteTx { connection: &self.connection });
        self.guard.end();
        let ended = match events {
            None => Ok(Transacted::RolledBack),
            Some(_) if self.connection.is_autocommit() => {
                Err(transaction_ended_by_step(step.slot.run).into())
            }
            Some(events) => self.record(step.slot, events),
        };
        let ended =
            ended.unwrap_or_else(|refusal: Refusal| Transacted::Refused(refusal.into_world_error(path)));
        let end =
            if matches!(ended, Transacted::Committed { .. }) { RELEASE_SAVEPOINT } else { UNDO_TO_SAVEPOINT };
        match self.connection.execute_batch(end) {
            Err(error) if end == RELEASE_SAVEPOINT => Transacted::Refused(from_sqlite(&error, path)),
            // If the savepoint cannot be undone, SQLite has rolled back everything.
            _ => ended,
        }
    }

    /// Records the outcome of a step, if its session still holds the run.
    fn record(&self, slot: OutcomeSlot, events: Vec<Event>) -> Result<Transacted, Refusal> {
        let message = EncodedMessage::encode(slot.message(events))?;
        let session = slot.session.to_string();
        if !self.connection.prepare_cached(sql::SESSION_FOREIGN_WRITES)?.exists([&session])? {
            return Err(session_gone(slot.session).into());
        }
        let mut owner = self.connection.prepare_cached(sql::RUN_OWNER)?;
        let owner = owner.query_row([&message.run], |row| parsed_or_null::<SessionId>(row, 0)).optional()?;
        if owner.flatten() != Some(slot.session) {
            return Err(outcome_fenced(slot.run).into());
        }
        if self.connection.prepare_cached(sql::INBOX_POSITION)?.exists([&message.run, &message.id])? {
            return Ok(Transacted::AlreadyRecorded);
        }
        // With empty caches: those of the writer thread do not contain what a message changes.
        let (mut lease_cache, mut id_skew) = (LeaseCache::default(), IdClockSkew::default());
        let at = self.parts.clock.now();
        let mut tx = Tx::new(&self.connection, at, &self.parts.locks, &mut lease_cache, &mut id_skew);
        let sent = send(&mut tx, &message)?;
        Ok(Transacted::Committed { position: sent.position, at })
    }
}

/// Answers the steps of a transaction that is committed.
fn answer(steps: Vec<ExecutedStep>) {
    for ExecutedStep { step, ended } in steps {
        // Sending fails if the attempt was given up.
        let _ = step.reply.send(ended);
    }
}

/// Answers the steps of a transaction whose COMMIT failed.
fn fail_committed(steps: Vec<ExecutedStep>, error: &WorldError) {
    for ExecutedStep { step, ended } in steps {
        let ended = match ended {
            Transacted::Committed { .. } => Transacted::Unknown(error.clone()),
            other => other,
        };
        let _ = step.reply.send(ended);
    }
}

fn rolled_back_by_sqlite(parts: &ThreadParts) -> Transacted {
    Transacted::Refused(WorldError::unavailable(format!(
        "SQLite has rolled back a transaction in `{}` by itself; check the disk",
        parts.file.path().display()
    )))
}

/// Guards the connection while the code of a step uses it.
struct CodeGuard {
    opened_at: Instant,
    /// Whether the code of a step is running.
    is_code: AtomicBool,
    /// When its statements are interrupted, in microseconds since `opened_at`.
    late_at: AtomicU64,
}

impl CodeGuard {
    fn new() -> Self {
        Self {
            opened_at: monotonic_now(),
            is_code: AtomicBool::new(false),
            late_at: AtomicU64::new(u64::MAX),
        }
    }

    fn begin(&self, limit: Duration) {
        self.late_at.store(micros(self.opened_at.elapsed() + limit), Ordering::Relaxed);
        self.is_code.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        self.is_code.store(false, Ordering::Relaxed);
        self.late_at.store(u64::MAX, Ordering::Relaxed);
    }

    fn is_late(&self) -> bool {
        self.is_code.load(Ordering::Relaxed)
            && micros(self.opened_at.elapsed()) > self.late_at.load(Ordering::Relaxed)
    }

    /// Refuses statements that would end the transaction, while the code of a step is running.
    fn judge(&self, context: &AuthContext<'_>) -> Authorization {
        let is_refused = match context.action {
            AuthAction::Transaction { .. } => true,
            AuthAction::Savepoint { savepoint_name, .. } => {
                savepoint_name.to_ascii_lowercase().starts_with("outlast")
            }
            _ => false,
        };
        if is_refused && self.is_code.load(Ordering::Relaxed) {
            Authorization::Deny
        } else {
            Authorization::Allow
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
