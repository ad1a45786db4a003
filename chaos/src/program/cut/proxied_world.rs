//! A world behind a proxy that cuts connections, and a direct connection for the checks.

use std::sync::Arc;
use std::time::Duration;

use outlast::core::event::{FORMAT, RULES};
use outlast::core::queue::default_queues;
use outlast::core::{
    Clock, Committed, Event, HeldRun, Join, Payload, Report, RunId, SessionId, Status, Then, World,
    WorldError,
};
use outlast::{Client, Counts, ListOrder, RunQuery, RunView, SystemClock};
use throwaway::{Exchange, Proxy, Toward, proxy};

use super::super::Result;
use super::super::report::Checks;
use super::calls::{CallAnswer, CallCase, CallKind, SESSION};
use super::{Connection, Cut, CutStatistics};

/// The maximum number of tries of a call. A cut connection is replaced, so few are enough.
const CALLS_MAX: usize = 20;

/// The pause before an unanswered call is repeated; it grows with each try.
const PAUSE: Duration = Duration::from_millis(5);

/// The maximum number of blocked tries, while the server has not noticed the cut: half a minute, at 50 ms each.
const BLOCKED_MAX: usize = 600;

/// How long the server may take to notice that a connection was cut.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// The time of a session that expires soon.
const SHORT_SESSION: Duration = Duration::from_millis(5);

/// The number of consecutive ids of one case.
const IDS_PER_CASE: u128 = 16;

pub(super) struct ProxiedWorld {
    proxy: Proxy,
    /// Through the proxy, on one connection.
    world: Arc<dyn World>,
    direct: Arc<dyn World>,
    session: SessionId,
    next: u128,
    pub(super) checks: Checks,
}

impl ProxiedWorld {
    /// Opens both connections, in a new schema.
    pub(super) async fn open(url: &str, schema: &str) -> Result<Self> {
        let proxy = proxy(url)?;
        let direct = outlast::open(&format!("{url}?schema={schema}")).await?;
        let world = outlast::open(&format!("{}?schema={schema}&pool=1", proxy.url())).await?;
        let session = SessionId::from_bits(1);
        let (code, queues) = (Arc::new([]), default_queues());
        let (host, build) = ("here".into(), "cut".into());
        let (time, rules, format) = (SESSION, RULES, FORMAT);
        direct.join(Join { session, host, pid: 1, build, code, queues, time, rules, format }).await?;
        Ok(Self { proxy, world, direct, session, next: 1 << 64, checks: Checks::default() })
    }

    /// Makes a call that is cut, repeats it until it is answered, and checks its effects. Returns the number of bytes
    /// that went to the server and to the client.
    pub(super) async fn cut_call(
        &mut self,
        kind: CallKind,
        connection: Connection,
        cut: Option<Cut>,
        statistics: &mut CutStatistics,
    ) -> Result<[u64; 2]> {
        let case = self.set_up(kind).await?;
        match connection {
            Connection::Warm => {
                let other = self.set_up(kind).await?;
                self.call(&other).await?;
                self.clear(&other).await?;
            }
            Connection::New => self.proxy.cut_all(),
        }
        let pattern = case.pattern(connection == Connection::Warm);
        let exchange = match cut {
            Some(Cut { toward, bytes }) => self.proxy.cut(pattern, toward, bytes),
            None => self.proxy.watch(pattern),
        };
        let mut answers = self.call_until_answered(&case, &exchange, cut.is_some(), statistics).await?;
        let sizes = [Toward::Server, Toward::Client].map(|toward| exchange.bytes(toward));
        if exchange.is_cut() {
            statistics.cuts += 1;
            let is_over = tokio::task::block_in_place(|| exchange.is_over_within(SERVER_TIMEOUT));
            self.checks.that(is_over, || "the server did not close the connection".into())?;
        }
        // No call is being executed any more.
        answers.push(self.call(&case).await?);
        self.check(&case, &answers, statistics).await?;
        self.clear(&case).await?;
        Ok(sizes)
    }

