//! `cargo xtask chaos` and `cargo xtask soak`: the program that injects failures, and the sweep of crash tests.

use std::path::Path;

use crate::baseline;
use crate::cargo::{cargo, run};
use crate::error::{Error, Result};
use crate::program::become_program;
use crate::setup::{Servers, Setup};

/// The text of `help` for the kill loop, the power cut, the cut connections and the sweep.
pub(crate) const CHAOS_HELP: &str = "\
chaos [--world sqlite|postgres] [--kills N] [--restarts M] [--seed S] [--old REVISION] [--power|--cut|--sweep] [ARGUMENTS]
    Kill and freeze workers on one world repeatedly (200 kills by default), restart Postgres
    meanwhile, and check that nothing is lost or duplicated. With `--old`, also run workers and a
    client of the program at that git revision: first alone, then beside those of this tree, which
    migrate the schema under load, and alone again as after a rollback. With `--power`, simulate power
    failures instead; with `--cut`, cut connections to Postgres after every byte of a call. Built in
    release mode; `chaos --help` lists the arguments. With `--sweep`, kill a program at each of its
    commit points, and at each commit point of its recovery.";

/// The text of `help` for the soak test.
pub(crate) const SOAK_HELP: &str = "\
soak [--minutes N] [--dashboard] [ARGUMENTS]
    Run a mixed load for a time (30 minutes by default), print a line every ten seconds, and check that
    memory, descriptors, files and latency do not grow. Ends with code 1 when one of them grew. With
    `--dashboard`, keep a page of the dashboard open in a browser instead, under five changes per second
    (10 minutes by default), and check that its heap does not grow.";

const PACKAGE: &str = "outlast-chaos";

/// Builds the program and replaces this process with it, or runs the sweep.
pub(crate) fn chaos(root: &Path, arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| argument == "--sweep") {
        return sweep(root, SweepWorld::parse(arguments)?);
    }
    let (old, mut arguments) = baseline::take_revision(arguments, "--old")?;
    if let Some(old) = old {
        // The command that repeats a failed run contains the path of the program.
        let is_program = Path::new(&old).is_file();
        let program = if is_program { old.into() } else { baseline::build(root, &old, PACKAGE, PACKAGE)? };
        arguments.extend(["--old".to_owned(), program.to_string_lossy().into_owned()]);
    }
    become_program(root, PACKAGE, &arguments)
}

/// Builds the program, and replaces this process with its soak test.
pub(crate) fn soak(root: &Path, arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| argument == "--dashboard") {
        return soak_dashboard(root, &minutes(arguments)?);
    }
    let arguments: Vec<String> =
        std::iter::once("soak".to_owned()).chain(arguments.iter().cloned()).collect();
    become_program(root, PACKAGE, &arguments)
}

/// The minutes of a soak test of the dashboard.
fn minutes(arguments: &[String]) -> Result<String> {
    let rest: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|argument| *argument != "--dashboard").collect();
    match rest[..] {
        [] => Ok("10".into()),
        ["--minutes", minutes] if minutes.parse::<u64>().is_ok_and(|minutes| minutes > 0) => {
            Ok(minutes.into())
        }
        _ => Err(Error::Usage("`soak --dashboard` takes only `--minutes` and a number".into())),
    }
}

/// Keeps a page open in a browser while runs change.
fn soak_dashboard(root: &Path, minutes: &str) -> Result<()> {
    throwaway::chromedriver::require()?;
    let mut test = cargo(root);
    test.args(["test", "--package", "outlast-dashboard", "--test", "browser", "--", "--ignored", "--exact"]);
    test.args(["--nocapture", "heap::a_page_that_stays_open_does_not_grow"]);
    run(test.env("OUTLAST_SOAK_MINUTES", minutes))
}

/// The world of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweepWorld {
    Sqlite,
    Postgres,
}

impl SweepWorld {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut world = Self::Sqlite;
        let mut rest = arguments.iter().map(String::as_str).filter(|argument| *argument != "--sweep");
        while let Some(argument) = rest.next() {
            let name = match argument.strip_prefix("--world=") {
                Some(name) => name,
                None if argument == "--world" => rest.next().unwrap_or_default(),
                None => {
                    return Err(Error::Usage(format!("`--sweep` takes no `{argument}`, only `--world`")));
                }
            };
            world = match name {
                "sqlite" => Self::Sqlite,
                "postgres" => Self::Postgres,
                _ => {
                    return Err(Error::Usage(format!(
                        "there is no sweep of world `{name}`; known worlds: sqlite, postgres"
                    )));
                }
            };
        }
        Ok(world)
    }
}

/// Runs the crash tests that kill at all points: for Postgres those that are ignored by default.
fn sweep(root: &Path, world: SweepWorld) -> Result<()> {
    let setup = Setup::begin(if world == SweepWorld::Postgres { Servers::All } else { Servers::None })?;
    let mut command = cargo(root);
    command.args(["test", "--package", "outlast", "--features", "postgres", "--test", "crash", "--"]);
    match world {
        SweepWorld::Sqlite => command.args(["sweep::", "--skip", "on_postgres", "--include-ignored"]),
        SweepWorld::Postgres => command.args(["sweep::on_postgres::every_point", "--ignored"]),
    };
    // One test at a time: each has several concurrent processes.
    run(setup.apply(command.args(["--nocapture", "--test-threads", "1"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<SweepWorld> {
        SweepWorld::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_soak_test_of_the_dashboard_takes_minutes() {
        let parse = |line: &str| minutes(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("--dashboard").unwrap(), "10");
        assert_eq!(parse("--dashboard --minutes 3").unwrap(), "3");
        for wrong in ["--dashboard --minutes", "--dashboard --minutes x", "--dashboard --kills 3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_sweep_is_of_one_world() {
        assert_eq!(parse("--sweep").unwrap(), SweepWorld::Sqlite);
        assert_eq!(parse("--sweep --world postgres").unwrap(), SweepWorld::Postgres);
        assert_eq!(parse("--world=postgres --sweep").unwrap(), SweepWorld::Postgres);
    }

    #[test]
    fn unknown_arguments_of_a_sweep_are_refused() {
        for (line, said) in [
            ("--sweep --world oracle", "known worlds: sqlite, postgres"),
            ("--sweep --world", "known worlds: sqlite, postgres"),
            ("--sweep --kills 3", "takes no `--kills`, only `--world`"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(matches!(error, Error::Usage(_)) && error.to_string().contains(said), "{error}");
        }
    }
}
