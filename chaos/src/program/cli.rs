//! The command line.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::workdir::WorldKind;
use super::{client_process, cut, kills, power, soak, worker_process};

/// Injects failures into the engine, and checks that nothing is lost or duplicated.
#[derive(Debug, Parser)]
#[command(name = "outlast-chaos", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    chaos: ChaosArgs,
    #[command(subcommand)]
    part: Option<PartCommand>,
}

#[derive(Debug, clap::Args)]
struct ChaosArgs {
    /// The world under test; --cut always uses Postgres
    #[arg(long, value_enum, default_value = "sqlite")]
    world: WorldKind,
    /// How many workers are killed
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kills: u32,
    /// How often Postgres itself is restarted, half of the times by a crash [default: one per ten kills]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    restarts: Option<u32>,
    /// The program of an older build: its workers and its client run before, beside and after those of this build.
    /// `cargo xtask chaos --old` takes a git revision
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["power", "cut"])]
    old: Option<PathBuf>,
    /// Simulate power failures instead: inspect possible states of the disk at random times under load
    #[arg(long, conflicts_with = "kills")]
    power: bool,
    /// Cut connections to Postgres instead: after every byte of a call, in both directions
    #[arg(long, conflicts_with_all = ["kills", "power", "restarts"])]
    cut: bool,
    /// The number of offsets in each exchange and direction [default: all]
    #[arg(long, requires = "cut", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    offsets: Option<u32>,
    /// The number of power cuts of each kind
    #[arg(long, default_value_t = 50, requires = "power", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    cuts: u32,
    /// When commits wait for the disk: with `normal`, cuts lose commits, and the checks must fail
    #[arg(long, value_enum, default_value = "full", requires = "power")]
    sync: power::Durability,
    /// The seed of kills and transfers [default: random, and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// The folder for the files [default: the folder for temporary files]
    #[arg(long, value_name = "PATH")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum PartCommand {
    /// Mixed load for a long time, and a check of resources that must not grow
    Soak(soak::SoakOptions),
    /// A worker of the kill loop.
    #[command(hide = true)]
    Worker(worker_process::WorkerArgs),
    /// A client of the kill loop.
    #[command(hide = true)]
    Client(client_process::ClientArgs),
}

/// The task of this process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Task {
    Kills(kills::KillLoopOptions),
    Cut(cut::CutOptions),
    Power(power::PowerCutOptions),
    Soak(soak::SoakOptions),
    Worker(worker_process::WorkerArgs),
    Client(client_process::ClientArgs),
}

