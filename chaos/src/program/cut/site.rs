//! Where the cuts are made: a world behind the proxy, and one beside it that sees what is really there.

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
use super::deed::{Answer, Case, Deed, SESSION};
use super::{Connection, Cut, Tally};

/// How often a call is made until it is answered. Once cut, a connection is made anew, so few are enough.
const CALLS_MAX: usize = 20;

/// The pause before a call that was not answered is repeated; it grows with each.
const PAUSE: Duration = Duration::from_millis(5);

/// How often a call is made while the server has not noticed that the cut connection is gone: half a minute, at 50 ms each.
const BLOCKED_MAX: usize = 600;

/// How long the server may take to notice that a connection is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time of a session that is to be over soon.
const SHORT_SESSION: Duration = Duration::from_millis(5);

/// Ids of one case are next to each other.
const IDS_PER_CASE: u128 = 16;

pub(super) struct Site {
    proxy: Proxy,
    /// By way of the proxy, on one connection.
    world: Arc<dyn World>,
    direct: Arc<dyn World>,
    session: SessionId,
    next: u128,
    pub(super) checks: Checks,
}

impl Site {
    /// Opens both worlds, in a schema of their own.
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

    /// Makes a call that is cut, repeats it until it is answered, and looks at what came of it. Tells how many
    /// bytes went to the server and to the client.
    pub(super) async fn trial(
        &mut self,
        deed: Deed,
        connection: Connection,
        cut: Option<Cut>,
        tally: &mut Tally,
    ) -> Result<[u64; 2]> {
        let case = self.set_up(deed).await?;
        match connection {
            Connection::Warm => {
                let other = self.set_up(deed).await?;
                self.call(&other).await?;
                self.clear(&other).await?;
            }
            Connection::New => self.proxy.cut_all(),
        }
        let mark = case.mark(connection == Connection::Warm);
        let exchange = match cut {
            Some(Cut { toward, bytes }) => self.proxy.cut(mark, toward, bytes),
            None => self.proxy.watch(mark),
        };
        let mut answers = self.call_through(&case, &exchange, cut.is_some(), tally).await?;
        let sizes = [Toward::Server, Toward::Client].map(|toward| exchange.bytes(toward));
        if exchange.is_cut() {
            tally.cuts += 1;
            let is_over = tokio::task::block_in_place(|| exchange.is_over_within(PATIENCE));
            self.checks.that(is_over, || "the server does not let go of the connection".into())?;
        }
        // Now nothing is under way any more, and all is as it will stay.
        answers.push(self.call(&case).await?);
        self.check(&case, &answers, tally).await?;
        self.clear(&case).await?;
        Ok(sizes)
    }

    /// Brings about what the call needs.
    async fn set_up(&mut self, deed: Deed) -> Result<Case> {
        self.next += IDS_PER_CASE;
        let mut case = Case { deed, session: self.session, number: self.next, claimed: None };
        let mut starts = Vec::new();
        if deed.needs_run() {
            starts.push(case.start(case.run()));
        }
        if !starts.is_empty() {
            self.direct.start(starts).await?.remove(0)?;
        }
        if deed.has_other_session() {
            let time = if deed == Deed::Takeover { SHORT_SESSION } else { SESSION };
            self.direct.join(case.join(time)).await?;
        }
        if deed.needs_claim() {
            let session = if deed.has_other_session() { case.other_session() } else { self.session };
            case.claimed = case.claim(&*self.direct, session).await?.pop();
        }
        if let (Deed::Resume, Some(claimed)) = (deed, &case.claimed) {
            self.direct.commit(self.session, &[case.sticking(claimed)]).await?.remove(0)?;
        }
        if deed == Deed::Takeover {
            SystemClock.sleep_until(SystemClock.now().plus(2 * SHORT_SESSION)).await;
        }
        if deed == Deed::Outbox {
            // After the claim, which is to bring the one run alone.
            self.direct.start(vec![case.start(case.friend())]).await?.remove(0)?;
        }
        Ok(case)
    }

