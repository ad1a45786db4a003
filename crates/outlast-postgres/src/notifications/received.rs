//! Received notifications that wait for the listener's task.
//!
//! The driver of the listener's connection puts them here, and must never wait for room: the task may be waiting for an
//! answer that only the driver can receive. So at most [`NOTIFICATIONS_MAX`] notifications wait, and further ones are
//! discarded. The task learns that some are missing, and polls for everything that they could have said.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outlast_core::RunId;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The number of received notifications that may wait for the task.
const NOTIFICATIONS_MAX: usize = 1_024;

/// The driver's end.
#[derive(Debug)]
pub(crate) struct ReceivedSender {
    payloads: Sender<String>,
    has_discarded: Arc<AtomicBool>,
}

/// The task's end.
#[derive(Debug)]
pub(crate) struct ReceivedNotifications {
    payloads: Receiver<String>,
    has_discarded: Arc<AtomicBool>,
}

/// An empty buffer.
pub(crate) fn received_notifications() -> (ReceivedSender, ReceivedNotifications) {
    let ((sender, payloads), has_discarded) = (channel(NOTIFICATIONS_MAX), Arc::<AtomicBool>::default());
    let sender = ReceivedSender { payloads: sender, has_discarded: has_discarded.clone() };
    (sender, ReceivedNotifications { payloads, has_discarded })
}

impl ReceivedSender {
    /// Adds the payload of a notification, or discards it if too many wait.
    pub(crate) fn put(&self, payload: String) {
        if let Err(TrySendError::Full(payload)) = self.payloads.try_send(payload) {
            self.has_discarded.store(true, Ordering::Release);
            // The task may have read everything since, without seeing the flag: then there is room now, and this payload
            // makes it look again. If there is still no room, it reads the flag after the payloads that wait.
            let _ = self.payloads.try_send(payload);
        }
    }
}

impl ReceivedNotifications {
    /// Waits for a payload; `None` if the connection has ended and all payloads were read.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.payloads.recv().await
    }

    /// What this payload and all others that wait say. Those of this process, which has the number `own_origin`, are
    /// ignored. If payloads were discarded, they may have said anything.
    pub(crate) fn changes(&mut self, first: &str, own_origin: u64) -> ReceivedChanges {
        let (mut changes, own_origin) = (ReceivedChanges::default(), format!("{own_origin:x}"));
        changes.add(first, &own_origin);
        while let Ok(payload) = self.payloads.try_recv() {
            changes.add(&payload, &own_origin);
        }
        // After all payloads: see `put`.
        if self.has_discarded.swap(false, Ordering::AcqRel) {
            (changes.has_work, changes.has_unnamed_ends, changes.has_unnamed_writes) = (true, true, true);
        }
        changes
    }
}

/// What the notifications of other processes say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedChanges {
    /// Whether any run may have become ready.
    pub(crate) has_work: bool,
    /// Runs that were started and can be claimed immediately.
    pub(crate) started: BTreeSet<RunId>,
    /// Runs that have ended.
    pub(crate) ended: BTreeSet<RunId>,
    /// Whether other runs may have ended.
    pub(crate) has_unnamed_ends: bool,
    /// Runs whose streams or states were written to.
    pub(crate) written: BTreeSet<RunId>,
    /// Whether other runs may have been written to.
    pub(crate) has_unnamed_writes: bool,
}

impl ReceivedChanges {
    /// Adds what a payload says; [`PendingNotification::payload`](super::notifier::PendingNotification::payload)
    /// describes its form.
    fn add(&mut self, payload: &str, own_origin: &str) {
        let mut words = payload.split(' ');
        if words.next() == Some(own_origin) {
            return;
        }
        for word in words {
            match word {
                "w" => self.has_work = true,
                "*" => self.has_unnamed_ends = true,
                "~*" => self.has_unnamed_writes = true,
                word => match (word.strip_prefix('+'), word.strip_prefix('~')) {
                    (Some(run), _) => self.started.extend(run.parse::<RunId>()),
                    (_, Some(run)) => self.written.extend(run.parse::<RunId>()),
                    _ => self.ended.extend(word.parse::<RunId>()),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const OWN: u64 = 10;

    fn run(number: usize) -> RunId {
        RunId::from_bits(number as u128)
    }

    /// Puts the notifications of these ends, each in a payload of its own.
    fn put_ends(sender: &ReceivedSender, runs: std::ops::Range<usize>) {
        runs.for_each(|number| sender.put(format!("b - {}", run(number))));
    }

    #[test]
    fn the_payloads_that_wait_are_read_together_without_those_of_this_process() {
        let (sender, mut received) = received_notifications();
        put_ends(&sender, 1..3);
        sender.put(format!("a w * +{}", run(7)));
        sender.put(format!("b - +{} {}", run(5), run(2)));
        let expected = ReceivedChanges {
            started: BTreeSet::from([run(5)]),
            ended: BTreeSet::from([run(1), run(2)]),
            ..ReceivedChanges::default()
        };
        assert_eq!(received.changes("b -", OWN), expected);
        assert_eq!(received.changes("b w", OWN), ReceivedChanges { has_work: true, ..Default::default() });
    }

    #[test]
    fn as_many_notifications_as_fit_are_all_kept() {
        let (sender, mut received) = received_notifications();
        put_ends(&sender, 0..NOTIFICATIONS_MAX);
        let changes = received.changes("b -", OWN);
        assert_eq!(changes.ended, (0..NOTIFICATIONS_MAX).map(run).collect());
        assert!(!changes.has_work && !changes.has_unnamed_ends);
    }

    #[test]
    fn discarded_notifications_count_once_as_any_work_and_any_end() {
        let (sender, mut received) = received_notifications();
        put_ends(&sender, 0..NOTIFICATIONS_MAX + 5);
        let changes = received.changes("b -", OWN);
        assert_eq!(changes.ended.len(), NOTIFICATIONS_MAX);
        assert!(changes.has_work && changes.has_unnamed_ends);
        put_ends(&sender, 1..2);
        let changes = received.changes("b -", OWN);
        assert_eq!(changes, ReceivedChanges { ended: [run(1)].into(), ..ReceivedChanges::default() });
    }

    /// The reader is about as fast as the sender, so the buffer is full and empty again and again.
    #[test]
    fn an_end_that_is_discarded_while_the_reader_reads_is_not_missed() {
        const COUNT: usize = 200_000;
        let (sender, mut received) = received_notifications();
        let ends = Arc::new(AtomicUsize::new(0));
        let sending = std::thread::spawn({
            let ends = ends.clone();
            move || {
                for number in 0..COUNT {
                    ends.store(number + 1, Ordering::Release);
                    put_ends(&sender, number..number + 1);
                }
            }
        });
        let mut is_known = vec![false; COUNT];
        while let Some(first) = received.payloads.blocking_recv() {
            let changes = received.changes(&first, OWN);
            changes.ended.iter().for_each(|run| is_known[run.bits() as usize] = true);
            if changes.has_unnamed_ends {
                // As a poll of the database.
                is_known[..ends.load(Ordering::Acquire)].fill(true);
            }
        }
        sending.join().unwrap();
        assert_eq!(is_known.iter().position(|is_known| !is_known), None, "the first end that is missed");
    }
}
