//! A handle to one run.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use outlast_core::{Backoff, Failure, IntoDuration, Outcome, RunId, RunView, Status, Timestamp, WorldError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::output_waiters::{OutputWaiter, WaitSignal};
use super::terminate::TerminateCall;
use super::{Cancel, Client, Controlled, Explanation, ForkCall, PauseCall, RestartCall, RetryCall, SendCall};
use crate::authoring::hook::HookFor;
use crate::clock::pause;
use crate::error::{Error, kind_of_payload};
use crate::ids::chance;
use crate::worker::outage::Call;

/// The pauses of a waiting caller between two calls to a world that does not respond.
const WAIT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));

/// The progress of a run, for a waiting caller.
enum RunProgress {
    Ended(Outcome),
    /// With the message.
    Stuck(String),
    /// Neither ended nor stuck when the time was over. With the status as lists show it.
    NotInTime(&'static str),
    /// Not known yet: wait on.
    Unknown,
}

/// A handle to one run, with the type of its output.
///
/// Returned by [`Client::start`], [`Client::handle`] and [`Client::find`].
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

    /// Returns the run's id.
    pub fn id(&self) -> RunId {
        self.run
    }

    /// Returns whether the start that returned this handle created the run. It is false if a run with the same key or
    /// id existed.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns the current state of the run.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Unavailable` if the world does not respond.
    pub async fn view(&self) -> Result<RunView, Error> {
        self.client.run(self.run).await
    }

    /// Sends a payload to a hook of the run; see [`Client::send`].
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn send<T: Serialize + ?Sized>(&self, hook: impl HookFor<T>, payload: &T) -> SendCall<'_> {
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

    /// Ends the run now, without its code; see [`Client::terminate`].
    ///
    /// # Errors
    ///
    /// As [`Client::terminate`].
    pub fn terminate(&self, reason: &str) -> TerminateCall<'_> {
        self.client.terminate(self.run, reason)
    }

    /// Pauses the run; see [`Client::pause`].
    ///
    /// # Errors
    ///
    /// As [`Client::pause`].
    pub fn pause(&self) -> PauseCall<'_> {
        self.client.pause(self.run)
    }

    /// Ends the pause of the run, or lets every build try it again; see [`Client::resume`].
    ///
    /// # Errors
    ///
    /// As [`Client::resume`].
    pub async fn resume(&self) -> Result<Controlled, Error> {
        self.client.resume(self.run).await
    }

    /// Continues the run from its failure; see [`Client::retry`].
    ///
    /// # Errors
    ///
    /// As [`Client::retry`].
    pub fn retry(&self) -> RetryCall<'_> {
        self.client.retry(self.run)
    }

    /// Starts a new run with the events of this one before a cut; see [`Client::fork`].
    ///
    /// # Errors
    ///
    /// As [`Client::fork`].
    pub fn fork(&self) -> ForkCall<'_, O> {
        self.client.fork(self.run)
    }

    /// Starts a new run with the workflow and input of this one; see [`Client::restart`].
    ///
    /// # Errors
    ///
    /// As [`Client::restart`].
    pub fn restart(&self) -> RestartCall<'_, O> {
        self.client.restart(self.run)
    }

    /// Ends the current sleeps of the run; see [`Client::wake`].
    ///
    /// # Errors
    ///
    /// As [`Client::wake`].
    pub async fn wake(&self) -> Result<(), Error> {
        self.client.wake(self.run).await
    }

    /// Explains why the run is in its current state; see [`Client::explain`].
    ///
    /// # Errors
    ///
    /// As [`Client::explain`].
    pub async fn explain(&self) -> Result<Explanation, Error> {
        self.client.explain(self.run).await
    }
}

impl<O: DeserializeOwned> RunHandle<O> {
    /// Waits for the end of the run, and returns the workflow's output.
    ///
    /// If the world does not respond, the call keeps waiting, however long that takes, and logs a warning: the run
    /// continues wherever workers reach the world. To give up after a time, use
    /// [`output_within`](Self::output_within).
    ///
    /// A stuck run has not ended: it resumes after a fix is deployed, or when it is [resumed](Client::resume). The call
    /// does not wait for that, but returns the reason as an error.
    ///
    /// # Errors
    ///
    /// The workflow's own error if it failed; an error that [is cancelled](Error::is_cancelled) if the run was
    /// cancelled; one that [is stuck](Error::is_stuck), with the reason, if the run is stuck; `NotFound` if there is no
    /// such run; `Invalid` if the output cannot be decoded as an `O`.
    pub async fn output(&self) -> Result<O, Error> {
        self.decode(self.outcome_until(Timestamp::NEVER).await?)
    }

