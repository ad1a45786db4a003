//! Executes the retries and forks that arrive at the inner world, and reports them to the observer.

use std::sync::Arc;

use outlast_core::{Clock, Fork, MessageBody, Reopen, RetryRequest, Sent, Started, TurnRecord, WorldError};

use super::environment::{Environment, short_run};
use super::node::Node;
use super::retries::Reopened;

impl Environment {
    pub(super) async fn reopen(self: Arc<Self>, who: Arc<Node>, reopen: Reopen) -> Result<Sent, WorldError> {
        let run = reopen.message.run;
        let is_known = self.observer.lock().has_message(&reopen.message);
        let answer = self.inner.reopen(reopen.clone()).await;
        self.log(
            &who.name,
            format_args!("reopen {} {:?} -> {answer:?}", short_run(run), reopen.message.body),
        );
        if let (Ok(sent), MessageBody::Retry(request)) = (&answer, &reopen.message.body)
            && !is_known
        {
            let turns = self.history(run).await;
            self.record_retry(&reopen, request, &turns, sent.position);
            self.look_up_tokens().await;
        }
        answer
    }

    fn record_retry(&self, reopen: &Reopen, request: &RetryRequest, turns: &[TurnRecord], position: u64) {
        let run = reopen.message.run;
        let holds = self.observer.lock().holds(run);
        let reopened = Reopened::of(reopen, request, turns, holds);
        let mut controlled = self.controlled.lock();
        let problem = reopened.problem(turns, controlled.dry_runs.get(&reopen.message.id));
        controlled.retries.entry(run).or_default().push(reopened);
        drop(controlled);
        let problem = problem.map(|problem| format!("run {run} was reopened: {problem}"));
        let violation = self.observer.lock().reopened(&reopen.message, position, self.clock.now());
        problem.into_iter().chain(violation).for_each(|violation| self.report_violation(violation));
    }

    pub(super) async fn fork(self: Arc<Self>, who: Arc<Node>, fork: Fork) -> Result<Started, WorldError> {
        let (run, of) = (fork.start.run, fork.origin.of);
        let is_known = self.controlled.lock().forks.contains_key(&run);
        let answer = self.inner.fork(fork.clone()).await;
        let (at, outputs) = (fork.origin.at, &fork.origin.outputs);
        self.log(
            &who.name,
            format_args!("fork {} of {} at {at} {outputs:?} -> {answer:?}", short_run(run), short_run(of)),
        );
        if answer.is_ok() && !is_known {
            let turns = self.history(run).await;
            let now = self.clock.now();
            let mut observer = self.observer.lock();
            observer.began(run, turns);
            for (message, position) in fork.messages.iter().zip(1..) {
                let violation = observer.sent(message, position, now);
                debug_assert!(violation.is_none(), "a new run has no messages");
            }
            drop(observer);
            self.controlled.lock().forks.insert(run, fork);
        }
        answer
    }
}
