//! Starts and sends inside a transaction of the caller.

use outlast_core::{NewMessage, Sent, Start, Started, World, WorldError};

/// A transaction of the caller in the database of a world: a start or a send in it takes effect if and only if the
/// transaction commits, together with the caller's own changes.
///
/// It is implemented for the transactions of the worlds' drivers; see
/// [`StartCall::within`](crate::StartCall::within). Each call refuses with `Invalid` when the transaction is in
/// another database than the world, and changes nothing when it refuses. It is not retried after a failure, because its
/// effect depends on the transaction.
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

/// Begin it with [`Immediate`](outlast_sqlite::rusqlite::TransactionBehavior::Immediate): SQLite refuses a transaction
/// that reads before it writes if there was another write in between. Workers wait while the transaction is open.
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
