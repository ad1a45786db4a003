//! One run, in the hands of whoever started it.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use outlast_core::{Failure, IntoDuration, Outcome, RunId, RunView, Status, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Cancel, Client, Explanation, SendCall, persist};
use crate::error::{Error, kind_of_payload};

/// When a waiter first looks whether the run is stuck, and how often then.
const STUCK_LOOK_FIRST: Duration = Duration::from_secs(1);
const STUCK_LOOK: Duration = Duration::from_secs(10);

/// One run, with the type of its output.
pub struct RunHandle<O> {
    client: Client,
    run: RunId,
    is_new: bool,
    output: PhantomData<fn() -> O>,
}

impl<O> RunHandle<O> {
    pub(super) fn new(client: &Client, run: RunId, is_new: bool) -> Self {
        Self { client: client.clone(), run, is_new, output: PhantomData }
    }

    /// The run's id.
    pub fn id(&self) -> RunId {
        self.run
    }

    /// Whether the start that returned this handle began the run; false when its key was known.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The run as it is now.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn view(&self) -> Result<RunView, Error> {
        self.client.run(self.run).await
    }

    /// Sends a payload to one of its hooks; see [`Client::send`].
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn send<T: Serialize + ?Sized>(&self, hook: &str, payload: &T) -> SendCall<'_> {
        self.client.send(self.run, hook, payload)
    }

    /// Asks the run to stop; see [`Client::cancel`].
    ///
    /// # Errors
    ///
    /// As [`Client::cancel`].
    pub async fn cancel(&self, reason: &str) -> Result<Cancel, Error> {
        self.client.cancel(self.run, reason).await
    }

    /// Ends the run now, without asking its code; see [`Client::terminate`].
    ///
    /// # Errors
    ///
    /// As [`Client::terminate`].
    pub async fn terminate(&self, reason: &str) -> Result<Cancel, Error> {
        self.client.terminate(self.run, reason).await
    }

    /// Ends its sleeps early; see [`Client::wake`].
    ///
    /// # Errors
    ///
    /// As [`Client::wake`].
    pub async fn wake(&self) -> Result<(), Error> {
        self.client.wake(self.run).await
    }

    /// Why the run is where it is; see [`Client::explain`].
    ///
    /// # Errors
    ///
    /// As [`Client::explain`].
    pub async fn explain(&self) -> Result<Explanation, Error> {
        self.client.explain(self.run).await
    }
}

impl<O: DeserializeOwned> RunHandle<O> {
    /// Waits for the run's end, and returns the workflow's output.
    ///
    /// A run that is stuck is not over, and may go on later: with mended code, or when it is
    /// [resumed](Client::resume). But nobody should wait for that in silence, so it is an error here.
    ///
    /// # Errors
    ///
    /// The workflow's own error when it failed; an error that [is cancelled](Error::is_cancelled)
    /// when it was cancelled; one that [is stuck](Error::is_stuck), with the reason, when the run is
    /// found stuck; `Invalid` when the output is not an `O`.
    pub async fn output(&self) -> Result<O, Error> {
        match self.outcome_until(Timestamp::NEVER).await? {
            Ok(outcome) => self.decode(outcome),
            // At the end of time.
            Err(status) => Err(self.not_in_time(status)),
        }
    }

    /// How the run ended, or its status when it has not by then. A run that is stuck is an error.
    async fn outcome_until(&self, end: Timestamp) -> Result<Result<Outcome, Status>, Error> {
        let clock = self.client.world.clock();
        let mut patience = STUCK_LOOK_FIRST;
        loop {
            // A virtual clock does not move by itself, so the time to look is now.
            let until = if clock.is_virtual() {
                self.check_not_stuck().await?;
                end
            } else {
                clock.now().plus(patience).min(end)
            };
            if let Some(outcome) = self.wait(until).await? {
                return Ok(Ok(outcome));
            }
            let status = self.check_not_stuck().await?;
            if until == end {
                return Ok(Err(status));
            }
            patience = STUCK_LOOK;
        }
    }

    fn not_in_time(&self, status: Status) -> Error {
        Error::timeout(format!("run {} has not ended in time; it is {status}, and goes on", self.run))
    }

    /// Like [`output`](Self::output), but gives up after a time.
    ///
    /// # Errors
    ///
    /// An error that [is a timeout](Error::is_timeout) when the time is over and the run goes on, or
    /// those of `output`.
    pub async fn output_within(&self, time: impl IntoDuration) -> Result<O, Error> {
        let until = self.client.world.clock().now().plus(time.into_duration()?);
        match self.outcome_until(until).await? {
            Ok(outcome) => self.decode(outcome),
            Err(status) => Err(self.not_in_time(status)),
        }
    }

    async fn check_not_stuck(&self) -> Result<Status, Error> {
        if self.client.world.hosts().hold(self.run) {
            return Ok(Status::Running);
        }
        let view = self.view().await?;
        match view.stuck.filter(|_| view.status == Status::Stuck) {
            None => Ok(view.status),
            Some(stuck) => Err(Error::stuck(format!("run {} is stuck: {}", self.run, stuck.message))),
        }
    }

    async fn wait(&self, until: Timestamp) -> Result<Option<Outcome>, Error> {
        let ended = persist(|| self.client.world.ended(self.run, until)).await?;
        Ok(ended.map(|ended| ended.outcome))
    }

    fn decode(&self, outcome: Outcome) -> Result<O, Error> {
        match outcome {
            Outcome::Completed(output) => {
                let decoded = self.client.codec.decode(output).and_then(|plain| plain.decode());
                decoded.map_err(|error| {
                    let message = format!("the output of run {}: {error}", self.run);
                    Error::of_failure(Failure::new(kind_of_payload(&error), message))
                })
            }
            Outcome::Failed(failure) | Outcome::Cancelled(failure) => Err(Error::of_failure(failure)),
        }
    }
}

impl<O> fmt::Debug for RunHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunHandle({})", self.run)
    }
}
