//! `cargo xtask bench`: the benchmark program, built for speed.

use std::path::Path;

use crate::baseline;
use crate::error::{Error, Result};
use crate::program::become_program;

/// What `help` says.
pub(crate) const HELP: &str = "\
bench [--against REVISION] [ARGUMENTS]
    Build the benchmark in release mode and run it with the arguments (`bench --help` lists them).
    Progress goes to the standard error, so that the output of `--json` is JSON alone. With `--against`,
    build the benchmark of that git revision too, measure both in turns, and compare their medians.";

const PACKAGE: &str = "outlast-bench";

/// Builds the benchmark and becomes it.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let (revision, mut arguments) = split(arguments)?;
    if let Some(revision) = revision {
        let program = baseline::build(root, &revision, PACKAGE, PACKAGE)?;
        arguments.extend(["--against".to_owned(), program.to_string_lossy().into_owned()]);
    }
    become_program(root, PACKAGE, &arguments)
}

/// The revision to compare with, if one is given, and the other arguments.
fn split(arguments: &[String]) -> Result<(Option<String>, Vec<String>)> {
    let (mut revision, mut others) = (None, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let given = match argument.strip_prefix("--against=") {
            Some(given) => Some(given.to_owned()),
            None if argument == "--against" => rest.next().cloned(),
            None => {
                others.push(argument.clone());
                continue;
            }
        };
        let given = given.filter(|given| !given.is_empty());
        let given = given.ok_or_else(|| Error::Usage("`--against` takes a git revision".into()))?;
        if revision.replace(given).is_some() {
            return Err(Error::Usage("`--against` takes one git revision".into()));
        }
    }
    Ok((revision, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(Option<String>, Vec<String>)> {
        split(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_revision_is_taken_out_and_all_else_is_passed_on() {
        for line in ["--only B2 --against v1 --json", "--against=v1 --only B2 --json"] {
            let (revision, others) = parse(line).unwrap();
            assert_eq!(revision.as_deref(), Some("v1"), "{line}");
            assert_eq!(others, ["--only", "B2", "--json"], "{line}");
        }
        assert_eq!(parse("--rounds 1").unwrap().0, None);
    }

    #[test]
    fn against_takes_one_revision() {
        for line in ["--against", "--against=", "--against a --against b"] {
            assert!(matches!(parse(line), Err(Error::Usage(_))), "{line}");
        }
    }
}
