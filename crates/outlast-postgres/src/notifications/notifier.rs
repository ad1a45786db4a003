//! The notifier: tells other processes of changes with `NOTIFY`.
//!
//! Changes are collected in a pending notification. It is sent immediately after a quiet period; under load at most one
//! notification is sent per millisecond in the long run, which then carries all changes that were published meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use outlast_core::{Backoff, RunId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::{Client, Error};

use crate::connection::database::Database;

/// The number of ended runs that a notification names. If more have ended, it only says that some have.
const ENDS_MAX: usize = 150;

/// The number of runs with changed streams that a notification names. A notification has at most 8,000 bytes.
const WRITTEN_MAX: usize = 50;

/// The average time between two notifications under load.
const SEND_INTERVAL: Duration = Duration::from_millis(1);

/// The number of notifications that may follow each other without a pause after a quiet period.
const BURST: u32 = 5;

/// The pauses before a failed notification is sent again on a connection of the pool.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

/// The changes that other processes have not been told of.
#[derive(Debug, Default)]
pub(crate) struct PendingNotification {
    /// Whether any run may have become ready.
    has_work: bool,
    /// A run that was started, if nothing else has become ready.
    started: Option<RunId>,
    ended: BTreeSet<RunId>,
    /// Whether more runs have ended than a notification can name; `ended` is empty then.
    has_unnamed_ends: bool,
    /// Runs whose streams or states have changed.
    written: BTreeSet<RunId>,
    /// Whether more streams have changed than a notification can name; `written` is empty then.
    has_unnamed_writes: bool,
}

impl PendingNotification {
    fn is_empty(&self) -> bool {
        !self.has_work
            && self.started.is_none()
            && !self.has_unnamed_ends
            && self.ended.is_empty()
            && !self.has_unnamed_writes
            && self.written.is_empty()
    }

    fn add(&mut self, has_work: bool, started: Option<RunId>, ended: impl ExactSizeIterator<Item = RunId>) {
        // A notification names one started run; for more than one it only says that there is work.
        self.has_work |= has_work || started.is_some() && self.started.is_some();
        self.started = self.started.or(started).filter(|_| !self.has_work);
        if self.has_unnamed_ends || self.ended.len() + ended.len() > ENDS_MAX {
            self.has_unnamed_ends = true;
            self.ended.clear();
        } else {
            self.ended.extend(ended);
        }
    }

    fn add_written(&mut self, runs: impl ExactSizeIterator<Item = RunId>) {
        if self.has_unnamed_writes || self.written.len() + runs.len() > WRITTEN_MAX {
            self.has_unnamed_writes = true;
            self.written.clear();
        } else {
            self.written.extend(runs);
        }
    }

    /// The payload: the sender's origin number, `w` if there is work and `-` if not, `+` and the id of a started run,
    /// the ids of ended runs, or `*` for ends that are not named; `~` and the ids of runs whose streams have changed, or
    /// `~*`. A process that does not know a word ignores it.
    pub(crate) fn payload(&self, origin: u64) -> String {
        let mut payload = format!("{origin:x} {}", if self.has_work { "w" } else { "-" });
        if self.has_unnamed_ends {
            payload.push_str(" *");
        }
        if let Some(run) = self.started {
            payload.push_str(&format!(" +{run}"));
        }
        for run in &self.ended {
            payload.push_str(&format!(" {run}"));
        }
        if self.has_unnamed_writes {
            payload.push_str(" ~*");
        }
        for run in &self.written {
            payload.push_str(&format!(" ~{run}"));
        }
        payload
    }
}

/// Collects changes and sends them to other processes.
#[derive(Clone, Debug)]
pub(crate) struct Notifier {
    pending: Arc<Mutex<PendingNotification>>,
    /// Wakes the task that sends.
    has_pending: Arc<Notify>,
    /// Whether nothing is sent: with a virtual clock, real time must not influence the world.
    is_disabled: bool,
}

