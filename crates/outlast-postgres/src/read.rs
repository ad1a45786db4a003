//! The calls that only read: histories and inboxes, views of runs and workers, pages of runs.

pub(crate) mod history;
pub(crate) mod views;

pub(crate) mod page;
pub(crate) mod records;
pub(crate) mod streams;
