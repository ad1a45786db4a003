//! Turns that leave their batch, so that its other turns are answered without waiting for them, and are retried
//! separately.
//!
//! Blocked turns, which need a row that another transaction has locked, are retried together with turns that contend for
//! the same run. Turns that the world refuses for another temporary reason, such as a full disk, form one group.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::turn::BasedOn;
use outlast_core::{RunId, RunSet, Turn, WorldError};
use tokio::sync::oneshot;

use super::queue::contended_run;
use super::{BACKOFF, CommitAnswer, Committer, Leader, START_PAUSES_MAX, TurnResult, is_final};
use crate::clock::{monotonic, pause_before_retry};

/// Turns that are retried together. Those that contend for the same run would only wait for each other if each were
/// retried alone.
#[derive(Debug)]
pub(super) struct SeparateGroup {
    pub(super) run: RunId,
    /// Whether that run's row is locked, and not the rows of the turns' own runs: several turns are blocked, and no
    /// turn of the batch that contends for the run was written.
    pub(super) is_run_locked: bool,
    turns: Vec<Turn>,
    answers: Vec<oneshot::Sender<CommitAnswer>>,
}

impl SeparateGroup {
    /// Groups turns by the run that they contend for. `written` are the runs that written turns of the batch contended
    /// for.
    pub(super) fn by_run(blocked: Vec<(Turn, oneshot::Sender<CommitAnswer>)>, written: &RunSet) -> Vec<Self> {
        let mut groups: BTreeMap<RunId, Self> = BTreeMap::new();
        for (turn, answer) in blocked {
            let run = contended_run(&turn);
            let (turns, answers) = (Vec::new(), Vec::new());
            let group = groups.entry(run).or_insert(Self { run, is_run_locked: false, turns, answers });
            group.turns.push(turn);
            group.answers.push(answer);
            group.is_run_locked = group.turns.len() > 1 && !written.contains(&run);
        }
        groups.into_values().collect()
    }

    /// The group of turns that the world refuses; `None` if there are none.
    pub(super) fn of_refused(refused: Vec<(Turn, oneshot::Sender<CommitAnswer>)>) -> Option<Self> {
        let (turns, answers): (Vec<Turn>, Vec<_>) = refused.into_iter().unzip();
        let run = turns.first()?.run;
        Some(Self { run, is_run_locked: false, turns, answers })
    }
}

/// The runs that the written turns of a batch contended for, if other turns of the batch were blocked; otherwise empty.
pub(super) fn written_runs(contended: &[RunId], results: &[TurnResult]) -> RunSet {
    if !results.iter().any(|result| matches!(result, TurnResult::Blocked(_))) {
        return RunSet::default();
    }
    let is_written = |result: &TurnResult| matches!(result, TurnResult::Answered(Ok(_)));
    contended.iter().zip(results).filter(|(_, result)| is_written(result)).map(|(run, _)| *run).collect()
}

/// Keeps turns that contend for a run out of the batches until this is dropped, because a group of blocked turns is
/// being retried for it.
pub(super) struct SeparateRetry {
    committer: Arc<Committer>,
    run: RunId,
}

impl SeparateRetry {
    pub(super) fn begin(committer: Arc<Committer>, run: RunId) -> Self {
        committer.queue.lock().begin_separate_retry(run);
        Self { committer, run }
    }
}

impl Drop for SeparateRetry {
    /// Admits the turns that had to wait. If a commit is possible now, spawns a leader for them: otherwise they would
    /// wait until another turn arrives.
    fn drop(&mut self) {
        let mut queue = self.committer.queue.lock();
        queue.end_separate_retry(self.run);
        if queue.leaders < self.committer.commit_concurrency && queue.has_batch() {
            queue.leaders += 1;
            drop(queue);
            let committer = self.committer.clone();
            self.committer.runtime.spawn(async move { Leader(committer).lead().await });
        }
    }
}

impl Committer {
    /// Commits a group of turns outside of the batches, and repeats that until each has a final result. The world waits
    /// for the locks that block them. A start is given up after some tries.
    ///
    /// Until the first response, `separate_retry` keeps other turns that contend for the same run out of the batches.
    /// Otherwise these turns would block each batch, which would block the next one.
    pub(super) async fn commit_separately(
        self: Arc<Self>,
        group: SeparateGroup,
        mut separate_retry: Option<SeparateRetry>,
    ) {
        let SeparateGroup { mut turns, mut answers, .. } = group;
        let (mut backoff, began) = (BACKOFF, monotonic());
        while !turns.is_empty() {
            tokio::select! {
                biased;
                () = self.lost.cancelled() => return,
                () = pause_before_retry(&mut backoff) => {}
            }
            let mut results = match self.world.commit(self.session, &turns).await {
                Ok(results) => results,
                Err(error) => vec![Err(error); turns.len()],
            };
            drop(separate_retry.take());
            self.settings.meter.turns.add(results.iter().filter(|result| result.is_ok()).count() as u64);
            let missing = || Err(WorldError::Corrupt("the world returned too few results".into()));
            results.resize_with(turns.len(), missing);
            self.record_refusals(&turns, &results, began);
            let (mut left, mut left_answers) = (Vec::new(), Vec::new());
            for ((turn, answer), result) in turns.into_iter().zip(answers).zip(results) {
                let is_given_up =
                    backoff.pauses() > START_PAUSES_MAX && matches!(turn.based_on, BasedOn::Start(_));
                if is_final(&result) || is_given_up {
                    self.uncommitted.answered(turn.run, result.is_ok());
                    // The receiver may be gone; the turn is committed anyway.
                    let _ = answer.send(result);
                } else {
                    left.push(turn);
                    left_answers.push(answer);
                }
            }
            (turns, answers) = (left, left_answers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::tests::{sends, turn};
    use super::*;

    #[test]
    fn blocked_turns_that_send_to_one_run_are_retried_together() {
        let turns = [sends(2, 1), turn(7, true), sends(3, 1), turn(8, true)];
        let blocked = turns.map(|turn| (turn, oneshot::channel().0)).into();
        let runs = |group: SeparateGroup| group.turns.iter().map(|turn| turn.run.bits()).collect::<Vec<_>>();
        let groups = SeparateGroup::by_run(blocked, &RunSet::default());
        assert_eq!(groups.iter().map(|group| group.is_run_locked).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(groups.into_iter().map(runs).collect::<Vec<_>>(), [vec![2, 3], vec![7], vec![8]]);
        let blocked = [sends(2, 1), sends(3, 1)].map(|turn| (turn, oneshot::channel().0)).into();
        let groups = SeparateGroup::by_run(blocked, &RunSet::from_iter([RunId::from_bits(1)]));
        assert!(!groups[0].is_run_locked, "another turn that sends to it was written");
    }
}
