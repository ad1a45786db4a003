//! The ledger: what steps did to the world outside, and whether they were allowed to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use outlast::StepContext;
use outlast_core::{Clock, Event, OpNumber, RunId};

use super::coverage::Situation;
use super::node::Node;
use super::stage::{Stage, short};

/// What the steps of one process reach.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) stage: Arc<Stage>,
    pub(super) node: Arc<Node>,
}

/// Every attempt that was begun and ended.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// In which holds, and by whom, each attempt was begun.
    pub(super) begun: BTreeMap<(RunId, OpNumber, u32), Vec<(u64, String)>>,
    /// What attempts returned.
    pub(super) returned: BTreeMap<(RunId, OpNumber), BTreeSet<u64>>,
    /// The attempt that sent each heartbeat, by what its details are.
    details: BTreeMap<u64, (RunId, OpNumber, u32)>,
    last: u64,
}

impl Ledger {
    /// How many attempts were begun, and how many of them were repeated.
    pub(super) fn count(&self) -> (u64, u64) {
        let all: usize = self.begun.values().map(Vec::len).sum();
        (all as u64, (all - self.begun.len()) as u64)
    }
}

impl Stage {
    /// The run whose worker attempts a step, and the operation there: a queued step is a run of its own.
    async fn home(&self, run: RunId, op: OpNumber) -> (RunId, OpNumber) {
        let history = self.history(run).await;
        let mut events = history.iter().flat_map(|turn| &turn.events);
        let queued = events.find_map(|event| match event {
            Event::StepStarted { op: asked, queued: Some(queued), .. } if *asked == op => Some(queued.run),
            _ => None,
        });
        queued.map_or((run, op), |step| (step, OpNumber(0)))
    }
}

impl Desk {
    /// An attempt begins: its effect on the world outside cannot be taken back.
    pub(super) async fn begin(&self, cx: &StepContext<Self>, is_at_most_once: bool, is_shielded: bool) {
        let asked = self.stage.clock.elapsed();
        self.node.pass().await;
        let (run, op, attempt) = (cx.run(), cx.op(), cx.attempt());
        let stage = &self.stage;
        let home = stage.home(run, op).await;
        let hold = (stage.witness.lock().holds(home.0), self.node.name.clone());
        stage.note(&self.node.name, format_args!("attempt {attempt} at {}/{op} begins", short(run)));
        if let Some(wrong) = self.judge(cx, home, asked).await {
            stage.wrong(format!("attempt {attempt} at step {op} of run {run}: {wrong}"));
        }
        // A queued step's own run is not shielded: whoever cancels it means the step.
        let is_shielded = is_shielded && home.0 == run;
        let knows_of_cancel = self.knows_of_cancel(home, asked).await;
        if !is_shielded && knows_of_cancel {
            stage.wrong(format!("attempt {attempt} at step {op} of run {run} begins after the cancel"));
        }
        if is_shielded && knows_of_cancel {
            stage.saw(Situation::ShieldedAfterCancel);
        }
        if let Some(wrong) = self.judge_details(cx, home).await {
            stage.wrong(format!("attempt {attempt} at step {op} of run {run}: {wrong}"));
        }
        let mut ledger = stage.ledger.lock();
        let begun = ledger.begun.entry((run, op, attempt)).or_default();
        // One that was told to stop before it began may belong to an earlier hold.
        let is_again = begun.contains(&hold) && !cx.is_cancelled() && !stage.is_earnest;
        begun.push(hold);
        let is_second = begun.len() > 1 || attempt > 1;
        drop(ledger);
        if is_again {
            stage.wrong(format!("attempt {attempt} at step {op} of run {run} was made twice in one hold"));
        }
        if is_at_most_once && is_second {
            stage.wrong(format!("step {op} of run {run} was attempted more than once"));
        }
    }

