//! What this process has to say to others, until it is said. What comes together is said together: while something is
//! being said, and a little longer when much is said.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use outlast_core::RunId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::{Client, Error};

use crate::store::Store;

/// Ends that are told by name; of more than that others only hear that there were some.
const ENDS_MAX: usize = 150;

/// Something is said every so often, in the long run.
const PACE: Duration = Duration::from_millis(1);

/// So many times something is said at once, after a silence.
const BURST: u32 = 5;

/// The pause before something is said again by the pool.
const RETRY: Duration = Duration::from_millis(200);

/// What is to be said.
#[derive(Debug, Default)]
pub(crate) struct Unsaid {
    rings: bool,
    /// A run that was started, while there is no other work to tell of.
    started: Option<RunId>,
    ended: BTreeSet<RunId>,
    many_ended: bool,
}

impl Unsaid {
    fn is_nothing(&self) -> bool {
        !self.rings && self.started.is_none() && !self.many_ended && self.ended.is_empty()
    }

    fn add(&mut self, rings: bool, started: Option<RunId>, ended: impl ExactSizeIterator<Item = RunId>) {
        // One start is told by name; of more than that others only hear that there is work.
        self.rings |= rings || started.is_some() && self.started.is_some();
        self.started = self.started.or(started).filter(|_| !self.rings);
        if self.many_ended || self.ended.len() + ended.len() > ENDS_MAX {
            self.many_ended = true;
            self.ended.clear();
        } else {
            self.ended.extend(ended);
        }
    }

    /// As others hear it: who says it, `w` for work, `+` before the run that was started, and which runs ended, or `*`.
    pub(crate) fn text(&self, origin: u64) -> String {
        let mut text = format!("{origin:x} {}", if self.rings { "w" } else { "-" });
        if self.many_ended {
            text.push_str(" *");
        }
        if let Some(run) = self.started {
            text.push_str(&format!(" +{run}"));
        }
        for run in &self.ended {
            text.push_str(&format!(" {run}"));
        }
        text
    }
}

/// Where it is put, by whoever made a change.
#[derive(Clone, Debug)]
pub(crate) struct Voice {
    unsaid: Arc<Mutex<Unsaid>>,
    something: Arc<Notify>,
    /// Says nothing: a virtual clock must not be run by real time.
    is_silent: bool,
}

impl Voice {
    /// A voice that has nothing to say yet.
    pub(crate) fn new(is_silent: bool) -> Self {
        Self { unsaid: Arc::default(), something: Arc::default(), is_silent }
    }

    /// Tells other processes, soon.
    pub(crate) fn notify(
        &self,
        rings: bool,
        started: Option<RunId>,
        ended: impl ExactSizeIterator<Item = RunId>,
    ) {
        if self.is_silent || !rings && started.is_none() && ended.len() == 0 {
            return;
        }
        self.unsaid.lock().add(rings, started, ended);
        self.something.notify_one();
    }

    /// Says what there is to say, as long as the connection lasts.
    #[allow(
        clippy::disallowed_methods,
        reason = "how often a server is told of something is a matter of real time"
    )]
    pub(crate) async fn speak(self, client: Arc<Client>, channel: String, origin: u64) {
        let mut free_at = Instant::now();
        while !client.is_closed() {
            self.something.notified().await;
            tokio::time::sleep_until(free_at).await;
            free_at = free_at.max(Instant::now() - PACE * BURST) + PACE;
            if let Err(error) = self.say(&client, &channel, origin).await {
                tracing::debug!(%error, "other processes cannot be told of something");
            }
        }
    }

    /// Says what there is to say by connections of the pool, for a world that has none for itself.
    #[allow(
        clippy::disallowed_methods,
        reason = "how often a server is told of something is a matter of real time"
    )]
    pub(crate) async fn speak_aside(self, store: Store, origin: u64) {
        let mut free_at = Instant::now();
        loop {
            self.something.notified().await;
            tokio::time::sleep_until(free_at).await;
            free_at = free_at.max(Instant::now() - PACE * BURST) + PACE;
            if !self.say_aside(&store, origin).await {
                free_at = Instant::now() + RETRY;
            }
        }
    }

    /// Says what there is to say by a connection of the pool. What cannot be said now is said later: then it answers
    /// `false`.
    pub(crate) async fn say_aside(&self, store: &Store, origin: u64) -> bool {
        let saying = Saying::begin(self);
        let Some(text) = saying.text(origin) else { return true };
        // Both are one transaction, and nothing of it stays with the connection. It waits for no disk.
        let hint = format!(
            "SELECT set_config('synchronous_commit', 'off', true); NOTIFY {}, '{text}'",
            store.sql.channel
        );
        let said = store.with_connection(async |connection: &Object| connection.batch_execute(&hint).await);
        match said.await {
            Ok(()) => saying.done(),
            Err(failed) => {
                tracing::debug!(?failed, "other processes cannot be told of something now");
                return false;
            }
        }
        true
    }

    /// Says what there is to say; what is lost with the connection is said by the next one.
    pub(crate) async fn say(&self, client: &Client, channel: &str, origin: u64) -> Result<(), Error> {
        let saying = Saying::begin(self);
        let Some(text) = saying.text(origin) else { return Ok(()) };
        // Names of runs and numbers, nothing else: as a plain statement it is one round trip.
        let said = client.batch_execute(&format!("NOTIFY {channel}, '{text}'")).await;
        let is_lost = said.as_ref().is_err_and(|error| client.is_closed() || is_end_of_connection(error));
        if !is_lost {
            saying.done();
        }
        said
    }

    /// What there is to say.
    fn take(&self) -> Unsaid {
        std::mem::take(&mut *self.unsaid.lock())
    }

    /// What could not be said now is said later.
    fn put_back(&self, unsaid: Unsaid) {
        let mut later = self.unsaid.lock();
        later.many_ended |= unsaid.many_ended;
        later.add(unsaid.rings, unsaid.started, unsaid.ended.into_iter());
        drop(later);
        self.something.notify_one();
    }
}

/// What is being said. Unless that is done, it is to be said again: twice does no harm.
struct Saying<'a> {
    voice: &'a Voice,
    unsaid: Option<Unsaid>,
}

impl<'a> Saying<'a> {
    fn begin(voice: &'a Voice) -> Self {
        Self { voice, unsaid: Some(voice.take()).filter(|unsaid| !unsaid.is_nothing()) }
    }

    /// What is said, if anything is.
    fn text(&self, origin: u64) -> Option<String> {
        self.unsaid.as_ref().map(|unsaid| unsaid.text(origin))
    }

    fn done(mut self) {
        self.unsaid = None;
    }
}

impl Drop for Saying<'_> {
    fn drop(&mut self) {
        if let Some(unsaid) = self.unsaid.take() {
            self.voice.put_back(unsaid);
        }
    }
}

/// Whether the server has ended the connection, or the network has. The client may not have noticed yet.
fn is_end_of_connection(error: &Error) -> bool {
    error.code().is_none_or(|code| code.code().starts_with("57P"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_said_is_said_with_the_rest() {
        let voice = Voice::new(false);
        voice.notify(true, None, [].into_iter());
        let unsaid = voice.take();
        voice.notify(false, None, [RunId::from_bits(1)].into_iter());
        voice.put_back(unsaid);
        assert_eq!(voice.take().text(10), format!("a w {}", RunId::from_bits(1)));
        voice.notify(
            false,
            None,
            (0..=ENDS_MAX as u128).map(RunId::from_bits).collect::<Vec<_>>().into_iter(),
        );
        assert_eq!(voice.take().text(10), "a - *");
    }
}
