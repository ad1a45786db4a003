//! The operations of a random sequence.
//!
//! They refer to runs and sessions by numbers, modulo the number that exists, so that a sequence
//! keeps its meaning when operations are removed.

use fastrand::Rng;
use outlast_core::event::RULES;
use outlast_core::{Status, SuspectRoom};

/// One call to the world, or one move of the clock.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Start {
        start: NewStart,
    },
    RepeatStart {
        start: usize,
    },
    Send {
        run: usize,
        kind: MessageKind,
    },
    RepeatSend {
        message: usize,
    },
    Join {
        build: usize,
        code: usize,
        queues: usize,
        /// The highest rules that it knows.
        rules: u32,
        is_elsewhere: bool,
    },
    Beat {
        session: usize,
        /// The number of live runs in its report.
        live: u64,
        details: Vec<AttemptDetails>,
    },
    /// Applies the deferred effects of turns.
    Deliver {
        session: usize,
    },
    Claim {
        session: usize,
        limit: usize,
        suspects: SuspectRoom,
        /// The time from which it ends overdue runs, if it does.
        ends_overdue_in_micros: Option<u64>,
    },
    Commit {
        run: usize,
        shape: TurnShape,
        mistake: Mistake,
    },
    CommitStart {
        session: usize,
        start: NewStart,
        shape: TurnShape,
    },
    RepeatCommit {
        turn: usize,
    },
    Takeover {
        session: usize,
    },
    Leave {
        session: usize,
    },
    Crash {
        session: usize,
    },
    /// A worker in another process joins, claims all available runs and crashes; another worker takes over.
    ClaimAllAndCrash {
        code: usize,
        queues: usize,
        takeover_by: usize,
    },
    Resume {
        run: usize,
    },
    List {
        query: ListQuery,
    },
    Prune {
        ended_micros_ago: u64,
        after: Option<usize>,
        limit: usize,
    },
    Advance {
        micros: u64,
    },
}

/// The heartbeat details of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptDetails {
    /// Mostly a run that the session holds.
    pub(super) run: usize,
    pub(super) op: u64,
    pub(super) attempt: u32,
    /// The details; `None` removes them.
    pub(super) progress: Option<u64>,
}

/// The options of a start.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewStart {
    /// The highest rules that its client supports.
    pub(super) rules: u32,
    pub(super) workflow: usize,
    pub(super) queue: usize,
    pub(super) priority: u8,
    pub(super) key: Option<usize>,
    /// The window of the key.
    pub(super) window_micros: Option<u64>,
    pub(super) input: usize,
    pub(super) tag: Option<Tag>,
    pub(super) begins_in_micros: Option<u64>,
    pub(super) deadline_in_micros: Option<u64>,
}

/// The name and the value of a tag.
pub(super) type Tag = (usize, usize);

/// The kind of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum MessageKind {
    Hook,
    Cancel,
    Terminate,
    Wake,
    ChildEnded,
}

/// The content of a turn.
#[derive(Clone, Debug)]
pub(super) struct TurnShape {
    pub(super) events: u32,
    /// The maximum number of unread messages that it consumes.
    pub(super) consumes: usize,
    /// How long ago its fired timer was due.
    pub(super) fires_micros_ago: Option<u64>,
    pub(super) children: Vec<ChildRequest>,
    /// Messages; a target is a child of the turn, or an existing run.
    pub(super) messages: Vec<(usize, MessageKind)>,
    pub(super) tag: Option<Tag>,
    pub(super) clears_deadline: bool,
    pub(super) asks_to_stop: bool,
    /// Whether it resets the crash counter.
    pub(super) clears_crashes: bool,
    /// The number of payloads that the run keeps.
    pub(super) kept: u64,
    pub(super) then: ThenKind,
}

/// A child that a turn starts.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChildRequest {
    New {
        start: NewStart,
        notify_parent: bool,
    },
    /// A start that was made before.
    Again {
        start: usize,
        notify_parent: bool,
    },
    /// A start that every world refuses.
    Refused,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ThenKind {
    Hold,
    Wait { wake_in_micros: Option<u64> },
    Release,
    Complete,
    Fail,
    Cancel,
    Stuck,
}

/// The mistake of a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mistake {
    None,
    /// It is not based on the run's last turn.
    Stale,
    /// It comes from this session, which may not hold the run.
    From(usize),
}

