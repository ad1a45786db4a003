//! The command line.

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::environment::WorldKind;
use crate::workload::{
    ALL, IdleWaitersArgs, LiveClientsArgs, RecoveryArgs, RestartArgs, SenderArgs, ServerCostArgs,
    SleepingRunsArgs, StreamReaderArgs, WorkerArgs, Workload,
};

/// Measures the engine, compared with the raw limits of the disk.
#[derive(Debug, Parser)]
#[command(name = "outlast-bench", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    child: Option<Child>,
}

/// The workloads to measure, and the form of the report.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct Options {
    /// Measure only these workloads, by name or id
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = known_id)]
    pub(crate) only: Vec<&'static str>,
    /// The world to measure
    #[arg(long, value_enum, default_value = "sqlite")]
    pub(crate) world: WorldKind,
    /// How often each workload is measured; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// The folder for the files, on the disk to measure [default: beside this program]
    #[arg(long, value_name = "PATH")]
    pub(crate) folder: Option<PathBuf>,
    /// Also run this benchmark program, alternately, and compare (`cargo xtask bench` takes a revision)
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) against: Option<PathBuf>,
}

/// A child process of a measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum Child {
    /// The process of BI.
    #[command(name = crate::workload::IDLE_WAITERS_COMMAND, hide = true)]
    IdleWaiters(IdleWaitersArgs),
    /// The clients of B14.
    #[command(name = crate::workload::LIVE_STREAMS_COMMAND, hide = true)]
    B14(LiveClientsArgs),
    /// The server of BD.
    #[command(name = crate::workload::DEV_START_COMMAND, hide = true)]
    Bd,
    /// The process of B6.
    #[command(name = crate::workload::SLEEPING_RUNS_COMMAND, hide = true)]
    B6(SleepingRunsArgs),
    /// The process of B6M.
    #[command(name = crate::workload::RESTART_COMMAND, hide = true)]
    B6m(RestartArgs),
    /// The process that B7 kills.
    #[command(name = crate::workload::RECOVERY_COMMAND, hide = true)]
    B7(RecoveryArgs),
    /// The process of BM.
    #[command(name = crate::workload::ENGINE_CPU_COMMAND, hide = true)]
    Bm,
    /// The process of BS that sends.
    #[command(name = crate::workload::SENDER_COMMAND, hide = true)]
    Bs(SenderArgs),
    /// The process of BST that reads.
    #[command(name = crate::workload::STREAM_READER_COMMAND, hide = true)]
    Bst(StreamReaderArgs),
    /// The process of BW.
    #[command(name = crate::workload::SERVER_COST_COMMAND, hide = true)]
    Bw(ServerCostArgs),
    /// A process with a worker, where the client is in another.
    #[command(name = crate::workload::WORKER_COMMAND, hide = true)]
    Worker(WorkerArgs),
}

/// Parses the arguments. Ends the process with code 2 and a message when they are invalid.
pub(crate) fn parse() -> (Options, Option<Child>) {
    parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

fn parse_from<T: Into<std::ffi::OsString> + Clone>(
    arguments: impl IntoIterator<Item = T>,
) -> Result<(Options, Option<Child>), clap::Error> {
    let mut command = Cli::command().after_help(workloads()).disable_help_subcommand(true);
    let cli = Cli::from_arg_matches(&command.try_get_matches_from_mut(arguments)?)?;
    let refused = cli.options.only.iter().filter_map(|id| Workload::find(id));
    if let Some(workload) = refused.into_iter().find(|workload| !workload.runs_on(cli.options.world)) {
        let worlds: Vec<_> = workload.worlds.iter().map(ToString::to_string).collect();
        let message = format!(
            "{} cannot be measured on `{}`, only on {}",
            workload.id,
            cli.options.world,
            worlds.join(", ")
        );
        return Err(command.error(clap::error::ErrorKind::ArgumentConflict, message));
    }
    Ok((cli.options, cli.child))
}

impl Options {
    /// The workloads to measure, in the order of [`ALL`]. Those that the world lacks are skipped.
    pub(crate) fn workloads(&self) -> Vec<&'static Workload> {
        let is_selected = |workload: &Workload| self.only.is_empty() || self.only.contains(&workload.id);
        ALL.into_iter().filter(|workload| is_selected(workload) && workload.runs_on(self.world)).collect()
    }
}

