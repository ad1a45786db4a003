//! The environment: the state that all parts of one simulation share.

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

use super::attempt_log::AttemptLog;
use super::clock::SimulationClock;
use super::control::Controlled;
use super::coverage::Situation;
use super::faults::{Call, CallPlan, Profile};
use super::node::Node;
use super::observer::Observer;
use super::{CONTROLLED_SEEDS, DEFERRED_SEEDS, ORCHESTRATED_SEEDS, QUEUED_SEEDS};

/// The limit of calls to the world in one simulation. More calls mean an endless loop.
const CALLS_MAX: u64 = 400_000;

/// Lines of the trace that are kept unless all are requested.
const TRACE_LINES_MAX: usize = 80;

/// The shared state: the clock, the inner world, the random generator, and the observations.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) clock: SimulationClock,
    pub(super) inner: Arc<dyn World>,
    /// The inner world, if it is the one in memory: only in that one a process can be marked as dead.
    memory: Option<Arc<MemoryWorld>>,
    /// Whether programs have exchanges, and clients control runs.
    pub(super) is_controlled: bool,
    /// Whether time is real and calls are concurrent, so that their order is unknown.
    pub(super) is_real_time: bool,
    pub(super) profile: Profile,
    pub(super) observer: Mutex<Observer>,
    pub(super) attempt_log: Mutex<AttemptLog>,
    /// Locked after the observer, and before the attempt log.
    pub(super) controlled: Mutex<Controlled>,
    pub(super) nodes: Mutex<Vec<Arc<Node>>>,
    is_calm: AtomicBool,
    rng: Mutex<Rng>,
    trace: Mutex<Trace>,
    violations: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Trace {
    keeps_all: bool,
    lines: VecDeque<String>,
    hash: DefaultHasher,
    calls: u64,
}

impl Environment {
    /// An environment on the world in memory.
    pub(super) fn new(seed: u64, keeps_all: bool, clock: SimulationClock) -> Arc<Self> {
        let memory = MemoryWorld::new(Arc::new(clock.clone()));
        let is_deferred =
            if seed >= ORCHESTRATED_SEEDS { seed.is_multiple_of(3) } else { seed >= DEFERRED_SEEDS };
        let memory = if is_deferred { memory.with_deferred_effects() } else { memory };
        let memory = Arc::new(memory);
        let inner = memory.clone();
        let env = Self { memory: Some(memory), ..Self::on(inner, seed, keeps_all, clock) };
        if let (Some(memory), Some(limit)) = (&env.memory, env.profile.hook_limit) {
            memory.limit_hook_payloads(limit);
        }
        Arc::new(env)
    }

    /// An environment on another world.
    pub(super) fn on(inner: Arc<dyn World>, seed: u64, keeps_all: bool, clock: SimulationClock) -> Self {
        let mut rng = Rng::with_seed(seed);
        let profile = Profile::choose(&mut rng);
        let is_orchestrated = seed >= ORCHESTRATED_SEEDS;
        let has_old_rules = seed >= DEFERRED_SEEDS && !is_orchestrated;
        let trace = Trace { keeps_all, lines: VecDeque::new(), hash: DefaultHasher::new(), calls: 0 };
        Self {
            inner,
            memory: None,
            is_controlled: seed >= CONTROLLED_SEEDS,
            is_real_time: false,
            clock,
            profile: Profile {
                has_queues: if is_orchestrated { seed.is_multiple_of(2) } else { seed >= QUEUED_SEEDS },
                is_orchestrated,
                has_old_rules,
                // Under rules 1 a value that cannot be decoded is an error, which the other build would not replay.
                has_older_build: profile.has_older_build && !has_old_rules && !is_orchestrated,
                ..profile
            },
            observer: Mutex::default(),
            attempt_log: Mutex::default(),
            controlled: Mutex::default(),
            nodes: Mutex::default(),
            is_calm: AtomicBool::new(false),
            rng: Mutex::new(rng),
            trace: Mutex::new(trace),
            violations: Mutex::default(),
        }
    }

