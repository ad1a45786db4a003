//! The state of a run as text, to compare a live run with its replay.

use std::fmt::Write;

use outlast_core::Queued;

use super::children::OpenChild;
use super::operation_table::{OpKind, OperationTable, Phase, StepOp};

impl OperationTable {
    /// Everything that two replays of one history must agree on, as text.
    pub(super) fn summary(&self) -> String {
        let mut text =
            format!("next {} random {:x} cancelled {:?}\n", self.next_op, self.random, self.cancelled_at);
        if let Some(refusals) = &self.refusals {
            let _ = writeln!(text, "refused {}", refusals.count);
        }
        for (op, slot) in self.ops.iter() {
            let (kind, phase) = (self.kind_text(&slot.kind), phase_text(&slot.phase));
            let _ = writeln!(text, "{op} {kind}: {phase}");
        }
        let cancelled = self.ops.iter().filter(|(_, slot)| slot.is_cancelled);
        let cancelled: Vec<_> = cancelled.map(|(op, _)| op.0).collect();
        if !cancelled.is_empty() {
            let _ = writeln!(text, "cancelled {cancelled:?}");
        }
        let shielded = self.ops.iter().filter(|(_, slot)| slot.is_shielded);
        let shielded: Vec<_> = shielded.map(|(op, _)| op.0).collect();
        if !shielded.is_empty() {
            let _ = writeln!(text, "shielded {shielded:?}");
        }
        // Not what the ledger knows of other steps: that depends on whether it existed when they were requested.
        if let Some(ledger) = &self.compensations {
            for entry in ledger.compensations.iter() {
                let _ = writeln!(text, "compensation {entry:?}");
            }
        }
        if !self.tags.is_empty() {
            let _ = writeln!(text, "tags {:?}", self.tags);
        }
        for (op, child) in &self.children {
            let OpenChild { run, workflow, on_parent_end, is_step, .. } = child;
            let is_step = if *is_step { " step" } else { "" };
            let _ = writeln!(text, "child of {op}: {run} {workflow} {on_parent_end:?}{is_step}");
        }
        if !self.patches.is_empty() {
            let _ = writeln!(text, "patches {:?}", self.patches);
        }
        if let Some(tokens) =
            self.tokens.as_ref().map(|tokens| tokens.summary()).filter(|held| !held.is_empty())
        {
            let _ = writeln!(text, "tokens {tokens:?}");
        }
        self.hooks.summarize(&mut text);
        text
    }

    /// As [`summary`](Self::summary), for a run that compensates: everything that its history determines.
    pub(super) fn summary_of_compensations(&self) -> String {
        let mut text = format!("next {}\n", self.next_op);
        for (op, slot) in self.ops.iter() {
            let _ = writeln!(text, "{op} {}", self.kind_text(&slot.kind));
        }
        for (op, child) in &self.children {
            let _ = writeln!(text, "child of {op}: {}", child.run);
        }
        if let Some(ledger) = &self.compensations {
            for entry in ledger.compensations.iter() {
                let _ = writeln!(text, "compensation {} `{}`: {:?}", entry.op, entry.step, entry.state);
            }
        }
        text
    }

    fn kind_text(&self, kind: &OpKind) -> String {
        match kind {
            OpKind::Step(step) => {
                let StepOp { new, failed, retry_at, queued, .. } = &**step;
                let queued = queued.as_deref().map(|Queued { run, queue, priority, .. }| {
                    format!(" queued as {run} in {queue} at {priority}")
                });
                let queued = queued.unwrap_or_default();
                format!("step {} failed {failed} retry {retry_at:?}{queued}", new.name)
            }
            OpKind::Timer { fire_at, .. } => format!("timer {fire_at}"),
            OpKind::Hook { name, timeout_at, taken, .. } => {
                let taken = taken.as_ref().filter(|_| self.rules >= 2);
                let taken = taken.map(|arrival| format!(" took {}", arrival.summary())).unwrap_or_default();
                format!("hook {name} until {timeout_at:?}{taken}")
            }
            OpKind::Token(token) => format!("token for {}", token.name()),
            OpKind::Child(child) => {
                format!("child {} {} until {:?}", child.workflow, child.run, child.timeout_at)
            }
        }
    }
}

fn phase_text(phase: &Phase) -> String {
    match phase {
        Phase::Created => "created".to_owned(),
        Phase::Open => "open".to_owned(),
        Phase::Ended(Ok(output)) => format!("ended Ok({output:?})"),
        // In its stored form, which does not change when the type gets another field.
        Phase::Ended(Err(failure)) => {
            format!("ended Err({})", serde_json::to_string(failure).unwrap_or_default())
        }
    }
}