    /// Calls until there is an answer.
    async fn call_through(
        &self,
        case: &Case,
        exchange: &Exchange,
        is_to_be_cut: bool,
        tally: &mut Tally,
    ) -> Result<Vec<Answer>> {
        let (mut tries, mut blocked, mut last) = (0, 0, None);
        while tries < CALLS_MAX && blocked < BLOCKED_MAX {
            match case.call(&*self.world).await {
                Ok(answer) => {
                    tally.repeated += u64::from(tries + blocked > 0 && is_to_be_cut && exchange.is_cut());
                    return Ok(vec![answer]);
                }
                // The connection that was cut still holds its locks.
                Err(WorldError::Blocked(_)) => blocked += 1,
                Err(error) if error.is_transient() => {
                    tries += 1;
                    last = Some(error);
                    // As workers and clients do: a connection that was cut is noticed and made anew after a while.
                    SystemClock.sleep_until(SystemClock.now().plus(PAUSE * tries as u32)).await;
                }
                Err(error) => return Err(format!("instead of an answer there is: {error}").into()),
            }
        }
        Err(format!(
            "{:?}: no answer to {tries} calls, and {blocked} were blocked; the last: {last:?}",
            case.deed
        )
        .into())
    }

    async fn call(&self, case: &Case) -> Result<Answer> {
        let (mut tries, mut blocked, mut last) = (0, 0, None);
        while tries < CALLS_MAX && blocked < BLOCKED_MAX {
            match case.call(&*self.world).await {
                // The connection that was cut still holds its locks.
                Err(WorldError::Blocked(_)) => blocked += 1,
                Err(error) if error.is_transient() => {
                    tries += 1;
                    last = Some(error);
                    // As workers and clients do: a connection that was cut is noticed and made anew after a while.
                    SystemClock.sleep_until(SystemClock.now().plus(PAUSE * tries as u32)).await;
                }
                answer => return Ok(answer?),
            }
        }
        Err(format!(
            "{:?}: no answer to {tries} calls, and {blocked} were blocked; the last: {last:?}",
            case.deed
        )
        .into())
    }

    async fn check(&mut self, case: &Case, answers: &[Answer], tally: &mut Tally) -> Result<()> {
        for answer in answers {
            let is_so = match answer {
                Answer::Started(started) => started.run == case.run(),
                Answer::Sent(position) => *position == 1,
                Answer::Claimed(claimed) => claimed.iter().all(|claimed| claimed.run == case.run()),
                Answer::Beat(beat) => beat.held == u64::from(case.deed.holds()),
                Answer::Histories(turns) => *turns == case.turns(),
                // The first call, or a look beside it, may have done it.
                Answer::Taken(runs) => *runs <= 1,
                Answer::Done => true,
                Answer::Committed(Committed::Done) => true,
                Answer::Committed(Committed::Existed(started)) => started.run == case.run(),
            };
            self.checks.that(is_so, || format!("a wrong answer: {answer:?}"))?;
        }
        if case.deed == Deed::Claim {
            self.check_claim(case, answers, tally).await?;
        }
        // What was not found above is found by the next beat.
        let held = self.direct.beat(self.session, &Report::default(), &[]).await?.held;
        let expected = u64::from(case.deed.holds());
        self.checks.that(held == expected, || format!("the session holds {held} runs, not {expected}"))?;
        self.check_sessions(case).await?;
        match case.deed {
            Deed::Join | Deed::Beat => return Ok(()),
            _ => self.check_run(case).await?,
        }
        match case.deed {
            Deed::BeatWithDetails => self.check_details(case).await,
            Deed::Resume => self.check_resumed(case).await,
            _ => Ok(()),
        }
    }

    /// There are those sessions that have joined and not ended.
    async fn check_sessions(&mut self, case: &Case) -> Result<()> {
        let workers = self.direct.workers().await?;
        let mut sessions: Vec<_> = workers.iter().map(|worker| worker.session).collect();
        sessions.sort();
        let joined = (case.deed == Deed::Join).then(|| case.other_session());
        let expected: Vec<_> = [self.session].into_iter().chain(joined).collect();
        self.checks.that(sessions == expected, || format!("the sessions are {workers:?}"))
    }

    /// Whoever claims the run next is told how far the attempt had come.
    async fn check_details(&mut self, case: &Case) -> Result<()> {
        let held = self.direct.held(self.session).await?;
        for held in held {
            self.let_go(case, held, Then::Release).await?;
        }
        let claimed = case.claim(&*self.direct, self.session).await?;
        let is_so = matches!(&claimed[..], [claimed] if claimed.details == [case.details()]);
        self.checks.that(is_so, || format!("a claim brings {claimed:?}"))
    }

    /// The build that had left the run stuck gets it once more.
    async fn check_resumed(&mut self, case: &Case) -> Result<()> {
        let claimed = case.claim(&*self.direct, self.session).await?.len();
        self.checks.that(claimed == 1, || format!("a claim brings {claimed} runs, though it was resumed"))
    }

