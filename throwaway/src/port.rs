//! Free ports of the loopback.

use std::net::{Ipv4Addr, TcpListener};

use crate::error::{Error, Result};
use crate::random;

// Below the ephemeral ports (32768 and up on Linux, 49152 elsewhere): while a server is down, no outgoing connection
// gets its port, and no client connects to itself.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// The maximum number of ports that are tried.
const TRIES_MAX: usize = 1_000;

/// A port that is free now. Another process may take it before the caller does; the caller then calls this again.
pub(crate) fn free() -> Result<u16> {
    (0..TRIES_MAX)
        .map(|_| FIRST + (random::number() % u64::from(COUNT)) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| {
            Error::new(format!("{TRIES_MAX} ports from {FIRST} up were tried on 127.0.0.1, and none is free"))
        })
}
