//! Tests of the command line: output and exit codes.
#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn xtask(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).output().unwrap()
}

/// Creates a tree for one test.
fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&root);
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

#[test]
fn every_violation_is_printed_with_its_line() {
    let long = format!("fn long() {{\n{}}}\n", "    work();\n".repeat(60));
    let root = tree(
        "violations",
        &[
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\npublish = false\n"),
            ("crates/a/src/lib.rs", &format!("{long}fn unwritten() {{ {}) }}\n", concat!("todo", "!("))),
            ("crates/a/src/high.rs", &"\n".repeat(701)),
            ("crates/a/tests/long.rs", &long),
            ("crates/a/src/claim.sql", "SELECT 1;\n"),
            ("ARCHITECTURE.md", "The claim is in `src/claim.sql`, the rest in `gone.rs`.\n"),
            ("README.md", "See [the guide](docs/guide.md).\n"),
        ],
    );
    let output = xtask(&["tidy", root.to_str().unwrap()]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let places: Vec<&str> = printed.lines().map(|line| line.split(": ").next().unwrap()).collect();
    let expected = [
        "ARCHITECTURE.md:1",
        "README.md:1",
        "crates/a/Cargo.toml:1",
        "crates/a/Cargo.toml:1",
        "crates/a/src/claim.sql:1",
        "crates/a/src/high.rs:701",
        "crates/a/src/lib.rs:1",
        "crates/a/src/lib.rs:63",
    ];
    assert_eq!(places, expected, "{printed}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("8 violations"), "{message}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_tidy_tree_passes_quietly() {
    let root = tree("tidy", &[("README.md", "See [the code](src/lib.rs).\n"), ("src/lib.rs", "fn f() {}\n")]);
    let output = xtask(&["tidy", root.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn an_unknown_command_names_the_known_ones() {
    let output = xtask(&["tset"]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains(
            "unknown command `tset`; known commands: test, sim, bench, baseline, chaos, soak, fuzz-api, ci, package, pictures, api, postgres, tidy, help"
        ),
        "{message}"
    );
}

#[test]
fn help_is_printed_without_a_command_and_on_request() {
    for arguments in [&[][..], &["help"], &["--help"], &["-h"]] {
        let output = xtask(arguments);
        assert!(output.status.success(), "{arguments:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("test [--only STAGE]") && text.contains("bench [--against REVISION]"),
            "{text}"
        );
    }
}

#[test]
fn invalid_arguments_are_refused() {
    for arguments in
        [&["test", "--only", "nothing"][..], &["ci", "now"], &["tidy", "a", "b"], &["tidy", "-x"]]
    {
        let output = xtask(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
