//! How changes become known: to the workers and waiters of this process, and to other processes.
//!
//! The sequence of one change, for example the end of a run:
//!
//! 1. A call changes the database. Its statement sends no notification.
//! 2. The call publishes the change to [`subscribers`]: workers of this process wake up, and waiters of this process
//!    get the end.
//! 3. The [`notifier`] adds the change to a pending notification, and sends it with `NOTIFY` in a separate statement,
//!    which does not wait for the disk. Changes that are published meanwhile share the next notification.
//! 4. The [`listener`] of another process receives the notification, wakes its workers, and reads the ends that its
//!    waiters wait for.
//!
//! A notification is a hint: it carries no data that a receiver relies on, and it may be lost with a connection. A
//! process therefore also polls, slowly. Two caches save statements as long as hints arrive: `RecentlyStarted` for
//! waiters and [`claim_hints`] for workers.

pub(crate) mod subscribers;

pub(crate) mod listener;
pub(crate) mod notifier;
pub(crate) mod polling;
mod received;

pub(crate) mod claim_hints;
pub(crate) mod run_ends;
pub(crate) mod takeover_task;
