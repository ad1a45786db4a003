//! Rows: what a world stores of a run is what core computes, for every combination of what it was before, what
//! happens to it and which messages came meanwhile.

use outlast_core::limits::FAILED_BUILDS_MAX;
use outlast_core::state::{Awaiting, PauseEffect, ready_after_send, resumed};
use outlast_core::takeover::HeldRuns;
use outlast_core::{
    ClaimRequest, Claimed, Code, EndableWithoutCode, HolderColumns, Marks, MessageBody, NewMessage,
    Readiness, ReleaseReason, Released, RowChange, RunId, RunView, Start, Status, Then, Timestamp, Turn,
};

use super::turn_ext::{TurnExt, stuck_by, wait, wait_for_retry, wait_until};
use super::{Case, TestWorker};

/// The build that looks whether a run is ready; it never fails.
const PROBE: &str = "probe";

/// A run as it was before something happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// How many crashes count against it.
    pub crashes: u32,
    /// How many payloads it keeps, and whether it has a deadline.
    pub keeps: bool,
    /// How many builds failed to continue it.
    pub failed: usize,
    /// Whether it has more than begun.
    pub has_begun: bool,
}

/// Messages that arrived while the run was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum UnreadKind {
    Nothing,
    Payload,
    Cancel,
    Terminate,
    Pause,
}

/// What a turn adds to the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Added {
    Nothing,
    Step,
    CancelRequested,
}

/// How a turn leaves its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum AfterTurn {
    Hold,
    Wait,
    WaitUntil,
    WaitForRetry,
    Release,
    Complete,
    Fail,
    Stuck,
}

/// A turn, and the run that it is committed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combination {
    /// The run.
    pub before: Before,
    /// The messages that it has not read.
    pub unread: UnreadKind,
    /// The events of the turn.
    pub added: Added,
    /// What becomes of the run.
    pub next: AfterTurn,
    /// Whether the turn changes the columns that only the holder changes.
    pub changes_columns: bool,
}

impl AfterTurn {
    const ALL: [Self; 8] = [
        Self::Hold,
        Self::Wait,
        Self::WaitUntil,
        Self::WaitForRetry,
        Self::Release,
        Self::Complete,
        Self::Fail,
        Self::Stuck,
    ];
}

impl Before {
    /// Every run, as far as it makes a difference.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for crashes in [0, 2] {
            for keeps in [false, true] {
                for has_begun in [false, true] {
                    for failed in [0, 1, FAILED_BUILDS_MAX] {
                        // A full list takes long to make, and the rest makes no difference to it.
                        if failed < FAILED_BUILDS_MAX || crashes == 0 && !keeps {
                            all.push(Self { crashes, keeps, failed, has_begun });
                        }
                    }
                }
            }
        }
        all
    }
}

impl UnreadKind {
    const ALL: [Self; 5] = [Self::Nothing, Self::Payload, Self::Cancel, Self::Terminate, Self::Pause];

    fn message(self, case: &Case, run: RunId) -> Option<NewMessage> {
        match self {
            Self::Nothing => None,
            Self::Payload => Some(case.new_message(run, "x")),
            Self::Cancel => Some(case.new_cancel(run)),
            Self::Terminate => {
                Some(case.new_message_of(run, MessageBody::Terminate { reason: "enough".into() }))
            }
            Self::Pause => Some(case.new_message_of(run, MessageBody::Pause { reason: "closed".into() })),
        }
    }

    /// The marks of a run that got it.
    fn marks(self) -> Marks {
        if self == Self::Pause { Marks::PAUSED } else { Marks::NONE }
    }

    /// The positions of the messages that need no code, when this is the first message of its run.
    fn codeless(self) -> EndableWithoutCode {
        EndableWithoutCode {
            last_terminate: u64::from(self == Self::Terminate),
            last_cancel: u64::from(self == Self::Cancel),
        }
    }
}

