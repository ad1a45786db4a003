//! The expansions compiled and run, against a small stand-in for the SDK.
#![deny(unused, deprecated, nonstandard_style, missing_docs, unreachable_pub, missing_debug_implementations)]
#![warn(clippy::pedantic)]

extern crate self as outlast;

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod sdk;
mod selects;
pub mod steps;
mod workflows;

pub use sdk::*;

#[allow(missing_docs)]
pub mod __private {
    pub use crate::sdk::*;
}