/// Parses the arguments. Ends the process with code 2 and a message when they are invalid.
pub(crate) fn parse() -> Task {
    parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

fn parse_from<T: Into<std::ffi::OsString> + Clone>(
    arguments: impl IntoIterator<Item = T>,
) -> Result<Task, clap::Error> {
    let mut command = Cli::command().disable_help_subcommand(true);
    let cli = Cli::from_arg_matches(&command.try_get_matches_from_mut(arguments)?)?;
    let ChaosArgs { world, kills, restarts, old, power, cut, offsets, cuts, sync, seed, folder } = cli.chaos;
    if world == WorldKind::Sqlite && restarts.is_some() {
        return Err(command
            .error(ErrorKind::ArgumentConflict, "SQLite has no server to restart; use --world postgres"));
    }
    if world == WorldKind::Postgres && power {
        return Err(command.error(
            ErrorKind::ArgumentConflict,
            "power cuts are simulated for SQLite only; use --world sqlite",
        ));
    }
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    Ok(match cli.part {
        Some(PartCommand::Worker(args)) => Task::Worker(args),
        Some(PartCommand::Client(args)) => Task::Client(args),
        Some(PartCommand::Soak(options)) => Task::Soak(options),
        None if cut => Task::Cut(cut::CutOptions { offsets, seed, folder }),
        None if power => Task::Power(power::PowerCutOptions { cuts, seed, sync, folder }),
        None => {
            let restarts = if world == WorldKind::Sqlite { 0 } else { restarts.unwrap_or(kills / 10) };
            Task::Kills(kills::KillLoopOptions { world, kills, restarts, seed, folder, old })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(arguments: &str) -> Result<Task, String> {
        let arguments = std::iter::once("chaos").chain(arguments.split_whitespace());
        parse_from(arguments).map_err(|error| {
            assert_eq!(error.exit_code(), 2, "{error}");
            error.to_string()
        })
    }

    #[test]
    fn without_arguments_there_are_200_kills_with_a_random_seed() {
        let Ok(Task::Kills(plan)) = parse_line("") else { panic!("the kill loop is the default") };
        assert_eq!((plan.kills, plan.folder), (200, None));
    }

    #[test]
    fn the_seed_of_the_command_line_is_used() {
        let (world, folder) = (WorldKind::Sqlite, Some("x".into()));
        let plan = kills::KillLoopOptions { world, kills: 3, restarts: 0, seed: 7, folder, old: None };
        assert_eq!(parse_line("--world sqlite --kills 3 --seed 7 --folder x"), Ok(Task::Kills(plan)));
    }

    #[test]
    fn postgres_is_restarted_once_per_ten_kills_by_default() {
        let plan = |kills, restarts| {
            Ok(Task::Kills(kills::KillLoopOptions {
                world: WorldKind::Postgres,
                kills,
                restarts,
                seed: 7,
                folder: None,
                old: None,
            }))
        };
        assert_eq!(parse_line("--world postgres --seed 7"), plan(200, 20));
        assert_eq!(parse_line("--world postgres --kills 30 --restarts 1 --seed 7"), plan(30, 1));
    }

    #[test]
    fn the_number_of_power_cuts_is_an_option() {
        let plan = power::PowerCutOptions { cuts: 9, seed: 7, sync: power::Durability::Full, folder: None };
        assert_eq!(parse_line("--power --cuts 9 --seed 7"), Ok(Task::Power(plan)));
    }

    #[test]
    fn connections_are_cut_at_every_byte_by_default() {
        let plan = |offsets| Ok(Task::Cut(cut::CutOptions { offsets, seed: 7, folder: None }));
        assert_eq!(parse_line("--cut --seed 7"), plan(None));
        assert_eq!(parse_line("--cut --offsets 8 --seed 7"), plan(Some(8)));
    }

    #[test]
    fn a_soak_takes_half_an_hour_by_default() {
        assert_eq!(
            parse_line("soak"),
            Ok(Task::Soak(soak::SoakOptions { minutes: 30.0, tick: 10, folder: None }))
        );
    }

    /// Programs of other builds are started with these arguments, so they must not change.
    #[test]
    fn the_arguments_of_workers_and_clients_are_the_same_in_every_build() {
        let worker = |url: Option<&str>, point| {
            Ok(Task::Worker(worker_process::WorkerArgs {
                folder: "x".into(),
                number: 3,
                url: url.map(Into::into),
                point,
            }))
        };
        assert_eq!(parse_line("worker x 3"), worker(None, None));
        assert_eq!(
            parse_line("worker x 3 --url postgres://h/d --point 9"),
            worker(Some("postgres://h/d"), Some(9))
        );
        let client = |url: Option<&str>, retrying| {
            let url = url.map(Into::into);
            Ok(Task::Client(client_process::ClientArgs {
                folder: "x".into(),
                seed: 7,
                first: 5,
                url,
                retrying,
            }))
        };
        assert_eq!(parse_line("client x --seed 7 --first 5"), client(None, false));
        let elsewhere = "client x --seed 7 --first 5 --url postgres://h/d --patient";
        assert_eq!(parse_line(elsewhere), client(Some("postgres://h/d"), true));
    }

    #[test]
    fn invalid_arguments_are_refused_with_an_explanation() {
        let cases = [
            ("--world oracle", "[possible values: sqlite, postgres]"),
            ("--restarts 3", "SQLite has no server to restart; use --world postgres"),
            ("--world postgres --power", "power cuts are simulated for SQLite only"),
            ("--kills 0", "0 is not in 1..=100000"),
            ("--seed many", "invalid value 'many'"),
            ("--power --kills 3", "cannot be used with"),
            ("--cuts 3", "--power"),
            ("--offsets 3", "--cut"),
            ("--cut --power", "cannot be used with"),
            ("--cut --old x", "cannot be used with"),
            ("soak --minutes 0", "from 0.01 to 100000"),
        ];
        for (arguments, said) in cases {
            let error = parse_line(arguments).unwrap_err();
            assert!(error.contains(said), "{arguments}: {error}");
        }
    }
}
