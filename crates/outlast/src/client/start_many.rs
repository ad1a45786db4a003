//! Starting many runs at once.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use outlast_core::limits::BATCH_STARTS_MAX;
use outlast_core::{IntoDuration, Payload, Start, Started, Timestamp};
use serde::Serialize;

use super::retry::wrong_answer_count;
use super::start::StartTemplate;
use super::{BoxedFuture, Client, RunHandle};
use crate::authoring::input::Input;
use crate::authoring::workflow::WorkflowHandle;
use crate::error::Error;

impl Client {
    /// Starts one run per input, with few calls to the world. Await the returned builder.
    ///
    /// The results are in the order of the inputs. A start that is refused does not affect the others.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn invoice(ctx: Context, order: u64) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let orders = 0..2_500_u64;
    /// let started = client
    ///     .start_many(invoice, orders)
    ///     .keys(|order| format!("invoice-{order}"))
    ///     .tag("month", "2026-02")
    ///     .await;
    /// for (order, run) in started.into_iter().enumerate() {
    ///     if let Err(error) = run {
    ///         println!("order {order}: {error}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Each result is an error as described for [`start`](Self::start). If the world does not respond, the remaining
    /// results are `Unavailable`; with keys you can repeat the whole call.
    pub fn start_many<H, M, B>(
        &self,
        workflow: H,
        inputs: impl IntoIterator<Item = B>,
    ) -> StartManyCall<'_, H::Input, B, H::Output>
    where
        H: WorkflowHandle<M>,
        B: Input<H::Input>,
    {
        let check_input = |input: B| {
            let checked = input.with(|input| workflow.check(input));
            (input, checked)
        };
        StartManyCall {
            client: self,
            template: StartTemplate::of(&workflow),
            inputs: inputs.into_iter().map(check_input).collect(),
            keys: Vec::new(),
            types: PhantomData,
        }
    }
}

/// A call that starts many runs; created by [`Client::start_many`]. Await it to start them.
#[must_use = "nothing starts until the call is awaited"]
pub struct StartManyCall<'a, I, B, O> {
    client: &'a Client,
    template: StartTemplate,
    /// The inputs, each with the result of the workflow's check.
    inputs: Vec<(B, Result<(), Error>)>,
    /// One key per input, or none at all.
    keys: Vec<String>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, B: Input<I>, O> StartManyCall<'_, I, B, O> {
    /// Sets a key for each start; see [`StartCall::key`](crate::StartCall::key). Two equal inputs with the same key are
    /// one run.
    pub fn keys<K: Into<String>>(mut self, key: impl Fn(&I) -> K) -> Self {
        self.keys = self.inputs.iter().map(|(input, _)| input.with(|input| key(input).into())).collect();
        self
    }

    /// Adds a tag to every run; see [`StartCall::tag`](crate::StartCall::tag).
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.template.add_tag(name.into(), value.into());
        self
    }

    /// Sets the queue of every run; see [`StartCall::queue`](crate::StartCall::queue).
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.template.queue = queue.into();
        self
    }

    /// Sets the priority of every run; see [`StartCall::priority`](crate::StartCall::priority).
    pub fn priority(mut self, priority: u8) -> Self {
        self.template.priority = priority;
        self
    }

    /// Delays every run by a duration; see [`StartCall::after`](crate::StartCall::after).
    pub fn after(mut self, delay: impl IntoDuration) -> Self {
        self.template.set_delay(delay);
        self
    }

    /// Delays every run until a given time; see [`StartCall::at`](crate::StartCall::at).
    pub fn at(mut self, moment: Timestamp) -> Self {
        self.template.set_start(moment);
        self
    }

    /// Sets a deadline for every run, counted from now; see [`StartCall::deadline`](crate::StartCall::deadline).
    pub fn deadline(mut self, time: impl IntoDuration) -> Self {
        self.template.set_time_limit(time);
        self
    }

    /// Sets a deadline for every run, at a given time; see [`StartCall::deadline_at`](crate::StartCall::deadline_at).
    pub fn deadline_at(mut self, moment: Timestamp) -> Self {
        self.template.set_deadline(moment);
        self
    }

    /// Adds a header to every run; see [`StartCall::header`](crate::StartCall::header).
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.template.add_header(name.into(), value.into());
        self
    }
}

impl<I: Serialize, B: Input<I>, O> StartManyCall<'_, I, B, O> {
    async fn call(mut self) -> Vec<Result<RunHandle<O>, Error>> {
        let mut inputs = std::mem::take(&mut self.inputs).into_iter();
        let mut keys = std::mem::take(&mut self.keys).into_iter();
        let count = inputs.len();
        let mut runs = Vec::with_capacity(count);
        while runs.len() < count {
            let batch = inputs.by_ref().take(BATCH_STARTS_MAX);
            let made: Vec<_> = batch
                .map(|(input, checked)| {
                    let key = keys.next();
                    checked.and_then(|()| input.with(|input| self.start(input, key)))
                })
                .collect();
            let starts = made.iter().filter_map(|start| start.as_ref().ok()).cloned().collect();
            let request = |starts| self.client.world.start(starts);
            let mut answers = match self.client.repeat_each(starts, request).await {
                Ok(answers) => answers.into_iter(),
                Err(error) => {
                    // Do not send the other batches to a world that does not respond.
                    runs.resize_with(count, || Err(Error::of_world(&error)));
                    return runs;
                }
            };
            runs.extend(made.into_iter().map(|made| {
                let start = made?;
                let started = answers.next().unwrap_or_else(|| Err(wrong_answer_count(0, 1)));
                let Started { run, is_new } = started?;
                if is_new {
                    self.client.local.metrics.run_started(&start.workflow, &start.queue);
                }
                debug_assert!(!is_new || run == start.run, "a new run has the id that was made for it");
                Ok(RunHandle::new(self.client, run, is_new))
            }));
        }
        runs
    }

    fn start(&self, input: &I, key: Option<String>) -> Result<Start, Error> {
        self.template.start(self.client, Payload::json(input)?, key)
    }
}

impl<'a, I, B, O> IntoFuture for StartManyCall<'a, I, B, O>
where
    I: Serialize + 'a,
    B: Input<I> + Send + Sync + 'a,
    O: 'static,
{
    type Output = Vec<Result<RunHandle<O>, Error>>;
    type IntoFuture = BoxedFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}

impl<I, B, O> fmt::Debug for StartManyCall<'_, I, B, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StartManyCall({} of {:?})", self.inputs.len(), self.template)
    }
}