impl Combination {
    /// Every combination, as far as it makes a difference.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for before in Before::all() {
            // Crashes and failed builds make no difference to a pause.
            let is_plain = before.crashes == 0 && before.failed == 0;
            for unread in
                UnreadKind::ALL.into_iter().filter(|unread| is_plain || *unread != UnreadKind::Pause)
            {
                for added in [Added::Nothing, Added::Step, Added::CancelRequested] {
                    for next in
                        AfterTurn::ALL.into_iter().filter(|next| is_plain || *next != AfterTurn::WaitForRetry)
                    {
                        let changes_columns = added == Added::Step && before.keeps;
                        all.push(Self { before, unread, added, next, changes_columns });
                    }
                }
            }
        }
        all
    }

    /// The turn of the one who claimed the run.
    pub fn turn(&self, case: &Case, claimed: &Claimed) -> Turn {
        let turn = case.turn(claimed);
        let turn = match self.added {
            Added::Nothing => turn,
            Added::Step => turn.steps(1),
            Added::CancelRequested => turn.with_cancel_requested(),
        };
        let turn = if self.changes_columns {
            let turn = turn.clearing_crashes().keeping(7).clearing_deadline();
            turn.with_columns(|columns| {
                columns.marks = if columns.marks.is_empty() { Marks::COMPENSATED } else { Marks::NONE };
                columns.continued += 1;
            })
        } else {
            turn
        };
        match self.next {
            AfterTurn::Hold => turn,
            AfterTurn::Wait => turn.then(wait()),
            AfterTurn::WaitUntil => turn.then(wait_until(case.later(60))),
            AfterTurn::WaitForRetry => turn.then(wait_for_retry(case.later(60))),
            AfterTurn::Release => turn.then(Then::Release),
            AfterTurn::Complete => turn.completing("out"),
            AfterTurn::Fail => turn.failing(),
            AfterTurn::Stuck => turn.then(stuck_by("new")),
        }
    }
}

/// A worker that requests one workflow at a time.
struct Prober<'a> {
    case: &'a Case,
    worker: TestWorker,
}

impl Prober<'_> {
    fn request(&self, workflow: &str) -> ClaimRequest {
        let code = [Code { workflow: workflow.into(), version: 1 }].into();
        ClaimRequest { code, build: PROBE.into(), ..self.worker.request() }
    }

    async fn claim(&self, workflow: &str) -> Claimed {
        let mut claimed = self.worker.work(self.request(workflow)).await.claimed;
        assert_eq!(claimed.len(), 1, "{workflow} is ready");
        claimed.remove(0)
    }

    /// Makes a run of a workflow of its own and like `before`, ready to be claimed.
    async fn make(&self, workflow: &str, before: Before) -> RunId {
        let deadline = before.keeps.then(|| self.case.later(3_600));
        let start = Start { deadline, ..self.case.new_start(workflow) };
        let turn = self.case.starting_turn(start).keeping(if before.keeps { 3 } else { 0 });
        let turn = if before.has_begun { turn.steps(1) } else { turn };
        let turn = turn.with_columns(|columns| {
            columns.crashes = before.crashes;
            columns.is_retrying = before.keeps;
            columns.marks = if before.keeps { Marks::COMPENSATED } else { Marks::NONE };
        });
        let turn = turn.then(Then::Release);
        self.worker.commit_done(turn.clone()).await;
        for number in 0..before.failed {
            let claimed = self.claim(workflow).await;
            let stuck = self.case.turn(&claimed).then(stuck_by(&format!("old-{number}")));
            self.worker.commit_done(stuck).await;
        }
        turn.run
    }

    /// Asserts that the run is ready at this moment, and ends it.
    async fn expect_ready(&self, workflow: &str, at: Option<Timestamp>, what: &str) {
        let now = self.case.clock.now();
        let work = self.worker.work(self.request(workflow)).await;
        let is_ready = at.is_some_and(|at| at <= now);
        assert_eq!(work.claimed.len(), usize::from(is_ready), "{what}");
        assert_eq!(work.next_due, at.filter(|_| !is_ready), "{what}");
        for claimed in work.claimed {
            self.worker.commit_done(self.case.turn(&claimed).completing("out")).await;
        }
    }
}

async fn prober(case: &Case) -> Prober<'_> {
    Prober { case, worker: case.join("none").await }
}

fn ready_at(
    ready: Readiness,
    unread: UnreadKind,
    marks: Marks,
    consumed: u64,
    next_event: u64,
    now: Timestamp,
) -> Option<Timestamp> {
    let has_unread = unread != UnreadKind::Nothing;
    ready.choose(has_unread, unread.codeless().can_end(consumed, next_event), marks).moment(now)
}

