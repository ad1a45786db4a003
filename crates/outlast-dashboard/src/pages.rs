//! The pages.

pub(crate) mod problem;

pub(crate) mod runs;
pub(crate) mod search;

pub(crate) mod run;
pub(crate) mod run_tabs;

pub(crate) mod failures;
pub(crate) mod fleet;
pub(crate) mod hooks;
pub(crate) mod settings;
pub(crate) mod workflows;