impl Notifier {
    /// A notifier without pending changes.
    pub(crate) fn new(is_disabled: bool) -> Self {
        Self { pending: Arc::default(), has_pending: Arc::default(), is_disabled }
    }

    /// Adds a change to the pending notification.
    pub(crate) fn notify(
        &self,
        has_work: bool,
        started: Option<RunId>,
        ended: impl ExactSizeIterator<Item = RunId>,
    ) {
        if self.is_disabled || !has_work && started.is_none() && ended.len() == 0 {
            return;
        }
        self.pending.lock().add(has_work, started, ended);
        self.has_pending.notify_one();
    }

    /// Adds runs whose streams or states have changed to the pending notification.
    pub(crate) fn notify_written(&self, runs: &[RunId]) {
        if self.is_disabled || runs.is_empty() {
            return;
        }
        self.pending.lock().add_written(runs.iter().copied());
        self.has_pending.notify_one();
    }

    /// Sends pending notifications on the listener's connection until it closes.
    #[allow(clippy::disallowed_methods, reason = "the rate of notifications is limited in real time")]
    pub(crate) async fn run_on_connection(self, client: Arc<Client>, channel: String, origin: u64) {
        let mut next_send_at = Instant::now();
        while !client.is_closed() {
            self.has_pending.notified().await;
            tokio::time::sleep_until(next_send_at).await;
            next_send_at = next_send_at.max(Instant::now() - SEND_INTERVAL * BURST) + SEND_INTERVAL;
            if let Err(error) = self.send_on_connection(&client, &channel, origin).await {
                tracing::debug!(%error, "cannot notify other processes now");
            }
        }
    }

    /// Sends pending notifications on connections of the pool, for a world without a listener connection.
    #[allow(clippy::disallowed_methods, reason = "the rate of notifications is limited in real time")]
    pub(crate) async fn run_on_pool(self, database: Database, origin: u64) {
        let (mut next_send_at, mut backoff) = (Instant::now(), BACKOFF);
        loop {
            self.has_pending.notified().await;
            tokio::time::sleep_until(next_send_at).await;
            next_send_at = next_send_at.max(Instant::now() - SEND_INTERVAL * BURST) + SEND_INTERVAL;
            if self.send_on_pool(&database, origin).await {
                backoff.reset();
            } else {
                next_send_at = Instant::now() + backoff.next_pause(fastrand::f64());
            }
        }
    }

    /// Sends the pending notification on a connection of the pool. Returns `false` if that failed; the notification is
    /// pending again then.
    pub(crate) async fn send_on_pool(&self, database: &Database, origin: u64) -> bool {
        let attempt = SendAttempt::begin(self);
        let Some(payload) = attempt.payload(origin) else { return true };
        // Both statements are one transaction, so the setting does not outlive it. It does not wait for the disk.
        let notify = format!(
            "SELECT set_config('synchronous_commit', 'off', true); NOTIFY {}, '{payload}'",
            database.sql.channel
        );
        let sent =
            database.with_connection(async |connection: &Object| connection.batch_execute(&notify).await);
        match sent.await {
            Ok(()) => attempt.mark_sent(),
            Err(failure) => {
                tracing::debug!(?failure, "cannot notify other processes now");
                return false;
            }
        }
        true
    }

    /// Sends the pending notification on the listener's connection. If the connection is lost, the notification is
    /// pending again.
    pub(crate) async fn send_on_connection(
        &self,
        client: &Client,
        channel: &str,
        origin: u64,
    ) -> Result<(), Error> {
        let attempt = SendAttempt::begin(self);
        let Some(payload) = attempt.payload(origin) else { return Ok(()) };
        // The payload contains only ids and numbers, so it needs no escaping. A simple query is one round trip.
        let sent = client.batch_execute(&format!("NOTIFY {channel}, '{payload}'")).await;
        let is_lost = sent.as_ref().is_err_and(|error| client.is_closed() || is_end_of_connection(error));
        if !is_lost {
            attempt.mark_sent();
        }
        sent
    }

    fn take_pending(&self) -> PendingNotification {
        std::mem::take(&mut *self.pending.lock())
    }