    /// Creates the runs and sessions that the call needs.
    async fn set_up(&mut self, kind: CallKind) -> Result<CallCase> {
        self.next += IDS_PER_CASE;
        let mut case = CallCase { kind, session: self.session, number: self.next, claimed: None };
        let mut starts = Vec::new();
        if kind.needs_run() {
            starts.push(case.start(case.run()));
        }
        if !starts.is_empty() {
            self.direct.start(starts).await?.remove(0)?;
        }
        if kind.has_other_session() {
            let time = if kind == CallKind::Takeover { SHORT_SESSION } else { SESSION };
            self.direct.join(case.join(time)).await?;
        }
        if kind.needs_claim() {
            let session = if kind.has_other_session() { case.other_session() } else { self.session };
            case.claimed = case.claim(&*self.direct, session).await?.pop();
        }
        if let (CallKind::Resume, Some(claimed)) = (kind, &case.claimed) {
            self.direct.commit(self.session, &[case.stuck_turn(claimed)]).await?.remove(0)?;
        }
        if kind == CallKind::Takeover {
            SystemClock.sleep_until(SystemClock.now().plus(2 * SHORT_SESSION)).await;
        }
        if kind == CallKind::Outbox {
            // After the claim, which must return only the one run.
            self.direct.start(vec![case.start(case.other_run())]).await?.remove(0)?;
        }
        Ok(case)
    }

    /// Repeats a call until it is answered.
    async fn call_until_answered(
        &self,
        case: &CallCase,
        exchange: &Exchange,
        is_to_be_cut: bool,
        statistics: &mut CutStatistics,
    ) -> Result<Vec<CallAnswer>> {
        let (mut tries, mut blocked, mut last) = (0, 0, None);
        while tries < CALLS_MAX && blocked < BLOCKED_MAX {
            match case.call(&*self.world).await {
                Ok(answer) => {
                    statistics.repeated +=
                        u64::from(tries + blocked > 0 && is_to_be_cut && exchange.is_cut());
                    return Ok(vec![answer]);
                }
                // The server still holds the locks of the cut connection.
                Err(WorldError::Blocked(_)) => blocked += 1,
                Err(error) if error.is_transient() => {
                    tries += 1;
                    last = Some(error);
                    // Wait as workers and clients do: a cut connection is replaced after a while.
                    SystemClock.sleep_until(SystemClock.now().plus(PAUSE * tries as u32)).await;
                }
                Err(error) => return Err(format!("the call failed: {error}").into()),
            }
        }
        Err(format!(
            "{:?}: no answer to {tries} calls, and {blocked} were blocked; the last: {last:?}",
            case.kind
        )
        .into())
    }

    async fn call(&self, case: &CallCase) -> Result<CallAnswer> {
        let (mut tries, mut blocked, mut last) = (0, 0, None);
        while tries < CALLS_MAX && blocked < BLOCKED_MAX {
            match case.call(&*self.world).await {
                // The server still holds the locks of the cut connection.
                Err(WorldError::Blocked(_)) => blocked += 1,
                Err(error) if error.is_transient() => {
                    tries += 1;
                    last = Some(error);
                    // Wait as workers and clients do: a cut connection is replaced after a while.
                    SystemClock.sleep_until(SystemClock.now().plus(PAUSE * tries as u32)).await;
                }
                answer => return Ok(answer?),
            }
        }
        Err(format!(
            "{:?}: no answer to {tries} calls, and {blocked} were blocked; the last: {last:?}",
            case.kind
        )
        .into())
    }

