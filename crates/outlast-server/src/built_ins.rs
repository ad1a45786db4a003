//! The worker of a server, which executes bulk actions.

use outlast::{Client, Error, Worker};

/// Starts the worker that every server has: it serves only the queue of built-in workflows, such as bulk actions.
///
/// [`ServeExt::serve`](crate::ServeExt::serve) and the command `outlast serve` do it. An application that mounts the
/// [router](crate::router) itself should do it too; otherwise bulk actions wait until another server is started.
///
/// # Errors
///
/// If the world cannot be joined.
pub async fn start_built_ins(client: &Client) -> Result<Worker, Error> {
    client.worker_builder().only_built_ins().start().await
}
