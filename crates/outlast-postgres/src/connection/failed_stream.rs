//! Errors of connections that were given up.
//!
//! `deadpool_postgres` asks for a `tokio_postgres::Error`, which only `tokio_postgres` can create. It creates one from
//! every error of the stream below a connection, so a stream that only fails leads to the error that is needed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{Config, Error, NoTls};

/// The error of a connection that failed with this I/O error, which is its source.
pub(super) async fn connection_error(kind: io::ErrorKind, message: String) -> Error {
    let stream = FailedStream { kind, message };
    match Config::new().user("outlast").connect_raw(stream, NoTls).await {
        Err(error) => error,
        Ok(_) => unreachable!("a stream that only fails completes no login"),
    }
}

/// A stream on which every operation fails with the same error.
#[derive(Debug)]
struct FailedStream {
    kind: io::ErrorKind,
    message: String,
}

impl FailedStream {
    fn error<T>(&self) -> Poll<io::Result<T>> {
        Poll::Ready(Err(io::Error::new(self.kind, self.message.clone())))
    }
}

impl AsyncRead for FailedStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.error()
    }
}

impl AsyncWrite for FailedStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        self.error()
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.error()
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.error()
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::WorldError;

    use super::*;
    use crate::error::postgres_error;

    #[tokio::test]
    async fn a_connection_that_was_given_up_is_an_outage_and_says_why() {
        let error = connection_error(io::ErrorKind::TimedOut, "no login within 10s".into()).await;
        let error = postgres_error(&error, "db");
        assert!(matches!(error, WorldError::Unavailable(_)), "{error}");
        assert!(error.to_string().contains("no login within 10s"), "{error}");
    }
}
