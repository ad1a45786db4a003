//! Schedules: rules that start runs repeatedly.
//!
//! A schedule is a run of the built-in workflow `outlast:schedule`, which every worker has. It waits for its next
//! instant, starts the firing as a child, and continues as a new generation. So it needs no timer service and no
//! leader: what is true of runs is true of schedules.
//!
//! ```text
//! rule     cron or interval, jitter, overlap, catch-up          (rule.rs, target.rs: what a client defines)
//! instants which instants the rule has: pure, with time zones   (cron.rs, instants.rs)
//! plan     what a schedule does next, given its position        (plan.rs)
//! late     the rate at which a worker starts late firings       (late_firings.rs)
//! state    what outlives a generation; answers to commands      (state.rs, answer.rs)
//! workflow the loop: commands, ends of firings, due instants    (workflow.rs, lanes.rs)
//! ```
//!
//! Time-zone data changes between machines and releases. Everything that is computed from it is therefore recorded with
//! `ctx.record`, and a replay uses what was recorded.

mod rule;
mod target;

mod cron;
mod describe;
mod instants;
mod late_firings;
mod plan;

mod answer;
mod command;
mod state;

mod lanes;
mod workflow;

mod view;

#[cfg(test)]
mod tests;

pub use answer::ScheduleAnswer;
pub(crate) use answer::{ANSWER_HEADER, CommandAnswer, EXPECTED_HEADER};
pub(crate) use command::ScheduleCommand;
pub(crate) use cron::{check_cron, check_timezone};
pub(crate) use late_firings::LateFirings;
pub(crate) use rule::RuleChanges;
pub use rule::{CatchUp, Overlap, ScheduleTiming};
pub(crate) use state::{PublishedSchedule, ScheduleState};
pub use target::Firing;
pub(crate) use target::{FiringInput, ScheduleTarget};
pub use view::{FiringView, ScheduleCounts, ScheduleInput, SchedulePause, ScheduleRefusal, ScheduleView};
pub(crate) use workflow::schedule;

use std::time::Duration;

use outlast_core::Timestamp;
use outlast_core::duration::duration_text;
use outlast_core::limits::SCHEDULE_INTERVAL_MIN;

/// The name of the built-in workflow.
pub(crate) const SCHEDULE_WORKFLOW: &str = "outlast:schedule";

/// The version of the built-in workflow.
pub(crate) const SCHEDULE_VERSION: u32 = 1;

/// The hook that takes the commands of clients.
pub(crate) const COMMAND_HOOK: &str = "outlast:schedule";

/// The tag of a firing that names its schedule.
pub(crate) const SCHEDULE_TAG: &str = "outlast:schedule";

/// The header of a firing with its instant, in microseconds since 1970.
pub(crate) const SCHEDULED_AT_HEADER: &str = "outlast:scheduled_at";

/// The prefix of the key of a schedule; its name follows.
const KEY_PREFIX: &str = "outlast:schedule:";

/// The key of the schedule with this name.
pub(crate) fn key_of(name: &str) -> String {
    format!("{KEY_PREFIX}{name}")
}

/// The name of the schedule with this key.
pub(crate) fn name_of(key: &str) -> &str {
    key.strip_prefix(KEY_PREFIX).unwrap_or(key)
}

/// Checks the interval of a schedule.
///
/// # Errors
///
/// The problem and the remedy.
pub(crate) fn check_interval(interval: Duration) -> Result<(), String> {
    if interval >= SCHEDULE_INTERVAL_MIN {
        return Ok(());
    }
    let least = duration_text(SCHEDULE_INTERVAL_MIN);
    Err(format!("the interval of a schedule is at least `{least}`; repeat faster work in one run"))
}

/// The instant in the header of a firing.
pub(crate) fn scheduled_at(headers: &outlast_core::Headers) -> Option<Timestamp> {
    headers.get(SCHEDULED_AT_HEADER)?.parse().ok().map(Timestamp::from_micros)
}
