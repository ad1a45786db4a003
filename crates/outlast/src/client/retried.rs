//! Continuing runs that have failed, from the operation that failed.

use std::future::IntoFuture;

use outlast_core::limits::REASON_BYTES_MAX;
use outlast_core::{
    Event, MessageBody, MessageId, NewMessage, OpNumber, PlannedOperation, Reopen, RetryPlan, RunId, RunView,
    Status, Timestamp, TokenHash, TurnRecord, WorldError,
};

use super::control::Controlled;
use super::{ACTOR_HEADER, BoxedCall, Client, check_bytes};
use crate::error::Error;
use crate::ids;
use crate::worker::read_all::read_inbox;

impl Client {
    /// Continues a run that has failed, or was cancelled, from the operation that failed. Await the returned builder, or
    /// call [`dry_run`](RetryCall::dry_run) to see what would run again.
    ///
    /// The run keeps its id, history, key and tags. The operation whose error the workflow returned is open again: a
    /// step has all its attempts again, a wait its full time. Operations that were open when it failed are open again as
    /// well. Steps that have completed do not run again; what the workflow did after that operation is forgotten. A
    /// failure that the workflow handled is never the one that is opened.
    ///
    /// A queued step that is open starts again as a new run, and so does a child that failed. A child with a key is
    /// adopted instead: retry the child first, then its parent.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// use outlast::{Controlled, Status};
    ///
    /// # static BANK: AtomicBool = AtomicBool::new(false);
    /// #[step(retry = "none")]
    /// async fn charge(cents: u64) -> Result<u64, StepError> {
    ///     # if BANK.swap(true, Ordering::Relaxed) { return Ok(cents) }
    ///     Err(StepError::msg("the bank is closed"))
    /// }
    ///
    /// # #[workflow] async fn pay(ctx: Context, cents: u64) -> Result<u64, Error> { ctx.step(charge, cents).await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register((pay, charge)).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start(pay, 42).await?;
    /// assert!(run.output().await.is_err());
    ///
    /// // The next day, when the bank is open:
    /// let plan = client.retry(run.id()).dry_run().await?;
    /// assert_eq!(plan.steps().map(|step| &*step.name).collect::<Vec<_>>(), ["charge"]);
    /// assert_eq!(client.retry(run.id()).await?, Controlled::Requested);
    /// assert_eq!(run.output().await?, 42);
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run. `Conflict`, with the reason, if the run cannot be retried: it has not failed;
    /// its failure did not come from an operation and none is [named](RetryCall::from); its compensations have run; its
    /// end has cancelled children that had begun; another run holds a token that it held, or has taken over its key; a step that is attempted at most once would be attempted again, and the
    /// retry is not [forced](RetryCall::force); messages that it has sent are not delivered yet; or it is a queued step.
    /// `Invalid` if its deadline has passed, `Limit` if the reason is longer than 4 KiB, `Unavailable` if the world does
    /// not respond.
    pub fn retry(&self, run: RunId) -> RetryCall<'_> {
        RetryCall {
            client: self,
            run,
            message: ids::message(),
            from: None,
            deadline: None,
            is_forced: false,
            reason: String::new(),
        }
    }
}

/// A call that continues a failed run; created by [`Client::retry`]. Await it to retry the run.
#[must_use = "the run is not retried until the call is awaited"]
#[derive(Clone, Debug)]
pub struct RetryCall<'a> {
    client: &'a Client,
    run: RunId,
    message: MessageId,
    from: Option<OpNumber>,
    deadline: Option<Timestamp>,
    is_forced: bool,
    reason: String,
}

