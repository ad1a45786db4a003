//! The workloads, one file each, with their targets.

mod cold_replay;
mod dev_start;
mod engine_cpu;
mod fan_out;
mod history_growth;
mod http_reads;
mod http_starts;
mod idle_waiters;
mod iterations;
mod lists_at_size;
mod live_streams;
mod long_page;
mod many_children;
mod pruning_and_backup;
mod recovery;
mod restart_with_sleepers;
mod run_retry;
mod runs_page;
mod schedules;
mod send_under_load;
mod server_cost;
mod sleeping_runs;
mod start_to_result;
mod step_latency;
mod streaming;
mod throughput;
mod transactional_steps;
mod two_workers;

mod child_process;
mod count_workflow;
mod http_client;
mod http_server;
mod large_world;
mod sleep_workflow;
mod worker_process;

use std::fmt;

use crate::Result;
use crate::environment::{Environment, WorldKind};

pub(crate) use dev_start::{COMMAND as DEV_START_COMMAND, child as dev_start_child};
pub(crate) use engine_cpu::{COMMAND as ENGINE_CPU_COMMAND, child as engine_cpu_child};
pub(crate) use idle_waiters::{
    COMMAND as IDLE_WAITERS_COMMAND, IdleWaitersArgs, child as idle_waiters_child,
};
pub(crate) use live_streams::{
    COMMAND as LIVE_STREAMS_COMMAND, LiveClientsArgs, child as live_streams_child,
};
pub(crate) use recovery::child::{COMMAND as RECOVERY_COMMAND, RecoveryArgs, run as recovery_child};
pub(crate) use restart_with_sleepers::{COMMAND as RESTART_COMMAND, RestartArgs, child as restart_child};
pub(crate) use send_under_load::{COMMAND as SENDER_COMMAND, SenderArgs, child as sender_child};
pub(crate) use server_cost::{COMMAND as SERVER_COST_COMMAND, ServerCostArgs, child as server_cost_child};
pub(crate) use sleeping_runs::{
    COMMAND as SLEEPING_RUNS_COMMAND, SleepingRunsArgs, child as sleeping_runs_child,
};
pub(crate) use streaming::{
    COMMAND as STREAM_READER_COMMAND, StreamReaderArgs, child as stream_reader_child,
};
pub(crate) use worker_process::{COMMAND as WORKER_COMMAND, WorkerArgs, child as worker_child};

/// Every workload, in the order in which they are measured.
pub(crate) const ALL: [&Workload; 28] = [
    &throughput::WORKLOAD,
    &step_latency::WORKLOAD,
    &history_growth::WORKLOAD,
    &fan_out::WORKLOAD,
    &start_to_result::WORKLOAD,
    &sleeping_runs::WORKLOAD,
    &restart_with_sleepers::WORKLOAD,
    &recovery::WORKLOAD,
    &cold_replay::WORKLOAD,
    &two_workers::WORKLOAD,
    &lists_at_size::WORKLOAD,
    &pruning_and_backup::WORKLOAD,
    &http_reads::WORKLOAD,
    &http_starts::WORKLOAD,
    &live_streams::WORKLOAD,
    &runs_page::WORKLOAD,
    &long_page::WORKLOAD,
    &dev_start::WORKLOAD,
    &many_children::WORKLOAD,
    &engine_cpu::WORKLOAD,
    &idle_waiters::WORKLOAD,
    &send_under_load::WORKLOAD,
    &server_cost::WORKLOAD,
    &streaming::WORKLOAD,
    &schedules::WORKLOAD,
    &iterations::WORKLOAD,
    &run_retry::WORKLOAD,
    &transactional_steps::WORKLOAD,
];

/// A workload.
#[derive(Debug)]
pub(crate) struct Workload {
    /// Its short id in reports; `--only` accepts it too.
    pub(crate) id: &'static str,
    /// Its name: what it measures.
    pub(crate) name: &'static str,
    /// A description, for `--help`.
    pub(crate) what: &'static str,
    /// The worlds that it can measure.
    pub(crate) worlds: &'static [WorldKind],
    /// Its rows in the report.
    pub(crate) rows: &'static [Row],
    /// Measures once: one measurement per row, in their order.
    pub(crate) run: fn(&Environment) -> Result<Vec<Measurement>>,
}

