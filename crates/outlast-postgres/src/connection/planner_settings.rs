//! The planner settings of the world's statements on a connection of somebody else's pool.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use tokio_postgres::Client;

/// Sets what [`PLANNER_SETTINGS`](super::connector::PLANNER_SETTINGS) sets on the world's own connections.
const SET: &str = "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; \
    SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_sort = off";

/// Restores the settings of the server, the database and the role.
const RESET: &str = "RESET plan_cache_mode; RESET jit; RESET enable_seqscan; RESET enable_bitmapscan; \
    RESET enable_hashjoin; RESET enable_mergejoin; RESET enable_sort";

/// A guard: the settings apply until it is dropped. They are sent together with the statement, and need no round trip
/// of their own.
#[derive(Debug)]
pub(crate) struct PlannerSettings<'a>(&'a Client);

impl<'a> PlannerSettings<'a> {
    /// Sets them for the statements that are sent after this call.
    pub(crate) fn begin(client: &'a Client) -> Self {
        send(client, SET);
        Self(client)
    }
}

impl Drop for PlannerSettings<'_> {
    fn drop(&mut self) {
        send(self.0, RESET);
    }
}

/// Sends a statement without waiting for its answer. It can only fail together with the connection.
fn send(client: &Client, sql: &str) {
    // The statement is sent when the future is polled for the first time.
    let sent = pin!(client.batch_execute(sql));
    let _ = sent.poll(&mut Context::from_waker(Waker::noop()));
}