/// After every turn, the world's row equals the row that core computes.
pub async fn every_turn_is_stored_as_core_computes(case: Case) {
    let prober = prober(&case).await;
    for (index, combination) in Combination::all().into_iter().enumerate() {
        let (workflow, what) = (format!("wf-{index}"), format!("{combination:?}"));
        let run = prober.make(&workflow, combination.before).await;
        let claimed = prober.claim(&workflow).await;
        assert_eq!(claimed.columns.is_retrying, combination.before.keeps, "a claim changes nothing: {what}");
        if let Some(message) = combination.unread.message(&case, run) {
            case.try_send(message).await.unwrap();
        }
        let turn = combination.turn(&case, &claimed);
        prober.worker.commit_done(turn.clone()).await;
        let change = RowChange::of(&turn, prober.worker.session);
        let view = case.view(run).await;
        compare_turn(&view, &change, &claimed, combination.unread, &what);
        let (unread, now) = (combination.unread, case.clock.now());
        let marks = change.marks_after(unread.marks().with(claimed.columns.marks));
        assert_eq!(view.marks, marks, "{what}");
        let at = ready_at(change.ready, unread, marks, view.consumed, change.next_event, now);
        prober.expect_ready(&workflow, at, &what).await;
        if change.owner.is_some() {
            prober.worker.commit_done(case.turn_after(&turn).completing("out")).await;
        }
    }
}

fn compare_turn(view: &RunView, change: &RowChange<'_>, claimed: &Claimed, unread: UnreadKind, what: &str) {
    assert_eq!((view.status, view.owner), (change.status, change.owner), "{what}");
    assert_eq!((view.wake_at, &*view.waits), (change.wake_at, change.waits), "{what}");
    assert_eq!(view.consumed, change.consumed.unwrap_or(claimed.consumed), "{what}");
    assert_eq!((view.crashes, view.kept), (change.columns.crashes, change.columns.kept), "{what}");
    assert_eq!(view.marks.of_holder(), change.columns.marks, "{what}");
    assert_eq!(
        (view.deadline, view.ended_at.is_some()),
        (change.columns.deadline, change.has_ended()),
        "{what}"
    );
    assert_eq!(view.failed_builds, change.columns.failed_builds, "{what}");
    assert_eq!(view.generation, change.columns.continued + 1, "{what}");
    let is_retrying = change.columns.is_retrying && change.status == Status::Waiting;
    assert_eq!((view.is_retrying, &view.failure), (is_retrying, &change.columns.failure), "{what}");
    let stuck = change.columns.stuck.clone().filter(|_| change.status == Status::Stuck);
    assert_eq!(view.stuck.as_ref(), stuck.as_deref(), "{what}");
    let is_cancel_requested = unread == UnreadKind::Cancel || change.requests_cancel;
    assert_eq!(view.is_cancel_requested, is_cancel_requested, "{what}");
}

/// After a worker has left or crashed, with many runs or one, the world's rows equal those that core computes.
pub async fn every_end_of_a_session_is_stored_as_core_computes(case: Case) {
    let prober = prober(&case).await;
    for before in Before::all() {
        for unread in UnreadKind::ALL {
            end_session(&prober, &[(before, unread)], false).await;
        }
    }
    // Those that can be ended without their code are everybody's, and would be claimed with the first.
    let many: Vec<_> = Before::all()
        .iter()
        .flat_map(|before| [UnreadKind::Nothing, UnreadKind::Payload].map(|unread| (*before, unread)))
        .collect();
    end_session(&prober, &many, true).await;
    for unread in UnreadKind::ALL {
        for failed in [0, FAILED_BUILDS_MAX] {
            let last = Before { crashes: 4, keeps: true, failed, has_begun: false };
            end_session(&prober, &[(last, unread)], true).await;
        }
    }
}

