//! Repeating calls while the world does not respond. Every call of the client passes through here, except those in a
//! transaction of the caller and those that wait for an output.

use std::future::Future;
use std::time::Duration;

use outlast_core::world::Answers;
use outlast_core::{Backoff, IntoDuration, WorldError};

use super::Client;
use crate::clock::{monotonic, pause};
use crate::ids;
use crate::worker::outage::whole_time;

/// How long a call is repeated, by default: a restart of a database takes some seconds.
pub(super) const RETRY_TIME: Duration = Duration::from_secs(10);

/// The pauses between two attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

impl Client {
    /// Returns a client of the same world whose calls are repeated for this time while the world does not respond. The
    /// default is 10 s; with zero, every call is made once.
    ///
    /// A repeated call has the same ids, so a start creates one run and a send is delivered once, with or without a
    /// key. The time applies to each request to the world; a call that needs several, such as
    /// [`explain`](Self::explain), may take longer. A request in progress is not interrupted. Calls
    /// [within](crate::StartCall::within) a transaction of the caller are never repeated, and
    /// [`output`](crate::RunHandle::output) waits for as long as it takes.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn invoice(ctx: Context, order: u64) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let client = Client::new(outlast::open("memory:").await?).retry_unavailable("30s");
    ///
    /// // For one call:
    /// let run = client.retry_unavailable("1s").start(invoice, 42).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the text is not a duration, every call of the returned client fails as `Invalid`.
    #[must_use]
    pub fn retry_unavailable(&self, time: impl IntoDuration) -> Self {
        Self { retry_time: time.into_duration(), ..self.clone() }
    }

    /// Makes a request to the world, and repeats it while it fails for a temporary reason. It must have the same ids
    /// each time, so that it takes effect once.
    pub(crate) async fn repeat<T, F>(&self, mut request: impl FnMut() -> F) -> Result<T, WorldError>
    where
        F: Future<Output = Result<T, WorldError>>,
    {
        let mut attempts = RequestAttempts::begin(self)?;
        loop {
            match request().await {
                Err(error) if error.is_transient() => {
                    self.local.metrics.world_error(&error);
                    attempts.failed(error).await?;
                }
                answer => return answer,
            }
        }
    }

    /// As [`repeat`](Self::repeat), for a request that has one answer per element: only the elements that failed for a
    /// temporary reason are repeated.
    pub(crate) async fn repeat_each<E, T, F>(
        &self,
        mut elements: Vec<E>,
        mut request: impl FnMut(Vec<E>) -> F,
    ) -> Answers<T>
    where
        E: Clone,
        F: Future<Output = Answers<T>>,
    {
        let mut attempts = RequestAttempts::begin(self)?;
        let mut answers: Vec<Option<Result<T, WorldError>>> = elements.iter().map(|_| None).collect();
        // The positions in `answers` of the elements that are left.
        let mut left: Vec<usize> = (0..elements.len()).collect();
        while !left.is_empty() {
            let found = match request(elements.clone()).await {
                Ok(found) if found.len() == left.len() => found,
                Ok(found) => return Err(wrong_answer_count(found.len(), left.len())),
                Err(error) if error.is_transient() => {
                    self.local.metrics.world_error(&error);
                    attempts.failed(error).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (mut again, mut again_left, mut failed) = (Vec::new(), Vec::new(), None);
            for ((element, position), answer) in elements.into_iter().zip(left).zip(found) {
                if let Err(error) = &answer
                    && error.is_transient()
                {
                    failed = Some(error.clone());
                    again.push(element);
                    again_left.push(position);
                }
                answers[position] = Some(answer);
            }
            (elements, left) = (again, again_left);
            if let Some(error) = failed
                && let Err(given_up) = attempts.failed(error).await
            {
                left.drain(..).for_each(|position| answers[position] = Some(Err(given_up.clone())));
            }
        }
        Ok(answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| Err(wrong_answer_count(0, 1))))
            .collect())
    }

    /// As [`repeat_each`](Self::repeat_each), for one element.
    pub(super) async fn repeat_one<E, T, F>(
        &self,
        element: E,
        request: impl FnMut(Vec<E>) -> F,
    ) -> Result<T, WorldError>
    where
        E: Clone,
        F: Future<Output = Answers<T>>,
    {
        let mut answers = self.repeat_each(vec![element], request).await?;
        answers.pop().unwrap_or_else(|| Err(wrong_answer_count(0, 1)))
    }
}

/// The attempts at one request.
struct RequestAttempts {
    count: u32,
    backoff: Backoff,
    began_at: Duration,
    time: Duration,
}

impl RequestAttempts {
    fn begin(client: &Client) -> Result<Self, WorldError> {
        let time = client.retry_time.clone().map_err(|error| WorldError::invalid(error.to_string()))?;
        Ok(Self { count: 0, backoff: BACKOFF, began_at: monotonic(), time })
    }

    /// Waits until the next attempt is due; returns the error if the time is over.
    async fn failed(&mut self, error: WorldError) -> Result<(), WorldError> {
        self.count += 1;
        let passed = monotonic().saturating_sub(self.began_at);
        let left = self.time.saturating_sub(passed);
        if left.is_zero() {
            return Err(self.give_up(error, passed));
        }
        tracing::debug!(%error, attempts = self.count, "the world is not available; the call is repeated");
        pause(self.backoff.next_pause(ids::chance()).min(left)).await;
        Ok(())
    }

    /// The error of the last attempt. The world's text may describe work that resumes by itself; this call does not.
    fn give_up(&self, error: WorldError, passed: Duration) -> WorldError {
        let tried = match self.count {
            1 => "tried once".to_owned(),
            count => format!("tried {count} times in {}", whole_time(passed)),
        };
        let WorldError::Unavailable(text) = &error else { return error };
        let extended = WorldError::unavailable(format!("{text} ({tried}: make the call again)"));
        match std::error::Error::source(&error) {
            Some(cause) => extended.caused_by(cause),
            None => extended,
        }
    }
}

pub(super) fn wrong_answer_count(answers: usize, questions: usize) -> WorldError {
    WorldError::corrupt(format!("the world returned {answers} results for {questions} requests"))
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn an_error_after_the_last_attempt_keeps_its_cause() {
        let attempts =
            RequestAttempts { count: 3, backoff: BACKOFF, began_at: Duration::ZERO, time: RETRY_TIME };
        let reset = WorldError::unavailable("connection reset");
        let last = WorldError::unavailable("no answer").caused_by(&reset);
        let error = attempts.give_up(last, Duration::from_secs(10));
        assert_eq!(error.to_string(), "no answer (tried 3 times in 10s: make the call again)");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("connection reset"));
    }
}
