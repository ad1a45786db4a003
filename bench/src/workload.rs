//! The workloads: what is measured, and against which target. One file each.

mod b1;
mod b10;
mod b11;
mod b2;
mod b3;
mod b4;
mod b5;
mod b6;
mod b6m;
mod b7;
mod b8;
mod b9;
mod bf;
mod bm;
mod bs;
mod bw;

mod big;
mod child;
mod counting;
mod sleeping;
mod worker;

use std::fmt;

use crate::Result;
use crate::env::{Env, WorldKind};

pub(crate) use b6::{B6Plan, COMMAND as B6_COMMAND, child as b6_child};
pub(crate) use b6m::{B6mPlan, COMMAND as B6M_COMMAND, child as b6m_child};
pub(crate) use b7::child::{COMMAND as B7_COMMAND, ChildPlan, run as b7_child};
pub(crate) use bm::{COMMAND as BM_COMMAND, child as bm_child};
pub(crate) use bs::{COMMAND as BS_COMMAND, ChildPlan as SenderPlan, child as bs_child};
pub(crate) use bw::{BwPlan, COMMAND as BW_COMMAND, child as bw_child};
pub(crate) use worker::{COMMAND as WORKER_COMMAND, WorkerPlan, child as worker_child};

/// Every workload, in the order in which they are measured.
pub(crate) const ALL: [&Workload; 16] = [
    &b1::WORKLOAD,
    &b2::WORKLOAD,
    &b3::WORKLOAD,
    &b4::WORKLOAD,
    &b5::WORKLOAD,
    &b6::WORKLOAD,
    &b6m::WORKLOAD,
    &b7::WORKLOAD,
    &b8::WORKLOAD,
    &b9::WORKLOAD,
    &b10::WORKLOAD,
    &b11::WORKLOAD,
    &bf::WORKLOAD,
    &bm::WORKLOAD,
    &bs::WORKLOAD,
    &bw::WORKLOAD,
];

/// Something to measure.
#[derive(Debug)]
pub(crate) struct Workload {
    /// What `--only` calls it.
    pub(crate) id: &'static str,
    /// What is done.
    pub(crate) what: &'static str,
    /// The worlds on which it makes sense.
    pub(crate) worlds: &'static [WorldKind],
    /// What it measures, one row of the report each.
    pub(crate) rows: &'static [Row],
    /// Measures once: one measurement per row, in their order.
    pub(crate) run: fn(&Env) -> Result<Vec<Measurement>>,
}

impl Workload {
    /// The workload of this id, in any case.
    pub(crate) fn find(id: &str) -> Option<&'static Self> {
        ALL.into_iter().find(|workload| workload.id.eq_ignore_ascii_case(id))
    }

    /// Whether it can be measured on this world.
    pub(crate) fn runs_on(&self, world: WorldKind) -> bool {
        self.worlds.contains(&world)
    }
}

/// One figure of a workload.
#[derive(Debug)]
pub(crate) struct Row {
    /// What the report calls it.
    pub(crate) id: &'static str,
    /// What the figure is.
    pub(crate) what: &'static str,
    /// The unit of its value.
    pub(crate) unit: &'static str,
    /// What its ratio should be.
    pub(crate) target: Targets,
}

/// What a ratio should be, by world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Targets {
    embedded: Target,
    postgres: Target,
}

impl Targets {
    /// What it should be on this world. Memory is compared with SQLite.
    pub(crate) fn on(self, world: WorldKind) -> Target {
        match world {
            WorldKind::Sqlite | WorldKind::Memory => self.embedded,
            WorldKind::Postgres => self.postgres,
        }
    }
}

/// What a ratio should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// Anything: the figure is only told.
    Told,
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
            Self::Told => None,
        }
    }

    /// Whether the ratio is what it should be.
    pub(crate) fn is_met_by(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(limit) => ratio >= limit,
            Self::AtMost(limit) => ratio <= limit,
            Self::Told => true,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(limit) => write!(f, ">= {}", crate::report::number(*limit)),
            Self::AtMost(limit) => write!(f, "<= {}", crate::report::number(*limit)),
            Self::Told => Ok(()),
        }
    }
}

/// What one round measured for one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    /// The figure, in the row's unit.
    pub(crate) value: f64,
    /// The figure in the form in which the target is given.
    pub(crate) ratio: f64,
    /// What was wrong with the work itself. A wrong result is never fast.
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
    fn workloads_are_found_in_any_case() {
        assert_eq!(Workload::find("b1").map(|workload| workload.id), Some("B1"));
        assert!(Workload::find("B99").is_none() && Workload::find("").is_none());
    }

    #[test]
    fn ids_are_told_apart_and_rows_name_their_workload() {
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
