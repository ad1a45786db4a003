//! What a case works with: a world, its clock, and short words for what clients do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::event::{FORMAT, RULES};
use outlast_core::limits::{BATCH_STARTS_MAX, SESSION_DEFAULT};
use outlast_core::queue::{default_queue, default_queues};
use outlast_core::turn::{BasedOn, LastTurn};
use outlast_core::{
    Claimed, Code, Counts, Headers, IdSource, Join, MessageBody, MessageId, NewChild, NewMessage, OpNumber,
    Parent, Payload, RowChange, RunId, RunQuery, RunView, Sent, SessionId, Start, StartKey, Started, Status,
    Tags, Then, Timestamp, Turn, TurnColumns, TurnId, World, WorldError,
};
use parking_lot::Mutex;

use super::{Worker, WorldUnderTest};
use outlast_testkit::TestClock;

/// The build that workers have unless a case says otherwise.
pub(crate) const BUILD: &str = "build-1";

/// A world under examination, and short words for what clients do with it.
pub struct Case {
    /// The world.
    pub world: Arc<dyn World>,
    /// Its clock.
    pub clock: TestClock,
    subject: Box<dyn WorldUnderTest>,
    ids: Mutex<IdSource>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("world", &self.world).finish_non_exhaustive()
    }
}

impl Case {
    /// A case on this world.
    pub fn new(subject: Box<dyn WorldUnderTest>, clock: TestClock) -> Self {
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
            rules: RULES,
            queue: default_queue(),
            priority: 0,
            key: None,
            input: Payload::null(),
            headers: Headers::new(),
            tags: Tags::new(),
            parent: None,
            not_before: None,
            deadline: None,
            policy: None,
        }
    }

    /// A start with a key and an input.
    pub fn new_keyed_start(&self, workflow: &str, key: &str, input: &str) -> Start {
        let input = text(input);
        let key = Some(StartKey { text: key.into(), digest: input.digest(), window: None });
        Start { key, input, ..self.new_start(workflow) }
    }

    /// A start in a queue of its own that nobody has sent yet.
    pub fn new_queued_start(&self, workflow: &str, queue: &str) -> Start {
        Start { queue: queue.into(), ..self.new_start(workflow) }
    }

    /// Starts a run of the workflow.
    pub async fn start(&self, workflow: &str) -> RunId {
        self.try_start(self.new_start(workflow)).await.expect("the world starts a run").run
    }

    /// Starts so many runs of the workflow.
    pub async fn start_many(&self, workflow: &str, count: usize) -> Vec<RunId> {
        let starts: Vec<Start> = (0..count).map(|_| self.new_start(workflow)).collect();
        for part in starts.chunks(BATCH_STARTS_MAX) {
            self.world.start(part.to_vec()).await.expect("the world starts runs");
        }
        starts.iter().map(|start| start.run).collect()
    }

    /// Starts the run.
    pub async fn try_start(&self, start: Start) -> Result<Started, WorldError> {
        one(self.world.start(vec![start]).await)
    }

    /// A payload for hook `h` that nobody has sent yet.
    pub fn new_message(&self, run: RunId, payload: &str) -> NewMessage {
        self.new_message_of(run, MessageBody::Hook { name: "h".into(), payload: text(payload) })
    }

    /// A cancel that nobody has sent yet.
    pub fn new_cancel(&self, run: RunId) -> NewMessage {
        self.new_message_of(run, MessageBody::Cancel { reason: "enough".into() })
    }

    /// A message that says this and that nobody has sent yet.
    pub fn new_message_of(&self, run: RunId, body: MessageBody) -> NewMessage {
        NewMessage { id: MessageId::from_bits(self.id()), run, body, headers: Headers::new() }
    }

    /// A child of the run, asked for by this operation, that nobody has started yet. Its parent awaits
    /// its end, and does not want to know which run it is.
    pub fn new_child(&self, parent: RunId, op: u64, workflow: &str) -> NewChild {
        let parent = Parent { run: parent, op: OpNumber(op), root: parent, awaits: true };
        let start = Start { parent: Some(parent), ..self.new_start(workflow) };
        NewChild { start, wants_answer: false }
    }

    /// The moment so many seconds from now.
    pub fn later(&self, seconds: u64) -> Timestamp {
        self.clock.now().plus(Duration::from_secs(seconds))
    }

    /// Sends the run a payload; answers its position.
    pub async fn tell(&self, run: RunId, payload: &str) -> u64 {
        self.try_send(self.new_message(run, payload)).await.expect("the world takes a message").position
    }

    /// Sends the run a cancel.
    pub async fn cancel(&self, run: RunId) -> u64 {
        self.try_send(self.new_cancel(run)).await.expect("the world takes a cancel").position
    }

    /// Sends the run a terminate.
    pub async fn terminate(&self, run: RunId) -> u64 {
        let body = MessageBody::Terminate { reason: "enough".into() };
        self.try_send(self.new_message_of(run, body)).await.expect("the world takes a terminate").position
    }

    /// Sends the message.
    pub async fn try_send(&self, message: NewMessage) -> Result<Sent, WorldError> {
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

    /// What the run was ever told, in order.
    pub async fn told(&self, run: RunId) -> Vec<MessageBody> {
        let inbox = self.world.inbox(run, 0).await.expect("the world knows the run");
        inbox.into_iter().map(|message| message.body).collect()
    }

    /// The ids of the runs that the query lists.
    pub async fn listed(&self, query: RunQuery) -> Vec<RunId> {
        let page = self.world.runs(query).await.expect("the world lists its runs");
        page.runs.iter().map(|run| run.id).collect()
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

    /// A worker of this process that serves these queues.
    pub async fn join_queues(&self, workflow: &str, queues: &[&str]) -> Worker {
        let queues = queues.iter().map(|queue| (*queue).into()).collect();
        self.join_with(self.world.clone(), Join { queues, ..self.new_join(&[(workflow, 1)]) }).await
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
            queues: default_queues(),
            time: SESSION_DEFAULT,
            rules: RULES,
            format: FORMAT,
        }
    }

    /// Joins through this handle of the world.
    pub async fn join_with(&self, world: Arc<dyn World>, join: Join) -> Worker {
        let (build, code, queues) = (join.build.clone(), join.code.clone(), join.queues.clone());
        let worker = Worker { world, session: join.session, build, code, queues, format: join.format };
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

    /// A new run that the worker, which has its code, holds; nobody else had work.
    pub async fn held(&self, worker: &Worker) -> Claimed {
        let run = self.start(&worker.code[0].workflow).await;
        let claimed = worker.claim_one().await;
        assert_eq!(claimed.run, run);
        claimed
    }

    /// A run that the worker, which has its code, has parked with this wait; nobody else had work.
    pub async fn parked(&self, worker: &Worker, then: Then) -> RunId {
        let claimed = self.held(worker).await;
        let turn = Turn { then, ..self.turn(&claimed) };
        worker.commit(turn).await.expect("the holder parks its run");
        claimed.run
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
        let consumed = claimed.consumed + claimed.inbox.len() as u64;
        let id = TurnId::from_bits(self.id());
        Turn { consumed, ..Turn::following(&LastTurn::of(claimed), id, self.clock.now(), BUILD.into()) }
    }

    /// The turn behind `turn`: consumes and adds nothing, holds on.
    pub fn turn_after(&self, turn: &Turn) -> Turn {
        Turn {
            id: TurnId::from_bits(self.id()),
            based_on: BasedOn::Turn(turn.id),
            seq: turn.seq + turn.events.len() as u64,
            at: self.clock.now(),
            events: Vec::new(),
            fired_until: None,
            columns: TurnColumns::unchanged(RowChange::of(turn, SessionId::from_bits(0)).columns),
            outbox: None,
            then: Then::Hold,
            ..turn.clone()
        }
    }

    /// A turn that starts its run, and holds on.
    pub fn starting_turn(&self, start: Start) -> Turn {
        let id = start.turn;
        Turn::starting(start, id, self.clock.now(), BUILD.into())
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
