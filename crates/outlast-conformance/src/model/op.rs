//! The operations of a random sequence.
//!
//! They name runs and sessions by numbers that are taken modulo what there is, so that a sequence
//! keeps its meaning when operations are left out.

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
        says: Says,
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
        /// How many live runs its report says.
        live: u64,
        details: Vec<Details>,
    },
    /// What turns have left to be done to other runs is done.
    Deliver {
        session: usize,
    },
    Claim {
        session: usize,
        limit: usize,
        suspects: SuspectRoom,
        /// From when on it ends overdue runs, if it does.
        ends_overdue_in_micros: Option<u64>,
    },
    Commit {
        run: usize,
        shape: Shape,
        mistake: Mistake,
    },
    CommitStart {
        session: usize,
        start: NewStart,
        shape: Shape,
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
    /// A worker elsewhere joins, claims all it can get and crashes; another one takes over.
    Doom {
        code: usize,
        queues: usize,
        taker: usize,
    },
    Resume {
        run: usize,
    },
    List {
        query: Query,
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

/// What a beat says of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Details {
    /// Mostly a run that the session holds.
    pub(super) run: usize,
    pub(super) op: u64,
    pub(super) attempt: u32,
    /// How far it has come; `None` when that is not needed any more.
    pub(super) says: Option<u64>,
}

/// What a start asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewStart {
    /// The rules that its client knows.
    pub(super) rules: u32,
    pub(super) workflow: usize,
    pub(super) queue: usize,
    pub(super) priority: u8,
    pub(super) key: Option<usize>,
    /// How long an earlier start with the key counts.
    pub(super) window_micros: Option<u64>,
    pub(super) input: usize,
    pub(super) tag: Option<Tag>,
    pub(super) begins_in_micros: Option<u64>,
    pub(super) deadline_in_micros: Option<u64>,
}

/// The name and the value of a tag.
pub(super) type Tag = (usize, usize);

/// What a message says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Says {
    Hook,
    Cancel,
    Terminate,
    Wake,
    ChildEnded,
}

/// What a turn looks like.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) events: u32,
    /// How many of the unread messages it consumes, at the most.
    pub(super) consumes: usize,
    /// How long ago the timer was due that it fires.
    pub(super) fires_micros_ago: Option<u64>,
    pub(super) children: Vec<Child>,
    /// Messages, first to the turn's own children, then to the runs that there are.
    pub(super) messages: Vec<(usize, Says)>,
    pub(super) tag: Option<Tag>,
    pub(super) clears_deadline: bool,
    pub(super) asks_to_stop: bool,
    /// Whether the crashes of its workers are forgotten.
    pub(super) forgives: bool,
    /// How many payloads the run keeps.
    pub(super) kept: u64,
    pub(super) then: ThenKind,
}

/// A child that a turn asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Child {
    New {
        start: NewStart,
        wants_answer: bool,
    },
    /// One that was asked for before.
    Again {
        start: usize,
        wants_answer: bool,
    },
    /// One that no world starts.
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

/// What is wrong with a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mistake {
    None,
    /// It is computed from another turn than the last.
    Stale,
    /// It comes from this session, whether or not that holds the run.
    From(usize),
}

/// Which runs a list is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
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
    pub(super) fn random(chance: &mut Rng) -> Self {
        match chance.u8(0..112) {
            0..14 => Self::Start { start: NewStart::random(chance) },
            14..16 => Self::RepeatStart { start: some(chance) },
            16..29 => Self::Send { run: some(chance), says: Says::random(chance) },
            29..32 => Self::RepeatSend { message: some(chance) },
            32..39 => Self::Join {
                // Now and then more builds than a run's row has room for.
                build: if one_in(chance, 3).is_some() { chance.usize(0..12) } else { chance.usize(0..3) },
                code: chance.usize(0..4),
                queues: queues(chance),
                rules: one_in(chance, 6).map_or(RULES, |()| 1),
                is_elsewhere: chance.bool(),
            },
            39..41 => Self::Beat {
                session: some(chance),
                live: chance.u64(0..3),
                details: (0..chance.usize(0..4)).map(|_| Details::random(chance)).collect(),
            },
            41..58 => Self::Claim {
                session: some(chance),
                limit: chance.usize(0..6),
                suspects: suspects(chance),
                ends_overdue_in_micros: chance
                    .bool()
                    .then(|| one_in(chance, 3).map_or(0, |()| micros(chance))),
            },
            58..77 => Self::Commit {
                run: some(chance),
                shape: Shape::random(chance),
                mistake: Mistake::random(chance),
            },
            77..80 => Self::CommitStart {
                session: some(chance),
                // Whoever begins a run at once does not put it off.
                start: NewStart { begins_in_micros: None, ..NewStart::random(chance) },
                shape: Shape::random(chance),
            },
            80..83 => Self::RepeatCommit { turn: some(chance) },
            83..86 => Self::Takeover { session: some(chance) },
            86..88 => Self::Leave { session: some(chance) },
            88..90 => Self::Crash { session: some(chance) },
            90..92 => Self::Resume { run: some(chance) },
            92..95 => Self::Doom { code: chance.usize(0..3), queues: queues(chance), taker: some(chance) },
            95..98 => Self::Prune {
                ended_micros_ago: micros(chance),
                after: one_in(chance, 3).map(|()| some(chance)),
                limit: chance.usize(1..6),
            },
            98..101 => Self::Deliver { session: some(chance) },
            101..104 => Self::List { query: Query::random(chance) },
            _ => Self::Advance { micros: micros(chance) },
        }
    }
}

