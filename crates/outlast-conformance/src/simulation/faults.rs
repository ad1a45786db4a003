//! Faults: which calls fail in which way, determined by the seed.

use std::time::Duration;

use fastrand::Rng;

/// A method of the world that faults can affect.
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
    WriteChunks,
    Reopen,
    Fork,
    Read,
}

impl Call {
    /// Whether it changes the world, so that a duplicate of it is useful.
    fn writes(self) -> bool {
        !matches!(self, Self::Held | Self::Read)
    }
}

/// The fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No fault.
    None,
    /// The call is not executed, and the caller gets `Unavailable`.
    Refuse,
    /// The call is executed, and the caller gets `Unavailable`.
    Lose,
    /// The caller's process is killed before the call reaches the world.
    CrashBefore,
    /// The caller's process is killed after the call was executed, before the answer.
    CrashAfter,
}

/// What happens to one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallPlan {
    pub(super) fault: Fault,
    /// The delay before the call.
    pub(super) before: Duration,
    /// The delay of its answer.
    pub(super) after: Duration,
    /// Whether the call arrives even if its caller is dropped meanwhile.
    pub(super) outlives_caller: bool,
    /// The time after which the call arrives a second time.
    pub(super) duplicate: Option<Duration>,
}

impl CallPlan {
    pub(super) const NO_FAULT: Self = Self {
        fault: Fault::None,
        before: Duration::ZERO,
        after: Duration::ZERO,
        outlives_caller: false,
        duplicate: None,
    };

    /// Whether the caller may lose its session by it.
    pub(super) fn may_cost_session(&self) -> bool {
        self.fault != Fault::None || self.before + self.after > Duration::from_millis(60)
    }
}

/// How often each fault happens in a seed. Probabilities are in 1/10,000.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    pub(super) refuse: u32,
    pub(super) lose: u32,
    pub(super) crash: u32,
    pub(super) duplicate: u32,
    pub(super) slow: u32,
    /// The maximum delay of a normal call.
    pub(super) latency: Duration,
    /// The maximum delay of a slow call.
    pub(super) slowness: Duration,
    /// Whether workers are also frozen, disconnected, killed and stopped at random times.
    pub(super) has_disturbances: bool,
    /// Whether the clock is moved forward and back.
    pub(super) has_clock_jumps: bool,
    /// Whether steps are queued, and workers serve some queues.
    pub(super) has_queues: bool,
    /// Whether programs have compensations, loops, streams and strategies, and clients create schedules.
    pub(super) is_orchestrated: bool,
    /// Whether the partial build is an older one that knows fewer rules.
    pub(super) has_old_rules: bool,
    /// Whether the partial build is an older one that cannot decode all values.
    pub(super) has_older_build: bool,
    /// The limit of payloads that a run keeps, if it is lower than usual.
    pub(super) hook_limit: Option<usize>,
    /// The probability that a change signal is missed.
    pub(super) missed_hints: u32,
}

impl Profile {
    /// A random profile.
    pub(super) fn choose(rng: &mut Rng) -> Self {
        let millis = Duration::from_millis;
        let gentle = Self {
            refuse: 0,
            lose: 0,
            crash: 0,
            duplicate: 0,
            slow: 0,
            latency: millis(rng.u64(0..10)),
            slowness: millis(50),
            has_disturbances: false,
            has_clock_jumps: false,
            has_queues: false,
            is_orchestrated: false,
            has_old_rules: false,
            has_older_build: rng.bool(),
            hook_limit: (rng.u32(0..3) == 0).then(|| rng.usize(1..6)),
            missed_hints: 0,
        };
        match rng.u32(0..10) {
            0 => gentle,
            1 => Self { crash: 100, ..gentle },
            2 => Self { lose: 500, refuse: 500, ..gentle },
            3 => Self { slow: 1_000, slowness: millis(8_000), duplicate: 500, ..gentle },
            4 => Self { has_disturbances: true, ..gentle },
            5 => Self {
                crash: 300,
                lose: 300,
                has_disturbances: true,
                slow: 300,
                slowness: millis(3_000),
                ..gentle
            },
            _ => Self {
                refuse: rng.u32(0..400),
                lose: rng.u32(0..400),
                crash: rng.u32(0..200),
                duplicate: rng.u32(0..300),
                slow: rng.u32(0..500),
                slowness: millis(rng.u64(100..10_000)),
                has_disturbances: rng.bool(),
                has_clock_jumps: rng.u32(0..4) == 0,
                missed_hints: rng.u32(0..3_000),
                ..gentle
            },
        }
    }

    /// How a call goes.
    pub(super) fn plan(&self, call: Call, rng: &mut Rng) -> CallPlan {
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
        let (is_slow, is_duplicated) = (happens(self.slow), happens(self.duplicate) && call.writes());
        let (is_slow_there, outlives_caller) = (happens(5_000), happens(5_000) && call.writes());
        let mut travel = |is_slow: bool| {
            let limit = if is_slow { self.slowness } else { self.latency };
            millis(rng.u64(0..=limit.as_millis() as u64))
        };
        let before = travel(is_slow && is_slow_there);
        let after = travel(is_slow && !is_slow_there);
        let duplicate = is_duplicated.then(|| millis(rng.u64(0..20_000)));
        CallPlan { fault, before, after, outlives_caller, duplicate }
    }
}
