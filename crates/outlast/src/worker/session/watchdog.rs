//! The watchdog: detects turns that do not return.
//!
//! Workflow code runs on the threads of the program's runtime, and cannot be interrupted. A loop without an await, or a
//! call that blocks, occupies its thread forever. The watchdog cannot end such a turn, but it limits the damage to one
//! run: it marks the run as stuck, so that no worker of this build claims it again and loses another thread. If the
//! turn returns after all, the fence refuses its commit.
//!
//! Before that, the watchdog stores the outcomes of the run's attempts, as far as they are known outside of the turn
//! (`attempts/uncommitted_outcomes.rs`).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use outlast_core::duration::duration_text;
use outlast_core::turn::BasedOn;
use outlast_core::{
    Event, Headers, MessageBody, NewMessage, Outbox, RunId, Start, Stuck, StuckReason, Then, Turn, WorldError,
};

use super::Session;
use super::beat::block_on;
use crate::clock::monotonic;
use crate::ids;
use crate::worker::read_all::read_history;
use crate::worker::run::mailbox::Mailbox;

/// The number of checks per time limit of a turn.
const CHECKS: u32 = 4;

/// How long the watchdog waits for a response of the world.
const WORLD_TIMEOUT: Duration = Duration::from_secs(10);

/// The watchdog's thread. It ends when this is dropped.
#[derive(Debug)]
pub(in crate::worker) struct Watchdog {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to check the turns of a session.
    pub(in crate::worker) fn start(session: Arc<Session>, limit: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = sync_channel(0);
        let thread = std::thread::Builder::new()
            .name("outlast-watchdog".into())
            .spawn(move || watch(&session, limit, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

/// A run whose turn has not returned in time.
struct HungRun {
    run: RunId,
    mailbox: Arc<Mailbox>,
    /// When the watchdog detected it.
    detected_at: Duration,
    is_marked: bool,
}

impl HungRun {
    /// Whether the run has running attempts, which are awaited before it is marked as stuck: for at most the drain
    /// time.
    fn waits_for_attempts(&self, session: &Session) -> bool {
        self.mailbox.outcomes.has_running_attempts()
            && monotonic() < self.detected_at + session.settings.drain
    }

    /// Marks the run as stuck, and removes it from the live runs.
    fn mark_stuck(&mut self, session: &Session, limit: Duration) {
        self.is_marked = true;
        let run = self.run;
        match block_on(commit_stuck(session, run, &self.mailbox, limit), monotonic() + WORLD_TIMEOUT) {
            Some(Ok(())) => session.remove_entry(run, &self.mailbox),
            Some(Err(error)) => tracing::error!(%run, %error, "cannot mark a hung run as stuck"),
            None => tracing::error!(%run, "cannot mark a hung run as stuck: the world does not respond"),
        }
    }
}

/// Checks the turns of a session until the sender of `stopped` is dropped.
fn watch(session: &Arc<Session>, limit: Duration, stopped: &Receiver<()>) {
    // The runs whose turns had not returned at the last check.
    let mut hung: Vec<HungRun> = Vec::new();
    while stopped.recv_timeout(limit / CHECKS) == Err(RecvTimeoutError::Timeout) {
        hung.retain(|hung| hung.mailbox.computing_for().is_some());
        for (run, mailbox) in session.computing_longer_than(limit) {
            if hung.iter().any(|known| Arc::ptr_eq(&known.mailbox, &mailbox)) {
                continue;
            }
            session.settings.meter.turns_hung.add(1);
            session.settings.metrics.stuck.of("hung").metric.add(1);
            tracing::error!(
                %run, limit = ?limit,
                "a turn does not return: its workflow loops without awaiting, or blocks its thread. The run becomes \
                 stuck; the thread is not available until the turn returns or the process ends"
            );
            hung.push(HungRun { run, mailbox, detected_at: monotonic(), is_marked: false });
        }
        let threads = session.runtime.metrics().num_workers();
        // Without a free thread, no attempt makes progress either.
        let are_all_blocked = hung.len() >= threads;
        for hung in hung.iter_mut().filter(|hung| !hung.is_marked) {
            if are_all_blocked || !hung.waits_for_attempts(session) {
                hung.mark_stuck(session, limit);
            }
        }
        if are_all_blocked && !session.lost.is_cancelled() {
            tracing::error!(
                session = %session.id, threads,
                "turns that do not return block all threads of the runtime, so this worker cannot do anything; \
                 restart the process. Other workers continue its other runs"
            );
            session.abandon();
            block_on(session.world.leave(session.id), monotonic() + WORLD_TIMEOUT);
        }
    }
}

/// Commits that a run is stuck because its turn does not return.
async fn commit_stuck(
    session: &Session,
    run: RunId,
    mailbox: &Mailbox,
    limit: Duration,
) -> Result<(), WorldError> {
    let message = format!(
        "a turn did not return within {}: the workflow loops without awaiting, or blocks its thread; \
         move slow work into a step and deploy, and the run resumes",
        duration_text(limit)
    );
    let stuck = Stuck::new(StuckReason::Hung, message).in_build(&*session.settings.build);
    // When the sender in it is dropped, the caller repeats the start, and finds the run.
    let pending_start = mailbox.take_pending_start();
    let turn = match &pending_start {
        Some(pending) => stuck_start(session, &pending.start, stuck),
        None => {
            let held = session.world.held(session.id).await?;
            // The turn has returned in the meantime.
            let Some(held) = held.into_iter().find(|held| held.run == run) else { return Ok(()) };
            let turn = session.release_turn(held, Then::Stuck(stuck)).await?;
            store_outcomes(session, mailbox, turn).await?
        }
    };
    // Without the committer: it needs the runtime, whose threads may all be blocked.
    session.world.commit(session.id, &[turn]).await?.remove(0).map(drop)
}

/// Stores the outcomes of attempts in the run's inbox, so that the attempts are not repeated. Returns the turn that
/// marks the run as stuck after that.
async fn store_outcomes(session: &Session, mailbox: &Mailbox, turn: Turn) -> Result<Turn, WorldError> {
    let history = read_history(&*session.world, turn.run, turn.columns.before.replay_from).await?;
    let mut events = history.iter().flat_map(|turn| &turn.events);
    let is_cancelled = events.any(|event| matches!(event, Event::CancelRequested { .. }));
    // After a cancel, only the run's future knows which steps are retried.
    let may_retry = |_, at| !is_cancelled && turn.columns.after.deadline.is_none_or(|deadline| at < deadline);
    let events = mailbox.outcomes.events(may_retry);
    if events.is_empty() {
        return Ok(turn);
    }
    let body = MessageBody::Attempted { events };
    let message = NewMessage { id: ids::message(), run: turn.run, body, headers: Headers::new() };
    let outbox = Some(Box::new(Outbox { messages: vec![message], ..Outbox::default() }));
    let storing = Turn { id: ids::turn(), outbox, then: Then::Hold, ..turn.clone() };
    let from = BasedOn::Turn(storing.id);
    session.world.commit(session.id, &[storing]).await?.remove(0)?;
    Ok(Turn { based_on: from, ..turn })
}

/// Returns the turn that starts a run whose first turn does not return. Its id differs from that of the first turn, so
/// that the world refuses the first turn if it returns after all.
fn stuck_start(session: &Session, start: &Start, stuck: Stuck) -> Turn {
    let (at, build) = (session.clock.now(), session.settings.build.clone());
    Turn { then: Then::Stuck(stuck), ..Turn::starting(start.clone(), ids::turn(), at, build) }
}
