//! Check 20: a bulk action survives `kill -9` of the server that executes it.

use std::io::BufRead;
use std::process::{Child, Stdio};

use outlast::Status;
use outlast::prelude::*;
use outlast_api::BulkJson;

use super::support::{call, program};

const RUNS: usize = 10_000;

/// A server that was started as a process of its own.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &std::path::Path) -> Self {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--insecure-no-auth"];
        let mut command = program(folder, &arguments, &[("OUTLAST_WORLD", "sqlite:shop.db")]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|line| {
            let (_, address) = line.split_once("http://")?;
            Some(format!("http://{}", address.trim_end_matches('/')))
        });
        Self { child, address: address.unwrap() }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_terminate_continues_after_its_server_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("shop.db").display());
    let client = Client::new(outlast::open(&url).await.unwrap());
    // No worker has their code: terminating needs none.
    for batch in 0..RUNS / 500 {
        let starts = (0..500).map(|index| client.start_json("import", 1, (batch * 500 + index).to_string()));
        futures_util::future::try_join_all(starts.map(|start| async { start.await })).await.unwrap();
    }
    let mut first = Server::start(folder.path());
    let body = r#"{"action":"terminate","query":{"workflow":"import"},"expect_at_most":9999}"#;
    let refused = post(&first.address, "/api/bulk", body).await;
    assert!(refused.starts_with("HTTP/1.1 412") && refused.contains("\"matched\":10000"), "{refused}");
    let body = r#"{"action":"terminate","query":{"workflow":"import"},"expect_at_most":10000,"rate":5000}"#;
    let started = post(&first.address, "/api/bulk", body).await;
    assert!(started.starts_with("HTTP/1.1 202"), "{started}");
    let bulk: BulkJson = serde_json::from_str(started.split_once("\r\n\r\n").unwrap().1).unwrap();
    let progress = async || client.bulk_handle(bulk.id).progress().await.unwrap();
    // In the middle of it.
    while progress().await.called() < 300 {
        tokio::task::yield_now().await;
    }
    first.kill();
    let interrupted = progress().await.called();
    assert!((300..RUNS as u64).contains(&interrupted), "{interrupted}");
    let second = Server::start(folder.path());
    let variables = [("OUTLAST_SERVER", second.address.as_str())];
    let id = bulk.id.to_string();
    let shown = call(folder.path(), &["bulk", "show", &id, "--watch", "--json"], &variables).await.ok();
    let ended: BulkJson = shown.json();
    assert_eq!((ended.state.as_str(), ended.done, ended.failed), ("completed", RUNS as u64, 0), "{ended:?}");
    assert_eq!(ended.left, Some(0));
    // Workers end the runs after the requests are stored.
    while client.counts().await.unwrap().get(&Status::Cancelled) != Some(&(RUNS as u64)) {
        tokio::task::yield_now().await;
    }
}

/// Sends a request, and returns the whole response.
async fn post(address: &str, path: &str, body: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let host = address.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}
