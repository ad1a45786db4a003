//! Executes the calls that arrive at the inner world, and reports them to the observer.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast_core::limits::{HISTORY_TURNS_READ_MAX, INBOX_MESSAGES_MAX};
use outlast_core::world::Answers;
use outlast_core::{
    ClaimRequest, Clock, Committed, Delivered, Join, MessageBody, NewMessage, RunId, Sent, SessionId, Start,
    Started, Stuck, StuckReason, Then, Timestamp, Turn, TurnRecord, Work, WorldError,
};

use super::coverage::Situation;
use super::environment::{Environment, short_run, short_session};
use super::node::Node;
use super::workers::Build;

impl Environment {
    pub(super) async fn start(self: Arc<Self>, who: Arc<Node>, starts: Vec<Start>) -> Answers<Started> {
        let answers = self.inner.start(starts.clone()).await?;
        for (start, answer) in starts.iter().zip(&answers) {
            self.log(
                &who.name,
                format_args!("start {} -> {}", short_run(start.run), describe_answer(answer)),
            );
            let first = match answer {
                Ok(started) => self.history(started.run).await.into_iter().next(),
                Err(_) => None,
            };
            let violation = self.observer.lock().started(start, answer, first);
            violation.into_iter().for_each(|violation| self.report_violation(violation));
        }
        Ok(answers)
    }

    pub(super) async fn send(self: Arc<Self>, who: Arc<Node>, messages: Vec<NewMessage>) -> Answers<Sent> {
        let room = self.hook_room(&messages).await;
        let holder = self.holder_of_token(&messages).await;
        let answers = self.inner.send(messages.clone()).await?;
        for (message, answer) in messages.iter().zip(&answers) {
            self.check_limit(message, room, answer);
            self.check_sent_to_token(message, holder, answer);
            self.log(
                &who.name,
                format_args!(
                    "send {} {:?} -> {}",
                    short_run(message.run),
                    message.body,
                    describe_answer(answer)
                ),
            );
            if let Ok(sent) = answer {
                let violation = self.observer.lock().sent(message, sent.position, self.clock.now());
                violation.into_iter().for_each(|violation| self.report_violation(violation));
            }
        }
        Ok(answers)
    }

    pub(super) async fn join(self: Arc<Self>, who: Arc<Node>, join: Join) -> Result<(), WorldError> {
        self.log(&who.name, format_args!("join {}", short_session(join.session)));
        let session = join.session;
        // Before the session can claim. A session that joins again after it left counts as a new one.
        who.joined(session);
        self.observer.lock().ended_sessions.remove(&session);
        self.inner.join(join).await
    }

    pub(super) async fn leave(self: Arc<Self>, who: Arc<Node>, session: SessionId) -> Result<(), WorldError> {
        self.log(&who.name, format_args!("leave {}", short_session(session)));
        let left = self.inner.leave(session).await;
        self.update_sessions().await;
        left
    }

