//! Transactions of steps, on connections of their own.
//!
//! **Problem.** The code of a transactional step changes tables of the user in the same database. Its effect and the
//! record of its outcome must be one transaction. The code may take long, or its client may stop at any point: no lock
//! of the engine's may be held meanwhile.
//!
//! **Protocol.** The statements of the step come first. Then one last message to the server records the outcome
//! (`208_record_outcome.sql`, which takes the fence) and commits. The server executes both or neither without waiting
//! for the client in between.
//!
//! **A lost answer** to the last message means that nobody knows whether it was executed, or still will be: the answer is
//! [`Transacted::Unknown`]. The caller decides it with the id of the outcome: a run accepts an id once, so a message with
//! the same id, sent by the caller, either finds the outcome or prevents it for ever.
//!
//! **A step that ends the transaction itself** would commit its effect without its outcome. The setting
//! `outlast.attempt` is local to the transaction, so the last message fails if the transaction is not the same any more.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, StatementCache};
use futures_util::FutureExt;
use outlast_core::format::format_of_events;
use outlast_core::refusal::{outcome_fenced, transaction_ended_by_step};
use outlast_core::{Event, OutcomeSlot, SessionId, Timestamp, Transacted, WorldError};
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::{Client, Error, SimpleQueryMessage, Statement, Transaction};

use crate::clock::TimeSource;
use crate::connection::connector::Connector;
use crate::connection::database::{CallError, Database};
use crate::connection::io_runtime::with_timeout;
use crate::connection::preflight::PoolOwner;
use crate::connection::session_connections::SessionConnections;
use crate::error::postgres_error;

/// How much later than the server this process gives up a statement.
const CLIENT_TIMEOUT_MARGIN: Duration = Duration::from_secs(2);

/// The transaction of a transactional step on Postgres.
///
/// It has the methods of [`tokio_postgres::Transaction`], such as `execute` and `query_one`, and
/// [`prepare_cached`](Self::prepare_cached). The engine commits it after the step has returned; an error rolls it back.
/// [`savepoint`](Self::savepoint) makes a part that can be rolled back alone.
///
/// [`PgTx::test`] makes one for unit tests.
pub struct PgTx<'a> {
    transaction: Transaction<'a>,
    /// The statements that are prepared on the connection; none in a unit test.
    statements: Option<Arc<StatementCache>>,
}

impl<'a> PgTx<'a> {
    /// The transaction for a unit test of a step, which the test commits or rolls back.
    pub fn test(transaction: Transaction<'a>) -> Self {
        Self { transaction, statements: None }
    }

    /// Returns the transaction of a unit test.
    pub fn into_inner(self) -> Transaction<'a> {
        self.transaction
    }

    /// Prepares a statement, once for all steps on this connection.
    ///
    /// # Errors
    ///
    /// Those of [`Transaction::prepare`].
    pub async fn prepare_cached(&self, query: &str) -> Result<Statement, Error> {
        match &self.statements {
            Some(statements) => statements.prepare(self.transaction.client(), query).await,
            None => self.transaction.prepare(query).await,
        }
    }

    /// Begins a savepoint. What was done since is undone if the result is dropped, and kept if it is committed.
    ///
    /// # Errors
    ///
    /// Those of [`Transaction::transaction`].
    pub async fn savepoint(&mut self) -> Result<Transaction<'_>, Error> {
        self.transaction.transaction().await
    }
}

impl<'a> Deref for PgTx<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.transaction
    }
}

impl fmt::Debug for PgTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgTx").finish_non_exhaustive()
    }
}

/// The future of a step's code: the events to record, or `None` to roll back.
pub type PgStepFuture<'a> = Pin<Box<dyn Future<Output = Option<Vec<Event>>> + Send + 'a>>;

/// The code of one attempt.
pub type PgStepWork = Box<dyn for<'a, 't> FnOnce(&'a mut PgTx<'t>) -> PgStepFuture<'a> + Send>;

