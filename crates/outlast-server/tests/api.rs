//! The HTTP API, in process: requests go through the whole router, without a socket.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

#[path = "api/common.rs"]
mod common;

#[path = "api/access.rs"]
mod access;
#[path = "api/audit.rs"]
mod audit;
#[path = "api/bulk.rs"]
mod bulk;
#[path = "api/control.rs"]
mod control;
#[path = "api/exposition.rs"]
mod exposition;
#[path = "api/live.rs"]
mod live;
#[path = "api/metrics.rs"]
mod metrics;
#[path = "api/nesting.rs"]
mod nesting;
#[path = "api/payloads.rs"]
mod payloads;
#[path = "api/problems.rs"]
mod problems;
#[path = "api/queues.rs"]
mod queues;
#[path = "api/reading.rs"]
mod reading;
#[path = "api/schedules.rs"]
mod schedules;
#[path = "api/secrets.rs"]
mod secrets;
#[path = "api/served.rs"]
mod served;
#[path = "api/starting.rs"]
mod starting;
#[path = "api/table.rs"]
mod table;
#[path = "api/tokens.rs"]
mod tokens;
#[path = "api/webhooks.rs"]
mod webhooks;
