//! The command line.

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::env::WorldKind;
use crate::workload::{ALL, B6Plan, B6mPlan, BwPlan, ChildPlan, SenderPlan, WorkerPlan, Workload};

/// Measures the engine next to the raw limit of the disk.
#[derive(Debug, Parser)]
#[command(name = "outlast-bench", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    plan: Plan,
    #[command(subcommand)]
    child: Option<Child>,
}

/// What to measure, and how to tell it.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct Plan {
    /// Measure only these workloads
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = known_id)]
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
    /// Where to put the files, on the disk to measure [default: beside this program]
    #[arg(long, value_name = "PATH")]
    pub(crate) folder: Option<PathBuf>,
    /// Let this benchmark program measure the same in turns, and compare (`cargo xtask bench` takes a revision)
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) against: Option<PathBuf>,
}

/// This program as a part of its own measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum Child {
    /// The process of B6.
    #[command(name = crate::workload::B6_COMMAND, hide = true)]
    B6(B6Plan),
    /// The process of B6M.
    #[command(name = crate::workload::B6M_COMMAND, hide = true)]
    B6m(B6mPlan),
    /// The process that B7 kills.
    #[command(name = crate::workload::B7_COMMAND, hide = true)]
    B7(ChildPlan),
    /// The process of BM.
    #[command(name = crate::workload::BM_COMMAND, hide = true)]
    Bm,
    /// The process of BS that sends.
    #[command(name = crate::workload::BS_COMMAND, hide = true)]
    Bs(SenderPlan),
    /// The process of BW.
    #[command(name = crate::workload::BW_COMMAND, hide = true)]
    Bw(BwPlan),
    /// A process with a worker, where the client is in another.
    #[command(name = crate::workload::WORKER_COMMAND, hide = true)]
    Worker(WorkerPlan),
}

/// Reads the arguments. Ends the process with code 2 and a message when they make no sense.
pub(crate) fn parse() -> (Plan, Option<Child>) {
    parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

fn parse_from<T: Into<std::ffi::OsString> + Clone>(
    arguments: impl IntoIterator<Item = T>,
) -> Result<(Plan, Option<Child>), clap::Error> {
    let mut command = Cli::command().after_help(workloads()).disable_help_subcommand(true);
    let cli = Cli::from_arg_matches(&command.try_get_matches_from_mut(arguments)?)?;
    let refused = cli.plan.only.iter().filter_map(|id| Workload::find(id));
    if let Some(workload) = refused.into_iter().find(|workload| !workload.runs_on(cli.plan.world)) {
        let worlds: Vec<_> = workload.worlds.iter().map(ToString::to_string).collect();
        let message = format!(
            "{} cannot be measured on `{}`, only on {}",
            workload.id,
            cli.plan.world,
            worlds.join(", ")
        );
        return Err(command.error(clap::error::ErrorKind::ArgumentConflict, message));
    }
    Ok((cli.plan, cli.child))
}

impl Plan {
    /// The workloads to measure, in their own order. Those that make no sense on the world are left out.
    pub(crate) fn workloads(&self) -> Vec<&'static Workload> {
        let is_asked_for = |workload: &Workload| self.only.is_empty() || self.only.contains(&workload.id);
        ALL.into_iter().filter(|workload| is_asked_for(workload) && workload.runs_on(self.world)).collect()
    }
}

fn known_id(text: &str) -> Result<&'static str, String> {
    let known = || ALL.map(|workload| workload.id).join(", ");
    Workload::find(text.trim())
        .map(|workload| workload.id)
        .ok_or_else(|| format!("there is no such workload; there are {}", known()))
}

/// The workloads, as `--help` lists them.
fn workloads() -> String {
    let lines = ALL.map(|workload| format!("  {:<3}  {}", workload.id, workload.what));
    format!(
        "Workloads:\n{}\n\n\
         C1 is the time of one raw single-row commit, R100 raw rows/s at 100 rows of 300 bytes per commit;\n\
         both are measured in the same place before each workload, in each round: with SQLite in a file in the\n\
         folder, or with Postgres on the same server, which is this program's own and has its files there.\n\
         A missed target is told and is no error. Progress goes to the standard error.",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(arguments: &str) -> Result<Plan, String> {
        let arguments = std::iter::once("bench").chain(arguments.split_whitespace());
        parse_from(arguments).map(|(plan, _)| plan).map_err(|error| {
            assert_eq!(error.exit_code(), 2, "{error}");
            error.to_string()
        })
    }

    fn ids(arguments: &str) -> Vec<&'static str> {
        plan(arguments).unwrap().workloads().into_iter().map(|workload| workload.id).collect()
    }

    #[test]
    fn without_arguments_all_is_measured_on_sqlite() {
        let plan = plan("").unwrap();
        assert_eq!((plan.world, plan.rounds, plan.json, plan.folder), (WorldKind::Sqlite, 5, false, None));
        assert_eq!(plan.against, None);
        let all = ALL.iter().map(|workload| workload.id);
        assert_eq!(ids(""), all.filter(|id| !["B9", "BW"].contains(id)).collect::<Vec<_>>());
    }

    #[test]
    fn only_takes_ids_in_any_case_and_keeps_the_order_of_the_workloads() {
        assert_eq!(ids("--only b5,B1"), ["B1", "B5"]);
        assert_eq!(ids("--only B2 --only BM --json --rounds 1"), ["B2", "BM"]);
    }

    #[test]
    fn what_makes_no_sense_on_a_world_is_left_out_or_refused() {
        assert_eq!(ids("--world memory"), ["B1", "B2", "B3", "B4", "B5", "BM"]);
        let postgres = ["B1", "B2", "B3", "B4", "B5", "B6", "B7", "B9", "B10", "BW"];
        assert_eq!(ids("--world postgres"), postgres);
        let error = plan("--world memory --only B1,B7").unwrap_err();
        assert!(error.contains("B7 cannot be measured on `memory`, only on sqlite, postgres"), "{error}");
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        let cases = [
            ("--only B99", "there are B1, B2, B3, B4, B5, B6, B6M, B7, B8, B9, B10, B11, BM, BS, BW"),
            ("--only B1,", "there is no such workload"),
            ("--world oracle", "[possible values: sqlite, postgres, memory]"),
            ("--rounds 0", "0 is not in 1..=1000"),
            ("--rounds many", "invalid value 'many'"),
            ("--quick", "unexpected argument '--quick'"),
            ("B1", "unrecognized subcommand 'B1'"),
        ];
        for (arguments, said) in cases {
            let error = plan(arguments).unwrap_err();
            assert!(error.contains(said), "{arguments}: {error}");
        }
    }

    #[test]
    fn the_help_lists_every_workload_and_hides_the_child() {
        let error = parse_from(["bench", "--help"]).unwrap_err();
        let help = error.to_string();
        assert_eq!(error.exit_code(), 0);
        assert!(ALL.iter().all(|workload| help.contains(workload.what)), "{help}");
        assert!(!help.contains(crate::workload::B7_COMMAND), "{help}");
    }

    #[test]
    fn the_child_of_b7_is_told_its_world_and_its_folder() {
        let (_, child) = parse_from(["bench", "b7-child", "sqlite:x.db", "/tmp/x", "500"]).unwrap();
        assert!(matches!(child, Some(Child::B7(_))));
    }
}
