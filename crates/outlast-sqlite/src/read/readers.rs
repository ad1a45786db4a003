//! Readers: a few threads with a connection each, for everything that changes nothing.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use outlast_core::WorldError;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::connection::error::{Refusal, closed, is_busy};
use crate::connection::file::{Opening, open_reader, retry_busy};
use crate::connection::thread::Thread;

/// How many readers a world has. SQLite reads from memory most of the time, so few are enough.
const READERS: usize = 2;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// Hands queries to the readers' threads.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    line: Arc<Line>,
    _threads: Vec<Thread>,
}

#[derive(Default)]
struct Line {
    state: Mutex<State>,
    added: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Line({})", self.state.lock().jobs.len())
    }
}

impl Readers {
    /// Starts the threads.
    pub(crate) fn start(opening: &Opening) -> Result<Self, WorldError> {
        let mut readers = Self { path: opening.path.clone(), line: Arc::default(), _threads: Vec::new() };
        for _ in 0..READERS {
            let connection = open_reader(opening)?;
            let line = readers.line.clone();
            readers._threads.push(Thread::spawn("outlast-reader", move || line.work(&connection))?);
        }
        Ok(readers)
    }

    /// Runs a query on one unchanging view of the file.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl Fn(&Connection) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, WorldError> {
        let (reply, answer) = oneshot::channel();
        self.run(Box::new(move |connection| {
            // Nobody listens any more when the caller's future was dropped.
            let _ = reply.send(in_view(connection, &query));
        }));
        answer.await.map_err(|_| closed())?.map_err(|refusal| refusal.into_world(&self.path))
    }

    /// Runs a query of one statement, which needs no view of its own.
    pub(crate) async fn read_once<T: Send + 'static>(
        &self,
        query: impl Fn(&Connection) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, WorldError> {
        let (reply, answer) = oneshot::channel();
        self.run(Box::new(move |connection| {
            let _ = reply.send(again_while_busy(|| query(connection)));
        }));
        answer.await.map_err(|_| closed())?.map_err(|refusal| refusal.into_world(&self.path))
    }

    /// Runs a job that answers by itself.
    pub(crate) fn run(&self, job: Job) {
        self.line.state.lock().jobs.push_back(job);
        self.line.added.notify_one();
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.line.state.lock().is_closed = true;
        self.line.added.notify_all();
    }
}

impl Line {
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

/// Runs a query inside a read transaction, again when another process is in the way.
pub(crate) fn in_view<T>(
    connection: &Connection,
    query: impl Fn(&Connection) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    again_while_busy(|| {
        connection.prepare_cached("BEGIN")?.execute([])?;
        let answer = query(connection);
        let ended = connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        // Why the query failed says more than why its view could not be ended: SQLite may have done that.
        let answer = answer?;
        ended?;
        Ok(answer)
    })
}

fn again_while_busy<T>(mut query: impl FnMut() -> Result<T, Refusal>) -> Result<T, Refusal> {
    retry_busy(|| match query() {
        Err(Refusal::Store(error)) if is_busy(&error) => Err(error),
        answer => Ok(answer),
    })?
}
