//! Loops whose past a replay skips.

use std::future::{pending, poll_fn};
use std::pin::pin;

use outlast_core::limits::ITERATIONS_WITHOUT_WAIT_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::authoring::context::Context;
use crate::error::Error;

/// What follows an iteration of [`Context::iterate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<S, T> {
    /// Another iteration, with this state.
    Again(S),
    /// The loop is done, with this value.
    Done(T),
}

impl Context {
    /// Executes a loop whose past a replay skips. Each iteration gets the state of the previous one, and says what
    /// follows: [`Next::Again`] with the next state, or [`Next::Done`] with the value of the loop.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # #[step] async fn import_page(page: u64) -> Result<u64, StepError> { Ok(if page < 3 { 20 } else { 0 }) }
    /// #[derive(Default, Serialize, Deserialize)]
    /// struct Progress { page: u64, rows: u64 }
    ///
    /// #[workflow]
    /// async fn import(ctx: Context, _: ()) -> Result<u64, Error> {
    ///     ctx.iterate("pages", Progress::default(), async |ctx, mut progress| {
    ///         let rows = ctx.step(import_page, progress.page).await?;
    ///         if rows == 0 {
    ///             return Ok(Next::Done(progress.rows));
    ///         }
    ///         progress.page += 1;
    ///         progress.rows += rows;
    ///         Ok(Next::Again(progress))
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// The state is recorded at the end of each iteration, and replaces the history of the loop: a replay executes the
    /// code before the loop and the iteration that has not ended, however many have. So a million iterations cost as
    /// much per iteration as the first ones, and the [limit](outlast_core::limits::HISTORY_EVENTS_MAX) of a history
    /// counts the events since the last iteration.
    ///
    /// **Everything that an iteration needs from earlier ones must be in the state.** The closure cannot change
    /// variables around it, and what it does to them in other ways (a `Mutex`) is lost in a replay.
    ///
    /// Operations that an iteration leaves open are dropped at its end; children continue. Only the engine's view of
    /// the past is skipped: recorded outcomes, tags, payloads that no hook has taken and the answers of
    /// [`patched`](Self::patched) outlive an iteration.
    ///
    /// An iteration during which something outside of the loop is going on is executed again in a replay, and counts
    /// against the limit of the history: an operation from outside was open, code outside of the loop used the context,
    /// or a compensation that was registered in the iteration is not settled at its end ([`keep`](Self::keep)). So let
    /// nothing else run beside a loop with many iterations. Loops can be nested: the end of an outer iteration replaces
    /// all of its inner ones.
    ///
    /// # Errors
    ///
    /// The error of an iteration, which ends the loop. `Limit` if the state is too large or the name too long, `Invalid`
    /// if the state has no JSON form or the name is empty.
    pub async fn iterate<S, T, F, Fut>(&self, name: &str, state: S, body: F) -> Result<T, Error>
    where
        S: Serialize + DeserializeOwned,
        // Not `AsyncFn`: the compiler cannot prove that its futures are `Send`.
        F: Fn(Self, S) -> Fut,
        Fut: Future<Output = Result<Next<S, T>, Error>>,
    {
        let handle = self.run_state().start_loop(name)?;
        let (mut state, mut without_wait) = (state, 0);
        loop {
            match handle.resume() {
                Some(Some(recorded)) => state = recorded?,
                Some(None) => {}
                None => return pending().await,
            }
            let mut has_waited = false;
            let mut iteration = pin!(body(self.clone(), state));
            let next = poll_fn(|cx| {
                handle.enter();
                let polled = iteration.as_mut().poll(cx);
                handle.leave();
                has_waited |= polled.is_pending();
                polled
            });
            match next.await? {
                Next::Done(value) => return Ok(value),
                Next::Again(next) => match handle.end_iteration(&next) {
                    Some(decoded) => state = decoded?,
                    None => return pending().await,
                },
            }
            without_wait = if has_waited { 0 } else { without_wait + 1 };
            if without_wait > ITERATIONS_WITHOUT_WAIT_MAX {
                handle.set_hung(ITERATIONS_WITHOUT_WAIT_MAX);
                return pending().await;
            }
        }
    }
}
