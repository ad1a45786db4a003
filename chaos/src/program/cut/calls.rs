//! The calls that are cut: their arguments, and their expected effects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast::core::event::{FORMAT, RULES};
use outlast::core::queue::{default_queue, default_queues};
use outlast::core::run::StartKey;
use outlast::core::turn::BasedOn;
use outlast::core::{
    Beat, ClaimRequest, Claimed, Code, Committed, Event, Headers, HeartbeatDetails, Join, MessageBody,
    MessageId, NewChild, NewMessage, OpNumber, Outbox, Parent, Payload, Report, RunId, SessionId, Start,
    Started, Status, Stuck, StuckReason, SuspectRoom, Tags, Then, Timestamp, Turn, TurnColumns, TurnId,
    World, WorldError,
};

/// Long, so that the session does not expire.
pub(super) const SESSION: Duration = Duration::from_secs(24 * 3_600);

/// A call that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallKind {
    Join,
    Start,
    KeyedStart,
    Send,
    Claim,
    /// Reads histories that claims left out.
    Histories,
    Beat,
    /// A beat with heartbeat details.
    BeatWithDetails,
    /// A turn after which the session keeps the run.
    Commit,
    /// A turn that ends its run.
    End,
    /// A turn with a child, a message and a tag.
    Outbox,
    /// A turn that starts its run.
    StartingTurn,
    /// Makes a stuck run ready for every build.
    Resume,
    /// Releases the runs of an expired session.
    Takeover,
    Leave,
}

impl CallKind {
    pub(super) const ALL: [Self; 15] = [
        Self::Join,
        Self::Start,
        Self::KeyedStart,
        Self::Send,
        Self::Claim,
        Self::Histories,
        Self::Beat,
        Self::BeatWithDetails,
        Self::Commit,
        Self::End,
        Self::Outbox,
        Self::StartingTurn,
        Self::Resume,
        Self::Takeover,
        Self::Leave,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Start => "start",
            Self::KeyedStart => "start with a key",
            Self::Send => "send",
            Self::Claim => "claim",
            Self::Histories => "histories",
            Self::Beat => "beat",
            Self::BeatWithDetails => "beat with details",
            Self::Commit => "commit of a step",
            Self::End => "commit of an end",
            Self::Outbox => "commit with a child and a message",
            Self::StartingTurn => "commit of a start",
            Self::Resume => "resume",
            Self::Takeover => "takeover",
            Self::Leave => "leave",
        }
    }

    /// Whether the session holds a run before the call.
    pub(super) fn needs_claim(self) -> bool {
        self.is_turn() || matches!(self, Self::BeatWithDetails | Self::Resume) || self.has_other_session()
    }

    /// Whether it adds a turn to a run that the session holds.
    fn is_turn(self) -> bool {
        matches!(self, Self::Commit | Self::End | Self::Outbox)
    }

    /// Whether another session holds the run before the call, which releases it.
    pub(super) fn has_other_session(self) -> bool {
        matches!(self, Self::Takeover | Self::Leave)
    }

    /// Whether there is a run before the call.
    pub(super) fn needs_run(self) -> bool {
        self.needs_claim() || matches!(self, Self::Send | Self::Claim | Self::Histories)
    }

    /// Whether the session holds the run after the call.
    pub(super) fn holds(self) -> bool {
        matches!(self, Self::Claim | Self::BeatWithDetails | Self::Commit | Self::Outbox | Self::StartingTurn)
    }
}

/// One call with its ids, which stay the same when it is repeated.
#[derive(Clone, Debug)]
pub(super) struct CallCase {
    pub(super) kind: CallKind,
    pub(super) session: SessionId,
    /// A unique number.
    pub(super) number: u128,
    /// The claimed run, if the call needs one.
    pub(super) claimed: Option<Claimed>,
}

/// The answer of a call.
#[derive(Clone, Debug)]
pub(super) enum CallAnswer {
    Started(Started),
    Sent(u64),
    Claimed(Vec<Claimed>),
    Beat(Beat),
    Committed(Committed),
    Histories(Vec<TurnId>),
    /// The number of runs that a takeover released.
    TakenOver(u64),
    Done,
}

impl CallCase {
    pub(super) fn run(&self) -> RunId {
        RunId::from_bits(self.number)
    }

    /// Another run, which receives a message.
    pub(super) fn other_run(&self) -> RunId {
        RunId::from_bits(self.number + 1)
    }

