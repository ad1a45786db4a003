//! Changes. Callers encode them on their own threads; the writer thread applies them in transactions.

/// The writer thread and its group commit.
pub(crate) mod writer;

/// One transaction, and the state that the changes in it share.
pub(crate) mod tx;

/// The writer's cache of held runs.
pub(crate) mod lease_cache;

/// Starting runs.
pub(crate) mod start;

/// Streams and published states.
pub(crate) mod streams;

/// Encoded turns.
pub(crate) mod turn;

/// Committing turns.
pub(crate) mod commit;

/// The effects of a turn on other runs.
pub(crate) mod outbox;

/// Encoded messages, and messages as rows.
pub(crate) mod message;

/// Sending messages.
pub(crate) mod send;

/// The directory of tokens, and replies.
pub(crate) mod tokens;

/// Deleting runs that have ended.
pub(crate) mod prune;

/// The mark that keeps a run from being deleted.
pub(crate) mod delete_turns;
/// Runs with the turns of others.
pub(crate) mod fork;
pub(crate) mod quarantine;

/// Records.
pub(crate) mod records;
pub(crate) mod reopen;

/// Transactions of steps, on a connection of their own.
pub(crate) mod transactions;

/// Starts and sends in a transaction of the caller.
pub(crate) mod within;
