//! What workers have looked for already: one that has seen everything, and since then has heard only that one run
//! was started, asks for just that run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{ClaimRequest, Code, RunId, SessionId, SuspectRoom, Timestamp, Work};
use parking_lot::Mutex;

/// So many starts are remembered.
const STARTS_MAX: usize = 16;

/// How long a worker goes without looking for everything, though it hears of starts: other hints may be lost.
const FULL_EVERY: Duration = Duration::from_secs(5);

/// What the change signal fired for.
#[derive(Debug, Default)]
pub(crate) struct Rings(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// How often it rang.
    count: u64,
    /// The last of them that was not for one start, or is forgotten.
    other: u64,
    starts: VecDeque<(u64, RunId)>,
}

impl Rings {
    /// Notes that the change signal is about to ring: for the start of one run, or for whatever else.
    pub(crate) fn note(&self, started: Option<RunId>) {
        let mut noted = self.0.lock();
        noted.count += 1;
        let count = noted.count;
        match started {
            None => {
                noted.other = count;
                noted.starts.clear();
            }
            Some(run) => {
                if noted.starts.len() == STARTS_MAX
                    && let Some((forgotten, _)) = noted.starts.pop_front()
                {
                    noted.other = forgotten;
                }
                noted.starts.push_back((count, run));
            }
        }
    }

    fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// The run whose start is all that it rang for since.
    fn only_start_since(&self, seen: u64) -> Option<RunId> {
        let noted = self.0.lock();
        if noted.other > seen {
            return None;
        }
        let mut since = noted.starts.iter().filter(|(count, _)| *count > seen);
        let (_, run) = since.next()?;
        since.next().is_none().then_some(*run)
    }
}

/// What the sessions of this process have looked for.
#[derive(Debug)]
pub(crate) struct Looks {
    rings: Arc<Rings>,
    by_session: Mutex<HashMap<SessionId, Looked>>,
}

/// What a session saw when it last looked: all that there was for it.
#[derive(Debug)]
struct Looked {
    rings: u64,
    /// When it last looked for everything.
    full_at: Timestamp,
    next_due: Option<Timestamp>,
    code: Arc<[Code]>,
    queues: Arc<[Arc<str>]>,
    build: Arc<str>,
    suspects: SuspectRoom,
}

/// A look that is under way.
#[derive(Debug)]
pub(crate) struct Look {
    rings: u64,
    /// The run that is enough to look for.
    pub(crate) only: Option<RunId>,
    full_at: Timestamp,
    next_due: Option<Timestamp>,
}

impl Looks {
    pub(crate) fn new(rings: Arc<Rings>) -> Self {
        Self { rings, by_session: Mutex::default() }
    }

    /// Before a session asks. If the answer is lost, it looks for everything the next time.
    pub(crate) fn begin(&self, session: SessionId, request: &ClaimRequest, now: Timestamp) -> Look {
        // Before looking: what rings later is new.
        let rings = self.rings.count();
        let everything = Look { rings, only: None, full_at: now, next_due: None };
        let Some(looked) = self.by_session.lock().remove(&session) else { return everything };
        let is_due = looked.next_due.is_some_and(|due| due <= now);
        let only = self.rings.only_start_since(looked.rings).filter(|_| !is_due && looked.is_like(request));
        match only {
            Some(run) => Look { rings, only: Some(run), full_at: looked.full_at, next_due: looked.next_due },
            None => everything,
        }
    }

    /// After the answer, which is told when more is due, where it was asked for one run alone.
    pub(crate) fn end(&self, session: SessionId, request: &ClaimRequest, look: Look, work: &mut Work) {
        if look.only.is_some() {
            // Also when no other start follows: what a look for everything would have found now may be there.
            let full_by = look.full_at.plus(FULL_EVERY);
            work.next_due = work.next_due.into_iter().chain(look.next_due).chain([full_by]).min();
        }
        if work.claimed.len() >= request.limit {
            return;
        }
        let looked = Looked {
            rings: look.rings,
            full_at: look.full_at,
            next_due: work.next_due,
            code: request.code.clone(),
            queues: request.queues.clone(),
            build: request.build.clone(),
            suspects: request.suspects,
        };
        self.by_session.lock().insert(session, looked);
    }

    /// The session is no more.
    pub(crate) fn forget(&self, session: SessionId) {
        self.by_session.lock().remove(&session);
    }
}

