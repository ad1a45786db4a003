//! `GET /api/runs/{id}/live`: the events of a run, as they happen.
//!
//! The id of an event is its number in the history, so a stream resumes exactly: `Last-Event-ID: 41` continues with 42.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use outlast::RunId;
use outlast_api::{
    EndJson, PayloadAmount, Problem, ProblemCode, QueryPairs, QueryReader, QueryWriter, ResetJson, Service,
};
use tokio::sync::watch;

use super::run_feed::{EventText, FeedEnd, RunFeed, RunNews};
use super::sse::{EventSource, event, event_of_json, last_event_id, response};
use crate::extract::{By, PathOf, QueryOf};
use crate::reply::{Reply, no_content};
use crate::state::AppState;

/// The query of the stream.
#[derive(Debug)]
pub(crate) struct RunLiveQuery {
    /// The number of the first event, if the client has no last one.
    from: u64,
}

impl QueryPairs for RunLiveQuery {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        Ok(Self { from: reader.parse("from")?.unwrap_or(0) })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("from", Some(self.from));
    }
}

pub(crate) async fn handler(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    headers: HeaderMap,
    QueryOf(query): QueryOf<RunLiveQuery>,
) -> Reply {
    let run = path.run()?;
    let next = match last_event_id(&headers) {
        None => query.from,
        Some(id) => match id.parse::<u64>() {
            Ok(last) => last.saturating_add(1),
            Err(_) => return Err(Problem::field("Last-Event-ID", "expected the number of an event").into()),
        },
    };
    let service = state.service_for(&caller);
    let row = service.run(run).await?;
    let missed = service.events_from(run, next, PayloadAmount::Preview).await?;
    if row.ended_at.is_some() && missed.events.is_empty() && last_event_id(&headers).is_some() {
        // Everything was sent: this tells the client not to connect again.
        return Ok(no_content());
    }
    let permit = state.live.permits.take(&caller.scope, "run")?;
    let source = RunSource {
        state: state.clone(),
        service,
        run,
        missed: missed.events.iter().map(EventText::of).map(Arc::new).collect(),
        next,
        behind: missed.next,
        feed: None,
        run_changes: 0,
        is_unavailable: false,
        is_over: false,
    };
    Ok(response(source, state.service.now(), state.config.shutdown.clone(), permit))
}

/// Where one client is.
struct RunSource {
    state: AppState,
    service: Service,
    run: RunId,
    /// Events that were read from the history and not sent yet.
    missed: Vec<Arc<EventText>>,
    /// The number of the next event to send.
    next: u64,
    /// The number behind the events that were read so far: the first of a turn, or `next`.
    behind: u64,
    feed: Option<(Arc<RunFeed>, watch::Receiver<Arc<RunNews>>)>,
    /// Which change of the run's row was sent last.
    run_changes: u64,
    is_unavailable: bool,
    is_over: bool,
}

impl EventSource for RunSource {
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        let text = self.take_missed();
        if !text.is_empty() {
            return Some(text);
        }
        loop {
            let news = self.news();
            let mut text = String::new();
            self.add_events(&news, &mut text).await;
            self.add_run(&news, &mut text);
            if !text.is_empty() {
                return Some(text);
            }
            let (_, receiver) = self.feed.as_mut()?;
            // An error means that the task of the feed is gone; a new feed is started by the next connection.
            receiver.changed().await.ok()?;
        }
    }
}

impl RunSource {
    fn take_missed(&mut self) -> String {
        let missed = std::mem::take(&mut self.missed);
        self.next = self.next.max(self.behind);
        missed.iter().map(|event| text_of(event)).collect()
    }

    /// What the feed knows; subscribes to it first.
    fn news(&mut self) -> Arc<RunNews> {
        let Self { state, service, run, behind, .. } = self;
        let (_, receiver) = self.feed.get_or_insert_with(|| {
            let start = || RunFeed::start(service.clone(), *run, *behind);
            let feed = state.live.runs.get((*run, service.hides_payloads()), start);
            let receiver = feed.subscribe();
            (feed, receiver)
        });
        receiver.borrow_and_update().clone()
    }

    /// The events that the feed knows and the client does not.
    async fn add_events(&mut self, news: &RunNews, text: &mut String) {
        if news.next <= self.next {
            return;
        }
        let first = news.recent.front().map_or(news.next, |event| event.number);
        if self.next < first {
            // They are not in the feed any more.
            if let Ok(tail) = self.service.events_from(self.run, self.next, PayloadAmount::Preview).await {
                self.next = tail.next.max(self.next);
                text.extend(tail.events.iter().map(|event| text_of(&EventText::of(event))));
            }
            return;
        }
        text.extend(news.recent.iter().filter(|event| event.number >= self.next).map(|event| text_of(event)));
        self.next = news.next;
    }

    /// The row of the run, and the end, behind the last event.
    fn add_run(&mut self, news: &RunNews, text: &mut String) {
        if news.is_unavailable != self.is_unavailable {
            self.is_unavailable = news.is_unavailable;
            if news.is_unavailable {
                text.push_str(&event("reset", None, &ResetJson { reason: "unavailable".into() }));
            }
        }
        if let Some((run, changes)) = news.run.as_ref().filter(|(_, changes)| *changes > self.run_changes) {
            self.run_changes = *changes;
            text.push_str(&event("run", None, &**run));
        }
        let Some(end) = news.end.filter(|_| self.next >= news.next) else { return };
        self.is_over = true;
        let status = news.run.as_ref().map_or("", |(run, _)| run.status.as_str());
        text.push_str(&match end {
            FeedEnd::RunEnded => event("end", None, &EndJson { status: status.into() }),
            FeedEnd::RunDeleted => {
                event("reset", None, &ResetJson { reason: ProblemCode::NotFound.to_string() })
            }
        });
    }
}

fn text_of(text: &EventText) -> String {
    event_of_json("event", Some(&text.number.to_string()), &text.json)
}
