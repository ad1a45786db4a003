//! A throwaway server and the death of its owner.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use throwaway::Address;

/// A process that owns a server, in a temporary folder of its own, and where the server is.
fn owner(name: &str) -> (Child, Address, PathBuf) {
    // Short, for the sake of the server's socket; open, for the sake of the server's account.
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
    assert!(listens(&address) && holds_something(&folder));
    (owner, address, folder)
}

fn open_to_all(folder: &PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
}

fn listens(address: &Address) -> bool {
    TcpStream::connect((&*address.host, address.port)).is_ok()
}

fn holds_something(folder: &PathBuf) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_some()
}

#[test]
fn a_server_ends_when_its_owner_is_killed() {
    let (mut owner, address, folder) = owner("killed");
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until(|| !listens(&address) && !holds_something(&folder));
    std::fs::remove_dir(folder).unwrap();
}

#[test]
fn a_server_ends_with_its_owners_input() {
    let (mut owner, address, folder) = owner("input");
    drop(owner.stdin.take());
    assert!(owner.wait().unwrap().success());
    assert!(!listens(&address) && !holds_something(&folder));
    std::fs::remove_dir(folder).unwrap();
}

#[test]
fn a_command_is_told_where_the_server_is() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["postgres", "sh", "-c", r#"echo "$OUTLAST_TEST_POSTGRES"; exit 3"#]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let url = String::from_utf8(output.stdout).unwrap();
    let address: Address = url.trim().parse().unwrap();
    assert!(!listens(&address));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("exit status: 3"), "{error}");
}

#[allow(clippy::disallowed_methods, reason = "a process outside lives in real time")]
fn wait_until(condition: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !condition() {
        assert!(begin.elapsed().as_secs() < 60, "waited for a minute in vain");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
