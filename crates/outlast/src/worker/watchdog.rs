//! The watchdog: finds turns that do not come back.
//!
//! Workflow code runs on the program's own threads, which nobody can take away from it. A loop without
//! an await, or a call that blocks, keeps its thread for ever. The watchdog cannot end that, but it sees
//! to it that only this run is lost: it marks the run stuck, so that no worker of this build is given it
//! again and take the next thread, and what the turn may still come to is refused by the fence.
//!
//! The outcomes of the run's attempts are stored before that, as far as anybody but the turn can know it (`outcomes.rs`).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use outlast_core::duration::duration_text;
use outlast_core::turn::BasedOn;
use outlast_core::{
    Event, Headers, MessageBody, NewMessage, Outbox, RunId, Start, Stuck, StuckReason, Then, Turn, WorldError,
};

use super::beat::block_on;
use super::notes::Notes;
use super::session::Session;
use crate::clock::monotonic;
use crate::ids;
use crate::upkeep;

/// Looks per limit: a turn is found at most this much of it late.
const LOOKS: u32 = 4;

/// How long the world may take to mark a run.
const PATIENCE: Duration = Duration::from_secs(10);

/// A watching thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watching {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watching {
    /// Begins to watch the turns of a session.
    pub(super) fn begin(session: Arc<Session>, limit: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("outlast-watchdog".into())
            .spawn(move || watch(&session, limit, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// A run whose turn hangs.
struct Hung {
    run: RunId,
    notes: Arc<Notes>,
    found: Duration,
    is_marked: bool,
}

impl Hung {
    /// Whether attempts of the run may still end, which are awaited before it is marked stuck: for the drain time at
    /// most.
    fn has_attempts(&self, session: &Session) -> bool {
        self.notes.outcomes.are_awaited() && monotonic() < self.found + session.settings.drain
    }

    fn mark(&mut self, session: &Session, limit: Duration) {
        self.is_marked = true;
        let run = self.run;
        match block_on(strand(session, run, &self.notes, limit), monotonic() + PATIENCE) {
            Some(Ok(())) => session.forget(run, &self.notes),
            Some(Err(error)) => tracing::error!(%run, %error, "a run that hangs was not marked"),
            None => tracing::error!(%run, "a run that hangs was not marked: the world does not answer"),
        }
    }
}

fn watch(session: &Arc<Session>, limit: Duration, stopped: &Receiver<()>) {
    // Runs whose turns hang, and still did at the last look.
    let mut hung: Vec<Hung> = Vec::new();
    while stopped.recv_timeout(limit / LOOKS) == Err(RecvTimeoutError::Timeout) {
        hung.retain(|hung| hung.notes.computing_for().is_some());
        for (run, notes) in session.computing_longer_than(limit) {
            if hung.iter().any(|known| Arc::ptr_eq(&known.notes, &notes)) {
                continue;
            }
            session.settings.meter.turns_hung.add(1);
            tracing::error!(
                %run, limit = ?limit,
                "a turn does not come back: its workflow loops without awaiting, or blocks its thread. \
                 The run becomes stuck; the thread is lost until the turn returns or the process ends"
            );
            hung.push(Hung { run, notes, found: monotonic(), is_marked: false });
        }
        let threads = session.runtime.metrics().num_workers();
        // Without a thread no attempt goes on either.
        let are_all_blocked = hung.len() >= threads;
        for hung in hung.iter_mut().filter(|hung| !hung.is_marked) {
            if are_all_blocked || !hung.has_attempts(session) {
                hung.mark(session, limit);
            }
        }
        if are_all_blocked && !session.lost.is_cancelled() {
            tracing::error!(
                session = %session.id, threads,
                "all threads of the runtime are blocked by turns that do not come back, so this worker does \
                 nothing any more; restart the process. Its other runs are left to other workers"
            );
            session.abandon();
            block_on(session.world.leave(session.id), monotonic() + PATIENCE);
        }
    }
}

/// Marks a run stuck whose turn does not come back.
async fn strand(session: &Session, run: RunId, notes: &Notes, limit: Duration) -> Result<(), WorldError> {
    let stuck = Stuck {
        reason: StuckReason::Hung,
        message: format!(
            "a turn did not come back within {}: the workflow loops without awaiting, or blocks its thread; \
             move slow work into a step, deploy, and the run goes on",
            duration_text(limit)
        ),
        build: session.settings.build.to_string(),
    };
    // Whoever waits for the answer asks again when the box is dropped, and finds the run.
    let first = notes.take_first();
    let turn = match &first {
        Some(first) => never_began(session, &first.start, stuck),
        None => {
            let held = session.world.held(session.id).await?;
            // Its turn came back meanwhile.
            let Some(held) = held.into_iter().find(|held| held.run == run) else { return Ok(()) };
            let turn = session.letting_go(held, Then::Stuck(stuck)).await?;
            keep_outcomes(session, notes, turn).await?
        }
    };
    // Not by the committer: that one needs the runtime, whose threads may all be blocked.
    session.world.commit(session.id, &[turn]).await?.remove(0).map(drop)
}

/// Puts the outcomes of attempts into the run's inbox, so that they are not made again. Answers the turn that marks the
/// run after that.
async fn keep_outcomes(session: &Session, notes: &Notes, turn: Turn) -> Result<Turn, WorldError> {
    let history = upkeep::read_history(&*session.world, turn.run).await?;
    let mut events = history.iter().flat_map(|turn| &turn.events);
    let is_cancelled = events.any(|event| matches!(event, Event::CancelRequested { .. }));
    // What is retried after a cancel only the run's future knows.
    let may_retry = |_, at| !is_cancelled && turn.columns.after.deadline.is_none_or(|deadline| at < deadline);
    let events = notes.outcomes.events(may_retry);
    if events.is_empty() {
        return Ok(turn);
    }
    let body = MessageBody::Attempted { events };
    let message = NewMessage { id: ids::message(), run: turn.run, body, headers: Headers::new() };
    let outbox = Some(Box::new(Outbox { messages: vec![message], ..Outbox::default() }));
    let keeps = Turn { id: ids::turn(), outbox, then: Then::Hold, ..turn.clone() };
    let from = BasedOn::Turn(keeps.id);
    session.world.commit(session.id, &[keeps]).await?.remove(0)?;
    Ok(Turn { based_on: from, ..turn })
}

/// The turn that starts a run which hangs in its first turn. Another id than the first turn's tells the
/// two apart, should that one come back.
fn never_began(session: &Session, start: &Start, stuck: Stuck) -> Turn {
    let (at, build) = (session.clock.now(), session.settings.build.clone());
    Turn { then: Then::Stuck(stuck), ..Turn::starting(start.clone(), ids::turn(), at, build) }
}
