//! What the tests share: a schema of their own on a real server, and a world in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

/// A schema of its own on the server that `OUTLAST_TEST_POSTGRES` names.
pub(crate) struct Place {
    pub(crate) schema: String,
    pub(crate) clock: TestClock,
}

impl Place {
    pub(crate) fn new(clock: TestClock) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { schema: format!("test_{}_{number}", std::process::id()), clock }
    }

    pub(crate) fn url(&self) -> String {
        let server = std::env::var("OUTLAST_TEST_POSTGRES").expect("OUTLAST_TEST_POSTGRES names a server");
        let joint = if server.contains('?') { '&' } else { '?' };
        format!("{server}{joint}schema={}&pool=4", self.schema)
    }

    pub(crate) async fn open(&self) -> PostgresWorld {
        let options = PostgresOptions::new().clock(Arc::new(self.clock.clone()));
        PostgresWorld::open(&self.url(), options).await.unwrap()
    }
}
