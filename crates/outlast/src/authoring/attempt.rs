//! Attempts from the step's point of view: the future of its code, and the signals that it receives.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll};

use outlast_core::{
    AttemptId, Headers, OpNumber, Payload, PayloadError, RunId, SessionId, Tags, Timestamp, WorldError,
};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinHandle;

use crate::authoring::attempt_services::{AttemptReports, AttemptServices};
use crate::authoring::step::StepDefinition;
use crate::error::StepError;
use crate::replay::polling;
use crate::worker::stream_writer::{AttemptBuffer, ChunkWrite, WritingAttempt};
use crate::worker::transaction::AttemptTransaction;

/// One attempt at a step: the future that the function of a step returns.
///
/// Awaiting it runs the step's code, so a unit test can call a step as a plain function. The code of a blocking step
/// runs on the blocking pool of the tokio runtime in which the attempt is awaited.
///
/// A workflow must not await an attempt: it requests the step with `ctx.step(mail, n)` instead of calling `mail(n)`. If
/// a workflow awaits an attempt, the step's code does not run, and the run becomes stuck with a message that says so.
#[must_use = "an attempt does nothing unless it is awaited"]
pub struct Attempt<D: StepDefinition> {
    work: AttemptWork<Result<D::Output, StepError>>,
}

enum AttemptWork<R> {
    Async(Pin<Box<dyn Future<Output = R> + Send>>),
    Blocking(Box<dyn FnOnce() -> R + Send>),
    /// The blocking code runs on a thread of the blocking pool.
    OnThread(JoinHandle<R>),
    /// The code needs a transaction on SQLite.
    #[cfg(feature = "sqlite")]
    InSqlite(SqliteCode<R>),
    /// The code needs a transaction on Postgres.
    #[cfg(feature = "postgres")]
    InPostgres(PostgresCode<R>),
    Ended,
}