fn known_id(text: &str) -> Result<&'static str, String> {
    let known = || ALL.map(|workload| format!("{} ({})", workload.name, workload.id)).join(", ");
    Workload::find(text.trim())
        .map(|workload| workload.id)
        .ok_or_else(|| format!("there is no such workload; there are {}", known()))
}

/// The workloads, as `--help` lists them.
fn workloads() -> String {
    let lines = ALL.map(|workload| format!("  {:<3}  {:<21}  {}", workload.id, workload.name, workload.what));
    format!(
        "Workloads:\n{}\n\n\
         C1 is the time of one raw single-row commit, R100 raw rows/s at 100 rows of 300 bytes per commit;\n\
         both are measured in the same place before each workload, in each round: with SQLite in a file in the\n\
         folder, or with Postgres on the same server, which is this program's own and has its files there.\n\
         A missed target is reported and is no error. Progress goes to the standard error.",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &str) -> Result<Options, String> {
        let arguments = std::iter::once("bench").chain(arguments.split_whitespace());
        parse_from(arguments).map(|(options, _)| options).map_err(|error| {
            assert_eq!(error.exit_code(), 2, "{error}");
            error.to_string()
        })
    }

    fn ids(arguments: &str) -> Vec<&'static str> {
        options(arguments).unwrap().workloads().into_iter().map(|workload| workload.id).collect()
    }

    #[test]
    fn without_arguments_all_workloads_are_measured_on_sqlite() {
        let options = options("").unwrap();
        assert_eq!(
            (options.world, options.rounds, options.json, options.folder),
            (WorldKind::Sqlite, 5, false, None)
        );
        assert_eq!(options.against, None);
        let all = ALL.iter().map(|workload| workload.id);
        assert_eq!(ids(""), all.filter(|id| !["B9", "BW"].contains(id)).collect::<Vec<_>>());
    }

    #[test]
    fn only_takes_names_and_ids_and_keeps_the_order_of_the_workloads() {
        assert_eq!(ids("--only start-to-result,throughput"), ["B1", "B5"]);
        assert_eq!(ids("--only b5,B1"), ["B1", "B5"]);
        assert_eq!(ids("--only B2 --only BM --json --rounds 1"), ["B2", "BM"]);
    }

    #[test]
    fn workloads_that_a_world_lacks_are_skipped_or_refused() {
        assert_eq!(ids("--world memory"), ["B1", "B2", "B3", "B4", "B5", "BF", "BM", "BI"]);
        let postgres = [
            "B1", "B2", "B3", "B4", "B5", "B6", "B7", "B9", "B10", "B12", "B13", "B14", "B15", "BP", "BF",
            "BI", "BW", "BST", "BSH", "BIT", "BR", "BTX",
        ];
        assert_eq!(ids("--world postgres"), postgres);
        let error = options("--world memory --only B1,B7").unwrap_err();
        assert!(error.contains("B7 cannot be measured on `memory`, only on sqlite, postgres"), "{error}");
    }

    #[test]
    fn unknown_arguments_are_refused_with_the_known_ones() {
        let cases = [
            ("--only B99", "there are throughput (B1), step-latency (B2), "),
            ("--only B1,", "there is no such workload"),
            ("--world oracle", "[possible values: sqlite, postgres, memory]"),
            ("--rounds 0", "0 is not in 1..=1000"),
            ("--rounds many", "invalid value 'many'"),
            ("--quick", "unexpected argument '--quick'"),
            ("B1", "unrecognized subcommand 'B1'"),
        ];
        for (arguments, said) in cases {
            let error = options(arguments).unwrap_err();
            assert!(error.contains(said), "{arguments}: {error}");
        }
    }

    #[test]
    fn the_help_lists_every_workload_and_hides_the_child() {
        let error = parse_from(["bench", "--help"]).unwrap_err();
        let help = error.to_string();
        assert_eq!(error.exit_code(), 0);
        // Lines are wrapped if another package of the workspace has enabled that.
        let unwrapped = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(ALL.iter().all(|workload| unwrapped.contains(workload.what)), "{help}");
        assert!(!help.contains(crate::workload::RECOVERY_COMMAND), "{help}");
    }

    #[test]
    fn the_child_of_the_recovery_workload_gets_its_world_and_folder() {
        let (_, child) = parse_from(["bench", "b7-child", "sqlite:x.db", "/tmp/x", "500"]).unwrap();
        assert!(matches!(child, Some(Child::B7(_))));
    }
}
