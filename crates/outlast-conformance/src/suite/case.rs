//! The context of a case: a world, its clock, and helpers for the calls of clients.

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
use outlast_testkit::TestClock;
use parking_lot::Mutex;

use super::{TestWorker, WorldUnderTest};

/// The build that workers have unless a case says otherwise.
pub(crate) const BUILD: &str = "build-1";

/// A world under test, with helpers for the calls of clients.
pub struct Case {
    /// The world.
    pub world: Arc<dyn World>,
    /// Its clock.
    pub clock: TestClock,
    under_test: Box<dyn WorldUnderTest>,
    ids: Mutex<IdSource>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("world", &self.world).finish_non_exhaustive()
    }
}

impl Case {
    /// A case on this world.
    pub fn new(under_test: Box<dyn WorldUnderTest>, clock: TestClock) -> Self {
        Self { world: under_test.world(), clock, under_test, ids: Mutex::default() }
    }

    /// The bits of a new id; ids ascend.
    pub fn id(&self) -> u128 {
        self.ids.lock().next(self.clock.now(), 1 << 100)
    }

    /// A new start of the workflow.
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
            requester: None,
            ending: None,
        }
    }

    /// A start with a key and an input.
    pub fn new_keyed_start(&self, workflow: &str, key: &str, input: &str) -> Start {
        let input = text(input);
        let key = Some(StartKey {
            text: key.into(),
            digest: input.digest(),
            window: None,
            policy: Default::default(),
        });
        Start { key, input, ..self.new_start(workflow) }
    }

    /// A new start in a queue.
    pub fn new_queued_start(&self, workflow: &str, queue: &str) -> Start {
        Start { queue: queue.into(), ..self.new_start(workflow) }
    }

    /// Starts a run of the workflow.
    pub async fn start(&self, workflow: &str) -> RunId {
        self.try_start(self.new_start(workflow)).await.expect("the world starts a run").run
    }

    /// Starts this many runs of the workflow.
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

    /// A new payload for hook `h`.
    pub fn new_message(&self, run: RunId, payload: &str) -> NewMessage {
        self.new_message_of(
            run,
            MessageBody::Hook { name: "h".into(), payload: text(payload), to: Default::default() },
        )
    }

    /// A new cancel.
    pub fn new_cancel(&self, run: RunId) -> NewMessage {
        self.new_message_of(run, MessageBody::Cancel { reason: "enough".into() })
    }

    /// A new message with this body.
    pub fn new_message_of(&self, run: RunId, body: MessageBody) -> NewMessage {
        NewMessage { id: MessageId::from_bits(self.id()), run, body, headers: Headers::new() }
    }

    /// A new child of the run, started by this operation. Its parent awaits its end, and is not notified which run it
    /// is.
    pub fn new_child(&self, parent: RunId, op: u64, workflow: &str) -> NewChild {
        let parent = Parent { run: parent, op: OpNumber(op), root: parent, awaits: true };
        let start = Start { parent: Some(parent), ..self.new_start(workflow) };
        NewChild { start, notify_parent: false }
    }

    /// The time this many seconds from now.
    pub fn later(&self, seconds: u64) -> Timestamp {
        self.clock.now().plus(Duration::from_secs(seconds))
    }

    /// Sends the run a payload; returns its position.
    pub async fn send_payload(&self, run: RunId, payload: &str) -> u64 {
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

    /// The status of the run.
    pub async fn status(&self, run: RunId) -> Status {
        self.view(run).await.status
    }

    /// The kinds of the run's events, in order.
    pub async fn kinds(&self, run: RunId) -> Vec<&'static str> {
        let history = self.world.history(run, 0, usize::MAX).await.expect("the world knows the run");
        history.iter().flat_map(|turn| turn.events.iter().map(|event| event.kind())).collect()
    }

    /// The bodies of all messages to the run, in order.
    pub async fn inbox_bodies(&self, run: RunId) -> Vec<MessageBody> {
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
    pub async fn join(&self, workflow: &str) -> TestWorker {
        self.join_with(self.world.clone(), self.new_join(&[(workflow, 1)])).await
    }

    /// A worker of this process with another build.
    pub async fn join_build(&self, workflow: &str, build: &str) -> TestWorker {
        let join = Join { build: build.into(), ..self.new_join(&[(workflow, 1)]) };
        self.join_with(self.world.clone(), join).await
    }

    /// A worker of this process that serves these queues.
    pub async fn join_queues(&self, workflow: &str, queues: &[&str]) -> TestWorker {
        let queues = queues.iter().map(|queue| (*queue).into()).collect();
        self.join_with(self.world.clone(), Join { queues, ..self.new_join(&[(workflow, 1)]) }).await
    }

    /// A worker of another process, which can crash.
    pub async fn join_elsewhere(&self, workflow: &str) -> TestWorker {
        self.join_with(self.other_handle().await, self.new_join(&[(workflow, 1)])).await
    }

    /// The world as another process would see it.
    pub async fn other_handle(&self) -> Arc<dyn World> {
        self.under_test.other_handle().await
    }

    /// A new join.
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
    pub async fn join_with(&self, world: Arc<dyn World>, join: Join) -> TestWorker {
        let (build, code, queues) = (join.build.clone(), join.code.clone(), join.queues.clone());
        let worker = TestWorker { world, session: join.session, build, code, queues, format: join.format };
        worker.world.join(join).await.expect("the world takes a worker");
        worker
    }

    /// Crashes the worker's process. It must have joined through another handle.
    pub async fn crash(&self, worker: TestWorker) {
        self.under_test.crash(worker.world, worker.session).await;
    }

    /// A worker of another process claims everything, and its process dies. Returns the claimed runs. The
    /// world has not noticed the death yet.
    pub async fn claim_all_and_crash(&self, workflow: &str) -> Vec<RunId> {
        let doomed = self.join_elsewhere(workflow).await;
        let claimed = doomed.claim().await.iter().map(|claimed| claimed.run).collect();
        self.crash(doomed).await;
        claimed
    }

    /// A new run that the worker holds. The worker has its code, and no other run is ready.
    pub async fn held(&self, worker: &TestWorker) -> Claimed {
        let run = self.start(&worker.code[0].workflow).await;
        let claimed = worker.claim_one().await;
        assert_eq!(claimed.run, run);
        claimed
    }

    /// A run that the worker has committed with this end of a turn. The worker has its code, and no other run is ready.
    pub async fn parked(&self, worker: &TestWorker, then: Then) -> RunId {
        let claimed = self.held(worker).await;
        let turn = Turn { then, ..self.turn(&claimed) };
        worker.commit(turn).await.expect("the holder parks its run");
        claimed.run
    }

    /// A run that ended with an output.
    pub async fn completed(&self, worker: &TestWorker) -> RunId {
        use super::turn_ext::TurnExt;
        let run = self.start(&worker.code[0].workflow).await;
        let turn = self.turn(&worker.claim_one().await).completing("out");
        worker.commit(turn).await.expect("the holder ends its run");
        run
    }

    /// A turn of a claimed run: consumes all its messages, has no events, and holds the run.
    pub fn turn(&self, claimed: &Claimed) -> Turn {
        let consumed = claimed.consumed + claimed.inbox.len() as u64;
        let id = TurnId::from_bits(self.id());
        Turn { consumed, ..Turn::following(&LastTurn::of(claimed), id, self.clock.now(), BUILD.into()) }
    }

    /// The turn after `turn`: consumes nothing, has no events, and holds the run.
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

    /// A turn that starts its run, and holds it.
    pub fn starting_turn(&self, start: Start) -> Turn {
        let id = start.turn;
        Turn::starting(start, id, self.clock.now(), BUILD.into())
    }
}

/// A payload that is this text.
pub(crate) fn text(text: &str) -> Payload {
    Payload::json(text).expect("a text is JSON")
}

/// The answer to a batch of one element.
pub(crate) fn one<T>(answers: Result<Vec<Result<T, WorldError>>, WorldError>) -> Result<T, WorldError> {
    let mut answers = answers?;
    assert_eq!(answers.len(), 1, "one answer per element");
    answers.remove(0)
}
