//! A clock that is moved forward while runs sleep and sessions are open.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use outlast::core::{Busy, Clock};
use outlast::prelude::*;
use outlast::{Status, SystemClock, Timestamp};

use crate::child::{sleep_briefly, url, wait_until_true, with_timeout};

/// The machine's clock, which can be moved forward.
#[derive(Clone, Debug, Default)]
struct AdjustableClock(Arc<AtomicI64>);

impl Clock for AdjustableClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(SystemClock.now().as_micros() + self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        let clock = self.clone();
        Box::pin(async move {
            while clock.now() < at {
                sleep_briefly().await;
            }
            Busy::uncounted()
        })
    }

    fn busy(&self) -> Busy {
        Busy::uncounted()
    }

    fn is_virtual(&self) -> bool {
        false
    }
}

#[workflow]
async fn nightly(ctx: Context) -> Result<(), Error> {
    ctx.sleep("8h").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_forward_wakes_sleeping_runs_and_costs_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let clock = AdjustableClock::default();
    let open =
        || async { outlast::open_with_clock(&url(folder.path()), Arc::new(clock.clone())).await.unwrap() };
    let (here, there) = (open().await, open().await);
    // Much longer than a write can take on a loaded machine, which would cost a session without any change of the clock.
    let work =
        |world| async { Worker::builder(world).register(nightly).session_time("6s").start().await.unwrap() };
    let (first, second) = (work(here.clone()).await, work(there).await);
    let run = Client::new(here).start(nightly, ()).await.unwrap();
    wait_until_true("the run to sleep", || async { run.view().await.unwrap().status == Status::Waiting })
        .await;
    let beats = || first.metrics().beats.min(second.metrics().beats);

    clock.0.store(Duration::from_secs(9 * 3_600).as_micros() as i64, Ordering::Relaxed);
    with_timeout("the run to wake", run.output()).await.unwrap();
    let before = beats();
    wait_until_true("two beats of both", || async { beats() >= before + 2 }).await;
    assert_eq!((first.metrics().sessions_lost, second.metrics().sessions_lost), (0, 0), "no session is lost");
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}
