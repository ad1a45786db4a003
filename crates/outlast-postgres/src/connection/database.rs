//! [`Database`]: executes statements on a pool of connections, with timeouts and retries.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Pool, PoolError};
use outlast_core::{Backoff, RunId, WorldError};
use tokio::runtime::Handle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use crate::connection::connector::pause_before_retry;
use crate::connection::io_runtime::with_timeout;
use crate::connection::planner_settings::PlannerSettings;
use crate::connection::preflight::PoolOwner;
use crate::error::{
    closed_error, is_cancelled, is_caused_by_turn, is_conflict, is_lock_timeout, is_missing_object,
    is_out_of_space, is_permanent, is_statement_specific, may_be_caused_by_turn, postgres_error,
};
use crate::schema::statements::Statements;

/// How often a statement is repeated after a conflict with other transactions.
const TRIES_MAX: usize = 20;

/// The pauses after conflicts: the other transactions may repeat their statements as well.
const CONFLICT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(100));

/// How much later than the server this process gives up a statement: an error of the server says more, and leaves the
/// connection usable.
const CLIENT_TIMEOUT_MARGIN: Duration = Duration::from_secs(2);

/// The tables without which a world cannot work.
const TABLES: [&str; 7] = ["runs", "turns", "inbox", "tags", "sessions", "counts", "settings"];

/// The value of one parameter of a statement.
pub(crate) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// The values of all parameters of a statement.
pub(crate) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A pool of connections, and the statements of one schema.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) pool: Pool,
    pub(crate) owner: PoolOwner,
    pub(crate) sql: Arc<Statements>,
    /// Host, database and schema, for error messages; without the password.
    pub(crate) place: Arc<str>,
    /// The runtime that drives the connections.
    pub(crate) handle: Handle,
    /// How long one statement may take.
    pub(crate) timeout: Duration,
}

impl Database {
    /// Executes a statement, and repeats it after conflicts with other transactions.
    pub(crate) async fn call(&self, sql: &str, values: Parameters<'_>) -> Result<Vec<Row>, WorldError> {
        self.try_call(sql, values).await.map_err(|failure| self.world_error(&failure))
    }

    /// As [`call`](Self::call), with the cause of a failure.
    pub(crate) async fn try_call(&self, sql: &str, values: Parameters<'_>) -> Result<Vec<Row>, CallError> {
        self.try_times(sql, values, TRIES_MAX).await
    }

    /// As [`try_call`](Self::try_call), with at most `tries_max` repetitions.
    pub(crate) async fn try_times(
        &self,
        sql: &str,
        values: Parameters<'_>,
        tries_max: usize,
    ) -> Result<Vec<Row>, CallError> {
        let mut backoff = CONFLICT_BACKOFF;
        loop {
            match self.call_once(sql, values).await {
                Err(CallError::Postgres(error))
                    if is_conflict(&error) && (backoff.pauses() as usize) < tries_max =>
                {
                    pause_before_retry(&self.handle, &mut backoff).await;
                }
                answer => return answer,
            }
        }
    }

    async fn call_once(&self, sql: &str, values: Parameters<'_>) -> Result<Vec<Row>, CallError> {
        let answer = self
            .with_connection(async |connection: &Object| {
                let statement = connection.prepare_cached(sql).await?;
                connection.query(&statement, values).await
            })
            .await;
        match answer {
            // A trigger of a user may also name something that does not exist.
            Err(CallError::Postgres(error))
                if is_missing_object(&error) && Box::pin(self.has_lost_tables()).await =>
            {
                Err(CallError::TablesLost)
            }
            answer => answer,
        }
    }

    /// Whether a table of the world does not exist any more. If this cannot be read, it counts as existing.
    async fn has_lost_tables(&self) -> bool {
        let names: Vec<String> = TABLES.iter().map(|table| format!("{}.{table}", self.sql.schema)).collect();
        let sql = "SELECT bool_or(to_regclass(name) IS NULL) FROM unnest($1::text[]) AS name";
        let read = self
            .with_connection(async |connection: &Object| connection.query_one(sql, &[&names]).await)
            .await;
        read.is_ok_and(|row| row.get(0))
    }

