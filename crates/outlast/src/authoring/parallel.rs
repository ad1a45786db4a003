//! The same work for many items, with limited concurrency.

use std::convert::Infallible;
use std::future::Future;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::authoring::context::Context;

impl Context {
    /// Processes every item with a closure, at most `limit` at the same time, and returns the outputs in the order of
    /// the items.
    ///
    /// The first error is returned at once, and the work in progress is dropped. After a cancel of the run, no further
    /// item is begun, and the error is returned when all items that were begun have returned.
    ///
    /// The closure is called for an item when there is capacity for it, and receives its own context. It awaits
    /// operations like any other code of the workflow; nothing else is recorded.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn resize(picture: String) -> Result<u64, StepError> { Ok(picture.len() as u64) }
    /// #[workflow]
    /// async fn album(ctx: Context, pictures: Vec<String>) -> Result<Vec<u64>, Error> {
    ///     ctx.parallel(pictures, 10, |ctx, picture| async move { ctx.step(resize, &picture).await }).await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the item that failed first.
    ///
    /// # Panics
    ///
    /// If `limit` is 0.
    pub async fn parallel<I, T, E, F, Fut>(&self, items: I, limit: usize, work: F) -> Result<Vec<T>, E>
    where
        I: IntoIterator,
        F: FnMut(Self, I::Item) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let mut outputs = Vec::new();
        work_through(self, items, limit, work, |index, outcome: Result<T, E>| {
            set_at(&mut outputs, index, outcome?);
            Ok(())
        })
        .await?;
        Ok(outputs.into_iter().flatten().collect())
    }

    /// Like [`parallel`](Self::parallel), but processes all items even if some fail, and returns the result of each
    /// item, in their order.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn invite(email: String) -> Result<(), StepError> { Ok(()) }
    /// #[workflow]
    /// async fn party(ctx: Context, guests: Vec<String>) -> Result<usize, Error> {
    ///     let sent = ctx.parallel_all(guests, 10, |ctx, guest| async move { ctx.step(invite, &guest).await });
    ///     Ok(sent.await.iter().filter(|sent| sent.is_err()).count())
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// If `limit` is 0.
    pub async fn parallel_all<I, T, E, F, Fut>(&self, items: I, limit: usize, work: F) -> Vec<Result<T, E>>
    where
        I: IntoIterator,
        F: FnMut(Self, I::Item) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let mut outcomes = Vec::new();
        let Ok(()) = work_through(self, items, limit, work, |index, outcome| {
            set_at(&mut outcomes, index, outcome);
            Ok::<_, Infallible>(())
        })
        .await;
        outcomes.into_iter().flatten().collect()
    }
}

/// Processes the items, and calls `on_outcome` for each result until it returns an error.
async fn work_through<I, F, Fut, E>(
    ctx: &Context,
    items: I,
    limit: usize,
    mut work: F,
    mut on_outcome: impl FnMut(usize, Fut::Output) -> Result<(), E>,
) -> Result<(), E>
where
    I: IntoIterator,
    F: FnMut(Context, I::Item) -> Fut,
    Fut: Future,
{
    assert!(limit > 0, "the limit of `parallel` must be at least 1");
    let mut remaining = items.into_iter().enumerate();
    // It polls futures in the order in which they were woken, which the history determines.
    let mut running = FuturesUnordered::new();
    let mut stopped = Ok(());
    loop {
        while stopped.is_ok()
            && running.len() < limit
            && let Some((index, item)) = remaining.next()
        {
            let future = work(ctx.clone(), item);
            running.push(async move { (index, future.await) });
        }
        let Some((index, outcome)) = running.next().await else { return stopped };
        // Only the first error counts; ignore later results.
        if stopped.is_ok() {
            stopped = on_outcome(index, outcome);
        }
        if stopped.is_err() && !ctx.awaits_branches() {
            return stopped;
        }
    }
}

/// Sets the value at an index. Lower indexes may still be empty.
fn set_at<T>(values: &mut Vec<Option<T>>, index: usize, value: T) {
    if values.len() <= index {
        values.resize_with(index + 1, || None);
    }
    values[index] = Some(value);
}