/// The code of a transactional step on SQLite.
#[cfg(feature = "sqlite")]
type SqliteCode<R> = Box<dyn FnOnce(&outlast_sqlite::SqliteTx<'_>) -> R + Send>;

/// The code of a transactional step on Postgres.
#[cfg(feature = "postgres")]
type PostgresCode<R> = Box<
    dyn for<'a, 't> FnOnce(&'a mut outlast_postgres::PgTx<'t>) -> Pin<Box<dyn Future<Output = R> + Send + 'a>>
        + Send,
>;

#[cfg(feature = "sqlite")]
impl<D: StepDefinition> Attempt<D> {
    /// Creates an attempt from code that needs a transaction on SQLite.
    pub fn in_sqlite(
        code: impl FnOnce(&outlast_sqlite::SqliteTx<'_>) -> Result<D::Output, StepError> + Send + 'static,
    ) -> Self {
        Self { work: AttemptWork::InSqlite(Box::new(code)) }
    }

    /// Runs the code of a transactional step in a transaction, for a unit test of the step.
    ///
    /// ```
    /// use outlast::prelude::*;
    /// use outlast::sqlite::rusqlite::Connection;
    ///
    /// #[step(transactional)]
    /// fn deposit(tx: &SqliteTx<'_>, cents: u32) -> Result<u32, StepError> {
    ///     Ok(tx.query_row("UPDATE account SET cents = cents + ?1 RETURNING cents", [cents], |row| row.get(0))?)
    /// }
    ///
    /// # fn main() -> Result<(), StepError> {
    /// let connection = Connection::open_in_memory()?;
    /// connection.execute_batch("CREATE TABLE account (cents); INSERT INTO account VALUES (5)")?;
    /// let balance = deposit(7).with_sqlite(&SqliteTx::test(&connection))?;
    /// assert_eq!(balance, 12);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the step; a fatal one if it is not a transactional step on SQLite.
    pub fn with_sqlite(self, tx: &outlast_sqlite::SqliteTx<'_>) -> Result<D::Output, StepError> {
        match self.work {
            AttemptWork::InSqlite(code) => code(tx),
            _ => Err(StepError::fatal(format!("step `{}` takes no transaction on SQLite", D::NAME))),
        }
    }
}

#[cfg(feature = "postgres")]
impl<D: StepDefinition> Attempt<D> {
    /// Creates an attempt from code that needs a transaction on Postgres.
    pub fn in_postgres(
        code: impl for<'a, 't> FnOnce(
            &'a mut outlast_postgres::PgTx<'t>,
        )
            -> Pin<Box<dyn Future<Output = Result<D::Output, StepError>> + Send + 'a>>
        + Send
        + 'static,
    ) -> Self {
        Self { work: AttemptWork::InPostgres(Box::new(code)) }
    }

    /// Runs the code of a transactional step in a transaction, for a unit test of the step:
    /// `debit(transfer).with_postgres(&mut PgTx::test(transaction)).await`.
    ///
    /// # Errors
    ///
    /// The error of the step; a fatal one if it is not a transactional step on Postgres.
    pub async fn with_postgres(self, tx: &mut outlast_postgres::PgTx<'_>) -> Result<D::Output, StepError> {
        match self.work {
            AttemptWork::InPostgres(code) => code(tx).await,
            _ => Err(StepError::fatal(format!("step `{}` takes no transaction on Postgres", D::NAME))),
        }
    }
}

impl<D: StepDefinition> Attempt<D> {
    /// Creates an attempt from the future of a step's code.
    pub fn new(future: impl Future<Output = Result<D::Output, StepError>> + Send + 'static) -> Self {
        Self { work: AttemptWork::Async(Box::pin(future)) }
    }

    /// Creates an attempt from code that blocks its thread.
    pub fn blocking(work: impl FnOnce() -> Result<D::Output, StepError> + Send + 'static) -> Self {
        Self { work: AttemptWork::Blocking(Box::new(work)) }
    }

    /// Lets blocking code keep the permits of the attempt until its thread is free: it cannot be stopped, and may run
    /// longer than the attempt.
    pub(crate) fn holding_permits(self, info: &AttemptInfo) -> Self {
        match self.work {
            AttemptWork::Blocking(work) => {
                let permits = std::mem::take(&mut *info.permits.lock());
                Self::blocking(move || {
                    let _permits = permits;
                    work()
                })
            }
            work => Self { work },
        }
    }
}

impl<D: StepDefinition> Future for Attempt<D> {
    type Output = Result<D::Output, StepError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if polling::is_direct_call(D::NAME) {
            return Poll::Pending;
        }
        if let AttemptWork::Blocking(_) = &self.work
            && let AttemptWork::Blocking(work) = std::mem::replace(&mut self.work, AttemptWork::Ended)
        {
            // Log lines of the blocking code belong to the span of the attempt.
            let span = tracing::Span::current();
            let scope = polling::scope();
            let work = move || span.in_scope(|| polling::within(scope, work));
            self.work = AttemptWork::OnThread(tokio::task::spawn_blocking(work));
        }
        match &mut self.work {
            AttemptWork::Async(future) => future.as_mut().poll(cx),
            AttemptWork::OnThread(thread) => Pin::new(thread).poll(cx).map(|ended| match ended {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(StepError::msg("the runtime stopped before the attempt began")),
                },
            }),
            AttemptWork::Blocking(_) | AttemptWork::Ended => Poll::Pending,
            #[cfg(feature = "sqlite")]
            AttemptWork::InSqlite(_) => Poll::Ready(Err(without_transaction(D::NAME, "with_sqlite(&tx)"))),
            #[cfg(feature = "postgres")]
            AttemptWork::InPostgres(_) => {
                Poll::Ready(Err(without_transaction(D::NAME, "with_postgres(&mut tx)")))
            }
        }
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn without_transaction(step: &str, remedy: &str) -> StepError {
    StepError::fatal(format!(
        "step `{step}` is transactional, and was awaited without a transaction; in a unit test, write `.{remedy}`"
    ))
}

impl<D: StepDefinition> fmt::Debug for Attempt<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attempt({})", D::NAME)
    }
}

/// The reason why an attempt is asked to stop; see [`StepContext::stop_reason`](crate::StepContext::stop_reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The run was cancelled, its deadline has passed, or the workflow [cancelled](crate::StepOperation::cancel) the
    /// step. The result of the attempt is still the outcome of the step.
    Cancelled,
    /// The workflow no longer waits for the step: it dropped the operation, for example as the loser of a race, or the
    /// run has ended.
    Dropped,
    /// The worker releases the run, because it stops or has lost its session. Another attempt will be made.
    Released,
    /// The attempt has failed, for example by its timeout. Tasks or threads that it left behind may see this.
    Failed,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cancelled => "the run or the step was cancelled",
            Self::Dropped => "the workflow does not await the step any more",
            Self::Released => "the worker releases the run",
            Self::Failed => "the attempt has failed",
        })
    }
}

