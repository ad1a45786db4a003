//! Live streams: server-sent events.
//!
//! Worlds have no notification for every change, so a feed polls: one task for all subscribers of the same run or list,
//! which ends with the last of them. A subscriber pulls: it keeps its own position, and reads what it has missed from the
//! feed or from the history, so a slow reader costs nothing and loses nothing.

pub(crate) mod feeds;
pub(crate) mod list;
pub(crate) mod list_feed;
pub(crate) mod permits;
pub(crate) mod run;
pub(crate) mod run_feed;
pub(crate) mod sse;
pub(crate) mod stream;

use std::sync::Arc;

use outlast::RunId;

use feeds::Feeds;
use list_feed::ListFeed;
use permits::StreamPermits;
use run_feed::RunFeed;

/// The feeds that are in use, and how many streams there may be.
#[derive(Debug, Default)]
pub(crate) struct LiveHub {
    /// Also by whether payloads are shown.
    pub(crate) runs: Feeds<(RunId, bool), RunFeed>,
    pub(crate) lists: Feeds<String, ListFeed>,
    pub(crate) permits: Arc<StreamPermits>,
}
