//! The program of the chapter "A web service" runs: requests over TCP, then SIGTERM.

#![allow(clippy::unwrap_used, reason = "a test")]

include!("../web_service.rs");

use rustix::process::{Signal, getpid, kill_process};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PAGE: &str = include_str!("../src/web-service.md");
const PROGRAM: &str = include_str!("../web_service.rs");

#[test]
fn the_page_shows_the_program_that_is_tested() {
    assert!(PAGE.contains(&format!("```rust,no_run\n{PROGRAM}```\n")), "copy web_service.rs into the page");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_start_and_finish_a_run_and_sigterm_stops_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("shop.db").display());
    let world = outlast::open(&url).await.unwrap();
    let client = Client::new(world.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let server = tokio::spawn(serve(world, listener, async move {
        let _ = terminate.recv().await;
    }));

    let order = r#"{"name":"Ada","cents":4200}"#;
    assert_eq!(request(address, "POST", "/orders", None, order).await.0, 400);
    let (status, run) = request(address, "POST", "/orders", Some("a1"), order).await;
    assert_eq!(status, 201, "{run}");
    assert_eq!(request(address, "POST", "/orders", Some("a1"), order).await, (200, run.clone()));
    let other = r#"{"name":"Ada","cents":1}"#;
    assert_eq!(request(address, "POST", "/orders", Some("a1"), other).await.0, 409);

    let path = format!("/orders/{}", run.trim_matches('"'));
    let (status, seen) = request(address, "GET", &path, None, "").await;
    assert!(status == 200 && !seen.contains("completed"), "{status} {seen}");
    let unknown = format!("/orders/{}", client.new_id());
    assert_eq!(request(address, "GET", &unknown, None, "").await.0, 404);

    let waiting = {
        let path = format!("{path}/output");
        tokio::spawn(async move { request(address, "GET", &path, None, "").await })
    };
    let approval = format!("{path}/approval");
    for _ in 0..2 {
        assert_eq!(request(address, "POST", &approval, Some("b1"), "true").await.0, 204);
    }
    assert_eq!(waiting.await.unwrap(), (200, r#""Ada paid 4200""#.to_owned()));

    let mut open = open_request(address, &approval).await;
    kill_process(getpid(), Signal::TERM).unwrap();
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    // The open request keeps the server in its shutdown, and the worker has not been stopped yet.
    let late = client.start(checkout, Order { name: "Bob".to_owned(), cents: 7 }).await.unwrap();
    late.send("approval", &true).await.unwrap();
    assert_eq!(late.output().await.unwrap(), "Bob paid 7");

    open.write_all(b"true").await.unwrap();
    assert_eq!(response(&mut open).await.0, 204);
    server.await.unwrap().unwrap();
    assert!(client.workers().await.unwrap().is_empty(), "the worker is still joined");
}

/// Sends the head of a request that approves again, and returns when its handler has been called.
async fn open_request(at: SocketAddr, path: &str) -> TcpStream {
    let text = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nidempotency-key: b1\r\nexpect: 100-continue\r\n\
         content-type: application/json\r\ncontent-length: 4\r\n\r\n"
    );
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = [0; 25];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

/// Sends one HTTP request and returns the status and the body of the response.
async fn request(at: SocketAddr, method: &str, path: &str, key: Option<&str>, body: &str) -> (u16, String) {
    let key = key.map_or_else(String::new, |key| format!("idempotency-key: {key}\r\n"));
    let text = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{key}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    response(&mut stream).await
}

/// The status and the body of a response, after which the server closes the connection.
async fn response(stream: &mut TcpStream) -> (u16, String) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
