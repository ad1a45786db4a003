//! Queries. They run on reader threads, and change nothing.

/// The reader threads.
pub(crate) mod readers;

/// One run, the counts, the workers.
pub(crate) mod views;

/// Failed runs, by time and by fingerprint.
pub(crate) mod failures;

/// Histories and inboxes.
pub(crate) mod history;

/// Pages of runs.
pub(crate) mod page;

/// Queues, with the numbers of their runs.
pub(crate) mod queues;

/// Records.
pub(crate) mod records;

/// The relation between the time in a run's id and the time of its start.
pub(crate) mod id_clock_skew;

/// How runs ended.
pub(crate) mod run_ends;

/// Streams and published states.
pub(crate) mod streams;
