//! Statements on their way to Postgres and back.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Pool, PoolError};
use outlast_core::{RunId, WorldError};
use tokio::runtime::Handle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use crate::connect::pause;
use crate::error::{
    closed, is_about_data, is_about_space, is_cancelled, is_deadlock, is_locked, is_of_turn, is_overtaken,
    is_permanent, may_be_of_turn, of_postgres,
};
use crate::greet::Owner;
use crate::home::within;
use crate::sql::Sql;
use crate::tuned::Tuned;

/// How often a statement is tried again that others were in the way of.
const TRIES_MAX: usize = 20;

/// The pause after a deadlock, for each time that it happened: whoever waited in the circle may try the same again.
const DEADLOCK_PAUSE: Duration = Duration::from_millis(3);

/// How much later than the server a statement is given up here: its refusal says more, and leaves the
/// connection as it was.
const LATER: Duration = Duration::from_secs(2);

/// The values of a statement's parameters.
pub(crate) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Where statements go.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) pool: Pool,
    pub(crate) owner: Owner,
    pub(crate) sql: Arc<Sql>,
    /// Where it is, for a person.
    pub(crate) place: Arc<str>,
    pub(crate) handle: Handle,
    pub(crate) timeout: Duration,
}

impl Store {
    /// Runs a statement, again when others were in the way.
    pub(crate) async fn call(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, WorldError> {
        self.try_call(sql, values).await.map_err(|failed| self.world_error(&failed))
    }

    /// The same, for a caller that looks at what failed.
    pub(crate) async fn try_call(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Failed> {
        self.try_times(sql, values, TRIES_MAX).await
    }

    /// The same, again so many times at the most when others were in the way.
    pub(crate) async fn try_times(
        &self,
        sql: &str,
        values: Values<'_>,
        tries_max: usize,
    ) -> Result<Vec<Row>, Failed> {
        let mut tries = 0;
        loop {
            match self.once(sql, values).await {
                Err(Failed::Refused(error)) if is_overtaken(&error) && tries < tries_max => {
                    tries += 1;
                    if is_deadlock(&error) {
                        pause(&self.handle, DEADLOCK_PAUSE * tries as u32).await;
                    }
                }
                answer => return answer,
            }
        }
    }

    async fn once(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Failed> {
        self.with_connection(async |connection: &Object| {
            let statement = connection.prepare_cached(sql).await?;
            connection.query(&statement, values).await
        })
        .await
    }

    /// Does something with a connection, which is thrown away when that takes too long.
    pub(crate) async fn with_connection<T>(
        &self,
        work: impl AsyncFnOnce(&Object) -> Result<T, Error>,
    ) -> Result<T, Failed> {
        let Some(got) = within(&self.handle, self.timeout, self.pool.get()).await else {
            return Err(Failed::NoConnection);
        };
        let connection = got.map_err(Failed::of_pool)?;
        let tuned = (self.owner == Owner::Other).then(|| Tuned::begin(&connection));
        let answer = within(&self.handle, self.timeout + LATER, work(&connection)).await;
        drop(tuned);
        let Some(answer) = answer else {
            // The answer may still come: nobody else must get it.
            drop(Object::take(connection));
            return Err(Failed::TooLong);
        };
        if matches!(&answer, Err(error) if is_lost(error)) {
            // The pool may not have noticed yet, and would give it to the next call.
            drop(Object::take(connection));
        }
        answer.map_err(Failed::Refused)
    }

    /// Why a turn of a run is refused for good: the database does not take what it says.
    pub(crate) fn refusal(&self, run: RunId, failed: &Failed) -> WorldError {
        let why = match failed {
            Failed::Refused(error) => error.as_db_error().map_or_else(
                || std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string),
                |refused| format!("{} ({})", refused.message(), refused.code().code()),
            ),
            failed => self.world_error(failed).to_string(),
        };
        WorldError::Invalid(format!(
            "Postgres at `{}` refuses the turn of run {run}: {why}; mend that, then resume the run",
            self.place
        ))
    }

    /// What failed, as an error of the world.
    pub(crate) fn world_error(&self, failed: &Failed) -> WorldError {
        let place = &self.place;
        match failed {
            Failed::Refused(error) => of_postgres(error, place),
            Failed::NoConnection => {
                let remedy = match self.owner {
                    Owner::World => "raise `pool` in the URL",
                    Owner::Other => "make the pool larger",
                };
                WorldError::Unavailable(format!(
                    "no connection to Postgres at `{place}` became free within {:?}; {remedy}, or look what \
                     keeps the server busy",
                    self.timeout
                ))
            }
            Failed::TooLong => WorldError::Unavailable(format!(
                "Postgres at `{place}` has not answered for {:?}; look at the network and at the server",
                self.timeout
            )),
            Failed::Corrupt(error) => error.clone(),
            Failed::Closed => closed(),
        }
    }
}

/// Whether the connection is gone.
fn is_lost(error: &Error) -> bool {
    error.is_closed() || std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    Refused(Error),
    NoConnection,
    TooLong,
    Closed,
    Corrupt(WorldError),
}

impl Failed {
    /// Whether the statement was refused for what it says, so that a part of it may be accepted.
    pub(crate) fn is_about_data(&self) -> bool {
        matches!(self, Self::Refused(error) if is_about_data(error))
    }

    /// Whether a statement with turns was refused for one of them, so that the others may be accepted.
    pub(crate) fn is_of_turn(&self) -> bool {
        matches!(self, Self::Refused(error) if is_of_turn(error))
    }

    /// Whether a statement with turns may have been refused for one of them, if others work now.
    pub(crate) fn may_be_of_turn(&self) -> bool {
        match self {
            Self::Refused(error) => may_be_of_turn(error),
            Self::TooLong => true,
            _ => false,
        }
    }

    /// Whether the statement was given up because it took too long: the same may take as long again.
    pub(crate) fn is_slow(&self) -> bool {
        match self {
            Self::Refused(error) => is_cancelled(error),
            Self::TooLong => true,
            _ => false,
        }
    }

    /// Whether the server had no room for what the statement writes.
    pub(crate) fn is_about_space(&self) -> bool {
        matches!(self, Self::Refused(error) if is_about_space(error))
    }

    /// Whether others were in the way.
    pub(crate) fn is_overtaken(&self) -> bool {
        matches!(self, Self::Refused(error) if is_overtaken(error))
    }

    /// Whether the same statement is refused every time.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self, Self::Refused(error) if is_permanent(error))
    }

    /// Whether somebody else had locked what the statement changes for too long.
    pub(crate) fn is_locked(&self) -> bool {
        matches!(self, Self::Refused(error) if is_locked(error))
    }

    fn of_pool(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::Refused(error),
            PoolError::Timeout(_) => Self::NoConnection,
            _ => Self::Closed,
        }
    }
}
