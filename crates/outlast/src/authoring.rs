//! What users write: workflows, steps, and the operations that a workflow awaits.
//!
//! The order for reading: [`workflow`] and [`step`] define code and its handles, [`context`] and [`operation`] are
//! what a workflow sees, [`attempt`] is what a step sees, [`register`] is what a
//! worker is given, and [`registry`] maps durable names to code.

pub(crate) mod attempt;
pub(crate) mod attempt_services;
pub(crate) mod compensation;
pub(crate) mod context;
pub(crate) mod current;
pub(crate) mod firing;
pub(crate) mod hook;
pub(crate) mod input;
pub(crate) mod iterate;
pub(crate) mod json;
pub(crate) mod open_hook;
pub(crate) mod operation;
pub(crate) mod other_runs;
mod parallel;
pub(crate) mod race;
pub(crate) mod reconcile;
pub(crate) mod register;
pub(crate) mod registry;
pub(crate) mod retry;
#[cfg(feature = "schema")]
pub(crate) mod schema;
pub(crate) mod secret;
pub(crate) mod step;
pub(crate) mod stream;
pub(crate) mod transactional;
pub(crate) mod unique;
pub(crate) mod workflow;
