//! Tests of the pages in process, without a browser and without JavaScript.

#![allow(clippy::unwrap_used, reason = "a test fails when its preparation fails")]

mod actions;
mod fleet;
mod hostile;
mod live;
mod login;
mod prefix;
mod schedules;
#[path = "../common/screens.rs"]
mod screen_paths;
mod screens;
mod setup;
mod webhooks;
mod worlds;
