//! Transactional steps: their code, and how an attempt at one is executed in a transaction of the world.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use std::any::Any;
#[cfg(feature = "sqlite")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use outlast_core::{Codec, Failure, FailureKind, Payload, Transacted, World, WorldError, innermost};
use parking_lot::Mutex;

use crate::authoring::attempt::AttemptInfo;
use crate::authoring::registry::{decode_input, encode_output, prepare_attempt};
use crate::authoring::step::StepCode;
use crate::clock::pause_before_retry;
use crate::error::{Error, StepError};
#[cfg(feature = "sqlite")]
use crate::replay::polling::{self, Scope};
#[cfg(feature = "sqlite")]
use crate::worker::panicked;
use crate::worker::transaction;
use crate::worker::transaction::{AttemptTransaction, BACKOFF};

/// The database in whose transactions a step is attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionKind {
    /// The step takes `&SqliteTx<'_>`.
    Sqlite,
    /// The step takes `&mut PgTx<'_>`.
    Postgres,
}

impl TransactionKind {
    /// The database, and what the URL of its world begins with.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Sqlite => ("an SQLite file", "sqlite:"),
            Self::Postgres => ("Postgres", "postgres:"),
        }
    }

    /// Whether the world has such transactions.
    fn is_of(self, world: &dyn World) -> bool {
        match self {
            Self::Sqlite => sqlite_world(world).is_some(),
            Self::Postgres => postgres_world(world).is_some(),
        }
    }

    /// The error of a worker with this step on a world without such transactions.
    pub(crate) fn check(self, step: &str, world: &dyn World) -> Result<(), Error> {
        if self.is_of(world) {
            return Ok(());
        }
        let (database, scheme) = self.names();
        let kind = world.describe().kind;
        let test = match self {
            Self::Sqlite => "call `.on_sqlite()` of the test world or `.mock(…)` the step",
            Self::Postgres => "`.mock(…)` the step",
        };
        Err(Error::invalid(format!(
            "step `{step}` is transactional on {database}, but the world of the worker is `{kind}:`; open it with a \
             `{scheme}` URL; in a test, {test}"
        )))
    }
}

#[cfg(feature = "sqlite")]
fn sqlite_world(world: &dyn World) -> Option<&outlast_sqlite::SqliteWorld> {
    let any: &dyn Any = innermost(world);
    any.downcast_ref()
}

#[cfg(not(feature = "sqlite"))]
fn sqlite_world(world: &dyn World) -> Option<&std::convert::Infallible> {
    let _ = innermost(world);
    None
}

#[cfg(feature = "postgres")]
fn postgres_world(world: &dyn World) -> Option<&outlast_postgres::PostgresWorld> {
    let any: &dyn Any = innermost(world);
    any.downcast_ref()
}

#[cfg(not(feature = "postgres"))]
fn postgres_world(world: &dyn World) -> Option<&std::convert::Infallible> {
    let _ = innermost(world);
    None
}

/// How many attempts at transactional steps a worker of this world makes at the same time, by default.
/// On SQLite steps that wait share a transaction; on Postgres each needs a connection.
pub(crate) fn attempts_default(world: &dyn World) -> usize {
    #[cfg(feature = "postgres")]
    if let Some(postgres) = postgres_world(world) {
        return postgres.transactions_max();
    }
    let _ = world;
    outlast_core::limits::BLOCKING_ATTEMPTS_DEFAULT
}

/// The code of one attempt, and where its result is put.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "no world needs it")
)]
struct TransactionCode<D: StepCode<S>, S> {
    state: Arc<S>,
    info: Arc<AttemptInfo>,
    input: Payload,
    codec: Arc<dyn Codec>,
    transaction: Arc<AttemptTransaction>,
    result: Arc<Mutex<Option<Result<Payload, StepError>>>>,
    step: std::marker::PhantomData<fn() -> D>,
}

#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "no world needs it")
)]
impl<D: StepCode<S>, S: Send + Sync + 'static> TransactionCode<D, S> {
    /// The attempt with its arguments.
    fn attempt(&self) -> Result<crate::Attempt<D>, StepError> {
        let (cx, input) = prepare_attempt::<D, S>(&self.state, &self.info, self.input.clone(), &*self.codec)?;
        Ok(D::attempt(cx, input))
    }

    /// Stores the result. Returns the events to record, or `None` if the transaction is to be rolled back.
    fn finish(&self, result: Result<D::Output, StepError>) -> Option<Vec<outlast_core::Event>> {
        let result = result.and_then(|output| encode_output(&output, &*self.codec));
        let events = result.as_ref().ok().map(|output| self.transaction.begin_commit(output));
        *self.result.lock() = Some(match &events {
            Some(None) => Err(given_up()),
            _ => result,
        });
        events.flatten()
    }
}

