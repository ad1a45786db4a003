//! The writer: one thread, and one transaction for all that waits for it.
//!
//! Group commit without a timer. The thread blocks for the first change, takes along what has queued up
//! behind it, and answers everyone after the one COMMIT; while that waits for the disk, the next batch
//! gathers. If SQLite refuses a batch, its changes are applied one by one, so that only the bad one
//! gets the error.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use outlast_core::limits::BATCH_TURNS_MAX;
use outlast_core::{Busy, ChangeSignal, Clock, Waiters, WorldError};
use rusqlite::{Connection, Error};
use tokio::sync::oneshot;

use crate::connection::error::{Refusal, closed, of_sqlite};
use crate::connection::fair_lock::Turnstile;
use crate::connection::thread::Thread;
use crate::notifications::change_watcher::Changes;
use crate::notifications::hint_socket::Ringer;
use crate::read::id_clock_skew::Skew;
use crate::sessions::session_locks::Locks;
use crate::write::lease_cache::Holdings;
use crate::write::tx::{After, Tx};

/// How many elements one transaction takes along. More would make the first of them wait too long.
const TRANSACTION_ELEMENTS_MAX: usize = 4 * BATCH_TURNS_MAX;

/// The same while other processes wait for their turn.
const CROWDED_ELEMENTS_MAX: usize = BATCH_TURNS_MAX / 2;

/// How often the thread looks for the next change before it sleeps; some tens of microseconds.
const LOOKS_BEFORE_SLEEP: usize = 200;

/// Hands changes to the writer's thread.
#[derive(Debug)]
pub(crate) struct Writer {
    // Declared first, so that the channel is closed before the thread is awaited.
    changes: Sender<Box<dyn Change>>,
    _thread: Thread,
}

/// What the writer's thread works with.
pub(crate) struct Desk {
    pub(crate) path: PathBuf,
    pub(crate) connection: Connection,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) change_signal: Arc<ChangeSignal>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) ringer: Option<Arc<Ringer>>,
    pub(crate) turnstile: Turnstile,
    pub(crate) holdings: Holdings,
    pub(crate) skew: Skew,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(desk: Desk) -> Result<Self, WorldError> {
        let (changes, received) = channel();
        let thread = Thread::spawn("outlast-writer", move || desk.work(&received))?;
        Ok(Self { changes, _thread: thread })
    }

    /// Applies each element, and answers each after the commit.
    pub(crate) async fn write<E, A>(
        &self,
        elements: Vec<E>,
        apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
    ) -> Result<Vec<Result<A, WorldError>>, WorldError>
    where
        E: Send + 'static,
        A: Send + 'static,
    {
        if elements.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let answers = elements.iter().map(|_| None).collect();
        let change = Batch { elements, apply, answers, reply };
        self.changes.send(Box::new(change)).map_err(|_| closed())?;
        let (answers, elements) = answer.await.map_err(|_| closed())?;
        // Released where they were made: the writer has better things to do.
        drop(elements);
        Ok(answers)
    }

    /// Applies one element, and answers after the commit.
    pub(crate) async fn write_one<E, A>(
        &self,
        element: E,
        apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
    ) -> Result<A, WorldError>
    where
        E: Send + 'static,
        A: Send + 'static,
    {
        self.write(vec![element], apply).await?.pop().ok_or_else(closed)?
    }
}

/// A batch of elements with the answers to them, whatever their types.
trait Change: Send {
    fn len(&self) -> usize;
    fn is_abandoned(&self) -> bool;
    fn apply(&mut self, index: usize, tx: &mut Tx<'_>) -> Result<(), Error>;
    fn fail(&mut self, index: usize, error: WorldError);
    fn answer(self: Box<Self>);
}

struct Batch<E, A> {
    elements: Vec<E>,
    apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
    answers: Vec<Option<Result<A, WorldError>>>,
    reply: oneshot::Sender<Reply<E, A>>,
}

/// The answers, and the elements that they belong to.
type Reply<E, A> = (Vec<Result<A, WorldError>>, Vec<E>);

impl<E: Send, A: Send> Change for Batch<E, A> {
    fn len(&self) -> usize {
        self.elements.len()
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn apply(&mut self, index: usize, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.answers[index] = Some(match (self.apply)(tx, &self.elements[index]) {
            Ok(answer) => Ok(answer),
            Err(Refusal::World(error)) => Err(error),
            Err(Refusal::Store(error)) => return Err(error),
        });
        Ok(())
    }

    fn fail(&mut self, index: usize, error: WorldError) {
        self.answers[index] = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        let answers = self.answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(closed())));
        // Nobody listens any more when the caller's future was dropped.
        let _ = self.reply.send((answers.collect(), self.elements));
    }
}

