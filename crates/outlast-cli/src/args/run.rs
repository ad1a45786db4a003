//! The arguments of commands on runs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::filter::{FilterArgs, ListArgs, name_and_value};

/// Commands on runs.
#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// Start a run
    #[command(after_help = START_EXAMPLES)]
    Start(Box<StartArgs>),
    /// List runs, the newest first
    #[command(visible_alias = "ls", after_help = super::filter::LIST_EXAMPLES)]
    List(Box<ListArgs>),
    /// Show a run: its operations, why it is where it is, and what to do next
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Explain why a run is in its current state
    Explain(ShowArgs),
    /// Follow a run until it ends
    Watch(ShowArgs),
    /// The history of a run, event by event
    Events(EventsArgs),
    /// The steps of a run
    Steps(StepsArgs),
    /// The children of a run
    Children(ShowArgs),
    /// The output of a run; exits with 7 if it did not complete
    Output(OutputArgs),
    /// The state that a run has published last
    State(ShowArgs),
    /// The history of a run as a file, which tests can replay
    Export(ExportArgs),
    /// Ask runs to stop: their code may clean up
    #[command(after_help = CONTROL_EXAMPLES)]
    Cancel(Box<ControlArgs>),
    /// End runs without asking their code
    Terminate {
        /// Run the registered compensations first
        #[arg(long)]
        compensating: bool,
        #[command(flatten)]
        control: Box<ControlArgs>,
    },
    /// Hold runs back
    Pause(Box<ControlArgs>),
    /// End pauses, or let failed builds try stuck runs again
    Resume(Box<ControlArgs>),
    /// End the sleeps of a run early
    Wake(WakeArgs),
    /// Continue runs from the operation that failed, without repeating what has completed
    #[command(after_help = RETRY_EXAMPLES)]
    Retry(Box<RetryArgs>),
    /// Start a new run with the workflow and input of another
    #[command(after_help = RESTART_EXAMPLES)]
    Restart(Box<RestartArgs>),
    /// Start a new run with the events of another before an event, or with other outputs
    #[command(after_help = FORK_EXAMPLES)]
    Fork(Box<ForkArgs>),
    /// Protect a run from deletion and from actions on many runs
    Quarantine(ShowArgs),
    /// End the quarantine of a run
    Release(ShowArgs),
    /// Delete runs that have ended
    Delete(Box<ControlArgs>),
}

/// The argument that names a run.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShowArgs {
    /// An id, its beginning or its end, a key, @last, @last:WORKFLOW or @failed
    pub(crate) run: String,
}

/// A start.
#[derive(Clone, Debug, Args)]
pub(crate) struct StartArgs {
    /// The name of the workflow
    #[arg(required_unless_present = "batch")]
    pub(crate) workflow: Option<String>,
    /// The input: JSON, @FILE, or - for standard input; `null` unless given
    #[arg(value_name = "INPUT")]
    pub(crate) input: Option<String>,
    /// A key: a second start with it returns the first run
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// How long an earlier start with the key counts, such as `24h`
    #[arg(long, value_name = "DURATION", requires = "key")]
    pub(crate) key_window: Option<String>,
    /// A tag; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub(crate) tag: Vec<(String, String)>,
    /// A header; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub(crate) header: Vec<(String, String)>,
    /// The queue
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// The priority, 0 to 9
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: Option<u8>,
    /// Begin after this time, such as `1h30m`
    #[arg(long, value_name = "DURATION", conflicts_with = "at")]
    pub(crate) after: Option<String>,
    /// Begin at this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Cancel the run if it has not ended: a time, or a duration from now on
    #[arg(long, value_name = "TIME")]
    pub(crate) deadline: Option<String>,
    /// The version of the workflow
    #[arg(long, value_name = "N")]
    pub(crate) version: Option<u32>,
    /// Wait for the output and print it; exits with 7 if the run does not complete
    #[arg(long, conflicts_with = "follow")]
    pub(crate) wait: bool,
    /// Follow the run until it ends
    #[arg(long)]
    pub(crate) follow: bool,
    /// Start many runs: a file with one start request (as in the API) per line, or -
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workflow", "wait", "follow"])]
    pub(crate) batch: Option<String>,
}