/// The filters of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListQuery {
    pub(super) status: Option<Status>,
    pub(super) workflow: Option<usize>,
    pub(super) queue: Option<usize>,
    pub(super) lists_steps: bool,
    pub(super) key: Option<usize>,
    pub(super) parent: Option<usize>,
    pub(super) root: Option<usize>,
    pub(super) tags: [Option<Tag>; 2],
    pub(super) created_from: Option<usize>,
    pub(super) created_before: Option<usize>,
    pub(super) text: Option<usize>,
    pub(super) oldest_first: bool,
    pub(super) after: Option<usize>,
    pub(super) before: Option<usize>,
    pub(super) limit: usize,
}

impl Op {
    pub(super) fn random(rng: &mut Rng) -> Self {
        match rng.u8(0..112) {
            0..14 => Self::Start { start: NewStart::random(rng) },
            14..16 => Self::RepeatStart { start: any_index(rng) },
            16..29 => Self::Send { run: any_index(rng), kind: MessageKind::random(rng) },
            29..32 => Self::RepeatSend { message: any_index(rng) },
            32..39 => Self::Join {
                // Sometimes more builds than a run's row can store.
                build: if one_in(rng, 3).is_some() { rng.usize(0..12) } else { rng.usize(0..3) },
                code: rng.usize(0..4),
                queues: queues(rng),
                rules: one_in(rng, 6).map_or(RULES, |()| 1),
                is_elsewhere: rng.bool(),
            },
            39..41 => Self::Beat {
                session: any_index(rng),
                live: rng.u64(0..3),
                details: (0..rng.usize(0..4)).map(|_| AttemptDetails::random(rng)).collect(),
            },
            41..58 => Self::Claim {
                session: any_index(rng),
                limit: rng.usize(0..6),
                suspects: suspects(rng),
                ends_overdue_in_micros: rng.bool().then(|| one_in(rng, 3).map_or(0, |()| micros(rng))),
            },
            58..77 => Self::Commit {
                run: any_index(rng),
                shape: TurnShape::random(rng),
                mistake: Mistake::random(rng),
            },
            77..80 => Self::CommitStart {
                session: any_index(rng),
                // A run that is started by its first turn is not delayed.
                start: NewStart { begins_in_micros: None, ..NewStart::random(rng) },
                shape: TurnShape::random(rng),
            },
            80..83 => Self::RepeatCommit { turn: any_index(rng) },
            83..86 => Self::Takeover { session: any_index(rng) },
            86..88 => Self::Leave { session: any_index(rng) },
            88..90 => Self::Crash { session: any_index(rng) },
            90..92 => Self::Resume { run: any_index(rng) },
            92..95 => Self::ClaimAllAndCrash {
                code: rng.usize(0..3),
                queues: queues(rng),
                takeover_by: any_index(rng),
            },
            95..98 => Self::Prune {
                ended_micros_ago: micros(rng),
                after: one_in(rng, 3).map(|()| any_index(rng)),
                limit: rng.usize(1..6),
            },
            98..101 => Self::Deliver { session: any_index(rng) },
            101..104 => Self::List { query: ListQuery::random(rng) },
            _ => Self::Advance { micros: micros(rng) },
        }
    }
}

impl AttemptDetails {
    fn random(rng: &mut Rng) -> Self {
        Self {
            run: any_index(rng),
            op: rng.u64(0..2),
            attempt: rng.u32(1..4),
            progress: (rng.u8(0..3) > 0).then(|| rng.u64(0..3)),
        }
    }
}

impl NewStart {
    fn random(rng: &mut Rng) -> Self {
        Self {
            rules: one_in(rng, 4).map_or(RULES, |()| 1),
            workflow: one_in(rng, 8).map_or_else(|| rng.usize(0..2), |()| 2),
            queue: one_in(rng, 3).map_or(0, |()| rng.usize(1..3)),
            // Sometimes an invalid one.
            priority: one_in(rng, 3).map_or(0, |()| rng.u8(0..11)),
            key: one_in(rng, 3).map(|()| rng.usize(0..3)),
            window_micros: one_in(rng, 3).map(|()| micros(rng)),
            input: rng.usize(0..2),
            tag: one_in(rng, 3).map(|()| tag(rng)),
            begins_in_micros: one_in(rng, 4).map(|()| micros(rng)),
            deadline_in_micros: one_in(rng, 3).map(|()| micros(rng)),
        }
    }
}

impl MessageKind {
    fn random(rng: &mut Rng) -> Self {
        match rng.u8(0..8) {
            0..3 => Self::Hook,
            3..5 => Self::Cancel,
            5 => Self::Terminate,
            6 => Self::Wake,
            _ => Self::ChildEnded,
        }
    }
}

