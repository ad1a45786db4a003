//! Replay without log lines.
//!
//! A replay runs workflow code again whose `tracing` events were logged when it ran for the first time.
//! For the time of a replay the thread's dispatcher is one that forwards everything to the dispatcher
//! before it, except events: a line is logged once, and spans that are made in a replay are still there
//! when the run goes on.
//!
//! Why not `NoSubscriber`: `tracing` asks all dispatchers about a callsite when it is first reached, and
//! keeps the answer. The answer must be that of the program's own subscriber, and a span needs a
//! subscriber for as long as it lives, which is longer than the replay.
//!
//! A dispatcher is registered with every callsite of the process, so one is made per subscriber and kept,
//! and not one per replay. Programs have one subscriber; tests may have one per thread.
//!
//! A span that was made in a replay cannot be asked for the type of its subscriber (`downcast_ref`): that
//! needs unsafe code.

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
    /// Tells dispatchers apart. `tracing` has no comparison, but its debug form is the subscriber's address,
    /// which is not given to another one as long as `to` is kept.
    name: String,
    to: WeakDispatch,
    dispatch: Dispatch,
}

/// One for each subscriber under which a run was replayed.
static FORWARDING: RwLock<Vec<Forwarding>> = RwLock::new(Vec::new());

/// The dispatcher that forwards all but events to `to`.
fn spans_only(to: &Dispatch) -> Dispatch {
    let name = format!("{to:?}");
    if let Some(known) = FORWARDING.read().iter().find(|known| known.name == name) {
        return known.dispatch.clone();
    }
    // Registers itself with every callsite, which asks subscribers: not under the lock.
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
    /// Weak, so that a subscriber that its program has dropped is not kept by this process-wide list.
    to: WeakDispatch,
}

impl Subscriber for SpansOnly {
    /// The same answer as that of the subscriber behind it, which is asked as well: so the combined answer
    /// that `tracing` keeps is the one without this dispatcher.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.to.upgrade().map_or_else(Interest::never, |to| to.register_callsite(metadata))
    }

    /// An event is not forwarded and yet enabled, so that the expressions of its fields are evaluated as they
    /// were when the line was logged. The subscriber is not asked: one with filters per layer expects an
    /// event after each such question.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() || self.to.upgrade().is_some_and(|to| to.enabled(metadata))
    }

    /// `tracing` takes the maximum over all dispatchers: this one adds nothing.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        // Nobody looks at the span of a subscriber that is gone.
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
