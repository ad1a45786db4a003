//! A small HTTP server that answers as a test says, and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How the server answers one request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The status, headers and body.
    Full(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Nothing, and the connection stays open.
    Stall,
    /// A part of a response, and the connection is closed.
    Cut,
    /// This number of bytes, with or without announcing it.
    Endless { bytes: u64, is_announced: bool },
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Self::Full(status, Vec::new(), Vec::new())
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::Full(200, Vec::new(), text.as_bytes().to_vec())
    }

    pub(crate) fn redirect(status: u16, location: impl Into<String>) -> Self {
        Self::Full(status, vec![("Location", location.into())], Vec::new())
    }

    pub(crate) fn with(self, name: &'static str, value: &str) -> Self {
        match self {
            Self::Full(status, mut headers, body) => {
                headers.push((name, value.to_owned()));
                Self::Full(status, headers, body)
            }
            other => other,
        }
    }
}

type Respond = dyn Fn(&str, usize) -> Answer + Send + Sync;

/// A running server. It answers the n-th request for a path, counted from 1 over all paths.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<ServerState>,
    accepting: JoinHandle<()>,
}

struct ServerState {
    respond: Box<Respond>,
    requests: Mutex<Vec<String>>,
    sent: AtomicU64,
}

impl Server {
    pub(crate) async fn start(respond: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", respond).await
    }

    pub(crate) async fn on(
        address: &str,
        respond: impl Fn(&str, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state =
            ServerState { respond: Box::new(respond), requests: Mutex::default(), sent: AtomicU64::new(0) };
        let state = Arc::new(state);
        let served = state.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = served.clone();
                // A client may close the connection at any time.
                tokio::spawn(async move { drop(state.serve(stream).await) });
            }
        });
        Self { address, state, accepting }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far, as text with header names in lower case.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.requests.lock().clone()
    }

    /// The number of bytes of bodies that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The value of a header in a request.
pub(crate) fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

impl ServerState {
    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let request = read_request(&mut stream).await?;
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let count = {
            let mut requests = self.requests.lock();
            requests.push(request);
            requests.len()
        };
        match (self.respond)(&path, count) {
            Answer::Full(status, headers, body) => {
                let mut head = format!("HTTP/1.1 {status} Answer\r\nContent-Length: {}\r\n", body.len());
                headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
                stream.write_all((head + "\r\n").as_bytes()).await?;
                stream.write_all(&body).await?;
            }
            Answer::Stall => std::future::pending().await,
            Answer::Cut => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart").await?,
            Answer::Endless { bytes, is_announced } => {
                self.send_bytes(&mut stream, bytes, is_announced).await?
            }
        }
        stream.shutdown().await
    }

    async fn send_bytes(
        &self,
        stream: &mut TcpStream,
        bytes: u64,
        is_announced: bool,
    ) -> std::io::Result<()> {
        let length = if is_announced { format!("Content-Length: {bytes}\r\n") } else { String::new() };
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{length}Connection: close\r\n\r\n").as_bytes()).await?;
        let block = vec![b'x'; 64 * 1024];
        while self.sent.load(Ordering::Relaxed) < bytes {
            stream.write_all(&block).await?;
            self.sent.fetch_add(block.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Reads a request with its body; header names become lower case.
async fn read_request(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lines = head.lines();
            let first = lines.next().unwrap_or_default();
            let lines = lines.filter_map(|line| line.split_once(": "));
            let lines: Vec<_> =
                lines.map(|(name, value)| format!("{}: {value}", name.to_lowercase())).collect();
            let request = format!("{first}\n{}\n\n{body}", lines.join("\n"));
            let length = header(&request, "content-length").map_or(0, |length| length.parse().unwrap_or(0));
            if body.len() >= length {
                return Ok(request);
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}
