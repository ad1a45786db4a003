//! Durable HTTP: requests of workflows to a real server.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod http {
    mod addresses;
    mod redirects;
    mod requests;
    mod retries;
    mod server;
}
