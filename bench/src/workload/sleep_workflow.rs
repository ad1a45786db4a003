//! The workflow that sleeps, for B6 and B6M.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{SystemClock, Timestamp, World};
use tokio::sync::Notify;

use crate::Result;

/// How late each run woke.
#[derive(Debug)]
pub(super) struct WakeDelays {
    late_us: Vec<AtomicUsize>,
    left: AtomicUsize,
    all: Notify,
}

impl WakeDelays {
    /// For this many runs.
    pub(super) fn new(runs: usize) -> Arc<Self> {
        let late_us = (0..runs).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self { late_us, left: AtomicUsize::new(runs), all: Notify::new() })
    }

    fn note(&self, run: usize, due: Timestamp) {
        let late = SystemClock.now().since(due).as_micros() as usize;
        // A step may be attempted twice, and counts once.
        if self.late_us[run].swap(late.max(1), Ordering::Relaxed) == 0
            && self.left.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.all.notify_one();
        }
    }

    /// Waits for the last run, and returns how late each was, in milliseconds.
    pub(super) async fn late_ms(&self) -> Vec<f64> {
        self.all.notified().await;
        self.late_us.iter().map(|late| late.load(Ordering::Relaxed) as f64 / 1e3).collect()
    }
}

/// Records how late it is.
#[step]
pub(super) async fn wake(cx: StepContext<Arc<WakeDelays>>, run: usize, due_us: i64) -> Result<(), StepError> {
    cx.state().note(run, Timestamp::from_micros(due_us));
    Ok(())
}

/// Sleeps until a time, then records the delay.
#[workflow]
pub(super) async fn sleep(ctx: Context, run: usize, due_us: i64) -> Result<(), Error> {
    ctx.sleep_until(Timestamp::from_micros(due_us)).await?;
    ctx.step(wake, (run, due_us)).await
}

/// A worker for the workflow `sleep`.
pub(super) async fn worker(world: &Arc<dyn World>, wake_delays: &Arc<WakeDelays>) -> Result<Worker> {
    Ok(Worker::builder(world.clone()).state(wake_delays.clone()).register((sleep, wake)).start().await?)
}