impl TurnShape {
    fn random(rng: &mut Rng) -> Self {
        let then = match rng.u8(0..14) {
            0..4 => ThenKind::Hold,
            4..8 => ThenKind::Wait { wake_in_micros: rng.bool().then(|| micros(rng)) },
            8..10 => ThenKind::Release,
            10 => ThenKind::Complete,
            11 => ThenKind::Fail,
            12 => ThenKind::Cancel,
            _ => ThenKind::Stuck,
        };
        let reaches_beyond = one_in(rng, 2).is_some();
        let up_to = |rng: &mut Rng, count| if reaches_beyond { rng.usize(0..count) } else { 0 };
        Self {
            events: rng.u32(0..3),
            consumes: rng.usize(0..4),
            fires_micros_ago: one_in(rng, 5).map(|()| rng.u64(0..200_000)),
            children: (0..up_to(rng, 3)).map(|_| ChildRequest::random(rng)).collect(),
            messages: (0..up_to(rng, 3)).map(|_| (any_index(rng), MessageKind::random(rng))).collect(),
            tag: one_in(rng, 4).map(|()| tag(rng)),
            clears_deadline: one_in(rng, 6).is_some(),
            asks_to_stop: one_in(rng, 8).is_some(),
            clears_crashes: rng.bool(),
            kept: rng.u64(0..3),
            then,
        }
    }
}

impl ChildRequest {
    fn random(rng: &mut Rng) -> Self {
        let notify_parent = rng.bool();
        match rng.u8(0..8) {
            0 => Self::Again { start: any_index(rng), notify_parent },
            1 => Self::Refused,
            _ => Self::New { start: NewStart::random(rng), notify_parent },
        }
    }
}

impl Mistake {
    fn random(rng: &mut Rng) -> Self {
        match rng.u8(0..10) {
            0 => Self::Stale,
            1 => Self::From(rng.usize(0..64)),
            _ => Self::None,
        }
    }
}

impl ListQuery {
    fn random(rng: &mut Rng) -> Self {
        Self {
            status: one_in(rng, 4).map(|()| Status::ALL[rng.usize(0..Status::ALL.len())]),
            workflow: one_in(rng, 5).map(|()| rng.usize(0..3)),
            queue: one_in(rng, 5).map(|()| rng.usize(0..3)),
            lists_steps: rng.bool(),
            key: one_in(rng, 8).map(|()| rng.usize(0..3)),
            parent: one_in(rng, 5).map(|()| any_index(rng)),
            root: one_in(rng, 4).map(|()| any_index(rng)),
            tags: [0, 1].map(|_| one_in(rng, 4).map(|()| tag(rng))),
            created_from: one_in(rng, 6).map(|()| any_index(rng)),
            created_before: one_in(rng, 6).map(|()| any_index(rng)),
            text: one_in(rng, 6).map(|()| any_index(rng)),
            oldest_first: rng.bool(),
            after: one_in(rng, 3).map(|()| any_index(rng)),
            before: one_in(rng, 3).map(|()| any_index(rng)),
            limit: rng.usize(1..6),
        }
    }
}

/// `Some` with a probability of 1 in `cases`.
fn one_in(rng: &mut Rng, cases: u8) -> Option<()> {
    (rng.u8(0..cases) == 0).then_some(())
}

fn any_index(rng: &mut Rng) -> usize {
    rng.usize(0..64)
}

fn suspects(rng: &mut Rng) -> SuspectRoom {
    let room = rng.usize(1..4);
    match rng.u8(0..6) {
        0 => SuspectRoom::Nothing,
        1 => SuspectRoom::Class { class: rng.u32(2..5), room: rng.usize(0..3) },
        2 => SuspectRoom::TrialFirst { room },
        _ => SuspectRoom::AnyClass { room },
    }
}

/// Mostly the default queue.
fn queues(rng: &mut Rng) -> usize {
    one_in(rng, 3).map_or(0, |()| rng.usize(1..4))
}

fn tag(rng: &mut Rng) -> Tag {
    (rng.usize(0..2), rng.usize(0..2))
}

/// A duration near the relevant limits: the preference, the session time, the grace of a deadline.
fn micros(rng: &mut Rng) -> u64 {
    match rng.u8(0..8) {
        0 => 1,
        1 => 99_999,
        2 => 100_000,
        3 => rng.u64(0..300_000),
        4 => 5_000_000,
        5 => 10_000_000,
        6 => 59_900_000,
        _ => 60_000_000,
    }
}
