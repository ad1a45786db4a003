//! The operations of the built-in workflow of schedules.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use outlast_core::{EndPlan, Headers, OpNumber, ParentEnd, Payload, Policy, RunId, Tags, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::authoring::context::Context;
use crate::error::Error;
use crate::replay::state::{NewChildRun, NewStep};
use crate::replay::{ChildOptions, OpHandle};
use crate::schedule::scheduled_at;

/// A firing that is about to be started.
pub(crate) struct NewFiring<'a> {
    pub(crate) workflow: &'a str,
    pub(crate) version: u32,
    pub(crate) queue: &'a str,
    pub(crate) priority: u8,
    /// The input, before the codec.
    pub(crate) input: Payload,
    pub(crate) key: String,
    pub(crate) tags: Tags,
    pub(crate) headers: Headers,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) ending: Option<Box<EndPlan>>,
}

/// A firing that was started. It completes when the firing has ended.
pub(crate) struct StartedFiring {
    handle: OpHandle,
    run: RunId,
}

impl StartedFiring {
    pub(crate) fn op(&self) -> OpNumber {
        self.handle.op
    }

    pub(crate) fn run(&self) -> RunId {
        self.run
    }
}

impl Future for StartedFiring {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.handle.poll(cx).map_ok(drop)
    }
}

impl Context {
    /// Returns the instant for which a [schedule](crate::Client::schedule) started this run, without jitter and however
    /// late the firing was. It is `None` if no schedule started the run. The children of a firing return its instant,
    /// since they inherit its headers.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn report(ctx: Context) -> Result<String, Error> {
    ///     let night = ctx.scheduled_at().unwrap_or(ctx.now());
    ///     Ok(format!("the report of {night}"))
    /// }
    /// ```
    pub fn scheduled_at(&self) -> Option<Timestamp> {
        scheduled_at(self.headers())
    }

    /// The key of the run.
    pub(crate) fn key(&self) -> Option<&str> {
        self.run_state().key()
    }

    /// Starts a firing. It continues when the schedule ends, and the schedule learns how it ends.
    #[track_caller]
    pub(crate) fn start_firing(&self, new: NewFiring<'_>) -> StartedFiring {
        let NewFiring { workflow, version, queue, priority, input, key, tags, headers, deadline, ending } =
            new;
        let state = self.run_state();
        let child = NewChildRun { workflow, version, queue: Some(queue), priority, ending };
        let handle = state.create_child(child, Some(Ok(input)), false);
        state.set_child_key(handle.op, key);
        state.set_on_parent_end(handle.op, ParentEnd::Abandon);
        state.set_child_options(handle.op, ChildOptions { headers, tags, deadline });
        let run = state.child_run(handle.op);
        StartedFiring { handle, run }
    }

    /// A firing that an earlier generation started; `None` if it has ended before.
    #[track_caller]
    pub(crate) fn carried_firing(
        &self,
        op: OpNumber,
    ) -> Option<impl Future<Output = Result<(), Error>> + Send + 'static> {
        let handle = self.run_state().carried_child(op)?;
        Some(std::future::poll_fn(move |cx| handle.poll(cx).map_ok(drop)))
    }

    /// Asks a firing to stop.
    pub(crate) fn cancel_firing(&self, op: OpNumber) {
        self.run_state().cancel_op(op);
    }

    /// Computes the input of a firing by a queued step. It completes with the output of the step, without the codec.
    #[track_caller]
    pub(crate) fn firing_input<I: Serialize>(
        &self,
        step: &str,
        queue: &str,
        input: &I,
    ) -> impl Future<Output = Result<Payload, Error>> + Send + 'static {
        let state = self.run_state().clone();
        let queue: Option<Arc<str>> = Some(queue.into());
        let new = NewStep { name: step.into(), was: &[], policy: Policy::DEFAULT, call: None, queue };
        let input = state.step_input(input);
        let handle = state.create_stored_step(new, input, false);
        let step = step.to_owned();
        std::future::poll_fn(move |cx| {
            let stored = ready!(handle.poll(cx))?;
            let json = ready!(handle.decode::<Box<RawValue>>("step", &step, stored))?;
            Poll::Ready(Ok(Payload::from_json_text(json.get().to_owned())))
        })
    }
}
