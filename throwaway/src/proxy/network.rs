//! The connections through the proxy, with two threads each: one per direction.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Exchange, NetworkCondition, Toward};

/// The maximum length of data that is forwarded at once.
const DATA_BYTES_MAX: usize = 64 * 1024;

/// All connections, and the condition of the network.
#[derive(Debug)]
pub(super) struct Network {
    server: String,
    state: Mutex<NetworkState>,
    changed: Condvar,
}

#[derive(Debug)]
struct NetworkState {
    condition: NetworkCondition,
    is_accepting: bool,
    is_closed: bool,
    /// The watched exchange that has not begun.
    next: Option<Exchange>,
    connections: Vec<ProxiedConnection>,
    connections_total: u64,
}

/// One connection.
#[derive(Debug)]
struct ProxiedConnection {
    number: u64,
    client: TcpStream,
    /// `None` until it is connected.
    server: Option<TcpStream>,
    is_cut: bool,
    exchange: Option<Exchange>,
}

impl ProxiedConnection {
    /// Closes the connection for both sides. The server's side stays open for reading: closing it with an unread answer
    /// would make the server discard what it has not read yet.
    fn cut(&mut self) {
        self.is_cut = true;
        let _ = self.client.shutdown(Shutdown::Both);
        if let Some(server) = &self.server {
            let _ = server.shutdown(Shutdown::Write);
        }
    }
}

impl Network {
    pub(super) fn new(server: String) -> Self {
        let state = NetworkState {
            condition: NetworkCondition::Normal,
            is_accepting: false,
            is_closed: false,
            next: None,
            connections: Vec::new(),
            connections_total: 0,
        };
        Self { server, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn set(&self, condition: NetworkCondition) {
        self.state().condition = condition;
        self.changed.notify_all();
    }

    pub(super) fn watch(&self, pattern: &[u8], cut: Option<(Toward, u64)>) -> Exchange {
        let exchange = Exchange::new(pattern, cut);
        let mut state = self.state();
        // A cut exchange still has to end.
        for connection in state.connections.iter_mut().filter(|connection| !connection.is_cut) {
            connection.exchange = None;
        }
        state.next = Some(exchange.clone());
        exchange
    }

    pub(super) fn cut_all(&self) {
        self.state().connections.iter_mut().for_each(ProxiedConnection::cut);
        self.changed.notify_all();
    }

    pub(super) fn connections(&self) -> usize {
        self.state().connections.iter().filter(|connection| !connection.is_cut).count()
    }

    pub(super) fn start_accepting(&self) {
        self.state().is_accepting = true;
    }

    pub(super) fn stop_accepting(&self) {
        self.state().is_accepting = false;
    }

    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.cut_all();
    }

    /// Accepts a connection. Returns false when no more are accepted.
    pub(super) fn accept(self: &Arc<Self>, client: TcpStream) -> bool {
        let mut state = self.state();
        if !state.is_accepting {
            return false;
        }
        // Without a clone, the connection is dropped, and the client sees its end.
        let Ok(client_clone) = client.try_clone() else { return true };
        let _ = client.set_nodelay(true);
        let number = state.connections_total;
        state.connections_total += 1;
        state.connections.push(ProxiedConnection {
            number,
            client,
            server: None,
            is_cut: false,
            exchange: None,
        });
        let network = self.clone();
        std::thread::spawn(move || network.forward(number, client_clone));
        true
    }

    /// Forwards a connection until its end.
    fn forward(self: &Arc<Self>, number: u64, client: TcpStream) {
        if let Some((to_server, from_server)) = self.connect(number)
            && let Ok(to_client) = client.try_clone()
        {
            let back = std::thread::spawn({
                let network = self.clone();
                move || network.forward_bytes(number, Toward::Client, from_server, to_client)
            });
            self.forward_bytes(number, Toward::Server, client, to_server);
            let _ = back.join();
        }
        self.remove(number);
    }

    /// Connects to the server; returns the stream twice, for writing and for reading.
    fn connect(&self, number: u64) -> Option<(TcpStream, TcpStream)> {
        drop(self.wait_for_network(number, self.state())?);
        let server = TcpStream::connect(&self.server).ok()?;
        let _ = server.set_nodelay(true);
        let (writer, reader) = (server.try_clone().ok()?, server.try_clone().ok()?);
        let mut state = self.state();
        let connection = state.connections.iter_mut().find(|connection| connection.number == number)?;
        connection.server = Some(server);
        (!connection.is_cut).then_some((writer, reader))
    }

    /// Forwards one direction until its end.
    fn forward_bytes(&self, number: u64, toward: Toward, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; DATA_BYTES_MAX];
        loop {
            let data = from.read(&mut buffer).unwrap_or(0);
            let (allowed, is_cut) = self.allow(number, toward, &buffer[..data]);
            // If one side has closed, the other is closed too.
            let is_cut = to.write_all(&buffer[..allowed]).is_err() || is_cut;
            if is_cut {
                self.cut(number);
            }
            // After a cut, the rest of the server's answer is read and discarded.
            if data == 0 || (is_cut && toward == Toward::Server) {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Waits for the network, and returns how many bytes may pass and whether the connection is cut after them. Empty
    /// data means the end.
    fn allow(&self, number: u64, toward: Toward, data: &[u8]) -> (usize, bool) {
        let Some(mut state) = self.wait_for_network(number, self.state()) else { return (0, true) };
        let NetworkState { next, connections, .. } = &mut *state;
        let Some(connection) = connections.iter_mut().find(|connection| connection.number == number) else {
            return (0, true);
        };
        if data.is_empty() {
            return (0, false);
        }
        if toward == Toward::Server && next.as_ref().is_some_and(|next| next.begins_with(data)) {
            connection.exchange = next.take();
        }
        match &connection.exchange {
            Some(exchange) => exchange.allow(toward, data.len()),
            None => (data.len(), false),
        }
    }

    /// Waits while the network is slow or stalled. `None` when the connection is cut.
    fn wait_for_network<'s>(
        &self,
        number: u64,
        state: MutexGuard<'s, NetworkState>,
    ) -> Option<MutexGuard<'s, NetworkState>> {
        let is_cut = |state: &NetworkState| {
            state.is_closed
                || state.connections.iter().all(|connection| connection.number != number || connection.is_cut)
        };
        let waited = |state, time: Duration, holds: &dyn Fn(&NetworkState) -> bool| {
            let waited = self.changed.wait_timeout_while(state, time, |state| !is_cut(state) && holds(state));
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        let mut state = state;
        if let NetworkCondition::Slow(time) = state.condition {
            state = waited(state, time, &|state| matches!(state.condition, NetworkCondition::Slow(_)));
        }
        state = waited(state, Duration::MAX, &|state| state.condition == NetworkCondition::Stalled);
        (!is_cut(&state)).then_some(state)
    }

    fn cut(&self, number: u64) {
        self.state()
            .connections
            .iter_mut()
            .filter(|connection| connection.number == number)
            .for_each(ProxiedConnection::cut);
    }

    /// The connection has ended on both sides.
    fn remove(&self, number: u64) {
        let mut state = self.state();
        if let Some(at) = state.connections.iter().position(|connection| connection.number == number) {
            let connection = state.connections.swap_remove(at);
            drop(state);
            let _ = connection.client.shutdown(Shutdown::Both);
            if let Some(exchange) = &connection.exchange {
                exchange.end();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
