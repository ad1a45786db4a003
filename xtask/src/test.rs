//! `cargo xtask test`: starts the required servers, and runs all tests.

use std::path::Path;

use crate::cargo::{cargo, has_nextest, run as run_command};
use crate::error::{Error, Result};
use crate::report::Report;
use crate::setup::{Servers, Setup};
use crate::tidy;

/// The text of `help`.
pub(crate) const HELP: &str = "\
test [--only STAGE] [CARGO TEST ARGUMENTS]
Start the required servers, then run all tests, in stages:
      tidy      the checks of `cargo xtask tidy`
      tests     unit and integration tests of the workspace
      doctests  the code in the documentation
      examples  the example programs
    The first stage that fails ends the run. Arguments such as `-p outlast-core` or a part of a
    test's name go to the stage of `--only`, or else to `tests`, and only that stage runs.";

/// The examples that are executed, with their arguments. Examples that write files are executed in temporary folders by
/// the tests of their package.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("hooks", &[]),
    ("parallel", &[]),
    ("quickstart", &["--help"]),
    ("retries", &[]),
    ("testing", &[]),
    ("versions", &[]),
];

/// All packages. The features of a package that have tests are on when it is tested, by its dev-dependency on itself.
const WHOLE_WORKSPACE: [&str; 1] = ["--workspace"];

/// The packages whose tests use the shared servers. Others start their own, or need none.
const USERS_OF_SERVERS: &[&str] = &["outlast", "outlast-chaos", "outlast-postgres", "throwaway"];

/// The package with the examples.
const EXAMPLES_PACKAGE: &str = "outlast-examples";

/// Runs the selected tests, and prints the duration of each stage.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if matches!(arguments, [flag] if flag == "--help" || flag == "-h") {
        println!("Usage: cargo xtask {HELP}");
        return Ok(());
    }
    let request = Request::parse(arguments)?;
    let mut report = Report::default();
    stages(root, &request, &mut report)?;
    report.print();
    Ok(())
}

/// Runs the stages of the request.
pub(crate) fn stages(root: &Path, request: &Request, report: &mut Report) -> Result<()> {
    if request.wants(Stage::Tidy) {
        report.stage(Stage::Tidy.name(), || tidy::check(root))?;
    }
    let setup = report.stage("set-up", || Setup::begin(request.servers()))?;
    if request.wants(Stage::Tests) {
        report.stage(Stage::Tests.name(), || tests(root, &setup, &request.arguments))?;
    }
    if request.wants(Stage::Doctests) {
        report.stage(Stage::Doctests.name(), || doctests(root, &setup, &request.arguments))?;
    }
    if request.wants(Stage::Examples) {
        report.stage(Stage::Examples.name(), || examples(root, &setup))?;
    }
    Ok(())
}

fn tests(root: &Path, setup: &Setup, arguments: &[String]) -> Result<()> {
    let mut command = cargo(root);
    if has_nextest(root) {
        command.args(["nextest", "run"]);
    } else {
        // Without doctests, which are a stage of their own.
        command.args(["test", "--tests"]);
    }
    if !chooses_packages(arguments) {
        command.args(WHOLE_WORKSPACE);
    }
    if arguments.is_empty() {
        // A complete run reports all failures.
        command.arg("--no-fail-fast");
    }
    let answer = run_command(setup.apply(command.args(arguments)));
    // Reported even if the tests failed.
    setup.check_skipped().and(answer)
}

fn doctests(root: &Path, setup: &Setup, arguments: &[String]) -> Result<()> {
    let mut command = cargo(root);
    command.args(["test", "--doc"]);
    if !chooses_packages(arguments) {
        command.args(WHOLE_WORKSPACE);
    }
    run_command(setup.apply(command.args(arguments)))
}

fn examples(root: &Path, setup: &Setup) -> Result<()> {
    for (name, arguments) in EXAMPLES {
        let mut command = cargo(root);
        command.args(["run", "--quiet", "--package", EXAMPLES_PACKAGE, "--example", name, "--"]);
        run_command(setup.apply(command.args(*arguments)))?;
    }
    Ok(())
}

/// Whether the arguments select packages.
fn chooses_packages(arguments: &[String]) -> bool {
    !packages(arguments).is_empty()
}

