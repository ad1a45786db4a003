//! `GET /api/live`: counts, the first page of a list of runs, workers and queues, as they change.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use outlast_api::{LiveFilter, QueryPairs, ResetJson};
use tokio::sync::watch;

use super::list_feed::ListFeed;
use super::sse::{EventSource, event, last_event_id, response};
use crate::extract::{By, QueryOf};
use crate::reply::Reply;
use crate::state::AppState;

pub(crate) async fn handler(
    State(state): State<AppState>,
    By(caller): By,
    headers: HeaderMap,
    QueryOf(filter): QueryOf<LiveFilter>,
) -> Reply {
    // Refuses filters that are not valid, before the stream begins.
    state.service.runs(&filter.runs).await?;
    let permit = state.live.permits.take(&caller.scope, "runs")?;
    let key = filter.to_query();
    let feed = state.live.lists.get(key, || ListFeed::start(state.service.clone(), filter));
    let latest = feed.subscribe();
    let known = last_event_id(&headers).map(|id| feed.position(id));
    let (position, is_reset) = match known {
        Some(Some(number)) => (Some(number), false),
        Some(None) => (None, true),
        None => (None, false),
    };
    let source = ListSource { feed, latest, position, is_reset };
    Ok(response(source, state.service.now(), state.config.shutdown.clone(), permit))
}

/// Where one client is.
struct ListSource {
    feed: Arc<ListFeed>,
    latest: watch::Receiver<u64>,
    /// The number of the last event that was sent; `None` if the client knows nothing.
    position: Option<u64>,
    /// Whether the client must first forget what it knows.
    is_reset: bool,
}

impl EventSource for ListSource {
    async fn next(&mut self) -> Option<String> {
        if std::mem::take(&mut self.is_reset) {
            return Some(event("reset", None, &ResetJson { reason: "unknown_position".into() }));
        }
        loop {
            let latest = *self.latest.borrow_and_update();
            let (text, number) = match self.position {
                // The feed has not read anything yet.
                None if latest == 0 => (String::new(), None),
                None => {
                    let (text, number) = self.feed.snapshot();
                    (text, Some(number))
                }
                Some(position) => match self.feed.events_after(position) {
                    Some((text, number)) => (text, Some(number)),
                    None => {
                        (self.position, self.is_reset) = (None, false);
                        return Some(event("reset", None, &ResetJson { reason: "behind".into() }));
                    }
                },
            };
            self.position = number;
            if !text.is_empty() {
                return Some(text);
            }
            self.latest.changed().await.ok()?;
        }
    }
}
