//! The arguments of commands on schedules.

use clap::{Args, Subcommand};
use outlast_api::{CatchUpRule, OverlapRule};

use super::filter::name_and_value;

/// Commands on schedules.
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List schedules
    #[command(visible_alias = "ls")]
    List(ScheduleListArgs),
    /// Show a schedule: when it fires, what it starts, what happened so far
    Show(ScheduleNameArgs),
    /// Create a schedule
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Box<ScheduleCreateArgs>),
    /// Change a schedule: what is not given stays as it is
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(Box<ScheduleUpdateArgs>),
    /// Stop firing
    Pause(SchedulePauseArgs),
    /// Fire again. Instants during the pause are not caught up
    Resume(SchedulesArgs),
    /// Fire now
    Trigger(ScheduleNameArgs),
    /// Fire all instants of a range in the past, one after the other
    #[command(after_help = BACKFILL_EXAMPLES)]
    Backfill(BackfillArgs),
    /// The runs that a schedule has started
    Firings(FiringsArgs),
    /// End a schedule. Firings that run continue
    Delete(ScheduleDeleteArgs),
    /// Say in words when a rule fires, and its next instants
    #[command(after_help = PREVIEW_EXAMPLES)]
    Preview(PreviewArgs),
}

/// The argument that names a schedule.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScheduleNameArgs {
    /// The name of the schedule
    pub(crate) name: String,
}

/// A list of schedules.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScheduleListArgs {
    /// Only schedules that start this workflow
    #[arg(long, short, value_name = "NAME")]
    pub(crate) workflow: Option<String>,
    /// Only schedules that are paused
    #[arg(long, conflicts_with = "active")]
    pub(crate) paused: bool,
    /// Only schedules that are not paused
    #[arg(long)]
    pub(crate) active: bool,
}

/// When a schedule fires.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "When it fires")]
pub(crate) struct TimingArgs {
    /// A cron expression: minute, hour, day of month, month, day of week; or @daily, @hourly, …
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "every")]
    pub(crate) cron: Option<String>,
    /// The time zone of the expression, such as Europe/Berlin; UTC unless given
    #[arg(long, value_name = "ZONE", conflicts_with = "every")]
    pub(crate) zone: Option<String>,
    /// An interval, such as `5m`
    #[arg(long, value_name = "DURATION")]
    pub(crate) every: Option<String>,
}

/// What else a schedule can have.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DefinitionArgs {
    #[command(flatten)]
    pub(crate) timing: TimingArgs,
    /// What happens while an earlier firing runs: skip, queue, allow, cancel_previous
    #[arg(long, value_name = "RULE", help_heading = "When it fires")]
    pub(crate) overlap: Option<OverlapRule>,
    /// What happens to instants that nobody served in time: none, last, all
    #[arg(long, value_name = "RULE", help_heading = "When it fires")]
    pub(crate) catch_up: Option<CatchUpRule>,
    /// With `--catch-up all`, how many instants at most
    #[arg(long, value_name = "N", help_heading = "When it fires")]
    pub(crate) catch_up_limit: Option<u32>,
    /// The largest delay of a firing, such as `30s`
    #[arg(long, value_name = "DURATION", help_heading = "When it fires")]
    pub(crate) jitter: Option<String>,
    /// From when on it fires (RFC 3339)
    #[arg(long, value_name = "TIME", help_heading = "When it fires")]
    pub(crate) start_at: Option<String>,
    /// From when on it does not fire any more
    #[arg(long, value_name = "TIME", help_heading = "When it fires")]
    pub(crate) end_at: Option<String>,
    /// Pause it after this many failures in a row
    #[arg(long, value_name = "N", help_heading = "When it fires")]
    pub(crate) pause_after: Option<u32>,
    /// The input of the firings: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "INPUT", help_heading = "What it starts")]
    pub(crate) input: Option<String>,
    /// The version of the workflow
    #[arg(long, value_name = "N", help_heading = "What it starts")]
    pub(crate) version: Option<u32>,
    /// The queue of the firings
    #[arg(long, value_name = "NAME", help_heading = "What it starts")]
    pub(crate) queue: Option<String>,
    /// The priority of the firings, 0 to 9
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9), help_heading = "What it starts")]
    pub(crate) priority: Option<u8>,
    /// A tag of the firings; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = name_and_value, help_heading = "What it starts")]
    pub(crate) tag: Vec<(String, String)>,
    /// Cancel a firing that has not ended after this time, such as `2h`
    #[arg(long, value_name = "DURATION", help_heading = "What it starts")]
    pub(crate) deadline: Option<String>,
}

