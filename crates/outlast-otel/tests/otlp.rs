//! Traces reach a collector, and a collector that is gone does not stop the work.

#![cfg(feature = "otlp")]
#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, sync_channel};

use outlast::prelude::*;
use outlast_otel::OtlpTraces;
use tracing_subscriber::layer::SubscriberExt;

#[workflow]
async fn greet(_ctx: Context, name: String) -> Result<String, Error> {
    Ok(format!("hello {name}"))
}

/// A collector: accepts requests, and passes on their heads and bodies.
fn collector() -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let (sender, received) = sync_channel(100);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = Vec::new();
            let head_end = loop {
                let mut chunk = [0; 4_096];
                let read = stream.read(&mut chunk).unwrap();
                bytes.extend_from_slice(&chunk[..read]);
                if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                    break end + 4;
                }
            };
            let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap().to_ascii_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let mut body = bytes.split_off(head_end);
            let missing = length.unwrap().saturating_sub(body.len());
            let mut rest = vec![0; missing];
            stream.read_exact(&mut rest).unwrap();
            body.extend(rest);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            if sender.send((head, body)).is_err() {
                return;
            }
        }
    });
    (address, received)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_are_sent_to_a_collector_before_the_program_ends() {
    let (address, received) = collector();
    let traces = OtlpTraces::to(&address, "shop").unwrap();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(traces.layer())).unwrap();
    let world = outlast::open("memory:").await.unwrap();
    let worker = Worker::builder(world.clone()).register(greet).start().await.unwrap();
    let run = Client::new(world).start(greet, "Ada".to_owned()).await.unwrap();
    run.output().await.unwrap();
    worker.stop().await.unwrap();
    traces.shutdown().await;
    let (head, body) = received.try_recv().unwrap();
    assert!(head.starts_with("post /v1/traces "), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    let contains = |text: &str| body.windows(text.len()).any(|window| window == text.as_bytes());
    for text in
        ["shop", "outlast.start", "outlast.run", "outlast.workflow.name", "greet", &run.id().to_string()]
    {
        assert!(contains(text), "{text} is not in the body");
    }
    assert!(!contains("hello Ada"), "no payload");
}

#[test]
fn an_address_that_is_none_is_an_error_with_a_remedy() {
    let error = OtlpTraces::to("not an address", "shop").unwrap_err();
    assert!(error.to_string().contains("OTEL_EXPORTER_OTLP_"), "{error}");
}
