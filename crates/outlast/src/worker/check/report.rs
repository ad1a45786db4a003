//! The report of a check.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use outlast_core::limits::CHECK_FINDINGS_MAX;
use outlast_core::{RunId, RunView, Status, Stuck, StuckReason};

/// What a build would do with the open runs of a world; from [`WorkerBuilder::check`](crate::WorkerBuilder::check).
///
/// Its `Display` is a table with one line per workflow and version, followed by the first findings of each kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    workflows: BTreeMap<(Arc<str>, u32), CheckedWorkflow>,
}

/// The open runs of one workflow and version, in a [`CheckReport`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CheckedWorkflow {
    /// The workflow's name. A queued step has the workflow `step:` and its name.
    pub workflow: Arc<str>,
    /// The workflow's version.
    pub version: u32,
    /// The number of runs that this build continues.
    pub continued: u64,
    /// Of these, the number of runs that are stuck now.
    pub resumed: u64,
    /// The number of runs for which this build has no code. They wait for another worker.
    pub without_code: u64,
    /// The number of runs that would be stuck, by reason.
    pub stuck: BTreeMap<&'static str, u64>,
    /// The first runs that would be stuck, at most 3 for each reason.
    pub findings: Vec<CheckFinding>,
}

/// A run that would be stuck.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CheckFinding {
    /// The run.
    pub run: RunId,
    /// Why it would be stuck.
    pub reason: StuckReason,
    /// The message, with the table of operations if the code diverges.
    pub message: String,
}

impl CheckReport {
    /// Returns whether no run would be stuck. Runs without code do not count: see
    /// [`without_code`](Self::without_code).
    pub fn is_ok(&self) -> bool {
        self.stuck() == 0
    }

    /// Returns the number of runs that were checked.
    pub fn runs(&self) -> u64 {
        self.continued() + self.stuck() + self.without_code()
    }

    /// Returns the number of runs that this build continues.
    pub fn continued(&self) -> u64 {
        self.workflows().map(|workflow| workflow.continued).sum()
    }

    /// Returns the number of runs that would be stuck with this build.
    pub fn stuck(&self) -> u64 {
        self.workflows().flat_map(|workflow| workflow.stuck.values()).sum()
    }

    /// Returns the number of runs for which this build has no code.
    pub fn without_code(&self) -> u64 {
        self.workflows().map(|workflow| workflow.without_code).sum()
    }

    /// Returns the results by workflow and version, sorted.
    pub fn workflows(&self) -> impl Iterator<Item = &CheckedWorkflow> {
        self.workflows.values()
    }

    pub(super) fn add_without_code(&mut self, view: &RunView) {
        self.workflow_of(view).without_code += 1;
    }

    pub(super) fn add(&mut self, view: &RunView, replayed: Result<(), Stuck>) {
        let workflow = self.workflow_of(view);
        match replayed {
            Ok(()) => {
                workflow.continued += 1;
                workflow.resumed += u64::from(view.status == Status::Stuck);
            }
            Err(Stuck { reason, message, .. }) => {
                *workflow.stuck.entry(reason_text(reason)).or_default() += 1;
                let alike = workflow.findings.iter().filter(|finding| finding.reason == reason).count();
                if alike < CHECK_FINDINGS_MAX {
                    workflow.findings.push(CheckFinding { run: view.id, reason, message });
                }
            }
        }
    }

    fn workflow_of(&mut self, view: &RunView) -> &mut CheckedWorkflow {
        let (workflow, version) = (view.workflow.clone(), view.version);
        self.workflows.entry((workflow.clone(), version)).or_insert_with(|| CheckedWorkflow {
            workflow,
            version,
            continued: 0,
            resumed: 0,
            without_code: 0,
            stuck: BTreeMap::new(),
            findings: Vec::new(),
        })
    }
}

/// A reason as a heading.
fn reason_text(reason: StuckReason) -> &'static str {
    match reason {
        StuckReason::Diverged => "diverged",
        StuckReason::Panicked => "panicked",
        StuckReason::StepNotRegistered => "step not registered",
        StuckReason::Unreadable => "unreadable",
        StuckReason::Undecodable => "undecodable",
        _ => "other",
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (runs, continued, stuck) = (self.runs(), self.continued(), self.stuck());
        write!(f, "{runs} open runs: {continued} continue, {stuck} would be stuck")?;
        match self.without_code() {
            0 => {}
            count => write!(f, ", {count} have no code in this build")?,
        }
        for workflow in self.workflows() {
            write!(f, "\n  {workflow}")?;
        }
        for workflow in self.workflows() {
            for finding in &workflow.findings {
                write!(f, "\n\n`{}` version {}, {}: ", workflow.workflow, workflow.version, finding.reason)?;
                f.write_str(&finding.message)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for CheckedWorkflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workflow, version, continued, resumed, without_code, stuck, .. } = self;
        write!(f, "`{workflow}` version {version}: {continued} continue")?;
        if *resumed > 0 {
            write!(f, " ({resumed} of them are stuck now)")?;
        }
        for (reason, count) in stuck {
            write!(f, ", {count} {reason}")?;
        }
        if *without_code > 0 {
            write!(f, ", {without_code} without code")?;
        }
        Ok(())
    }
}
