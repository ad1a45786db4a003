//! The lookout: notices what other processes did to the file.
//!
//! They ring its [doorbell](crate::notifications::hint_socket). Behind that it looks, while someone waits, at one number
//! that SQLite keeps in shared memory: seldom where there is a doorbell, every [`SLOW_POLL`] where there
//! is none. Changes by this process are told at once and need no lookout.

use std::ops::BitOrAssign;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::SLOW_POLL;
use outlast_core::{ChangeSignal, Waiters, WorldError};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use crate::connection::file::{Opening, open_reader};
use crate::connection::thread::Thread;
use crate::notifications::hint_socket::{Doorbell, Porch, Ringer};
use crate::options::HintMode;
use crate::read::readers::in_view;
use crate::read::run_ends::ends;

/// How often the lookout looks for those who wait for ends, though the doorbell did not ring: a ring may
/// be lost.
const DOORBELL_POLL: Duration = Duration::from_secs(2);

/// Of so many looks one is for work, too. It costs a claim, since beats also change the file.
const LOOKS_PER_CLAIM: u32 = 10;

/// The shortest time between two rings: those that come together are one.
const GAP: Duration = Duration::from_millis(1);

/// Rings after which the lookout looks around, when it never gets a quiet moment.
const RINGS_BEFORE_LOOK: u32 = 1_000;

/// What a commit may have changed for other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changes(u8);

impl Changes {
    pub(crate) const NONE: Self = Self(0);
    /// Something may have become ready, or a session was taken over.
    pub(crate) const WORK: Self = Self(1);
    /// Runs have ended.
    pub(crate) const ENDS: Self = Self(2);
    pub(crate) const ALL: Self = Self(3);

