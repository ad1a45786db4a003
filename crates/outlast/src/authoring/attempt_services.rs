//! The clock, codec, client and report channels that the attempts of one session share. They are behind one pointer,
//! because every attempt has a copy of it.

use std::sync::Arc;

use outlast_core::{Clock, Codec, PlainJson};
use outlast_memory::MemoryWorld;

use crate::client::Client;
use crate::clock::SystemClock;
use crate::worker::heartbeats::Heartbeats;
use crate::worker::stream_writer::StreamWriter;

/// What all attempts of a session use.
#[derive(Debug)]
pub(crate) struct AttemptServices {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) codec: Arc<dyn Codec>,
    /// Starts runs in the worker's world; in a unit test of a step, in a world of its own.
    pub(crate) client: Client,
    /// `None` in a unit test of a step.
    pub(crate) reports: Option<AttemptReports>,
}

/// What sends the reports of running attempts to the world.
#[derive(Debug)]
pub(crate) struct AttemptReports {
    /// The details of heartbeats, until the worker's next beat.
    pub(crate) heartbeats: Arc<Heartbeats>,
    /// The chunks of streams.
    pub(crate) stream_writer: Arc<StreamWriter>,
}

impl AttemptServices {
    /// Those of a session.
    pub(crate) fn of_session(
        client: Client,
        clock: &Arc<dyn Clock>,
        codec: &Arc<dyn Codec>,
        reports: AttemptReports,
    ) -> Self {
        Self { clock: clock.clone(), codec: codec.clone(), client, reports: Some(reports) }
    }

    /// Those of a unit test of a step.
    pub(crate) fn of_unit_test() -> Self {
        Self::with_client(Client::new(Arc::new(MemoryWorld::new(Arc::new(SystemClock)))))
    }

    /// Those of a unit test of a step that starts runs.
    pub(crate) fn with_client(client: Client) -> Self {
        Self { clock: Arc::new(SystemClock), codec: Arc::new(PlainJson), client, reports: None }
    }
}
