//! Handlers: they translate between HTTP and the service.

pub(crate) mod control;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod start;
pub(crate) mod streams;
pub(crate) mod webhooks;
