//! Committing turns: the fence, the history, and what becomes of the run.
//!
//! Turns that concern their own runs alone are one statement for all of them; the others are another, which
//! takes them one by one. Those come first, unless one of them reaches a run that has an earlier turn here.

use std::collections::HashSet;

use outlast_core::refusal::{key_taken, session_gone};
use outlast_core::turn::From;
use outlast_core::{Committed, Ended, Event, Outcome, RunId, SessionId, Started, Then, Turn, WorldError};
use tokio_postgres::Row;

use crate::beyond::{FarTurns, commit_each};
use crate::clock::Time;
use crate::error::corrupt;
use crate::message::Values1;
use crate::row::{Damaged, get, maybe_moment, maybe_text, moment};
use crate::start::STATEMENT_BYTES_MAX;
use crate::store::{Failed, Store};
use crate::told::{News, Told};
use crate::turn::{Turns, check, fenced, invalid, reaches_beyond};

type Answer = Result<Committed, WorldError>;

/// Turns of different runs whose order does not matter, but for that among the far ones, which come first.
#[derive(Default)]
struct Group {
    /// Turns that do something beyond their own runs.
    far: Vec<usize>,
    /// Those that do not.
    near: Vec<usize>,
    /// The first turn behind the group.
    end: usize,
}

impl Group {
    /// Gathers as many turns as can be one group.
    fn gather(turns: &[Turn], first: usize) -> Self {
        let mut group = Self { end: first, ..Self::default() };
        let (mut runs, mut near_runs) = (HashSet::<RunId>::new(), HashSet::<RunId>::new());
        let mut bytes = 0;
        for (index, turn) in turns.iter().enumerate().skip(first) {
            bytes += turn.events.iter().map(size).sum::<usize>();
            let is_far = reaches_beyond(turn);
            let reaches_back = is_far && receivers(turn).any(|run| near_runs.contains(&run));
            let is_first = index == first;
            if !is_first && (reaches_back || bytes > STATEMENT_BYTES_MAX) || !runs.insert(turn.run) {
                break;
            }
            if is_far {
                group.far.push(index);
            } else {
                near_runs.insert(turn.run);
                group.near.push(index);
            }
            group.end = index + 1;
        }
        group
    }
}

/// The runs that a turn sends to.
fn receivers(turn: &Turn) -> impl Iterator<Item = RunId> {
    turn.beyond.iter().flat_map(|beyond| beyond.messages.iter().map(|message| message.run))
}

/// How many bytes an event has, roughly.
fn size(event: &Event) -> usize {
    let payload = match event {
        Event::RunStarted(started) => started.input.bytes().len(),
        Event::RunCompleted { output }
        | Event::StepCompleted { output, .. }
        | Event::ChildCompleted { output, .. } => output.bytes().len(),
        Event::StepStarted { input, .. } => input.bytes().len(),
        Event::HookReceived { payload, .. } => payload.bytes().len(),
        _ => 0,
    };
    payload + 100
}

/// How a turn ends its run, if it does.
fn end(turn: &Turn) -> Option<Ended> {
    match (&turn.then, turn.events.last().and_then(Outcome::of_final)) {
        (Then::End(_), Some(outcome)) => Some(Ended { run: turn.run, outcome }),
        _ => None,
    }
}

/// A commit under way.
pub(crate) struct Commit<'a> {
    pub(crate) store: &'a Store,
    pub(crate) time: &'a Time,
    told: &'a Told,
    pub(crate) session: SessionId,
    pub(crate) turns: &'a [Turn],
    pub(crate) answers: Vec<Answer>,
    pub(crate) news: News,
    refusals: Vec<Option<WorldError>>,
}

impl<'a> Commit<'a> {
    pub(crate) fn new(
        store: &'a Store,
        time: &'a Time,
        told: &'a Told,
        session: SessionId,
        turns: &'a [Turn],
    ) -> Self {
        let refusals: Vec<_> = turns.iter().map(|turn| check(turn).err()).collect();
        let answers = vec![Ok(Committed::Done); turns.len()];
        Self { store, time, told, session, turns, answers, news: News::default(), refusals }
    }