/// The information about an attempt in the step's context, and the channel between the attempt and its worker.
#[derive(Debug)]
pub(crate) struct AttemptInfo {
    pub(crate) run: RunId,
    pub(crate) op: OpNumber,
    pub(crate) id: AttemptId,
    /// The step's name; empty in a unit test of the step.
    pub(crate) step: Arc<str>,
    /// The headers of the run.
    pub(crate) headers: Arc<Headers>,
    /// The workflow of the run that requested the step; empty in a unit test of the step.
    pub(crate) workflow: Arc<str>,
    /// The tags of that run.
    pub(crate) tags: Tags,
    /// What it shares with all attempts of the session.
    pub(crate) services: Arc<AttemptServices>,
    pub(crate) attempt: u32,
    /// Whether it is certain that no other attempt was made before.
    pub(crate) is_first: bool,
    /// Whether a lost worker may have made this attempt.
    pub(crate) is_maybe_attempted: bool,
    /// Whether the step is attempted at most once.
    pub(crate) is_at_most_once: bool,
    /// The permits of the limits on concurrent attempts.
    pub(crate) permits: Mutex<Vec<OwnedSemaphorePermit>>,
    /// The held run and its operation, to which heartbeats and streams belong. For a queued step these differ from the
    /// run and operation that requested it.
    pub(crate) held_operation: (RunId, OpNumber),
    /// The heartbeat details of an earlier attempt, encoded.
    pub(crate) earlier_details: Option<Payload>,
    /// What it has written to streams and the world has not accepted; empty if it has written nothing.
    pub(crate) stream_buffer: OnceLock<Arc<AttemptBuffer>>,
    /// The transaction that records the outcome, if the step is transactional.
    pub(crate) transaction: Option<Arc<AttemptTransaction>>,
    pub(crate) signals: AttemptSignals,
}

/// The attempt has not begun.
const WAITING: u8 = 0;
/// The step's code runs, or has run.
const BEGUN: u8 = 1;
/// The step was ended before its code ran, so the code never runs.
const PREVENTED: u8 = 2;

/// The requests to a running attempt, and its last heartbeat.
#[derive(Debug, Default)]
pub(crate) struct AttemptSignals {
    /// Whether the attempt has begun, or was prevented: [`WAITING`], [`BEGUN`] or [`PREVENTED`].
    stage: AtomicU8,
    stop_reason: OnceLock<StopReason>,
    /// Whether a warning about invalid heartbeat details was logged.
    has_warned: AtomicBool,
    stopped: Notify,
    heartbeat: Mutex<Option<Heartbeat>>,
    /// Whether the workflow does not await the step any more: its heartbeat details are not stored.
    is_dropped: AtomicBool,
}

