//! A connection for HTTP/1.1 that costs little: it reads only the status and the length of a response.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::Result;

/// A connection that is kept open.
#[derive(Debug)]
pub(super) struct HttpConnection {
    stream: BufReader<TcpStream>,
    host: String,
    body: Vec<u8>,
}

impl HttpConnection {
    /// Connects to an address, such as `127.0.0.1:4700`.
    pub(super) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), host: address.to_owned(), body: Vec::new() })
    }

    /// Reads a path. Returns the size of the body, which must have the status 200.
    pub(super) async fn get(&mut self, path: &str) -> Result<usize> {
        let (status, bytes) = self.send("GET", path, "").await?;
        if status != 200 {
            return Err(format!("GET {path}: {status} {}", self.text()).into());
        }
        Ok(bytes)
    }

    /// Sends a request, and reads the response. Returns its status, and the size of its body.
    pub(super) async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, usize)> {
        self.write(method, path, body).await?;
        let (status, length) = self.head().await?;
        self.body.resize(length.ok_or("a response has no length")?, 0);
        self.stream.read_exact(&mut self.body).await?;
        Ok((status, self.body.len()))
    }

    /// The last body.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Opens a stream of events, and reads its head.
    pub(super) async fn open_stream(mut self, path: &str) -> Result<Self> {
        self.write("GET", path, "").await?;
        match self.head().await? {
            (200, None) => Ok(self),
            (status, _) => Err(format!("GET {path}: {status}").into()),
        }
    }

    /// Reads a stream until it ends. Returns the bytes.
    pub(super) async fn drain(mut self) -> Result<u64> {
        Ok(tokio::io::copy_buf(&mut self.stream, &mut tokio::io::sink()).await?)
    }

    async fn write(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        let host = &self.host;
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// The status of a response, and the length of its body if it has one.
    async fn head(&mut self) -> Result<(u16, Option<usize>)> {
        let (mut line, mut status, mut length) = (String::new(), None, None);
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 {
                return Err("the server has closed the connection".into());
            }
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            match (status, text.split_once(':')) {
                (None, _) => status = text.split(' ').nth(1).and_then(|code| code.parse().ok()),
                (_, Some((name, value))) if name.eq_ignore_ascii_case("content-length") => {
                    length = Some(value.trim().parse()?);
                }
                _ => {}
            }
        }
        Ok((status.ok_or("a response has no status")?, length))
    }
}
