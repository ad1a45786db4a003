//! Forking runs: new runs with the events of earlier ones.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::marker::PhantomData;

use outlast_core::limits::{FORK_OUTPUTS_MAX, PAYLOAD_BYTES_MAX};
use outlast_core::{
    Event, Fork, ForkOrigin, ForkPlan, ForkPoint, Headers, HookAddress, MessageBody, NewMessage, OpNumber,
    OperationKind, Outcome, Payload, RunId, RunStarted, RunView, Start, Status, TurnRecord, WorldError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BoxedCall, Client, RunHandle, check_bytes};
use crate::error::{Error, ErrorKind};
use crate::ids;

impl Client {
    /// Starts a new run with the events of another one, which is not changed: all before an [event](ForkCall::at), or
    /// all before the outcome of an operation, which gets [another one](ForkCall::with_output). Await the returned
    /// builder, or call [`dry_run`](ForkCall::dry_run) to see what would run again.
    ///
    /// The new run continues there with the code that its worker has now, so it is a way to try another outcome, or to
    /// rescue a run that the code cannot continue: fork it before the event where the code differs. Steps that have
    /// completed before the cut do not run again, and recorded values, times and random numbers are the same. What is
    /// open at the cut is asked for again as the fork's own: steps have all their attempts, under keys of the new run;
    /// waits have their full time; queued steps start as new runs, and so do children that had not begun.
    ///
    /// The history of the fork begins with the generation of the cut: what a replay skips is not copied, and stays in the
    /// history of the other run.
    ///
    /// The fork has the version, queue, priority, headers and tags of the other run. Its key, parent and deadline are
    /// not copied, nor are streams and unread messages. Compensations of copied steps are not the fork's: the other run
    /// undoes what it did. [`RunView::forked_from`](crate::RunView::forked_from) names the other run, and so does the
    /// tag `outlast:forked_from`, by which lists find the forks of a run.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::OpNumber;
    ///
    /// #[step]
    /// async fn rate(currency: String) -> Result<u64, StepError> {
    ///     # let _ = currency;
    ///     Ok(110)
    /// }
    ///
    /// #[workflow]
    /// async fn convert(ctx: Context, euros: u64) -> Result<u64, Error> {
    ///     let rate = ctx.step(rate, "USD").await?;
    ///     Ok(euros * rate / 100)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register((convert, rate)).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start(convert, 50).await?;
    /// assert_eq!(run.output().await?, 55);
    ///
    /// // What if the rate had been 120?
    /// let fork = run.fork().with_output(OpNumber(0), &120).await?;
    /// assert_eq!(fork.output().await?, 60);
    /// assert_eq!(fork.view().await?.forked_from(), Some(run.id()));
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run. `Conflict`, with the reason and often with the event at which a fork is
    /// possible, if it cannot be forked there: there is no such event or operation, or its history is deleted; the run
    /// had ended or compensates there; an open child has begun; it holds a token there; a step that is attempted at most
    /// once would be attempted again, and the fork is not [forced](ForkCall::force); or it is a queued step or a run of
    /// the engine. `Invalid` if neither an event nor an output is given, or both, `Limit` if an output is too large, and
    /// `Unavailable` if the world does not respond.
    pub fn fork<O>(&self, run: RunId) -> ForkCall<'_, O> {
        ForkCall {
            client: self,
            run,
            id: None,
            at: None,
            outputs: BTreeMap::new(),
            invalid: None,
            is_forced: false,
            output: PhantomData,
        }
    }
}

/// A call that forks a run; created by [`Client::fork`]. Await it to start the new run.
#[must_use = "nothing starts until the call is awaited"]
#[derive(Debug)]
pub struct ForkCall<'a, O> {
    client: &'a Client,
    run: RunId,
    id: Option<RunId>,
    at: Option<u64>,
    outputs: BTreeMap<OpNumber, Payload>,
    /// Why an output cannot be stored.
    invalid: Option<Error>,
    is_forced: bool,
    output: PhantomData<fn() -> O>,
}