    /// An environment on another world, in real time.
    pub(super) fn in_real_time(inner: Arc<dyn World>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            is_real_time: true,
            is_controlled: false,
            ..Self::on(inner, seed, false, SimulationClock::new())
        })
    }

    /// A random value, determined by the seed.
    pub(super) fn random<T>(&self, choose: impl FnOnce(&mut Rng) -> T) -> T {
        choose(&mut self.rng.lock())
    }

    /// A new process.
    pub(super) fn node(&self, name: &str) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        let node = Node::new(format!("{name}{}", nodes.len()));
        nodes.push(node.clone());
        node
    }

    /// The faults of a call; `None` when the limit of calls is exceeded.
    pub(super) fn plan(&self, node: &Node, call: Call) -> Option<CallPlan> {
        let calls = {
            let mut trace = self.trace.lock();
            trace.calls += 1;
            trace.calls
        };
        if calls > CALLS_MAX {
            if calls == CALLS_MAX + 1 {
                self.report_violation(format!(
                    "more than {CALLS_MAX} calls to the world: a caller loops endlessly"
                ));
            }
            return None;
        }
        if self.is_calm() {
            return Some(CallPlan::NO_FAULT);
        }
        let plan = self.random(|rng| self.profile.plan(call, rng));
        let is_of_session = matches!(call, Call::Beat | Call::Takeover | Call::Join | Call::Leave);
        // A join that arrives again after its session has left begins it once more, and nobody ends that one.
        let joins_again = call == Call::Join && plan.duplicate.is_some();
        if is_of_session && plan.may_cost_session() || joins_again {
            node.allow_session_loss();
        }
        Some(plan)
    }

    pub(super) fn calls(&self) -> u64 {
        self.trace.lock().calls
    }

    /// Ends all faults.
    pub(super) fn stop_faults(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
        if let Some(memory) = &self.memory {
            memory.limit_hook_payloads(HOOK_BUFFER_MAX);
        }
        for node in self.nodes.lock().iter() {
            node.thaw();
            node.reconnect();
        }
    }

    /// The limit of payloads that a run keeps, if it is known.
    pub(super) fn hook_limit(&self) -> Option<u64> {
        self.memory.as_ref()?;
        let limit = self.profile.hook_limit.filter(|_| !self.is_calm());
        Some(limit.unwrap_or(HOOK_BUFFER_MAX) as u64)
    }

    /// Counts a situation.
    pub(super) fn record(&self, situation: Situation) {
        self.observer.lock().statistics.coverage.record(situation);
    }

    pub(super) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    /// Adds a line to the trace.
    pub(super) fn log(&self, who: &str, what: std::fmt::Arguments<'_>) {
        let mut line = String::with_capacity(80);
        let _ = write!(line, "{:>9.3} {who:<4} {what}", self.clock.elapsed().as_secs_f64());
        let mut trace = self.trace.lock();
        line.hash(&mut trace.hash);
        if !trace.keeps_all && trace.lines.len() == TRACE_LINES_MAX {
            trace.lines.pop_front();
        }
        trace.lines.push_back(line);
    }

    /// Records a violated rule.
    pub(super) fn report_violation(&self, what: String) {
        self.log("!!", format_args!("{what}"));
        self.violations.lock().push(what);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    /// Takes the trace, and the hash of all its lines.
    pub(super) fn take_trace(&self) -> (Vec<String>, u64) {
        let mut trace = self.trace.lock();
        (std::mem::take(&mut trace.lines).into(), trace.hash.finish())
    }

    /// Marks the process of a session as dead, if the world allows that.
    pub(super) fn kill(&self, session: SessionId) {
        if let Some(memory) = &self.memory {
            memory.kill(session);
        }
    }

    /// The node that opened a session.
    pub(super) fn node_of(&self, session: SessionId) -> Option<Arc<Node>> {
        self.nodes.lock().iter().find(|node| node.had_session(session)).cloned()
    }
}

/// The last characters of a run's id, for the trace.
pub(super) fn short_run(run: RunId) -> String {
    let text = run.to_string();
    text[text.len() - 5..].to_owned()
}

/// The last characters of a session's id, for the trace.
pub(super) fn short_session(session: SessionId) -> String {
    let text = session.to_string();
    text[text.len() - 4..].to_owned()
}
