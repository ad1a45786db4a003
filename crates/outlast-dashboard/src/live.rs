//! Live pages: streams of patches, made by the functions that also render the pages.
//!
//! A patch is an element with an id, as HTML. The first message of a stream contains all live elements of the page, so
//! a page that was loaded a while ago, or was offline, is complete again. Later messages contain what has changed.

pub(crate) mod hub;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use outlast_api::{Problem, QueryPairs, RunFilter, RunJson};
use outlast_core::{RunId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::actions::bulk_body;
use crate::app::App;
use crate::config::Admission;
use crate::login::LoginSession;
use crate::pages::last_hour::last_hour;
use crate::pages::problem::{Answer, OnSite, Refusal};
use crate::pages::run::{RunParts, RunQueryPart, run_id};
use crate::pages::runs::RunList;
use crate::pages::{failures, fleet, hooks, queues, schedules};
use crate::site::Site;
use hub::{Snapshot, Subscription};

/// How often a list is read while somebody looks at it.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// How often a run is read while somebody looks at it.
const RUN_EVERY: Duration = Duration::from_millis(500);

/// How long the picture of a run is kept that no worker holds and whose row does not change.
const PICTURE_KEPT: Duration = Duration::from_secs(10);

/// How long the picture of a run is kept that a worker holds: its history may grow without a change of its row.
const HELD_PICTURE_KEPT: Duration = Duration::from_secs(1);

/// How long a stream is silent before it says that it is still there.
const SILENCE: Duration = Duration::from_secs(15);

/// `GET /runs/live`: the first page of a list.
pub(crate) async fn runs(
    State(app): State<App>,
    session: Option<Extension<LoginSession>>,
    site: Site,
) -> Answer {
    let filter = RunFilter::from_query(&site.query).on(&site)?;
    if filter.page.cursor.is_some() || filter.text.is_some() {
        return Err(Refusal::new(&site, Problem::field("?cursor", "only the first page of a list is live")));
    }
    let key =
        format!("{} {} {} runs?{}", site.prefix, site.is_read_only, site.caller.role, filter.to_query());
    let reader = app.clone();
    let read = move || {
        let (app, site, filter) = (reader.clone(), site.clone(), filter.clone());
        async move {
            let mut site = site;
            site.now = app.service.now().0;
            let list = RunList::read(&app, filter).await?;
            let chart = ("last-hour", last_hour(&app, &site));
            let parts = [chart, ("counts", list.counts_bar(&site)), ("runs", list.table(&site))];
            Ok(Snapshot { parts: rendered(parts), rev: site.now.as_micros(), is_last: false })
        }
    };
    let subscription = app.hub.subscribe(key, LIST_EVERY, app.service.client().world().clock(), read);
    Ok(respond(&app, session.map(|session| session.0), subscription))
}

/// `GET /runs/{id}/live`.
pub(crate) async fn run(
    State(app): State<App>,
    session: Option<Extension<LoginSession>>,
    site: Site,
    Path(id): Path<String>,
) -> Answer {
    let id = run_id(&id).on(&site)?;
    let part = RunQueryPart::from_query(&site.query).on(&site)?;
    let key = format!("{} {} {} {id}?{}", site.prefix, site.is_read_only, site.caller.role, part.to_query());
    let reader = Arc::new(RunReader { app: app.clone(), site, id, part, last: Mutex::default() });
    let read = move || {
        let reader = reader.clone();
        async move { reader.read().await }
    };
    let subscription = app.hub.subscribe(key, RUN_EVERY, app.service.client().world().clock(), read);
    Ok(respond(&app, session.map(|session| session.0), subscription))
}

/// How often the other pages are read while somebody looks at them.
const PAGE_EVERY: Duration = Duration::from_secs(2);

/// `GET /hooks/live` and the like: pages whose whole content is one element.
pub(crate) async fn page(
    State(app): State<App>,
    session: Option<Extension<LoginSession>>,
    site: Site,
) -> Answer {
    let key =
        format!("{} {} {} {}?{}", site.prefix, site.is_read_only, site.caller.role, site.path, site.query);
    let reader = app.clone();
    let read = move || {
        let (app, mut site) = (reader.clone(), site.clone());
        async move {
            site.now = app.service.now().0;
            let bulk = site.path.strip_prefix("/bulk/").and_then(|rest| rest.strip_suffix("/live"));
            let body = match site.path.as_str() {
                _ if bulk.is_some() => bulk_body(&app, &site, bulk.unwrap_or_default()).await?,
                "/hooks/live" => hooks::show_body(&app, &site).await?,
                "/workers/live" => fleet::workers_body(&app, &site).await?,
                "/all-queues/live" => queues::list_body(&app, &site).await?,
                "/schedules/live" => schedules::list_body(&app, &site).await?,
                _ => failures::show_body(&app, &site).await?,
            };
            Ok(Snapshot { parts: rendered([("page", body)]), rev: site.now.as_micros(), is_last: false })
        }
    };
    let subscription = app.hub.subscribe(key, PAGE_EVERY, app.service.client().world().clock(), read);
    Ok(respond(&app, session.map(|session| session.0), subscription))
}

/// `GET /queues/{name}/live`.
pub(crate) async fn queue(
    State(app): State<App>,
    session: Option<Extension<LoginSession>>,
    site: Site,
    Path(name): Path<String>,
) -> Answer {
    app.service.queue(&name).await.on(&site)?;
    let key = format!("{} {} {} queue {name}", site.prefix, site.is_read_only, site.caller.role);
    let reader = app.clone();
    let read = move || {
        let (app, mut site, name) = (reader.clone(), site.clone(), name.clone());
        async move {
            site.now = app.service.now().0;
            let body = queues::show_body(&app, &site, &name).await?;
            Ok(Snapshot { parts: rendered([("page", body)]), rev: site.now.as_micros(), is_last: false })
        }
    };
    let subscription = app.hub.subscribe(key, PAGE_EVERY, app.service.client().world().clock(), read);
    Ok(respond(&app, session.map(|session| session.0), subscription))
}

/// Reads the page of a run again and again. As long as its row does not change, that is one lookup.
#[derive(Debug)]
struct RunReader {
    app: App,
    site: Site,
    id: RunId,
    part: RunQueryPart,
    last: Mutex<Option<(RunJson, Timestamp, Snapshot)>>,
}

impl RunReader {
    async fn read(&self) -> Result<Snapshot, Problem> {
        let (run, now) = (self.app.service.run(self.id).await?, self.app.service.now().0);
        let kept = if run.owner.is_some() { HELD_PICTURE_KEPT } else { PICTURE_KEPT };
        if let Some((known, at, snapshot)) = &*self.last.lock()
            && *known == run
            && now.since(*at) < kept
        {
            return Ok(snapshot.clone());
        }
        let mut site = self.site.clone();
        site.now = now;
        let shown = RunParts::read(&self.app, &self.site.caller, self.id, self.part.clone()).await?;
        let parts = [
            ("run-head", shown.head(&site)),
            ("why", shown.why(&site)),
            ("lines", shown.timeline_section(&site)),
            ("panel", shown.panel(&site)),
        ];
        let is_last = shown.run.ended_at.is_some();
        let snapshot = Snapshot { parts: rendered(parts), rev: now.as_micros(), is_last };
        *self.last.lock() = Some((run, now, snapshot.clone()));
        Ok(snapshot)
    }
}

fn rendered<const N: usize>(parts: [(&'static str, maud::Markup); N]) -> BTreeMap<&'static str, String> {
    parts.into_iter().map(|(id, markup)| (id, markup.into_string())).collect()
}

/// A stream of server-sent events with what changes. It ends with the session of its reader.
fn respond(app: &App, session: Option<LoginSession>, subscription: Subscription) -> Response {
    let state = (subscription, BTreeMap::new(), false);
    let app = app.clone();
    let events = stream::unfold(state, move |(mut subscription, mut sent, is_over)| {
        let (app, session) = (app.clone(), session.clone());
        async move {
            if is_over {
                return None;
            }
            let (mut text, mut is_over) =
                next_message(&mut subscription.receiver, &mut sent, &*subscription.clock).await?;
            if session.is_some_and(|session| !is_admitted(&app, &session)) {
                (text, is_over) = (event("bye", "login"), true);
            }
            Some((Ok::<_, Infallible>(Bytes::from(text)), (subscription, sent, is_over)))
        }
    });
    let mut response = Body::from_stream(events).into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Whether a session has not expired, and its key is not revoked.
fn is_admitted(app: &App, session: &LoginSession) -> bool {
    match &app.config.admission {
        Admission::Keys(keys) => {
            session.is_valid(app.service.now().0) && keys.0.caller_of_id(&session.key).is_some()
        }
        _ => true,
    }
}

/// The next message: what differs from what was sent before. `None` if the reader has stopped.
async fn next_message(
    receiver: &mut watch::Receiver<Option<Result<Snapshot, String>>>,
    sent: &mut BTreeMap<&'static str, String>,
    clock: &dyn outlast_core::Clock,
) -> Option<(String, bool)> {
    let until = clock.now().plus(SILENCE);
    let changed = outlast_core::time::event_or_time(receiver.changed(), clock.sleep_until(until)).await;
    match changed {
        Ok(Ok(())) => {}
        Ok(Err(_)) => return None,
        Err(_) => return Some((":\n\n".into(), false)),
    }
    let latest = receiver.borrow_and_update().clone()?;
    let snapshot = match latest {
        Ok(snapshot) => snapshot,
        Err(detail) => return Some((event("trouble", &detail), false)),
    };
    let mut text = String::new();
    if sent.is_empty() {
        text.push_str("retry: 2000\n");
    }
    for (id, html) in &snapshot.parts {
        if sent.get(id) != Some(html) {
            text.push_str(&event("patch", html));
            sent.insert(id, html.clone());
        }
    }
    // The revision comes last: a page that has it has everything before.
    text.push_str(&event("rev", &snapshot.rev.to_string()));
    if snapshot.is_last {
        text.push_str(&event("end", ""));
    }
    Some((text, snapshot.is_last))
}

/// One server-sent event. The data is JSON, so it has no line breaks.
fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {}\n\n", serde_json::Value::from(data))
}
