//! Claim hints: when a worker only has to claim one named run instead of searching for every ready run.
//!
//! A full claim looks at a dozen places of the database. A session whose last claim found everything that was ready,
//! and which since then was only woken for the start of one run, claims just that run. Since a hint may be lost, a
//! session makes a full claim at least every [`FULL_CLAIM_INTERVAL`].
//!
//! Similarly, a claim does not read messages of held runs again that the last claim has returned, if there are many:
//! while a parent starts or awaits thousands of children, its unread messages would be read by every claim. Since the
//! caller may have lost an answer, all are read again every [`READ_AGAIN_INTERVAL`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::takeover::is_suspect;
use outlast_core::{ClaimRequest, Code, RunId, SessionId, SuspectRoom, Timestamp, UnreadMessages, Work};
use parking_lot::Mutex;

/// The number of starts that are remembered as reasons.
const STARTS_MAX: usize = 16;

/// The longest time between two full claims of a session.
const FULL_CLAIM_INTERVAL: Duration = Duration::from_secs(5);

/// The longest time for which a returned message is not read again.
const READ_AGAIN_INTERVAL: Duration = Duration::from_secs(1);

/// The number of unread messages of a run from which on it is worth remembering that they were returned.
const MANY_MESSAGES: usize = 64;

/// The reasons for which the change signal fired, in order.
#[derive(Debug, Default)]
pub(crate) struct WakeReasons(Mutex<WakeLog>);

#[derive(Debug, Default)]
struct WakeLog {
    /// How often the signal fired; numbers the entries.
    count: u64,
    /// The number of the last entry that was not the start of one run, or whose run is no longer remembered.
    last_other: u64,
    /// The entries after `last_other`: the number, and the run that was started.
    starts: VecDeque<(u64, RunId)>,
}

impl WakeReasons {
    /// Records why the change signal is about to fire: the start of one run, or any other reason (`None`).
    pub(crate) fn record(&self, started: Option<RunId>) {
        let mut log = self.0.lock();
        log.count += 1;
        let count = log.count;
        match started {
            None => {
                log.last_other = count;
                log.starts.clear();
            }
            Some(run) => {
                if log.starts.len() == STARTS_MAX
                    && let Some((dropped, _)) = log.starts.pop_front()
                {
                    log.last_other = dropped;
                }
                log.starts.push_back((count, run));
            }
        }
    }

    fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// The run whose start is the only reason after the entry with this number; `None` if there are no or other
    /// reasons.
    fn only_start_since(&self, number: u64) -> Option<RunId> {
        let log = self.0.lock();
        if log.last_other > number {
            return None;
        }
        let mut since = log.starts.iter().filter(|(count, _)| *count > number);
        let (_, run) = since.next()?;
        since.next().is_none().then_some(*run)
    }
}

/// The last claims of the sessions of this process.
#[derive(Debug)]
pub(crate) struct ClaimHints {
    wake_reasons: Arc<WakeReasons>,
    by_session: Mutex<HashMap<SessionId, LastClaim>>,
    returned: Mutex<HashMap<SessionId, ReturnedMessages>>,
}

/// The messages of held runs that the last claims of a session have returned.
#[derive(Clone, Debug)]
pub(crate) struct ReturnedMessages {
    /// When the messages of all runs were read.
    read_all_at: Timestamp,
    /// The position of the last returned message, for each run with many of them.
    pub(crate) positions: HashMap<RunId, u64>,
}

impl ReturnedMessages {
    /// Adds the messages that a claim has returned.
    fn add(&mut self, unread: &[UnreadMessages]) {
        for UnreadMessages { run, messages } in unread {
            let Some(last) = messages.last() else { continue };
            if messages.len() >= MANY_MESSAGES || self.positions.contains_key(run) {
                self.positions.insert(*run, last.position);
            }
        }
    }
}