impl Looked {
    /// Whether what was asked for then is what is asked for now.
    fn is_like(&self, request: &ClaimRequest) -> bool {
        request.limit > 0
            && self.suspects == request.suspects
            && self.code == request.code
            && self.queues == request.queues
            && self.build == request.build
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::Claimed;

    use super::*;

    const SESSION: SessionId = SessionId::from_bits(1);
    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn request(code: &str) -> ClaimRequest {
        ClaimRequest {
            limit: 1,
            code: Arc::new([Code { workflow: code.into(), version: 1 }]),
            queues: Arc::new(["default".into()]),
            build: "b".into(),
            format: 1,
            suspects: SuspectRoom::Nothing,
            ends_overdue_from: Timestamp::NEVER,
        }
    }

    fn work(next_due: Option<Timestamp>, claimed: Vec<Claimed>) -> Work {
        Work { claimed, unread: Vec::new(), next_due, epoch: 0 }
    }

    fn run(number: u128) -> RunId {
        RunId::from_bits(number)
    }

    /// Somebody who has looked for everything, and was told that this comes next.
    fn looked(next_due: Option<Timestamp>) -> (Arc<Rings>, Looks) {
        let rings = Arc::<Rings>::default();
        let looks = Looks::new(rings.clone());
        let look = looks.begin(SESSION, &request("w"), NOW);
        assert_eq!(look.only, None, "the first look is for everything");
        looks.end(SESSION, &request("w"), look, &mut work(next_due, Vec::new()));
        (rings, looks)
    }

    fn next(looks: &Looks, at: Timestamp) -> Option<RunId> {
        looks.begin(SESSION, &request("w"), at).only
    }

    #[test]
    fn one_start_alone_is_looked_for_by_name() {
        let (rings, looks) = looked(None);
        rings.note(Some(run(1)));
        let look = looks.begin(SESSION, &request("w"), NOW);
        assert_eq!(look.only, Some(run(1)));
        looks.end(SESSION, &request("w"), look, &mut work(None, Vec::new()));
        rings.note(Some(run(2)));
        assert_eq!(next(&looks, NOW), Some(run(2)), "it has seen the first");
    }

    #[test]
    fn whatever_else_rang_is_looked_for_everywhere() {
        let cases: [&[Option<u128>]; 4] = [&[], &[None], &[Some(1), Some(2)], &[None, Some(1)]];
        for notes in cases {
            let (rings, looks) = looked(None);
            notes.iter().for_each(|note| rings.note(note.map(run)));
            assert_eq!(next(&looks, NOW), None, "{notes:?}");
        }
        let (rings, looks) = looked(None);
        (0..=STARTS_MAX as u128).for_each(|start| rings.note(Some(run(start))));
        assert_eq!(next(&looks, NOW), None, "more than are remembered");
    }

    #[test]
    fn who_has_not_seen_everything_looks_for_everything() {
        let (rings, looks) = looked(None);
        rings.note(Some(run(1)));
        assert_eq!(looks.begin(SESSION, &request("x"), NOW).only, None, "asked for other code");
        assert_eq!(next(&looks, NOW), None, "the answer before was lost");
        let (rings, looks) = looked(Some(NOW));
        rings.note(Some(run(1)));
        assert_eq!(next(&looks, NOW), None, "something else is due");
        let (rings, looks) = looked(None);
        rings.note(Some(run(1)));
        looks.forget(SESSION);
        assert_eq!(next(&looks, NOW), None, "another session");
    }

    #[test]
    fn who_looks_for_one_is_told_what_was_due_before_and_looks_for_everything_in_time() {
        for (due, expected) in [(1, 1), (3600, 5)].map(|pair| (pair.0, NOW.plus(Duration::from_secs(pair.1))))
        {
            let (rings, looks) = looked(Some(NOW.plus(Duration::from_secs(due))));
            rings.note(Some(run(1)));
            let look = looks.begin(SESSION, &request("w"), NOW);
            assert!(look.only.is_some());
            let mut work = work(None, Vec::new());
            looks.end(SESSION, &request("w"), look, &mut work);
            assert_eq!(work.next_due, Some(expected));
            rings.note(Some(run(2)));
            assert_eq!(next(&looks, expected), None, "then it looks for everything, whatever it heard");
        }
    }
}