impl AttemptSignals {
    /// Changes the stage if the attempt was waiting. Returns whether it was.
    fn leave_waiting(&self, stage: u8) -> bool {
        self.stage.compare_exchange(WAITING, stage, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The last heartbeat of an attempt.
#[derive(Debug)]
struct Heartbeat {
    at: Timestamp,
    details: Option<Payload>,
}

impl AttemptInfo {
    /// The first attempt in a unit test, without a worker.
    pub(crate) fn unwatched() -> Self {
        Self {
            run: RunId::from_bits(0),
            op: OpNumber(0),
            id: AttemptId::new(SessionId::from_bits(0), 0),
            step: "".into(),
            headers: Arc::default(),
            workflow: "".into(),
            tags: Tags::new(),
            services: Arc::new(AttemptServices::of_unit_test()),
            attempt: 1,
            is_first: true,
            is_maybe_attempted: false,
            is_at_most_once: false,
            permits: Mutex::default(),
            held_operation: (RunId::from_bits(0), OpNumber(0)),
            earlier_details: None,
            stream_buffer: OnceLock::new(),
            transaction: None,
            signals: AttemptSignals::default(),
        }
    }

    /// Asks the attempt to stop. The first reason is kept.
    pub(crate) fn stop(&self, reason: StopReason) {
        // Store the reason before waking listeners, so that a woken listener can read it.
        let _ = self.signals.stop_reason.set(reason);
        self.signals.stopped.notify_waiters();
    }

    /// Asks the attempt to stop, because the workflow does not await the step any more. Heartbeat details are not
    /// stored from now on.
    pub(crate) fn drop_step(&self) {
        self.signals.is_dropped.store(true, Ordering::Release);
        self.give_up_transaction();
        self.stop(StopReason::Dropped);
    }

    /// Gives the transaction of the attempt up, if there is one: it is rolled back. Returns false if the outcome is
    /// being recorded.
    pub(crate) fn give_up_transaction(&self) -> bool {
        self.transaction.as_ref().is_none_or(|transaction| transaction.give_up())
    }

    /// Writes a chunk to a stream of the held run. In a unit test of the step it is discarded.
    pub(crate) async fn write_chunk(&self, write: ChunkWrite) -> Result<(), WorldError> {
        let Some(reports) = &self.services.reports else { return Ok(()) };
        let buffer = self.stream_buffer.get_or_init(Arc::default);
        reports.stream_writer.write(self.writing_attempt(), buffer, write).await
    }

    /// Writes a chunk without waiting. Returns false if the attempt's buffer has no room, or the attempt cannot write.
    #[cfg(feature = "attempt-log")]
    pub(crate) fn write_chunk_now(&self, write: ChunkWrite) -> bool {
        let Some(reports) = &self.services.reports else { return false };
        let buffer = self.stream_buffer.get_or_init(Arc::default);
        reports.stream_writer.write_now(self.writing_attempt(), buffer, write)
    }

    fn writing_attempt(&self) -> WritingAttempt {
        let (run, op) = self.held_operation;
        WritingAttempt { run, op, id: self.id }
    }

    /// Waits until the world has accepted everything that the attempt has written to streams. From now on it cannot
    /// write. Returns whether it has written to a stream.
    pub(crate) async fn finish_streams(&self) -> bool {
        let Some(buffer) = self.stream_buffer.get() else { return false };
        // Boxed because most attempts write nothing, and it would enlarge the state of every attempt.
        Box::pin(buffer.finish()).await;
        true
    }

    /// Discards chunks that were not sent, because nobody awaits the attempt any more. From now on it cannot write.
    pub(crate) fn abandon_streams(&self) {
        if self.services.reports.is_some() {
            self.stream_buffer.get_or_init(Arc::default).abandon();
        }
    }

    /// Begins the attempt. Returns false if it was prevented.
    pub(crate) fn begin(&self) -> bool {
        self.signals.leave_waiting(BEGUN)
    }

    /// Prevents the attempt from beginning. Returns false if it has begun.
    pub(crate) fn prevent(&self) -> bool {
        let is_prevented = self.signals.leave_waiting(PREVENTED);
        if is_prevented {
            self.stop(StopReason::Cancelled);
        }
        is_prevented
    }

    /// Why the attempt was asked to stop, if it was.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        self.signals.stop_reason.get().copied()
    }

    /// Completes when the attempt is asked to stop.
    pub(crate) async fn stopped(&self) {
        // Register before reading the reason, so that no notification is missed.
        let stopped = self.signals.stopped.notified();
        if self.stop_reason().is_none() {
            stopped.await;
        }
    }

    /// Records a heartbeat with details.
    pub(crate) fn beat(&self, details: impl Serialize) {
        let details = match Payload::json(&details) {
            Ok(details) => Some(details),
            Err(error) => {
                self.warn_of_details(&error);
                None
            }
        };
        let at = self.services.clock.now();
        if let (Some(reports), Some(details)) = (&self.services.reports, &details)
            && !self.signals.is_dropped.load(Ordering::Acquire)
        {
            // Encoded here, by the step's own code, and not by the thread that renews the session: a codec may be slow.
            if let Some(encoded) = self.encode_guarded(details.clone()) {
                let (run, op) = self.held_operation;
                reports.heartbeats.put(run, op, self.attempt, encoded);
            }
        }
        let mut heartbeat = self.signals.heartbeat.lock();
        // A heartbeat with invalid details still counts, and keeps the details of the one before it.
        let details = details.or_else(|| heartbeat.take().and_then(|last| last.details));
        *heartbeat = Some(Heartbeat { at, details });
    }

    /// Encodes details. They are optional: a codec that fails or panics must not fail the attempt.
    fn encode_guarded(&self, plain: Payload) -> Option<Payload> {
        catch_unwind(AssertUnwindSafe(|| self.services.codec.encode(plain))).ok()?.ok()
    }

    /// Logs once per attempt that the details of a heartbeat are invalid.
    fn warn_of_details(&self, error: &PayloadError) {
        if !self.signals.has_warned.swap(true, Ordering::Relaxed) {
            let Self { run, step, attempt, .. } = self;
            tracing::warn!(%run, %step, attempt, "the details of a heartbeat are omitted: {error}");
        }
    }

    /// The time of the last heartbeat.
    pub(crate) fn last_heartbeat_at(&self) -> Option<Timestamp> {
        self.signals.heartbeat.lock().as_ref().map(|heartbeat| heartbeat.at)
    }

    /// Takes the details of the last heartbeat, encoded.
    pub(crate) fn take_details(&self) -> Option<Payload> {
        let details =
            self.signals.heartbeat.lock().as_mut().and_then(|heartbeat| heartbeat.details.take())?;
        self.services.codec.encode(details).ok()
    }

    /// The details of an earlier attempt's last heartbeat, if they can be decoded as `T`.
    pub(crate) fn details_before<T: DeserializeOwned>(&self) -> Option<T> {
        let plain = self.services.codec.decode(self.earlier_details.clone()?).ok()?;
        plain.decode().ok()
    }
}

impl Drop for AttemptInfo {
    fn drop(&mut self) {
        let (run, op) = self.held_operation;
        if let Some(AttemptReports { heartbeats, .. }) = &self.services.reports
            && self.signals.heartbeat.get_mut().is_some()
        {
            if *self.signals.is_dropped.get_mut() {
                heartbeats.delete(run, op);
            } else {
                heartbeats.discard_unsent(run, op);
            }
        }
    }
}
