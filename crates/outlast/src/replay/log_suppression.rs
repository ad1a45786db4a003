//! Replay without log lines.
//!
//! A replay runs workflow code again whose `tracing` events were logged when it first ran. During a replay the thread
//! has a dispatcher that forwards everything except events to the previous dispatcher. So each line is logged once, and
//! spans that are created in a replay still exist when the run continues.
//!
//! Why not `NoSubscriber`: `tracing` asks all dispatchers about a callsite when it is first reached, and caches the
//! result. The result must be that of the program's own subscriber. And a span needs its subscriber as long as the span
//! exists, which is longer than the replay.
//!
//! A dispatcher is registered with every callsite of the process. Therefore one is created per subscriber and reused,
//! not one per replay. Programs have one subscriber; tests may have one per thread.
//!
//! A limitation: `downcast_ref` does not find the subscriber of a span that was created in a replay, because forwarding
//! it needs unsafe code.

use parking_lot::RwLock;
use tracing::dispatcher::{self, WeakDispatch};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, NoSubscriber};
use tracing::{Dispatch, Event, Metadata, Subscriber};
use tracing_core::span::Current;

/// Calls `replay` without its events reaching the thread's subscriber.
pub(super) fn without_events<T>(replay: impl FnOnce() -> T) -> T {
    // Costs one load in a process without a subscriber.
    if LevelFilter::current() == LevelFilter::OFF {
        return replay();
    }
    let before = dispatcher::get_default(Dispatch::clone);
    if before.is::<NoSubscriber>() || before.is::<SpansOnly>() {
        return replay();
    }
    dispatcher::with_default(&spans_only(&before), replay)
}

/// A dispatcher without events, and the one that it forwards to.
struct Forwarding {
    /// Identifies the dispatcher. `tracing` has no comparison, but the debug form contains the address of the
    /// subscriber, which is not reused as long as `to` exists.
    name: String,
    to: WeakDispatch,
    dispatch: Dispatch,
}

/// One entry for each subscriber under which a run was replayed.
static FORWARDING: RwLock<Vec<Forwarding>> = RwLock::new(Vec::new());

/// The dispatcher that forwards everything except events to `to`.
fn spans_only(to: &Dispatch) -> Dispatch {
    let name = format!("{to:?}");
    if let Some(known) = FORWARDING.read().iter().find(|known| known.name == name) {
        return known.dispatch.clone();
    }
    // Not under the lock: a new dispatcher is registered with every callsite, which calls subscribers.
    let dispatch = Dispatch::new(SpansOnly { to: to.downgrade() });
    let mut forwarding = FORWARDING.write();
    forwarding.retain(|known| known.to.upgrade().is_some());
    match forwarding.iter().find(|known| known.name == name) {
        Some(known) => known.dispatch.clone(),
        None => {
            forwarding.push(Forwarding { name, to: to.downgrade(), dispatch: dispatch.clone() });
            dispatch
        }
    }
}

/// Forwards everything except events.
struct SpansOnly {
    /// Weak, so that the process-wide list does not keep a subscriber that the program has dropped.
    to: WeakDispatch,
}

impl Subscriber for SpansOnly {
    /// Returns the interest of the subscriber behind it, so that the combined interest that `tracing` caches is the
    /// same as without this dispatcher.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.to.upgrade().map_or_else(Interest::never, |to| to.register_callsite(metadata))
    }

    /// Events are enabled although they are not forwarded, so that the expressions of their fields are evaluated as
    /// when the line was logged. The subscriber is not called: a subscriber with per-layer filters expects an event
    /// after each call of `enabled`.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() || self.to.upgrade().is_some_and(|to| to.enabled(metadata))
    }

    /// `tracing` takes the maximum of all dispatchers: this one does not change it.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        // The subscriber was dropped: its span is not used.
        self.to.upgrade().map_or_else(|| Id::from_u64(u64::MAX), |to| to.new_span(span))
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some(to) = self.to.upgrade() {
            to.record(span, values);
        }
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        if let Some(to) = self.to.upgrade() {
            to.record_follows_from(span, follows);
        }
    }

    fn event_enabled(&self, _event: &Event<'_>) -> bool {
        false
    }

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        if let Some(to) = self.to.upgrade() {
            to.enter(span);
        }
    }

    fn exit(&self, span: &Id) {
        if let Some(to) = self.to.upgrade() {
            to.exit(span);
        }
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.to.upgrade().map_or_else(|| span.clone(), |to| to.clone_span(span))
    }

    fn try_close(&self, span: Id) -> bool {
        self.to.upgrade().is_some_and(|to| to.try_close(span))
    }

    fn current_span(&self) -> Current {
        self.to.upgrade().map_or_else(Current::none, |to| to.current_span())
    }
}
