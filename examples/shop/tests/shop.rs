//! The shop shows living runs as soon as it prints its address.

#![allow(clippy::unwrap_used, reason = "a test fails when its preparation fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The process, which ends with the test.
struct Shop(Child);

impl Drop for Shop {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("the shop can be stopped");
    }
}

/// The text of a page.
fn get(host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_shop_shows_living_runs_when_it_prints_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
    command.arg(folder.path().join("shop.db")).args(["--port", "0"]).stdout(Stdio::piped());
    let mut shop = Shop(command.spawn().unwrap());
    // Only the first line is read, and then nobody reads any more: the shop goes on all the same.
    let mut line = String::new();
    BufReader::new(shop.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let host = line.split("http://").nth(1).unwrap().trim().trim_end_matches('/').to_owned();

    let page = get(&host, "/runs");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for text in ["import-spring", "order-10", "rating-1", "gift-3"] {
        assert!(page.contains(text), "{text}");
    }
    // The worker is at work: sooner or later an order completes.
    while !get(&host, "/runs?status=completed").contains("data-status=\"completed\"") {}
}
