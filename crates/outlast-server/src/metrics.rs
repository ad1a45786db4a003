//! `GET /metrics`: metrics in the text format of Prometheus.
//!
//! Label values are routes of the table, statuses and reasons, all of them a fixed set. Ids are never labels.

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

/// What the server counts.
#[derive(Debug, Default)]
pub(crate) struct HttpMetrics {
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// The number of requests, by method, route and status.
    requests: BTreeMap<(String, &'static str, u16), u64>,
    /// Durations, by method and route.
    durations: BTreeMap<(String, &'static str), Durations>,
    /// Requests that were refused before their handler, by reason.
    auth_failures: BTreeMap<&'static str, u64>,
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
        let seconds = time.as_secs_f64();
        let mut counted = self.counted.lock();
        *counted.requests.entry((method.to_owned(), route, status)).or_default() += 1;
        let durations = counted.durations.entry((method.to_owned(), route)).or_default();
        durations.count += 1;
        durations.seconds += seconds;
        for (bucket, bound) in durations.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= bound);
        }
    }

    /// Counts a request that was refused because of its caller.
    pub(crate) fn refused(&self, code: &str) {
        let reasons = [
            ProblemCode::Unauthenticated,
            ProblemCode::Forbidden,
            ProblemCode::ReadOnly,
            ProblemCode::CrossOrigin,
            ProblemCode::WrongHost,
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
            let labels = [("method", method.as_str()), ("route", route), ("status", &status)];
            text.sample("outlast_http_requests_total", &labels, *count as f64);
        }
        let name = "outlast_http_request_duration_seconds";
        text.family(name, "histogram", "The time until the head of the response.");
        for ((method, route), durations) in &counted.durations {
            let labels = [("method", method.as_str()), ("route", *route)];
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
    }
}

pub(crate) async fn handler(State(state): State<AppState>) -> Reply {
    let mut text = MetricsText::default();
    state.write_world(&mut text).await;
    state.metrics.write(&mut text);
    text.family("outlast_http_live_connections", "gauge", "Open live streams.");
    for (topic, count) in state.live.permits.by_topic() {
        text.sample("outlast_http_live_connections", &[("topic", topic)], count as f64);
    }
    write_process(&mut text);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text.finish()).into_response())
}

impl ServerState {
    /// What the world knows; nothing of it if it does not respond.
    async fn write_world(&self, text: &mut MetricsText) {
        let world = self.service.world();
        text.family("outlast_build_info", "gauge", "The version of the library, and the kind of the world.");
        let labels = [("version", world.library.as_str()), ("world", world.kind.as_str())];
        text.sample("outlast_build_info", &labels, 1.0);
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
    }
}

/// What the operating system knows of this process; nothing where it has no `/proc`.
fn write_process(text: &mut MetricsText) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    if let Some(kilobytes) = resident.and_then(|number| number.trim().parse::<f64>().ok()) {
        text.family("process_resident_memory_bytes", "gauge", "Resident memory.");
        text.sample("process_resident_memory_bytes", &[], kilobytes * 1_024.0);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        text.family("process_open_fds", "gauge", "Open files and sockets.");
        text.sample("process_open_fds", &[], files.count() as f64);
    }
}
