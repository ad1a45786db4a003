//! Calls that have arrived at the world inside: done, and seen by the witness.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast_core::limits::{HISTORY_TURNS_READ_MAX, INBOX_MESSAGES_MAX};
use outlast_core::world::Answers;
use outlast_core::{
    ClaimRequest, Clock, Committed, Delivered, Join, MessageBody, NewMessage, RunId, Sent, SessionId, Start,
    Started, Stuck, StuckReason, Then, Timestamp, Turn, TurnRecord, Work, WorldError,
};

use super::coverage::Situation;
use super::crew::Build;
use super::node::Node;
use super::stage::{Stage, brief, short};

impl Stage {
    pub(super) async fn start(self: Arc<Self>, who: Arc<Node>, starts: Vec<Start>) -> Answers<Started> {
        let answers = self.inner.start(starts.clone()).await?;
        for (start, answer) in starts.iter().zip(&answers) {
            self.note(&who.name, format_args!("start {} -> {}", short(start.run), told(answer)));
            let first = match answer {
                Ok(started) => self.history(started.run).await.into_iter().next(),
                Err(_) => None,
            };
            let wrong = self.witness.lock().started(start, answer, first);
            wrong.into_iter().for_each(|wrong| self.wrong(wrong));
        }
        Ok(answers)
    }

    pub(super) async fn send(self: Arc<Self>, who: Arc<Node>, messages: Vec<NewMessage>) -> Answers<Sent> {
        let room = self.hook_room(&messages).await;
        let answers = self.inner.send(messages.clone()).await?;
        for (message, answer) in messages.iter().zip(&answers) {
            self.judge_limit(message, room, answer);
            self.note(
                &who.name,
                format_args!("send {} {:?} -> {}", short(message.run), message.body, told(answer)),
            );
            if let Ok(sent) = answer {
                let wrong = self.witness.lock().sent(message, sent.position, self.clock.now());
                wrong.into_iter().for_each(|wrong| self.wrong(wrong));
            }
        }
        Ok(answers)
    }

    pub(super) async fn join(self: Arc<Self>, who: Arc<Node>, join: Join) -> Result<(), WorldError> {
        self.note(&who.name, format_args!("join {}", brief(join.session)));
        let session = join.session;
        // Before it can be claimed under. One that comes again after it left is another.
        who.joined(session);
        self.witness.lock().gone.remove(&session);
        self.inner.join(join).await
    }

    pub(super) async fn leave(self: Arc<Self>, who: Arc<Node>, session: SessionId) -> Result<(), WorldError> {
        self.note(&who.name, format_args!("leave {}", brief(session)));
        let left = self.inner.leave(session).await;
        self.look_for_sessions().await;
        left
    }

    pub(super) async fn takeover(
        self: Arc<Self>,
        who: Arc<Node>,
        session: SessionId,
    ) -> Result<u64, WorldError> {
        let before = self.sessions().await;
        let taken = self.inner.takeover(session).await;
        let after = self.look_for_sessions().await;
        for gone in before.difference(&after) {
            self.note(&who.name, format_args!("takeover of {}", brief(*gone)));
            self.witness.lock().tally.takeovers += 1;
            let is_excused = self.node_of(*gone).is_none_or(|node| node.is_excused());
            if !is_excused && !self.profile.has_jumps {
                self.wrong(format!("session {gone} was taken over, and nothing had happened to its worker"));
            }
        }
        taken
    }

    pub(super) async fn claim(
        self: Arc<Self>,
        who: Arc<Node>,
        session: SessionId,
        request: ClaimRequest,
    ) -> Result<Work, WorldError> {
        let work = self.inner.claim(session, request).await?;
        for unread in &work.unread {
            let (run, count) = (short(unread.run), unread.messages.len());
            self.note(&who.name, format_args!("claim brings {count} unread of {run}"));
        }
        for claimed in &work.claimed {
            self.note(
                &who.name,
                format_args!(
                    "claim {} by {} at {} with {} unread",
                    short(claimed.run),
                    brief(session),
                    claimed.seq,
                    claimed.inbox.len()
                ),
            );
            let history = self.history(claimed.run).await;
            let mut witness = self.witness.lock();
            if let Some(first) = history.into_iter().next() {
                witness.began(claimed.run, first);
            }
            let wrong = witness.claimed(claimed.run, session);
            drop(witness);
            wrong.into_iter().for_each(|wrong| self.wrong(wrong));
        }
        Ok(work)
    }

    pub(super) async fn deliver(
        self: Arc<Self>,
        who: Arc<Node>,
        session: SessionId,
    ) -> Result<Delivered, WorldError> {
        let delivered = self.inner.deliver(session).await?;
        if delivered.applied > 0 {
            self.note(&who.name, format_args!("deliver {} -> {delivered:?}", brief(session)));
            self.saw(Situation::LateEffect);
        }
        Ok(delivered)
    }

