//! What this process has to say to others, until it is said. What comes together is said together.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast_core::RunId;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Ends that are told by name; of more than that others only hear that there were some.
const ENDS_MAX: usize = 150;

/// What is to be said.
#[derive(Debug, Default)]
pub(crate) struct Unsaid {
    rings: bool,
    ended: BTreeSet<RunId>,
    many_ended: bool,
}

impl Unsaid {
    fn add(&mut self, rings: bool, ended: impl ExactSizeIterator<Item = RunId>) {
        self.rings |= rings;
        if self.many_ended || self.ended.len() + ended.len() > ENDS_MAX {
            self.many_ended = true;
            self.ended.clear();
        } else {
            self.ended.extend(ended);
        }
    }

    /// As others hear it: who says it, `w` for work, and which runs ended, or `*`.
    pub(crate) fn text(&self, origin: u64) -> String {
        let mut text = format!("{origin:x} {}", if self.rings { "w" } else { "-" });
        if self.many_ended {
            text.push_str(" *");
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
    pub(crate) fn notify(&self, rings: bool, ended: impl ExactSizeIterator<Item = RunId>) {
        if self.is_silent || !rings && ended.len() == 0 {
            return;
        }
        self.unsaid.lock().add(rings, ended);
        self.something.notify_one();
    }

    /// Waits until there is something to say.
    pub(crate) async fn something(&self) {
        self.something.notified().await;
    }

    /// What there is to say.
    pub(crate) fn take(&self) -> Unsaid {
        std::mem::take(&mut *self.unsaid.lock())
    }

    /// What could not be said now is said later.
    pub(crate) fn put_back(&self, unsaid: Unsaid) {
        let mut later = self.unsaid.lock();
        later.many_ended |= unsaid.many_ended;
        later.add(unsaid.rings, unsaid.ended.into_iter());
        drop(later);
        self.something.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_said_is_said_with_the_rest() {
        let voice = Voice::new(false);
        voice.notify(true, [].into_iter());
        let unsaid = voice.take();
        voice.notify(false, [RunId::from_bits(1)].into_iter());
        voice.put_back(unsaid);
        assert_eq!(voice.take().text(10), format!("a w {}", RunId::from_bits(1)));
        voice.notify(false, (0..=ENDS_MAX as u128).map(RunId::from_bits).collect::<Vec<_>>().into_iter());
        assert_eq!(voice.take().text(10), "a - *");
    }
}
