//! Connections: from the URL to a statement's answer.
//!
//! A [`connector`] makes connections from the [`url`]; an [`io_runtime`] drives them on a thread of the world's own;
//! [`preflight`] checks the server before its first use; a [`database`] executes statements on a pool. The commits of a
//! worker have connections that its own runtime drives ([`session_connections`]).

pub(crate) mod database;

pub(crate) mod connector;
mod failed_stream;
pub(crate) mod io_runtime;
pub(crate) mod planner_settings;
pub(crate) mod preflight;
pub(crate) mod session_connections;

pub(crate) mod passfile;
pub(crate) mod tls;
pub(crate) mod url;
