//! The program as a caller sees it, without measuring anything.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_outlast-bench")).args(arguments).output().expect("the program starts")
}

#[test]
fn what_is_not_known_ends_with_code_2_and_says_what_is() {
    for (arguments, said) in [
        (["--only", "B99"], "there are B1, B2, B3, B4, B5, B6, B6M, B7, B8, B9, B10, B11, BF, BM, BS, BW"),
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
    for id in
        ["B1", "B2", "B3", "B4", "B5", "B6", "B6M", "B7", "B8", "B9", "B10", "B11", "BF", "BM", "BS", "BW"]
    {
        assert!(help.contains(&format!("\n  {id:<3}  ")), "{help}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_told() {
    let answer = bench(&["--only", "BM", "--folder", "/proc/no-such-place"]);
    let error = String::from_utf8(answer.stderr).unwrap();
    assert_eq!(answer.status.code(), Some(1), "{error}");
    assert!(error.contains("the folder `/proc/no-such-place` cannot be made"), "{error}");
}
