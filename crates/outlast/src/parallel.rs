//! The same work for many items, some of them at a time.

use std::convert::Infallible;
use std::future::Future;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::context::Context;

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
        work_through(self, items, limit, work, |place, outcome: Result<T, E>| {
            put(&mut outputs, place, outcome?);
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
        let Ok(()) = work_through(self, items, limit, work, |place, outcome| {
            put(&mut outcomes, place, outcome);
            Ok::<_, Infallible>(())
        })
        .await;
        outcomes.into_iter().flatten().collect()
    }
}

/// Works through the items, and tells what came of each as it ends, until that says stop.
async fn work_through<I, F, Fut, E>(
    ctx: &Context,
    items: I,
    limit: usize,
    mut work: F,
    mut tell: impl FnMut(usize, Fut::Output) -> Result<(), E>,
) -> Result<(), E>
where
    I: IntoIterator,
    F: FnMut(Context, I::Item) -> Fut,
    Fut: Future,
{
    assert!(limit > 0, "with a limit of 0 nothing is ever done; give at least 1");
    let mut waiting = items.into_iter().enumerate();
    // It polls what was woken, in the order of the wakes, and those follow from history.
    let mut under_way = FuturesUnordered::new();
    let mut stopped = Ok(());
    loop {
        while stopped.is_ok()
            && under_way.len() < limit
            && let Some((place, item)) = waiting.next()
        {
            let done = work(ctx.clone(), item);
            under_way.push(async move { (place, done.await) });
        }
        let Some((place, outcome)) = under_way.next().await else { return stopped };
        // The first error counts, and not what the others came to since.
        if stopped.is_ok() {
            stopped = tell(place, outcome);
        }
        if stopped.is_err() && !ctx.awaits_branches() {
            return stopped;
        }
    }
}

/// Puts a value at its place; the places before it are filled sooner or later.
fn put<T>(values: &mut Vec<Option<T>>, place: usize, value: T) {
    if values.len() <= place {
        values.resize_with(place + 1, || None);
    }
    values[place] = Some(value);
}
