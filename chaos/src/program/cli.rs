//! The command line.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::place::WorldKind;
use super::{client, cut, kills, life, power, soak};

/// Breaks the engine on purpose, and checks that nothing is lost or doubled.
#[derive(Debug, Parser)]
#[command(name = "outlast-chaos", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    chaos: Chaos,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, clap::Args)]
struct Chaos {
    /// The world to break; cut connections are Postgres's
    #[arg(long, value_enum, default_value = "sqlite")]
    world: WorldKind,
    /// How many workers are killed
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kills: u32,
    /// How often Postgres itself is restarted, half of the times by a crash [default: one for ten kills]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    restarts: Option<u32>,
    /// A program of this kind of an older build: its workers and a client of it take part, before, beside and after those
    /// of this build. `cargo xtask chaos --old` takes a git revision
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["power", "cut"])]
    old: Option<PathBuf>,
    /// Cut the power instead: look at what the disk may hold at random instants under load
    #[arg(long, conflicts_with = "kills")]
    power: bool,
    /// Cut connections to Postgres instead: after every byte of a call, in both directions
    #[arg(long, conflicts_with_all = ["kills", "power", "restarts"])]
    cut: bool,
    /// At how many bytes of each exchange and direction [default: all]
    #[arg(long, requires = "cut", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    offsets: Option<u32>,
    /// How many power cuts of each kind
    #[arg(long, default_value_t = 50, requires = "power", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    cuts: u32,
    /// When commits wait for the disk: with `normal` cuts lose commits, and this must find it
    #[arg(long, value_enum, default_value = "full", requires = "power")]
    sync: power::Durability,
    /// What repeats the fates of the workers and the transfers [default: by chance, and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Where to put the files [default: where temporary files are]
    #[arg(long, value_name = "PATH")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Mixed load for a long time, and a verdict on what grew
    Soak(soak::Plan),
    /// A worker of the kill loop.
    #[command(hide = true)]
    Worker(life::Orders),
    /// A client of the kill loop.
    #[command(hide = true)]
    Client(client::Orders),
}

/// What the program is told to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    Kills(kills::Plan),
    Cut(cut::Plan),
    Power(power::Plan),
    Soak(soak::Plan),
    Worker(life::Orders),
    Client(client::Orders),
}

/// Reads the arguments. Ends the process with code 2 and a message when they make no sense.
pub(crate) fn parse() -> Order {
    parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

fn parse_from<T: Into<std::ffi::OsString> + Clone>(
    arguments: impl IntoIterator<Item = T>,
) -> Result<Order, clap::Error> {
    let mut command = Cli::command().disable_help_subcommand(true);
    let cli = Cli::from_arg_matches(&command.try_get_matches_from_mut(arguments)?)?;
    let Chaos { world, kills, restarts, old, power, cut, offsets, cuts, sync, seed, folder } = cli.chaos;
    if world == WorldKind::Sqlite && restarts.is_some() {
        return Err(command
            .error(ErrorKind::ArgumentConflict, "a file has no server that restarts; say --world postgres"));
    }
    if world == WorldKind::Postgres && power {
        return Err(
            command.error(ErrorKind::ArgumentConflict, "the power is cut on files only; say --world sqlite")
        );
    }
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    Ok(match cli.part {
        Some(Part::Worker(orders)) => Order::Worker(orders),
        Some(Part::Client(orders)) => Order::Client(orders),
        Some(Part::Soak(plan)) => Order::Soak(plan),
        None if cut => Order::Cut(cut::Plan { offsets, seed, folder }),
        None if power => Order::Power(power::Plan { cuts, seed, sync, folder }),
        None => {
            let restarts = if world == WorldKind::Sqlite { 0 } else { restarts.unwrap_or(kills / 10) };
            Order::Kills(kills::Plan { world, kills, restarts, seed, folder, old })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(arguments: &str) -> Result<Order, String> {
        let arguments = std::iter::once("chaos").chain(arguments.split_whitespace());
        parse_from(arguments).map_err(|error| {
            assert_eq!(error.exit_code(), 2, "{error}");
            error.to_string()
        })
    }

    #[test]
    fn without_arguments_there_are_200_kills_by_a_seed_of_chance() {
        let Ok(Order::Kills(plan)) = order("") else { panic!("the kill loop is the default") };
        assert_eq!((plan.kills, plan.folder), (200, None));
    }

    #[test]
    fn a_seed_is_taken_as_it_is() {
        let (world, folder) = (WorldKind::Sqlite, Some("x".into()));
        let plan = kills::Plan { world, kills: 3, restarts: 0, seed: 7, folder, old: None };
        assert_eq!(order("--world sqlite --kills 3 --seed 7 --folder x"), Ok(Order::Kills(plan)));
    }

    #[test]
    fn postgres_is_restarted_once_for_ten_kills_unless_told() {
        let plan = |kills, restarts| {
            Ok(Order::Kills(kills::Plan {
                world: WorldKind::Postgres,
                kills,
                restarts,
                seed: 7,
                folder: None,
                old: None,
            }))
        };
        assert_eq!(order("--world postgres --seed 7"), plan(200, 20));
        assert_eq!(order("--world postgres --kills 30 --restarts 1 --seed 7"), plan(30, 1));
    }

    #[test]
    fn the_power_is_cut_as_often_as_told() {
        let plan = power::Plan { cuts: 9, seed: 7, sync: power::Durability::Full, folder: None };
        assert_eq!(order("--power --cuts 9 --seed 7"), Ok(Order::Power(plan)));
    }

    #[test]
    fn connections_are_cut_at_every_byte_unless_told() {
        let plan = |offsets| Ok(Order::Cut(cut::Plan { offsets, seed: 7, folder: None }));
        assert_eq!(order("--cut --seed 7"), plan(None));
        assert_eq!(order("--cut --offsets 8 --seed 7"), plan(Some(8)));
    }

    #[test]
    fn a_soak_takes_half_an_hour_unless_told() {
        assert_eq!(order("soak"), Ok(Order::Soak(soak::Plan { minutes: 30.0, tick: 10, folder: None })));
    }

    /// Programs of other builds are started with these arguments, so they must not change.
    #[test]
    fn workers_and_clients_are_told_what_to_do_as_in_every_build() {
        let worker = |url: Option<&str>, point| {
            Ok(Order::Worker(life::Orders { folder: "x".into(), life: 3, url: url.map(Into::into), point }))
        };
        assert_eq!(order("worker x 3"), worker(None, None));
        assert_eq!(
            order("worker x 3 --url postgres://h/d --point 9"),
            worker(Some("postgres://h/d"), Some(9))
        );
        let client = |url: Option<&str>, patient| {
            let url = url.map(Into::into);
            Ok(Order::Client(client::Orders { folder: "x".into(), seed: 7, first: 5, url, patient }))
        };
        assert_eq!(order("client x --seed 7 --first 5"), client(None, false));
        let elsewhere = "client x --seed 7 --first 5 --url postgres://h/d --patient";
        assert_eq!(order(elsewhere), client(Some("postgres://h/d"), true));
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        let cases = [
            ("--world oracle", "[possible values: sqlite, postgres]"),
            ("--restarts 3", "a file has no server that restarts; say --world postgres"),
            ("--world postgres --power", "the power is cut on files only"),
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
            let error = order(arguments).unwrap_err();
            assert!(error.contains(said), "{arguments}: {error}");
        }
    }
}
