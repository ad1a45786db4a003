//! What a case works with: a world, its clock, and short words for what clients do.

use std::fmt;
use std::sync::Arc;

use outlast_core::limits::SESSION_DEFAULT;
use outlast_core::turn::From;
use outlast_core::{
    Claimed, Code, Counts, Headers, IdSource, Join, MessageBody, MessageId, NewMessage, Payload, RunId,
    RunView, SessionId, Start, StartKey, Started, Status, Then, Turn, TurnId, World, WorldError,
};
use parking_lot::Mutex;

use super::{Subject, Worker};
use crate::TestClock;

/// The build that workers have unless a case says otherwise.
pub(crate) const BUILD: &str = "build-1";

/// A world under examination, and short words for what clients do with it.
pub struct Case {
    /// The world.
    pub world: Arc<dyn World>,
    /// Its clock.
    pub clock: TestClock,
    subject: Box<dyn Subject>,
    ids: Mutex<IdSource>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("world", &self.world).finish_non_exhaustive()
    }
}

impl Case {
    /// A case on this world.
    pub fn new(subject: Box<dyn Subject>, clock: TestClock) -> Self {
        Self { world: subject.world(), clock, subject, ids: Mutex::default() }
    }

    /// Bits of an id that rises.
    pub fn id(&self) -> u128 {
        self.ids.lock().next(self.clock.now(), 1 << 100)
    }

    /// A start of the workflow that nobody has sent yet.
    pub fn new_start(&self, workflow: &str) -> Start {
        Start {
            run: RunId::from_bits(self.id()),
            turn: TurnId::from_bits(self.id()),
            workflow: workflow.into(),
            version: 1,
            key: None,
            input: Payload::null(),
            headers: Headers::new(),
        }
    }

    /// A start with a key and an input.
    pub fn new_keyed_start(&self, workflow: &str, key: &str, input: &str) -> Start {
        let input = text(input);
        let key = Some(StartKey { text: key.into(), digest: input.digest() });
        Start { key, input, ..self.new_start(workflow) }
    }

    /// Starts a run of the workflow.
    pub async fn start(&self, workflow: &str) -> RunId {
        self.try_start(self.new_start(workflow)).await.expect("the world starts a run").run
    }

    /// Starts the run.
    pub async fn try_start(&self, start: Start) -> Result<Started, WorldError> {
        one(self.world.start(vec![start]).await)
    }

    /// A payload for hook `h` that nobody has sent yet.
    pub fn new_message(&self, run: RunId, payload: &str) -> NewMessage {
        let body = MessageBody::Hook { name: "h".into(), payload: text(payload) };
        NewMessage { id: MessageId::from_bits(self.id()), run, body, headers: Headers::new() }
    }

    /// A cancel that nobody has sent yet.
    pub fn new_cancel(&self, run: RunId) -> NewMessage {
        let body = MessageBody::Cancel { reason: "enough".into() };
        NewMessage { id: MessageId::from_bits(self.id()), run, body, headers: Headers::new() }
    }

    /// Sends the run a payload; answers its position.
    pub async fn tell(&self, run: RunId, payload: &str) -> u64 {
        self.try_send(self.new_message(run, payload)).await.expect("the world takes a message")
    }

    /// Sends the run a cancel.
    pub async fn cancel(&self, run: RunId) -> u64 {
        self.try_send(self.new_cancel(run)).await.expect("the world takes a cancel")
    }

    /// Sends the message.
    pub async fn try_send(&self, message: NewMessage) -> Result<u64, WorldError> {
        one(self.world.send(vec![message]).await)
    }

    /// The run as it is now.
    pub async fn view(&self, run: RunId) -> RunView {
        self.world.run(run).await.expect("the world knows the run")
    }

    /// Where the run is in its life.
    pub async fn status(&self, run: RunId) -> Status {
        self.view(run).await.status
    }

