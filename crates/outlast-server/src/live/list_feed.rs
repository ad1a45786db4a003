//! The feed of a list: polls counts, the first page of runs, workers and queues.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use outlast::core::{Clock, Timestamp};
use outlast::{RunId, SystemClock};
use outlast_api::{CountsJson, GoneJson, LiveFilter, LiveTopic, Problem, ResetJson, Service};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::sse::event_of_json;

/// The time between two polls.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// The number of events that are kept for clients that connect again.
const RING_EVENTS_MAX: usize = 1_000;

/// How long they are kept.
const RING_TIME: Duration = Duration::from_secs(60);

/// The feed of a list. Its events are numbered within an epoch.
#[derive(Debug)]
pub(crate) struct ListFeed {
    epoch: u64,
    state: Mutex<ListState>,
    /// The number of the last event, and whether the feed has read anything yet.
    latest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct ListState {
    ring: VecDeque<RingEvent>,
    /// What the list shows now, as JSON.
    shown: ListRead,
    is_unavailable: bool,
}

#[derive(Debug)]
struct RingEvent {
    number: u64,
    at: Timestamp,
    name: &'static str,
    json: String,
}

/// Events that a poll has found.
type Found = Vec<(&'static str, String)>;

impl ListFeed {
    pub(crate) fn start(service: Service, filter: LiveFilter) -> Arc<Self> {
        let feed = Arc::new(Self {
            epoch: fastrand::u64(..),
            state: Mutex::default(),
            latest: watch::Sender::new(0),
        });
        tokio::spawn(poll(service, filter, Arc::downgrade(&feed)));
        feed
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// The number of the event with this id, if it is of this feed and those after it are still known.
    pub(crate) fn position(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        let number: u64 = number.parse().ok().filter(|_| epoch == format!("{:016x}", self.epoch))?;
        let state = self.state.lock();
        let oldest = state.ring.front().map_or(*self.latest.borrow(), |event| event.number - 1);
        (oldest..=*self.latest.borrow()).contains(&number).then_some(number)
    }

    /// What the list shows now, and the number of the last event in it.
    pub(crate) fn snapshot(&self) -> (String, u64) {
        let state = self.state.lock();
        let number = *self.latest.borrow();
        let id = self.id(number);
        let ListRead { counts, runs, workers, queues } = &state.shown;
        let counts = counts.iter().map(|json| ("counts", json));
        let runs = runs.values().map(|json| ("run", json));
        let workers = workers.values().map(|json| ("worker", json));
        let queues = queues.values().map(|json| ("queue", json));
        let all = counts.chain(runs).chain(workers).chain(queues);
        (all.map(|(name, json)| event_of_json(name, Some(&id), json)).collect(), number)
    }

    /// The events after a number, and the number of the last one; `None` if they are not known any more.
    pub(crate) fn events_after(&self, number: u64) -> Option<(String, u64)> {
        let state = self.state.lock();
        let latest = *self.latest.borrow();
        let first = state.ring.front().map_or(latest + 1, |event| event.number);
        if number + 1 < first {
            return None;
        }
        let new = state.ring.iter().filter(|event| event.number > number);
        let text = new.map(|event| event_of_json(event.name, Some(&self.id(event.number)), &event.json));
        Some((text.collect(), latest))
    }

    fn id(&self, number: u64) -> String {
        format!("{:016x}-{number}", self.epoch)
    }

    /// Stores the events of a poll, and wakes the subscribers.
    fn add(&self, found: Found) {
        if found.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let now = SystemClock.now();
        let mut number = *self.latest.borrow();
        for (name, json) in found {
            number += 1;
            state.ring.push_back(RingEvent { number, at: now, name, json });
        }
        let is_old = |event: &RingEvent| now.since(event.at) > RING_TIME;
        while state.ring.len() > RING_EVENTS_MAX || state.ring.front().is_some_and(is_old) {
            state.ring.pop_front();
        }
        self.latest.send_replace(number);
    }
}

/// Polls until nobody holds the feed.
async fn poll(service: Service, filter: LiveFilter, feed: Weak<ListFeed>) {
    loop {
        let Some(feed) = feed.upgrade() else { return };
        let found = match read(&service, &filter).await {
            Ok(read) => feed.state.lock().compare(read),
            Err(problem) => feed.state.lock().fail(&problem),
        };
        feed.add(found);
        drop(feed);
        drop(SystemClock.sleep_until(SystemClock.now().plus(POLL_EVERY)).await);
    }
}

/// What a poll has read, as JSON.
#[derive(Debug, Default)]
struct ListRead {
    counts: Option<String>,
    runs: BTreeMap<RunId, String>,
    workers: BTreeMap<String, String>,
    queues: BTreeMap<String, String>,
}

async fn read(service: &Service, filter: &LiveFilter) -> Result<ListRead, Problem> {
    let mut read = ListRead::default();
    for topic in &filter.topics {
        match topic {
            LiveTopic::Counts => {
                let counts = service.counts().await?;
                // Without the time, which changes with every poll.
                let CountsJson { counts, marks, flags, .. } = counts;
                let shown = serde_json::json!({ "counts": counts, "marks": marks, "flags": flags });
                read.counts = Some(shown.to_string());
            }
            LiveTopic::Runs => {
                let page = service.runs(&filter.runs).await?;
                read.runs = page.items.iter().map(|run| (run.id, json(run))).collect();
            }
            LiveTopic::Workers => {
                let workers = service.workers().await?.items;
                read.workers =
                    workers.iter().map(|worker| (worker.session.to_string(), json(worker))).collect();
            }
            LiveTopic::Queues => {
                let queues = service.queues().await?.items;
                read.queues = queues.iter().map(|queue| (queue.name.clone(), json(queue))).collect();
            }
        }
    }
    Ok(read)
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The events for what is gone, and for what is new or changed.
fn differences<K: Ord>(
    known: &BTreeMap<K, String>,
    read: &BTreeMap<K, String>,
    changed: &'static str,
    gone: impl Fn(&K) -> (&'static str, String),
) -> Found {
    let left = known.keys().filter(|key| !read.contains_key(key)).map(gone);
    let new = read.iter().filter(|(key, json)| known.get(key) != Some(json));
    left.chain(new.map(|(_, json)| (changed, json.clone()))).collect()
}

impl ListState {
    /// The events that lead from what was known to what was read.
    fn compare(&mut self, read: ListRead) -> Found {
        let mut found = Found::new();
        self.is_unavailable = false;
        let known = std::mem::take(&mut self.shown);
        found
            .extend(read.counts.clone().filter(|_| read.counts != known.counts).map(|json| ("counts", json)));
        let gone_run = |run: &RunId| ("gone", json(&GoneJson { id: *run }));
        found.extend(differences(&known.runs, &read.runs, "run", gone_run));
        let gone_worker =
            |worker: &String| ("worker_gone", serde_json::json!({ "session": worker }).to_string());
        found.extend(differences(&known.workers, &read.workers, "worker", gone_worker));
        let gone_queue = |queue: &String| ("queue_gone", serde_json::json!({ "name": queue }).to_string());
        found.extend(differences(&known.queues, &read.queues, "queue", gone_queue));
        self.shown = read;
        found
    }

    /// The event of a poll that failed, unless the one before failed too.
    fn fail(&mut self, problem: &Problem) -> Found {
        if std::mem::replace(&mut self.is_unavailable, true) {
            return Found::new();
        }
        let reset = ResetJson { reason: problem.code.clone() };
        vec![("reset", json(&reset))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(runs: &[(u128, &str)]) -> ListRead {
        let runs = runs.iter().map(|(run, json)| (RunId::from_bits(*run), (*json).to_owned())).collect();
        ListRead { runs, ..ListRead::default() }
    }

    #[test]
    fn a_list_tells_what_came_changed_and_went() {
        let mut state = ListState::default();
        assert_eq!(state.compare(read(&[(1, "a"), (2, "b")])), [("run", "a".into()), ("run", "b".into())]);
        assert_eq!(state.compare(read(&[(1, "a"), (2, "b")])), []);
        let found = state.compare(read(&[(2, "c"), (3, "d")]));
        let gone = serde_json::json!({ "id": RunId::from_bits(1) }).to_string();
        assert_eq!(found, [("gone", gone), ("run", "c".into()), ("run", "d".into())]);
    }

    #[test]
    fn a_client_resumes_only_at_a_position_that_is_still_known() {
        let feed = ListFeed { epoch: 7, state: Mutex::default(), latest: watch::Sender::new(0) };
        feed.add((0..1_500).map(|number| ("run", number.to_string())).collect());
        assert_eq!(feed.position("0000000000000007-1500"), Some(1_500));
        assert_eq!(feed.position("0000000000000007-500"), Some(500));
        for id in ["0000000000000007-499", "0000000000000007-1501", "0000000000000008-1500", "", "7-x"] {
            assert_eq!(feed.position(id), None, "{id}");
        }
        let (text, last) = feed.events_after(1_498).unwrap();
        assert_eq!(last, 1_500);
        assert_eq!(text.matches("data: 149").count(), 2, "{text}");
        assert_eq!(feed.events_after(499), None);
    }
}