    async fn check(
        &mut self,
        case: &CallCase,
        answers: &[CallAnswer],
        statistics: &mut CutStatistics,
    ) -> Result<()> {
        for answer in answers {
            let is_correct = match answer {
                CallAnswer::Started(started) => started.run == case.run(),
                CallAnswer::Sent(position) => *position == 1,
                CallAnswer::Claimed(claimed) => claimed.iter().all(|claimed| claimed.run == case.run()),
                CallAnswer::Beat(beat) => beat.held == u64::from(case.kind.holds()),
                CallAnswer::Histories(turns) => *turns == case.turns(),
                // The first call, or a concurrent takeover, may have released the run.
                CallAnswer::TakenOver(runs) => *runs <= 1,
                CallAnswer::Done => true,
                CallAnswer::Committed(Committed::Done) => true,
                CallAnswer::Committed(Committed::Existed(started)) => started.run == case.run(),
            };
            self.checks.that(is_correct, || format!("a wrong answer: {answer:?}"))?;
        }
        if case.kind == CallKind::Claim {
            self.check_claim(case, answers, statistics).await?;
        }
        // A beat also returns the number of held runs.
        let held = self.direct.beat(self.session, &Report::default(), &[]).await?.held;
        let expected = u64::from(case.kind.holds());
        self.checks.that(held == expected, || format!("the session holds {held} runs, not {expected}"))?;
        self.check_sessions(case).await?;
        match case.kind {
            CallKind::Join | CallKind::Beat => return Ok(()),
            _ => self.check_run(case).await?,
        }
        match case.kind {
            CallKind::BeatWithDetails => self.check_details(case).await,
            CallKind::Resume => self.check_resumed(case).await,
            _ => Ok(()),
        }
    }

    /// The sessions are those that have joined and not ended.
    async fn check_sessions(&mut self, case: &CallCase) -> Result<()> {
        let workers = self.direct.workers().await?;
        let mut sessions: Vec<_> = workers.iter().map(|worker| worker.session).collect();
        sessions.sort();
        let joined = (case.kind == CallKind::Join).then(|| case.other_session());
        let expected: Vec<_> = [self.session].into_iter().chain(joined).collect();
        self.checks.that(sessions == expected, || format!("the sessions are {workers:?}"))
    }

    /// The next claim of the run returns the heartbeat details.
    async fn check_details(&mut self, case: &CallCase) -> Result<()> {
        let held = self.direct.held(self.session).await?;
        for held in held {
            self.commit_end(case, held, Then::Release).await?;
        }
        let claimed = case.claim(&*self.direct, self.session).await?;
        let is_correct = matches!(&claimed[..], [claimed] if claimed.details == [case.details()]);
        self.checks.that(is_correct, || format!("a claim returned {claimed:?}"))
    }

    /// The build that left the run stuck can claim it again.
    async fn check_resumed(&mut self, case: &CallCase) -> Result<()> {
        let claimed = case.claim(&*self.direct, self.session).await?.len();
        self.checks.that(claimed == 1, || format!("a claim returned {claimed} runs after a resume"))
    }

    /// The run was claimed once. If the answer was lost, `held` returns the run, and it can be released and claimed
    /// again.
    async fn check_claim(
        &mut self,
        case: &CallCase,
        answers: &[CallAnswer],
        statistics: &mut CutStatistics,
    ) -> Result<()> {
        let claimed_count = answers.iter().map(|answer| match answer {
            CallAnswer::Claimed(claimed) => claimed.len(),
            _ => 0,
        });
        let claimed_count: usize = claimed_count.sum();
        self.checks.that(claimed_count <= 1, || format!("the run was claimed {claimed_count} times"))?;
        if claimed_count == 1 {
            return Ok(());
        }
        statistics.lost_claims += 1;
        let held = self.world.held(self.session).await?;
        let is_correct = matches!(&held[..], [held] if held.run == case.run());
        self.checks
            .that(is_correct, || format!("the claim's answer was lost, and `held` returned {held:?}"))?;
        self.commit_end(case, held[0].clone(), Then::Release).await?;
        let claimed = self.call(case).await?;
        let is_correct = matches!(&claimed, CallAnswer::Claimed(claimed) if claimed.len() == 1);
        self.checks.that(is_correct, || format!("the run was released, but a claim returned {claimed:?}"))
    }