impl Details {
    fn random(chance: &mut Rng) -> Self {
        Self {
            run: some(chance),
            op: chance.u64(0..2),
            attempt: chance.u32(1..4),
            says: (chance.u8(0..3) > 0).then(|| chance.u64(0..3)),
        }
    }
}

impl NewStart {
    fn random(chance: &mut Rng) -> Self {
        Self {
            rules: one_in(chance, 4).map_or(RULES, |()| 1),
            workflow: one_in(chance, 8).map_or_else(|| chance.usize(0..2), |()| 2),
            queue: one_in(chance, 3).map_or(0, |()| chance.usize(1..3)),
            // Now and then one that there is not.
            priority: one_in(chance, 3).map_or(0, |()| chance.u8(0..11)),
            key: one_in(chance, 3).map(|()| chance.usize(0..3)),
            window_micros: one_in(chance, 3).map(|()| micros(chance)),
            input: chance.usize(0..2),
            tag: one_in(chance, 3).map(|()| tag(chance)),
            begins_in_micros: one_in(chance, 4).map(|()| micros(chance)),
            deadline_in_micros: one_in(chance, 3).map(|()| micros(chance)),
        }
    }
}

impl Says {
    fn random(chance: &mut Rng) -> Self {
        match chance.u8(0..8) {
            0..3 => Self::Hook,
            3..5 => Self::Cancel,
            5 => Self::Terminate,
            6 => Self::Wake,
            _ => Self::ChildEnded,
        }
    }
}

impl Shape {
    fn random(chance: &mut Rng) -> Self {
        let then = match chance.u8(0..14) {
            0..4 => ThenKind::Hold,
            4..8 => ThenKind::Wait { wake_in_micros: chance.bool().then(|| micros(chance)) },
            8..10 => ThenKind::Release,
            10 => ThenKind::Complete,
            11 => ThenKind::Fail,
            12 => ThenKind::Cancel,
            _ => ThenKind::Stuck,
        };
        let reaches_beyond = one_in(chance, 2).is_some();
        let up_to = |chance: &mut Rng, count| if reaches_beyond { chance.usize(0..count) } else { 0 };
        Self {
            events: chance.u32(0..3),
            consumes: chance.usize(0..4),
            fires_micros_ago: one_in(chance, 5).map(|()| chance.u64(0..200_000)),
            children: (0..up_to(chance, 3)).map(|_| Child::random(chance)).collect(),
            messages: (0..up_to(chance, 3)).map(|_| (some(chance), Says::random(chance))).collect(),
            tag: one_in(chance, 4).map(|()| tag(chance)),
            clears_deadline: one_in(chance, 6).is_some(),
            asks_to_stop: one_in(chance, 8).is_some(),
            forgives: chance.bool(),
            kept: chance.u64(0..3),
            then,
        }
    }
}

impl Child {
    fn random(chance: &mut Rng) -> Self {
        let wants_answer = chance.bool();
        match chance.u8(0..8) {
            0 => Self::Again { start: some(chance), wants_answer },
            1 => Self::Refused,
            _ => Self::New { start: NewStart::random(chance), wants_answer },
        }
    }
}

impl Mistake {
    fn random(chance: &mut Rng) -> Self {
        match chance.u8(0..10) {
            0 => Self::Stale,
            1 => Self::From(chance.usize(0..64)),
            _ => Self::None,
        }
    }
}

impl Query {
    fn random(chance: &mut Rng) -> Self {
        Self {
            status: one_in(chance, 4).map(|()| Status::ALL[chance.usize(0..Status::ALL.len())]),
            workflow: one_in(chance, 5).map(|()| chance.usize(0..3)),
            queue: one_in(chance, 5).map(|()| chance.usize(0..3)),
            lists_steps: chance.bool(),
            key: one_in(chance, 8).map(|()| chance.usize(0..3)),
            parent: one_in(chance, 5).map(|()| some(chance)),
            root: one_in(chance, 4).map(|()| some(chance)),
            tags: [0, 1].map(|_| one_in(chance, 4).map(|()| tag(chance))),
            created_from: one_in(chance, 6).map(|()| some(chance)),
            created_before: one_in(chance, 6).map(|()| some(chance)),
            text: one_in(chance, 6).map(|()| some(chance)),
            oldest_first: chance.bool(),
            after: one_in(chance, 3).map(|()| some(chance)),
            before: one_in(chance, 3).map(|()| some(chance)),
            limit: chance.usize(1..6),
        }
    }
}

/// Something, in one case of so many.
fn one_in(chance: &mut Rng, cases: u8) -> Option<()> {
    (chance.u8(0..cases) == 0).then_some(())
}

fn some(chance: &mut Rng) -> usize {
    chance.usize(0..64)
}

fn suspects(chance: &mut Rng) -> SuspectRoom {
    let room = chance.usize(1..4);
    match chance.u8(0..6) {
        0 => SuspectRoom::Nothing,
        1 => SuspectRoom::Class { class: chance.u32(2..5), room: chance.usize(0..3) },
        2 => SuspectRoom::TrialFirst { room },
        _ => SuspectRoom::AnyClass { room },
    }
}

/// Mostly the default queue.
fn queues(chance: &mut Rng) -> usize {
    one_in(chance, 3).map_or(0, |()| chance.usize(1..4))
}

fn tag(chance: &mut Rng) -> Tag {
    (chance.usize(0..2), chance.usize(0..2))
}

/// A duration around the ones that matter: the preference, a session's time, the grace of a deadline.
fn micros(chance: &mut Rng) -> u64 {
    match chance.u8(0..8) {
        0 => 1,
        1 => 99_999,
        2 => 100_000,
        3 => chance.u64(0..300_000),
        4 => 5_000_000,
        5 => 10_000_000,
        6 => 59_900_000,
        _ => 60_000_000,
    }
}
