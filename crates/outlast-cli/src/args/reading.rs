//! The arguments of commands that read hooks, failures, workers and workflows.

use clap::{Args, Subcommand};
use outlast_api::HookKind;

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
    /// Only hooks of this kind: name, token or webhook
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<HookKind>,
    /// How many hooks
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
}

/// What can be asked about the audit.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List who changed something through a server, and who was refused; the newest first
    #[command(visible_alias = "ls")]
    List(AuditListArgs),
}

/// A list of the audit.
#[derive(Clone, Debug, Args)]
pub(crate) struct AuditListArgs {
    /// Only requests of this actor
    #[arg(long, value_name = "NAME")]
    pub(crate) actor: Option<String>,
    /// Only this action, such as `cancel`
    #[arg(long, value_name = "NAME")]
    pub(crate) action: Option<String>,
    /// Only requests about this run
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<outlast::RunId>,
    /// Only this outcome: done, unchanged, refused, failed or intended
    #[arg(long, value_name = "OUTCOME")]
    pub(crate) outcome: Option<outlast_api::AuditOutcome>,
    /// Only requests since: `2h`, `2026-11-18T04:00:00Z`
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// How many records
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
    /// Where the list continues: `next` of the page before
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// What can be asked about queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List the queues: how many runs are ready, since when, and how many workers serve them
    #[command(visible_alias = "ls")]
    List,
    /// Show a queue, and the workers that serve it
    Show {
        /// The name of the queue
        queue: String,
    },
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
