//! Bulk actions that survive a crash: the same call for many runs, made by a run.
//!
//! A durable bulk action is a run of the built-in workflow `outlast:bulk` in the queue `outlast:`, which servers and
//! [workers of built-ins](crate::WorkerBuilder::only_built_ins) serve. Its query is frozen when it starts: runs that start
//! later are not concerned.
//!
//! ```text
//! order    what is done to which runs                          (order.rs)
//! page     the step: makes the calls for one page of runs, and selects the next   (page.rs)
//! workflow page after page, until the end or until it is stopped (workflow.rs)
//! progress what is published, and the output                    (progress.rs)
//! ```
//!
//! The ids of a page are recorded by the step before, so that an attempt that is repeated after a crash makes its calls for
//! the same runs. Every call is idempotent.

mod order;
mod progress;

mod page;
mod workflow;

pub(crate) use order::{BulkOrder, BulkVerb, FrozenQuery};
pub(crate) use page::{BULK_PAGE, bulk_page};
pub use progress::{BulkProblem, BulkProgress, BulkState, BulkStop};
pub(crate) use workflow::{BulkInput, bulk};

/// The name of the built-in workflow.
pub(crate) const BULK_WORKFLOW: &str = "outlast:bulk";

/// The version of the built-in workflow.
pub(crate) const BULK_VERSION: u32 = 1;

/// The hook that stops it.
pub(crate) const STOP_HOOK: &str = "outlast:stop";
