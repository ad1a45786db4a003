//! The stage: what everybody in one simulation shares.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use outlast::MemoryWorld;
use outlast_core::limits::HOOK_BUFFER_MAX;
use outlast_core::{RunId, SessionId, World};
use parking_lot::Mutex;

use super::clock::SimClock;
use super::coverage::Situation;
use super::faults::{Call, Plan, Profile};
use super::ledger::Ledger;
use super::node::Node;
use super::witness::Witness;
use super::{DEFERRED_SEEDS, QUEUED_SEEDS};

/// Calls to the world in one simulation. More is a loop without end.
const CALLS_MAX: u64 = 400_000;

/// Lines of the trace that are kept when not all are wanted.
const LINES_KEPT: usize = 80;

/// What everybody shares: the clock, the world inside, chance, and what was seen.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) clock: SimClock,
    pub(super) inner: Arc<dyn World>,
    /// The same, when it is the one in memory: only that one can be told that a process is gone.
    memory: Option<Arc<MemoryWorld>>,
    /// Whether time is real, and calls come together: nobody can tell in which order they were done.
    pub(super) is_earnest: bool,
    pub(super) profile: Profile,
    pub(super) witness: Mutex<Witness>,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) nodes: Mutex<Vec<Arc<Node>>>,
    is_calm: AtomicBool,
    rng: Mutex<Rng>,
    trace: Mutex<Trace>,
    wrongs: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Trace {
    keeps_all: bool,
    lines: VecDeque<String>,
    hash: DefaultHasher,
    calls: u64,
}

impl Stage {
    /// On the world in memory.
    pub(super) fn new(seed: u64, keeps_all: bool, clock: SimClock) -> Arc<Self> {
        let memory = MemoryWorld::new(Arc::new(clock.clone()));
        let memory = if seed >= DEFERRED_SEEDS { memory.with_deferred_effects() } else { memory };
        let memory = Arc::new(memory);
        let inner = memory.clone();
        let stage = Self { memory: Some(memory), ..Self::on(inner, seed, keeps_all, clock) };
        if let (Some(memory), Some(limit)) = (&stage.memory, stage.profile.hook_limit) {
            memory.limit_hook_payloads(limit);
        }
        Arc::new(stage)
    }

    /// On another world.
    pub(super) fn on(inner: Arc<dyn World>, seed: u64, keeps_all: bool, clock: SimClock) -> Self {
        let mut rng = Rng::with_seed(seed);
        let profile = Profile::choose(&mut rng);
        let has_old_rules = seed >= DEFERRED_SEEDS;
        let trace = Trace { keeps_all, lines: VecDeque::new(), hash: DefaultHasher::new(), calls: 0 };
        Self {
            inner,
            memory: None,
            is_earnest: false,
            clock,
            profile: Profile {
                has_queues: seed >= QUEUED_SEEDS,
                has_old_rules,
                // Under rules 1 a value that cannot be read is an error, which the other build would not replay.
                has_older_build: profile.has_older_build && !has_old_rules,
                ..profile
            },
            witness: Mutex::default(),
            ledger: Mutex::default(),
            nodes: Mutex::default(),
            is_calm: AtomicBool::new(false),
            rng: Mutex::new(rng),
            trace: Mutex::new(trace),
            wrongs: Mutex::default(),
        }
    }

    /// On another world, in real time.
    pub(super) fn in_earnest(inner: Arc<dyn World>, seed: u64) -> Arc<Self> {
        Arc::new(Self { is_earnest: true, ..Self::on(inner, seed, false, SimClock::new()) })
    }

    /// A number by chance.
    pub(super) fn chance<T>(&self, choose: impl FnOnce(&mut Rng) -> T) -> T {
        choose(&mut self.rng.lock())
    }

    /// A new process.
    pub(super) fn node(&self, name: &str) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        let node = Node::new(format!("{name}{}", nodes.len()));
        nodes.push(node.clone());
        node
    }

    /// How a call goes; `None` when there were far too many.
    pub(super) fn plan(&self, node: &Node, call: Call) -> Option<Plan> {
        let calls = {
            let mut trace = self.trace.lock();
            trace.calls += 1;
            trace.calls
        };
        if calls > CALLS_MAX {
            if calls == CALLS_MAX + 1 {
                self.wrong(format!("more than {CALLS_MAX} calls to the world: somebody asks without end"));
            }
            return None;
        }
        if self.is_calm() {
            return Some(Plan::CALM);
        }
        let plan = self.chance(|rng| self.profile.plan(call, rng));
        if matches!(call, Call::Beat | Call::Takeover | Call::Join | Call::Leave) && plan.is_grave() {
            node.excuse();
        }
        Some(plan)
    }

    pub(super) fn calls(&self) -> u64 {
        self.trace.lock().calls
    }

    /// Nothing goes wrong any more.
    pub(super) fn calm_down(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
        if let Some(memory) = &self.memory {
            memory.limit_hook_payloads(HOOK_BUFFER_MAX);
        }
        for node in self.nodes.lock().iter() {
            node.thaw();
            node.reconnect();
        }
    }

    /// How many payloads a run may have that nobody has taken, where that is known.
    pub(super) fn hook_limit(&self) -> Option<u64> {
        self.memory.as_ref()?;
        let limit = self.profile.hook_limit.filter(|_| !self.is_calm());
        Some(limit.unwrap_or(HOOK_BUFFER_MAX) as u64)
    }

    /// Counts a situation.
    pub(super) fn saw(&self, situation: Situation) {
        self.witness.lock().tally.coverage.saw(situation);
    }

    pub(super) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    /// Adds a line to the trace.
    pub(super) fn note(&self, who: &str, what: std::fmt::Arguments<'_>) {
        let mut line = String::with_capacity(80);
        let _ = write!(line, "{:>9.3} {who:<4} {what}", self.clock.elapsed().as_secs_f64());
        let mut trace = self.trace.lock();
        line.hash(&mut trace.hash);
        if !trace.keeps_all && trace.lines.len() == LINES_KEPT {
            trace.lines.pop_front();
        }
        trace.lines.push_back(line);
    }

    /// Something that must not be.
    pub(super) fn wrong(&self, what: String) {
        self.note("!!", format_args!("{what}"));
        self.wrongs.lock().push(what);
    }

    pub(super) fn wrongs(&self) -> Vec<String> {
        self.wrongs.lock().clone()
    }

    /// What was noted, and the hash of all of it.
    pub(super) fn take_trace(&self) -> (Vec<String>, u64) {
        let mut trace = self.trace.lock();
        (std::mem::take(&mut trace.lines).into(), trace.hash.finish())
    }

    /// Makes a session look as if its process were gone, where that can be done from outside.
    pub(super) fn kill(&self, session: SessionId) {
        if let Some(memory) = &self.memory {
            memory.kill(session);
        }
    }

    /// The node that a session is of.
    pub(super) fn node_of(&self, session: SessionId) -> Option<Arc<Node>> {
        self.nodes.lock().iter().find(|node| node.has_had(session)).cloned()
    }
}

/// The end of an id, which tells it from others at a glance.
pub(super) fn short(run: RunId) -> String {
    let text = run.to_string();
    text[text.len() - 5..].to_owned()
}

/// The end of a session's id.
pub(super) fn brief(session: SessionId) -> String {
    let text = session.to_string();
    text[text.len() - 4..].to_owned()
}