    /// Bits that mean nothing are left out.
    pub(crate) fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOrAssign for Changes {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Counts those who wait, and looks out for them.
#[derive(Debug)]
pub(crate) struct Lookout {
    post: Arc<Post>,
    ringer: Option<Arc<Ringer>>,
    /// How it notices, for a person.
    manner: String,
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

/// What the lookout tells of changes.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) change_signal: Arc<ChangeSignal>,
    pub(crate) waiters: Arc<Waiters>,
}

impl Lookout {
    /// One that does not look: a virtual clock must not be run by real time.
    pub(crate) fn asleep() -> Self {
        let manner = "not at all, since the clock is virtual".into();
        Self { post: Arc::default(), ringer: None, manner, _thread: None }
    }

    /// Starts the thread.
    pub(crate) fn start(opening: &Opening, poll: HintMode, told: Told) -> Result<Self, WorldError> {
        let post = Arc::new(Post::default());
        let path = opening.path.clone();
        let view = View { path, connection: open_reader(opening)?, told };
        let (doorbell, manner) = hang(&opening.path, poll);
        let ringer = match &doorbell {
            Some(doorbell) => Some(doorbell.ringer()),
            None => Ringer::without_doorbell(&opening.path),
        };
        let at_post = post.clone();
        let thread = Thread::spawn("outlast-lookout", move || match doorbell {
            Some(doorbell) => at_post.hear(&view, doorbell),
            None => at_post.watch(&view, poll.period(SLOW_POLL)),
        })?;
        Ok(Self { post, ringer, manner, _thread: Some(thread) })
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

    /// Rings the doorbells of others; `None` where there are none.
    pub(crate) fn ringer(&self) -> Option<Arc<Ringer>> {
        self.ringer.clone()
    }

    /// How changes by other processes are noticed, for a person.
    pub(crate) fn manner(&self) -> &str {
        &self.manner
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.post.state.lock().is_closed = true;
        self.post.changed.notify_one();
        if let Some(ringer) = &self.ringer {
            ringer.wake();
        }
    }
}

/// A doorbell if one can be made, and how changes are noticed.
fn hang(path: &Path, poll: HintMode) -> (Option<Doorbell>, String) {
    if poll == HintMode::Alone {
        return (None, format!("within {SLOW_POLL:?}, by polling, as the URL asks"));
    }
    let hung = Porch::of(path).and_then(|porch| Doorbell::hang(porch, poll.period(DOORBELL_POLL)));
    match hung {
        Ok(doorbell) => {
            let manner = format!("at once, by the doorbell `{}`", doorbell.path().display());
            tracing::debug!(file = %path.display(), doorbell = %doorbell.path().display(), "a doorbell hangs");
            (Some(doorbell), manner)
        }
        Err(error) => {
            tracing::warn!(
                file = %path.display(), %error,
                "no doorbell can be made, so changes by other processes are noticed by polling; \
                 make the folder writable for this user, or use a shorter path"
            );
            (None, format!("within {SLOW_POLL:?}, by polling, since no doorbell can be made ({error})"))
        }
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
    told: Told,
}

impl Post {
    /// Hears the doorbell until the world is closed.
    fn hear(&self, view: &View, mut doorbell: Doorbell) {
        let mut seen = view.version();
        let (mut rings, mut looks) = (0, 0);
        loop {
            let heard = match doorbell.hear() {
                Ok(heard) => heard,
                Err(error) => {
                    tracing::warn!(file = %view.path.display(), %error, "the doorbell is broken; polling from now on");
                    return self.watch(view, Some(SLOW_POLL));
                }
            };
            if self.state.lock().is_closed {
                return;
            }
            doorbell.ring_others();
            let mut changes = heard.changes;
            rings += 1;
            if heard.is_silent || rings == RINGS_BEFORE_LOOK {
                rings = 0;
                looks += 1;
                doorbell.look_around();
                let is_worth_it = looks % LOOKS_PER_CLAIM == 0 || !view.told.waiters.is_empty();
                if is_worth_it && self.state.lock().listeners > 0 && view.has_changed(&mut seen) {
                    changes = Changes::ALL;
                }
            }
            view.tell(changes);
            if !heard.is_silent {
                // What comes meanwhile is one ring.
                std::thread::park_timeout(GAP);
            }
        }
    }

    /// Looks from time to time until the world is closed.
    fn watch(&self, view: &View, period: Option<Duration>) {
        let mut seen = view.version();
        while self.wait(period) {
            if view.has_changed(&mut seen) {
                view.tell(Changes::ALL);
            }
        }
    }

    /// Waits until it is time to look; `false` when the world is closed.
    fn wait(&self, period: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        while (state.listeners == 0 || period.is_none()) && !state.is_closed {
            state.is_idle = true;
            self.changed.wait(&mut state);
        }
        state.is_idle = false;
        if let Some(period) = period.filter(|_| !state.is_closed) {
            self.changed.wait_for(&mut state, period);
        }
        !state.is_closed
    }
}

impl View {
    /// A number that changes when another connection has written; `None` when it cannot be read now.
    fn version(&self) -> Option<i64> {
        self.connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok()
    }

    fn has_changed(&self, seen: &mut Option<i64>) -> bool {
        let version = self.version();
        let has_changed = version.is_some() && version != *seen;
        if has_changed {
            *seen = version;
        }
        has_changed
    }

    fn tell(&self, changes: Changes) {
        if changes.has(Changes::WORK) {
            self.told.change_signal.notify();
        }
        if changes.has(Changes::ENDS) {
            self.tell_ends();
        }
    }

    /// Tells the waiters whose runs have ended. What fails now is tried at the next change.
    fn tell_ends(&self) {
        let runs = self.told.waiters.runs();
        if runs.is_empty() {
            return;
        }
        let found = in_view(&self.connection, |view| Ok(ends(view, &runs)?));
        match found.map_err(|refusal| refusal.into_world(&self.path)) {
            Ok(found) => {
                for (run, ended) in found {
                    if let Some(ended) = ended {
                        self.told.waiters.tell(run, || Some(ended));
                    }
                }
            }
            Err(_) => self.told.change_signal.notify(),
        }
    }
}
