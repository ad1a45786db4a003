//! The arguments of all commands.

mod access;
mod common;
mod filter;
mod groups;
mod reading;
mod run;
mod schedule;
mod serving;

use clap::{Parser, Subcommand};

pub(crate) use self::access::{AccessCommand, AccessCreateArgs};
pub(crate) use self::common::{ColorChoice, CommonArgs, Format};
pub(crate) use self::filter::{FilterArgs, ListArgs};
pub(crate) use self::groups::grouped_help;
pub(crate) use self::reading::{
    AuditCommand, AuditListArgs, FailureCommand, HookCommand, HookListArgs, QueueCommand,
};
pub(crate) use self::run::{
    AskArgs, ControlArgs, EventsArgs, ExportArgs, ForkArgs, OutputArgs, PayloadArgs, RestartArgs, RetryArgs,
    RunCommand, SendArgs, ShowArgs, StartArgs, StepsArgs, StreamCommand, TailArgs, WakeArgs,
};
pub(crate) use self::schedule::{
    BackfillArgs, DefinitionArgs, FiringsArgs, PreviewArgs, ScheduleCommand, ScheduleCreateArgs,
    ScheduleDeleteArgs, ScheduleListArgs, SchedulePauseArgs, ScheduleUpdateArgs, SchedulesArgs,
};
pub(crate) use self::serving::{CheckArgs, DevArgs, McpArgs, NewArgs, ServeArgs, WorkerArgs, WorkerCommand};

/// Starts, inspects and controls durable workflows.
#[derive(Debug, Parser)]
#[command(
    name = "outlast",
    disable_version_flag = true,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = groups::ENDING
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a run
    #[command(after_help = run::START_EXAMPLES)]
    Start(Box<StartArgs>),
    /// List runs, the newest first
    #[command(visible_alias = "ls", after_help = filter::LIST_EXAMPLES)]
    List(Box<ListArgs>),
    /// Show a run: its operations, why it is where it is, and what to do next
    #[command(after_help = run::SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Explain why a run is in its current state
    Explain(ShowArgs),
    /// Follow a run until it ends
    Watch(ShowArgs),
    /// Send a payload to a hook of a run
    #[command(after_help = run::SEND_EXAMPLES)]
    Send(SendArgs),
    /// Send a payload to a hook of a run, and print the reply
    #[command(after_help = run::ASK_EXAMPLES)]
    Ask(AskArgs),
    /// Everything about runs: read, control, restart, export
    #[command(subcommand)]
    Run(RunCommand),
    /// Streams of runs
    #[command(subcommand)]
    Stream(StreamCommand),
    /// The hooks that runs wait for
    #[command(subcommand)]
    Hook(HookCommand),
    /// Why runs have failed in the last day
    #[command(subcommand)]
    Failure(FailureCommand),
    /// Actions on many runs that are in progress
    #[command(subcommand)]
    Bulk(BulkCommand),
    /// Schedules: rules that start runs repeatedly
    #[command(subcommand)]
    Schedule(ScheduleCommand),

    /// Start a world, a server and your program for development
    #[command(after_help = serving::DEV_EXAMPLES)]
    Dev(DevArgs),
    /// Serve the HTTP API of a world
    #[command(after_help = serving::SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// The access keys of a server
    #[command(subcommand)]
    Access(AccessCommand),
    /// Execute runs with the code of this program, or list the joined workers
    Worker(WorkerArgs),
    /// Let assistants look at runs, by the Model Context Protocol
    #[command(after_help = serving::MCP_EXAMPLES)]
    Mcp(McpArgs),
    /// Replay all open runs with the code of this program, and change nothing
    #[command(after_help = serving::CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Who changed something through a server, and who was refused
    #[command(subcommand)]
    Audit(AuditCommand),
    /// The queues: how many runs are ready, and who serves them
    #[command(subcommand)]
    Queue(QueueCommand),
    /// The workflows that workers have code for, or had
    #[command(subcommand)]
    Workflow(WorkflowCommand),
    /// The world: where runs are stored
    #[command(subcommand)]
    World(WorldCommand),
    /// Check the world, its workers and the configuration for problems
    Doctor,

    /// The configuration, and where each value comes from
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a new project that compiles
    New(NewArgs),
    /// Print the completion script of a shell
    #[command(
        after_help = "Examples:\n  outlast completions bash > ~/.local/share/bash-completion/completions/outlast"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages
    Man {
        /// Write one page per command into this folder; without it the page of `outlast` is printed
        #[arg(long, value_name = "FOLDER")]
        to: Option<std::path::PathBuf>,
    },
    /// Print the version
    Version,
}

/// What can be done with an action on many runs.
#[derive(Debug, Subcommand)]
pub(crate) enum BulkCommand {
    /// Show how far an action on many runs is
    Show {
        /// The run of the action
        run: outlast::RunId,
        /// Wait until it ends
        #[arg(long)]
        watch: bool,
    },
    /// Stop an action on many runs. What was done stays done
    Stop {
        /// The run of the action
        run: outlast::RunId,
        /// The reason, which others see
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// What can be asked about workflows.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// List the workflows that workers have code for, or had
    List,
    /// Show a workflow: versions, builds, open runs, durations
    Show {
        /// The name of the workflow
        name: String,
    },
}

/// What can be done with a world.
#[derive(Debug, Subcommand)]
pub(crate) enum WorldCommand {
    /// Where runs are stored, what that promises, and how many there are
    Info,
    /// Create the tables of a world, or upgrade them
    Migrate,
    /// Delete the runs that ended before a time
    #[command(
        after_help = "Examples:\n  outlast world prune --ended-before 30d --dry-run\n  outlast world prune --ended-before 2026-01-01T00:00:00Z --yes"
    )]
    Prune {
        /// The time, or how long ago: `30d`, `2026-01-01T00:00:00Z`
        #[arg(long, value_name = "TIME")]
        ended_before: String,
        /// Only say what would be deleted
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long, short = 'y')]
        yes: bool,
    },
    /// Copy a SQLite world to a new file, while it is in use
    Backup {
        /// The new file
        file: std::path::PathBuf,
    },
}

/// What can be asked about the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print all settings
    Show {
        /// Also say where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print the files that are read, and whether they exist
    Path,
}
