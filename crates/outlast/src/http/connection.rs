//! Connecting to the address that was checked.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use outlast_core::ErrorClass;
use outlast_core::limits::{FETCH_CONNECT_TIMEOUT, FETCH_HEADERS_BYTES_MAX};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::FetchSettings;
use super::network::is_allowed;
use super::target::Target;
use crate::error::StepError;

/// A response whose body is still being received.
pub(super) struct OpenResponse {
    pub(super) response: hyper::Response<Incoming>,
    /// Drives the connection, and ends with this value.
    _driver: JoinSet<()>,
}

/// Connects to the target and sends a request.
///
/// # Errors
///
/// Fatal if the target is not allowed; otherwise another attempt may succeed.
pub(super) async fn send(
    settings: &FetchSettings,
    target: &Target,
    request: hyper::Request<Full<Bytes>>,
) -> Result<OpenResponse, StepError> {
    let connecting = connect(settings, target);
    let stream = match tokio::time::timeout(FETCH_CONNECT_TIMEOUT, connecting).await {
        Ok(stream) => stream?,
        Err(_) => {
            let seconds = FETCH_CONNECT_TIMEOUT.as_secs();
            return Err(network_error(target, &format!("no connection within {seconds} s")));
        }
    };
    let error_of = |error: hyper::Error| network_error(target, &with_sources(&error));
    let mut connection = http1::Builder::new();
    connection.max_buf_size(FETCH_HEADERS_BYTES_MAX);
    let (mut sender, connection) = connection.handshake(TokioIo::new(stream)).await.map_err(error_of)?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        // Its errors are also those of the response.
        let _ = connection.await;
    });
    let response = sender.send_request(request).await.map_err(error_of)?;
    Ok(OpenResponse { response, _driver: driver })
}

/// A connection: plain or with TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn connect(settings: &FetchSettings, target: &Target) -> Result<Box<dyn Stream>, StepError> {
    let stream = connect_to_any(&allowed_addresses(settings, target).await?)
        .await
        .map_err(|error| network_error(target, &error.to_string()))?;
    // A request is one or two writes, and must not wait for an acknowledgement.
    let _ = stream.set_nodelay(true);
    if !target.is_tls {
        return Ok(Box::new(stream));
    }
    let config = settings.tls.get_or_init(tls_config).clone().map_err(StepError::msg)?;
    let server = ServerName::try_from(target.host.clone())
        .map_err(|_| StepError::fatal(format!("{target}: the host is not a valid name for TLS")))?;
    let stream = TlsConnector::from(config).connect(server, stream).await;
    Ok(Box::new(stream.map_err(|error| network_error(target, &format!("TLS: {error}")))?))
}

/// The addresses of the target that may be used.
///
/// # Errors
///
/// Fatal if it has addresses, and none may be used.
async fn allowed_addresses(settings: &FetchSettings, target: &Target) -> Result<Vec<SocketAddr>, StepError> {
    let found = tokio::net::lookup_host((&*target.host, target.port)).await;
    let found: Vec<_> = found.map_err(|error| network_error(target, &error.to_string()))?.collect();
    let (allowed, refused): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| is_allowed(address.ip(), &settings.allowed));
    match refused.first() {
        Some(refused) if allowed.is_empty() => Err(StepError::fatal(format!(
            "{target} has the address {}, which is not public; if requests to it are wanted, allow its network with \
             `.allow_network(\"{}\")` on the worker's builder",
            refused.ip(),
            refused.ip()
        ))
        .with_code("address_not_allowed")),
        _ => Ok(allowed),
    }
}

async fn connect_to_any(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn tls_config() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("the system has no root certificates, so no server can be verified; install them \
                    (`ca-certificates`)"
            .to_owned());
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// The error of an attempt that got no response, or a part of one.
pub(super) fn network_error(target: &Target, problem: &str) -> StepError {
    StepError::msg(format!("{target}: {problem}")).class(ErrorClass::Network).with_code("no_response")
}

/// An error with its sources: hyper's own text says little.
pub(super) fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}
