//! The calls that are cut: what each asks, and what is true when it has happened once.

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

/// So long that a session does not end.
pub(super) const SESSION: Duration = Duration::from_secs(24 * 3_600);

/// A call that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deed {
    Join,
    Start,
    KeyedStart,
    Send,
    Claim,
    /// Reads what claims left out.
    Histories,
    Beat,
    /// A beat that says how far an attempt has come.
    BeatWithDetails,
    /// A turn after which the session holds on.
    Commit,
    /// A turn that ends its run.
    End,
    /// A turn with a child, a message and a tag.
    Outbox,
    /// A turn that starts its run.
    StartingTurn,
    /// A stuck run is made ready for every build.
    Resume,
    /// The runs of a session whose time is over are freed.
    Takeover,
    Leave,
}

impl Deed {
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

    /// Whether another session holds the run before the call, which frees it.
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
pub(super) struct Case {
    pub(super) deed: Deed,
    pub(super) session: SessionId,
    /// A number that no other case has.
    pub(super) number: u128,
    /// What the session was given, if it needs a run.
    pub(super) claimed: Option<Claimed>,
}

/// What a call answered.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Started(Started),
    Sent(u64),
    Claimed(Vec<Claimed>),
    Beat(Beat),
    Committed(Committed),
    Histories(Vec<TurnId>),
    /// How many runs a takeover freed.
    Taken(u64),
    Done,
}

impl Case {
    pub(super) fn run(&self) -> RunId {
        RunId::from_bits(self.number)
    }

    /// Another run, which gets a message.
    pub(super) fn friend(&self) -> RunId {
        RunId::from_bits(self.number + 1)
    }

    pub(super) fn child(&self) -> RunId {
        RunId::from_bits(self.number + 2)
    }

    /// Another session: one that joins, or that is about to end.
    pub(super) fn other_session(&self) -> SessionId {
        SessionId::from_bits(self.number + 5)
    }

    /// How the other session joins.
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

    /// How far an attempt has come.
    pub(super) fn details(&self) -> HeartbeatDetails {
        let details = Some(Payload::from_json_text("\"half of it\""));
        HeartbeatDetails { run: self.run(), op: OpNumber(0), attempt: 1, details }
    }

    /// A turn that leaves the run stuck.
    pub(super) fn sticking(&self, claimed: &Claimed) -> Turn {
        let message = "no code".to_owned();
        let stuck = Stuck { reason: StuckReason::StepNotRegistered, message, build: "cut".into() };
        self.letting_go(claimed.turn, claimed.seq, self.number + 6, Then::Stuck(stuck))
    }

    fn turn(&self) -> TurnId {
        TurnId::from_bits(self.number + 3)
    }

    fn message(&self) -> MessageId {
        MessageId::from_bits(self.number + 4)
    }

    /// The name of the workflow of this case alone, so that a claim is given its run and no other.
    fn workflow(&self) -> Arc<str> {
        format!("case-{}", self.number).into()
    }

    /// A start of the case's workflow.
    pub(super) fn start(&self, run: RunId) -> Start {
        let key = StartKey { text: format!("key-{}", self.number), digest: self.number, window: None };
        Start {
            run,
            turn: TurnId::from_bits(run.bits()),
            workflow: self.workflow(),
            version: 1,
            rules: RULES,
            queue: default_queue(),
            priority: 0,
            key: (self.deed == Deed::KeyedStart).then_some(key),
            input: Payload::from_json_text("\"in\""),
            headers: Headers::new(),
            tags: Tags::from([("case".to_owned(), self.number.to_string())]),
            parent: None,
            not_before: None,
            deadline: None,
            policy: None,
        }
    }

    fn new_message(&self, run: RunId) -> NewMessage {
        let body = MessageBody::Hook { name: "hook".into(), payload: Payload::from_json_text("true") };
        NewMessage { id: self.message(), run, body, headers: Headers::new() }
    }

