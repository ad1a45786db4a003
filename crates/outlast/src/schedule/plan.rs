//! What a schedule does next, given the last instant that it has dealt with.

use std::time::Duration;

use outlast_core::limits::{CATCH_UP_GRACE, MISSED_COUNT_MAX};
use outlast_core::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::instants::Instants;
use super::late_firings::LateFirings;
use super::rule::{CatchUp, Rule};

/// What a schedule does next. It is a recorded value, because time-zone data may change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The number of instants that are not caught up; at most [`MISSED_COUNT_MAX`] are counted.
    #[serde(default)]
    pub(super) missed: u64,
    /// Instants to catch up, before `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) backlog: Option<InstantRange>,
    /// The next instant; `None` when there is none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<PlannedInstant>,
}

/// The instants after one time, up to and including another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstantRange {
    pub(crate) after: Timestamp,
    pub(crate) until: Timestamp,
}

/// An instant that a schedule waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedInstant {
    /// The instant, without jitter.
    pub(crate) nominal: Timestamp,
    /// When it fires.
    pub(crate) at: Timestamp,
    /// The instant of the schedule after it. If that has come as well, the plan is out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) followed_by: Option<Timestamp>,
}

impl PlannedInstant {
    /// Whether it may still fire at `now`; otherwise the schedule was not served in time, and plans again: late firings
    /// are spread.
    pub(super) fn is_current(&self, now: Timestamp) -> bool {
        self.followed_by.is_none_or(|next| now < next) && now.since(self.at) <= CATCH_UP_GRACE
    }

    /// Whether the instant has come, and its time has not: it is delayed by jitter, or because it is late.
    pub(super) fn is_delayed(&self, now: Timestamp) -> bool {
        self.nominal <= now && now < self.at
    }
}

/// A rule together with the schedule that has it.
pub(super) struct Planner<'a> {
    pub(super) run: RunId,
    pub(super) rule: &'a Rule,
    pub(super) instants: Instants,
    pub(super) late: &'a LateFirings,
}

impl Planner<'_> {
    /// The plan at `now` of a schedule that has dealt with the instants up to `position`.
    pub(super) fn plan(&self, position: Timestamp, now: Timestamp) -> Plan {
        match self.backwards(position, now).next() {
            None => {
                Plan { next: self.after(position).map(|next| self.planned(next, now)), ..Plan::default() }
            }
            Some(last) => self.catch_up(position, last, now),
        }
    }

    /// The plan when instants up to `last` have come.
    fn catch_up(&self, position: Timestamp, last: Timestamp, now: Timestamp) -> Plan {
        let next = self.planned(last, now);
        match self.rule.catch_up {
            CatchUp::None if now.since(self.due(last)) > CATCH_UP_GRACE => {
                let missed = self.count(position, last) + 1;
                let next = self.after(last).map(|next| self.planned(next, now));
                Plan { missed, backlog: None, next }
            }
            CatchUp::None | CatchUp::Last => {
                Plan { missed: self.count(position, last), backlog: None, next: Some(next) }
            }
            CatchUp::All(limit) => {
                let earlier =
                    self.backwards(position, just_before(last)).take(limit.saturating_sub(1) as usize);
                let first = earlier.last().unwrap_or(last);
                let range = InstantRange { after: just_before(first), until: just_before(last) };
                let missed = self.count(position, first);
                Plan { missed, backlog: Some(range).filter(|_| first < last), next: Some(next) }
            }
        }
    }

    /// The number of instants after `position` and before `before`.
    fn count(&self, position: Timestamp, before: Timestamp) -> u64 {
        self.backwards(position, just_before(before)).take(MISSED_COUNT_MAX).count() as u64
    }

    /// The instants of the schedule after `position` and not later than `until`, latest first.
    fn backwards(&self, position: Timestamp, until: Timestamp) -> impl Iterator<Item = Timestamp> {
        let until = self.rule.end_at.map_or(until, |end| until.min(just_before(end)));
        self.instants.backwards(until).take_while(move |instant| *instant > position)
    }

    /// The first instant of the schedule after `position`.
    fn after(&self, position: Timestamp) -> Option<Timestamp> {
        self.instants.after(position).filter(|next| self.rule.end_at.is_none_or(|end| *next < end))
    }

    fn planned(&self, nominal: Timestamp, now: Timestamp) -> PlannedInstant {
        let (due, followed_by) = (self.due(nominal), self.after(nominal));
        if due > now {
            return PlannedInstant { nominal, at: due, followed_by };
        }
        // Late firings are spread, so that not all schedules fire at once when a fleet is back.
        let mut at = now.plus(due.since(nominal));
        if now.since(due) > CATCH_UP_GRACE {
            at = at.max(self.late.next(now, followed_by));
        }
        PlannedInstant { nominal, at, followed_by }
    }

    /// The instant with its jitter, which never reaches the next instant.
    fn due(&self, nominal: Timestamp) -> Timestamp {
        let interval =
            self.instants.after(nominal).map_or(u64::MAX, |next| next.since(nominal).as_micros() as u64);
        let jitter = self.rule.jitter_micros.min(interval);
        if jitter == 0 {
            return nominal;
        }
        let seed = self.run.bits() as u64 ^ (nominal.as_micros() as u64).rotate_left(32);
        nominal.plus(Duration::from_micros(mix(seed) % jitter))
    }
}

pub(super) fn just_before(time: Timestamp) -> Timestamp {
    time.minus(Duration::from_micros(1))
}

/// SplitMix64: the same jitter in every build.
fn mix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
