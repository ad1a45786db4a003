//! Starts and sends inside a transaction of the caller's own.

use outlast_core::{NewMessage, Sent, Start, Started, World, WorldError};

/// A transaction of the caller's own in the database where a world lives: a start or a send in it happens
/// when, and only when, the transaction commits, together with the caller's own rows.
///
/// It is implemented for the transactions of the worlds' drivers; see
/// [`StartCall::within`](crate::StartCall::within). Each call refuses with `Invalid` when the transaction is in
/// another database than the world, and changes nothing when it refuses. It is not repeated after a failure:
/// what becomes of it is what becomes of the transaction.
pub trait Within {
    /// Starts a run; see [`World::start`].
    fn start(&mut self, world: &dyn World, start: Start)
    -> impl Future<Output = Result<Started, WorldError>>;

    /// Appends a message to an inbox; see [`World::send`].
    fn send(
        &mut self,
        world: &dyn World,
        message: NewMessage,
    ) -> impl Future<Output = Result<Sent, WorldError>>;
}

/// Begin it with [`Immediate`](outlast_sqlite::rusqlite::TransactionBehavior::Immediate): one that reads before it writes is
/// refused by SQLite when someone else has written meanwhile. Workers wait as long as it is open.
#[cfg(feature = "sqlite")]
impl Within for outlast_sqlite::rusqlite::Transaction<'_> {
    fn start(
        &mut self,
        world: &dyn World,
        start: Start,
    ) -> impl Future<Output = Result<Started, WorldError>> {
        std::future::ready(outlast_sqlite::start_within(self, world, start))
    }

    fn send(
        &mut self,
        world: &dyn World,
        message: NewMessage,
    ) -> impl Future<Output = Result<Sent, WorldError>> {
        std::future::ready(outlast_sqlite::send_within(self, world, message))
    }
}

#[cfg(feature = "postgres")]
impl Within for outlast_postgres::tokio_postgres::Transaction<'_> {
    async fn start(&mut self, world: &dyn World, start: Start) -> Result<Started, WorldError> {
        outlast_postgres::start_within(self, world, start).await
    }

    async fn send(&mut self, world: &dyn World, message: NewMessage) -> Result<Sent, WorldError> {
        outlast_postgres::send_within(self, world, message).await
    }
}

#[cfg(feature = "postgres")]
impl Within for outlast_postgres::deadpool_postgres::Transaction<'_> {
    async fn start(&mut self, world: &dyn World, start: Start) -> Result<Started, WorldError> {
        outlast_postgres::start_within(self, world, start).await
    }

    async fn send(&mut self, world: &dyn World, message: NewMessage) -> Result<Sent, WorldError> {
        outlast_postgres::send_within(self, world, message).await
    }
}
