//! How many streams there may be.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use outlast_api::{Problem, ProblemCode};
use parking_lot::Mutex;

/// The largest number of streams of a server.
const STREAMS_MAX: usize = 512;

/// The largest number of streams of one caller.
const STREAMS_PER_CALLER_MAX: usize = 32;

/// The streams in use.
#[derive(Debug, Default)]
pub(crate) struct StreamPermits {
    used: Mutex<UsedPermits>,
}

#[derive(Debug, Default)]
struct UsedPermits {
    by_caller: HashMap<String, usize>,
    by_topic: BTreeMap<&'static str, usize>,
}

/// The right to have one stream, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    permits: Arc<StreamPermits>,
    scope: String,
    topic: &'static str,
}

impl StreamPermits {
    /// A permit for a caller.
    pub(crate) fn take(self: &Arc<Self>, scope: &str, topic: &'static str) -> Result<StreamPermit, Problem> {
        let mut used = self.used.lock();
        let all: usize = used.by_topic.values().sum();
        let own = used.by_caller.get(scope).copied().unwrap_or(0);
        // The caller on this machine shares the limit with nobody.
        let own_max = if scope == "local" { STREAMS_MAX } else { STREAMS_PER_CALLER_MAX };
        if all >= STREAMS_MAX || own >= own_max {
            let detail = format!(
                "there may be {STREAMS_MAX} live streams, {STREAMS_PER_CALLER_MAX} of one caller; close some"
            );
            return Err(Problem::new(ProblemCode::RateLimited, detail));
        }
        used.by_caller.insert(scope.to_owned(), own + 1);
        *used.by_topic.entry(topic).or_default() += 1;
        Ok(StreamPermit { permits: self.clone(), scope: scope.to_owned(), topic })
    }

    /// The number of streams of each topic that has had one.
    pub(crate) fn by_topic(&self) -> BTreeMap<&'static str, usize> {
        self.used.lock().by_topic.clone()
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut used = self.permits.used.lock();
        match used.by_caller.get_mut(&self.scope) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                used.by_caller.remove(&self.scope);
            }
        }
        if let Some(count) = used.by_topic.get_mut(self.topic) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_limited_number_of_streams() {
        let permits: Arc<StreamPermits> = Arc::default();
        let take = |scope| permits.take(scope, "run");
        let mut taken: Vec<_> = (0..STREAMS_PER_CALLER_MAX).map(|_| take("a").unwrap()).collect();
        assert!(take("a").unwrap_err().is(ProblemCode::RateLimited));
        assert!(take("b").is_ok());
        taken.pop();
        assert!(take("a").is_ok());
        drop(taken);
        assert_eq!(permits.by_topic(), BTreeMap::from([("run", 0)]));
    }

    #[test]
    fn a_server_has_a_limited_number_of_streams() {
        let permits: Arc<StreamPermits> = Arc::default();
        let taken: Vec<_> = (0..STREAMS_MAX).map(|_| permits.take("local", "run").unwrap()).collect();
        assert!(permits.take("other", "list").is_err());
        drop(taken);
        assert!(permits.take("other", "list").is_ok());
    }
}
