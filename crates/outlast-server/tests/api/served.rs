//! A worker that serves the API on a socket.

use outlast::prelude::*;
use outlast_server::{AccessKeys, Config, ServeExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::nap;

async fn exchange(address: std::net::SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_worker_serves_the_api_of_its_world() {
    let world = outlast::open("memory:").await.unwrap();
    let served = Worker::builder(world).register(nap).serve("127.0.0.1:0").await.unwrap();
    let address = served.address();
    let body = r#"{"workflow":"nap"}"#;
    let start = format!(
        "POST /api/runs HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let started = exchange(address, &start).await;
    assert!(started.starts_with("HTTP/1.1 201 "), "{started}");
    let evil =
        exchange(address, "GET /api/runs HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    assert!(evil.starts_with("HTTP/1.1 421 "), "{evil}");
    served.stop().await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn stopping_ends_open_streams() {
    let world = outlast::open("memory:").await.unwrap();
    let served = Worker::builder(world).register(nap).serve("127.0.0.1:0").await.unwrap();
    let address = served.address();
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(format!("GET /api/live HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("event: hello") {
        assert_ne!(socket.read_buf(&mut seen).await.unwrap(), 0);
    }
    served.stop().await.unwrap();
    socket.read_to_end(&mut seen).await.unwrap();
    assert!(String::from_utf8_lossy(&seen).contains("event: bye"));
}

/// Check 2, as far as the library is concerned.
#[tokio::test]
async fn an_address_that_others_can_reach_needs_access_keys() {
    let world = outlast::open("memory:").await.unwrap();
    let builder = || Worker::builder(world.clone()).register(nap);
    let refused = builder().serve("0.0.0.0:0").await.unwrap_err();
    assert!(refused.to_string().contains("access keys are needed"), "{refused}");
    assert!(builder().serve("nowhere").await.unwrap_err().to_string().contains("is not an address"));
    let served = builder().serve("0.0.0.0:0").config(Config::keys(AccessKeys::default())).await.unwrap();
    served.stop().await.unwrap();
    assert_eq!(world.workers().await.unwrap().len(), 0, "no worker was left behind");
}
