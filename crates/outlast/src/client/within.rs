//! Starts and sends inside the caller's own transaction.

use outlast_core::{NewMessage, Sent, Start, Started, World, WorldError};

/// The caller's own transaction on the world's database. A start or a send in it takes effect if and only if the
/// transaction commits, together with the caller's own rows.
///
/// The trait is implemented for the transactions of the worlds' drivers; see
/// [`StartCall::within`](crate::StartCall::within). A call fails with `Invalid` if the transaction is on another
/// database than the world. A call that is refused changes nothing. A failed call is not repeated, because the
/// transaction decides about its effect.
pub trait Within {
    /// Starts a run; see [`World::start`].
    fn start(&mut self, world: &dyn World, start: Start)
    -> impl Future<Output = Result<Started, WorldError>>;

    /// Adds a message to an inbox; see [`World::send`].
    fn send(
        &mut self,
        world: &dyn World,
        message: NewMessage,
    ) -> impl Future<Output = Result<Sent, WorldError>>;
}

/// Begin the transaction with [`Immediate`](outlast_sqlite::rusqlite::TransactionBehavior::Immediate): SQLite refuses a
/// transaction that reads before it writes if another connection has written in between. Workers wait while it is open.
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