    /// Like [`output`](Self::output), but with a timeout.
    ///
    /// # Errors
    ///
    /// An error that [is a timeout](Error::is_timeout) if the run has not ended by then, or the world does not
    /// respond; otherwise as `output`. A workflow that failed with a timeout of its own returns such an error too.
    pub async fn output_within(&self, time: impl IntoDuration) -> Result<O, Error> {
        let until = self.client.world.clock().now().plus(time.into_duration()?);
        self.decode(self.outcome_until(until).await?)
    }

    /// Waits for the outcome of the run until `end`. It is an error if the run has not ended by then, or is stuck.
    async fn outcome_until(&self, end: Timestamp) -> Result<Outcome, Error> {
        let (clock, outage) = (self.client.world.clock(), &self.client.outage);
        let Client { world, local, .. } = &self.client;
        let waiter = (!clock.is_virtual()).then(|| OutputWaiter::new(local, world, self.run, end));
        let mut backoff = WAIT_BACKOFF;
        loop {
            let progress = match &waiter {
                Some(waiter) => self.wait(waiter).await,
                None => self.wait_virtually(end).await,
            };
            match &progress {
                Err(error) if error.is_transient() => outage.failed(Call::Outcome, error),
                _ => outage.answered(Call::Outcome),
            }
            match progress {
                Ok(RunProgress::Ended(outcome)) => return Ok(outcome),
                Ok(RunProgress::Stuck(message)) => {
                    return Err(Error::stuck(format!("run {} is stuck: {message}", self.run)));
                }
                Ok(RunProgress::NotInTime(status)) => return Err(self.not_in_time(status)),
                Ok(RunProgress::Unknown) => backoff.reset(),
                Err(error) if error.is_transient() => {
                    let left = end.since(clock.now());
                    if left.is_zero() {
                        return Err(self.no_answer_in_time(&error));
                    }
                    pause(backoff.next_pause(chance()).min(left)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for the end of the run, or for a signal. The world notifies of the end, and one timer of the process does
    /// the rest, so that a waiting caller costs nothing.
    async fn wait(&self, waiter: &OutputWaiter<'_>) -> Result<RunProgress, WorldError> {
        let world = &self.client.world;
        let signal = tokio::select! {
            biased;
            ended = world.ended(self.run, Timestamp::NEVER) => {
                return Ok(ended?.map_or(RunProgress::Unknown, |ended| RunProgress::Ended(ended.outcome)));
            }
            signal = waiter.signal() => signal,
        };
        match signal {
            WaitSignal::ReadAgain => Ok(RunProgress::Unknown),
            WaitSignal::Stuck(message) => Ok(RunProgress::Stuck(message)),
            WaitSignal::TimedOut => match world.ended(self.run, Timestamp::from_micros(0)).await? {
                Some(ended) => Ok(RunProgress::Ended(ended.outcome)),
                None => self.progress().await,
            },
        }
    }

    /// Waits for the end of the run until a virtual clock reaches `end`. The clock does not advance by itself, so check
    /// before waiting whether the run is stuck.
    async fn wait_virtually(&self, end: Timestamp) -> Result<RunProgress, WorldError> {
        if let stuck @ RunProgress::Stuck(_) = self.progress().await? {
            return Ok(stuck);
        }
        match self.client.world.ended(self.run, end).await? {
            Some(ended) => Ok(RunProgress::Ended(ended.outcome)),
            None => self.progress().await,
        }
    }

    /// Whether a run that has not ended in time is stuck. A run that a worker of this process holds is not looked up.
    async fn progress(&self) -> Result<RunProgress, WorldError> {
        if self.client.local.hold(self.run) {
            return Ok(RunProgress::NotInTime(Status::Running.as_str()));
        }
        let view = self.client.world.run(self.run).await?;
        let shown = view.shown_status();
        let stuck = view.stuck.filter(|_| view.status == Status::Stuck);
        Ok(stuck.map_or(RunProgress::NotInTime(shown), |stuck| RunProgress::Stuck(stuck.message)))
    }

    fn not_in_time(&self, status: &str) -> Error {
        Error::timeout(format!("run {} did not finish in time; it is still {status}", self.run))
    }

    fn no_answer_in_time(&self, error: &WorldError) -> Error {
        Error::timeout(format!(
            "the world did not answer in time whether run {} has ended ({error}); workers that reach the world continue \
             the run: ask again with this handle or `client.handle(id)`",
            self.run
        ))
    }

    fn decode(&self, outcome: Outcome) -> Result<O, Error> {
        match outcome {
            Outcome::Completed(output) => {
                let decoded = self.client.codec.decode(output).and_then(|plain| plain.decode());
                decoded.map_err(|error| {
                    let message = format!("the output of run {} {}", self.run, error.cannot_be_read());
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
