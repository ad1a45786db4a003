//! The program `outlast`, as a person or a script calls it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli {
    mod access;
    mod bulk;
    mod connecting;
    mod doctor;
    mod exit_codes;
    mod formats;
    mod killed_server;
    mod mcp;
    mod naming;
    mod own_program;
    mod reading;
    mod schedules;
    mod sending;
    mod serving;
    mod support;
    mod through_server;
}
