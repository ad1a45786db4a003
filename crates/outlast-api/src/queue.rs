//! Queues in responses.

use serde::{Deserialize, Serialize};

use crate::rfc3339::Rfc3339;
use crate::worker::WorkerJson;

/// The queues of a world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueListJson {
    /// Those with runs that are ready, due later or held, and those that joined workers serve; by name.
    pub items: Vec<QueueJson>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueJson {
    /// Its name.
    pub name: String,
    /// How many runs a worker can claim now; counted up to 10,000.
    pub ready: u64,
    /// When the one of them that has been ready for the longest became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub oldest_ready_at: Option<Rfc3339>,
    /// How many runs wait for a build that can continue them; counted up to 10,000.
    pub stuck: u64,
    /// How many runs workers hold.
    pub running: u64,
    /// How many joined workers serve the queue and claim runs. With 0, nobody serves it.
    pub workers: u64,
}

/// A queue, with those who serve it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueDetailJson {
    /// The queue.
    #[serde(flatten)]
    pub queue: QueueJson,
    /// The joined workers that serve it, also those that are stopping.
    pub served_by: Vec<WorkerJson>,
}
