//! How a world is opened.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::Clock;

use crate::sql::INTERFACE;

/// How a [`PostgresWorld`](crate::PostgresWorld) is opened. What the URL says counts more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// A clock that a test moves; the database's clock if `None` or not virtual.
    pub clock: Option<Arc<dyn Clock>>,
    /// The schema with all tables and functions.
    pub schema: String,
    /// How many connections there are at the most, besides the one that listens and the one that beats.
    pub pool: usize,
    /// What happens when the schema is missing or old.
    pub migrate: Migrate,
    /// How long one statement may take.
    pub timeout: Duration,
    /// The URL of the connection that listens, for a world on an existing pool. Without one, what other
    /// processes do is noticed by polling alone.
    pub listen: Option<String>,
    /// The set of functions that the world calls; another one than this build's in tests of upgrades.
    pub(crate) interface: u32,
}

impl PostgresOptions {
    /// The usual options.
    pub fn new() -> Self {
        Self {
            clock: None,
            schema: "outlast".into(),
            pool: 8,
            migrate: Migrate::Auto,
            timeout: Duration::from_secs(30),
            listen: None,
            interface: INTERFACE,
        }
    }

    /// These options, on a clock that a test moves.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// These options, in another schema.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// These options, with a URL for the connection that listens.
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

/// What happens when the schema is missing or old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Migrate {
    /// It is brought up to date.
    #[default]
    Auto,
    /// The world is not opened; someone calls [`migrate`](crate::migrate()).
    Off,
}