/// The packages that the arguments select.
fn packages(arguments: &[String]) -> Vec<&str> {
    let mut words = arguments.iter().map(String::as_str).take_while(|argument| *argument != "--");
    let mut packages = Vec::new();
    while let Some(word) = words.next() {
        if word == "-p" || word == "--package" {
            packages.push(words.next().unwrap_or_default());
        } else if let Some(name) = word.strip_prefix("--package=").or_else(|| word.strip_prefix("-p")) {
            packages.push(name);
        }
    }
    packages
}

/// A stage, which can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Tidy,
    Tests,
    Doctests,
    Examples,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Tidy, Self::Tests, Self::Doctests, Self::Examples];

    fn name(self) -> &'static str {
        match self {
            Self::Tidy => "tidy",
            Self::Tests => "tests",
            Self::Doctests => "doctests",
            Self::Examples => "examples",
        }
    }

    fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::Usage(format!(
                "unknown stage `{name}`; known stages: {known}; to run the tests of that name, omit `--only`"
            ))
        })
    }

    fn takes_arguments(self) -> bool {
        matches!(self, Self::Tests | Self::Doctests)
    }
}

/// The selected tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    only: Option<Stage>,
    arguments: Vec<String>,
}

impl Request {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut request = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--only" {
                let name = rest.next().ok_or_else(|| Error::Usage("`--only` needs a stage".into()))?;
                request.only = Some(Stage::parse(name)?);
            } else if let Some(name) = argument.strip_prefix("--only=") {
                request.only = Some(Stage::parse(name)?);
            } else if argument == "--" {
                request.arguments.push(argument.clone());
                request.arguments.extend(rest.by_ref().cloned());
            } else {
                request.arguments.push(argument.clone());
            }
        }
        match request.only {
            Some(stage) if !stage.takes_arguments() && !request.arguments.is_empty() => Err(Error::Usage(
                format!("stage `{}` takes no arguments: {}", stage.name(), request.arguments.join(" ")),
            )),
            _ => Ok(request),
        }
    }

    /// The servers that the tests of this request need.
    fn servers(&self) -> Servers {
        let packages = packages(&self.arguments);
        let used = packages.is_empty() || packages.iter().any(|name| USERS_OF_SERVERS.contains(name));
        let tested = self.wants(Stage::Tests) || self.wants(Stage::Doctests);
        if used && tested { Servers::All } else { Servers::None }
    }

    fn wants(&self, stage: Stage) -> bool {
        match self.only {
            Some(only) => only == stage,
            None => self.arguments.is_empty() || stage == Stage::Tests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request> {
        Request::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    fn wanted(line: &str) -> Vec<&'static str> {
        let request = parse(line).unwrap();
        Stage::ALL.into_iter().filter(|stage| request.wants(*stage)).map(Stage::name).collect()
    }

    #[test]
    fn without_arguments_everything_runs() {
        assert_eq!(wanted(""), ["tidy", "tests", "doctests", "examples"]);
    }

    #[test]
    fn arguments_narrow_the_run_to_one_stage() {
        assert_eq!(wanted("-p outlast-core retry"), ["tests"]);
        assert_eq!(wanted("--only doctests -p outlast"), ["doctests"]);
        assert_eq!(wanted("--only=tidy"), ["tidy"]);
        assert_eq!(parse("--only tests -- --only").unwrap().arguments, ["--", "--only"]);
    }

    #[test]
    fn an_invalid_request_is_refused() {
        for (line, reason) in [
            ("--only", "needs a stage"),
            ("--only retry", "known stages: tidy, tests, doctests, examples"),
            ("--only tidy -p outlast", "stage `tidy` takes no arguments: -p outlast"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(matches!(error, Error::Usage(_)) && error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn servers_are_started_if_a_test_may_use_them() {
        for (line, servers) in [
            ("", Servers::All),
            ("retry", Servers::All),
            ("-p outlast-core -p outlast-postgres", Servers::All),
            ("-p outlast-core retry", Servers::None),
            ("--package=outlast-sqlite", Servers::None),
            ("--only examples", Servers::None),
        ] {
            assert_eq!(parse(line).unwrap().servers(), servers, "{line}");
        }
    }

    #[test]
    fn chosen_packages_replace_the_workspace() {
        let chooses = |line: &str| chooses_packages(&parse(line).unwrap().arguments);
        assert!(chooses("-p outlast") && chooses("-poutlast") && chooses("--package=outlast"));
        assert!(!chooses("retry") && !chooses("retry -- -p"));
    }
}
