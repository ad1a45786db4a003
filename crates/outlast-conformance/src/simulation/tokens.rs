//! The checks of tokens: one run holds a token at a time, a run that is refused one learns who holds it, and only the
//! run that holds a token gets what is sent to it.
//!
//! After each call that can change the directory, the simulation looks the chosen tokens up in the world. What it sees
//! is compared with the histories of the runs.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::{
    Clock, Event, MessageBody, NewMessage, OpNumber, RunId, Sent, Timestamp, TokenHash, Turn, WorldError,
};

use super::coverage::Situation;
use super::environment::Environment;
use super::exchange::{TOKENS, token_name};
use super::observer::{ObservedRun, Observer};

/// Who has a token, according to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) run: RunId,
    pub(super) op: OpNumber,
    pub(super) is_open: bool,
}

/// The chosen tokens, as the world has shown them.
#[derive(Debug, Default)]
pub(super) struct Directory {
    now: BTreeMap<u8, Holder>,
    /// The runs that had each token, in order.
    owners: BTreeMap<u8, Vec<RunId>>,
    /// The runs that had each token. Of several operations of a run, the last has it.
    named: BTreeSet<(u8, RunId)>,
    /// The number of owners of its token when each operation asked for it.
    requested: BTreeMap<(RunId, OpNumber), (u8, usize)>,
}

/// The number of a chosen token.
fn number_of(token: &str) -> Option<u8> {
    token.strip_prefix("token-")?.parse().ok()
}

/// What a run has requested with an operation: the token, and how long it is kept.
fn request_of(observed: &ObservedRun, wanted: OpNumber) -> Option<(u8, std::time::Duration)> {
    let mut events = observed.turns.iter().flat_map(|turn| &turn.events);
    events.find_map(|event| match event {
        Event::TokenRequested(requested) if requested.op == wanted => {
            Some((number_of(&requested.token)?, requested.keep_for.unwrap_or_default()))
        }
        _ => None,
    })
}

/// When a run had closed the token of an operation, or had ended.
fn freed_at(observed: &ObservedRun, wanted: OpNumber) -> Option<Timestamp> {
    let closed = observed.turns.iter().rev().find(|turn| {
        turn.events.iter().any(|event| matches!(event, Event::TokenClosed { op } if *op == wanted))
    });
    let ended = observed.turns.last().filter(|_| observed.ended);
    [closed, ended].into_iter().flatten().map(|turn| turn.at).min()
}

impl Directory {
    /// The tokens that runs hold.
    pub(super) fn held(&self) -> Vec<u8> {
        self.now.iter().filter(|(_, holder)| holder.is_open).map(|(token, _)| *token).collect()
    }

    /// Records what the world shows now. Returns the violated rule, if any.
    fn saw(
        &mut self,
        token: u8,
        seen: Option<Holder>,
        observer: &Observer,
        now: Option<Timestamp>,
    ) -> Option<String> {
        let before = self.now.get(&token).copied();
        let Some(seen) = seen else {
            self.now.remove(&token);
            return None;
        };
        self.now.insert(token, seen);
        self.named.insert((token, seen.run));
        let owners = self.owners.entry(token).or_default();
        if owners.last() != Some(&seen.run) {
            owners.push(seen.run);
        }
        let before = before.filter(|before| before.run != seen.run)?;
        let observed = observer.runs.get(&before.run)?;
        let Some(freed_at) = freed_at(observed, before.op) else {
            return Some(format!("{seen:?} has token {token}, which {before:?} has neither closed nor left"));
        };
        let (_, keep_for) = request_of(observed, before.op)?;
        let until = freed_at.plus(keep_for);
        now.filter(|now| *now < until)
            .map(|_| format!("{seen:?} has token {token}, which is kept for {before:?} until {until}"))
    }

    /// Checks what a committed turn says about tokens. Returns the violated rule, if any.
    fn committed(&mut self, turn: &Turn, observed: &ObservedRun) -> Result<Vec<Situation>, String> {
        let (run, mut reached) = (turn.run, Vec::new());
        for event in &turn.events {
            match event {
                Event::TokenRequested(requested) => {
                    let Some(token) = number_of(&requested.token) else { continue };
                    let owners = self.owners.get(&token).map_or(0, Vec::len);
                    self.requested.entry((run, requested.op)).or_insert((token, owners));
                }
                Event::TokenTaken { op } => {
                    let Some((token, _)) = request_of(observed, *op) else { continue };
                    if !self.named.contains(&(token, run)) {
                        return Err(format!("run {run} says that it holds token {token}, and never did"));
                    }
                    reached.push(Situation::TokenTaken);
                }
                Event::TokenRefused { op, failure } => {
                    let owner = failure.details.as_ref().and_then(|details| details["run"].as_str());
                    let owner: Option<RunId> = owner.and_then(|owner| owner.parse().ok());
                    self.refused(run, *op, owner)?;
                    reached.push(Situation::TokenRefused);
                }
                Event::RunContinued(continued) if !continued.tokens.is_empty() => {
                    reached.push(Situation::TokenCarried);
                }
                _ => {}
            }
        }
        Ok(reached)
    }