    pub(super) async fn commit(
        self: Arc<Self>,
        who: Arc<Node>,
        session: SessionId,
        turns: Vec<Turn>,
    ) -> Answers<Committed> {
        let answers = self.inner.commit(session, &turns).await?;
        let now = if self.profile.has_jumps { Timestamp::NEVER } else { self.clock.now() };
        for (turn, answer) in turns.iter().zip(&answers) {
            let kinds: Vec<_> = turn.events.iter().map(outlast_core::Event::kind).collect();
            self.note(
                &who.name,
                format_args!(
                    "commit {} by {} at {} {} consumed {} {} -> {}",
                    short(turn.run),
                    brief(session),
                    turn.seq,
                    kinds.join(" "),
                    turn.consumed,
                    then(turn),
                    told(answer)
                ),
            );
            if let Then::Stuck(stuck) = &turn.then
                && answer.is_ok()
            {
                self.judge_stuck(turn, stuck);
            }
            if answer.is_ok() && self.profile.has_old_rules && *turn.build == *Build::Some.to_string() {
                self.saw(Situation::TurnOfOldRules);
            }
            let wrong = self.witness.lock().committed(session, turn, answer, now);
            wrong.into_iter().for_each(|wrong| self.wrong(wrong));
        }
        Ok(answers)
    }

    /// A build is stuck where it lacks code, or cannot read a value; nobody is for another reason.
    fn judge_stuck(&self, turn: &Turn, stuck: &Stuck) {
        let is_older = self.profile.has_older_build && *turn.build == *Build::Some.to_string();
        let situation = match stuck.reason {
            StuckReason::StepNotRegistered => Some(Situation::StepNotRegistered),
            StuckReason::Undecodable if is_older => unreadable_part(&stuck.message),
            _ => None,
        };
        match situation {
            Some(situation) => self.saw(situation),
            None => self.wrong(format!("run {} is stuck: {}: {}", turn.run, stuck.reason, stuck.message)),
        }
    }

    /// How many more payloads the run of a single message takes; `None` when it is not looked at.
    async fn hook_room(&self, messages: &[NewMessage]) -> Option<u64> {
        let [NewMessage { run, body: MessageBody::Hook { name, .. }, .. }] = messages else { return None };
        let limit = self.hook_limit()?;
        let view = self.inner.run(*run).await.ok()?;
        let unread = view.sent - view.consumed;
        if view.waits.iter().any(|wait| wait.is_for_hook(name)) {
            return Some(INBOX_MESSAGES_MAX.saturating_sub(unread));
        }
        Some(limit.saturating_sub(unread + view.kept))
    }

    /// A payload is refused when the run keeps too many, and only then.
    fn judge_limit(&self, message: &NewMessage, room: Option<u64>, answer: &Result<Sent, WorldError>) {
        let is_refused = matches!(answer, Err(WorldError::Limit(_)));
        if is_refused {
            self.saw(Situation::RefusedAtLimit);
        }
        let is_known = self.witness.lock().knows(message);
        match room {
            Some(0) if answer.is_ok() && !is_known => {
                self.wrong(format!("run {} has no room for {}, and took it", message.run, message.id));
            }
            Some(1..) | None if is_refused => {
                self.wrong(format!("run {} has room for {}, and refused it", message.run, message.id));
            }
            _ => {}
        }
    }

    /// The history that the world has now.
    pub(super) async fn history(&self, run: RunId) -> Vec<TurnRecord> {
        self.inner.history(run, 0, HISTORY_TURNS_READ_MAX).await.unwrap_or_default()
    }

    /// The sessions that the world has now.
    pub(super) async fn sessions(&self) -> BTreeSet<SessionId> {
        let workers = self.inner.workers().await.unwrap_or_default();
        workers.into_iter().map(|worker| worker.session).collect()
    }

    /// Looks which sessions are gone.
    async fn look_for_sessions(&self) -> BTreeSet<SessionId> {
        let now = self.sessions().await;
        let known: Vec<_> = self.nodes.lock().iter().flat_map(|node| node.sessions()).collect();
        self.witness.lock().sessions_are(known.into_iter(), &now);
        now
    }
}

/// Which value it was that could not be read, as the reason says.
fn unreadable_part(message: &str) -> Option<Situation> {
    let parts = [
        ("the recorded input of workflow", Situation::UndecodableInput),
        ("the input of step", Situation::UndecodableStepInput),
        ("the recorded output of step", Situation::UndecodableStepOutput),
        ("the recorded output of child", Situation::UndecodableChildOutput),
        ("the recorded payload of hook", Situation::UndecodablePayload),
        ("the recorded value", Situation::UndecodableValue),
    ];
    parts.into_iter().find(|(part, _)| message.contains(part)).map(|(_, situation)| situation)
}

fn then(turn: &Turn) -> &'static str {
    match turn.then {
        Then::Hold => "hold",
        Then::Wait { .. } => "wait",
        Then::Release => "release",
        Then::End(_) => "end",
        Then::Stuck(_) => "stuck",
    }
}

fn told<T: std::fmt::Debug>(answer: &Result<T, WorldError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{error:?}").chars().take(60).collect(),
    }
}
