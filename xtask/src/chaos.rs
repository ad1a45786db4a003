//! `cargo xtask chaos` and `cargo xtask soak`: the program that breaks the engine on purpose, and the sweep.

use std::path::Path;

use crate::baseline;
use crate::cargo::{cargo, run};
use crate::error::{Error, Result};
use crate::program::become_program;
use crate::setup::{Servers, Setup};

/// What `help` says of the kill loop, the power cut, the cut connections and the sweep.
pub(crate) const CHAOS_HELP: &str = "\
chaos [--world sqlite|postgres] [--kills N] [--restarts M] [--seed S] [--old REVISION] [--power|--cut|--sweep] [ARGUMENTS]
    Kill and freeze workers on one world again and again (200 kills unless told), restart Postgres
    meanwhile, and check that nothing is lost or doubled. With `--old`, workers and a client of the
    program as it was at that git revision take part: first alone, then beside those of this tree,
    which migrate the schema under load, and alone again as after a rollback. With `--power`, cut the power instead; with
    `--cut`, cut connections to Postgres after every byte of a call. Built in release mode;
    `chaos --help` lists the arguments. With `--sweep`, kill a program at every one of its commit
    points, and at every one of its recovery.";

/// What `help` says of the soak.
pub(crate) const SOAK_HELP: &str = "\
soak [--minutes N] [ARGUMENTS]
    Mixed load for so long (30 minutes unless told), a line every ten seconds, and a verdict on
    memory, descriptors, files and latency. Ends with code 1 when one of them grew.";

const PACKAGE: &str = "outlast-chaos";

/// Builds the program and becomes it, or runs the sweep.
pub(crate) fn chaos(root: &Path, arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| argument == "--sweep") {
        return sweep(root, Swept::parse(arguments)?);
    }
    let (old, mut arguments) = baseline::take_revision(arguments, "--old")?;
    if let Some(old) = old {
        // What a failed run says to repeat it names the program.
        let is_program = Path::new(&old).is_file();
        let program = if is_program { old.into() } else { baseline::build(root, &old, PACKAGE, PACKAGE)? };
        arguments.extend(["--old".to_owned(), program.to_string_lossy().into_owned()]);
    }
    become_program(root, PACKAGE, &arguments)
}

/// Builds the program and becomes its soak.
pub(crate) fn soak(root: &Path, arguments: &[String]) -> Result<()> {
    let arguments: Vec<String> =
        std::iter::once("soak".to_owned()).chain(arguments.iter().cloned()).collect();
    become_program(root, PACKAGE, &arguments)
}

/// The world whose sweep is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swept {
    Sqlite,
    Postgres,
}

impl Swept {
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
                        "there is no sweep of world `{name}`; known are: sqlite, postgres"
                    )));
                }
            };
        }
        Ok(world)
    }
}

/// Runs the crash tests that sweep all points: for Postgres those that the tests leave out.
fn sweep(root: &Path, world: Swept) -> Result<()> {
    let setup = Setup::begin(if world == Swept::Postgres { Servers::All } else { Servers::None })?;
    let mut command = cargo(root);
    command.args(["test", "--package", "outlast", "--features", "postgres", "--test", "crash", "--"]);
    match world {
        Swept::Sqlite => command.args(["sweep::", "--skip", "on_postgres", "--include-ignored"]),
        Swept::Postgres => command.args(["sweep::on_postgres::every_point", "--ignored"]),
    };
    // One after another: each has several processes at the same time.
    run(setup.apply(command.args(["--nocapture", "--test-threads", "1"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Swept> {
        Swept::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_sweep_is_of_one_world() {
        assert_eq!(parse("--sweep").unwrap(), Swept::Sqlite);
        assert_eq!(parse("--sweep --world postgres").unwrap(), Swept::Postgres);
        assert_eq!(parse("--world=postgres --sweep").unwrap(), Swept::Postgres);
    }

    #[test]
    fn what_a_sweep_does_not_know_is_refused() {
        for (line, said) in [
            ("--sweep --world oracle", "known are: sqlite, postgres"),
            ("--sweep --world", "known are: sqlite, postgres"),
            ("--sweep --kills 3", "takes no `--kills`, only `--world`"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(matches!(error, Error::Usage(_)) && error.to_string().contains(said), "{error}");
        }
    }
}