    /// The run was given once; and if nobody was told, `held` tells, and it can be given again.
    async fn check_claim(&mut self, case: &Case, answers: &[Answer], tally: &mut Tally) -> Result<()> {
        let given = answers.iter().map(|answer| match answer {
            Answer::Claimed(claimed) => claimed.len(),
            _ => 0,
        });
        let given: usize = given.sum();
        self.checks.that(given <= 1, || format!("the run was given {given} times"))?;
        if given == 1 {
            return Ok(());
        }
        tally.orphans += 1;
        let held = self.world.held(self.session).await?;
        let is_so = matches!(&held[..], [held] if held.run == case.run());
        self.checks.that(is_so, || format!("nobody knows of the run, and `held` says {held:?}"))?;
        self.let_go(case, held[0].clone(), Then::Release).await?;
        let claimed = self.call(case).await?;
        let is_so = matches!(&claimed, Answer::Claimed(claimed) if claimed.len() == 1);
        self.checks.that(is_so, || format!("the run was handed back, but a claim brings {claimed:?}"))
    }

    async fn check_run(&mut self, case: &Case) -> Result<()> {
        let view = self.direct.run(case.run()).await?;
        let turns: Vec<_> =
            self.direct.history(case.run(), 0, 100).await?.iter().map(|turn| turn.id).collect();
        let expected = case.turns();
        self.checks.that(turns == expected, || format!("the history is {turns:?}, not {expected:?}"))?;
        let status = match case.deed {
            Deed::End => Status::Completed,
            Deed::Resume => Status::Stuck,
            deed if deed.holds() => Status::Running,
            _ => Status::Pending,
        };
        let crashes = u32::from(case.deed == Deed::Takeover);
        let is_so = view.status == status && view.crashes == crashes;
        self.checks.that(is_so, || format!("the run is not {status}, but {view:?}"))?;
        let owner = case.deed.holds().then_some(self.session);
        self.checks.that(view.owner == owner, || format!("the run is held by {:?}", view.owner))?;
        let inbox = self.direct.inbox(case.run(), 0).await?.len();
        let expected = usize::from(matches!(case.deed, Deed::Send | Deed::Outbox));
        self.checks.that(inbox == expected, || format!("there are {inbox} messages, not {expected}"))?;
        match case.deed {
            Deed::KeyedStart => {
                let key = Some(format!("key-{}", case.number));
                let page = self.direct.runs(RunQuery { key, limit: 10, ..RunQuery::default() }).await?;
                let found = page.runs.len();
                self.checks.that(found == 1, || format!("{found} runs have the key"))
            }
            Deed::Outbox => self.check_outbox(case, &view).await,
            _ => Ok(()),
        }
    }

    async fn check_outbox(&mut self, case: &Case, view: &RunView) -> Result<()> {
        let tag = view.tags.get("seen").map(String::as_str);
        self.checks.that(tag == Some("yes"), || format!("the tag is {tag:?}"))?;
        let letters = self.direct.inbox(case.friend(), 0).await?.len();
        self.checks.that(letters == 1, || format!("the friend has {letters} messages"))?;
        let child = self.direct.history(case.child(), 0, 100).await?.len();
        self.checks.that(child == 1, || format!("the child has {child} turns"))?;
        let parent = Some(case.run());
        let children =
            self.direct.runs(RunQuery { parent, limit: 10, ..RunQuery::default() }).await?.runs.len();
        self.checks.that(children == 1, || format!("there are {children} children"))
    }

    /// Ends what the case left, so that the next finds the session free.
    async fn clear(&mut self, case: &Case) -> Result<()> {
        let held = self.direct.held(self.session).await?;
        for held in held.into_iter().filter(|held| held.run == case.run()) {
            self.let_go(case, held, Then::End(Status::Completed)).await?;
        }
        match case.deed {
            // Whoever joined has its lock.
            Deed::Join => self.leave(&self.world, case.other_session()).await?,
            deed if deed.has_other_session() => self.leave(&self.direct, case.other_session()).await?,
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

    async fn let_go(&mut self, case: &Case, held: HeldRun, then: Then) -> Result<()> {
        self.next += IDS_PER_CASE;
        let mut turn = case.letting_go(held.turn, held.seq, self.next, then);
        turn.run = held.run;
        if let Then::End(_) = turn.then {
            turn.events = vec![Event::RunCompleted { output: Payload::null() }];
        }
        self.direct.commit(self.session, &[turn]).await?.remove(0)?;
        Ok(())
    }

    /// The counts are those of the runs that there are.
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