    /// What history says against an attempt that begins now.
    async fn judge(
        &self,
        cx: &StepContext<Self>,
        (run, op): (RunId, OpNumber),
        asked: Duration,
    ) -> Option<String> {
        let attempt = cx.attempt();
        let history = self.stage.history(run).await;
        let events = || history.iter().flat_map(|turn| &turn.events).filter(|event| event.op() == Some(op));
        if !events().any(|event| matches!(event, Event::StepStarted { .. })) {
            return Some("it was not announced".into());
        }
        if attempt > 1 {
            let retried = events().find_map(|event| match event {
                Event::StepRetried { attempt: failed, retry_at, .. } if failed + 1 == attempt => {
                    Some(*retry_at)
                }
                _ => None,
            });
            let Some(retry_at) = retried else { return Some("the failure before it is not recorded".into()) };
            if self.stage.clock.now() < retry_at && !self.stage.profile.has_jumps {
                return Some(format!("it is not due before {retry_at}"));
            }
        }
        let is_over =
            events().any(|event| matches!(event, Event::StepCompleted { .. } | Event::StepFailed { .. }));
        if is_over && self.holds(run) {
            return Some("its outcome is recorded already".into());
        }
        // One that was under way when the worker learned of the drop may begin at that moment.
        let dropped = history.iter().find(|turn| turn.events.contains(&Event::StepDropped { op }));
        let witness = self.stage.witness.lock();
        let known =
            dropped.and_then(|turn| witness.answered.get(&(turn.id, self.node.name.clone())).copied());
        let is_late = known.is_some_and(|known| asked > known + Duration::from_millis(1));
        (is_late && !cx.is_cancelled()).then(|| "it was dropped before".into())
    }

    /// What is wrong with the details that an attempt has from an earlier one.
    async fn judge_details(&self, cx: &StepContext<Self>, (run, op): (RunId, OpNumber)) -> Option<String> {
        let (stage, attempt) = (&self.stage, cx.attempt());
        let history = stage.history(run).await;
        let recorded = history.iter().flat_map(|turn| &turn.events).find_map(|event| match event {
            Event::StepRetried { op: retried, attempt: failed, details, .. }
                if *retried == op && failed + 1 == attempt =>
            {
                details.as_ref()?.decode::<u64>().ok()
            }
            _ => None,
        });
        let Some(got) = cx.last_details::<u64>() else {
            return recorded.map(|recorded| format!("it did not get the details {recorded}"));
        };
        let given = stage.ledger.lock().details.get(&got).copied();
        match given {
            // Its worker was lost, or gave the run up.
            Some(given) if given == (cx.run(), cx.op(), attempt) => {
                stage.saw(Situation::DetailsOfLoss);
                None
            }
            Some((by, of, failed)) if (by, of, failed + 1) == (cx.run(), cx.op(), attempt) => {
                stage.saw(Situation::DetailsOfFailure);
                (recorded != Some(got))
                    .then(|| format!("it got the details {got}, and {recorded:?} are recorded"))
            }
            other => Some(format!("it got the details {got}, which {other:?} gave")),
        }
    }

    /// An attempt says how far it has come, in a way that no other does.
    pub(super) async fn beat(&self, cx: &StepContext<Self>) {
        self.node.pass().await;
        let mut ledger = self.stage.ledger.lock();
        ledger.last += 1;
        let details = ledger.last;
        ledger.details.insert(details, (cx.run(), cx.op(), cx.attempt()));
        drop(ledger);
        cx.heartbeat(details);
    }

    /// Whether this process knew, when an attempt began, that the run was cancelled. From rules 2 on no attempt
    /// begins then, unless it is shielded.
    async fn knows_of_cancel(&self, (run, _): (RunId, OpNumber), asked: Duration) -> bool {
        let history = self.stage.history(run).await;
        let started = history.first().and_then(|turn| turn.events.first());
        if !matches!(started, Some(Event::RunStarted(started)) if started.rules >= 2) {
            return false;
        }
        let is_cancel = |event: &Event| matches!(event, Event::CancelRequested { .. });
        let Some(told) = history.iter().find(|turn| turn.events.iter().any(is_cancel)) else { return false };
        let witness = self.stage.witness.lock();
        let known = witness.answered.get(&(told.id, self.node.name.clone())).copied();
        known.is_some_and(|known| asked > known + Duration::from_millis(1))
    }

    /// Whether this process holds the run.
    fn holds(&self, run: RunId) -> bool {
        let witness = self.stage.witness.lock();
        let holder = witness.runs.get(&run).and_then(|seen| seen.holder);
        holder.is_some_and(|holder| self.node.has_had(holder) && !witness.gone.contains(&holder))
    }

    /// An attempt ends well; answers what it returns, which no other attempt does.
    pub(super) async fn end(&self, cx: &StepContext<Self>) -> u64 {
        self.node.pass().await;
        let mut ledger = self.stage.ledger.lock();
        ledger.last += 1;
        let token = ledger.last;
        ledger.returned.entry((cx.run(), cx.op())).or_default().insert(token);
        drop(ledger);
        self.stage.note(&self.node.name, format_args!("attempt at {}/{} ends", short(cx.run()), cx.op()));
        token
    }
}
