//! A connection of somebody else's pool, with the settings of ours while a statement of ours runs.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use tokio_postgres::Client;

/// What the statements of a world need, as [`PLANS`](crate::connect::PLANS) says.
const SET: &str = "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; \
    SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_sort = off";

/// Everything as it was.
const RESET: &str = "RESET plan_cache_mode; RESET jit; RESET enable_seqscan; RESET enable_bitmapscan; \
    RESET enable_hashjoin; RESET enable_mergejoin; RESET enable_sort";

/// The settings, until this is dropped. They travel with the statement, and cost no way of their own.
#[derive(Debug)]
pub(crate) struct Tuned<'a>(&'a Client);

impl<'a> Tuned<'a> {
    /// Sets them: what is sent behind finds them.
    pub(crate) fn begin(client: &'a Client) -> Self {
        send(client, SET);
        Self(client)
    }
}

impl Drop for Tuned<'_> {
    fn drop(&mut self) {
        send(self.0, RESET);
    }
}

/// Sends a statement whose answer nobody needs: when it is lost, so is the connection.
fn send(client: &Client, sql: &str) {
    // It is on its way when it has been polled once.
    let sent = pin!(client.batch_execute(sql));
    let _ = sent.poll(&mut Context::from_waker(Waker::noop()));
}
