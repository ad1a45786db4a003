//! The reader pool: a few threads with a connection each, for queries.

use std::collections::VecDeque;
use std::sync::Arc;

use outlast_core::WorldError;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::connection::error::{Refusal, is_busy, world_closed};
use crate::connection::file::{ConnectionSettings, open_reader, retry_busy};
use crate::connection::opened_file::OpenedFile;
use crate::connection::thread::OwnedThread;

/// The number of reader threads of a world. SQLite mostly reads from memory, so few are enough.
const READERS: usize = 2;

type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// Passes queries to the reader threads.
#[derive(Debug)]
pub(crate) struct ReaderPool {
    file: Arc<OpenedFile>,
    queue: Arc<JobQueue>,
    _threads: Vec<OwnedThread>,
}

#[derive(Default)]
struct JobQueue {
    state: Mutex<JobQueueState>,
    added: Condvar,
}

#[derive(Default)]
struct JobQueueState {
    jobs: VecDeque<ReadJob>,
    is_closed: bool,
}

impl std::fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JobQueue({})", self.state.lock().jobs.len())
    }
}

impl ReaderPool {
    /// Starts the threads.
    pub(crate) fn start(settings: &ConnectionSettings, file: Arc<OpenedFile>) -> Result<Self, WorldError> {
        let mut readers = Self { file, queue: Arc::default(), _threads: Vec::new() };
        for _ in 0..READERS {
            let connection = open_reader(settings)?;
            let queue = readers.queue.clone();
            readers._threads.push(OwnedThread::spawn("outlast-reader", move || queue.work(&connection))?);
        }
        Ok(readers)
    }

    /// Runs a query on one snapshot of the file.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl Fn(&Connection) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, WorldError> {
        let (reply, answer) = oneshot::channel();
        self.run(Box::new(move |connection| {
            // Sending fails if the caller's future was dropped.
            let _ = reply.send(in_snapshot(connection, &query));
        }));
        self.answer(answer.await.map_err(|_| world_closed())?)
    }

    /// Runs a query of one statement, which needs no explicit snapshot.
    pub(crate) async fn read_statement<T: Send + 'static>(
        &self,
        query: impl Fn(&Connection) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, WorldError> {
        let (reply, answer) = oneshot::channel();
        self.run(Box::new(move |connection| {
            let _ = reply.send(retry_while_busy(|| query(connection)));
        }));
        self.answer(answer.await.map_err(|_| world_closed())?)
    }

    /// The answer of the world, unless its file is not at its path any more.
    pub(crate) fn answer<T>(&self, answer: Result<T, Refusal>) -> Result<T, WorldError> {
        self.file.check()?;
        answer.map_err(|refusal| refusal.into_world_error(self.file.path()))
    }

    /// Queues a job that sends its result itself.
    pub(crate) fn run(&self, job: ReadJob) {
        self.queue.state.lock().jobs.push_back(job);
        self.queue.added.notify_one();
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        self.queue.state.lock().is_closed = true;
        self.queue.added.notify_all();
    }
}

impl JobQueue {
    /// Runs jobs until the pool is dropped and the queue is empty.
    fn work(&self, connection: &Connection) {
        loop {
            let job = {
                let mut state = self.state.lock();
                while state.jobs.is_empty() && !state.is_closed {
                    self.added.wait(&mut state);
                }
                match state.jobs.pop_front() {
                    Some(job) => job,
                    None => return,
                }
            };
            job(connection);
        }
    }
}

/// Runs a query in a read transaction. It is repeated while another process holds a lock that it needs.
pub(crate) fn in_snapshot<T>(
    connection: &Connection,
    query: impl Fn(&Connection) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    retry_while_busy(|| {
        connection.prepare_cached("BEGIN")?.execute([])?;
        let answer = query(connection);
        let ended = connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        // If both failed, report the error of the query: SQLite may have ended the transaction because of it.
        let answer = answer?;
        ended?;
        Ok(answer)
    })
}

fn retry_while_busy<T>(mut query: impl FnMut() -> Result<T, Refusal>) -> Result<T, Refusal> {
    retry_busy(|| match query() {
        Err(Refusal::Sqlite(error)) if is_busy(&error) => Err(error),
        answer => Ok(answer),
    })?
}
