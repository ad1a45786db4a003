//! Outages: callers continue to wait, and few lines are logged.

use std::fmt::{Debug, Write};
use std::sync::Arc;
use std::time::Duration;

use outlast::prelude::*;
use outlast::{ErrorKind, RunHandle, Status};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::faulty_world::Call;
use super::test_engine::{TestEngine, with_timeout};

#[workflow]
async fn asks(ctx: Context) -> Result<String, Error> {
    ctx.hook::<String>("answer").await
}

/// The log lines above debug level.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<Vec<(Level, String)>>>, Arc<Mutex<Vec<String>>>);

impl Lines {
    pub(super) fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut *self.0.lock())
    }

    /// The lines with their levels and fields.
    pub(super) fn with_fields(&self) -> Vec<String> {
        self.1.lock().clone()
    }
}

#[derive(Default)]
struct Text(String, String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.1, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("outlast")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let level = *event.metadata().level();
        self.1.lock().push(format!("{level} {}{}", text.0, text.1));
        self.0.lock().push((level, text.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Advances the time of retry pauses; the world's clock stands still.
pub(super) async fn pass(time: Duration) {
    const MOMENT: Duration = Duration::from_millis(50);
    for _ in 0..time.as_millis() / MOMENT.as_millis() {
        tokio::time::advance(MOMENT).await;
        tokio::task::yield_now().await;
    }
}

const WORKER: &str = "this worker retries until the world responds";
const CLIENT: &str = "calls that wait for an output keep waiting";

#[tokio::test(start_paused = true)]
async fn a_worker_logs_an_outage_rarely() {
    with_timeout(async {
        let lines = Lines::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let engine = TestEngine::memory().await;
        let worker = engine.worker(asks).await;
        let run = engine.client.start(asks, ()).await.unwrap();
        engine.wait_for_status(run.id(), Status::Waiting).await;
        let [(Level::INFO, joined)] = &lines.take()[..] else { panic!("one line when the worker joins") };
        assert!(joined.starts_with("the worker joined memory `"), "{joined}");

        engine.client.send(run.id(), "answer", "yes").await.unwrap();
        engine.faults.set_unavailable(true);
        pass(Duration::from_secs(35)).await;
        assert!(engine.faults.count(Call::Claim) + engine.faults.count(Call::Commit) > 50, "it has tried on");
        let told: Vec<_> = lines.take();
        let (levels, texts): (Vec<_>, Vec<_>) = told.into_iter().unzip();
        assert_eq!(levels, [Level::WARN; 4], "{texts:#?}");
        assert_eq!(texts[0], format!("the world is not available; {WORKER}"));
        for (text, tens) in texts[1..].iter().zip(1..) {
            assert_eq!(text, &format!("the world has not been available for {tens}0s; {WORKER}"));
        }

        engine.faults.set_unavailable(false);
        assert_eq!(run.output().await.unwrap(), "yes");
        let [(level, text)] = &lines.take()[..] else { panic!("one line when it is back") };
        assert_eq!(*level, Level::INFO);
        // The first call fails up to a second after the outage has begun: pauses have jitter.
        let is_back = |seconds| text.starts_with(&format!("the world is available again, after {seconds}"));
        assert!(is_back(34) || is_back(35), "{text}");
        worker.stop().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_an_output_outlasts_an_outage() {
    with_timeout(async {
        let lines = Lines::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let engine = TestEngine::memory().await;
        let run = engine.client.start(asks, ()).await.unwrap();
        engine.faults.set_unavailable(true);
        let handle: RunHandle<String> = engine.client.handle(run.id());
        let waiting = tokio::spawn(async move { handle.output().await });
        pass(Duration::from_secs(61)).await;
        assert!(!waiting.is_finished(), "{:?}", waiting.await);
        let told = lines.take();
        assert_eq!(told.len(), 7, "{told:#?}");
        assert!(told.iter().all(|(_, text)| text.ends_with(CLIENT)), "{told:#?}");

        engine.faults.set_unavailable(false);
        let worker = engine.worker(asks).await;
        engine.client.send(run.id(), "answer", "late").await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap(), "late");
        worker.stop().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn waiting_with_a_timeout_reports_the_missing_answer() {
    with_timeout(async {
        let engine = TestEngine::memory().await;
        let run = engine.client.start(asks, ()).await.unwrap();
        engine.faults.set_unavailable(true);
        let handle: RunHandle<String> = engine.client.handle(run.id());
        let waiting = tokio::spawn(async move { handle.output_within("1m").await });
        pass(Duration::from_secs(5)).await;
        engine.clock.advance(Duration::from_secs(60));
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let said =
            format!("the world did not answer in time whether run {} has ended (the test lost", run.id());
        assert!(error.to_string().starts_with(&said), "{error}");
        assert!(error.to_string().contains("workers that reach the world continue the run"), "{error}");
    })
    .await;
}