    /// Uses a connection. The connection is dropped if it is lost or does not respond in time.
    pub(crate) async fn with_connection<T>(
        &self,
        work: impl AsyncFnOnce(&Object) -> Result<T, Error>,
    ) -> Result<T, CallError> {
        let Some(got) = with_timeout(&self.handle, self.timeout, self.pool.get()).await else {
            return Err(CallError::NoConnection);
        };
        let connection = got.map_err(CallError::of_pool)?;
        let planner_settings = (self.owner == PoolOwner::Other).then(|| PlannerSettings::begin(&connection));
        let answer =
            with_timeout(&self.handle, self.timeout + CLIENT_TIMEOUT_MARGIN, work(&connection)).await;
        drop(planner_settings);
        let Some(answer) = answer else {
            // The answer may still arrive, and must not be taken for the answer to another statement.
            drop(Object::take(connection));
            return Err(CallError::Timeout);
        };
        if matches!(&answer, Err(error) if is_lost(error)) {
            // The pool may not have noticed yet, and would hand it out again.
            drop(Object::take(connection));
        }
        answer.map_err(CallError::Postgres)
    }

    /// The error for a turn that the database rejects permanently.
    pub(crate) fn turn_rejection(&self, run: RunId, failure: &CallError) -> WorldError {
        let why = match failure {
            CallError::Postgres(error) => error.as_db_error().map_or_else(
                || std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string),
                |refused| format!("{} ({})", refused.message(), refused.code().code()),
            ),
            failure => self.world_error(failure).to_string(),
        };
        WorldError::invalid(format!(
            "Postgres at `{}` rejects the turn of run {run}: {why}; fix the cause, then resume the run",
            self.place
        ))
    }

    /// The error of the world for a failed call.
    pub(crate) fn world_error(&self, failure: &CallError) -> WorldError {
        let place = &self.place;
        match failure {
            CallError::Postgres(error) => postgres_error(error, place),
            CallError::NoConnection => {
                let remedy = match self.owner {
                    PoolOwner::World => "raise `pool` in the URL",
                    PoolOwner::Other => "make the pool larger",
                };
                WorldError::unavailable(format!(
                    "no connection to Postgres at `{place}` became free within {:?}; {remedy}, or check what \
                     keeps the server busy",
                    self.timeout
                ))
            }
            CallError::Timeout => WorldError::unavailable(format!(
                "Postgres at `{place}` has not responded for {:?}; check the network and the server",
                self.timeout
            )),
            CallError::TablesLost => WorldError::gone(format!(
                "the tables of the world at `{place}` do not exist any more: its schema {}, or tables in it, were \
                 dropped while the world was open; stop all workers and clients, restore a backup, and start them \
                 again",
                self.sql.schema
            )),
            CallError::Corrupt(error) => error.clone(),
            CallError::Closed => closed_error(),
        }
    }
}

/// Whether the connection is lost.
fn is_lost(error: &Error) -> bool {
    error.is_closed() || std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// An error of the server or of the connection.
    Postgres(Error),
    /// No connection of the pool became free in time.
    NoConnection,
    /// The server did not respond in time.
    Timeout,
    /// The world is closed.
    Closed,
    /// The schema was dropped, or tables in it.
    TablesLost,
    /// The answer has a row that is invalid.
    Corrupt(WorldError),
}

impl CallError {
    /// Whether the cause lies in the statement's values, so that a part of them may be accepted.
    pub(crate) fn is_statement_specific(&self) -> bool {
        matches!(self, Self::Postgres(error) if is_statement_specific(error))
    }

    /// Whether the cause lies in one of the statement's turns, so that the others may be accepted.
    pub(crate) fn is_caused_by_turn(&self) -> bool {
        matches!(self, Self::Postgres(error) if is_caused_by_turn(error))
    }

    /// Whether the cause may lie in one of the statement's turns, provided that other commits work.
    pub(crate) fn may_be_caused_by_turn(&self) -> bool {
        match self {
            Self::Postgres(error) => may_be_caused_by_turn(error),
            Self::Timeout => true,
            _ => false,
        }
    }

    /// Whether the statement took too long. If it is repeated, it may take as long again.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Self::Postgres(error) => is_cancelled(error),
            Self::Timeout => true,
            _ => false,
        }
    }

    /// Whether the server had no space for the statement's data.
    pub(crate) fn is_out_of_space(&self) -> bool {
        matches!(self, Self::Postgres(error) if is_out_of_space(error))
    }

    /// Whether the statement conflicted with other transactions, and can be repeated.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Postgres(error) if is_conflict(error))
    }

    /// Whether the same statement would fail every time.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self, Self::Postgres(error) if is_permanent(error))
    }

    /// Whether another transaction held a lock for longer than the statement waits.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Postgres(error) if is_lock_timeout(error))
    }

    pub(crate) fn of_pool(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::Postgres(error),
            PoolError::Timeout(_) => Self::NoConnection,
            _ => Self::Closed,
        }
    }
}
