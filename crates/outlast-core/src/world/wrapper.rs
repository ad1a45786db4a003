//! Worlds that pass their calls to another world.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Delivered, Description, QuarantineChange, World};
use crate::change_signal::RunWatch;
use crate::error::WorldError;
use crate::event::{Ended, TurnRecord};
use crate::forked::Fork;
use crate::id::{MessageId, RunId, SessionId};
use crate::marks::{MarkCounts, Marks};
use crate::message::{Message, NewMessage, Sent};
use crate::queue::QueueView;
use crate::record::{NewRecord, RecordQuery, StoredRecord};
use crate::reply::StoredReply;
use crate::report::Report;
use crate::retried::Reopen;
use crate::run::{Counts, FailureQuery, FlagCounts, Page, Pruned, RunQuery, RunView, Start, Started};
use crate::stream::{StateView, StreamPage, StreamView, StreamWrite, StreamWritten};
use crate::time::{Busy, Clock, Timestamp};
use crate::token::{TokenHash, TokenView};
use crate::turn::{Committed, HeldRun, Turn};
use crate::work::{Beat, ClaimRequest, HeartbeatDetails, Join, Work, WorkerView};

/// Generates [`WorldMethod`], [`WorldWrapper`] and its implementation of [`World`] from one list of the methods that
/// return a `Result`.
macro_rules! wrapper_of {
    ($($method:ident $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// A method of [`World`] that can fail.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum WorldMethod {
            $(#[doc = concat!("[`World::", stringify!($name), "`]")] $method,)*
        }

        /// A world that passes its calls to another world, and changes some of them: for tests with faults, for
        /// measurements, or for limits.
        ///
        /// Implement [`inner`](Self::inner), and override [`call`](Self::call) to change all calls, or single methods
        /// to change those. Every wrapper is a [`World`]. As with `World`, methods may be added in any release before
        /// 1.0.
        ///
        /// ```
        /// # use std::sync::Arc;
        /// # use std::sync::atomic::{AtomicU64, Ordering};
        /// use outlast_core::{World, WorldError, WorldMethod, WorldWrapper};
        ///
        /// /// Counts the commits of a world.
        /// #[derive(Debug)]
        /// struct CommitCounter {
        ///     inner: Arc<dyn World>,
        ///     commits: AtomicU64,
        /// }
        ///
        /// impl WorldWrapper for CommitCounter {
        ///     fn inner(&self) -> &dyn World {
        ///         &*self.inner
        ///     }
        ///
        ///     async fn call<T: Send>(
        ///         &self,
        ///         method: WorldMethod,
        ///         call: impl Future<Output = Result<T, WorldError>> + Send,
        ///     ) -> Result<T, WorldError> {
        ///         if method == WorldMethod::Commit {
        ///             self.commits.fetch_add(1, Ordering::Relaxed);
        ///         }
        ///         call.await
        ///     }
        /// }
        /// # fn is_a_world(counter: CommitCounter) -> Arc<dyn World> { Arc::new(counter) }
        /// ```
        pub trait WorldWrapper: fmt::Debug + Send + Sync + 'static {
            /// The world that gets the calls.
            fn inner(&self) -> &dyn World;

            /// Makes a call of the inner world. All methods that are not overridden go through it, except those that
            /// cannot fail.
            fn call<T: Send>(
                &self,
                method: WorldMethod,
                call: impl Future<Output = Result<T, WorldError>> + Send,
            ) -> impl Future<Output = Result<T, WorldError>> + Send {
                let _ = method;
                call
            }

            $(
                #[doc = concat!("[`World::", stringify!($name), "`] of the inner world, through [`call`](Self::call).")]
                fn $name(&self, $($argument: $type),*) -> impl Future<Output = Result<$answer, WorldError>> + Send {
                    async move { self.call(WorldMethod::$method, self.inner().$name($($argument),*)).await }
                }
            )*

            /// [`World::changed`] of the inner world.
            fn changed(&self, epoch: u64, until: Timestamp) -> impl Future<Output = Busy> + Send {
                self.inner().changed(epoch, until)
            }

            /// [`World::watch`] of the inner world.
            fn watch(&self, run: RunId) -> RunWatch {
                self.inner().watch(run)
            }

            /// [`World::run_id`] of the inner world.
            fn run_id(&self, key: Option<&str>, bits: u128) -> RunId {
                self.inner().run_id(key, bits)
            }

            /// [`World::clock`] of the inner world.
            fn clock(&self) -> Arc<dyn Clock> {
                self.inner().clock()
            }

            /// [`World::describe`] of the inner world.
            fn describe(&self) -> Description {
                self.inner().describe()
            }
        }

        #[async_trait]
        impl<W: WorldWrapper> World for W {
            $(
                async fn $name(&self, $($argument: $type),*) -> Result<$answer, WorldError> {
                    WorldWrapper::$name(self, $($argument),*).await
                }
            )*

            async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
                WorldWrapper::changed(self, epoch, until).await
            }

            fn watch(&self, run: RunId) -> RunWatch {
                WorldWrapper::watch(self, run)
            }

            fn run_id(&self, key: Option<&str>, bits: u128) -> RunId {
                WorldWrapper::run_id(self, key, bits)
            }

            fn clock(&self) -> Arc<dyn Clock> {
                WorldWrapper::clock(self)
            }

            fn describe(&self) -> Description {
                WorldWrapper::describe(self)
            }

            fn inner_world(&self) -> Option<&dyn World> {
                Some(self.inner())
            }
        }
    };
}

