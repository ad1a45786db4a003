//! The mailbox of a live run: what its session passes to its task, and what the watchdog reads about it.
//!
//! Most runs never get an item, so an empty mailbox makes no allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use outlast_core::{Message, Start, Started, WorldError};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::monotonic;
use crate::worker::attempts::uncommitted_outcomes::UncommittedOutcomes;
use crate::worker::session::missing_histories::ClaimedRun;

/// An item that the session passes to the task of a live run.
#[derive(Debug)]
pub(in crate::worker) enum MailboxItem {
    /// A new message in the run's inbox.
    Message(Message),
    /// The run was released and has been claimed again, before its task had ended.
    Claimed(Box<ClaimedRun>),
    /// The worker stops.
    Stop,
}

/// The mailbox of a live run.
#[derive(Debug, Default)]
pub(in crate::worker) struct Mailbox {
    items: Mutex<Vec<MailboxItem>>,
    reader: AtomicWaker,
    /// When the computation of the current turn began, in microseconds of [`monotonic`]; 0 if none is in progress.
    computing_since: AtomicU64,
    /// The start of the run, while its first turn is being computed.
    pending_start: Mutex<Option<Box<PendingStart>>>,
    /// Outcomes of attempts that no turn has committed, for the watchdog.
    pub(in crate::worker) outcomes: UncommittedOutcomes,
}

/// A start that has not been committed, and the sender of its answer.
#[derive(Debug)]
pub(in crate::worker) struct PendingStart {
    pub(in crate::worker) start: Arc<Start>,
    pub(in crate::worker) answer: oneshot::Sender<Result<Started, WorldError>>,
}

/// A turn is being computed until this is dropped.
pub(in crate::worker) struct ComputingTurn(Arc<Mailbox>);

impl Drop for ComputingTurn {
    fn drop(&mut self) {
        self.0.computing_since.store(0, Ordering::Release);
    }
}

impl Mailbox {
    /// Records that a turn is being computed since `began`, a time of [`monotonic`], until the returned guard is dropped.
    pub(in crate::worker) fn begin_computing(self: &Arc<Self>, began: Duration) -> ComputingTurn {
        let began = u64::try_from(began.as_micros()).unwrap_or(u64::MAX).max(1);
        self.computing_since.store(began, Ordering::Release);
        ComputingTurn(self.clone())
    }

    /// For how long the current turn has been computing; `None` if no turn is being computed.
    pub(in crate::worker) fn computing_for(&self) -> Option<Duration> {
        let began = self.computing_since.load(Ordering::Acquire);
        (began > 0).then(|| monotonic().saturating_sub(Duration::from_micros(began)))
    }

    /// Stores the start before the first turn is computed.
    pub(in crate::worker) fn set_pending_start(&self, start: PendingStart) {
        *self.pending_start.lock() = Some(Box::new(start));
    }

    /// Takes the start: the run's task when the first turn was computed, or the watchdog when the turn does not return.
    /// `None` if the other has taken it.
    pub(in crate::worker) fn take_pending_start(&self) -> Option<Box<PendingStart>> {
        self.pending_start.lock().take()
    }

    /// Adds an item, and wakes the reader.
    pub(in crate::worker) fn put(&self, item: MailboxItem) {
        self.items.lock().push(item);
        self.reader.wake();
    }

    /// Takes all items, in order.
    pub(in crate::worker) fn take(&self) -> Vec<MailboxItem> {
        std::mem::take(&mut *self.items.lock())
    }

    /// Takes the claim of a released run, if there is one. The items before it were for the run as it was released; those
    /// after it stay.
    pub(in crate::worker) fn take_claim(&self) -> Option<Box<ClaimedRun>> {
        let mut items = self.items.lock();
        let position = items.iter().position(|item| matches!(item, MailboxItem::Claimed(_)));
        let count = position.map_or(items.len(), |position| position + 1);
        let taken: Vec<_> = items.drain(..count).collect();
        drop(items);
        taken.into_iter().find_map(|item| match item {
            MailboxItem::Claimed(claimed) => Some(claimed),
            _ => None,
        })
    }

    /// Completes when there are items. Supports one reader at a time.
    pub(in crate::worker) async fn wait_for_items(&self) {
        std::future::poll_fn(|cx| {
            self.reader.register(cx.waker());
            if self.items.lock().is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::{Claimed, ClaimedHistory, HolderColumns, RunId, Timestamp, TurnId};

    use super::*;

    fn claim() -> MailboxItem {
        let claimed = Claimed {
            run: RunId::from_bits(1),
            workflow: "w".into(),
            version: 1,
            turn: TurnId::from_bits(2),
            seq: 1,
            turn_at: Timestamp::from_micros(1),
            consumed: 0,
            inbox: Vec::new(),
            columns: Arc::new(HolderColumns::default()),
            is_fresh: false,
            can_end_without_code: false,
            is_overdue: false,
            history: ClaimedHistory::LeftOut,
            details: Vec::new(),
        };
        MailboxItem::Claimed(Box::new(ClaimedRun::unread(claimed)))
    }

    #[test]
    fn what_arrives_after_a_claim_stays() {
        let mailbox = Mailbox::default();
        for item in [MailboxItem::Stop, claim(), MailboxItem::Stop, MailboxItem::Stop] {
            mailbox.put(item);
        }
        assert!(mailbox.take_claim().is_some());
        assert_eq!(mailbox.take().len(), 2, "the item before the claim was for the released run");
        mailbox.put(MailboxItem::Stop);
        assert!(mailbox.take_claim().is_none());
        assert!(mailbox.take().is_empty());
    }
}