    fn new_turn(&self) -> Turn {
        if self.deed == Deed::StartingTurn {
            let start = self.start(self.run());
            let (id, events) = (start.turn, vec![start.event()]);
            return Turn { id, seq: 0, events, ..self.bare_turn(BasedOn::Start(Box::new(start))) };
        }
        let before = self.claimed.as_ref().map_or(TurnId::from_bits(0), |claimed| claimed.turn);
        let mut turn = self.bare_turn(BasedOn::Turn(before));
        match self.deed {
            Deed::End => {
                turn.events = vec![Event::RunCompleted { output: Payload::from_json_text("\"out\"") }];
                turn.then = Then::End(Status::Completed);
            }
            Deed::Outbox => {
                let run = self.run();
                let mut start = self.start(self.child());
                start.parent = Some(Parent { run, op: OpNumber(0), root: run, awaits: true });
                turn.outbox = Some(Box::new(Outbox {
                    children: vec![NewChild { start, wants_answer: true }],
                    messages: vec![self.new_message(self.friend())],
                    tags: BTreeMap::from([("seen".to_owned(), "yes".to_owned())]),
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

    /// The turns that the run's history has in the end.
    pub(super) fn turns(&self) -> Vec<TurnId> {
        let first = TurnId::from_bits(self.run().bits());
        if self.deed.is_turn() { vec![first, self.turn()] } else { vec![first] }
    }

    /// What the first bytes of the call have in them: its ids, or the statement that is to be prepared.
    pub(super) fn mark(&self, is_prepared: bool) -> String {
        if !is_prepared {
            // The names of the functions go on: with what is special about the call, and the interface.
            let function = match self.deed {
                Deed::Start | Deed::KeyedStart => ".start",
                Deed::Send => ".send",
                Deed::Claim => ".claim",
                Deed::Beat | Deed::BeatWithDetails => ".beat",
                Deed::Join => ".join",
                // No function: the statement itself.
                Deed::Histories => "asked.run ORDER",
                Deed::Resume => ".resume",
                Deed::Takeover => ".takeover",
                Deed::Leave => ".leave",
                Deed::Commit | Deed::End | Deed::Outbox | Deed::StartingTurn => ".commit",
            };
            return function.to_owned();
        }
        match self.deed {
            Deed::Send => self.message().to_string(),
            Deed::Claim | Deed::Beat | Deed::BeatWithDetails | Deed::Takeover => self.session.to_string(),
            // The lock of the session is another exchange, which has the session's id too.
            Deed::Join => format!("build-{}", self.number),
            Deed::Leave => self.other_session().to_string(),
            _ => self.run().to_string(),
        }
    }

    /// Makes the call.
    pub(super) async fn call(&self, world: &dyn World) -> Result<Answer, WorldError> {
        match self.deed {
            Deed::Start | Deed::KeyedStart => {
                let started = world.start(vec![self.start(self.run())]).await?.remove(0)?;
                Ok(Answer::Started(started))
            }
            Deed::Send => {
                let sent = world.send(vec![self.new_message(self.run())]).await?.remove(0)?;
                Ok(Answer::Sent(sent.position))
            }
            Deed::Join => world.join(self.join(SESSION)).await.map(|()| Answer::Done),
            Deed::Claim => Ok(Answer::Claimed(self.claim(world, self.session).await?)),
            Deed::Histories => {
                let turns = world.histories(&[self.run()]).await?.remove(0)?;
                Ok(Answer::Histories(turns.into_iter().map(|turn| turn.id).collect()))
            }
            Deed::Beat => Ok(Answer::Beat(world.beat(self.session, &Report::default(), &[]).await?)),
            Deed::BeatWithDetails => {
                let beat = world.beat(self.session, &Report::default(), &[self.details()]).await?;
                Ok(Answer::Beat(beat))
            }
            Deed::Resume => world.resume(self.run()).await.map(|()| Answer::Done),
            Deed::Takeover => world.takeover(self.session).await.map(Answer::Taken),
            Deed::Leave => world.leave(self.other_session()).await.map(|()| Answer::Done),
            Deed::Commit | Deed::End | Deed::Outbox | Deed::StartingTurn => {
                Ok(Answer::Committed(world.commit(self.session, &[self.new_turn()]).await?.remove(0)?))
            }
        }
    }

    /// Claims what there is of the case's workflow.
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

    /// A turn behind the last one that adds nothing.
    pub(super) fn letting_go(&self, last: TurnId, seq: u64, number: u128, then: Then) -> Turn {
        let id = TurnId::from_bits(number);
        Turn { id, seq, events: Vec::new(), then, ..self.bare_turn(BasedOn::Turn(last)) }
    }
}
