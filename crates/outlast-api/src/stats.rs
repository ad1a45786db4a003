//! What happened in the last hours, in responses.

use std::time::Duration;

use outlast_core::IntoDuration;
use outlast_core::duration::duration_text;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;

/// The numbers of runs over time, as a server has seen them since it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatsJson {
    /// Since when the server collects them, at most 24 hours ago; absent if it has not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub since: Option<Rfc3339>,
    /// The length of a bucket in seconds.
    pub bucket_seconds: u64,
    /// The buckets that have a value, the oldest first.
    pub items: Vec<StatsPointJson>,
}

/// One bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatsPointJson {
    /// When the bucket begins.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub at: Rfc3339,
    /// How many runs were open at its end.
    pub open: u64,
    /// How many runs were stuck at its end.
    pub stuck: u64,
    /// How many more runs had completed at its end than at its beginning. Runs that were deleted meanwhile are missing.
    pub completed: u64,
    /// The same for runs that failed.
    pub failed: u64,
    /// The same for runs that were cancelled.
    pub cancelled: u64,
}

/// Which buckets are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsQuery {
    /// How far back, at most 24 hours.
    pub window: Duration,
    /// The length of a bucket, at least a minute.
    pub bucket: Duration,
}

impl StatsQuery {
    /// The longest window.
    pub const WINDOW_MAX: Duration = Duration::from_secs(24 * 3_600);

    /// The shortest bucket.
    pub const BUCKET_MIN: Duration = Duration::from_secs(60);
}

impl Default for StatsQuery {
    fn default() -> Self {
        Self { window: Duration::from_secs(3_600), bucket: Self::BUCKET_MIN }
    }
}

impl QueryPairs for StatsQuery {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        let mut time = |name: &'static str, default: Duration| {
            let text = reader.text(name)?;
            let time = text.map(|text| text.as_str().into_duration()).transpose();
            let time = time.map_err(|error| Problem::field(format!("?{name}"), error.to_string()))?;
            Ok::<_, Problem>(time.unwrap_or(default))
        };
        let default = Self::default();
        let (window, bucket) = (time("window", default.window)?, time("bucket", default.bucket)?);
        if window > Self::WINDOW_MAX || window.is_zero() {
            return Err(Problem::field("?window", "it is at most 24h, and not 0"));
        }
        if bucket < Self::BUCKET_MIN || bucket > window {
            return Err(Problem::field("?bucket", "it is at least 1m, and not longer than the window"));
        }
        Ok(Self { window, bucket })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("window", Some(duration_text(self.window)));
        writer.set("bucket", Some(duration_text(self.bucket)));
    }
}
