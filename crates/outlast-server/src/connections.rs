//! Connections: how many there are, and how slow they may be.
//!
//! axum's own server has no limits. A client that opens a thousand connections and sends one byte of a header per minute on
//! each would exhaust the process, so this one accepts connections itself.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// A listener of TCP or of a Unix socket.
pub(crate) trait Listen: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for a connection. Returns it with the address of its other side.
    fn next(&self) -> impl Future<Output = std::io::Result<(Self::Stream, SocketAddr)>> + Send;
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> std::io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.accept().await?;
        // Small answers must not wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer))
    }
}

/// The other side of a Unix socket is always on this machine, so it counts as a loopback address without a port. The
/// permissions of the file decide who can connect.
#[cfg(unix)]
impl Listen for tokio::net::UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> std::io::Result<(Self::Stream, SocketAddr)> {
        let (stream, _) = self.accept().await?;
        Ok((stream, SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0))))
    }
}

/// The limits of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// The number of connections. Further ones wait until another one is closed.
    pub(crate) connections_max: usize,
    /// The time in which the head of a request must arrive. It also ends connections that are kept open and not used.
    pub(crate) head_time: Duration,
    /// The bytes of the head of a request, which are kept in memory.
    pub(crate) head_bytes: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { connections_max: 1_024, head_time: Duration::from_secs(10), head_bytes: 64 * 1024 }
    }
}

/// The pause after a connection could not be accepted, for example because there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Accepts connections until the token is cancelled. Returns the open connections, which end after their current request.
pub(crate) async fn accept(
    listener: impl Listen,
    app: Router,
    shutdown: CancellationToken,
    limits: ConnectionLimits,
) -> TaskTracker {
    let (open, permits) = (TaskTracker::new(), Arc::new(Semaphore::new(limits.connections_max)));
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = next_connection(&listener, &permits) => accepted,
        };
        match accepted {
            Ok((stream, peer, permit)) => {
                let answered = answer(stream, peer, app.clone(), shutdown.clone(), limits);
                open.spawn(async move {
                    answered.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                // Not for a connection that its client has closed already.
                if !matches!(
                    error.kind(),
                    std::io::ErrorKind::ConnectionAborted | std::io::ErrorKind::ConnectionReset
                ) {
                    let _ = tokio::time::timeout(ACCEPT_PAUSE, shutdown.cancelled()).await;
                }
            }
        }
    }
    open.close();
    open
}

/// Waits for a permit, and then for a connection.
async fn next_connection<L: Listen>(
    listener: &L,
    permits: &Arc<Semaphore>,
) -> std::io::Result<(L::Stream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.next().await?;
    Ok((stream, peer, permit))
}

/// Answers the requests of one connection.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    app: Router,
    shutdown: CancellationToken,
    limits: ConnectionLimits,
) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let app = app.clone();
        async move { Ok::<_, Infallible>(app.oneshot(request).await.unwrap_or_else(|never| match never {})) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_time).max_buf_size(limits.head_bytes);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection was closed");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    struct Server {
        address: SocketAddr,
        shutdown: CancellationToken,
        accepting: tokio::task::JoinHandle<TaskTracker>,
    }

    impl Server {
        async fn new(limits: ConnectionLimits) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let app = Router::new().route("/", get(|| async { "hello" }));
            let shutdown = CancellationToken::new();
            let accepting = tokio::spawn(accept(listener, app, shutdown.clone(), limits));
            Self { address, shutdown, accepting }
        }

        async fn connect(&self, text: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream
        }

        async fn stop(self) {
            self.shutdown.cancel();
            self.accepting.await.unwrap().wait().await;
        }
    }

    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

    async fn read_all(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        // A server that closes a connection with unread input resets it.
        let _ = stream.read_to_end(&mut text).await;
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn a_head_that_arrives_too_slowly_ends_the_connection() {
        let head_time = Duration::from_millis(50);
        let server = Server::new(ConnectionLimits { head_time, ..ConnectionLimits::default() }).await;
        let slow = server.connect("GET / HTTP/1.1\r\nhost: lo").await;
        assert_eq!(read_all(slow).await, "", "closed without an answer");
        let idle = server.connect(&REQUEST.replace("connection: close\r\n", "")).await;
        assert!(read_all(idle).await.ends_with("hello"), "a connection that is kept open is closed as well");
        server.stop().await;
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_unix_socket_is_answered_and_its_peer_is_on_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let peer = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() };
        let app = Router::new().route("/", get(peer));
        let shutdown = CancellationToken::new();
        let accepting = tokio::spawn(accept(listener, app, shutdown.clone(), ConnectionLimits::default()));
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        stream.write_all(REQUEST.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("127.0.0.1:0"), "{text}");
        shutdown.cancel();
        accepting.await.unwrap().wait().await;
    }

    #[tokio::test]
    async fn a_head_that_is_too_long_is_refused() {
        let server = Server::new(ConnectionLimits::default()).await;
        let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(200 * 1024));
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let _ = stream.write_all(long.as_bytes()).await;
        let answer = read_all(stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
        assert!(read_all(server.connect(REQUEST).await).await.ends_with("hello"), "others are answered");
        server.stop().await;
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_wait_for_a_free_one() {
        let server =
            Server::new(ConnectionLimits { connections_max: 2, ..ConnectionLimits::default() }).await;
        let busy = [server.connect("GET").await, server.connect("GET").await];
        let waiting = tokio::spawn(read_all(server.connect(REQUEST).await));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        drop(busy);
        assert!(waiting.await.unwrap().ends_with("hello"));
        server.stop().await;
    }
}