/// A new schedule.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScheduleCreateArgs {
    /// The name of the schedule
    pub(crate) name: String,
    /// The workflow that it starts
    #[arg(long, short, value_name = "NAME", help_heading = "What it starts")]
    pub(crate) workflow: String,
    #[command(flatten)]
    pub(crate) definition: DefinitionArgs,
}

/// A change of a schedule.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScheduleUpdateArgs {
    /// The name of the schedule
    pub(crate) name: String,
    /// Another workflow
    #[arg(long, short, value_name = "NAME", help_heading = "What it starts")]
    pub(crate) workflow: Option<String>,
    #[command(flatten)]
    pub(crate) definition: DefinitionArgs,
    /// Change it only if it has this revision
    #[arg(long, value_name = "N")]
    pub(crate) revision: Option<u64>,
}

/// Several schedules.
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesArgs {
    /// The names of the schedules
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) names: Vec<String>,
    /// All schedules
    #[arg(long)]
    pub(crate) all: bool,
}

/// A pause of schedules.
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulePauseArgs {
    #[command(flatten)]
    pub(crate) schedules: SchedulesArgs,
    /// The reason, which others see
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// A range of instants.
#[derive(Clone, Debug, Args)]
pub(crate) struct BackfillArgs {
    #[command(flatten)]
    pub(crate) schedule: ScheduleNameArgs,
    /// The begin: `2026-11-01T00:00:00Z`, or how long ago: `7d`
    #[arg(long, value_name = "TIME")]
    pub(crate) from: String,
    /// The end, which is not part of the range; now unless given
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
    /// Only count the instants
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
}

/// A list of firings.
#[derive(Clone, Debug, Args)]
pub(crate) struct FiringsArgs {
    #[command(flatten)]
    pub(crate) schedule: ScheduleNameArgs,
    /// How many firings
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
}

/// The end of a schedule.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScheduleDeleteArgs {
    #[command(flatten)]
    pub(crate) schedule: ScheduleNameArgs,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
}

/// A rule without a schedule.
#[derive(Clone, Debug, Args)]
pub(crate) struct PreviewArgs {
    /// A cron expression
    #[arg(value_name = "CRON", required_unless_present = "every", conflicts_with = "every")]
    pub(crate) cron: Option<String>,
    /// The time zone of the expression
    #[arg(long, value_name = "ZONE", conflicts_with = "every")]
    pub(crate) zone: Option<String>,
    /// An interval instead of an expression
    #[arg(long, value_name = "DURATION")]
    pub(crate) every: Option<String>,
    /// How many instants, at most 50
    #[arg(long, short = 'n', value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub(crate) count: u8,
}

const CREATE_EXAMPLES: &str = r#"Examples:
  outlast schedule create nightly -w report --cron '0 3 * * MON-FRI' --zone Europe/Berlin
  outlast schedule create poll -w poll --every 30s --jitter 5s --overlap skip --catch-up none"#;

const UPDATE_EXAMPLES: &str = "\
Examples:
  outlast schedule update nightly --cron '0 4 * * *'
  outlast schedule update nightly --input @report.json --revision 3    unless changed meanwhile";

const BACKFILL_EXAMPLES: &str = "\
Examples:
  outlast schedule backfill nightly --from 7d --dry-run    how many instants are that
  outlast schedule backfill nightly --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z";

const PREVIEW_EXAMPLES: &str = "\
Examples:
  outlast schedule preview '30 2 * * *' --zone Europe/Berlin
  outlast schedule preview '0 17 * * FRI#L' -n 12       the last Friday of each month";