    /// Makes a notification that was not sent pending again, together with what was added meanwhile.
    fn requeue(&self, unsent: PendingNotification) {
        let mut pending = self.pending.lock();
        pending.has_unnamed_ends |= unsent.has_unnamed_ends;
        pending.add(unsent.has_work, unsent.started, unsent.ended.into_iter());
        pending.has_unnamed_writes |= unsent.has_unnamed_writes;
        pending.add_written(unsent.written.into_iter());
        drop(pending);
        self.has_pending.notify_one();
    }
}

/// An attempt to send the pending notification. Unless it is marked as sent, dropping it makes the notification pending again; a
/// notification that is sent twice does no harm.
struct SendAttempt<'a> {
    notifier: &'a Notifier,
    unsent: Option<PendingNotification>,
}

impl<'a> SendAttempt<'a> {
    fn begin(notifier: &'a Notifier) -> Self {
        Self { notifier, unsent: Some(notifier.take_pending()).filter(|pending| !pending.is_empty()) }
    }

    /// The payload; `None` if there is nothing to send.
    fn payload(&self, origin: u64) -> Option<String> {
        self.unsent.as_ref().map(|unsent| unsent.payload(origin))
    }

    /// Ends the attempt: the notification was sent, or refused for a reason that a repeat does not change.
    fn mark_sent(mut self) {
        self.unsent = None;
    }
}

impl Drop for SendAttempt<'_> {
    fn drop(&mut self) {
        if let Some(unsent) = self.unsent.take() {
            self.notifier.requeue(unsent);
        }
    }
}

/// Whether the server or the network has ended the connection. The client may not have noticed yet.
fn is_end_of_connection(error: &Error) -> bool {
    error.code().is_none_or(|code| code.code().starts_with("57P"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsent_notification_is_merged_with_later_changes() {
        let notifier = Notifier::new(false);
        notifier.notify(true, None, [].into_iter());
        let unsent = notifier.take_pending();
        notifier.notify(false, None, [RunId::from_bits(1)].into_iter());
        notifier.requeue(unsent);
        assert_eq!(notifier.take_pending().payload(10), format!("a w {}", RunId::from_bits(1)));
        notifier.notify(
            false,
            None,
            (0..=ENDS_MAX as u128).map(RunId::from_bits).collect::<Vec<_>>().into_iter(),
        );
        assert_eq!(notifier.take_pending().payload(10), "a - *");
    }

    fn runs(count: usize) -> Vec<RunId> {
        (0..count).map(|number| RunId::from_bits(u128::MAX - number as u128)).collect()
    }

    #[test]
    fn more_ends_or_writes_than_a_notification_can_name_are_sent_as_any() {
        let notifier = Notifier::new(false);
        notifier.notify_written(&runs(WRITTEN_MAX));
        notifier.notify_written(&runs(1));
        notifier.notify(false, None, runs(ENDS_MAX).into_iter());
        notifier.notify(false, None, runs(1).into_iter());
        let unsent = notifier.take_pending();
        assert_eq!(unsent.payload(10), "a - * ~*");
        notifier.notify(false, None, runs(1).into_iter());
        notifier.notify_written(&runs(1));
        notifier.requeue(unsent);
        assert_eq!(
            notifier.take_pending().payload(10),
            "a - * ~*",
            "an unsent notification still means any run"
        );
    }

    #[test]
    fn the_longest_notification_fits() {
        /// The server refuses payloads from this length on.
        const PAYLOAD_BYTES_MAX: usize = 8_000;
        let notifier = Notifier::new(false);
        notifier.notify(false, Some(runs(1)[0]), runs(ENDS_MAX).into_iter());
        notifier.notify_written(&runs(WRITTEN_MAX));
        let payload = notifier.take_pending().payload(u64::MAX);
        assert_eq!(payload.split(' ').count(), 3 + ENDS_MAX + WRITTEN_MAX);
        assert!(payload.len() < PAYLOAD_BYTES_MAX, "{} bytes", payload.len());
    }
}
