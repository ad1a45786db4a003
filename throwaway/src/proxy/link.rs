//! The connections through the proxy: two threads each, one for either direction.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Exchange, Toward, Weather};

/// The largest piece of data that goes on at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// All connections, and what may befall them.
#[derive(Debug)]
pub(super) struct Network {
    server: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    weather: Weather,
    is_door_open: bool,
    is_closed: bool,
    /// Watched for, and not begun.
    next: Option<Exchange>,
    links: Vec<Link>,
    links_ever: u64,
}

/// One connection.
#[derive(Debug)]
struct Link {
    number: u64,
    client: TcpStream,
    /// None until the weather lets it be made.
    server: Option<TcpStream>,
    is_cut: bool,
    exchange: Option<Exchange>,
}

impl Link {
    /// Lets both sides see the end. The server's side stays open for reading: who closes it with an
    /// answer unread makes the server forget what it has not yet read.
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
        let state = State {
            weather: Weather::Fair,
            is_door_open: false,
            is_closed: false,
            next: None,
            links: Vec::new(),
            links_ever: 0,
        };
        Self { server, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn set(&self, weather: Weather) {
        self.state().weather = weather;
        self.changed.notify_all();
    }

    pub(super) fn watch(&self, mark: &[u8], cut: Option<(Toward, u64)>) -> Exchange {
        let exchange = Exchange::new(mark, cut);
        let mut state = self.state();
        // One that was cut is still going to be over.
        for link in state.links.iter_mut().filter(|link| !link.is_cut) {
            link.exchange = None;
        }
        state.next = Some(exchange.clone());
        exchange
    }

    pub(super) fn cut_all(&self) {
        self.state().links.iter_mut().for_each(Link::cut);
        self.changed.notify_all();
    }

    pub(super) fn connections(&self) -> usize {
        self.state().links.iter().filter(|link| !link.is_cut).count()
    }

    pub(super) fn open_door(&self) {
        self.state().is_door_open = true;
    }

    pub(super) fn close_door(&self) {
        self.state().is_door_open = false;
    }

    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.cut_all();
    }

    /// Takes a connection. False when nobody is to be let in any more.
    pub(super) fn take(self: &Arc<Self>, client: TcpStream) -> bool {
        let mut state = self.state();
        if !state.is_door_open {
            return false;
        }
        // What cannot be had twice is not taken, and the client sees the end.
        let Ok(own) = client.try_clone() else { return true };
        let _ = client.set_nodelay(true);
        let number = state.links_ever;
        state.links_ever += 1;
        state.links.push(Link { number, client, server: None, is_cut: false, exchange: None });
        let network = self.clone();
        std::thread::spawn(move || network.forward(number, own));
        true
    }

    /// The life of a connection.
    fn forward(self: &Arc<Self>, number: u64, client: TcpStream) {
        if let Some((to_server, from_server)) = self.connect(number)
            && let Ok(to_client) = client.try_clone()
        {
            let back = std::thread::spawn({
                let network = self.clone();
                move || network.pump(number, Toward::Client, from_server, to_client)
            });
            self.pump(number, Toward::Server, client, to_server);
            let _ = back.join();
        }
        self.forget(number);
    }

    /// A connection to the server, twice: to write, and to read.
    fn connect(&self, number: u64) -> Option<(TcpStream, TcpStream)> {
        drop(self.when_fair(number, self.state())?);
        let server = TcpStream::connect(&self.server).ok()?;
        let _ = server.set_nodelay(true);
        let (writer, reader) = (server.try_clone().ok()?, server.try_clone().ok()?);
        let mut state = self.state();
        let link = state.links.iter_mut().find(|link| link.number == number)?;
        link.server = Some(server);
        (!link.is_cut).then_some((writer, reader))
    }

    /// Forwards one direction until its end.
    fn pump(&self, number: u64, toward: Toward, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        loop {
            let piece = from.read(&mut buffer).unwrap_or(0);
            let (allowed, is_cut) = self.allow(number, toward, &buffer[..piece]);
            // A side that hears no more is gone, and the other is told.
            let is_cut = to.write_all(&buffer[..allowed]).is_err() || is_cut;
            if is_cut {
                self.cut(number);
            }
            // After a cut, what the server still says is heard to its end and goes nowhere.
            if piece == 0 || (is_cut && toward == Toward::Server) {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Waits for the weather, and answers how much of a piece may go on and whether the connection is
    /// cut then. An end is an empty piece.
    fn allow(&self, number: u64, toward: Toward, piece: &[u8]) -> (usize, bool) {
        let Some(mut state) = self.when_fair(number, self.state()) else { return (0, true) };
        let State { next, links, .. } = &mut *state;
        let Some(link) = links.iter_mut().find(|link| link.number == number) else { return (0, true) };
        if piece.is_empty() {
            return (0, false);
        }
        if toward == Toward::Server && next.as_ref().is_some_and(|next| next.begins_with(piece)) {
            link.exchange = next.take();
        }
        match &link.exchange {
            Some(exchange) => exchange.allow(toward, piece.len()),
            None => (piece.len(), false),
        }
    }

    /// Waits while nothing arrives. None when the connection is cut.
    fn when_fair<'s>(&self, number: u64, state: MutexGuard<'s, State>) -> Option<MutexGuard<'s, State>> {
        let is_cut = |state: &State| {
            state.is_closed || state.links.iter().all(|link| link.number != number || link.is_cut)
        };
        let waited = |state, time: Duration, holds: &dyn Fn(&State) -> bool| {
            let waited = self.changed.wait_timeout_while(state, time, |state| !is_cut(state) && holds(state));
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        let mut state = state;
        if let Weather::Slow(time) = state.weather {
            state = waited(state, time, &|state| matches!(state.weather, Weather::Slow(_)));
        }
        state = waited(state, Duration::MAX, &|state| state.weather == Weather::Silent);
        (!is_cut(&state)).then_some(state)
    }

    fn cut(&self, number: u64) {
        self.state().links.iter_mut().filter(|link| link.number == number).for_each(Link::cut);
    }

    /// The connection has ended on both sides.
    fn forget(&self, number: u64) {
        let mut state = self.state();
        if let Some(at) = state.links.iter().position(|link| link.number == number) {
            let link = state.links.swap_remove(at);
            drop(state);
            let _ = link.client.shutdown(Shutdown::Both);
            if let Some(exchange) = &link.exchange {
                exchange.end();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
