//! One HTTP/1.1 connection to a server, made again when it was closed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest as Sender, handshake};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use outlast_api::{Problem, ProblemCode};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long it may take to connect.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// The largest response that is read: an exported history may be large.
const RESPONSE_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Why a server cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RemoteError(String);

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    is_encrypted: bool,
    host: String,
    port: u16,
    /// The path under which the server answers, without a `/` at its end.
    prefix: String,
}

impl ServerAddress {
    /// Parses `http://127.0.0.1:4700` or `https://outlast.example/shop`.
    pub(super) fn parse(text: &str) -> Result<Self, RemoteError> {
        if text.contains('@') {
            let why = "the address of a server has no user part; give the access key in a file";
            return Err(RemoteError(why.into()));
        }
        let invalid = |why: &str| {
            RemoteError(format!(
                "`{text}` is not the address of a server: {why}; write http://127.0.0.1:4700"
            ))
        };
        let (is_encrypted, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(invalid("it begins with neither http:// nor https://")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains(['?', '#']) {
            return Err(invalid("it has a query"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| invalid("its port is not a number"))?)
            }
            _ => (authority, if is_encrypted { 443 } else { 80 }),
        };
        if host.is_empty() {
            return Err(invalid("it has no host"));
        }
        let path = path.trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { is_encrypted, host: host.into(), port, prefix })
    }

    fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The host without the brackets of an IPv6 address.
    fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    fn is_loopback(&self) -> bool {
        let address = self.bare_host().parse::<std::net::IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

/// A request.
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    pub(super) target: String,
    pub(super) body: Vec<u8>,
    /// The tag that what it changes must have.
    pub(super) if_match: Option<String>,
}

/// Sends requests over one connection, one after the other.
pub(super) struct Exchange {
    address: ServerAddress,
    access_key: Option<String>,
    sender: Mutex<Option<Sender<Full<Bytes>>>>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Exchange {
    pub(super) fn new(address: ServerAddress, access_key: Option<String>) -> Result<Self, RemoteError> {
        if access_key.is_some() && !address.is_encrypted && !address.is_loopback() {
            let host = &address.host;
            return Err(RemoteError(format!(
                "the access key would be sent to {host} without encryption; use https"
            )));
        }
        Ok(Self { address, access_key, sender: Mutex::new(None) })
    }

    /// Sends a request, and reads its response: status and body.
    pub(super) async fn ask(&self, asked: Asked<'_>, time: Duration) -> Result<(u16, Bytes), Problem> {
        let request = self.request(asked)?;
        match timeout(time, self.respond(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.unavailable(&format!("it did not answer within {} s", time.as_secs()))),
        }
    }

    fn request(&self, asked: Asked<'_>) -> Result<Request<Full<Bytes>>, Problem> {
        let Asked { method, target, body, if_match } = asked;
        let mut builder = Request::builder()
            .method(method)
            .uri(format!("{}{target}", self.address.prefix))
            .header("host", self.address.authority())
            .header("accept", "application/json")
            .header("user-agent", concat!("outlast-cli/", env!("CARGO_PKG_VERSION")));
        if !body.is_empty() {
            builder = builder.header("content-type", "application/json");
        }
        if let Some(tag) = if_match {
            builder = builder.header("if-match", tag);
        }
        if let Some(key) = &self.access_key {
            builder = builder.header("authorization", format!("Bearer {key}"));
        }
        let request = builder.body(Full::new(body.into()));
        request.map_err(|error| Problem::field("", format!("the request cannot be made: {error}")))
    }

    async fn respond(&self, request: Request<Full<Bytes>>) -> Result<(u16, Bytes), Problem> {
        let mut slot = self.sender.lock().await;
        let mut open = slot.take();
        let is_ready = match &mut open {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        let mut sender = match open.filter(|_| is_ready) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let response = sender.send_request(request).await.map_err(|error| self.unavailable(&error))?;
        let answer = self.read(response).await?;
        *slot = Some(sender);
        Ok(answer)
    }

    async fn read(&self, response: Response<Incoming>) -> Result<(u16, Bytes), Problem> {
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.unavailable(&format!("its response ended early: {error}")))?;
        Ok((status, body.to_bytes()))
    }

    async fn connect(&self) -> Result<Sender<Full<Bytes>>, Problem> {
        let target = (self.address.bare_host(), self.address.port);
        let stream = match timeout(CONNECT_TIME, TcpStream::connect(target)).await {
            Ok(connected) => connected.map_err(|error| self.unavailable(&error))?,
            Err(_) => return Err(self.unavailable(&"it does not answer")),
        };
        // Requests are small and wait for their responses.
        let _ = stream.set_nodelay(true);
        if !self.address.is_encrypted {
            return self.speak(stream).await;
        }
        let name = ServerName::try_from(self.address.bare_host().to_owned());
        let name = name.map_err(|_| self.unavailable(&"its name is not valid"))?;
        let connector = TlsConnector::from(Arc::new(self.tls_settings()?));
        let stream = timeout(CONNECT_TIME, connector.connect(name, stream)).await;
        let stream = stream.map_err(|_| self.unavailable(&"it does not answer"))?;
        self.speak(stream.map_err(|error| self.unavailable(&error))?).await
    }

    async fn speak<T>(&self, stream: T) -> Result<Sender<Full<Bytes>>, Problem>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connected = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|error| self.unavailable(&error))?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn tls_settings(&self) -> Result<rustls::ClientConfig, Problem> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let why = "this machine has no root certificates; install ca-certificates";
            return Err(self.unavailable(&why));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| self.unavailable(&error))?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }

    fn unavailable(&self, why: &dyn std::fmt::Display) -> Problem {
        let scheme = if self.address.is_encrypted { "https" } else { "http" };
        let place = format!("{scheme}://{}{}", self.address.authority(), self.address.prefix);
        let detail = format!(
            "the server {place} cannot be reached: {why}; check `--server`, or start it with `outlast serve`"
        );
        Problem::new(ProblemCode::Unavailable, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let plain = ServerAddress::parse("http://127.0.0.1:4700/").unwrap();
        assert_eq!((plain.authority().as_str(), plain.prefix.as_str()), ("127.0.0.1:4700", ""));
        assert!(plain.is_loopback() && !plain.is_encrypted);
        let nested = ServerAddress::parse("https://outlast.example/a/b/").unwrap();
        assert_eq!((nested.port, nested.prefix.as_str(), nested.is_encrypted), (443, "/a/b", true));
        let six = ServerAddress::parse("http://[::1]:4700").unwrap();
        assert_eq!((six.bare_host(), six.port, six.is_loopback()), ("::1", 4700, true));
        for wrong in ["127.0.0.1:4700", "http://", "http://a:b", "http://u:p@h", "http://h/?a=1"] {
            assert!(ServerAddress::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_not_sent_without_encryption() {
        let exchange =
            |address: &str| Exchange::new(ServerAddress::parse(address).unwrap(), Some("k".into()));
        assert!(exchange("http://outlast.example").is_err());
        assert!(exchange("https://outlast.example").is_ok());
        assert!(exchange("http://127.0.0.1:4700").is_ok());
    }
}
