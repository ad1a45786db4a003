//! The task of one live run: brings it to life, and sees it off.

use std::sync::Arc;

use outlast_core::event::TurnRecord;
use outlast_core::turn::LastTurn;
use outlast_core::{
    Busy, Claimed, ClaimedHistory, Codec, Event, Headers, HolderColumns, MessageBody, NewMessage, Outbox,
    RunId, RunStarted, Start, Started, Stuck, StuckReason, Then, Timestamp, Turn, WorldError,
};
use tokio::sync::oneshot;

use super::committer::patiently;
use super::histories::Given;
use super::live::{End, Kept, Live, start_answer};
use super::notes::{First, Notes};
use super::place::{Gone, Place};
use super::session::Session;
use crate::ids;
use crate::replay::Machine;
use crate::upkeep;

/// A task that holds one run.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) session: Arc<Session>,
    pub(super) run: RunId,
    pub(super) notes: Arc<Notes>,
    /// The run is being worked on as long as its task lives.
    pub(super) _busy: Busy,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.session.forget(self.run, &self.notes);
    }
}

type StartAnswer = oneshot::Sender<Result<Started, WorldError>>;

impl Task {
    /// Holds a run from its start: the start and the first turn are one commit.
    pub(super) async fn started(mut self, start: Arc<Start>, answer: StartAnswer) {
        let at = self.session.clock.now();
        self.notes.put_first(First { start: start.clone(), answer });
        let first_turn = self.first_turn(&start, at);
        // Otherwise the watchdog has given it up.
        let Some(first) = self.notes.take_first() else { return };
        drop(start);
        let First { start, answer } = *first;
        let start = Box::new(Arc::unwrap_or_clone(start));
        let kept = match first_turn {
            Ok((machine, events)) => self.begin(machine, events, at, start, answer).await,
            Err(_) => self.start_only(start, answer).await,
        };
        if let Some(given) = self.retire(kept) {
            // Rare, and large: not in the state of every run.
            Box::pin(self.claimed(*given)).await;
        }
    }

    /// Holds a run that was claimed.
    pub(super) async fn claimed(mut self, given: Given) {
        let mut next = Some(Box::new(given));
        while let Some(given) = next {
            let kept = self.hold_once(*given).await;
            next = self.retire(kept);
        }
    }

    /// Leaves the list of live runs, unless the run was claimed again meanwhile.
    fn retire(&mut self, mut kept: Kept) -> Option<Box<Given>> {
        let (session, run) = (self.session.clone(), self.run);
        session.heartbeats.released(run);
        let mut evicted = None;
        let mut keep = || {
            evicted = kept.take().and_then(|(turn, machine)| session.cache.lock().put(run, turn, machine));
        };
        let next = session.delist(run, &self.notes, &mut keep);
        if next.is_some() {
            // It goes on at once, with the same future.
            keep();
        }
        drop(evicted);
        next
    }

    fn first_turn(&self, start: &Start, at: Timestamp) -> Result<(Machine, Vec<Event>), Stuck> {
        let _computing = self.notes.compute();
        let event = start.event();
        let settings = &self.session.settings;
        let mut machine = match &event {
            Event::RunStarted(started) => {
                Machine::new(self.run, started, &settings.code, &settings.codec, at)?
            }
            _ => return Err(unreadable(self.run)),
        };
        let mut events = vec![event];
        machine.begin(&mut events)?;
        match machine.cannot_attempt(&settings.code) {
            Some(stuck) => Err(stuck),
            None => Ok((machine, events)),
        }
    }

    async fn begin(
        &mut self,
        machine: Machine,
        events: Vec<Event>,
        at: Timestamp,
        start: Box<Start>,
        answer: StartAnswer,
    ) -> Kept {
        let started = Started { run: self.run, is_new: true };
        let columns = Arc::new(HolderColumns::of_start(&start));
        let place = Place { turn: start.turn, at, seq: 0, consumed: 0, columns };
        let mut live = Live::new(self, machine, place);
        let Ok(draft) = live.first_draft(events).await else {
            drop(live);
            return self.start_only(start, answer).await;
        };
        let ended = live.begin(start, draft, |committed| {
            // Whoever asked may be gone; the run is started all the same.
            let _ = answer.send(start_answer(started, committed));
        });
        let ended = ended.await;
        let seen_off = see_off(live, ended).await;
        self.finish(seen_off).await
    }

