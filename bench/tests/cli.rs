//! The command line of the program, without measurements.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_outlast-bench")).args(arguments).output().expect("the program starts")
}

#[test]
fn unknown_arguments_end_with_code_2_and_list_the_known_ones() {
    for (arguments, said) in [
        (["--only", "B99"], "there are throughput (B1), step-latency (B2), "),
        (["--world", "oracle"], "[possible values: sqlite, postgres, memory]"),
        (["--rounds", "0"], "0 is not in 1..=1000"),
    ] {
        let answer = bench(&arguments);
        let error = String::from_utf8(answer.stderr).unwrap();
        assert_eq!(answer.status.code(), Some(2), "{error}");
        assert!(answer.stdout.is_empty() && error.contains(said), "{error}");
    }
}

#[test]
fn help_lists_the_workloads() {
    let answer = bench(&["--help"]);
    let help = String::from_utf8(answer.stdout).unwrap();
    assert!(answer.status.success());
    for id in [
        "B1", "B2", "B3", "B4", "B5", "B6", "B6M", "B7", "B8", "B9", "B10", "B11", "BF", "BI", "BM", "BS",
        "BW",
    ] {
        assert!(help.contains(&format!("\n  {id:<3}  ")), "{help}");
    }
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error() {
    let answer = bench(&["--only", "BM", "--folder", "/proc/no-such-place"]);
    let error = String::from_utf8(answer.stderr).unwrap();
    assert_eq!(answer.status.code(), Some(1), "{error}");
    assert!(error.contains("the folder `/proc/no-such-place` cannot be created"), "{error}");
}
