//! The options with which a world is opened.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::Clock;

use crate::schema::statements::INTERFACE;

/// The options with which a [`PostgresWorld`](crate::PostgresWorld) is opened. Parameters of the URL override them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// A virtual clock, for tests. If it is `None` or not virtual, the database's clock is used.
    pub clock: Option<Arc<dyn Clock>>,
    /// The schema that contains all tables and functions.
    pub schema: String,
    /// The size of the pool. The world makes a few connections in addition: one that listens, one for beats, one for chunks, two
    /// for turns that wait for locks, and two for the commits of each worker on a multi-thread runtime.
    pub pool: usize,
    /// The number of connections for transactional steps, of this process. They are made when such steps are attempted.
    pub transactions: usize,
    /// Whether a missing or outdated schema is migrated.
    pub migrate: Migrate,
    /// How long one statement may take.
    pub timeout: Duration,
    /// The URL of the listener connection, for a world on an existing pool. Without it, changes by other processes are
    /// noticed only by polling.
    pub listen: Option<String>,
    /// The interface whose functions the world calls; tests of upgrades use another one than this build's.
    pub(crate) interface: u32,
}

impl PostgresOptions {
    /// The default options.
    pub fn new() -> Self {
        Self {
            clock: None,
            schema: "outlast".into(),
            pool: 8,
            transactions: 8,
            migrate: Migrate::Auto,
            timeout: Duration::from_secs(30),
            listen: None,
            interface: INTERFACE,
        }
    }

    /// These options with a virtual clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// These options with another schema.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// These options with a URL for the listener connection.
    #[must_use]
    pub fn listen(mut self, url: impl Into<String>) -> Self {
        self.listen = Some(url.into());
        self
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether opening a world migrates a schema that is missing or outdated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Migrate {
    /// The schema is created or migrated.
    #[default]
    Auto,
    /// Opening the world fails; an operator calls [`migrate`](crate::migrate()).
    Off,
}
