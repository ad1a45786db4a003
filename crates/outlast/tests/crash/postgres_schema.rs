//! Schemas on the Postgres server for tests, one per trial.

use std::sync::Arc;
use std::time::Duration;

use outlast::core::event::{FORMAT, RULES};
use outlast::core::queue::default_queues;
use outlast::core::{Join, SessionId};
use throwaway::wait_until;
use tokio_postgres::{Client, NoTls};

use crate::mixed_program::sleep;
use crate::snapshot::block_on;

const HOUR: i64 = 3_600_000_000;

/// A new schema. Dropped with this value, unless the test fails.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) url: String,
    name: String,
}

impl Schema {
    /// Creates a schema whose clock is ahead by this many hours.
    pub(crate) fn make(hours_ahead: i64) -> Self {
        let name = throwaway::postgres::new_schema_name("crash");
        let url = throwaway::postgres::schema_url(throwaway::postgres::for_tests(), &name);
        // The application name identifies the connections.
        let url = format!("{url}&pool=4&application_name={name}");
        block_on(async { outlast::open(&url).await.map(drop) });
        let set = format!("UPDATE {name}.settings SET clock_offset = {}", hours_ahead * HOUR);
        with_client(&url, async |client| client.batch_execute(&set).await.unwrap());
        Self { url, name }
    }

    /// Ends the sessions of killed processes. The last process may have ended before they could be taken over; then
    /// they held no open runs.
    pub(crate) fn end_dead_sessions(&self) {
        let session = SessionId::from_bits(1);
        let (code, queues, time) = (Arc::new([]), default_queues(), Duration::from_secs(60));
        let (host, build, rules, format) = ("here".into(), "takeover".into(), RULES, FORMAT);
        let join = Join { session, host, pid: 1, build, code, queues, time, rules, format };
        block_on(async {
            let world = outlast::open(&self.url).await?;
            world.join(join).await?;
            while world.workers().await?.len() > 1 {
                assert_eq!(world.takeover(session).await?, 0, "all runs have ended");
                sleep("20ms").await;
            }
            Ok(world.leave(session).await?)
        });
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let sql = format!("DROP SCHEMA {} CASCADE", self.name);
            with_client(&self.url, async |client| client.batch_execute(&sql).await.unwrap());
        }
    }
}

/// Waits until the schema of this URL has no connections: the server has then executed all calls of killed processes.
pub(crate) fn wait_until_disconnected(url: &str) {
    let name = url.rsplit('=').next().unwrap();
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    with_client(url, async |client| {
        wait_until("the connections of killed processes to end", || {
            let count = async { client.query_one(count, &[&name]).await.unwrap().get::<_, i64>(0) };
            let count = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(count));
            (count == 0).then_some(())
        });
    });
}

/// Calls `work` with a new connection to the server.
pub(crate) fn with_client(url: &str, work: impl AsyncFnOnce(&Client)) {
    let server = url.split('?').next().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(server, NoTls).await.unwrap();
        tokio::spawn(connection);
        work(&client).await;
    });
}