    /// The kinds of the run's events, in order.
    pub async fn kinds(&self, run: RunId) -> Vec<&'static str> {
        let history = self.world.history(run, 0, usize::MAX).await.expect("the world knows the run");
        history.iter().flat_map(|turn| turn.events.iter().map(|event| event.kind())).collect()
    }

    /// How many runs are in each status that has any.
    pub async fn counts(&self) -> Counts {
        let mut counts = self.world.counts().await.expect("the world counts its runs");
        counts.retain(|_, count| *count > 0);
        counts
    }

    /// A worker of this process with the code of version 1 of the workflow.
    pub async fn join(&self, workflow: &str) -> Worker {
        self.join_with(self.world.clone(), self.new_join(&[(workflow, 1)])).await
    }

    /// A worker of this process with another build.
    pub async fn join_build(&self, workflow: &str, build: &str) -> Worker {
        let join = Join { build: build.into(), ..self.new_join(&[(workflow, 1)]) };
        self.join_with(self.world.clone(), join).await
    }

    /// A worker of another process, which can crash.
    pub async fn join_elsewhere(&self, workflow: &str) -> Worker {
        self.join_with(self.other_handle().await, self.new_join(&[(workflow, 1)])).await
    }

    /// The world as another process would see it.
    pub async fn other_handle(&self) -> Arc<dyn World> {
        self.subject.other_handle().await
    }

    /// A join that nobody has asked for yet.
    pub fn new_join(&self, code: &[(&str, u32)]) -> Join {
        let code =
            code.iter().map(|(workflow, version)| Code { workflow: (*workflow).into(), version: *version });
        Join {
            session: SessionId::from_bits(self.id()),
            host: "host".into(),
            pid: 7,
            build: BUILD.into(),
            code: code.collect(),
            time: SESSION_DEFAULT,
        }
    }

    /// Joins through this handle of the world.
    pub async fn join_with(&self, world: Arc<dyn World>, join: Join) -> Worker {
        let worker =
            Worker { world, session: join.session, build: join.build.clone(), code: join.code.clone() };
        worker.world.join(join).await.expect("the world takes a worker");
        worker
    }

    /// The worker's process dies. It must have joined elsewhere.
    pub async fn crash(&self, worker: Worker) {
        self.subject.crash(worker.world, worker.session).await;
    }

    /// A worker elsewhere claims everything, and its process dies; answers what it had claimed. The
    /// world does not know it yet.
    pub async fn crash_with_all(&self, workflow: &str) -> Vec<RunId> {
        let doomed = self.join_elsewhere(workflow).await;
        let claimed = doomed.claim().await.iter().map(|claimed| claimed.run).collect();
        self.crash(doomed).await;
        claimed
    }

    /// A run that the worker, which has its code, has parked with this wait; nobody else had work.
    pub async fn parked(&self, worker: &Worker, then: Then) -> RunId {
        let run = self.start(&worker.code[0].workflow).await;
        let claimed = worker.claim_one().await;
        assert_eq!(claimed.run, run);
        let turn = Turn { then, ..self.turn(&claimed) };
        worker.commit(turn).await.expect("the holder parks its run");
        run
    }

    /// A run that ended with an output.
    pub async fn completed(&self, worker: &Worker) -> RunId {
        use super::shape::Shape;
        let run = self.start(&worker.code[0].workflow).await;
        let turn = self.turn(&worker.claim_one().await).completing("out");
        worker.commit(turn).await.expect("the holder ends its run");
        run
    }

    /// A turn on what was claimed: consumes all of its messages, adds nothing, holds on.
    pub fn turn(&self, claimed: &Claimed) -> Turn {
        Turn {
            run: claimed.run,
            id: TurnId::from_bits(self.id()),
            from: From::Turn(claimed.turn),
            seq: claimed.seq,
            at: self.clock.now(),
            build: BUILD.into(),
            events: Vec::new(),
            consumed: claimed.consumed + claimed.inbox.len() as u64,
            fired_until: None,
            clears_crashes: claimed.crashes > 0,
            then: Then::Hold,
        }
    }

    /// The turn behind `turn`: consumes and adds nothing, holds on.
    pub fn turn_after(&self, turn: &Turn) -> Turn {
        Turn {
            id: TurnId::from_bits(self.id()),
            from: From::Turn(turn.id),
            seq: turn.seq + turn.events.len() as u64,
            at: self.clock.now(),
            events: Vec::new(),
            fired_until: None,
            clears_crashes: false,
            then: Then::Hold,
            ..turn.clone()
        }
    }

    /// A turn that starts its run, and holds on.
    pub fn starting_turn(&self, start: Start) -> Turn {
        Turn {
            run: start.run,
            id: start.turn,
            seq: 0,
            at: self.clock.now(),
            build: BUILD.into(),
            events: vec![start.event()],
            from: From::Start(start),
            consumed: 0,
            fired_until: None,
            clears_crashes: false,
            then: Then::Hold,
        }
    }
}

/// A payload that is this text.
pub(crate) fn text(text: &str) -> Payload {
    Payload::json(text).expect("a text is JSON")
}

/// The only answer of a batch of one.
pub(crate) fn one<T>(answers: Result<Vec<Result<T, WorldError>>, WorldError>) -> Result<T, WorldError> {
    let mut answers = answers?;
    assert_eq!(answers.len(), 1, "one answer per element");
    answers.remove(0)
}
