//! Tests of Postgres servers and pgbouncer.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use throwaway::{Address, PoolMode, Postgres, pgbouncer, wait_until};

fn start() -> Postgres {
    Postgres::builder().quick().start().unwrap()
}

fn psql(programs: &Path, url: &str, sql: &str) -> Command {
    let mut command = Command::new(programs.join("psql"));
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, url]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn try_ask(server: &Postgres, url: &str, sql: &str) -> Result<String, String> {
    let output = psql(server.programs(), url, sql).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn ask(server: &Postgres, sql: &str) -> String {
    try_ask(server, &server.url(), sql).unwrap()
}

#[test]
fn a_server_accepts_only_clients_with_the_password() {
    let server = start();
    assert_eq!(ask(&server, "SELECT usesuper FROM pg_user WHERE usename = current_user"), "t");
    assert_eq!(ask(&server, "SHOW listen_addresses"), "127.0.0.1");
    assert_eq!(ask(&server, "SHOW unix_socket_directories"), server.folder().display().to_string());
    let wrong = Address { password: "guess".into(), ..server.address().clone() };
    let failure = try_ask(&server, &wrong.to_string(), "SELECT 1").unwrap_err();
    assert!(failure.contains("password authentication failed"), "{failure}");
    let Address { port, user, database, .. } = server.address();
    let socket = format!("postgres://{user}@/{database}?host={}&port={port}", server.folder().display());
    let output = psql(server.programs(), &socket, "SELECT 1").env("PGPASSWORD", "guess").output().unwrap();
    assert!(!output.status.success(), "the socket is no way round the password");
}

#[test]
fn a_server_does_not_run_as_root_and_owns_its_data() {
    let server = start();
    let owner = std::fs::metadata(server.folder()).unwrap();
    assert_ne!(owner.uid(), 0);
    assert_eq!(owner.mode() & 0o777, 0o700);
    let pid = server.pid().unwrap();
    assert_eq!(
        ask(&server, "SELECT pg_read_file('postmaster.pid')").lines().next().unwrap(),
        pid.to_string()
    );
}

#[test]
fn settings_of_the_caller_apply_and_the_default_is_durable() {
    let server = Postgres::builder().setting("max_connections", "23").start().unwrap();
    assert_eq!(ask(&server, "SHOW max_connections"), "23");
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        assert_eq!(ask(&server, &format!("SHOW {setting}")), "on", "{setting}");
    }
    assert_eq!(ask(&start(), "SHOW fsync"), "off");
}

#[test]
fn an_invalid_setting_is_an_error_with_the_servers_log() {
    let error = Postgres::builder().setting("fsync", "perhaps").start().unwrap_err().to_string();
    assert!(error.contains("Postgres ended with") && error.contains("\"fsync\""), "{error}");
}

#[test]
fn what_was_committed_survives_a_crash_and_a_stop() {
    let mut server = start();
    let url = server.url();
    ask(&server, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)");
    server.kill().unwrap();
    assert!(server.pid().is_none() && try_ask(&server, &url, "SELECT 1").is_err());
    server.start().unwrap();
    assert_eq!(server.url(), url);
    assert!(server.log().contains("not properly shut down"), "{}", server.log());
    ask(&server, "INSERT INTO kept VALUES (2)");
    server.stop().unwrap();
    assert!(try_ask(&server, &url, "SELECT 1").is_err());
    server.start().unwrap();
    assert!(!server.log().rsplit("starting PostgreSQL").next().unwrap().contains("not properly shut down"));
    assert_eq!(ask(&server, "SELECT sum(n) FROM kept"), "3");
    // A second call does nothing.
    let pid = server.pid();
    server.start().unwrap();
    assert_eq!(server.pid(), pid);
}

#[test]
fn active_clients_delay_neither_crash_nor_stop() {
    let mut server = start();
    for number in 1..=4 {
        let mut clients: Vec<_> = (0..4)
            .map(|_| psql(server.programs(), &server.url(), "SELECT pg_sleep(1000)").spawn().unwrap())
            .collect();
        wait_until("the queries of all clients", || {
            let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(1000)%'";
            (ask(&server, running) == "5").then_some(())
        });
        if number % 2 == 0 {
            server.stop().unwrap()
        } else {
            server.kill().unwrap()
        }
        server.start().unwrap();
        assert_eq!(ask(&server, "SELECT 1"), "1");
        for client in &mut clients {
            assert!(!client.wait().unwrap().success());
        }
    }
}

#[test]
fn a_dropped_server_ends_and_its_folder_is_removed() {
    for crashed in [false, true] {
        let mut server = start();
        let (address, folder) = (server.address().clone(), server.folder().to_path_buf());
        assert!(folder.exists() && TcpStream::connect((&*address.host, address.port)).is_ok());
        if crashed {
            server.kill().unwrap();
        }
        drop(server);
        assert!(TcpStream::connect((&*address.host, address.port)).is_err());
        wait_until("the removal of the folder", || (!folder.exists()).then_some(()));
    }
}

#[test]
fn two_servers_are_independent() {
    let (first, second) = (start(), start());
    ask(&first, "CREATE TABLE here (n int)");
    assert_ne!(first.url(), second.url());
    assert!(try_ask(&second, &second.url(), "SELECT * FROM here").unwrap_err().contains("does not exist"));
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error() {
    let error = Postgres::builder().within("/proc/no-such-place").start().unwrap_err().to_string();
    assert!(error.contains("no folder for postgres can be created in `/proc/no-such-place`"), "{error}");
}

#[test]
fn tests_share_one_server_in_a_process() {
    let url = throwaway::postgres::for_tests();
    assert!(std::ptr::eq(url, throwaway::postgres::for_tests()));
    assert!(url.parse::<Address>().is_ok(), "{url}");
}

#[test]
fn a_pgbouncer_in_front_shares_connections_by_transaction() {
    let server = start();
    let bouncer = pgbouncer(&server.url(), PoolMode::Transaction).unwrap();
    assert_ne!(bouncer.url(), server.url());
    assert_eq!(try_ask(&server, &bouncer.url(), "SELECT 1").unwrap(), "1");
    // Two clients, one after the other, share one server connection.
    let backend = || try_ask(&server, &bouncer.url(), "SELECT pg_backend_pid()").unwrap();
    assert_eq!(backend(), backend());
    let console = Address { database: "pgbouncer".into(), ..bouncer.address().clone() };
    let settings = try_ask(&server, &console.to_string(), "SHOW CONFIG").unwrap();
    assert!(settings.contains("pool_mode|transaction"), "{settings}");
}