    /// The owner that a refused run learns had the token since the run had requested it.
    fn refused(&self, run: RunId, op: OpNumber, owner: Option<RunId>) -> Result<(), String> {
        let Some(owner) = owner else {
            return Err(format!("run {run} was refused a token, and not told who has it"));
        };
        let Some((token, before)) = self.requested.get(&(run, op)) else { return Ok(()) };
        let since = self.owners.get(token).map_or(&[][..], |owners| &owners[before.saturating_sub(1)..]);
        // Within one call, for example one that applies several outboxes, a run may get a token and lose it unseen.
        let mut requests = self.requested.iter();
        let mut has_asked = || requests.any(|((asked, _), (named, _))| (asked, named) == (&owner, token));
        if owner == run || !since.contains(&owner) && !has_asked() {
            return Err(format!(
                "run {run} was refused token {token} for {owner}; since then {since:?} had it"
            ));
        }
        Ok(())
    }
}

impl Environment {
    /// Looks the chosen tokens up, and checks who has them.
    pub(super) async fn look_up_tokens(&self) {
        if !self.is_controlled || self.is_real_time {
            return;
        }
        let now = (!self.profile.has_clock_jumps).then(|| self.clock.now());
        for token in 0..TOKENS {
            let Ok(view) = self.inner.token(TokenHash::of(&token_name(token))).await else { continue };
            let seen = view.map(|view| Holder { run: view.run, op: view.op, is_open: view.is_open });
            let observer = self.observer.lock();
            let violation = self.controlled.lock().directory.saw(token, seen, &observer, now);
            drop(observer);
            violation.into_iter().for_each(|violation| self.report_violation(violation));
        }
    }

    /// Checks what a committed turn says about tokens.
    pub(super) fn check_tokens_of_turn(&self, turn: &Turn) {
        if !self.is_controlled || self.is_real_time {
            return;
        }
        let observer = self.observer.lock();
        let Some(observed) = observer.runs.get(&turn.run) else { return };
        let checked = self.controlled.lock().directory.committed(turn, observed);
        drop(observer);
        match checked {
            Ok(reached) => reached.into_iter().for_each(|situation| self.record(situation)),
            Err(violation) => self.report_violation(violation),
        }
    }

    /// Who has the token to which a single message is sent.
    pub(super) async fn holder_of_token(&self, messages: &[NewMessage]) -> Option<Option<Holder>> {
        let [NewMessage { body: body @ MessageBody::Hook { .. }, .. }] = messages else { return None };
        let view = self.inner.token(body.token_hash()?).await.ok()?;
        Some(view.map(|view| Holder { run: view.run, op: view.op, is_open: view.is_open }))
    }

    /// A payload that is sent to a token is accepted only for the run that holds it.
    pub(super) fn check_sent_to_token(
        &self,
        message: &NewMessage,
        holder: Option<Option<Holder>>,
        answer: &Result<Sent, WorldError>,
    ) {
        let (Some(holder), Ok(sent)) = (holder, answer) else { return };
        let is_right = holder.is_some_and(|holder| holder.run == message.run && holder.is_open);
        if !is_right && !sent.is_repeated {
            self.report_violation(format!(
                "run {} got a payload for a token that {holder:?} has",
                message.run
            ));
        }
        self.record(Situation::SentToToken);
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::{TokenRequested, TurnId, TurnRecord};

    use super::*;

    const ONE: RunId = RunId::from_bits(1);
    const TWO: RunId = RunId::from_bits(2);

    fn holder(run: RunId) -> Option<Holder> {
        Some(Holder { run, op: OpNumber(0), is_open: true })
    }

    fn observer(more: Vec<Event>) -> Observer {
        let requested = Event::TokenRequested(Box::new(TokenRequested {
            op: OpNumber(0),
            name: "hook".into(),
            token: "token-0".into(),
            is_generated: false,
            metadata: None,
            webhook: None,
            keep_for: Some(std::time::Duration::from_micros(10)),
        }));
        let events = [vec![requested], more].concat();
        let at = Timestamp::from_micros(5);
        let turn = TurnRecord { id: TurnId::from_bits(1), seq: 0, at, build: "".into(), events };
        let observed = ObservedRun { turns: vec![turn], ..ObservedRun::default() };
        Observer { runs: [(ONE, observed)].into(), ..Observer::default() }
    }

    #[test]
    fn a_token_has_one_holder_and_is_kept() {
        let now = |micros| Some(Timestamp::from_micros(micros));
        let mut directory = Directory::default();
        let open = observer(Vec::new());
        assert_eq!(directory.saw(0, holder(ONE), &open, now(5)), None);
        assert!(directory.saw(0, holder(TWO), &open, now(50)).unwrap().contains("neither closed nor left"));
        let closed = observer(vec![Event::TokenClosed { op: OpNumber(0) }]);
        directory.now.insert(0, holder(ONE).unwrap());
        assert!(directory.saw(0, holder(TWO), &closed, now(14)).unwrap().contains("kept"));
        directory.now.insert(0, holder(ONE).unwrap());
        assert_eq!(directory.saw(0, holder(TWO), &closed, now(15)), None);
    }

    #[test]
    fn a_refused_run_learns_who_had_the_token_since_it_asked() {
        let mut directory = Directory::default();
        let (three, op) = (RunId::from_bits(3), OpNumber(4));
        directory.owners.insert(0, vec![ONE, TWO]);
        directory.requested.insert((three, op), (0, 2));
        assert_eq!(directory.refused(three, op, Some(TWO)), Ok(()));
        directory.refused(three, op, Some(ONE)).unwrap_err();
        directory.refused(three, op, None).unwrap_err();
        directory.owners.get_mut(&0).unwrap().push(ONE);
        assert_eq!(directory.refused(three, op, Some(ONE)), Ok(()));
    }
}
