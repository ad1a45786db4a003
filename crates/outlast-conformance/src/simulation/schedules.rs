//! Schedules: clients create them while faults happen, and each instant starts one run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use outlast::{Client, Overlap};
use outlast_core::RunId;

use super::check::FinalRuns;
use super::coverage::{Coverage, Situation};
use super::environment::Environment;

/// The header with the instant of a firing.
const SCHEDULED_AT: &str = "outlast:scheduled_at";

/// The name of a schedule.
pub(super) fn schedule_name(number: u8) -> String {
    format!("schedule-{number}")
}

/// What happens when the previous firing has not ended.
pub(super) fn any_overlap(rng: &mut Rng) -> Overlap {
    [Overlap::Skip, Overlap::Queue, Overlap::Allow, Overlap::CancelPrevious][rng.usize(0..4)]
}

/// Deletes all schedules, which would not end otherwise.
pub(super) async fn delete_schedules(env: &Arc<Environment>) {
    if !env.profile.is_orchestrated || env.is_real_time {
        return;
    }
    let client = Client::new(env.inner.clone());
    for number in 0..2 {
        let deleted = client.schedule_handle(schedule_name(number)).delete().await;
        env.log("help", format_args!("deletes schedule {number}: {}", deleted.is_ok()));
    }
}

/// Every instant of a schedule has started one run.
pub(super) fn check_schedules(final_runs: &FinalRuns, violations: &mut Vec<String>, coverage: &mut Coverage) {
    let mut fired = FiredInstants::default();
    for final_run in final_runs.values() {
        let Some(parent) = final_run.view.parent else { continue };
        let is_schedule = final_runs.get(&parent.run).is_some_and(|parent| parent.view.is_built_in());
        let Some(started) = final_run.started().filter(|_| is_schedule) else { continue };
        coverage.record(Situation::Fired);
        let (instant, key) = (started.headers.get(SCHEDULED_AT), started.key.as_deref());
        if let Err(violation) = fired.add(parent.run, instant.map(String::as_str), key) {
            violations.push(format!("run {}: {violation}", final_run.view.id));
        }
    }
}

/// The instants for which schedules have started runs.
#[derive(Default)]
struct FiredInstants {
    keys: BTreeSet<String>,
    instants: BTreeMap<(RunId, String), String>,
}

impl FiredInstants {
    fn add(&mut self, schedule: RunId, instant: Option<&str>, key: Option<&str>) -> Result<(), String> {
        let (Some(instant), Some(key)) = (instant, key) else {
            return Err(format!("a firing of {schedule} has no instant or no key"));
        };
        if !self.keys.insert(key.to_owned()) {
            return Err(format!("the key `{key}` of a firing was used twice"));
        }
        match self.instants.insert((schedule, instant.to_owned()), key.to_owned()) {
            Some(other) => Err(format!("schedule {schedule} fired twice at {instant}: {other}, {key}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_fires_once() {
        let (one, two) = (RunId::from_bits(1), RunId::from_bits(2));
        let mut fired = FiredInstants::default();
        assert_eq!(fired.add(one, Some("noon"), Some("one/noon")), Ok(()));
        assert_eq!(fired.add(two, Some("noon"), Some("two/noon")), Ok(()));
        fired.add(one, Some("noon"), Some("one/noon")).unwrap_err();
        fired.add(one, Some("noon"), Some("another key")).unwrap_err();
        fired.add(one, None, Some("x")).unwrap_err();
    }
}
