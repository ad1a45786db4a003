//! The check of what turns send to other runs.

use outlast_core::{MessageBody, Turn};

use super::environment::Environment;

impl Environment {
    /// A run ends only its own children and queued steps, not those of the run from which it was forked.
    pub(super) async fn check_outbox(&self, turn: &Turn) {
        let Some(outbox) = &turn.outbox else { return };
        for message in &outbox.messages {
            let (MessageBody::Cancel { reason } | MessageBody::Terminate { reason }) = &message.body else {
                continue;
            };
            // A cascade cancels the parent, and a key may name a run of another parent.
            let receiver = self.inner.run(message.run).await.ok().filter(|view| view.key.is_none());
            let Some(parent) = receiver.and_then(|view| view.parent) else { continue };
            if parent.run != turn.run && reason.starts_with("its parent") {
                let (run, receiver) = (turn.run, message.run);
                let of = parent.run;
                self.report_violation(format!("run {run} ended run {receiver} of run {of}: {reason}"));
            }
        }
    }
}
