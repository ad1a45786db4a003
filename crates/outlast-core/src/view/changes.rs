//! How single events change the view of an operation.

use super::{OperationKind, OperationStatus, OperationView};
use crate::event::ChildStarted;
use crate::failure::{CANCELLED_BY_WORKFLOW, Failure, FailureKind};
use crate::time::Timestamp;

pub(super) fn start_child(view: &mut OperationView, child: &ChildStarted) {
    view.child = Some(child.run);
    view.input = Some(child.input.clone());
    view.until = child.timeout_at;
    if child.is_detached && child.key.is_none() {
        view.status = OperationStatus::Abandoned;
    }
}

/// Applies a cancel by the workflow: a wait ends, and a step or child is asked to stop.
pub(super) fn cancel_operation(open: &mut OperationView, at: Timestamp) {
    open.cancelled_at = Some(at);
    open.changed_at = at;
    if matches!(open.kind, OperationKind::Timer | OperationKind::Hook) {
        open.fail(OperationStatus::Cancelled, Failure::cancelled(CANCELLED_BY_WORKFLOW), at);
    }
}

/// Ends a timer that is due, or a hook or child whose timeout is due.
pub(super) fn fire(open: &mut OperationView, at: Timestamp) {
    let name = &open.name;
    let message = match open.kind {
        OperationKind::Hook => format!("no payload arrived for hook `{name}` in time"),
        OperationKind::Child => format!("child `{name}` did not end in time; it was told to stop"),
        _ => return open.complete(None, at),
    };
    open.fail(OperationStatus::Failed, Failure::new(FailureKind::Timeout, message), at);
}
