//! Faults: what goes wrong, how often, by the seed.

use std::time::Duration;

use fastrand::Rng;

/// A method of the world that can be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    Start,
    Send,
    Claim,
    Commit,
    Beat,
    Held,
    Leave,
    Join,
    Takeover,
    Read,
}

impl Call {
    /// Whether it changes the world, so that a late repeat of it is worth trying.
    fn writes(self) -> bool {
        !matches!(self, Self::Held | Self::Read)
    }
}

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// It is not done, and the caller is told `Unavailable`.
    Refuse,
    /// It is done, and the caller is told `Unavailable`.
    Lose,
    /// The caller's process is killed before the call reached the world.
    CrashBefore,
    /// The caller's process is killed after the call was done, before the answer.
    CrashAfter,
}

/// How one call goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) fault: Fault,
    /// How long it travels.
    pub(super) before: Duration,
    /// How long its answer travels.
    pub(super) after: Duration,
    /// Whether it arrives though the caller is gone meanwhile.
    pub(super) is_on_the_wire: bool,
    /// After which time it arrives once more.
    pub(super) again: Option<Duration>,
}

impl Plan {
    pub(super) const CALM: Self = Self {
        fault: Fault::None,
        before: Duration::ZERO,
        after: Duration::ZERO,
        is_on_the_wire: false,
        again: None,
    };

    /// Whether it may cost the caller its session.
    pub(super) fn is_grave(&self) -> bool {
        self.fault != Fault::None || self.before + self.after > Duration::from_millis(60)
    }
}

/// How rough a seed is. Chances are in 10,000.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    pub(super) refuse: u32,
    pub(super) lose: u32,
    pub(super) crash: u32,
    pub(super) again: u32,
    pub(super) slow: u32,
    /// The usual time on the way, at most.
    pub(super) latency: Duration,
    /// How long a slow call takes, at most.
    pub(super) slowness: Duration,
    /// Whether workers are frozen, cut off, killed and stopped from outside too.
    pub(super) has_fates: bool,
    /// Whether the clock is set on and back.
    pub(super) has_jumps: bool,
    /// Whether steps are queued, and workers serve some queues.
    pub(super) has_queues: bool,
    /// Whether the workers without all the code are of an older build, which knows fewer rules.
    pub(super) has_old_rules: bool,
    /// Whether the workers without all the code are of an older build, which cannot read all values.
    pub(super) has_older_build: bool,
    /// How many payloads a run may have that nobody has taken, if that is less than usual.
    pub(super) hook_limit: Option<usize>,
    /// How many hints are not heard, of 10,000.
    pub(super) deaf: u32,
}

impl Profile {
    /// One of some temperaments.
    pub(super) fn choose(rng: &mut Rng) -> Self {
        let millis = Duration::from_millis;
        let gentle = Self {
            refuse: 0,
            lose: 0,
            crash: 0,
            again: 0,
            slow: 0,
            latency: millis(rng.u64(0..10)),
            slowness: millis(50),
            has_fates: false,
            has_jumps: false,
            has_queues: false,
            has_old_rules: false,
            has_older_build: rng.bool(),
            hook_limit: (rng.u32(0..3) == 0).then(|| rng.usize(1..6)),
            deaf: 0,
        };
        match rng.u32(0..10) {
            0 => gentle,
            1 => Self { crash: 100, ..gentle },
            2 => Self { lose: 500, refuse: 500, ..gentle },
            3 => Self { slow: 1_000, slowness: millis(8_000), again: 500, ..gentle },
            4 => Self { has_fates: true, ..gentle },
            5 => {
                Self { crash: 300, lose: 300, has_fates: true, slow: 300, slowness: millis(3_000), ..gentle }
            }
            _ => Self {
                refuse: rng.u32(0..400),
                lose: rng.u32(0..400),
                crash: rng.u32(0..200),
                again: rng.u32(0..300),
                slow: rng.u32(0..500),
                slowness: millis(rng.u64(100..10_000)),
                has_fates: rng.bool(),
                has_jumps: rng.u32(0..4) == 0,
                deaf: rng.u32(0..3_000),
                ..gentle
            },
        }
    }

    /// How a call goes.
    pub(super) fn plan(&self, call: Call, rng: &mut Rng) -> Plan {
        let millis = Duration::from_millis;
        let mut happens = |chance: u32| rng.u32(0..10_000) < chance;
        let fault = if happens(self.refuse) {
            Fault::Refuse
        } else if happens(self.lose) {
            Fault::Lose
        } else if happens(self.crash) {
            if happens(5_000) { Fault::CrashBefore } else { Fault::CrashAfter }
        } else {
            Fault::None
        };
        let (is_slow, is_again) = (happens(self.slow), happens(self.again) && call.writes());
        let (is_slow_there, is_on_the_wire) = (happens(5_000), happens(5_000) && call.writes());
        let mut travel = |is_slow: bool| {
            let limit = if is_slow { self.slowness } else { self.latency };
            millis(rng.u64(0..=limit.as_millis() as u64))
        };
        let before = travel(is_slow && is_slow_there);
        let after = travel(is_slow && !is_slow_there);
        let again = is_again.then(|| millis(rng.u64(0..20_000)));
        Plan { fault, before, after, is_on_the_wire, again }
    }
}