wrapper_of! {
    Start start(starts: Vec<Start>) -> Vec<Result<Started, WorldError>>;
    StartAndSend start_and_send(start: Start, message: NewMessage) -> (Started, Sent);
    Run run(run: RunId) -> RunView;
    RunsById runs_by_id(runs: &[RunId]) -> Vec<RunView>;
    Runs runs(query: RunQuery) -> Page;
    Counts counts() -> Counts;
    MarkCounts mark_counts() -> MarkCounts;
    FlagCounts flag_counts() -> FlagCounts;
    Failures failures(query: FailureQuery) -> Vec<RunView>;
    Ended ended(run: RunId, until: Timestamp) -> Option<Ended>;
    History history(run: RunId, from: u64, limit: usize) -> Vec<TurnRecord>;
    EventCount event_count(run: RunId) -> u64;
    Histories histories(runs: &[RunId]) -> Vec<Result<Vec<TurnRecord>, WorldError>>;
    Send send(messages: Vec<NewMessage>) -> Vec<Result<Sent, WorldError>>;
    Inbox inbox(run: RunId, after: u64) -> Vec<Message>;
    Reply reply(run: RunId, message: MessageId) -> Option<StoredReply>;
    Token token(hash: TokenHash) -> Option<TokenView>;
    Join join(join: Join) -> ();
    Beat beat(session: SessionId, report: &Report, details: &[HeartbeatDetails]) -> Beat;
    Held held(session: SessionId) -> Vec<HeldRun>;
    Leave leave(session: SessionId) -> ();
    Takeover takeover(session: SessionId) -> u64;
    Claim claim(session: SessionId, request: ClaimRequest) -> Work;
    Commit commit(session: SessionId, turns: &[Turn]) -> Vec<Result<Committed, WorldError>>;
    Workers workers() -> Vec<WorkerView>;
    Queues queues() -> Vec<QueueView>;
    PutRecords put_records(space: &str, records: Vec<NewRecord>) -> ();
    PutRecordIfAbsent put_record_if_absent(space: &str, record: NewRecord) -> bool;
    Record record(space: &str, id: &str) -> Option<StoredRecord>;
    Records records(query: RecordQuery) -> Vec<StoredRecord>;
    DeleteRecords delete_records(space: &str, ids: &[String]) -> u64;
    Resume resume(run: RunId) -> ();
    WriteChunks write_chunks(session: SessionId, writes: Vec<StreamWrite>) -> Vec<Result<StreamWritten, WorldError>>;
    Chunks chunks(run: RunId, stream: &str, from: i64, limit: usize) -> StreamPage;
    Streams streams(run: RunId) -> Vec<StreamView>;
    Published published(run: RunId) -> StateView;
    BlockedBy blocked_by(run: RunId) -> Option<String>;
    Deliver deliver(session: SessionId) -> Delivered;
    Reopen reopen(reopen: Reopen) -> Sent;
    Fork fork(fork: Fork) -> Started;
    Quarantine quarantine(run: RunId, change: QuarantineChange) -> Marks;
    DeleteTurns delete_turns(run: RunId, range: Range<u64>, kept: &[u64]) -> ();
    Prune prune(before: Timestamp, after: Option<RunId>, limit: usize) -> Pruned;
    Delete delete(run: RunId) -> ();
}
