//! What a test world says of a run that does not come to where the test waits for it.

use std::collections::{BTreeSet, VecDeque};
use std::panic::Location;

use outlast::{Because, Client, RunId, Wait};

/// Runs that are explained: the one that was waited for, and children and queued steps that it waits for.
const EXPLAINED_MAX: usize = 5;

/// Waits that are listed of those that the run had meanwhile; the first ones tell most.
const SEEN_MAX: usize = 8;

/// What a test waits for, and where.
pub(super) struct Wanted {
    what: String,
    place: &'static Location<'static>,
}

impl Wanted {
    /// What the caller waits for. A future has no caller, so it is given this.
    #[track_caller]
    pub(super) fn here(what: impl Into<String>) -> Self {
        Self { what: what.into(), place: Location::caller() }
    }

    /// The wait is in vain.
    pub(super) fn fail(&self, run: RunId, why: &str) -> ! {
        panic!("run {run} does not come to {} (awaited at {}): {why}", self.what, self.place)
    }
}

/// Why a run does not go on, and why the children and queued steps do not that it waits for.
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

/// The waits that a run had while it was looked at.
#[derive(Default)]
pub(super) struct SeenWaits {
    first: Vec<Wait>,
    ops: BTreeSet<u64>,
}

impl SeenWaits {
    pub(super) fn add(&mut self, waits: &[Wait]) {
        for wait in waits {
            if self.ops.insert(wait.op().0) && self.first.len() < SEEN_MAX {
                self.first.push(wait.clone());
            }
        }
    }

    /// Those that the run does not have any more, as an addition to the reason.
    pub(super) fn but(&self, open: &[Wait]) -> String {
        let over = self.first.iter().filter(|wait| !open.iter().any(|open| open.op() == wait.op()));
        let mut over: Vec<_> = over.map(words).collect();
        if over.is_empty() {
            return String::new();
        }
        if self.ops.len() > self.first.len() {
            over.push(format!("{} more", self.ops.len() - self.first.len()));
        }
        format!("\nmeanwhile it waited for {}", over.join(", "))
    }
}

fn words(wait: &Wait) -> String {
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
