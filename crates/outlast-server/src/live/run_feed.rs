//! The feed of one run: polls its row and history.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use outlast::core::Clock;
use outlast::{RunId, SystemClock};
use outlast_api::{EventJson, PayloadAmount, ProblemCode, RunJson, Service};
use tokio::sync::watch;

/// The time between two polls.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// The number of newest events that a feed keeps for its subscribers.
const RECENT_MAX: usize = 256;

/// The feed of one run.
#[derive(Debug)]
pub(crate) struct RunFeed {
    latest: watch::Sender<Arc<RunNews>>,
}

/// What a feed knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunNews {
    /// The number of the event after the last one.
    pub(crate) next: u64,
    /// The newest events, in order.
    pub(crate) recent: VecDeque<Arc<EventText>>,
    /// The run's row, and how often it has changed.
    pub(crate) run: Option<(Arc<RunJson>, u64)>,
    /// How the feed ended: the run has ended and all its events are known, or it was deleted.
    pub(crate) end: Option<FeedEnd>,
    /// Whether the world does not respond.
    pub(crate) is_unavailable: bool,
}

/// Why a feed has nothing more to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedEnd {
    RunEnded,
    RunDeleted,
}

/// An event as JSON, with its number.
#[derive(Debug)]
pub(crate) struct EventText {
    pub(crate) number: u64,
    pub(crate) json: String,
}

impl EventText {
    pub(crate) fn of(event: &EventJson) -> Self {
        Self { number: event.number, json: serde_json::to_string(event).unwrap_or_default() }
    }
}

impl RunFeed {
    /// A feed that begins behind the events before `next`.
    pub(crate) fn start(service: Service, run: RunId, next: u64) -> Arc<Self> {
        let latest = watch::Sender::new(Arc::new(RunNews { next, ..RunNews::default() }));
        let feed = Arc::new(Self { latest });
        tokio::spawn(poll(service, run, Arc::downgrade(&feed)));
        feed
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<RunNews>> {
        self.latest.subscribe()
    }
}

/// Polls until nobody holds the feed, or the run has ended.
async fn poll(service: Service, run: RunId, feed: Weak<RunFeed>) {
    loop {
        let Some(feed) = feed.upgrade() else { return };
        let mut news = RunNews::clone(&feed.latest.borrow());
        if update(&service, run, &mut news).await {
            let is_over = news.end.is_some();
            feed.latest.send_replace(Arc::new(news));
            if is_over {
                return;
            }
        }
        drop(feed);
        drop(SystemClock.sleep_until(SystemClock.now().plus(POLL_EVERY)).await);
    }
}

/// Reads what is new; whether there is something.
async fn update(service: &Service, run: RunId, news: &mut RunNews) -> bool {
    // The row first: if it says that the run has ended, the history read afterwards is complete.
    let row = service.run(run).await;
    let tail = service.events_of_new_turns(run, news.next, PayloadAmount::Preview).await;
    let (row, tail) = match (row, tail) {
        (Ok(row), Ok(tail)) => (row, tail),
        (Err(problem), _) | (_, Err(problem)) if problem.is(ProblemCode::NotFound) => {
            news.end = Some(FeedEnd::RunDeleted);
            return true;
        }
        _ => return !std::mem::replace(&mut news.is_unavailable, true),
    };
    let mut is_new = std::mem::take(&mut news.is_unavailable);
    if !tail.events.is_empty() {
        news.next = tail.next;
        news.recent.extend(tail.events.iter().map(EventText::of).map(Arc::new));
        let surplus = news.recent.len().saturating_sub(RECENT_MAX);
        news.recent.drain(..surplus);
        is_new = true;
    }
    let changes = news.run.as_ref().map_or(0, |(_, changes)| *changes);
    if row.ended_at.is_some() && tail.is_last {
        news.end = Some(FeedEnd::RunEnded);
        is_new = true;
    }
    if news.run.as_ref().is_none_or(|(known, _)| **known != row) {
        news.run = Some((Arc::new(row), changes + 1));
        is_new = true;
    }
    is_new
}
