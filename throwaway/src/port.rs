//! Free ports of the loopback.

use std::net::{Ipv4Addr, TcpListener};

use crate::error::{Error, Result};
use crate::random;

// Below the ports that systems give to outgoing connections (32768 and up on Linux, 49152 elsewhere):
// while a server is down, nobody else gets its port by chance, and no client connects to itself.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// How many ports are tried.
const TRIES_MAX: usize = 1_000;

/// A port that nobody listens on now. Another process may take it before the caller does, who then asks again.
pub(crate) fn free() -> Result<u16> {
    (0..TRIES_MAX)
        .map(|_| FIRST + (random::number() % u64::from(COUNT)) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| {
            Error::new(format!("{TRIES_MAX} ports from {FIRST} up were tried on 127.0.0.1, and none is free"))
        })
}
