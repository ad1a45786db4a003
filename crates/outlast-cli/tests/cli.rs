//! The program `outlast`, as a person or a script calls it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli {
    mod bulk;
    mod connecting;
    mod exit_codes;
    mod formats;
    mod naming;
    mod own_program;
    mod reading;
    mod support;
    mod through_server;
}
