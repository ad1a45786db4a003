//! Races: the first success wins.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use futures_util::stream::{FuturesUnordered, StreamExt};

/// Awaits several futures concurrently, and returns the first success. Failures are collected: if all futures fail, the
/// error contains the error of each.
///
/// When a future succeeds, the others are dropped. An attempt at a step among them is asked to stop, timers and hooks
/// end, and a child continues unless it was created with
/// [`cancel_on_drop`](crate::ChildOperation::cancel_on_drop). If the outcome of a loser matters, race the operations
/// with [`select!`](crate::select), and [cancel](crate::StepOperation::cancel) and await the loser.
///
/// The futures are polled in the order of their wake-ups, which a replay repeats. Everything that they await must be
/// an operation of the run, as in the rest of a workflow. Other systems call this `any`.
///
/// ```
/// # use outlast::prelude::*;
/// # #[step] async fn quote(shop: String) -> Result<u64, StepError> {
/// #     if shop == "closed" { Err(StepError::fatal("closed")) } else { Ok(42) }
/// # }
/// #[workflow]
/// async fn any_price(ctx: Context, shops: Vec<String>) -> Result<u64, Error> {
///     // The first shop that answers; if none does, the run fails with all their errors.
///     Ok(race_ok(shops.iter().map(|shop| ctx.step(quote, shop))).await?)
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
/// # let world = outlast::open("memory:").await?;
/// # let worker = Worker::builder(world.clone()).register((any_price, quote)).start().await?;
/// # let client = Client::new(world);
/// # let shops = |names: [&str; 2]| names.map(str::to_owned).to_vec();
/// # assert_eq!(client.start(any_price, shops(["closed", "open"])).await?.output().await?, 42);
/// # let error = client.start(any_price, shops(["closed", "closed"])).await?.output().await.unwrap_err();
/// # assert_eq!(error.to_string(), "all 2 futures failed: step `quote` failed: closed; step `quote` failed: closed");
/// # worker.stop().await }
/// ```
///
/// # Errors
///
/// [`RaceError`] with the errors of all futures, in their order. Without futures there is no error in it.
pub fn race_ok<I, T, E>(futures: I) -> RaceOk<I::Item, E>
where
    I: IntoIterator,
    I::Item: Future<Output = Result<T, E>>,
{
    let numbered = |(index, future)| Racer { index, future: Box::pin(future) };
    RaceOk { running: futures.into_iter().enumerate().map(numbered).collect(), errors: Vec::new() }
}

/// The future of [`race_ok`]. A type of its own, so that it does not contain the iterator.
#[must_use = "futures do nothing unless they are awaited"]
pub struct RaceOk<F, E> {
    running: FuturesUnordered<Racer<F>>,
    errors: Vec<(usize, E)>,
}

struct Racer<F> {
    index: usize,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Racer<F> {
    type Output = (usize, F::Output);

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx).map(|output| (self.index, output))
    }
}

// No part of it is pinned in place.
impl<F, E> Unpin for RaceOk<F, E> {}

impl<F: Future<Output = Result<T, E>>, T, E> Future for RaceOk<F, E> {
    type Output = Result<T, RaceError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        while let Some((index, result)) = ready!(self.running.poll_next_unpin(cx)) {
            match result {
                Ok(output) => {
                    // The losers are dropped now, not when the caller drops this future.
                    self.running.clear();
                    return Poll::Ready(Ok(output));
                }
                Err(error) => self.errors.push((index, error)),
            }
        }
        let mut errors = std::mem::take(&mut self.errors);
        errors.sort_by_key(|(index, _)| *index);
        Poll::Ready(Err(RaceError { errors: errors.into_iter().map(|(_, error)| error).collect() }))
    }
}

impl<F, E> fmt::Debug for RaceOk<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RaceOk({} running, {} failed)", self.running.len(), self.errors.len())
    }
}

/// The errors of a [race](race_ok) that no future won.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaceError<E> {
    errors: Vec<E>,
}

impl<E> RaceError<E> {
    /// Returns the error of each future, in their order.
    pub fn errors(&self) -> &[E] {
        &self.errors
    }

    /// Returns the error of each future, in their order.
    pub fn into_errors(self) -> Vec<E> {
        self.errors
    }
}

impl<E: fmt::Display> fmt::Display for RaceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.errors.is_empty() {
            return f.write_str("the race has no futures; give `race_ok` at least one");
        }
        write!(f, "all {} futures failed: ", self.errors.len())?;
        for (index, error) in self.errors.iter().enumerate() {
            write!(f, "{}{error}", if index > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for RaceError<E> {}
