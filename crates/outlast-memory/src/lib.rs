//! `MemoryWorld`: runs that live in this process, and the executable specification of the
//! [`World`](outlast_core::World) contract.
//!
//! One lock, plain maps. What a method means is written here as plainly as it can be; the other
//! worlds do the same with a database.

mod claim;
mod commit;
mod deadlines;
mod outbox;
mod prune;
mod query;
mod ready_queues;
mod run;
mod send;
mod session;
mod start;
mod state;
mod world;

pub use world::MemoryWorld;
