//! The lines of runs that are ready, or will be when their moment comes.
//!
//! A run stands in the lines of its queue and code, or in those for every worker when it needs none. Runs
//! that are told apart by who may have them, or by their priority, stand in different lines, so that a claim
//! takes from the front of a few lines and never looks at a run it may not give.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::PREFERENCE;
use outlast_core::queue::ahead;
use outlast_core::takeover::{Admission, CRASH_CLASS_MAX};
use outlast_core::{ClaimRequest, Code, FailedBuilds, RunId, SessionId, SuspectRoom, Timestamp};

/// Where a run stands in line.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The queue it stands in and the code that is needed; `None` when everybody may have it.
    pub(crate) served_by: Option<(Arc<str>, Code)>,
    pub(crate) line: Line,
    /// Since when it is ready, or when it will be.
    pub(crate) at: Timestamp,
}

/// What runs of one line have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    pub(crate) format: u32,
    /// The crash class; 0 for all that are carried like any run.
    pub(crate) class: u32,
    /// The session that others let go first.
    pub(crate) preferred: Option<SessionId>,
    /// The builds that may not have them.
    pub(crate) failed_builds: FailedBuilds,
    pub(crate) priority: u8,
}

type Lines = BTreeMap<Line, BTreeSet<(Timestamp, RunId)>>;

#[derive(Debug, Default)]
pub(crate) struct Ready {
    by_queue: HashMap<Arc<str>, HashMap<Code, Lines>>,
    for_everyone: Lines,
}

/// The front of the lines that one claim may take from.
pub(crate) struct Offers<'a> {
    lines: Vec<Offer<'a>>,
    admission: Admission,
}

struct Offer<'a> {
    class: u32,
    latest: Timestamp,
    /// How much earlier than they are its runs count as ready.
    ahead: Duration,
    runs: std::iter::Peekable<std::collections::btree_set::Iter<'a, (Timestamp, RunId)>>,
}

impl Ready {
    /// Adds a run; tells whether that is news: it is ready now, or due before the others of its line.
    pub(crate) fn insert(&mut self, place: &Place, run: RunId, now: Timestamp) -> bool {
        let lines = match &place.served_by {
            Some((queue, code)) => {
                self.by_queue.entry(queue.clone()).or_default().entry(code.clone()).or_default()
            }
            None => &mut self.for_everyone,
        };
        let line = lines.entry(place.line.clone()).or_default();
        line.insert((place.at, run));
        place.at <= now || line.range(after(now)..).next() == Some(&(place.at, run))
    }

    pub(crate) fn remove(&mut self, place: &Place, run: RunId) {
        let lines = match &place.served_by {
            Some((queue, code)) => self.by_queue.get_mut(queue).and_then(|lines| lines.get_mut(code)),
            None => Some(&mut self.for_everyone),
        };
        let Some(lines) = lines else { return };
        if let Some(line) = lines.get_mut(&place.line) {
            line.remove(&(place.at, run));
            if line.is_empty() {
                lines.remove(&place.line);
            }
        }
    }

    /// The runs whose line prefers this session.
    pub(crate) fn preferring(&self, session: SessionId) -> Vec<RunId> {
        let lines = self.by_queue.values().flat_map(HashMap::values).chain([&self.for_everyone]).flatten();
        let preferring = lines.filter(|(line, _)| line.preferred == Some(session));
        preferring.flat_map(|(_, runs)| runs.iter().map(|(_, run)| *run)).collect()
    }

    /// What the session may be given now.
    pub(crate) fn offers<'a>(
        &'a self,
        session: SessionId,
        request: &'a ClaimRequest,
        admission: Admission,
        now: Timestamp,
    ) -> Offers<'a> {
        let lines = self.lines_for(session, request).map(|(line, runs, head_start)| Offer {
            class: line.class,
            latest: now.minus(head_start),
            ahead: ahead(line.priority),
            runs: runs.iter().peekable(),
        });
        Offers { lines: lines.collect(), admission }
    }

    /// The run of the last crash class that the session may be given now.
    pub(crate) fn trial(&self, session: SessionId, request: &ClaimRequest, now: Timestamp) -> Option<RunId> {
        let room = SuspectRoom::Class { class: CRASH_CLASS_MAX, room: 1 };
        let mut offers = self.offers(session, request, Admission::new(room), now);
        offers.lines.retain(|offer| offer.class == CRASH_CLASS_MAX);
        offers.next()
    }

    /// When the next run is due, of those that the session may be given then.
    pub(crate) fn next_due(
        &self,
        session: SessionId,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let due = self.lines_for(session, request).filter_map(|(_, runs, head_start)| {
            let (at, _) = runs.range(after(now.minus(head_start))..).next()?;
            Some(at.plus(head_start))
        });
        due.min()
    }

    /// The lines that the session may take from, and how long others go first.
    fn lines_for<'a>(
        &'a self,
        session: SessionId,
        request: &'a ClaimRequest,
    ) -> impl Iterator<Item = (&'a Line, &'a BTreeSet<(Timestamp, RunId)>, Duration)> {
        let admission = Admission::new(request.suspects);
        let of_queues = request.queues.iter().filter_map(|queue| self.by_queue.get(queue));
        of_queues
            .flat_map(|lines| request.code.iter().filter_map(|code| lines.get(code)))
            .chain([&self.for_everyone])
            .flatten()
            .filter(|(line, _)| line.format <= request.format)
            .filter(move |(line, _)| admission.allows(line.class))
            .filter(|(line, _)| !line.failed_builds.contains(&request.build))
            .map(move |(line, runs)| {
                let others_first = line.preferred.is_some_and(|preferred| preferred != session);
                (line, runs, if others_first { PREFERENCE } else { Duration::ZERO })
            })
    }
}

impl Iterator for Offers<'_> {
    type Item = RunId;

    /// The run of the lowest rank that is admitted.
    fn next(&mut self) -> Option<RunId> {
        let front = |offer: &mut Offer<'_>| {
            let (at, run) = **offer.runs.peek()?;
            (at <= offer.latest).then_some((at.minus(offer.ahead), run))
        };
        let admission = self.admission;
        self.lines.retain(|offer| admission.allows(offer.class));
        let fronts =
            self.lines.iter_mut().enumerate().filter_map(|(index, offer)| Some((front(offer)?, index)));
        let ((_, run), index) = fronts.min()?;
        let offer = &mut self.lines[index];
        offer.runs.next();
        self.admission.admit(offer.class);
        Some(run)
    }
}

/// The first entry a line could have after this moment.
fn after(moment: Timestamp) -> (Timestamp, RunId) {
    (Timestamp::from_micros(moment.as_micros().saturating_add(1)), RunId::from_bits(0))
}
