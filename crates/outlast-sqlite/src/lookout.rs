//! The lookout: notices what other processes did to the file.
//!
//! It looks only while someone waits, at most every [`SLOW_POLL`], at one number that SQLite keeps in
//! shared memory. Changes by this process are told at once and need no lookout.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use outlast_core::limits::SLOW_POLL;
use outlast_core::{Bell, Hosts, Waiters, WorldError};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use crate::ends::ends;
use crate::file::open_reader;
use crate::options::Sync;
use crate::readers::in_view;
use crate::thread::Thread;

/// Counts those who wait, and looks out for them.
#[derive(Debug)]
pub(crate) struct Lookout {
    post: Arc<Post>,
    _thread: Option<Thread>,
}

#[derive(Debug, Default)]
struct Post {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    listeners: usize,
    /// The thread waits for someone to listen.
    is_idle: bool,
    is_closed: bool,
}

impl Lookout {
    /// One that does not look: a virtual clock must not be run by real time.
    pub(crate) fn asleep() -> Self {
        Self { post: Arc::default(), _thread: None }
    }

    /// Starts the thread.
    pub(crate) fn start(
        path: &Path,
        sync: Sync,
        bell: Arc<Bell>,
        waiters: Arc<Waiters>,
        hosts: Arc<Hosts>,
    ) -> Result<Self, WorldError> {
        let post = Arc::new(Post::default());
        let view = View { path: path.into(), connection: open_reader(path, sync)?, bell, waiters, hosts };
        let at_post = post.clone();
        let thread = Thread::spawn("outlast-lookout", move || at_post.watch(&view))?;
        Ok(Self { post, _thread: Some(thread) })
    }

    /// Looks out until the returned value is dropped.
    pub(crate) fn listen(&self) -> Listening<'_> {
        let mut state = self.post.state.lock();
        state.listeners += 1;
        if state.is_idle {
            self.post.changed.notify_one();
        }
        Listening(&self.post)
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.post.state.lock().is_closed = true;
        self.post.changed.notify_one();
    }
}

/// Someone waits for what others do.
#[derive(Debug)]
pub(crate) struct Listening<'a>(&'a Post);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.state.lock().listeners -= 1;
    }
}

struct View {
    path: PathBuf,
    connection: Connection,
    bell: Arc<Bell>,
    waiters: Arc<Waiters>,
    hosts: Arc<Hosts>,
}

impl Post {
    fn watch(&self, view: &View) {
        let mut seen = view.version();
        while self.wait() {
            let version = view.version();
            if version.is_some() && version != seen {
                seen = version;
                view.bell.ring();
                view.tell_ends();
            }
        }
    }

    /// Waits until it is time to look; `false` when the world is closed.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while state.listeners == 0 && !state.is_closed {
            state.is_idle = true;
            self.changed.wait(&mut state);
        }
        state.is_idle = false;
        if !state.is_closed {
            self.changed.wait_for(&mut state, SLOW_POLL);
        }
        !state.is_closed
    }
}

impl View {
    /// A number that changes when another connection has written; `None` when it cannot be read now.
    fn version(&self) -> Option<i64> {
        self.connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok()
    }

    /// Tells the waiters whose runs have ended. What fails now is tried at the next change.
    fn tell_ends(&self) {
        let mut runs = self.waiters.runs();
        runs.retain(|run| !self.hosts.hold(*run));
        if runs.is_empty() {
            return;
        }
        let found = in_view(&self.connection, |view| Ok(ends(view, &runs)?));
        match found.map_err(|refusal| refusal.into_world(&self.path)) {
            Ok(found) => {
                for (run, ended) in found {
                    if let Some(ended) = ended {
                        self.waiters.tell(run, || Some(ended));
                    }
                }
            }
            Err(_) => self.bell.ring(),
        }
    }
}
