//! `GET /metrics`: metrics in the text format of Prometheus.
//!
//! Three sources: what this process counted about the world ([`Client::metrics`](outlast::Client::metrics)), what the
//! world knows, and what the server counted. Label values are registered names, at most 200 per label, routes of the table,
//! statuses and reasons. Ids are never labels.

mod process;
mod queues;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use outlast_api::ProblemCode;
use parking_lot::Mutex;

use crate::reply::Reply;
use crate::state::{AppState, ServerState};

use text::MetricsText;

/// The upper bounds of the buckets of durations, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// The methods that are label values. A route that accepts every method would have as many as its senders invent.
const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];

/// What the server counts.
#[derive(Debug, Default)]
pub(crate) struct HttpMetrics {
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// The number of requests, by method, route and status.
    requests: BTreeMap<(&'static str, &'static str, u16), u64>,
    /// Durations, by method and route.
    durations: BTreeMap<(&'static str, &'static str), Durations>,
    /// Requests that were refused before their handler, by reason.
    auth_failures: BTreeMap<&'static str, u64>,
    /// Requests to webhooks, by outcome.
    webhooks: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug, Default)]
struct Durations {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

impl HttpMetrics {
    /// Counts a request of a route.
    pub(crate) fn request(&self, method: &str, route: &'static str, status: u16, time: Duration) {
        let method = METHODS.iter().find(|known| **known == method).copied().unwrap_or("other");
        let seconds = time.as_secs_f64();
        let mut counted = self.counted.lock();
        *counted.requests.entry((method, route, status)).or_default() += 1;
        let durations = counted.durations.entry((method, route)).or_default();
        durations.count += 1;
        durations.seconds += seconds;
        for (bucket, bound) in durations.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= bound);
        }
    }

    /// Counts what became of a request to a webhook.
    pub(crate) fn webhook(&self, outcome: &'static str) {
        *self.counted.lock().webhooks.entry(outcome).or_default() += 1;
    }

    /// Counts a request that was refused because of its caller.
    pub(crate) fn refused(&self, code: &str) {
        let reasons = [
            ProblemCode::Unauthenticated,
            ProblemCode::Forbidden,
            ProblemCode::ReadOnly,
            ProblemCode::CrossOrigin,
            ProblemCode::WrongHost,
            ProblemCode::RateLimited,
        ];
        if let Some(reason) = reasons.into_iter().find(|reason| reason.as_str() == code) {
            *self.counted.lock().auth_failures.entry(reason.as_str()).or_default() += 1;
        }
    }

    fn write(&self, text: &mut MetricsText) {
        let counted = self.counted.lock();
        text.family("outlast_http_requests_total", "counter", "Requests that were answered.");
        for ((method, route, status), count) in &counted.requests {
            let status = status.to_string();
            let labels = [("method", *method), ("route", route), ("status", &status)];
            text.sample("outlast_http_requests_total", &labels, *count as f64);
        }
        let name = "outlast_http_request_duration_seconds";
        text.family(name, "histogram", "The time until the head of the response.");
        for ((method, route), durations) in &counted.durations {
            let labels = [("method", *method), ("route", *route)];
            text.histogram(name, &labels, &BUCKETS, &durations.buckets, durations.count, durations.seconds);
        }
        text.family(
            "outlast_auth_failures_total",
            "counter",
            "Requests that were refused because of their caller.",
        );
        for (reason, count) in &counted.auth_failures {
            text.sample("outlast_auth_failures_total", &[("reason", reason)], *count as f64);
        }
        text.family("outlast_webhook_requests_total", "counter", "Requests to webhooks.");
        for (outcome, count) in &counted.webhooks {
            text.sample("outlast_webhook_requests_total", &[("outcome", outcome)], *count as f64);
        }
    }
}

pub(crate) async fn handler(State(state): State<AppState>) -> Reply {
    let mut text = MetricsText::default();
    for family in state.service.client().metrics() {
        text.whole_family(&family);
    }
    state.write_world(&mut text).await;
    state.metrics.write(&mut text);
    text.family("outlast_http_live_connections", "gauge", "Open live streams.");
    for (topic, count) in state.live.permits.by_topic() {
        text.sample("outlast_http_live_connections", &[("topic", topic)], count as f64);
    }
    process::write(&mut text);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text.finish()).into_response())
}

impl ServerState {
    /// What the world knows; nothing of it if it does not respond.
    async fn write_world(&self, text: &mut MetricsText) {
        if let Ok(counts) = self.service.counts().await {
            text.family("outlast_runs", "gauge", "Runs by status.");
            for (status, count) in &counts.counts {
                text.sample("outlast_runs", &[("status", status)], *count as f64);
            }
            text.family("outlast_marked_runs", "gauge", "Runs by mark.");
            for (mark, count) in &counts.marks {
                text.sample("outlast_marked_runs", &[("mark", mark)], *count as f64);
            }
        }
        if let Ok(workers) = self.service.workers().await {
            let mut by_status = BTreeMap::from([("draining", 0_u64), ("working", 0)]);
            for worker in &workers.items {
                let status = if worker.status == "draining" { "draining" } else { "working" };
                *by_status.entry(status).or_default() += 1;
            }
            text.family("outlast_workers", "gauge", "Joined workers by status.");
            for (status, count) in by_status {
                text.sample("outlast_workers", &[("status", status)], count as f64);
            }
        }
        match self.service.queues().await {
            Ok(queues) => queues::write(text, &queues.items, self.service.now().0),
            Err(problem) => tracing::debug!(problem = problem.detail, "the queues cannot be counted"),
        }
    }
}