/// The last claim of a session that returned everything that was ready for the session.
#[derive(Debug)]
struct LastClaim {
    /// The number of wake reasons before the claim.
    wake_count: u64,
    /// When the session last made a full claim.
    full_claim_at: Timestamp,
    next_due: Option<Timestamp>,
    code: Arc<[Code]>,
    queues: Arc<[Arc<str>]>,
    build: Arc<str>,
    suspects: SuspectRoom,
}

/// What a claim has to search for.
#[derive(Debug)]
pub(crate) struct ClaimPlan {
    wake_count: u64,
    /// The only run that can have become ready; `None` for a full claim.
    pub(crate) only_run: Option<RunId>,
    full_claim_at: Timestamp,
    next_due: Option<Timestamp>,
    /// The messages that need not be read again.
    pub(crate) returned: ReturnedMessages,
}

impl ClaimHints {
    pub(crate) fn new(wake_reasons: Arc<WakeReasons>) -> Self {
        Self { wake_reasons, by_session: Mutex::default(), returned: Mutex::default() }
    }

    /// Plans a claim, before it is made. Forgets the session's last claim, so that the next plan is a full claim if
    /// this one's answer is lost.
    pub(crate) fn plan(&self, session: SessionId, request: &ClaimRequest, now: Timestamp) -> ClaimPlan {
        // Read the count before the claim: reasons that are recorded later are new to this session.
        let wake_count = self.wake_reasons.count();
        let returned = self.returned.lock().remove(&session);
        let returned = returned
            .filter(|returned| now < returned.read_all_at.plus(READ_AGAIN_INTERVAL))
            .unwrap_or_else(|| ReturnedMessages { read_all_at: now, positions: HashMap::new() });
        let full = ClaimPlan { wake_count, only_run: None, full_claim_at: now, next_due: None, returned };
        let Some(last) = self.by_session.lock().remove(&session) else { return full };
        let is_due = last.next_due.is_some_and(|due| due <= now);
        let only_run = self.wake_reasons.only_start_since(last.wake_count);
        match only_run.filter(|_| !is_due && last.matches(request)) {
            Some(run) => ClaimPlan {
                wake_count,
                only_run: Some(run),
                full_claim_at: last.full_claim_at,
                next_due: last.next_due,
                ..full
            },
            None => full,
        }
    }

    /// Records the answer to a claim. If only one run was claimed, adds to the answer when other runs are due.
    pub(crate) fn record(
        &self,
        session: SessionId,
        request: &ClaimRequest,
        mut plan: ClaimPlan,
        work: &mut Work,
    ) {
        plan.returned.add(&work.unread);
        if !plan.returned.positions.is_empty() {
            self.returned.lock().insert(session, plan.returned);
        }
        if plan.only_run.is_some() {
            // The worker must also wake up for the next full claim if no start follows.
            let full_claim_by = plan.full_claim_at.plus(FULL_CLAIM_INTERVAL);
            work.next_due = work.next_due.into_iter().chain(plan.next_due).chain([full_claim_by]).min();
        }
        let has_suspects = work.claimed.iter().any(|claimed| is_suspect(claimed.columns.crashes));
        if work.claimed.len() >= request.limit || has_suspects {
            // More runs may be ready than the worker had room for, in all or in a crash class.
            return;
        }
        let last = LastClaim {
            wake_count: plan.wake_count,
            full_claim_at: plan.full_claim_at,
            next_due: work.next_due,
            code: request.code.clone(),
            queues: request.queues.clone(),
            build: request.build.clone(),
            suspects: request.suspects,
        };
        self.by_session.lock().insert(session, last);
    }

    /// Forgets a session that has ended.
    pub(crate) fn forget(&self, session: SessionId) {
        self.by_session.lock().remove(&session);
        self.returned.lock().remove(&session);
    }
}

