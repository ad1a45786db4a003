//! A proxy in front of a server: a network that fails on demand, at a given byte.

mod exchange;
mod network;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::address::Address;
use crate::error::{Error, Result};
use crate::port;
use crate::wait::wait_for;

pub use exchange::Exchange;
use network::Network;

/// How long the proxy's port may take to be free again.
const PORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of ports that are tried: another process may take a free port before the proxy does.
const PORTS_MAX: usize = 10;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// From the client to the server.
    Server,
    /// From the server to the client.
    Client,
}

/// The condition of the network, for all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkCondition {
    /// Everything arrives.
    Normal,
    /// Data is delayed by this time, in both directions.
    Slow(Duration),
    /// Connections are accepted, but nothing arrives, not even their end. The data arrives when the condition changes,
    /// like retransmitted packets.
    Stalled,
    /// New connections are refused. Existing ones continue.
    Refusing,
}

/// A proxy on a port of the loopback in front of a server. It ends, with all its connections, when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    network: Arc<Network>,
    acceptor: Option<Acceptor>,
    address: Address,
}

/// Starts a proxy in front of the server at this URL, in the normal condition.
///
/// # Errors
///
/// When the URL is invalid, or no port is free.
pub fn proxy(url: &str) -> Result<Proxy> {
    let server: Address = url.parse()?;
    let network = Arc::new(Network::new(format!("{}:{}", server.host, server.port)));
    for _ in 1..PORTS_MAX {
        let port = port::free()?;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            let acceptor = Some(Acceptor::open(listener, &network));
            return Ok(Proxy { network, acceptor, address: server.through(port) });
        }
    }
    Err(Error::new(format!(
        "{PORTS_MAX} free ports were taken by other processes before the proxy could listen"
    )))
}

impl Proxy {
    /// The URL of the server through the proxy.
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// The address of the proxy. It never changes.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Changes the condition of the network, for existing and new connections.
    ///
    /// # Errors
    ///
    /// When the proxy did not listen, and another process has taken the port.
    pub fn set(&mut self, condition: NetworkCondition) -> Result<()> {
        match (condition, &self.acceptor) {
            (NetworkCondition::Refusing, _) => self.acceptor = None,
            (_, Some(_)) => {}
            (_, None) => self.acceptor = Some(self.listen_again()?),
        }
        self.network.set(condition);
        Ok(())
    }

    /// Counts the bytes of the next exchange whose first data toward the server contains `pattern`;
    /// any data contains an empty pattern. Replaces the previously watched exchange.
    pub fn watch(&self, pattern: impl AsRef<[u8]>) -> Exchange {
        self.network.watch(pattern.as_ref(), None)
    }

    /// The same, and cuts the connection after exactly this many bytes of the exchange in one direction: these bytes
    /// arrive, and then both sides see the end of the connection. The cut also happens if no more bytes follow: after
    /// the whole request the answer is lost, after the whole answer the connection is closed.
    pub fn cut(&self, pattern: impl AsRef<[u8]>, toward: Toward, bytes: u64) -> Exchange {
        self.network.watch(pattern.as_ref(), Some((toward, bytes)))
    }

    /// Cuts all connections.
    pub fn cut_all(&self) {
        self.network.cut_all();
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        self.network.connections()
    }

    fn listen_again(&self) -> Result<Acceptor> {
        let here = (Ipv4Addr::LOCALHOST, self.address.port);
        let listener = wait_for(PORT_TIMEOUT, || TcpListener::bind(here).ok());
        let listener = listener.ok_or_else(|| {
            Error::new(format!("the proxy's port {} was taken by another process", self.address.port))
        })?;
        Ok(Acceptor::open(listener, &self.network))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor = None;
        self.network.close();
    }
}

/// The thread that accepts connections, until this is dropped.
#[derive(Debug)]
struct Acceptor {
    here: Option<SocketAddr>,
    network: Arc<Network>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    fn open(listener: TcpListener, network: &Arc<Network>) -> Self {
        let here = listener.local_addr().ok();
        network.start_accepting();
        let thread = std::thread::spawn({
            let network = network.clone();
            move || {
                while let Ok((client, _)) = listener.accept() {
                    if !network.accept(client) {
                        break;
                    }
                }
            }
        });
        Self { here, network: network.clone(), thread: Some(thread) }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.network.stop_accepting();
        // Wake the thread with a connection.
        let connected = self.here.is_some_and(|here| TcpStream::connect(here).is_ok());
        if let Some(thread) = self.thread.take()
            && connected
        {
            let _ = thread.join();
        }
    }
}