/// A list of events.
#[derive(Clone, Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub(crate) run: ShowArgs,
    /// Begin at this event
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,
    /// Only events of this kind, such as `step_completed`
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Only events of this operation
    #[arg(long, value_name = "N")]
    pub(crate) op: Option<u64>,
    /// How much of payloads is printed: none, preview or full
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) payloads: Option<String>,
    /// The last event first
    #[arg(long)]
    pub(crate) newest: bool,
    /// At most this many events
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) limit: Option<usize>,
}

/// A list of steps.
#[derive(Clone, Debug, Args)]
pub(crate) struct StepsArgs {
    #[command(flatten)]
    pub(crate) run: ShowArgs,
    /// Also timers, hooks, children and all other operations
    #[arg(long)]
    pub(crate) all: bool,
    /// Only operations with this status: open, completed, failed, cancelled
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<String>,
    /// Only operations with this name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How much of payloads is printed: none, preview or full
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) payloads: Option<String>,
}

/// The output of a run.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArgs {
    #[command(flatten)]
    pub(crate) run: ShowArgs,
    /// Wait for the end of the run, at most this long; without a value as long as it takes
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "")]
    pub(crate) wait: Option<String>,
}

/// A history as a file.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) run: ShowArgs,
    /// Write to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
}

/// An action on one or many runs.
#[derive(Clone, Debug, Args)]
pub(crate) struct ControlArgs {
    /// The runs: ids, parts of ids, keys, @last, @failed
    #[arg(value_name = "RUN", conflicts_with_all = ["status", "open", "mark", "workflow", "queue", "parent", "root", "tag", "since", "until", "text"])]
    pub(crate) runs: Vec<String>,
    /// The reason, which the history shows
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Only say which runs it would concern
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Do nothing if the filters select more runs than this
    #[arg(long, value_name = "N")]
    pub(crate) at_most: Option<u64>,
    /// At most this many runs per second, with filters
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    // Last, because its heading applies to what follows.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// The end of sleeps.
#[derive(Clone, Debug, Args)]
pub(crate) struct WakeArgs {
    #[command(flatten)]
    pub(crate) run: ShowArgs,
    /// Only this operation
    #[arg(long, value_name = "N")]
    pub(crate) op: Option<u64>,
}

/// A retry.
#[derive(Clone, Debug, Args)]
pub(crate) struct RetryArgs {
    /// Continue from this operation, not from the one that failed; for one run
    #[arg(long, value_name = "OP")]
    pub(crate) from: Option<u64>,
    /// The new deadline: a time, or a duration from now on
    #[arg(long, value_name = "TIME")]
    pub(crate) deadline: Option<String>,
    /// Also attempt steps again that are attempted at most once
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

/// A restart.
#[derive(Clone, Debug, Args)]
pub(crate) struct RestartArgs {
    /// Another input: JSON, @FILE or -; for one run
    #[arg(long, value_name = "INPUT")]
    pub(crate) input: Option<String>,
    /// Wait for the output of the new run and print it
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

/// A fork.
#[derive(Clone, Debug, Args)]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    pub(crate) run: ShowArgs,
    /// Copy the events before this one
    #[arg(long, value_name = "N", conflicts_with = "output", required_unless_present = "output")]
    pub(crate) event: Option<u64>,
    /// Another outcome of an operation: JSON, @FILE or -; can be repeated
    #[arg(long, value_name = "OP=JSON")]
    pub(crate) output: Vec<String>,
    /// Also attempt steps again that are attempted at most once
    #[arg(long)]
    pub(crate) force: bool,
    /// Only print what would run again
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Wait for the output of the new run and print it
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) wait: bool,
}

/// A payload for a hook or a token.
#[derive(Clone, Debug, Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) to: PayloadArgs,
}

