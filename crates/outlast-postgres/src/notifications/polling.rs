//! Polling for changes, for a world that has no listener connection.

use std::time::Duration;

use super::run_ends::deliver_ends;
use super::subscribers::Subscribers;
use crate::connection::connector::pause;
use crate::connection::database::Database;

/// How often the world polls for ready runs and for ends of awaited runs. A claim takes two statements, and a beat
/// occasionally two more: together they stay below two statements per second.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Polls until the I/O runtime ends.
pub(crate) async fn poll(database: Database, subscribers: Subscribers) {
    loop {
        pause(&database.handle, POLL_INTERVAL / 2).await;
        subscribers.wake_local_workers(None);
        pause(&database.handle, POLL_INTERVAL / 2).await;
        deliver_ends(&database, &subscribers, None).await;
    }
}