impl RetryCall<'_> {
    /// Sets the operation that is open again, as listed by [`operations`](Client::operations): a step, timer, hook or
    /// child of the current generation. Everything that happened after its end is forgotten.
    pub fn from(mut self, op: OpNumber) -> Self {
        self.from = Some(op);
        self
    }

    /// Sets the deadline of the run. By default it keeps the one that it has.
    pub fn deadline(mut self, deadline: Timestamp) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Allows that steps are attempted again that are attempted at most once. Check first whether they had their effect.
    pub fn force(mut self) -> Self {
        self.is_forced = true;
        self
    }

    /// Sets the reason, which the history records.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets the id of the request. A repeated call with the same id changes nothing.
    pub fn id(mut self, id: MessageId) -> Self {
        self.message = id;
        self
    }

    /// Returns what the call would do, and changes nothing.
    ///
    /// # Errors
    ///
    /// As [`Client::retry`].
    pub async fn dry_run(self) -> Result<RetryPlan, Error> {
        let view = self.client.run(self.run).await?;
        self.check_run(&view)?;
        let (plan, _) = self.plan().await?;
        Ok(plan)
    }

    async fn call(self) -> Result<Controlled, Error> {
        let Self { client, run, .. } = self;
        check_bytes("the reason", self.reason.len(), REASON_BYTES_MAX)?;
        let view = client.run(run).await?;
        if !view.status.is_final() && client.is_retried(&view).await? {
            return Ok(Controlled::Already);
        }
        self.check_run(&view)?;
        let (plan, deadline) = self.plan().await?;
        let deadline = self.deadline.or(deadline);
        let actor = client.actor.iter().map(|actor| (ACTOR_HEADER.to_owned(), actor.to_string()));
        let request = plan.request(deadline, self.is_forced, self.reason);
        let reopen = Reopen {
            message: NewMessage {
                id: self.message,
                run,
                body: MessageBody::Retry(Box::new(request)),
                headers: actor.collect(),
            },
            events: plan.events,
            replay_from: plan.replay_from,
            deadline,
        };
        client.repeat(|| client.world.reopen(reopen.clone())).await?;
        Ok(Controlled::Requested)
    }

    fn check_run(&self, view: &RunView) -> Result<(), Error> {
        if !matches!(view.status, Status::Failed | Status::Cancelled) {
            let reason = "only a run that has failed or was cancelled can be retried";
            return Err(refused(self.run, &format!("it is {}; {reason}", view.shown_status())));
        }
        if let Some(parent) = view.parent.filter(|_| view.is_queued_step()) {
            let reason = format!("it is a queued step; retry run {}, which requested it", parent.run);
            return Err(refused(self.run, &reason));
        }
        Ok(())
    }

    /// What the retry does, and the deadline that the run has.
    async fn plan(&self) -> Result<(RetryPlan, Option<Timestamp>), Error> {
        let history = self.client.history_without_payloads(self.run).await?;
        self.check_key(&history).await?;
        let plan = RetryPlan::of(&history, self.from, self.is_forced);
        let mut plan = plan.map_err(|refusal| refused(self.run, &refusal.to_string()))?;
        self.check_cancelled_children(&mut plan).await?;
        self.check_reopened_child(&mut plan).await?;
        self.check_tokens(&mut plan).await?;
        Ok((plan, deadline_of(&history)))
    }

    /// Refuses the retry if another run has taken over the key of the run: one run has a key at a time. A schedule could not
    /// be found by its name any more.
    async fn check_key(&self, history: &[TurnRecord]) -> Result<(), Error> {
        let first = history.first().and_then(|turn| turn.events.first());
        let Some(Event::RunStarted(started)) = first else { return Ok(()) };
        let Some(key) = &started.key else { return Ok(()) };
        if self.client.run(self.run).await?.key.is_some() {
            return Ok(());
        }
        let reason = format!("its key \"{key}\" names another run since then; restart it instead");
        Err(refused(self.run, &reason))
    }

    /// Refuses the retry if the end of the run has cancelled a child that had begun. Those that had not are started again.
    async fn check_cancelled_children(&self, plan: &mut RetryPlan) -> Result<(), Error> {
        for child in &plan.cancelled_children {
            if self.client.has_begun(child.run).await? {
                let reason = format!(
                    "its end has cancelled child {} (operation {}), which had begun; restart it instead",
                    child.run, child.op
                );
                return Err(refused(self.run, &reason));
            }
        }
        let open: Vec<OpNumber> = plan.open.iter().map(|open| open.op).collect();
        plan.restarts.retain(|op| open.contains(op));
        Ok(())
    }

    /// Refuses the retry if another run holds a token that the run would hold. Others are taken again, unless the run
    /// still has them.
    async fn check_tokens(&self, plan: &mut RetryPlan) -> Result<(), Error> {
        let mut again = Vec::new();
        for planned in std::mem::take(&mut plan.tokens) {
            let hash = TokenHash::of(&planned.token);
            let view = self.client.repeat(|| self.client.world.token(hash)).await?;
            match view {
                Some(view) if view.run != self.run && view.is_open => {
                    let reason = format!(
                        "its token for hook `{}` (operation {}) is taken by run {}; retry it when that run has closed the \
                         hook or ended, or restart it",
                        planned.hook, planned.op, view.run
                    );
                    return Err(refused(self.run, &reason));
                }
                Some(view)
                    if (view.run, view.op) == (self.run, planned.op)
                        && planned.is_taken
                        && !planned.is_closed => {}
                _ => again.push(planned),
            }
        }
        plan.tokens = again;
        Ok(())
    }

    /// Decides whether the child of the reopened operation is started again or adopted.
    async fn check_reopened_child(&self, plan: &mut RetryPlan) -> Result<(), Error> {
        let Some(PlannedOperation { op, run: Some(child), key, kind, .. }) = plan.reopened().cloned() else {
            return Ok(());
        };
        if kind != outlast_core::OperationKind::Child || plan.restarts.contains(&op) {
            return Ok(());
        }
        let Some(key) = key else {
            plan.restarts.push(op);
            return Ok(());
        };
        match self.client.run(child).await.map(|view| view.status) {
            Ok(status @ (Status::Failed | Status::Cancelled)) => {
                let reason =
                    format!("its child {child} with the key \"{key}\" is {status}; retry the child first");
                Err(refused(self.run, &reason))
            }
            Ok(_) => Ok(()),
            // Its key is free again.
            Err(error) if error.kind() == crate::ErrorKind::NotFound => {
                plan.restarts.push(op);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Client {
    /// Whether a run that has not ended was retried since it ended last.
    async fn is_retried(&self, view: &RunView) -> Result<bool, Error> {
        let unread = self.repeat(|| read_inbox(&*self.world, view.id, view.consumed)).await?;
        if unread.iter().any(|message| matches!(message.body, MessageBody::Retry(_))) {
            return Ok(true);
        }
        let history = self.history_without_payloads(view.id).await?;
        let mut events = history.iter().flat_map(|turn| &turn.events);
        Ok(events.any(|event| matches!(event, Event::RunRetried(_))))
    }

    /// Whether a worker has executed a run. A run that was cancelled or terminated before that has no decisions.
    pub(super) async fn has_begun(&self, run: RunId) -> Result<bool, Error> {
        let view = match self.run(run).await {
            Err(error) if error.kind() == crate::ErrorKind::NotFound => return Ok(false),
            view => view?,
        };
        if view.status == Status::Completed || view.status == Status::Failed {
            return Ok(true);
        }
        let first = self.repeat(|| self.world.history(run, 0, 2)).await?;
        let mut events = first.iter().flat_map(|turn| &turn.events);
        let is_end = |event: &Event| matches!(event, Event::RunCancelled { .. });
        Ok(!view.status.is_final() || events.any(|event| event.is_decision() && !is_end(event)))
    }
}

/// The deadline of a run: that of its last retry, or of its start.
fn deadline_of(history: &[TurnRecord]) -> Option<Timestamp> {
    let mut events = history.iter().rev().flat_map(|turn| turn.events.iter().rev());
    events.find_map(|event| match event {
        Event::RunRetried(retried) => Some(retried.deadline),
        Event::RunContinued(continued) => Some(continued.started.deadline),
        Event::RunStarted(started) => Some(started.deadline),
        _ => None,
    })?
}

/// The error of a run that cannot be retried.
fn refused(run: RunId, reason: &str) -> Error {
    Error::of_world(&WorldError::conflict(format!("run {run} cannot be retried: {reason}")))
}

impl<'a> IntoFuture for RetryCall<'a> {
    type Output = Result<Controlled, Error>;
    type IntoFuture = BoxedCall<'a, Controlled>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
