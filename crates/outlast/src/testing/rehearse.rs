//! One run without a world or a worker, for the `Rehearsal` of `outlast-testkit`. Not part of the public API.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use outlast_core::event::{OpNumber, Outcome, RULES};
use outlast_core::queue::{default_queue, step_of_workflow};
use outlast_core::{
    Codec, Event, Failure, Headers, HookAddress, MessageId, NewReply, Outbox, Payload, PlainJson, Reply,
    Retry, RunId, RunStarted, Status, Stuck, StuckReason, Timestamp, TurnId, TurnRecord, Wait,
    WorkflowWrites,
};
use serde::de::DeserializeOwned;

use crate::authoring::register::{Register, WorkflowMark};
use crate::authoring::registry::{Registered, Registry};
use crate::authoring::workflow::{WorkflowDefinition, WorkflowFn};
use crate::error::{Error, StepError};
use crate::replay::{Delivery, FOREIGN_AWAIT_REMEDY, Machine, SentPayload, add_writes};

/// The id of every rehearsed run. It is constant, so that random numbers are the same in every test.
const RUN: RunId = RunId::from_bits(0x01bc_0000_0000_0000_0000_0000_0000_0001);

/// The public URL of the worker in tests of workflows.
pub const PUBLIC_URL: &str = "https://webhooks.example";

/// The maximum number of due times in one advance of the clock. More means an endless loop of sleeps.
const MOMENTS_MAX: usize = 10_000;

/// Parts of the panic messages of tokio when its timers, sockets or tasks are used without a runtime.
const NO_RUNTIME: [&str; 2] = ["there is no reactor running", "A Tokio 1.x context was found, but"];

/// The workflows of this code, sorted by name and version.
///
/// # Errors
///
/// `Invalid` when a workflow or step is registered twice.
pub fn workflows_of<R: Register<(), M>, M>(code: R) -> Result<Vec<(String, u32)>, Error> {
    let mut registry = Registry::new(Arc::new(()), Arc::new(PlainJson) as Arc<dyn Codec>);
    code.register(&mut registry);
    let code = registry.finish()?.code();
    let own = code.iter().filter(|code| step_of_workflow(&code.workflow).is_none());
    Ok(own.map(|code| (code.workflow.to_string(), code.version)).collect())
}

/// A run whose deliveries come from a test. It is replayed and compared after every turn.
pub struct LoneRun {
    code: Arc<Registered>,
    codec: Arc<dyn Codec>,
    machine: Machine,
    history: Vec<TurnRecord>,
    now: Timestamp,
    messages: u128,
    /// The retry policy of each step.
    retries: BTreeMap<OpNumber, Retry>,
    /// Detached children with a key, whose operations must be told that they were started.
    answers: Vec<(OpNumber, RunId)>,
    /// What the workflow has written to streams and published.
    writes: WorkflowWrites,
    /// Tokens that the run has requested, whose operations must be told that it has them.
    token_answers: Vec<OpNumber>,
    /// What the workflow has replied.
    replies: Vec<NewReply>,
}

impl LoneRun {
    /// The run that `workflow` begins with `input`, after its first turn.
    ///
    /// # Errors
    ///
    /// Why the run is stuck.
    pub fn begin<F, Args>(workflow: F, input: Payload, now: Timestamp) -> Result<Self, Stuck>
    where
        F: WorkflowFn<Args>,
    {
        let codec: Arc<dyn Codec> = Arc::new(PlainJson);
        let mut registry = Registry::new(Arc::new(()), codec.clone());
        Register::<(), WorkflowMark<Args>>::register(workflow, &mut registry);
        registry.set_public_url(PUBLIC_URL);
        let code = registry.finish().map_err(|error| stuck(error.message()))?;
        let started = RunStarted {
            workflow: <F::Definition as WorkflowDefinition>::NAME.into(),
            version: <F::Definition as WorkflowDefinition>::VERSION,
            rules: RULES,
            queue: default_queue(),
            priority: 0,
            key: None,
            input,
            headers: Default::default(),
            tags: Default::default(),
            parent: None,
            deadline: None,
            policy: None,
            requester: None,
            ending: None,
            forked: None,
        };
        let machine = Machine::new(RUN, &started, code.clone(), &codec, now)?;
        let mut run = Self {
            code,
            codec,
            machine,
            history: Vec::new(),
            now,
            messages: 0,
            retries: BTreeMap::new(),
            answers: Vec::new(),
            writes: WorkflowWrites::default(),
            token_answers: Vec::new(),
            replies: Vec::new(),
        };
        run.turn(vec![Event::from(started)], Machine::begin)?;
        run.answer()?;
        run.compensate()?;
        run.verify()?;
        Ok(run)
    }

