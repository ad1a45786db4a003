//! The hub: one reader for all who look at the same page, as long as somebody does.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use outlast_api::Problem;
use outlast_core::Clock;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The live elements of a page at one time.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The elements by their ids.
    pub(crate) parts: BTreeMap<&'static str, String>,
    /// The revision: the time at which it was read, in microseconds.
    pub(crate) rev: i64,
    /// Whether nothing will change any more.
    pub(crate) is_last: bool,
}

/// The last snapshot, or why there is none.
type Latest = Option<Result<Snapshot, String>>;

/// The readers of all pages that somebody looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hub(Arc<Mutex<HashMap<String, watch::Sender<Latest>>>>);

/// A subscription to a page. The reader stops when nobody has one any more.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) receiver: watch::Receiver<Latest>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Hub {
    /// Subscribes to a page. If nobody else looks at it, a reader is started, which reads it again and again.
    pub(crate) fn subscribe<F>(
        &self,
        key: String,
        every: Duration,
        clock: Arc<dyn Clock>,
        read: impl Fn() -> F + Send + Sync + 'static,
    ) -> Subscription
    where
        F: Future<Output = Result<Snapshot, Problem>> + Send,
    {
        let mut readers = self.0.lock();
        if let Some(sender) = readers.get(&key) {
            let mut receiver = sender.subscribe();
            // The subscriber has seen nothing yet.
            receiver.mark_changed();
            return Subscription { receiver, clock };
        }
        let (sender, mut receiver) = watch::channel(None);
        readers.insert(key.clone(), sender.clone());
        receiver.borrow_and_update();
        let (reader, ticks) = (HubReader { hub: self.clone(), key, sender }, clock.clone());
        tokio::spawn(async move {
            loop {
                let snapshot = read().await.map_err(|problem| problem.detail.clone());
                let is_last = snapshot.as_ref().is_ok_and(|snapshot| snapshot.is_last);
                reader.sender.send_replace(Some(snapshot));
                if is_last || !reader.is_wanted() {
                    return;
                }
                let _ = ticks.sleep_until(ticks.now().plus(every)).await;
            }
        });
        Subscription { receiver, clock }
    }

    /// The number of readers.
    #[cfg(test)]
    pub(crate) fn readers(&self) -> usize {
        self.0.lock().len()
    }
}

/// The reader of a page, in the hub until this is dropped: also if its runtime shuts down.
struct HubReader {
    hub: Hub,
    key: String,
    sender: watch::Sender<Latest>,
}

impl HubReader {
    /// Whether somebody still subscribes. Otherwise the reader is removed in the same moment, so that no later
    /// subscriber finds one that stops.
    fn is_wanted(&self) -> bool {
        let mut readers = self.hub.0.lock();
        if self.sender.receiver_count() > 0 {
            return true;
        }
        readers.remove(&self.key);
        false
    }
}

impl Drop for HubReader {
    fn drop(&mut self) {
        let mut readers = self.hub.0.lock();
        // Another reader of the page may have been started since.
        if readers.get(&self.key).is_some_and(|sender| sender.same_channel(&self.sender)) {
            readers.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribe(hub: &Hub) -> Subscription {
        let every = Duration::from_millis(1);
        let read = || async { Ok(Snapshot { parts: BTreeMap::new(), rev: 0, is_last: false }) };
        hub.subscribe("page".into(), every, Arc::new(outlast::SystemClock), read)
    }

    #[tokio::test]
    async fn one_reader_serves_all_subscribers_and_stops_with_the_last() {
        let hub = Hub::default();
        let (mut first, mut second) = (subscribe(&hub), subscribe(&hub));
        assert_eq!(hub.readers(), 1);
        first.receiver.changed().await.unwrap();
        second.receiver.changed().await.unwrap();
        drop(first);
        second.receiver.changed().await.unwrap();
        assert_eq!(hub.readers(), 1);
        drop(second);
        while hub.readers() > 0 {
            tokio::task::yield_now().await;
        }
        let mut third = subscribe(&hub);
        third.receiver.changed().await.unwrap();
    }
}