    pub(super) async fn takeover(
        self: Arc<Self>,
        who: Arc<Node>,
        session: SessionId,
    ) -> Result<u64, WorldError> {
        let before = self.sessions().await;
        let taken = self.inner.takeover(session).await;
        let after = self.update_sessions().await;
        for lost in before.difference(&after) {
            self.log(&who.name, format_args!("takeover of {}", short_session(*lost)));
            self.observer.lock().statistics.takeovers += 1;
            let may_lose_session = self.node_of(*lost).is_none_or(|node| node.may_lose_session());
            if !may_lose_session && !self.profile.has_clock_jumps {
                self.report_violation(format!("session {lost} was taken over without a fault of its worker"));
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
            let (run, count) = (short_run(unread.run), unread.messages.len());
            self.log(&who.name, format_args!("claim brings {count} unread of {run}"));
        }
        for claimed in &work.claimed {
            self.log(
                &who.name,
                format_args!(
                    "claim {} by {} at {} with {} unread",
                    short_run(claimed.run),
                    short_session(session),
                    claimed.seq,
                    claimed.inbox.len()
                ),
            );
            let history = self.history(claimed.run).await;
            let mut observer = self.observer.lock();
            if !history.is_empty() {
                observer.began(claimed.run, history);
            }
            let violation = observer.claimed(claimed.run, session);
            drop(observer);
            violation.into_iter().for_each(|violation| self.report_violation(violation));
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
            self.log(&who.name, format_args!("deliver {} -> {delivered:?}", short_session(session)));
            self.record(Situation::LateEffect);
        }
        self.look_up_tokens().await;
        Ok(delivered)
    }

    pub(super) async fn commit(
        self: Arc<Self>,
        who: Arc<Node>,
        session: SessionId,
        turns: Vec<Turn>,
    ) -> Answers<Committed> {
        let answers = self.inner.commit(session, &turns).await?;
        let now = if self.profile.has_clock_jumps { Timestamp::NEVER } else { self.clock.now() };
        for (turn, answer) in turns.iter().zip(&answers) {
            let kinds: Vec<_> = turn.events.iter().map(outlast_core::Event::kind).collect();
            self.log(
                &who.name,
                format_args!(
                    "commit {} by {} at {} {} consumed {} {} -> {}",
                    short_run(turn.run),
                    short_session(session),
                    turn.seq,
                    kinds.join(" "),
                    turn.consumed,
                    describe_then(turn),
                    describe_answer(answer)
                ),
            );
            if let Then::Stuck(stuck) = &turn.then
                && answer.is_ok()
            {
                self.check_stuck(turn, stuck);
            }
            if answer.is_ok() && self.profile.has_old_rules && *turn.build == *Build::Partial.to_string() {
                self.record(Situation::TurnOfOldRules);
            }
            let violation = self.observer.lock().committed(session, turn, answer, now);
            violation.into_iter().for_each(|violation| self.report_violation(violation));
            if answer.is_ok() {
                self.check_tokens_of_turn(turn);
                self.check_outbox(turn).await;
            }
        }
        self.look_up_tokens().await;
        Ok(answers)
    }

    /// A turn may be stuck only if the build lacks code or cannot decode a value.
    fn check_stuck(&self, turn: &Turn, stuck: &Stuck) {
        let is_older = self.profile.has_older_build && *turn.build == *Build::Partial.to_string();
        let situation = match stuck.reason {
            StuckReason::StepNotRegistered => Some(Situation::StepNotRegistered),
            StuckReason::Undecodable if is_older => undecodable_situation(&stuck.message),
            _ => None,
        };
        match situation {
            Some(situation) => self.record(situation),
            None => self
                .report_violation(format!("run {} is stuck: {}: {}", turn.run, stuck.reason, stuck.message)),
        }
    }

    /// How many more payloads the run of a single message accepts; `None` when that is not checked.
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

    /// A payload is refused exactly when the run keeps too many.
    fn check_limit(&self, message: &NewMessage, room: Option<u64>, answer: &Result<Sent, WorldError>) {
        let is_refused = matches!(answer, Err(WorldError::Limit(_)));
        if is_refused {
            self.record(Situation::RefusedAtLimit);
        }
        let is_known = self.observer.lock().has_message(message);
        match room {
            Some(0) if answer.is_ok() && !is_known => {
                self.report_violation(format!(
                    "run {} has no room for {}, but accepted it",
                    message.run, message.id
                ));
            }
            Some(1..) | None if is_refused => {
                self.report_violation(format!(
                    "run {} has room for {}, but refused it",
                    message.run, message.id
                ));
            }
            _ => {}
        }
    }

    /// The history as the world has it now.
    pub(super) async fn history(&self, run: RunId) -> Vec<TurnRecord> {
        self.inner.history(run, 0, HISTORY_TURNS_READ_MAX).await.unwrap_or_default()
    }

    /// The sessions as the world has them now.
    pub(super) async fn sessions(&self) -> BTreeSet<SessionId> {
        let workers = self.inner.workers().await.unwrap_or_default();
        workers.into_iter().map(|worker| worker.session).collect()
    }

    /// Tells the observer which sessions exist.
    async fn update_sessions(&self) -> BTreeSet<SessionId> {
        let now = self.sessions().await;
        let known: Vec<_> = self.nodes.lock().iter().flat_map(|node| node.sessions()).collect();
        self.observer.lock().set_live_sessions(known.into_iter(), &now);
        now
    }
}

/// The value that could not be decoded, according to the message.
fn undecodable_situation(message: &str) -> Option<Situation> {
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

fn describe_then(turn: &Turn) -> &'static str {
    match turn.then {
        Then::Hold => "hold",
        Then::Wait { .. } => "wait",
        Then::Release => "release",
        Then::End(_) => "end",
        Then::Stuck(_) => "stuck",
    }
}

fn describe_answer<T: std::fmt::Debug>(answer: &Result<T, WorldError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{error:?}").chars().take(60).collect(),
    }
}
