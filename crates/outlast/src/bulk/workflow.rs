//! The built-in workflow of bulk actions.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use outlast_core::RunId;
use outlast_core::limits::{BULK_GENERATION_PAGES, BULK_PAGE_RUNS};
use serde::{Deserialize, Serialize};

use super::STOP_HOOK;
use super::order::BulkOrder;
use super::page::{BULK_PAGE, BulkPage};
use super::progress::{BulkProgress, BulkState, BulkStop};
use crate::authoring::context::Context;
use crate::authoring::operation::ReceivedOperation;
use crate::error::Error;

/// The input of a generation of a bulk action.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BulkInput {
    pub(crate) order: BulkOrder,
    pub(crate) progress: BulkProgress,
    /// The runs of the next page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) runs: Vec<RunId>,
    /// Where the page after it begins; `None` when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<RunId>,
}

/// The code of the workflow `outlast:bulk`: page after page, and a new generation after some of them.
pub(crate) async fn bulk(ctx: Context, input: BulkInput) -> Result<BulkProgress, Error> {
    let stop = ctx.hook::<BulkStop>(STOP_HOOK).received();
    let mut generation = BulkGeneration { ctx, input, stop };
    for _ in 0..BULK_GENERATION_PAGES {
        generation.ctx.publish(&generation.input.progress);
        if generation.has_ended() {
            return Ok(generation.input.progress);
        }
        generation.next_page().await?;
    }
    generation.ctx.continue_as(&generation.input)
}

struct BulkGeneration {
    ctx: Context,
    input: BulkInput,
    stop: ReceivedOperation<BulkStop>,
}

impl BulkGeneration {
    fn has_ended(&mut self) -> bool {
        let BulkInput { progress, runs, cursor, .. } = &mut self.input;
        if progress.stop.is_some() {
            progress.state = BulkState::Stopped;
        } else if runs.is_empty() && cursor.is_none() {
            progress.state = BulkState::Completed;
        }
        let has_ended = progress.state != BulkState::Running;
        if has_ended {
            self.ctx.publish(progress);
        }
        has_ended
    }

    /// Makes the calls for one page.
    async fn next_page(&mut self) -> Result<(), Error> {
        let runs = self.allowed_runs();
        let called = runs.len();
        let page = BulkPage {
            order: self.input.order.clone(),
            bulk: self.ctx.run(),
            runs,
            cursor: self.input.cursor,
            limit: self.page_runs(),
        };
        let mut step = self.ctx.step(BULK_PAGE, page);
        let done = std::future::poll_fn(|cx| {
            if self.input.progress.stop.is_none()
                && let Poll::Ready(received) = Pin::new(&mut self.stop).poll(cx)
            {
                self.input.progress.stop = Some(stop_of(received?));
            }
            Pin::new(&mut step).poll(cx)
        })
        .await?;
        let BulkInput { progress, runs, cursor, .. } = &mut self.input;
        progress.add(done.counts);
        (*runs, *cursor) = (done.runs, done.cursor);
        // Before the pause, so that a reader sees what was done.
        self.ctx.publish(&self.input.progress);
        self.keep_rate(called).await
    }

    /// The runs of the page, without those that exceed the limit. If there are such runs, it stops after the page.
    fn allowed_runs(&mut self) -> Vec<RunId> {
        let BulkInput { order, progress, runs, .. } = &mut self.input;
        let mut runs = std::mem::take(runs);
        if let Some(limit) = order.at_most {
            let room = usize::try_from(limit.saturating_sub(progress.called())).unwrap_or(usize::MAX);
            if runs.len() > room {
                runs.truncate(room);
                let reason = format!("more than {limit} runs match");
                progress.stop.get_or_insert(BulkStop::new(reason, None));
            }
        }
        runs
    }

    /// The size of a page: at most the calls of a second, so that a stop takes effect soon.
    fn page_runs(&self) -> usize {
        let rate = self.input.order.rate.map_or(BULK_PAGE_RUNS, |rate| rate.max(1) as usize);
        rate.min(BULK_PAGE_RUNS)
    }

    /// Waits as long as these calls may take, or until it is stopped.
    async fn keep_rate(&mut self, called: usize) -> Result<(), Error> {
        let Some(rate) = self.input.order.rate.filter(|_| called > 0) else { return Ok(()) };
        let mut timer =
            self.ctx.sleep(Duration::from_micros(called as u64 * 1_000_000 / u64::from(rate.max(1))));
        std::future::poll_fn(|cx| {
            if self.input.progress.stop.is_some() {
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(received) = Pin::new(&mut self.stop).poll(cx) {
                self.input.progress.stop = Some(stop_of(received?));
                return Poll::Ready(Ok(()));
            }
            Pin::new(&mut timer).poll(cx)
        })
        .await
    }
}

fn stop_of(received: crate::authoring::operation::Received<BulkStop>) -> BulkStop {
    let actor = received.headers.get("actor").cloned();
    BulkStop { actor, ..received.payload }
}
