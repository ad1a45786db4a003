//! A proxy in front of a server: a network that can be made to fail, at the byte that one names.

mod exchange;
mod link;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::address::Address;
use crate::error::{Error, Result};
use crate::patience::wait_for;
use crate::port;

pub use exchange::Exchange;
use link::Network;

/// How long the proxy's own port may take to be free again.
const PORT_PATIENCE: Duration = Duration::from_secs(10);

/// How many ports are tried: others may take one between our look and our use.
const PORTS_MAX: usize = 10;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// What the client says.
    Server,
    /// What the server answers.
    Client,
}

/// How the network is, for all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Everything arrives.
    Fair,
    /// Every piece of data takes so much longer, in either direction.
    Slow(Duration),
    /// Connections are taken and nothing arrives, not even an end. What was said meanwhile arrives
    /// when the weather is better, as packets sent again would.
    Silent,
    /// Nobody listens: new connections are refused. Those that there are go on.
    Refusing,
}

/// A proxy on a port of the loopback in front of a server. It ends, with all its connections, when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    network: Arc<Network>,
    door: Option<Door>,
    address: Address,
}

/// Starts a proxy in front of the server at this URL. The weather is fair.
///
/// # Errors
///
/// When the URL is none, or no port is free.
pub fn proxy(url: &str) -> Result<Proxy> {
    let server: Address = url.parse()?;
    let network = Arc::new(Network::new(format!("{}:{}", server.host, server.port)));
    for _ in 1..PORTS_MAX {
        let port = port::free()?;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            let door = Some(Door::open(listener, &network));
            return Ok(Proxy { network, door, address: server.through(port) });
        }
    }
    Err(Error::new(format!("{PORTS_MAX} free ports were taken by others before the proxy could listen")))
}

impl Proxy {
    /// The URL of the server by way of the proxy.
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// Where the proxy is. It stays the same in any weather.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Changes the weather, for the connections that there are and for those to come.
    ///
    /// # Errors
    ///
    /// When nobody listened and somebody else has the port by now.
    pub fn set(&mut self, weather: Weather) -> Result<()> {
        match (weather, &self.door) {
            (Weather::Refusing, _) => self.door = None,
            (_, Some(_)) => {}
            (_, None) => self.door = Some(self.listen_again()?),
        }
        self.network.set(weather);
        Ok(())
    }

    /// Counts the bytes of the next exchange whose first piece of data toward the server has `mark` in
    /// it; an empty mark is in anything. What was watched before is not watched any more.
    pub fn watch(&self, mark: impl AsRef<[u8]>) -> Exchange {
        self.network.watch(mark.as_ref(), None)
    }

    /// The same, and cuts the connection after exactly so many bytes of the exchange in one direction:
    /// these arrive, and then both sides see the end. An exchange that has no byte more is cut as well:
    /// after all of the request nobody hears the answer, after all of the answer the connection is gone.
    pub fn cut(&self, mark: impl AsRef<[u8]>, toward: Toward, bytes: u64) -> Exchange {
        self.network.watch(mark.as_ref(), Some((toward, bytes)))
    }

    /// Cuts all connections that there are, wherever they are.
    pub fn cut_all(&self) {
        self.network.cut_all();
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.network.connections()
    }

    fn listen_again(&self) -> Result<Door> {
        let here = (Ipv4Addr::LOCALHOST, self.address.port);
        let listener = wait_for(PORT_PATIENCE, || TcpListener::bind(here).ok());
        let listener = listener.ok_or_else(|| {
            Error::new(format!("the proxy's port {} was taken by somebody else", self.address.port))
        })?;
        Ok(Door::open(listener, &self.network))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.door = None;
        self.network.close();
    }
}

/// The thread that takes connections. Nobody listens when this is dropped.
#[derive(Debug)]
struct Door {
    here: Option<SocketAddr>,
    network: Arc<Network>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    fn open(listener: TcpListener, network: &Arc<Network>) -> Self {
        let here = listener.local_addr().ok();
        network.open_door();
        let thread = std::thread::spawn({
            let network = network.clone();
            move || {
                while let Ok((client, _)) = listener.accept() {
                    if !network.take(client) {
                        break;
                    }
                }
            }
        });
        Self { here, network: network.clone(), thread: Some(thread) }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.network.close_door();
        // The thread waits for somebody, so somebody comes.
        let came = self.here.is_some_and(|here| TcpStream::connect(here).is_ok());
        if let Some(thread) = self.thread.take()
            && came
        {
            let _ = thread.join();
        }
    }
}