impl LastClaim {
    /// Whether a request asks for the same kinds of runs as this claim did.
    fn matches(&self, request: &ClaimRequest) -> bool {
        request.limit > 0
            && self.suspects == request.suspects
            && self.code == request.code
            && self.queues == request.queues
            && self.build == request.build
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::{
        Claimed, ClaimedHistory, Headers, HolderColumns, Message, MessageBody, MessageId, TurnId,
    };

    use super::*;

    const SESSION: SessionId = SessionId::from_bits(1);
    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn request(code: &str) -> ClaimRequest {
        ClaimRequest {
            limit: 1,
            code: Arc::new([Code { workflow: code.into(), version: 1 }]),
            queues: Arc::new(["default".into()]),
            build: "b".into(),
            format: 1,
            suspects: SuspectRoom::Nothing,
            ends_overdue_from: Timestamp::NEVER,
        }
    }

    fn work(next_due: Option<Timestamp>, claimed: Vec<Claimed>) -> Work {
        Work { claimed, unread: Vec::new(), next_due, epoch: 0 }
    }

    fn run(number: u128) -> RunId {
        RunId::from_bits(number)
    }

    fn claimed(crashes: u32) -> Claimed {
        Claimed {
            run: run(2),
            workflow: "w".into(),
            version: 1,
            turn: TurnId::from_bits(1),
            seq: 1,
            turn_at: NOW,
            consumed: 0,
            inbox: Vec::new(),
            columns: Arc::new(HolderColumns { crashes, ..HolderColumns::default() }),
            is_fresh: true,
            can_end_without_code: false,
            is_overdue: false,
            history: ClaimedHistory::LeftOut,
            details: Vec::new(),
        }
    }

    /// The hints after a full claim of `SESSION` that found nothing, with this time for the next due run.
    fn after_full_claim(next_due: Option<Timestamp>) -> (Arc<WakeReasons>, ClaimHints) {
        let reasons = Arc::<WakeReasons>::default();
        let hints = ClaimHints::new(reasons.clone());
        let plan = hints.plan(SESSION, &request("w"), NOW);
        assert_eq!(plan.only_run, None, "the first claim is a full one");
        hints.record(SESSION, &request("w"), plan, &mut work(next_due, Vec::new()));
        (reasons, hints)
    }

    fn planned_run(hints: &ClaimHints, at: Timestamp) -> Option<RunId> {
        hints.plan(SESSION, &request("w"), at).only_run
    }

    /// An answer with the first `count` messages of a held run.
    fn unread(count: usize) -> Work {
        let message = |position: u64| Message {
            id: MessageId::from_bits(position.into()),
            position,
            at: NOW,
            body: MessageBody::Wake { op: None },
            headers: Headers::new(),
        };
        let messages = (1..=count as u64).map(message).collect();
        Work { unread: vec![UnreadMessages { run: run(1), messages }], ..work(None, Vec::new()) }
    }

    /// The positions after which the next claim reads, when a claim at `NOW` has returned `count` messages.
    fn positions_after(count: usize, at: Timestamp) -> Vec<(RunId, u64)> {
        let hints = ClaimHints::new(Arc::default());
        let plan = hints.plan(SESSION, &request("w"), NOW);
        hints.record(SESSION, &request("w"), plan, &mut unread(count));
        hints.plan(SESSION, &request("w"), at).returned.positions.into_iter().collect()
    }

    #[test]
    fn many_messages_are_not_read_again_for_a_second() {
        let many = MANY_MESSAGES as u64;
        assert_eq!(positions_after(MANY_MESSAGES, NOW), [(run(1), many)]);
        assert_eq!(positions_after(MANY_MESSAGES - 1, NOW), [], "few messages are read with every claim");
        assert_eq!(
            positions_after(MANY_MESSAGES, NOW.plus(READ_AGAIN_INTERVAL)),
            [],
            "the answer may be lost"
        );
    }

    #[test]
    fn all_messages_are_read_again_after_a_claim_without_answer() {
        let hints = ClaimHints::new(Arc::default());
        let plan = hints.plan(SESSION, &request("w"), NOW);
        hints.record(SESSION, &request("w"), plan, &mut unread(MANY_MESSAGES));
        assert!(!hints.plan(SESSION, &request("w"), NOW).returned.positions.is_empty());
        assert!(hints.plan(SESSION, &request("w"), NOW).returned.positions.is_empty());
    }

    #[test]
    fn a_worker_that_is_woken_for_one_start_claims_only_that_run() {
        let (reasons, hints) = after_full_claim(None);
        reasons.record(Some(run(1)));
        let plan = hints.plan(SESSION, &request("w"), NOW);
        assert_eq!(plan.only_run, Some(run(1)));
        hints.record(SESSION, &request("w"), plan, &mut work(None, Vec::new()));
        reasons.record(Some(run(2)));
        assert_eq!(planned_run(&hints, NOW), Some(run(2)), "the first start is known");
    }

    #[test]
    fn every_other_reason_leads_to_a_full_claim() {
        let cases: [&[Option<u128>]; 4] = [&[], &[None], &[Some(1), Some(2)], &[None, Some(1)]];
        for recorded in cases {
            let (reasons, hints) = after_full_claim(None);
            recorded.iter().for_each(|started| reasons.record(started.map(run)));
            assert_eq!(planned_run(&hints, NOW), None, "{recorded:?}");
        }
        let (reasons, hints) = after_full_claim(None);
        (0..=STARTS_MAX as u128).for_each(|start| reasons.record(Some(run(start))));
        assert_eq!(planned_run(&hints, NOW), None, "more starts than are remembered");
    }

    #[test]
    fn a_full_claim_follows_a_claim_that_may_have_left_runs_of_a_crash_class() {
        for (crashes, only_run) in [(1, Some(run(1))), (2, None)] {
            let (reasons, hints) = after_full_claim(None);
            reasons.record(None);
            let plan = hints.plan(SESSION, &request("w"), NOW);
            let request = ClaimRequest { limit: 10, ..request("w") };
            hints.record(SESSION, &request, plan, &mut work(None, vec![claimed(crashes)]));
            reasons.record(Some(run(1)));
            assert_eq!(planned_run(&hints, NOW), only_run, "after a run with {crashes} crashes");
        }
    }

    #[test]
    fn a_session_without_a_matching_last_claim_makes_a_full_claim() {
        let (reasons, hints) = after_full_claim(None);
        reasons.record(Some(run(1)));
        assert_eq!(hints.plan(SESSION, &request("x"), NOW).only_run, None, "the code is different");
        assert_eq!(planned_run(&hints, NOW), None, "the answer to the last claim was lost");
        let (reasons, hints) = after_full_claim(Some(NOW));
        reasons.record(Some(run(1)));
        assert_eq!(planned_run(&hints, NOW), None, "another run is due");
        let (reasons, hints) = after_full_claim(None);
        reasons.record(Some(run(1)));
        hints.forget(SESSION);
        assert_eq!(planned_run(&hints, NOW), None, "the session is new");
    }

    #[test]
    fn a_claim_of_one_run_returns_when_others_are_due_and_a_full_claim_follows_in_time() {
        for (due, expected) in [(1, 1), (3600, 5)].map(|pair| (pair.0, NOW.plus(Duration::from_secs(pair.1))))
        {
            let (reasons, hints) = after_full_claim(Some(NOW.plus(Duration::from_secs(due))));
            reasons.record(Some(run(1)));
            let plan = hints.plan(SESSION, &request("w"), NOW);
            assert!(plan.only_run.is_some());
            let mut work = work(None, Vec::new());
            hints.record(SESSION, &request("w"), plan, &mut work);
            assert_eq!(work.next_due, Some(expected));
            reasons.record(Some(run(2)));
            assert_eq!(planned_run(&hints, expected), None, "then the claim is a full one");
        }
    }
}