    pub(super) fn child(&self) -> RunId {
        RunId::from_bits(self.number + 2)
    }

    /// Another session: one that joins, or that is about to end.
    pub(super) fn other_session(&self) -> SessionId {
        SessionId::from_bits(self.number + 5)
    }

    /// The join of the other session.
    pub(super) fn join(&self, time: Duration) -> Join {
        Join {
            session: self.other_session(),
            host: "here".into(),
            pid: 1,
            build: format!("build-{}", self.number).into(),
            code: Arc::new([]),
            queues: default_queues(),
            time,
            rules: RULES,
            format: FORMAT,
        }
    }

    /// The heartbeat details of an attempt.
    pub(super) fn details(&self) -> HeartbeatDetails {
        let details = Some(Payload::from_json_text("\"half of it\""));
        HeartbeatDetails { run: self.run(), op: OpNumber(0), attempt: 1, details }
    }

    /// A turn that leaves the run stuck.
    pub(super) fn stuck_turn(&self, claimed: &Claimed) -> Turn {
        let message = "no code".to_owned();
        let stuck = Stuck::new(StuckReason::StepNotRegistered, message).in_build("cut");
        self.ending_turn(claimed.turn, claimed.seq, self.number + 6, Then::Stuck(stuck))
    }

    fn turn(&self) -> TurnId {
        TurnId::from_bits(self.number + 3)
    }

    fn message(&self) -> MessageId {
        MessageId::from_bits(self.number + 4)
    }

    /// A workflow name that is unique to this case, so that a claim returns only its run.
    fn workflow(&self) -> Arc<str> {
        format!("case-{}", self.number).into()
    }

    /// A start of the case's workflow.
    pub(super) fn start(&self, run: RunId) -> Start {
        let key = StartKey {
            text: format!("key-{}", self.number),
            digest: self.number,
            window: None,
            policy: Default::default(),
        };
        Start {
            run,
            turn: TurnId::from_bits(run.bits()),
            workflow: self.workflow(),
            version: 1,
            rules: RULES,
            queue: default_queue(),
            priority: 0,
            key: (self.kind == CallKind::KeyedStart).then_some(key),
            input: Payload::from_json_text("\"in\""),
            headers: Headers::new(),
            tags: Tags::from([("case".to_owned(), self.number.to_string())]),
            parent: None,
            not_before: None,
            deadline: None,
            policy: None,
            requester: None,
            ending: None,
        }
    }

    fn new_message(&self, run: RunId) -> NewMessage {
        let body = MessageBody::Hook {
            name: "hook".into(),
            payload: Payload::from_json_text("true"),
            to: Default::default(),
        };
        NewMessage { id: self.message(), run, body, headers: Headers::new() }
    }

    fn new_turn(&self) -> Turn {
        if self.kind == CallKind::StartingTurn {
            let start = self.start(self.run());
            let (id, events) = (start.turn, vec![start.event()]);
            return Turn { id, seq: 0, events, ..self.bare_turn(BasedOn::Start(Box::new(start))) };
        }
        let before = self.claimed.as_ref().map_or(TurnId::from_bits(0), |claimed| claimed.turn);
        let mut turn = self.bare_turn(BasedOn::Turn(before));
        match self.kind {
            CallKind::End => {
                turn.events = vec![Event::RunCompleted { output: Payload::from_json_text("\"out\"") }];
                turn.then = Then::End(Status::Completed);
            }
            CallKind::Outbox => {
                let run = self.run();
                let mut start = self.start(self.child());
                start.parent = Some(Parent { run, op: OpNumber(0), root: run, awaits: true });
                turn.outbox = Some(Box::new(Outbox {
                    children: vec![NewChild { start, notify_parent: true }],
                    messages: vec![self.new_message(self.other_run())],
                    tags: BTreeMap::from([("seen".to_owned(), "yes".to_owned())]),
                    ..Outbox::default()
                }));
            }
            _ => {}
        }
        turn
    }

    fn bare_turn(&self, from: BasedOn) -> Turn {
        Turn {
            run: self.run(),
            id: self.turn(),
            based_on: from,
            seq: 1,
            at: Timestamp::from_micros(1),
            build: "cut".into(),
            events: vec![Event::StepDropped { op: OpNumber(0) }],
            consumed: 0,
            fired_until: None,
            columns: TurnColumns::default(),
            outbox: None,
            then: Then::Hold,
        }
    }

