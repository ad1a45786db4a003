//! The dashboard in a real browser: live changes, keys, zoom, hostile strings, accessibility, narrow windows.
//!
//! Tests wait on conditions of the page, such as its revision (`data-rev`), and never sleep.

#![allow(clippy::unwrap_used, reason = "a test fails when its preparation fails")]

#[path = "../common/screens.rs"]
mod screen_paths;
mod setup;

mod accessibility;
mod actions;
mod heap;
mod hostile;
mod live;
mod pictures;
mod timeline;