impl<O> ForkCall<'_, O> {
    /// Copies the events before this one, as numbered by [`events`](Client::events). The number of events of a run that
    /// has not ended copies all of them.
    pub fn at(mut self, event: u64) -> Self {
        self.at = Some(event);
        self
    }

    /// Replaces the outcome of an operation: the output of a step or child, the payload of a hook, or a recorded value.
    /// Everything after the recorded outcome is dropped. Can be called for several operations that were open at the same
    /// time; then everything after the earliest of these outcomes is dropped. An operation that is still open gets the
    /// outcome as well.
    pub fn with_output<T: Serialize + ?Sized>(mut self, op: OpNumber, output: &T) -> Self {
        match Payload::json(output) {
            Ok(output) => drop(self.outputs.insert(op, output)),
            Err(error) => self.invalid = Some(error.into()),
        }
        self
    }

    /// Allows that steps are attempted again that are attempted at most once. Check first whether they had their effect.
    pub fn force(mut self) -> Self {
        self.is_forced = true;
        self
    }

    /// Sets the id of the new run. A repeated call with the same id changes nothing, and returns the same run. If the run
    /// with this id is not what the call would start, that is a `Conflict` which says where that run comes from.
    pub fn id(mut self, id: RunId) -> Self {
        self.id = Some(id);
        self
    }

    /// Returns what the call would do, and changes nothing.
    ///
    /// # Errors
    ///
    /// As [`Client::fork`].
    pub async fn dry_run(self) -> Result<ForkPlan, Error> {
        let mut call = self;
        call.invalid.take().map_or(Ok(()), Err)?;
        call.plan().await
    }

    async fn plan(&self) -> Result<ForkPlan, Error> {
        let (client, run) = (self.client, self.run);
        let ops: Vec<_> = self.outputs.keys().copied().collect();
        let point = match self.at {
            Some(_) if !ops.is_empty() => {
                return Err(Error::invalid(
                    "a fork is at an event or has outputs, and not both; leave one out",
                ));
            }
            None if ops.is_empty() => {
                return Err(Error::invalid("a fork needs an event, or the output of an operation"));
            }
            Some(at) => ForkPoint::At(at),
            None => ForkPoint::Outputs(&ops),
        };
        if ops.len() > FORK_OUTPUTS_MAX {
            let message =
                format!("the fork has {} outputs, the limit is {FORK_OUTPUTS_MAX}; fork the fork", ops.len());
            return Err(Error::of_world(&WorldError::limit(message)));
        }
        self.check_run(&client.run(run).await?)?;
        let history = client.history_without_payloads(run).await?;
        let plan = ForkPlan::of(&history, point, self.is_forced);
        let plan = plan.map_err(|refusal| self.refused(&refusal.to_string()))?;
        self.check_children(&plan).await?;
        Ok(plan)
    }

    fn check_run(&self, view: &RunView) -> Result<(), Error> {
        if let Some(parent) = view.parent.filter(|_| view.is_queued_step()) {
            let reason = format!("it is a queued step; fork run {}, which requested it", parent.run);
            return Err(self.refused(&reason));
        }
        if view.is_built_in() {
            return Err(self.refused("it belongs to the engine, and its effects would happen twice"));
        }
        Ok(())
    }

    /// Refuses the fork if an open child has begun: it is another run's. Those that have not are started for the fork.
    async fn check_children(&self, plan: &ForkPlan) -> Result<(), Error> {
        for child in plan.children() {
            let Some(run) = child.run else { continue };
            if self.client.has_begun_so_far(run).await? {
                let before = plan.requested_at(child.op).unwrap_or_default();
                let reason = format!(
                    "operation {} is open there, and its child {run} has begun; fork at event {before} or an earlier \
                     one, or give the child another output",
                    child.op
                );
                return Err(self.refused(&reason));
            }
        }
        Ok(())
    }

    fn refused(&self, reason: &str) -> Error {
        Error::of_world(&WorldError::conflict(format!("run {} cannot be forked there: {reason}", self.run)))
    }

    /// The outputs as they are stored.
    fn encoded_outputs(&self) -> Result<BTreeMap<OpNumber, Payload>, Error> {
        let mut encoded = BTreeMap::new();
        for (op, output) in &self.outputs {
            let payload = self.client.codec.encode(output.clone())?;
            check_bytes(&format!("the output of operation {op}"), payload.bytes().len(), PAYLOAD_BYTES_MAX)?;
            encoded.insert(*op, payload);
        }
        Ok(encoded)
    }

    /// The digest of the outputs, by which a repeated call is recognized; `None` if there are none.
    fn digest(&self) -> Option<String> {
        let hex = |digest: u128| format!("{digest:032x}");
        let each: Vec<_> = self.outputs.iter().map(|(op, output)| (op.0, hex(output.digest()))).collect();
        let all = Payload::json(&each).ok().filter(|_| !each.is_empty())?;
        Some(hex(all.digest()))
    }

    /// Whether the run with the given id exists, and is what this call starts.
    ///
    /// # Errors
    ///
    /// `Conflict` if it is something else.
    async fn is_started(&self, id: RunId) -> Result<bool, Error> {
        let client = self.client;
        let first = match client.repeat(|| client.world.history(id, 0, 1)).await {
            Ok(turns) => turns.into_iter().flat_map(|turn| turn.events).next(),
            Err(WorldError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let origin = match first {
            Some(Event::RunStarted(started)) => started.forked,
            _ => None,
        };
        let run = self.run;
        let why = match origin {
            None => format!("is not a fork of run {run}"),
            Some(origin) if self.asks_for(&origin).await? => return Ok(true),
            Some(origin) => {
                let outputs = if origin.digest.is_some() { ", with other outputs" } else { "" };
                format!("is a fork of run {} at event {}{outputs}", origin.of, origin.at)
            }
        };
        let message = format!("run {id} exists, and {why}; use another id");
        Err(Error::of_world(&WorldError::conflict(message)))
    }

    /// Whether this call starts a fork with this origin.
    async fn asks_for(&self, origin: &ForkOrigin) -> Result<bool, Error> {
        if origin.of != self.run || origin.digest != self.digest() {
            return Ok(false);
        }
        match self.at {
            Some(at) if at != origin.at => match self.plan().await {
                // The event may be one that a retry of the run has made ineffective.
                Ok(plan) => Ok(plan.at == origin.at),
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => Ok(false),
                Err(error) => Err(error),
            },
            _ => Ok(true),
        }
    }

    async fn call(mut self) -> Result<RunHandle<O>, Error>
    where
        O: DeserializeOwned,
    {
        self.invalid.take().map_or(Ok(()), Err)?;
        let (client, run, id) = (self.client, self.run, self.id.unwrap_or_else(ids::run));
        if self.id.is_some() && self.is_started(id).await? {
            return Ok(client.handle(id));
        }
        let plan = self.plan().await?;
        let outputs = self.encoded_outputs()?;
        let actor = client.actor.as_ref().map(ToString::to_string);
        let origin = ForkOrigin { digest: self.digest(), ..plan.origin(run, actor) };
        let turns = client.turns_at(run, plan.rewrites()).await?;
        let fork = Fork {
            start: start_of_fork(id, &plan, run),
            rewritten: plan.rewrite(turns, &origin, &outputs),
            ranges: plan.ranges().to_vec(),
            copied: plan.copied(),
            replay_from: plan.replay_from(),
            continued: plan.continued(),
            messages: messages(id, &plan, outputs),
            origin,
        };
        client.repeat(|| client.world.fork(fork.clone())).await?;
        if self.id.is_some() {
            // Another caller may have started something else with this id in the meantime.
            self.is_started(id).await?;
        }
        Ok(client.handle(id))
    }
}

impl Client {
    /// Whether a worker has executed a run, which may not have ended.
    async fn has_begun_so_far(&self, run: RunId) -> Result<bool, Error> {
        match self.run(run).await {
            Ok(view) if view.status == Status::Pending => {
                Ok(self.repeat(|| self.world.event_count(run)).await? > 1)
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => self.has_begun(run).await,
        }
    }

    /// The turns of a run that begin with these events.
    async fn turns_at(&self, run: RunId, first_events: &[u64]) -> Result<Vec<TurnRecord>, Error> {
        let mut turns = Vec::new();
        for first in first_events {
            let page = self.repeat(|| self.world.history(run, *first, 1)).await?;
            let turn = page.into_iter().find(|turn| turn.seq == *first);
            turns.push(turn.ok_or_else(|| Error::of_world(&outlast_core::refusal::not_forkable(run)))?);
        }
        Ok(turns)
    }
}

/// The row of a fork.
fn start_of_fork(id: RunId, plan: &ForkPlan, of: RunId) -> Start {
    let RunStarted { workflow, version, rules, queue, priority, headers, ending, .. } =
        plan.started().clone();
    Start {
        run: id,
        turn: ids::turn(),
        workflow,
        version,
        rules,
        queue,
        priority,
        key: None,
        input: Payload::null(),
        headers,
        tags: plan.tags(of),
        parent: None,
        not_before: None,
        deadline: None,
        policy: None,
        requester: None,
        ending,
    }
}

/// The messages with the outcomes of operations, in the order of the recorded ones. Recorded values have none.
fn messages(run: RunId, plan: &ForkPlan, mut outputs: BTreeMap<OpNumber, Payload>) -> Vec<NewMessage> {
    let body = |op: OpNumber, kind: OperationKind, name: &str, output: Payload| match kind {
        OperationKind::Step => {
            Some(MessageBody::Attempted { events: vec![Event::StepCompleted { op, output }] })
        }
        OperationKind::Child => Some(MessageBody::ChildEnded { op, outcome: Outcome::Completed(output) }),
        OperationKind::Hook => {
            Some(MessageBody::Hook { name: name.into(), payload: output, to: HookAddress::default() })
        }
        _ => None,
    };
    let planned = plan
        .outputs
        .iter()
        .filter_map(|planned| body(planned.op, planned.kind?, &planned.name, outputs.remove(&planned.op)?));
    let message = |body| NewMessage { id: ids::message(), run, body, headers: Headers::new() };
    planned.map(message).collect()
}

impl<'a, O: DeserializeOwned + 'static> IntoFuture for ForkCall<'a, O> {
    type Output = Result<RunHandle<O>, Error>;
    type IntoFuture = BoxedCall<'a, RunHandle<O>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