    /// The expected turns of the run's history.
    pub(super) fn turns(&self) -> Vec<TurnId> {
        let first = TurnId::from_bits(self.run().bits());
        if self.kind.is_turn() { vec![first, self.turn()] } else { vec![first] }
    }

    /// A pattern in the first bytes of the call: its ids, or the statement to prepare.
    pub(super) fn pattern(&self, is_prepared: bool) -> String {
        if !is_prepared {
            // The function names have suffixes: the variant of the call, and the interface.
            let function = match self.kind {
                CallKind::Start | CallKind::KeyedStart => ".start",
                CallKind::Send => ".send",
                CallKind::Claim => ".claim",
                CallKind::Beat | CallKind::BeatWithDetails => ".beat",
                CallKind::Join => ".join",
                // No function: the statement itself.
                CallKind::Histories => "r.replay_from ORDER",
                CallKind::Resume => ".resume",
                CallKind::Takeover => ".takeover",
                CallKind::Leave => ".leave",
                CallKind::Commit | CallKind::End | CallKind::Outbox | CallKind::StartingTurn => ".commit",
            };
            return function.to_owned();
        }
        match self.kind {
            CallKind::Send => self.message().to_string(),
            CallKind::Claim | CallKind::Beat | CallKind::BeatWithDetails | CallKind::Takeover => {
                self.session.to_string()
            }
            // The exchange for the session's lock contains the session's id too.
            CallKind::Join => format!("build-{}", self.number),
            CallKind::Leave => self.other_session().to_string(),
            _ => self.run().to_string(),
        }
    }

    /// Makes the call.
    pub(super) async fn call(&self, world: &dyn World) -> Result<CallAnswer, WorldError> {
        match self.kind {
            CallKind::Start | CallKind::KeyedStart => {
                let started = world.start(vec![self.start(self.run())]).await?.remove(0)?;
                Ok(CallAnswer::Started(started))
            }
            CallKind::Send => {
                let sent = world.send(vec![self.new_message(self.run())]).await?.remove(0)?;
                Ok(CallAnswer::Sent(sent.position))
            }
            CallKind::Join => world.join(self.join(SESSION)).await.map(|()| CallAnswer::Done),
            CallKind::Claim => Ok(CallAnswer::Claimed(self.claim(world, self.session).await?)),
            CallKind::Histories => {
                let turns = world.histories(&[self.run()]).await?.remove(0)?;
                Ok(CallAnswer::Histories(turns.into_iter().map(|turn| turn.id).collect()))
            }
            CallKind::Beat => Ok(CallAnswer::Beat(world.beat(self.session, &Report::default(), &[]).await?)),
            CallKind::BeatWithDetails => {
                let beat = world.beat(self.session, &Report::default(), &[self.details()]).await?;
                Ok(CallAnswer::Beat(beat))
            }
            CallKind::Resume => world.resume(self.run()).await.map(|()| CallAnswer::Done),
            CallKind::Takeover => world.takeover(self.session).await.map(CallAnswer::TakenOver),
            CallKind::Leave => world.leave(self.other_session()).await.map(|()| CallAnswer::Done),
            CallKind::Commit | CallKind::End | CallKind::Outbox | CallKind::StartingTurn => {
                Ok(CallAnswer::Committed(world.commit(self.session, &[self.new_turn()]).await?.remove(0)?))
            }
        }
    }

    /// Claims the runs of the case's workflow.
    pub(super) async fn claim(
        &self,
        world: &dyn World,
        session: SessionId,
    ) -> Result<Vec<Claimed>, WorldError> {
        let request = ClaimRequest {
            limit: 10,
            code: Arc::new([Code { workflow: self.workflow(), version: 1 }]),
            queues: default_queues(),
            build: "cut".into(),
            format: FORMAT,
            suspects: SuspectRoom::AnyClass { room: 10 },
            ends_overdue_from: Timestamp::NEVER,
        };
        Ok(world.claim(session, request).await?.claimed)
    }

    /// A turn without events after the last one.
    pub(super) fn ending_turn(&self, last: TurnId, seq: u64, number: u128, then: Then) -> Turn {
        let id = TurnId::from_bits(number);
        Turn { id, seq, events: Vec::new(), then, ..self.bare_turn(BasedOn::Turn(last)) }
    }
}
