//! The program that `outlast new` writes compiles, and its folder is complete.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

// Only `main` uses what it contains, and a test does not call it.
#[allow(dead_code)]
#[path = "../templates/main.rs"]
mod template;

use std::process::Command;

#[test]
fn a_new_project_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let call =
        || Command::new(env!("CARGO_BIN_EXE_outlast")).args(["new", "my-app"]).current_dir(&folder).output();
    assert!(call().unwrap().status.success());
    for file in ["Cargo.toml", "src/main.rs", "README.md", ".gitignore"] {
        assert!(folder.path().join("my-app").join(file).is_file(), "{file}");
    }
    assert_eq!(call().unwrap().status.code(), Some(2), "the folder is not empty");
}

#[test]
fn completions_and_manual_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let call = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_outlast"))
            .args(arguments)
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(call(&["completions", shell]).contains("outlast"), "{shell}");
    }
    assert!(call(&["man"]).contains(".TH"));
    call(&["man", "--to", "man"]);
    assert!(folder.path().join("man/outlast-run-cancel.1").is_file());
}