/// The connections for transactional steps.
#[derive(Debug)]
pub(crate) struct StepConnections {
    /// Those that the runtimes of workers drive.
    sessions: SessionConnections,
    /// Those of other callers.
    pub(crate) shared: Database,
}

impl StepConnections {
    /// At most `size` connections, of each session and of all other callers. `connector` makes them; without it they are
    /// those of the pool. `own` makes connections that the callers' runtimes drive.
    pub(crate) fn new(
        connector: &Option<Connector>,
        own: &Option<Connector>,
        database: &Database,
        size: usize,
    ) -> Result<Self, WorldError> {
        let mut shared = database.clone();
        if let Some(connector) = connector {
            (shared.pool, shared.owner) = (connector.for_steps().pool(size)?, PoolOwner::World);
        }
        let sessions = SessionConnections::new(own.as_ref().map(Connector::for_steps), size);
        Ok(Self { sessions, shared })
    }

    /// Executes an attempt in a transaction, and records its outcome.
    pub(crate) async fn transact(
        &self,
        time: &TimeSource,
        slot: OutcomeSlot,
        work: PgStepWork,
    ) -> Transacted {
        match self.sessions.database(slot.session, &self.shared).await {
            Ok(database) => transact(&database, time, slot, work).await,
            Err(error) => Transacted::NotBegun(error),
        }
    }

    /// The number of transactions that can be open at the same time.
    pub(crate) fn max(&self) -> usize {
        self.shared.pool.status().max_size
    }

    /// Closes the connections of a session that has ended.
    pub(crate) fn forget(&self, session: SessionId) {
        self.sessions.forget(session);
    }

    /// Closes the connections of all sessions.
    pub(crate) fn close(&self) {
        self.sessions.close();
    }
}

async fn transact(database: &Database, time: &TimeSource, slot: OutcomeSlot, work: PgStepWork) -> Transacted {
    let mut connection = match database.pool.get().await {
        Ok(connection) => connection,
        Err(error) => return Transacted::NotBegun(database.world_error(&CallError::of_pool(error))),
    };
    let ended = transact_on(&mut connection, database, time, slot, work).await;
    if matches!(ended, Transacted::Unknown(_) | Transacted::NotBegun(_)) || connection.is_closed() {
        // An answer may still arrive, and must not be taken for the answer to another statement.
        drop(Object::take(connection));
    }
    ended
}

/// Executes an attempt in a transaction on this connection, and records its outcome in the same transaction.
async fn transact_on(
    connection: &mut Object,
    database: &Database,
    time: &TimeSource,
    slot: OutcomeSlot,
    work: PgStepWork,
) -> Transacted {
    let statements = connection.statement_cache.clone();
    // The client of the driver itself: a transaction of the pool owns more, and could not be forgotten after the commit.
    let client: &mut Client = connection;
    let begin = with_timeout(&database.handle, answer_timeout(database), client.build_transaction().start());
    let transaction = match begin.await {
        Some(Ok(transaction)) => transaction,
        Some(Err(error)) => return Transacted::NotBegun(postgres_error(&error, &database.place)),
        None => return Transacted::NotBegun(database.world_error(&CallError::Timeout)),
    };
    // Sent and not awaited: if it fails, the last message fails.
    let _ = Box::pin(transaction.batch_execute(&local_settings(database, slot))).now_or_never();
    let mut tx = PgTx { transaction, statements: Some(statements) };
    let events = work(&mut tx).await;
    let transaction = tx.transaction;
    match events {
        Some(events) => commit(transaction, database, time, slot, &events).await,
        None => {
            // Dropping it would roll back as well, but the connection must not be used before that.
            let _ = with_timeout(&database.handle, answer_timeout(database), transaction.rollback()).await;
            Transacted::RolledBack
        }
    }
}

/// How long the client waits for an answer.
fn answer_timeout(database: &Database) -> Duration {
    database.timeout + CLIENT_TIMEOUT_MARGIN
}

