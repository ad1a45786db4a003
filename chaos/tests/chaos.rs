//! The command line of the program, with short runs of each task.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::process::{Command, Output};

fn chaos(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_outlast-chaos")).args(arguments).output();
    output.expect("the program starts")
}

fn succeed(arguments: &[&str]) -> String {
    let answer = chaos(arguments);
    let error = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert!(answer.status.success(), "{arguments:?} ended with {}:\n{error}", answer.status);
    String::from_utf8(answer.stdout).expect("a table is text")
}

#[test]
fn after_20_kills_every_run_has_ended_and_every_effect_has_happened_once() {
    // Without a seed: a random one, which is printed.
    let table = succeed(&["--kills", "20"]);
    assert!(table.contains("every effect happened once") && table.contains("20 ("), "{table}");
}

/// Writes a copy of the program with another build id: `cargo xtask chaos --old` takes a real older build.
fn write_another_build(path: &std::path::Path) {
    std::fs::copy(env!("CARGO_BIN_EXE_outlast-chaos"), path).unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    // A note with a build id: the length of its owner's name, its own length, type 3, the owner, the id.
    let is_build_id = |note: &[u8]| {
        note.starts_with(&[4, 0, 0, 0]) && note[5..12] == [0, 0, 0, 3, 0, 0, 0] && note.ends_with(b"GNU\0")
    };
    if let Some(at) = bytes.windows(16).position(is_build_id) {
        bytes[at + 16] ^= 0xff;
    }
    // Without a linker's build id, a hash of the file identifies the build.
    bytes.push(0);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn workers_of_two_builds_share_the_work_and_the_old_ones_finish_it() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old");
    write_another_build(&old);
    let table = succeed(&["--kills", "15", "--old", old.to_str().unwrap()]);
    assert!(table.contains("every effect happened once") && table.contains("15 ("), "{table}");
    for build in ["old build", "new build"] {
        let row = table.lines().find(|line| line.trim_start().starts_with(build)).unwrap();
        assert!(row.contains("runs ended") && !row.contains(" 0 runs ended"), "{table}");
    }
}

#[test]
fn after_10_kills_and_2_restarts_of_postgres_every_effect_has_happened_once() {
    let table = succeed(&["--world", "postgres", "--kills", "10", "--restarts", "2"]);
    assert!(table.contains("every effect happened once") && table.contains("10 ("), "{table}");
    assert!(table.contains("1 fast") && table.contains("1 crash"), "{table}");
}

#[test]
fn a_call_whose_connection_is_cut_is_repeated_and_has_happened_once() {
    let table = succeed(&["--cut", "--offsets", "8"]);
    assert!(table.contains("nothing was lost or duplicated"), "{table}");
    for exchange in ["start ", "send ", "claim ", "beat ", "commit of a step "] {
        let row = table.lines().find(|line| line.trim_start().starts_with(exchange));
        let cuts: u32 = row.unwrap().split_whitespace().find_map(|word| word.parse().ok()).unwrap();
        assert!(cuts >= 24, "{exchange}: {table}");
    }
    assert!(table.contains("runs found by `held`"), "{table}");
}

#[test]
fn after_a_power_cut_everything_acknowledged_is_there_and_is_finished() {
    let table = succeed(&["--power", "--cuts", "4"]);
    assert!(table.contains("nothing acknowledged was lost") && table.contains("4 cuts"), "{table}");
}

/// Tests the checks themselves: when commits do not wait for the disk, the same cuts lose some of them.
#[test]
fn power_cuts_detect_lost_commits_when_commits_do_not_wait_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let answer = chaos(&["--power", "--cuts", "16", "--sync", "normal", "--folder", path]);
    let error = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(1), "{error}");
    assert!(error.contains("but is lost") || error.contains("came before the commit"), "{error}");
    assert!(error.contains("to repeat it: cargo xtask chaos --power --cuts 16"), "{error}");
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 1, "the files are kept");
}

#[test]
fn a_short_soak_ends_by_itself_and_all_its_runs_have_ended() {
    let lines = succeed(&["soak", "--minutes", "0.06", "--tick", "1"]);
    assert!(lines.contains("all ended") && lines.contains("too short for a check of growth"), "{lines}");
}

#[test]
fn invalid_arguments_end_with_code_2() {
    for (arguments, said) in [
        (["--world", "oracle"], "[possible values: sqlite, postgres]"),
        (["--kills", "0"], "0 is not in 1..=100000"),
    ] {
        let answer = chaos(&arguments);
        let error = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(2), "{error}");
        assert!(answer.stdout.is_empty() && error.contains(said), "{error}");
    }
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error() {
    let answer = chaos(&["--kills", "1", "--folder", "/proc/no-such-place"]);
    let error = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot create a folder in `/proc/no-such-place`"), "{error}");
}
