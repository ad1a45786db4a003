//! The arguments of commands that read hooks, failures, workers and workflows.

use clap::{Args, Subcommand};

/// What can be asked about hooks.
#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// List the hooks that runs wait for
    #[command(visible_alias = "ls")]
    List(HookListArgs),
}

/// A list of open hooks.
#[derive(Clone, Debug, Args)]
pub(crate) struct HookListArgs {
    /// Only hooks with this name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only hooks of runs of this workflow
    #[arg(long, short, value_name = "NAME")]
    pub(crate) workflow: Option<String>,
    /// How many hooks
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
}

/// What can be asked about failures.
#[derive(Debug, Subcommand)]
pub(crate) enum FailureCommand {
    /// List why runs have failed in the last day, the most frequent reason first
    #[command(visible_alias = "ls")]
    List {
        /// Only failures of this workflow
        #[arg(long, short, value_name = "NAME")]
        workflow: Option<String>,
        /// Only failures since: `2h`, `2026-11-18T04:00:00Z`; at most a day
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
    },
    /// Show one group, with its newest runs
    Show {
        /// The fingerprint of the group
        fingerprint: String,
    },
}
