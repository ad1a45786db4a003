//! The tasks of the repository: testing, benchmarks and checks, with one command each.
//!
//! `cargo xtask help` lists them. Only the standard library is used, here and in `throwaway`, so that this builds in seconds.

mod api;
mod baseline;
mod bench;
mod cargo;
mod chaos;
mod ci;
mod error;
mod fuzz_api;
mod package;
mod pictures;
mod postgres;
mod program;
mod report;
mod setup;
mod sim;
mod test;
mod tidy;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::error::{Error, Result};

/// A task: its name, its help text, and its function of the root folder and the arguments.
struct Task {
    name: &'static str,
    help: &'static str,
    run: fn(&Path, &[String]) -> Result<()>,
}

const TASKS: &[Task] = &[
    Task { name: "test", help: test::HELP, run: test::run },
    Task { name: "sim", help: sim::HELP, run: sim::run },
    Task { name: "bench", help: bench::HELP, run: bench::run },
    Task { name: "baseline", help: baseline::HELP, run: baseline::run },
    Task { name: "chaos", help: chaos::CHAOS_HELP, run: chaos::chaos },
    Task { name: "soak", help: chaos::SOAK_HELP, run: chaos::soak },
    Task { name: "fuzz-api", help: fuzz_api::HELP, run: fuzz_api::run },
    Task { name: "ci", help: ci::HELP, run: ci::run },
    Task { name: "package", help: package::HELP, run: package::run },
    Task { name: "pictures", help: pictures::HELP, run: pictures::run },
    Task { name: "api", help: api::HELP, run: api::run },
    Task { name: "postgres", help: postgres::HELP, run: postgres::run },
    Task { name: "tidy", help: tidy::HELP, run: tidy::run },
    Task { name: "help", help: "help\n    Print this text.", run: |_, _| help() },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.exit_code()
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else { return help() };
    if matches!(name.as_str(), "--help" | "-h") {
        return help();
    }
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        let known: Vec<&str> = TASKS.iter().map(|task| task.name).collect();
        return Err(Error::Usage(format!("unknown command `{name}`; known commands: {}", known.join(", "))));
    };
    (task.run)(&root(), rest)
}

#[allow(clippy::unnecessary_wraps, reason = "a task like the others")]
fn help() -> Result<()> {
    println!("Usage: cargo xtask COMMAND [ARGUMENTS]\n\nCommands:");
    for task in TASKS {
        println!("\n  {}", task.help.replace('\n', "\n  "));
    }
    Ok(())
}

/// The root of the workspace.
fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let xtask = xtask.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    xtask.parent().map_or_else(|| xtask.clone(), Path::to_path_buf)
}