/// A payload whose sender waits for the reply.
#[derive(Clone, Debug, Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) to: PayloadArgs,
    /// How long to wait for the reply; at most 60s
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) within: String,
}

/// A payload, and where it goes.
#[derive(Clone, Debug, Args)]
pub(crate) struct PayloadArgs {
    /// The run and the name of its hook, unless there is a token; then the payload: JSON, @FILE, or - for standard input;
    /// `null` unless given
    #[arg(value_name = "RUN HOOK PAYLOAD", num_args = 0..=3)]
    pub(crate) words: Vec<String>,
    /// The token of a hook, instead of a run and a hook; @FILE or - keeps it out of the list of processes
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// A key: a payload that is sent again with it is not delivered twice
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

/// Commands on streams.
#[derive(Debug, Subcommand)]
pub(crate) enum StreamCommand {
    /// List the streams of a run
    List(ShowArgs),
    /// Print the chunks of a stream
    Tail(TailArgs),
}

/// The chunks of a stream.
#[derive(Clone, Debug, Args)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) run: ShowArgs,
    /// The name of the stream; needed if the run has several
    pub(crate) name: Option<String>,
    /// The first chunk; negative numbers count from the end
    #[arg(long, value_name = "N", default_value_t = -100, allow_negative_numbers = true)]
    pub(crate) from: i64,
    /// Wait for more until the stream is closed
    #[arg(long, short)]
    pub(crate) follow: bool,
}

/// Examples of a start.
pub(super) const START_EXAMPLES: &str = r#"Examples:
  outlast start checkout '["Ada", 4200]'       several parameters are an array
  outlast start import @order.json --key 42    a second start with this key returns the same run
  outlast start report --after 1h --tag team=sales
  outlast start checkout '["Ada", 1]' --wait   print the output; exit 7 unless it completes"#;

/// Examples of naming a run.
pub(super) const SHOW_EXAMPLES: &str = "\
Examples:
  outlast show @last              the run that was started last
  outlast show @last:checkout     … of this workflow
  outlast show @failed            the run that failed last
  outlast show order-42           by key
  outlast show P2R6X              by the end of its id";

/// Examples of a send.
pub(super) const SEND_EXAMPLES: &str = r#"Examples:
  outlast send order-42 rating 5
  outlast send @last approval '{"by":"ada"}' --key approval-1
  outlast send order-42 document @scan.json
  outlast send --token @token.txt '{"by":"ada"}'"#;

/// Examples of `ask`.
pub(super) const ASK_EXAMPLES: &str = r#"Examples:
  outlast ask order-42 quote 7                    prints the reply
  outlast ask --token @token.txt 7 --within 5s --key quote-1"#;

/// Examples of a retry.
pub(super) const RETRY_EXAMPLES: &str = "\
Examples:
  outlast run retry order-42 --dry-run              what would run again
  outlast run retry order-42 --reason 'the bank is open again'
  outlast run retry order-42 --from 3               from operation 3 on
  outlast run retry -w checkout --since 1d          all of the last day; shows them, and asks";

/// Examples of a restart.
pub(super) const RESTART_EXAMPLES: &str = "\
Examples:
  outlast run restart order-42                      the same input
  outlast run restart order-42 --input @order.json --wait";

/// Examples of forks.
pub(super) const FORK_EXAMPLES: &str = "\
Examples:
  outlast run events order-42                       the events with their numbers
  outlast run fork order-42 --event 7 --dry-run     what would run again
  outlast run fork order-42 --event 7 --wait        with the events before event 7
  outlast run fork order-42 --output 3=120          what if operation 3 had returned 120?";

/// Examples of an action.
pub(super) const CONTROL_EXAMPLES: &str = "\
Examples:
  outlast run cancel order-42 --reason 'the customer left'
  outlast run cancel -w import --open --dry-run     which runs would it be
  outlast run cancel -w import --open               shows them, and asks
  outlast run cancel -w import --open --yes --at-most 100";