    /// Ends an open step: with an output, or with an error that is not retried.
    ///
    /// # Errors
    ///
    /// Why the run is stuck.
    pub fn end_step(
        &mut self,
        op: OpNumber,
        step: &str,
        outcome: Result<Payload, StepError>,
    ) -> Result<(), Stuck> {
        let retry = self.retries.get(&op).copied().unwrap_or_default();
        let outcome = outcome.map_err(|error| final_failure(error, step, retry));
        self.deliver(Delivery::StepEnded { op, outcome })
    }

    /// Sends a payload to a hook. A payload that no open hook can decode is rejected, as by a worker.
    ///
    /// # Errors
    ///
    /// As [`end_step`](Self::end_step).
    pub fn receive(&mut self, hook: &str, payload: Payload, headers: Headers) -> Result<(), Stuck> {
        self.receive_at(hook, HookAddress::default(), payload, headers).map(drop)
    }

    /// As [`receive`](Self::receive), to a token, or with a sender that waits for a reply. Returns the message.
    ///
    /// # Errors
    ///
    /// As [`end_step`](Self::end_step).
    pub fn receive_at(
        &mut self,
        hook: &str,
        to: HookAddress,
        payload: Payload,
        headers: Headers,
    ) -> Result<MessageId, Stuck> {
        let (message, at) = (self.message(), self.now);
        self.deliver(Delivery::Hook(SentPayload { name: hook.into(), message, payload, headers, at, to }))?;
        Ok(message)
    }

    /// The first reply to a message, if there is one.
    pub fn reply(&self, message: MessageId) -> Option<&Reply> {
        self.replies.iter().find(|reply| reply.message == message).map(|reply| &reply.reply)
    }

    /// The name of the hook that is open under a token.
    pub fn hook_of_token(&self, token: &str) -> Option<Arc<str>> {
        self.machine.hook_of_token(token)
    }

    /// Ends a child that was started.
    ///
    /// # Errors
    ///
    /// As [`end_step`](Self::end_step).
    pub fn end_child(&mut self, op: OpNumber, outcome: Result<Payload, Error>) -> Result<(), Stuck> {
        let outcome = match outcome {
            Ok(output) => Outcome::Completed(output),
            Err(error) if error.is_cancelled() => Outcome::Cancelled(error.into_failure()),
            Err(error) => Outcome::Failed(error.into_failure()),
        };
        self.deliver(Delivery::ChildEnded { op, outcome })
    }

    /// Ends all open timers early.
    ///
    /// # Errors
    ///
    /// As [`end_step`](Self::end_step).
    pub fn wake(&mut self) -> Result<(), Stuck> {
        let message = self.message();
        self.deliver(Delivery::Wake { message, op: None, actor: None, at: self.now })
    }

    /// Cancels the run.
    ///
    /// # Errors
    ///
    /// As [`end_step`](Self::end_step).
    pub fn cancel(&mut self, reason: &str) -> Result<(), Stuck> {
        let (message, reason) = (Some(self.message()), reason.into());
        self.deliver(Delivery::Cancel { message, reason, actor: None, at: self.now })
    }