    /// Commits all of them; refuses when the whole call came to nothing.
    pub(crate) async fn run(&mut self) -> Result<(), WorldError> {
        let mut next = 0;
        while next < self.turns.len() {
            let group = Group::gather(self.turns, next);
            next = group.end;
            self.each(&group.far).await?;
            if !group.near.is_empty() {
                self.together(group.near).await?;
            }
        }
        Ok(())
    }

    /// Commits turns by one statement. If Postgres refuses what one of them says, each is tried alone.
    async fn together(&mut self, part: Vec<usize>) -> Result<(), WorldError> {
        let mut columns = Turns::default();
        for &index in &part {
            columns.add(&self.turns[index], self.refusals[index].as_ref());
        }
        let (session, at) = (self.session.to_string(), self.time.at());
        if columns.is_plain() {
            match self.alone(part[0], columns).await? {
                None => return Ok(()),
                Some(again) => columns = again,
            }
        }
        let mut values: Vec<Values1<'_>> = vec![&session, &at];
        values.extend(columns.values());
        match self.store.try_call(&self.store.sql.commit, &values).await {
            Ok(rows) => self.read(&part, &rows),
            Err(failed) => self.not_together(part, &failed).await,
        }
    }

    /// Commits a plain turn. It comes back when the statement for all turns has to say what is the matter with it.
    async fn alone(&mut self, index: usize, turn: Turns) -> Result<Option<Turns>, WorldError> {
        let (store, told, time, session) =
            (self.store.clone(), self.told.clone(), self.time.clone(), self.session);
        let ended = end(&self.turns[index]);
        let is_end = ended.is_some();
        let commit = async move {
            let (session, at) = (session.to_string(), time.at());
            let values = [&[&session as Values1<'_>, &at], &turn.values_of_one()[..]].concat();
            let rows = store.try_call(&store.sql.commit_one, &values).await?;
            let moment = rows.first().map_or(Ok(None), |row| maybe_moment(row, 0));
            let Some(moment) = moment.map_err(|why| Failed::Corrupt(corrupt(&store.place, &why)))? else {
                return Ok(Some(turn));
            };
            if let Some(ended) = ended {
                time.learn(moment);
                told.tell(News { ended: vec![ended], ..News::default() });
            }
            Ok(None)
        };
        let done = if is_end {
            // In the world's own thread: from there others hear of the end without a detour.
            self.store.handle.spawn(commit).await.unwrap_or(Err(Failed::Closed))
        } else {
            commit.await
        };
        match done {
            Ok(turn) => Ok(turn),
            Err(failed) => self.refuse(vec![index], &failed).map(|()| None),
        }
    }

    async fn not_together(&mut self, part: Vec<usize>, failed: &Failed) -> Result<(), WorldError> {
        if failed.is_about_data() && part.len() > 1 {
            for index in part {
                Box::pin(self.together(vec![index])).await?;
            }
            return Ok(());
        }
        self.refuse(part, failed)
    }

    /// Commits turns that do something beyond their own runs, in their order.
    async fn each(&mut self, turns: &[usize]) -> Result<(), WorldError> {
        let mut rest = turns.iter().copied();
        loop {
            let (mut far, mut part) = (FarTurns::default(), Vec::new());
            for index in rest.by_ref() {
                match far.add(&self.turns[index], self.refusals[index].as_ref()) {
                    Ok(()) => part.push(index),
                    Err(error) => self.answers[index] = Err(error),
                }
                if far.is_full() {
                    break;
                }
            }
            if part.is_empty() {
                return Ok(());
            }
            match commit_each(self.store, self.time, self.session, &far).await {
                Ok(rows) => {
                    self.read(&part, &rows)?;
                    self.news.rings |= part.iter().any(|index| self.has_told(*index));
                }
                Err(failed) => self.not_each(part, &failed).await?,
            }
        }
    }

    /// Whether a turn started runs or sent messages.
    fn has_told(&self, index: usize) -> bool {
        let beyond = self.turns[index].beyond.as_ref();
        let tells = beyond.is_some_and(|beyond| !beyond.children.is_empty() || !beyond.messages.is_empty());
        tells && self.answers[index].is_ok()
    }

    async fn not_each(&mut self, part: Vec<usize>, failed: &Failed) -> Result<(), WorldError> {
        if failed.is_about_data() && part.len() > 1 {
            for index in part {
                Box::pin(self.each(&[index])).await?;
            }
            return Ok(());
        }
        self.refuse(part, failed)
    }

    /// Refuses turns; the whole call, when those are all of it and not to blame.
    fn refuse(&mut self, part: Vec<usize>, failed: &Failed) -> Result<(), WorldError> {
        let error = self.store.world_error(failed);
        if part.len() == self.turns.len() && !failed.is_about_data() {
            return Err(error);
        }
        part.into_iter().for_each(|index| self.answers[index] = Err(error.clone()));
        Ok(())
    }

    /// Takes the answers for turns.
    fn read(&mut self, part: &[usize], rows: &[Row]) -> Result<(), WorldError> {
        let mut refused: HashSet<usize> = HashSet::new();
        for row in rows {
            let (nth, code) = self.told(row).map_err(|why| corrupt(&self.store.place, &why))?;
            if code == "gone" {
                part.iter().for_each(|index| self.answers[*index] = Err(session_gone(self.session)));
                return Ok(());
            }
            let Some(&index) = nth.checked_sub(1).and_then(|nth| part.get(nth)) else { continue };
            let detail = maybe_text(row, 2).map_err(|why| corrupt(&self.store.place, &why))?;
            self.answers[index] = self.answer(index, &code, detail.as_deref().unwrap_or_default());
            if !matches!(self.answers[index], Ok(Committed::Done)) {
                refused.insert(index);
            }
        }
        let done = part.iter().filter(|index| !refused.contains(index));
        self.news.ended.extend(done.filter_map(|index| end(&self.turns[*index])));
        Ok(())
    }

    fn told(&mut self, row: &Row) -> Result<(usize, String), Damaged> {
        let nth: i32 = get(row, 0)?;
        let code: &str = get(row, 1)?;
        if code == "now" {
            self.time.learn(moment(row, 3)?);
            self.news.rings |= get::<bool>(row, 4)?;
        }
        Ok((usize::try_from(nth).unwrap_or(0), code.to_owned()))
    }

    /// The answer to a turn that is not simply done.
    fn answer(&self, index: usize, code: &str, detail: &str) -> Answer {
        let turn = &self.turns[index];
        Err(match code {
            "done" => return Ok(Committed::Done),
            "existed" => return Ok(Committed::Existed(Started { run: turn.run, is_new: true })),
            "other" | "taken" => return self.existing(turn, code, detail),
            "none" => fenced(turn, "there is no such run"),
            "owner" if detail.is_empty() => fenced(turn, "nobody holds it"),
            "owner" => fenced(turn, &format!("session {detail} holds it")),
            "from" => {
                let from = if let From::Turn(from) = &turn.from { from.to_string() } else { String::new() };
                fenced(turn, &format!("it was computed from {from}, the last turn is {detail}"))
            }
            "seq" => invalid(turn, &format!("it begins with event {}, the next one is {detail}", turn.seq)),
            "less" => invalid(turn, "it consumed less than the turn before"),
            "more" => invalid(turn, "it consumed more messages than were sent"),
            "missed" => {
                let until = turn.fired_until.unwrap_or(turn.at);
                WorldError::Conflict(format!(
                    "run {} fired a timer of {until} and has not read a message from before; read its inbox first",
                    turn.run
                ))
            }
            _ => self.refusals[index].clone().unwrap_or_else(|| invalid(turn, "it is refused")),
        })
    }

    /// A start's key names another run.
    fn existing(&self, turn: &Turn, code: &str, detail: &str) -> Answer {
        let (run, workflow) = detail.split_once(' ').unwrap_or((detail, ""));
        let run: RunId = run.parse().map_err(|error| corrupt(&self.store.place, &error))?;
        match &turn.from {
            From::Start(start) if code == "taken" => Err(key_taken(start, run, workflow)),
            _ => Ok(Committed::Existed(Started { run, is_new: false })),
        }
    }
}
