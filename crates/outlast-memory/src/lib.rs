//! `MemoryWorld`: a world in the memory of one process, and the executable specification of the
//! [`World`](outlast_core::World) contract.
//!
//! It consists of plain maps behind one lock. It implements each method in the simplest way; the other worlds do the
//! same with a database.

// The modules are in the order in which to read them.

mod world;

mod state;

mod fork;

mod reopen;
mod run;

mod start;

mod send;

mod session;

mod claim;

mod ready_queues;
mod records;

mod deadlines;

mod commit;

mod outbox;

mod streams;
mod tokens;

mod query;

mod prune;

pub use world::MemoryWorld;