    /// Starts the run without a turn: the start is good, though its first turn is not. Whoever claims the run finds
    /// out.
    async fn start_only(&self, start: Box<Start>, answer: StartAnswer) -> Kept {
        let started = self.session.world.start(vec![*start]).await;
        let _ = answer.send(started.and_then(|mut answers| answers.remove(0)));
        None
    }

    /// Keeps what is to be kept, and says why the rest was let go.
    async fn finish(&mut self, seen_off: Result<Kept, Box<Unkept>>) -> Kept {
        match seen_off {
            Ok(kept) => kept,
            Err(unkept) => {
                Box::pin(self.let_go(*unkept)).await;
                None
            }
        }
    }

    async fn hold_once(&mut self, mut given: Given) -> Kept {
        if self.end_without_code(&mut given).await {
            return None;
        }
        self.notes.outcomes.set_told(Vec::new());
        let place = Place::of(&given.claimed);
        let is_fresh = given.claimed.is_fresh;
        let inbox = std::mem::take(&mut given.claimed.inbox);
        let details = std::mem::take(&mut given.claimed.details);
        let seen_off = match self.machine_of(given).await {
            Ok(machine) => {
                let mut live = Live::new(self, machine, place);
                live.told_of(details);
                let ended = live.resume(inbox, is_fresh).await;
                see_off(live, ended).await
            }
            Err(gone) => Err(Box::new(Unkept { place, gone, untold: Vec::new() })),
        };
        self.finish(seen_off).await
    }

    async fn machine_of(&self, mut given: Given) -> Result<Machine, Gone> {
        let meter = &self.session.settings.meter;
        let claimed = &given.claimed;
        if let ClaimedHistory::Unreadable(reason) = &claimed.history {
            return Err(Gone::Stuck(cannot_be_read(reason)));
        }
        if let Some(machine) = self.session.cache.lock().take(claimed.run, claimed.turn) {
            meter.cache_hits.add(1);
            return Ok(machine);
        }
        if !claimed.is_fresh {
            meter.cache_misses.add(1);
        }
        given.history_read().await;
        let Claimed { run, is_fresh, history, .. } = given.claimed;
        let history = match history {
            ClaimedHistory::Whole(history) => history,
            ClaimedHistory::LeftOut => read_history(&self.session, run).await.map_err(Gone::of)?,
            ClaimedHistory::Unreadable(reason) => return Err(Gone::Stuck(cannot_be_read(&reason))),
        };
        machine_from(self, history, is_fresh)
    }

    /// Ends a run for which its code is not needed; tells whether it was such a run.
    async fn end_without_code(&mut self, given: &mut Given) -> bool {
        let now = self.session.clock.now();
        if upkeep::may_end(&given.claimed, now) {
            given.history_read().await;
        }
        let claimed = &given.claimed;
        let world = &*self.session.world;
        let ending =
            match patiently(&self.session.settings.outage, || upkeep::ending(world, claimed, now)).await {
                Ok(Some(ending)) => ending,
                Ok(None) => return false,
                Err(error) => {
                    tracing::warn!(run = %self.run, %error, "let go of a run");
                    return true;
                }
            };
        drop(self.session.cache.lock().take(claimed.run, claimed.turn));
        // Whoever asks for the end from here on asks the world.
        self.session.set_ending(self.run);
        let turn = ending.turn(claimed, self.session.settings.build.clone(), now);
        match self.session.committer.commit(turn).await {
            Ok(_) => self.session.heartbeats.claimed(&given.claimed.details, |_| false),
            Err(error) => tracing::warn!(run = %self.run, %error, "a run was not ended"),
        }
        true
    }

    /// Lets go of a run that cannot go on here.
    async fn let_go(&mut self, Unkept { place, gone, untold }: Unkept) {
        match gone {
            Gone::Lost(error) => tracing::warn!(run = %self.run, %error, "let go of a run"),
            Gone::Stuck(stuck) => {
                tracing::error!(run = %self.run, reason = %stuck.reason, "a run is stuck: {}", stuck.message);
                let place = self.put_into_inbox(place, untold).await;
                let turn = self.empty_turn(place, Then::Stuck(self.signed(stuck)));
                if let Err(error) = self.session.committer.commit(turn).await {
                    tracing::warn!(run = %self.run, %error, "a stuck run was not marked");
                }
            }
        }
    }

