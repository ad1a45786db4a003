//! The message of a test world for a run that does not reach the awaited state.

use std::collections::{BTreeSet, VecDeque};
use std::panic::Location;

use outlast::{Because, Client, RunId, Wait};

/// The maximum number of explained runs: the awaited one, and the children and queued steps that it waits for.
const EXPLAINED_MAX: usize = 5;

/// The maximum number of listed waits: the first ones are the most useful.
const WAITS_LISTED_MAX: usize = 8;

/// The state that a test waits for, and the test's line.
pub(super) struct AwaitedState {
    what: String,
    location: &'static Location<'static>,
}

impl AwaitedState {
    /// With the line of the caller. A future has no caller, so it gets this value.
    #[track_caller]
    pub(super) fn here(what: impl Into<String>) -> Self {
        Self { what: what.into(), location: Location::caller() }
    }

    /// Panics because the state was not reached.
    pub(super) fn fail(&self, run: RunId, why: &str) -> ! {
        panic!("run {run} did not reach {} (awaited at {}): {why}", self.what, self.location)
    }
}

/// Explains why a run does not continue, and why its awaited children and queued steps do not.
pub(super) async fn explain(client: &Client, run: RunId) -> String {
    let mut text = String::new();
    let mut runs = VecDeque::from([("run", run)]);
    for _ in 0..EXPLAINED_MAX {
        let Some((what, next)) = runs.pop_front() else { break };
        if next != run {
            text += &format!("\n{what} {next}: ");
        }
        match client.explain(next).await {
            Err(error) => text += &error.to_string(),
            Ok(why) => {
                text += &why.sentence;
                if let Because::Waits { waits, .. } = why.because {
                    runs.extend(waits.iter().filter_map(|waiting| match &waiting.wait {
                        Wait::Child { run, .. } => Some(("child", *run)),
                        Wait::Step { run, .. } => Some(("queued step", *run)),
                        _ => None,
                    }));
                }
            }
        }
    }
    text
}

/// The waits that a run had so far.
#[derive(Default)]
pub(super) struct PastWaits {
    first: Vec<Wait>,
    ops: BTreeSet<u64>,
}

impl PastWaits {
    pub(super) fn add(&mut self, waits: &[Wait]) {
        for wait in waits {
            if self.ops.insert(wait.op().0) && self.first.len() < WAITS_LISTED_MAX {
                self.first.push(wait.clone());
            }
        }
    }

    /// The waits that are over, as an addition to the message.
    pub(super) fn except(&self, open: &[Wait]) -> String {
        let over = self.first.iter().filter(|wait| !open.iter().any(|open| open.op() == wait.op()));
        let mut over: Vec<_> = over.map(describe).collect();
        if over.is_empty() {
            return String::new();
        }
        if self.ops.len() > self.first.len() {
            over.push(format!("{} more", self.ops.len() - self.first.len()));
        }
        format!("\nmeanwhile it waited for {}", over.join(", "))
    }
}

fn describe(wait: &Wait) -> String {
    match wait {
        Wait::Hook { name, until: None, .. } => format!("hook `{name}`"),
        Wait::Hook { name, until: Some(until), .. } => format!("hook `{name}` (until {until})"),
        Wait::Timer { until, .. } => format!("a timer (until {until})"),
        Wait::Child { workflow, run, .. } => format!("child `{workflow}` ({run})"),
        Wait::Step { name, queue, .. } => format!("step `{name}` in queue `{queue}`"),
        Wait::Retry { name, .. } => format!("the next attempt at step `{name}`"),
        other => format!("operation {}", other.op()),
    }
}