#[cfg(feature = "sqlite")]
impl<D: StepCode<S>, S: Send + Sync + 'static> TransactionCode<D, S> {
    fn into_sqlite_work(self) -> outlast_sqlite::StepWork {
        // Log lines of the code belong to the span of the attempt.
        let span = tracing::Span::current();
        Box::new(move |tx| {
            let scope = Some(Scope::Attempt(self.info.clone()));
            let run = || self.attempt().and_then(|attempt| attempt.with_sqlite(tx));
            let run = AssertUnwindSafe(|| polling::within(scope, run));
            let result = span.in_scope(|| catch_unwind(run)).unwrap_or_else(|panic| Err(panicked(&*panic)));
            self.finish(result)
        })
    }
}

#[cfg(feature = "postgres")]
impl<D: StepCode<S>, S: Send + Sync + 'static> TransactionCode<D, S> {
    fn into_postgres_work(self) -> outlast_postgres::PgStepWork {
        Box::new(move |tx| {
            Box::pin(async move {
                let result = match self.attempt() {
                    Ok(attempt) => attempt.with_postgres(tx).await,
                    Err(error) => Err(error),
                };
                self.finish(result)
            })
        })
    }
}

/// Executes an attempt at a transactional step. Its outcome is recorded in its transaction; a failed attempt is rolled
/// back.
pub(crate) async fn attempt_in_transaction<D: StepCode<S>, S: Send + Sync + 'static>(
    state: Arc<S>,
    info: Arc<AttemptInfo>,
    input: Payload,
    codec: Arc<dyn Codec>,
) -> Result<Payload, StepError> {
    let Some(transaction) = info.transaction.clone() else {
        return Err(StepError::fatal("a transactional step is attempted by workers only"));
    };
    // Before the transaction begins, because an input that does not fit makes the run stuck.
    drop(decode_input::<D::Input>(input.clone(), &*codec, D::NAME)?);
    let stop_reason = || info.stop_reason();
    let mut backoff = BACKOFF;
    loop {
        let result = Arc::new(Mutex::new(None));
        let code = TransactionCode::<D, S> {
            state: state.clone(),
            info: info.clone(),
            input: input.clone(),
            codec: codec.clone(),
            transaction: transaction.clone(),
            result: result.clone(),
            step: std::marker::PhantomData,
        };
        let ended = transact(code).await;
        let result = result.lock().take().unwrap_or_else(|| Err(given_up()));
        match ended {
            Transacted::Committed { position, at } => {
                let output = result?;
                transaction.set_recorded(position, at, &output);
                return Ok(output);
            }
            Transacted::RolledBack => return result.and(Err(given_up())),
            Transacted::Refused(error) => return Err(transaction::refused(&error)),
            Transacted::AlreadyRecorded => {
                let found = transaction.find(stop_reason).await?;
                return found
                    .ok_or_else(|| StepError::msg("an earlier attempt with this number was rolled back"));
            }
            Transacted::Unknown(error) => return transaction.decide(stop_reason, &error).await,
            // The attempt has not begun: an outage must not use up the attempts.
            Transacted::NotBegun(error) if error.is_transient() && stop_reason().is_none() => {
                tracing::debug!(run = %transaction.slot.run, %error, "the transaction of a step cannot begin yet");
                pause_before_retry(&mut backoff).await;
            }
            Transacted::NotBegun(error) => return Err(transaction::refused(&error)),
        }
    }
}

async fn transact<D: StepCode<S>, S: Send + Sync + 'static>(code: TransactionCode<D, S>) -> Transacted {
    let transaction = code.transaction.clone();
    let (world, slot) = (&*transaction.world, transaction.slot);
    #[cfg(not(any(feature = "sqlite", feature = "postgres")))]
    let _ = (world, slot, code);
    match D::TRANSACTION {
        #[cfg(feature = "sqlite")]
        Some(TransactionKind::Sqlite) => {
            if let Some(world) = sqlite_world(world) {
                return world.transact(slot, code.into_sqlite_work()).await;
            }
        }
        #[cfg(feature = "postgres")]
        Some(TransactionKind::Postgres) => {
            if let Some(world) = postgres_world(world) {
                return world.transact(slot, code.into_postgres_work()).await;
            }
        }
        _ => {}
    }
    // A worker checks its world when it starts.
    Transacted::Refused(WorldError::invalid("the world has no transactions for steps"))
}

/// The error of an attempt that was given up before its outcome was recorded.
fn given_up() -> StepError {
    let message = "the attempt was given up, and its transaction rolled back";
    StepError::of_failure(Failure::new(FailureKind::Cancelled, message))
}