/// Ends a session that holds such runs, and compares each run's row with the one that core computes.
async fn end_session(prober: &Prober<'_>, runs: &[(Before, UnreadKind)], is_crash: bool) {
    let case = prober.case;
    let world = if is_crash { case.other_handle().await } else { case.world.clone() };
    let doomed = case.join_with(world, case.new_join(&[("none", 1)])).await;
    let mut held = Vec::new();
    for (before, unread) in runs {
        let workflow = format!("wf-{}", case.id());
        let run = prober.make(&workflow, *before).await;
        let claimed = doomed.work(prober.request(&workflow)).await.claimed.remove(0);
        if let Some(message) = unread.message(case, run) {
            case.try_send(message).await.unwrap();
        }
        held.push((workflow, claimed, format!("{before:?} {unread:?} {is_crash}"), *unread));
    }
    let held_runs = HeldRuns::of(held.iter().map(|(_, claimed, ..)| claimed.columns.crashes));
    let why = if is_crash {
        ReleaseReason::Crashed { held_runs, build: super::case::BUILD }
    } else {
        ReleaseReason::Left
    };
    if is_crash {
        case.crash(doomed).await;
        prober.worker.takeover().await;
    } else {
        doomed.leave().await;
    }
    for (workflow, claimed, what, unread) in held {
        let freed = Released::of(&claimed.columns, claimed.seq, why);
        compare_freed(&case.view(claimed.run).await, &freed, &claimed.columns, &what);
        let (marks, now) = (unread.marks(), case.clock.now());
        let at = ready_at(freed.ready, unread, marks, claimed.consumed, claimed.seq, now);
        prober.expect_ready(&workflow, at, &what).await;
    }
}

fn compare_freed(view: &RunView, freed: &Released, before: &HolderColumns, what: &str) {
    assert_eq!((view.status, view.owner, view.wake_at), (freed.status, None, None), "{what}");
    assert_eq!(
        (view.crashes, &view.failed_builds),
        (freed.columns.crashes, &freed.columns.failed_builds),
        "{what}"
    );
    assert_eq!((view.kept, view.deadline), (before.kept, before.deadline), "{what}");
    assert_eq!(view.marks.of_holder(), before.marks, "{what}");
    assert_eq!(view.generation, before.continued + 1, "{what}");
    let stuck = freed.columns.stuck.clone().filter(|_| freed.status == Status::Stuck);
    assert_eq!(view.stuck.as_ref(), stuck.as_deref(), "{what}");
}

/// After a message or a `resume`, a run is ready at the time that core computes, in every state of the run.
pub async fn every_message_and_resume_wakes_as_core_computes(case: Case) {
    let prober = prober(&case).await;
    let all = Before::all().into_iter().flat_map(|before| {
        let nexts = [AfterTurn::Hold, AfterTurn::Wait, AfterTurn::WaitUntil, AfterTurn::Stuck];
        let nexts = nexts.map(Some).into_iter().chain([None]);
        nexts.flat_map(move |next| UnreadKind::ALL.map(|unread| (before, next, unread)))
    });
    for (index, (before, next, unread)) in all.enumerate() {
        let (workflow, what) = (format!("wf-{index}"), format!("{before:?} {next:?} {unread:?}"));
        let run = prober.make(&workflow, before).await;
        let mut ready_at = Some(case.clock.now());
        let mut last = None;
        if let Some(next) = next {
            let claimed = prober.claim(&workflow).await;
            let (added, changes_columns) = (Added::Nothing, false);
            let combination =
                Combination { before, unread: UnreadKind::Nothing, added, next, changes_columns };
            let turn = combination.turn(&case, &claimed);
            prober.worker.commit_done(turn.clone()).await;
            let change = RowChange::of(&turn, prober.worker.session);
            ready_at = change.ready.if_read.moment(case.clock.now());
            last = Some(turn);
        }
        case.clock.advance("1s");
        let view = case.view(run).await;
        let seq = if before.has_begun { 2 } else { 1 };
        let awaiting = Awaiting {
            status: view.status,
            is_held: view.owner.is_some(),
            starts_later: false,
            can_end: unread.codeless().can_end(0, seq),
            ready_at,
            pause: PauseEffect::of(Marks::NONE, unread.marks(), view.deadline, None),
        };
        let now = case.clock.now();
        let expected = match unread.message(&case, run) {
            Some(message) => {
                case.try_send(message).await.unwrap();
                ready_after_send(&awaiting, now)
            }
            // Without a message it is resumed.
            None => {
                let expected = resumed(run, view.status, view.marks, ready_at, now);
                let answer = case.world.resume(run).await;
                assert_eq!(answer.is_ok(), expected.is_ok(), "{what}");
                if answer.is_ok() {
                    assert!(case.view(run).await.failed_builds.is_empty(), "{what}");
                }
                expected.unwrap_or(ready_at)
            }
        };
        assert_eq!(case.view(run).await.status, view.status, "{what}");
        prober.expect_ready(&workflow, expected, &what).await;
        if let (true, Some(turn)) = (awaiting.is_held, last) {
            prober.worker.commit_done(case.turn_after(&turn).completing("out")).await;
        }
    }
}
