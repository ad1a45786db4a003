//! The pages.

pub(crate) mod last_hour;
pub(crate) mod problem;
pub(crate) mod queues;

pub(crate) mod runs;
pub(crate) mod search;

pub(crate) mod attempt_log;
pub(crate) mod run;
pub(crate) mod run_tabs;

pub(crate) mod audit;
pub(crate) mod failures;
pub(crate) mod fleet;
pub(crate) mod hooks;
#[cfg(debug_assertions)]
pub(crate) mod kit;
pub(crate) mod schedules;
pub(crate) mod settings;
pub(crate) mod workflows;
