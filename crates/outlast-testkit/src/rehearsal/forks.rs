//! Forks of a rehearsal.

use std::collections::BTreeMap;

use outlast_core::OpNumber;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Rehearsal, payload};

impl<O: DeserializeOwned> Rehearsal<O> {
    /// Forks the run, as [`Client::fork`](outlast::Client::fork) does: a rehearsal of a new run with the events of this one
    /// before an event, as numbered from 0 in the [history](Self::history). What is open there is asked for again. This
    /// rehearsal is not changed.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast_testkit::Rehearsal;
    /// #[step]
    /// async fn rate(currency: String) -> Result<u64, StepError> {
    ///     Err(StepError::msg(currency)) // does not run here
    /// }
    ///
    /// #[workflow]
    /// async fn convert(ctx: Context, euros: u64) -> Result<u64, Error> {
    ///     let rate = ctx.step(rate, "USD").await?;
    ///     let fee = ctx.hook::<u64>("fee").await?;
    ///     Ok(euros * rate / 100 - fee)
    /// }
    ///
    /// let mut run = Rehearsal::of(convert, 50);
    /// run.completes(rate, 110);
    /// let mut fork = run.forks_at(run.events());
    /// run.receives("fee", &1);
    /// fork.receives("fee", &2);
    /// assert_eq!((run.output().unwrap(), fork.output().unwrap()), (54, 53));
    ///
    /// // What if the rate had been 120?
    /// let mut fork = run.forks_with(0, &120);
    /// fork.receives("fee", &1);
    /// assert_eq!(fork.output().unwrap(), 59);
    /// ```
    ///
    /// # Panics
    ///
    /// When the run cannot be forked there.
    #[track_caller]
    pub fn forks_at(&self, event: u64) -> Self {
        self.forked(Ok(event))
    }

    /// As [`forks_at`](Self::forks_at), directly before the outcome of an operation, which gets another one: the output of a
    /// step or child, the payload of a hook, or a recorded value. Operations are numbered from 0.
    ///
    /// # Panics
    ///
    /// When the run cannot be forked there.
    #[track_caller]
    pub fn forks_with<T: Serialize + ?Sized>(&self, op: u64, output: &T) -> Self {
        self.forked(Err(BTreeMap::from([(OpNumber(op), payload(output))])))
    }

    /// The number of events in the history so far, which is the number of the next one.
    pub fn events(&self) -> u64 {
        self.history().last().map_or(0, |last| last.seq + last.events.len() as u64)
    }

    #[track_caller]
    fn forked(&self, point: Result<u64, BTreeMap<OpNumber, outlast_core::Payload>>) -> Self {
        match self.run.fork(point) {
            Ok(run) => Self { run, workflow: self.workflow, output: std::marker::PhantomData },
            Err(stuck) => self.fail(&format!("it cannot be forked there: {}", stuck.message)),
        }
    }
}
