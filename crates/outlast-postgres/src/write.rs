//! The calls that change the database. Each is a statement of `sql/`, which calls a function of `migrations/`, and a
//! mapping of its answer. [`commit`] is the hot path.

pub(crate) mod in_transaction;
pub(crate) mod send;
pub(crate) mod start;

pub(crate) mod claim;
pub(crate) mod session;

pub(crate) mod blocked_turns;
pub(crate) mod commit;
pub(crate) mod fork;
pub(crate) mod outbox;
pub(crate) mod rejected_turns;
pub(crate) mod reopen;
pub(crate) mod streams;
pub(crate) mod tokens;
pub(crate) mod transactions;

pub(crate) mod prune;