/// Why a transaction did not happen.
enum Failed {
    /// Another process kept writing: nothing of it was tried.
    ToBegin(Error),
    /// SQLite refused something in it: all of it was rolled back.
    Within(Error),
}

impl Desk {
    fn work(mut self, received: &Receiver<Box<dyn Change>>) {
        while let Some(first) = next(received) {
            let mut elements = first.len();
            let limit =
                if self.turnstile.is_crowded() { CROWDED_ELEMENTS_MAX } else { TRANSACTION_ELEMENTS_MAX };
            let mut batch = vec![first];
            while elements < limit
                && let Ok(next) = received.try_recv()
            {
                elements += next.len();
                batch.push(next);
            }
            batch.retain(|change| !change.is_abandoned());
            // From here until the change signal has fired: a virtual clock must not move between the two.
            let busy = self.clock.busy();
            self.write(batch, busy);
        }
    }

    fn write(&mut self, mut batch: Vec<Box<dyn Change>>, busy: Busy) {
        let written = self.transaction(|tx| {
            batch.iter_mut().try_for_each(|change| (0..change.len()).try_for_each(|i| change.apply(i, tx)))
        });
        let after = match written {
            Ok(after) => vec![after],
            Err(Failed::ToBegin(error)) => {
                let error = of_sqlite(&error, &self.path);
                for change in &mut batch {
                    (0..change.len()).for_each(|index| change.fail(index, error.clone()));
                }
                Vec::new()
            }
            Err(Failed::Within(_)) => self.write_singly(&mut batch),
        };
        self.tell(after, batch, busy);
    }

    fn write_singly(&mut self, batch: &mut [Box<dyn Change>]) -> Vec<After> {
        let mut done = Vec::new();
        for change in batch {
            for index in 0..change.len() {
                match self.transaction(|tx| change.apply(index, tx)) {
                    Ok(after) => done.push(after),
                    Err(Failed::ToBegin(error) | Failed::Within(error)) => {
                        change.fail(index, of_sqlite(&error, &self.path));
                    }
                }
            }
        }
        done
    }

    fn transaction(
        &mut self,
        mut changes: impl FnMut(&mut Tx<'_>) -> Result<(), Error>,
    ) -> Result<After, Failed> {
        let connection = &self.connection;
        self.turnstile.begin(|| run(connection, "BEGIN IMMEDIATE")).map_err(Failed::ToBegin)?;
        let mut tx = Tx::new(connection, self.clock.now(), &self.locks, &mut self.holdings, &mut self.skew);
        let written = changes(&mut tx)
            .and_then(|()| tx.finish())
            .and_then(|after| run(connection, "COMMIT").map(|()| after));
        written.map_err(|error| {
            self.holdings.clear();
            self.skew.clear();
            if !connection.is_autocommit() {
                // Fails only when SQLite has rolled back by itself, which is what we want.
                let _ = run(connection, "ROLLBACK");
            }
            Failed::Within(error)
        })
    }

    /// Rings before answering, so that whoever has an answer finds the hint given.
    fn tell(&self, after: Vec<After>, batch: Vec<Box<dyn Change>>, busy: Busy) {
        let mut changes = Changes::NONE;
        if after.iter().any(|after| after.rings) {
            changes |= Changes::WORK;
            self.change_signal.notify();
        }
        let has_ends = after.iter().any(|after| !after.ended.is_empty());
        if has_ends {
            changes |= Changes::ENDS;
        }
        if let Some(ringer) = &self.ringer {
            ringer.ring(changes);
        }
        for (session, _lock) in after.iter().flat_map(|after| &after.left) {
            self.locks.release(*session);
        }
        // Whoever is answered is busy by itself, and finds nobody else so when there is nothing more to tell.
        let _busy = has_ends.then_some(busy);
        for change in batch {
            change.answer();
        }
        for ended in after.into_iter().flat_map(|after| after.ended) {
            self.waiters.tell(ended.run, || Some(ended.clone()));
        }
    }
}

/// The next change. Whoever was just answered often asks again at once, so it is worth to look a few
/// times before the thread goes to sleep: waking it costs more than the whole turn.
fn next(received: &Receiver<Box<dyn Change>>) -> Option<Box<dyn Change>> {
    for _ in 0..LOOKS_BEFORE_SLEEP {
        if let Ok(change) = received.try_recv() {
            return Some(change);
        }
        std::thread::yield_now();
    }
    received.recv().ok()
}

fn run(connection: &Connection, sql: &str) -> Result<(), Error> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}
