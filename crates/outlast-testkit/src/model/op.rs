//! The operations of a random sequence.
//!
//! They name runs and sessions by numbers that are taken modulo what there is, so that a sequence
//! keeps its meaning when operations are left out.

use fastrand::Rng;

/// One call to the world, or one move of the clock.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Start {
        workflow: usize,
        key: Option<usize>,
        input: usize,
    },
    RepeatStart {
        start: usize,
    },
    Send {
        run: usize,
        is_cancel: bool,
    },
    RepeatSend {
        message: usize,
    },
    Join {
        build: usize,
        code: usize,
        is_elsewhere: bool,
    },
    Beat {
        session: usize,
    },
    Claim {
        session: usize,
        limit: usize,
        suspect: bool,
    },
    Commit {
        run: usize,
        shape: Shape,
        mistake: Mistake,
    },
    CommitStart {
        session: usize,
        workflow: usize,
        key: Option<usize>,
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
        taker: usize,
    },
    Resume {
        run: usize,
    },
    Advance {
        micros: u64,
    },
}

/// What a turn looks like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) events: u32,
    /// How many of the unread messages it consumes, at the most.
    pub(super) consumes: usize,
    /// How long ago the timer was due that it fires.
    pub(super) fires_micros_ago: Option<u64>,
    pub(super) then: ThenKind,
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

impl Op {
    pub(super) fn random(chance: &mut Rng) -> Self {
        let some = |chance: &mut Rng| chance.usize(0..64);
        let key = |chance: &mut Rng| (chance.u8(0..3) == 0).then(|| chance.usize(0..3));
        match chance.u8(0..100) {
            0..14 => {
                Self::Start { workflow: chance.usize(0..2), key: key(chance), input: chance.usize(0..2) }
            }
            14..16 => Self::RepeatStart { start: some(chance) },
            16..29 => Self::Send { run: some(chance), is_cancel: chance.u8(0..4) == 0 },
            29..32 => Self::RepeatSend { message: some(chance) },
            32..39 => Self::Join {
                build: chance.usize(0..3),
                code: chance.usize(0..4),
                is_elsewhere: chance.bool(),
            },
            39..41 => Self::Beat { session: some(chance) },
            41..58 => {
                Self::Claim { session: some(chance), limit: chance.usize(0..6), suspect: chance.u8(0..4) > 0 }
            }
            58..77 => Self::Commit {
                run: some(chance),
                shape: Shape::random(chance),
                mistake: Mistake::random(chance),
            },
            77..80 => Self::CommitStart {
                session: some(chance),
                workflow: chance.usize(0..2),
                key: key(chance),
                shape: Shape::random(chance),
            },
            80..83 => Self::RepeatCommit { turn: some(chance) },
            83..86 => Self::Takeover { session: some(chance) },
            86..88 => Self::Leave { session: some(chance) },
            88..90 => Self::Crash { session: some(chance) },
            90..92 => Self::Resume { run: some(chance) },
            92..95 => Self::Doom { code: chance.usize(0..3), taker: some(chance) },
            _ => Self::Advance { micros: micros(chance) },
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
        Self {
            events: chance.u32(0..3),
            consumes: chance.usize(0..4),
            fires_micros_ago: (chance.u8(0..5) == 0).then(|| chance.u64(0..200_000)),
            then,
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

/// A duration around the ones that matter: the preference and a session's time.
fn micros(chance: &mut Rng) -> u64 {
    match chance.u8(0..6) {
        0 => 1,
        1 => 99_999,
        2 => 100_000,
        3 => chance.u64(0..300_000),
        4 => 5_000_000,
        _ => 10_000_000,
    }
}