    async fn check_run(&mut self, case: &CallCase) -> Result<()> {
        let view = self.direct.run(case.run()).await?;
        let turns: Vec<_> =
            self.direct.history(case.run(), 0, 100).await?.iter().map(|turn| turn.id).collect();
        let expected = case.turns();
        self.checks.that(turns == expected, || format!("the history is {turns:?}, not {expected:?}"))?;
        let status = match case.kind {
            CallKind::End => Status::Completed,
            CallKind::Resume => Status::Stuck,
            kind if kind.holds() => Status::Running,
            _ => Status::Pending,
        };
        let crashes = u32::from(case.kind == CallKind::Takeover);
        let is_correct = view.status == status && view.crashes == crashes;
        self.checks.that(is_correct, || format!("the run is not {status}, but {view:?}"))?;
        let owner = case.kind.holds().then_some(self.session);
        self.checks.that(view.owner == owner, || format!("the run is held by {:?}", view.owner))?;
        let inbox = self.direct.inbox(case.run(), 0).await?.len();
        let expected = usize::from(matches!(case.kind, CallKind::Send | CallKind::Outbox));
        self.checks.that(inbox == expected, || format!("there are {inbox} messages, not {expected}"))?;
        match case.kind {
            CallKind::KeyedStart => {
                let key = Some(format!("key-{}", case.number));
                let page = self.direct.runs(RunQuery { key, limit: 10, ..RunQuery::default() }).await?;
                let found = page.runs.len();
                self.checks.that(found == 1, || format!("{found} runs have the key"))
            }
            CallKind::Outbox => self.check_outbox(case, &view).await,
            _ => Ok(()),
        }
    }

    async fn check_outbox(&mut self, case: &CallCase, view: &RunView) -> Result<()> {
        let tag = view.tags.get("seen").map(String::as_str);
        self.checks.that(tag == Some("yes"), || format!("the tag is {tag:?}"))?;
        let messages = self.direct.inbox(case.other_run(), 0).await?.len();
        self.checks.that(messages == 1, || format!("the other run has {messages} messages"))?;
        let child = self.direct.history(case.child(), 0, 100).await?.len();
        self.checks.that(child == 1, || format!("the child has {child} turns"))?;
        let parent = Some(case.run());
        let children =
            self.direct.runs(RunQuery { parent, limit: 10, ..RunQuery::default() }).await?.runs.len();
        self.checks.that(children == 1, || format!("there are {children} children"))
    }

    /// Ends the runs and sessions of the case, so that the session holds nothing.
    async fn clear(&mut self, case: &CallCase) -> Result<()> {
        let held = self.direct.held(self.session).await?;
        for held in held.into_iter().filter(|held| held.run == case.run()) {
            self.commit_end(case, held, Then::End(Status::Completed)).await?;
        }
        match case.kind {
            // Through the same handle, which holds the session's lock.
            CallKind::Join => self.leave(&self.world, case.other_session()).await?,
            kind if kind.has_other_session() => self.leave(&self.direct, case.other_session()).await?,
            _ => {}
        }
        Ok(())
    }

    async fn leave(&self, world: &Arc<dyn World>, session: SessionId) -> Result<()> {
        for _ in 0..CALLS_MAX {
            match world.leave(session).await {
                Err(error) if error.is_transient() => {}
                left => return Ok(left?),
            }
        }
        Err(format!("session {session} cannot leave").into())
    }

    async fn commit_end(&mut self, case: &CallCase, held: HeldRun, then: Then) -> Result<()> {
        self.next += IDS_PER_CASE;
        let mut turn = case.ending_turn(held.turn, held.seq, self.next, then);
        turn.run = held.run;
        if let Then::End(_) = turn.then {
            turn.events = vec![Event::RunCompleted { output: Payload::null() }];
        }
        self.direct.commit(self.session, &[turn]).await?.remove(0)?;
        Ok(())
    }

    /// The counts match the runs, and no run is held.
    pub(super) async fn check_all(&mut self) -> Result<()> {
        let client = Client::new(self.direct.clone());
        let mut query = RunQuery { order: ListOrder::OldestFirst, ..RunQuery::default() };
        let mut counted = Counts::new();
        let mut held: Vec<RunId> = Vec::new();
        loop {
            let page = client.runs(query.clone()).await?;
            for view in page.runs {
                *counted.entry(view.status).or_default() += 1;
                held.extend(view.owner.map(|_| view.id));
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        self.checks.that(held.is_empty(), || format!("{held:?} are still held"))?;
        let mut counts = client.counts().await?;
        counts.retain(|_, count| *count > 0);
        self.checks.that(counted == counts, || format!("counts are {counts:?}, but there are {counted:?}"))
    }
}
