//! Tests that cannot run on this machine.
//!
//! Rust's test runner decides before it starts a test whether the test is ignored, so a test that finds out later can only
//! return. It is then counted as passed. So that this is not overlooked, it [`report`]s that it was skipped, and
//! `cargo xtask test` fails if any test did.

use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The environment variable with the path of a file to which skipped tests are appended, one per line.
pub const VARIABLE: &str = "OUTLAST_SKIPPED_TESTS";

/// Reports that a test is skipped: on the standard error output, which the test runner does not capture, and in the file
/// that [`VARIABLE`] names.
///
/// # Panics
///
/// When the file cannot be written.
pub fn report(test: &str, reason: &str) {
    let line = line(test, reason);
    // Not with `eprintln!`, whose output is captured and discarded if the test passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(VARIABLE)
        && let Err(error) = append(Path::new(&path), &line)
    {
        panic!("a skipped test cannot be reported in `{}`: {error}", Path::new(&path).display());
    }
}

fn line(test: &str, reason: &str) -> String {
    // The name is that of a function in the test.
    let test = test.trim_end_matches("::here").trim_end_matches("::{{closure}}");
    format!("skipped {test}: {reason}\n")
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    File::options().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_contains_the_test_and_the_reason() {
        assert_eq!(line("a::b::{{closure}}::here", "no server"), "skipped a::b: no server\n");
        assert_eq!(line("a::b::here", "no server"), "skipped a::b: no server\n");
    }

    #[test]
    fn reports_are_appended() {
        let path = std::env::temp_dir().join(format!("outlast-skipped-test-{}", std::process::id()));
        append(&path, "one\n").unwrap();
        append(&path, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        std::fs::remove_file(path).unwrap();
    }
}