impl Workload {
    /// The workload with this name or id, in upper or lower case.
    pub(crate) fn find(text: &str) -> Option<&'static Self> {
        let is_called = |workload: &&Self| {
            [workload.id, workload.name].iter().any(|name| name.eq_ignore_ascii_case(text))
        };
        ALL.into_iter().find(is_called)
    }

    /// Whether it can be measured on this world.
    pub(crate) fn runs_on(&self, world: WorldKind) -> bool {
        self.worlds.contains(&world)
    }
}

/// One figure of a workload.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its id in the report.
    pub(crate) id: &'static str,
    /// A description of the figure.
    pub(crate) what: &'static str,
    /// The unit of its value.
    pub(crate) unit: &'static str,
    /// The target of its ratio.
    pub(crate) target: Targets,
}

/// The targets of a ratio, by world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Targets {
    embedded: Target,
    postgres: Target,
}

impl Targets {
    /// The target on this world. Memory has the targets of SQLite.
    pub(crate) fn on(self, world: WorldKind) -> Target {
        match world {
            WorldKind::Sqlite | WorldKind::Memory => self.embedded,
            WorldKind::Postgres => self.postgres,
        }
    }
}

/// The target of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// None: the figure is only reported.
    Unlimited,
}

impl Target {
    /// The same on every world.
    pub(crate) const fn everywhere(self) -> Targets {
        self.but_on_postgres(self)
    }

    /// Another one on Postgres.
    pub(crate) const fn but_on_postgres(self, postgres: Self) -> Targets {
        Targets { embedded: self, postgres }
    }

    /// The number, if there is one.
    pub(crate) fn limit(self) -> Option<f64> {
        match self {
            Self::AtLeast(limit) | Self::AtMost(limit) => Some(limit),
            Self::Unlimited => None,
        }
    }

    /// Whether the ratio meets the target.
    pub(crate) fn is_met_by(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(limit) => ratio >= limit,
            Self::AtMost(limit) => ratio <= limit,
            Self::Unlimited => true,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(limit) => write!(f, ">= {}", crate::report::number(*limit)),
            Self::AtMost(limit) => write!(f, "<= {}", crate::report::number(*limit)),
            Self::Unlimited => Ok(()),
        }
    }
}

/// The measurement of one round for one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    /// The figure, in the row's unit.
    pub(crate) value: f64,
    /// The figure in the form in which the target is given.
    pub(crate) ratio: f64,
    /// Errors in the work itself. A wrong result has no speed.
    pub(crate) faults: Vec<String>,
}

impl Measurement {
    /// A figure whose target is a multiple of something else.
    pub(crate) fn relative(value: f64, ratio: f64) -> Self {
        Self { value, ratio, faults: Vec::new() }
    }

    /// A figure whose target is given in its own unit.
    pub(crate) fn absolute(value: f64) -> Self {
        Self::relative(value, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_at_its_limit() {
        assert!(Target::AtLeast(0.2).is_met_by(0.2) && !Target::AtLeast(0.2).is_met_by(0.199));
        assert!(Target::AtMost(1.6).is_met_by(1.6) && !Target::AtMost(1.6).is_met_by(1.601));
        assert!(!Target::AtLeast(1.0).is_met_by(f64::NAN) && !Target::AtMost(1.0).is_met_by(f64::NAN));
    }

    #[test]
    fn workloads_are_found_by_name_and_by_id_in_any_case() {
        assert_eq!(Workload::find("throughput").map(|workload| workload.id), Some("B1"));
        assert_eq!(Workload::find("Lists-At-Size").map(|workload| workload.id), Some("B10"));
        assert_eq!(Workload::find("b1").map(|workload| workload.id), Some("B1"));
        assert!(Workload::find("B99").is_none() && Workload::find("").is_none());
    }

    #[test]
    fn names_and_ids_are_unique() {
        let mut names: Vec<_> = ALL.iter().flat_map(|workload| [workload.id, workload.name]).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn row_ids_are_unique_and_begin_with_the_id_of_their_workload() {
        let mut rows: Vec<_> = ALL.iter().flat_map(|workload| workload.rows).map(|row| row.id).collect();
        assert!(
            ALL.iter().all(|workload| workload
                .rows
                .iter()
                .all(|row| row.id.split(' ').next() == Some(workload.id)))
        );
        rows.sort_unstable();
        let count = rows.len();
        rows.dedup();
        assert_eq!(rows.len(), count);
    }
}
