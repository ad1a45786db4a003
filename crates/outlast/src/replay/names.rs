//! Names that a workflow uses: their limits, and the prefixes that are reserved for the engine.

use outlast_core::limits::NAME_BYTES_MAX;
use outlast_core::queue::{BUILT_IN_PREFIX, check_name};
use outlast_core::{Failure, FailureKind};

use super::state::NewStep;

/// The failure of a hook whose name is not valid. Only built-in workflows have hooks with reserved names.
pub(super) fn hook_problem(workflow: &str, name: &str) -> Option<Failure> {
    name_problem("hook", name).filter(|_| !workflow.starts_with(BUILT_IN_PREFIX))
}

/// The failure of a step whose name is not valid. The steps of a worker are checked when they are registered: some belong
/// to the engine.
pub(super) fn step_problem(new: &NewStep) -> Option<Failure> {
    let reserved = if new.call.is_some() { check_name("step", &new.name).err() } else { None };
    let reserved = reserved.map(|problem| Failure::new(FailureKind::Invalid, problem));
    reserved.or_else(|| name_problem("step", &new.name))
}

/// The failure of an operation whose name is not valid.
pub(super) fn name_problem(what: &str, name: &str) -> Option<Failure> {
    if name.is_empty() {
        return Some(Failure::new(FailureKind::Invalid, format!("a {what} needs a name")));
    }
    if what != "step"
        && let Err(problem) = check_name(what, name)
    {
        return Some(Failure::new(FailureKind::Invalid, problem));
    }
    (name.len() > NAME_BYTES_MAX).then(|| {
        let message = format!(
            "the name of {what} `{}…` has {} bytes, the limit is {NAME_BYTES_MAX}; shorten it",
            name.chars().take(20).collect::<String>(),
            name.len()
        );
        Failure::new(FailureKind::Limit, message)
    })
}
