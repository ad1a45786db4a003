//! The filters of lists and of actions on many runs.

use clap::Args;
use outlast::{RunId, Status};
use outlast_api::RunFlag;

/// Which runs are meant.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterArgs {
    /// Only runs in this status; may be repeated
    #[arg(long, short, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<Status>,
    /// Only runs that have not ended
    #[arg(long, conflicts_with = "status")]
    pub(crate) open: bool,
    /// Only runs with this mark: paused, compensating, compensated, quarantined
    #[arg(long, value_name = "MARK", value_delimiter = ',')]
    pub(crate) mark: Vec<String>,
    /// Only runs of this workflow
    #[arg(long, short, value_name = "NAME")]
    pub(crate) workflow: Option<String>,
    /// Only runs of this queue
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Only children of this run
    #[arg(long, value_name = "RUN")]
    pub(crate) parent: Option<RunId>,
    /// Only descendants of this run
    #[arg(long, value_name = "RUN")]
    pub(crate) root: Option<RunId>,
    /// Only runs with this tag; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub(crate) tag: Vec<(String, String)>,
    /// Only runs started since: `2h`, `2026-11-18T04:00:00Z`
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only runs started before
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only runs whose id, workflow or key contains this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
}

impl FilterArgs {
    /// Whether no filter is given.
    pub(crate) fn is_empty(&self) -> bool {
        let lists = self.status.is_empty() && self.mark.is_empty() && self.tag.is_empty() && !self.open;
        let names = [&self.workflow, &self.queue, &self.since, &self.until, &self.text];
        lists && names.iter().all(|name| name.is_none()) && self.parent.is_none() && self.root.is_none()
    }
}

/// Options of a list of runs.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ListArgs {
    /// The oldest first
    #[arg(long)]
    pub(crate) oldest: bool,
    /// How many runs
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Continue a list at this cursor
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
    /// All pages
    #[arg(long, conflicts_with = "cursor")]
    pub(crate) all: bool,
    /// More columns
    #[arg(long)]
    pub(crate) wide: bool,
    /// Show the list again every second until interrupted
    #[arg(long, conflicts_with_all = ["all", "cursor"])]
    pub(crate) watch: bool,
    // After the options, because its heading applies to what follows.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Only runs with this flag: retrying or cancelling
    #[arg(long, value_name = "FLAG", help_heading = "Filters")]
    pub(crate) flag: Option<RunFlag>,
    /// Only runs that ended since: `2h`, `2026-11-18T04:00:00Z`
    #[arg(long, value_name = "TIME", help_heading = "Filters")]
    pub(crate) ended_since: Option<String>,
    /// Only runs that ended before
    #[arg(long, value_name = "TIME", help_heading = "Filters")]
    pub(crate) ended_until: Option<String>,
    /// Also list runs of Outlast itself, such as schedules
    #[arg(long, help_heading = "Filters")]
    pub(crate) built_in: bool,
    /// Also list steps that were sent to a queue
    #[arg(long, help_heading = "Filters")]
    pub(crate) queued_steps: bool,
}

/// Examples of the list.
pub(super) const LIST_EXAMPLES: &str = "\
Examples:
  outlast list --open                        what is going on
  outlast list -s failed --ended-since 1d    what went wrong today
  outlast list -w checkout -t customer=ada   by workflow and tag
  outlast list --json | jq .items            for programs
  outlast list --all --jsonl                 all of them, one per line";

/// Reads `name=value`.
pub(super) fn name_and_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.into(), value.into())).ok_or_else(|| "write NAME=VALUE".into())
}