    /// Puts outcomes of attempts into the run's own inbox, so that they are not made again when it goes on. Answers
    /// where the run is then.
    async fn put_into_inbox(&self, place: Place, untold: Vec<Event>) -> Place {
        if untold.is_empty() {
            return place;
        }
        let body = MessageBody::Attempted { events: untold };
        let message = NewMessage { id: ids::message(), run: self.run, body, headers: Headers::new() };
        let outbox = Outbox { messages: vec![message], ..Outbox::default() };
        let turn = Turn { outbox: Some(Box::new(outbox)), ..self.empty_turn(place.clone(), Then::Hold) };
        let id = turn.id;
        match self.session.committer.commit(turn).await {
            Ok(_) => Place { turn: id, ..place },
            Err(error) => {
                tracing::warn!(run = %self.run, %error, "the outcomes of attempts of a stuck run are not kept");
                place
            }
        }
    }

    fn signed(&self, stuck: Stuck) -> Stuck {
        Stuck { build: self.session.settings.build.to_string(), ..stuck }
    }

    fn empty_turn(&self, place: Place, then: Then) -> Turn {
        let at = self.session.clock.now().max(place.at);
        let Place { turn, seq, consumed, columns, .. } = place;
        let last = LastTurn { run: self.run, turn, seq, consumed, columns };
        Turn { then, ..Turn::following(&last, ids::turn(), at, self.session.settings.build.clone()) }
    }
}

/// A run that is let go of without a turn.
struct Unkept {
    place: Place,
    gone: Gone,
    /// Outcomes of attempts that the history does not have.
    untold: Vec<Event>,
}

async fn see_off(mut live: Live<'_>, ended: Result<End, Gone>) -> Result<Kept, Box<Unkept>> {
    match ended {
        Ok(End::Released) => Ok(live.into_kept()),
        Ok(End::Ended) => Ok(None),
        Err(gone) => {
            if matches!(gone, Gone::Stuck(_)) {
                // Rare, and large: not in the state of every run.
                Box::pin(live.finish_attempts()).await;
            }
            Err(Box::new(Unkept { place: live.place(), gone, untold: live.into_untold() }))
        }
    }
}

/// Why a run is stuck whose history or inbox this build cannot read.
pub(super) fn cannot_be_read(reason: &str) -> Stuck {
    let message = format!("the stored data of the run cannot be read: {reason}");
    Stuck { reason: StuckReason::Unreadable, message, build: String::new() }
}

fn unreadable(run: RunId) -> Stuck {
    Stuck {
        reason: StuckReason::Unreadable,
        message: format!("the history of run {run} does not begin with `run_started`"),
        build: String::new(),
    }
}

/// The whole history of a run.
pub(super) async fn read_history(session: &Session, run: RunId) -> Result<Vec<TurnRecord>, WorldError> {
    patiently(&session.settings.outage, || upkeep::read_history(&*session.world, run)).await
}

/// The machine of a run with this history; one that had no turn yet is not polled.
pub(super) fn machine_from(task: &Task, history: Vec<TurnRecord>, is_fresh: bool) -> Result<Machine, Gone> {
    let (run, settings) = (task.run, &task.session.settings);
    let (code, codec): (_, &Arc<dyn Codec>) = (&settings.code, &settings.codec);
    let _computing = task.notes.compute();
    if !is_fresh {
        settings.meter.replays.add(1);
        // A start that no worker saw has no build.
        let last = history.iter().rev().find(|turn| !turn.build.is_empty());
        let is_of_other_code = last.is_some_and(|turn| turn.build != settings.build);
        let mut machine = Machine::replay(run, history, code, codec).map_err(Gone::Stuck)?;
        if is_of_other_code {
            machine.write_tags_again();
        }
        return Ok(machine);
    }
    let first = history.into_iter().next().ok_or_else(|| Gone::Stuck(unreadable(run)))?;
    match first.events.into_iter().next() {
        Some(Event::RunStarted(started)) => {
            let started: RunStarted = started;
            Machine::new(run, &started, code, codec, first.at).map_err(Gone::Stuck)
        }
        _ => Err(Gone::Stuck(unreadable(run))),
    }
}
