//! A throwaway server ends with its owner.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use throwaway::{Address, wait_until};

/// Starts a process that owns a server in a new temporary folder; returns the server's address too.
fn owner(name: &str) -> (Child, Address, PathBuf) {
    // A short path for the server's socket, and open to the server's account.
    let folder = std::env::temp_dir().join(format!("outlast-owner-{name}-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    open_to_all(&folder);
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("postgres").env("TMPDIR", &folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut owner = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("OUTLAST_TEST_POSTGRES=").expect("the URL of the server");
    let address: Address = url.parse().unwrap();
    assert!(listens(&address) && has_entries(&folder));
    (owner, address, folder)
}

fn open_to_all(folder: &PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
}

fn listens(address: &Address) -> bool {
    TcpStream::connect((&*address.host, address.port)).is_ok()
}

fn has_entries(folder: &PathBuf) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_some()
}

#[test]
fn a_server_ends_when_its_owner_is_killed() {
    let (mut owner, address, folder) = owner("killed");
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until("the end of the server", || (!listens(&address) && !has_entries(&folder)).then_some(()));
    std::fs::remove_dir(folder).unwrap();
}

#[test]
fn a_server_ends_with_its_owners_input() {
    let (mut owner, address, folder) = owner("input");
    drop(owner.stdin.take());
    assert!(owner.wait().unwrap().success());
    assert!(!listens(&address) && !has_entries(&folder));
    std::fs::remove_dir(folder).unwrap();
}

#[test]
fn a_command_gets_the_url_of_the_server() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["postgres", "sh", "-c", r#"echo "$OUTLAST_TEST_POSTGRES"; exit 3"#]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let url = String::from_utf8(output.stdout).unwrap();
    let address: Address = url.trim().parse().unwrap();
    assert!(!listens(&address));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("exit status: 3"), "{error}");
}