    /// Advances the time, and delivers everything that is due until then.
    ///
    /// # Errors
    ///
    /// As [`end_step`](Self::end_step).
    pub fn advance_to(&mut self, moment: Timestamp) -> Result<(), Stuck> {
        for _ in 0..MOMENTS_MAX {
            let Some(due) = self.machine.next_due().filter(|due| *due <= moment && self.ended().is_none())
            else {
                self.now = self.now.max(moment);
                return self.verify();
            };
            self.now = self.now.max(due);
            let timers = self.machine.take_due(due);
            self.turn(Vec::new(), |machine, events| {
                timers.into_iter().try_for_each(|(_, op)| machine.deliver(Delivery::Timer { op }, events))
            })?;
            self.answer()?;
            self.compensate()?;
        }
        Err(stuck(format!(
            "timers were due at {MOMENTS_MAX} times, the last at {}; \
             the workflow sleeps in a loop, so advance the time by less",
            self.now
        )))
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Its generation, from 1.
    pub fn generation(&self) -> u64 {
        self.machine.generation()
    }

    /// All turns so far.
    pub fn history(&self) -> &[TurnRecord] {
        &self.history
    }

    /// What the workflow has written to streams and published so far.
    pub fn writes(&self) -> &WorkflowWrites {
        &self.writes
    }

    /// The timers, hooks and children that it waits for.
    pub fn waits(&self) -> Vec<Wait> {
        self.machine.all_waits()
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Status> {
        self.machine.ended()
    }

    /// Whether the workflow has returned and the run only waits for children.
    pub fn is_lingering(&self) -> bool {
        self.machine.has_returned()
    }

    /// The result of the workflow, if the run has ended.
    pub fn output<O: DeserializeOwned>(&self) -> Option<Result<O, Error>> {
        let last = self.history.last().and_then(|turn| turn.events.last());
        Some(match last.and_then(Outcome::of_final)? {
            Outcome::Completed(output) => output.decode().map_err(Error::from),
            Outcome::Failed(failure) | Outcome::Cancelled(failure) => Err(Error::of_failure(failure)),
        })
    }

    fn message(&mut self) -> MessageId {
        self.messages += 1;
        MessageId::from_bits(self.messages)
    }

    fn deliver(&mut self, delivery: Delivery) -> Result<(), Stuck> {
        self.turn(Vec::new(), |machine, events| machine.deliver(delivery, events))?;
        self.answer()?;
        self.compensate()?;
        self.verify()
    }

    /// Begins the next compensation of a run that compensates, or ends it, as far as the steps that the test has not
    /// ended allow it.
    fn compensate(&mut self) -> Result<(), Stuck> {
        while self.machine.can_advance(true, self.now) {
            self.turn(Vec::new(), Machine::advance)?;
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<(), Stuck> {
        loop {
            let delivery = if let Some((op, run)) = self.answers.pop() {
                Delivery::ChildDetached { op, run }
            } else if let Some(op) = self.token_answers.pop() {
                Delivery::TokenTaken { op }
            } else {
                return Ok(());
            };
            self.turn(Vec::new(), |machine, events| machine.deliver(delivery, events))?;
        }
    }

    /// Computes a turn.
    fn turn(
        &mut self,
        mut events: Vec<Event>,
        compute: impl FnOnce(&mut Machine, &mut Vec<Event>) -> Result<(), Stuck>,
    ) -> Result<(), Stuck> {
        let seq = self.history.iter().map(|turn| turn.events.len() as u64).sum();
        self.machine.set_time(self.now);
        self.machine.set_first_event(seq);
        compute(&mut self.machine, &mut events).map_err(without_runtime)?;
        let id = TurnId::from_bits(self.history.len() as u128);
        self.history.push(TurnRecord { id, seq, at: self.now, build: "rehearsal".into(), events });
        // A detached child with a key is always new here, because no other run has the key.
        let outbox = self.machine.take_outbox(|| MessageId::from_bits(0));
        let Outbox { children, writes, tokens, replies, .. } =
            outbox.map_or_else(Outbox::default, |outbox| *outbox);
        // There are no other runs, so every token is free.
        self.token_answers.extend(tokens.taken.iter().filter(|new| new.notify).map(|new| new.op));
        self.replies.extend(replies);
        add_writes(&mut self.writes, writes);
        for child in children {
            let Some(parent) = child.start.parent else { continue };
            if step_of_workflow(&child.start.workflow).is_some() {
                let policy = child.start.policy.unwrap_or_default();
                self.retries.insert(parent.op, policy.retry());
            } else if child.notify_parent {
                self.answers.push((parent.op, child.start.run));
            }
        }
        let steps = self.machine.take_startable().into_iter();
        self.retries.extend(steps.map(|step| (step.op, step.policy.retry())));
        Ok(())
    }

    /// Replays the whole history and compares the result with the live run.
    fn verify(&self) -> Result<(), Stuck> {
        let replayed = Machine::replay(RUN, self.history.clone(), self.code.clone(), &self.codec);
        let replayed = replayed.map_err(without_runtime)?;
        let (live, again) = (self.machine.summary(), replayed.summary());
        if live == again && self.machine.ended() == replayed.ended() {
            return Ok(());
        }
        Err(stuck(format!("the run is not the same after a replay.\nlive:\n{live}\nreplayed:\n{again}")))
    }
}

impl fmt::Debug for LoneRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoneRun").field("now", &self.now).field("history", &self.history).finish()
    }
}

/// The failure of a step all of whose attempts ended with this error.
fn final_failure(error: StepError, step: &str, retry: Retry) -> Failure {
    let (failure, _) = error.into_parts();
    let is_retried = retry.pause_after(1, &failure, 0.0).is_some();
    let attempts = if is_retried { retry.attempts_max() } else { 1 };
    let is_exhausted = failure.kind.is_retryable() && retry.is_exhausted(attempts);
    let mut failure = failure.of_step(step, attempts);
    failure.is_exhausted = is_exhausted;
    failure
}

/// Reports a panic of tokio about its missing runtime as a foreign await.
fn without_runtime(stuck: Stuck) -> Stuck {
    let is_it =
        stuck.reason == StuckReason::Panicked && NO_RUNTIME.iter().any(|text| stuck.message.contains(text));
    if !is_it {
        return stuck;
    }
    let message = format!(
        "the workflow, or a function that it calls, uses tokio directly, and a rehearsal has no tokio runtime: \
         it awaits something that is not an operation of its context; {FOREIGN_AWAIT_REMEDY}"
    );
    Stuck::new(StuckReason::ForeignAwait, message)
}

pub(crate) fn stuck(message: impl Into<String>) -> Stuck {
    Stuck::new(StuckReason::Diverged, message)
}
