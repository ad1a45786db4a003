//! Feeds that are shared by their subscribers, and end with the last of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The feeds in use, by what they show.
#[derive(Debug)]
pub(crate) struct Feeds<K, F> {
    feeds: Mutex<HashMap<K, Weak<F>>>,
}

impl<K, F> Default for Feeds<K, F> {
    fn default() -> Self {
        Self { feeds: Mutex::default() }
    }
}

impl<K: Hash + Eq, F> Feeds<K, F> {
    /// The feed of a key, or a new one. The subscribers hold it; its task holds it only while it polls.
    pub(crate) fn get(&self, key: K, create: impl FnOnce() -> Arc<F>) -> Arc<F> {
        let mut feeds = self.feeds.lock();
        if let Some(feed) = feeds.get(&key).and_then(Weak::upgrade) {
            return feed;
        }
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let feed = create();
        feeds.insert(key, Arc::downgrade(&feed));
        feed
    }

    /// The number of feeds in use.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.feeds.lock().values().filter(|feed| feed.strong_count() > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_is_shared_and_ends_with_its_last_subscriber() {
        let feeds: Feeds<u32, String> = Feeds::default();
        let first = feeds.get(1, || Arc::new("first".into()));
        let again = feeds.get(1, || Arc::new("second".into()));
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(feeds.count(), 1);
        drop((first, again));
        assert_eq!(feeds.count(), 0);
        assert_eq!(*feeds.get(1, || Arc::new("third".into())), "third");
    }
}