/// The settings of one transaction. Those of connections that the world makes contain the timeouts.
fn local_settings(database: &Database, slot: OutcomeSlot) -> String {
    let mut settings = format!("SET LOCAL outlast.attempt = '{}'", slot.message);
    if database.owner == PoolOwner::Other {
        let timeout = database.timeout.as_millis();
        settings.push_str(&format!(
            "; SET LOCAL statement_timeout = {timeout}; SET LOCAL idle_in_transaction_session_timeout = {timeout}"
        ));
    }
    settings
}

/// The last message of the transaction: records the outcome and commits.
async fn commit(
    transaction: Transaction<'_>,
    database: &Database,
    time: &TimeSource,
    slot: OutcomeSlot,
    events: &[Event],
) -> Transacted {
    let sql = last_message(database, time, slot, events);
    let answer =
        with_timeout(&database.handle, answer_timeout(database), transaction.simple_query(&sql)).await;
    let ended = match answer {
        Some(Ok(rows)) => match read_answer(&rows) {
            Some((position, at)) => {
                time.observe(at);
                Transacted::Committed { position, at }
            }
            None => Transacted::Unknown(WorldError::corrupt(format!(
                "Postgres at `{}` returned no row for an outcome",
                database.place
            ))),
        },
        Some(Err(error)) => ended_by_error(&error, database, slot),
        None => Transacted::Unknown(database.world_error(&CallError::Timeout)),
    };
    if matches!(ended, Transacted::Committed { .. }) {
        // The server has ended the transaction. Dropping the handle would send a ROLLBACK, about which the server would
        // log a warning. It owns nothing else.
        std::mem::forget(transaction);
    }
    ended
}

fn last_message(database: &Database, time: &TimeSource, slot: OutcomeSlot, events: &[Event]) -> String {
    let at = time.statement_time().map_or_else(|| "NULL".to_owned(), |at| at.to_string());
    let mut body = String::new();
    Event::write_all(events, &mut body);
    let OutcomeSlot { session, run, message } = slot;
    format!(
        "{}('{session}', {at}, '{run}', '{message}', {}, {}, '{message}'); COMMIT",
        database.sql.record_outcome.trim_end(),
        format_of_events(events),
        literal(&body)
    )
}

/// A text as a literal. The JSON of events contains no NUL.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// The position and the time of the outcome.
fn read_answer(messages: &[SimpleQueryMessage]) -> Option<(u64, Timestamp)> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((row.get(0)?.parse().ok()?, Timestamp::from_micros(row.get(1)?.parse().ok()?)))
        }
        _ => None,
    })
}

/// How the transaction ended if the last message has an error as its answer. An error of the server means that it was
/// rolled back, unless it also ends the connection: then it may have happened after the commit.
fn ended_by_error(error: &Error, database: &Database, slot: OutcomeSlot) -> Transacted {
    let place = &database.place;
    let Some(db_error) = error.as_db_error() else {
        return Transacted::Unknown(postgres_error(error, place));
    };
    if db_error.parsed_severity() != Some(Severity::Error) {
        return Transacted::Unknown(postgres_error(error, place));
    }
    if *db_error.code() == SqlState::UNIQUE_VIOLATION && db_error.constraint() == Some("inbox_id") {
        return Transacted::AlreadyRecorded;
    }
    Transacted::Refused(match db_error.code().code() {
        "OL002" => outcome_fenced(slot.run),
        "OL003" => transaction_ended_by_step(slot.run),
        "25P02" => WorldError::invalid(format!(
            "a statement of the step of run {} failed, so Postgres has rolled its transaction back; return the error of \
             the statement, or execute it in a savepoint",
            slot.run
        )),
        _ => postgres_error(error, place),
    })
}

#[cfg(test)]
mod tests {
    use super::literal;

    #[test]
    fn a_literal_contains_quotes_and_backslashes_as_they_are() {
        assert_eq!(literal(r#"[{"a":"it's \u0000 \\ here"}]"#), r#"E'[{"a":"it''s \\u0000 \\\\ here"}]'"#);
    }
}
