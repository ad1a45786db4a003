//! The handle of an operation: what every operation future of a workflow contains.

use std::fmt;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use outlast_core::{Failure, FailureKind, IntoDuration, OpNumber, Payload};
use serde::de::DeserializeOwned;

use super::state::RunState;
use crate::error::{Error, stuck_on_unreadable};

/// The workflow's handle of an operation. Dropping it drops the operation: its outcome is no longer awaited.
pub(crate) struct OpHandle {
    pub(crate) state: Arc<RunState>,
    pub(crate) op: OpNumber,
}

impl OpHandle {
    pub(crate) fn new(state: Arc<RunState>, op: OpNumber) -> Self {
        Self { state, op }
    }

    /// Cancels the operation, as the workflow requests.
    pub(crate) fn cancel(&self) {
        self.state.cancel_op(self.op);
    }

    pub(crate) fn poll(&self, cx: &TaskContext<'_>) -> Poll<Result<Payload, Error>> {
        self.state.poll_op(self.op, cx.waker()).map_err(Error::of_failure)
    }

    /// Decodes the outcome of the operation; `kind` and `name` describe it in errors. From rules 2 on, an outcome that
    /// cannot be decoded makes the run stuck, and the operation stays pending: the code after it must not run.
    pub(crate) fn decode<T: DeserializeOwned>(
        &self,
        kind: &str,
        name: &str,
        stored: Payload,
    ) -> Poll<Result<T, Error>> {
        let decoded = self.state.codec().decode(stored).and_then(|plain| plain.decode());
        let error = match decoded {
            Ok(value) => return Poll::Ready(Ok(value)),
            Err(error) => error,
        };
        let (op, run) = (self.op, self.state.run());
        if self.state.rules() >= 2 {
            let part = if kind == "hook" { "payload" } else { "output" };
            let problem = error.cannot_be_read();
            let message = format!("the recorded {part} of {kind} `{name}` (operation {op}) {problem}");
            self.state.set_unreadable(stuck_on_unreadable(error.is_coded(), message));
            return Poll::Pending;
        }
        let message = format!("{kind} `{name}`, operation {op} of {run}: {}", error.quoting());
        Poll::Ready(Err(Error::of_failure(Failure::new(FailureKind::Invalid, message))))
    }

    /// Calls `set` with the duration. A text that is not a duration makes the operation fail instead.
    pub(crate) fn with_duration(
        &self,
        duration: impl IntoDuration,
        set: impl FnOnce(&RunState, OpNumber, Duration),
    ) {
        match duration.into_duration() {
            Ok(duration) => set(&self.state, self.op, duration),
            Err(error) => {
                self.state.fail_before_request(self.op, Failure::of_error(FailureKind::Invalid, &error));
            }
        }
    }
}

impl Drop for OpHandle {
    fn drop(&mut self) {
        self.state.drop_op(self.op);
    }
}

impl fmt::Debug for OpHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {} of {}", self.op, self.state.run())
    }
}
