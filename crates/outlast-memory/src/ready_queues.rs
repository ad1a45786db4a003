//! The runs that are ready, or will be at a known time.
//!
//! Runs are grouped by everything that decides who may claim them, and by priority: either a worker may claim all runs
//! of a group, or none. So a claim takes runs from the front of a few groups, and never reads a run that it may not
//! take.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::PREFERENCE;
use outlast_core::queue::ahead;
use outlast_core::takeover::{Admission, CRASH_CLASS_MAX};
use outlast_core::{ClaimRequest, Code, FailedBuilds, QueueView, RunId, SessionId, SuspectRoom, Timestamp};

/// Where a run is stored in the ready queues.
#[derive(Clone, Debug)]
pub(crate) struct ReadyEntry {
    /// The queue and the code that a worker must have; `None` if every worker may claim the run.
    pub(crate) required: Option<(Arc<str>, Code)>,
    pub(crate) group: ReadyGroup,
    /// When the run became or becomes ready.
    pub(crate) at: Timestamp,
}

/// What the runs of one group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadyGroup {
    pub(crate) format: u32,
    /// The crash class; 0 for all runs that are not suspects.
    pub(crate) class: u32,
    /// The session that may claim the runs earlier than others.
    pub(crate) preferred: Option<SessionId>,
    /// The builds that may not claim the runs.
    pub(crate) failed_builds: FailedBuilds,
    pub(crate) priority: u8,
}

/// The runs of one group, by ready time.
type GroupRuns = BTreeSet<(Timestamp, RunId)>;

type Groups = BTreeMap<ReadyGroup, GroupRuns>;

/// All runs that are ready or will be.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueues {
    by_queue: HashMap<Arc<str>, HashMap<Code, Groups>>,
    /// Runs that every worker may claim.
    without_code: Groups,
}

/// The runs that one claim may take, in order of their ranks.
pub(crate) struct ClaimCandidates<'a> {
    groups: Vec<CandidateGroup<'a>>,
    admission: Admission,
}

struct CandidateGroup<'a> {
    class: u32,
    /// The latest ready time of a run that may be claimed now.
    latest: Timestamp,
    /// The bonus of the group's priority: its runs are ranked as if they had become ready this much earlier.
    bonus: Duration,
    runs: std::iter::Peekable<std::collections::btree_set::Iter<'a, (Timestamp, RunId)>>,
}

impl ReadyQueues {
    /// Adds a run. Returns whether waiting workers must be woken: the run is ready now, or becomes ready before the
    /// others of its group.
    pub(crate) fn insert(&mut self, entry: &ReadyEntry, run: RunId, now: Timestamp) -> bool {
        let groups = match &entry.required {
            Some((queue, code)) => {
                self.by_queue.entry(queue.clone()).or_default().entry(code.clone()).or_default()
            }
            None => &mut self.without_code,
        };
        let runs = groups.entry(entry.group.clone()).or_default();
        runs.insert((entry.at, run));
        entry.at <= now || runs.range(first_after(now)..).next() == Some(&(entry.at, run))
    }

    pub(crate) fn remove(&mut self, entry: &ReadyEntry, run: RunId) {
        let groups = match &entry.required {
            Some((queue, code)) => self.by_queue.get_mut(queue).and_then(|groups| groups.get_mut(code)),
            None => Some(&mut self.without_code),
        };
        let Some(groups) = groups else { return };
        if let Some(runs) = groups.get_mut(&entry.group) {
            runs.remove(&(entry.at, run));
            if runs.is_empty() {
                groups.remove(&entry.group);
            }
        }
    }

    /// The runs that prefer this session.
    pub(crate) fn preferring(&self, session: SessionId) -> Vec<RunId> {
        let groups = self.by_queue.values().flat_map(HashMap::values).chain([&self.without_code]).flatten();
        let preferring = groups.filter(|(group, _)| group.preferred == Some(session));
        preferring.flat_map(|(_, runs)| runs.iter().map(|(_, run)| *run)).collect()
    }

    /// The runs that need code, as counts of their queues.
    pub(crate) fn counts(&self, now: Timestamp) -> BTreeMap<Arc<str>, QueueView> {
        let mut views = BTreeMap::new();
        for (queue, of_code) in &self.by_queue {
            for (group, runs) in of_code.values().flatten() {
                let view = views.entry(queue.clone()).or_insert_with(|| QueueView::empty(queue.clone()));
                let ready = runs.range(..first_after(now)).count() as u64;
                if group.failed_builds == FailedBuilds::default() {
                    view.add_ready(ready, runs.first().map(|(at, _)| *at).filter(|at| *at <= now));
                } else {
                    view.add_stuck(ready);
                }
            }
        }
        views
    }

    /// The ready runs that every worker may claim, each with its ready time.
    pub(crate) fn ready_without_code(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, RunId)> {
        self.without_code.values().flat_map(move |runs| runs.range(..first_after(now)).copied())
    }

    /// The runs that the session may claim now.
    pub(crate) fn candidates<'a>(
        &'a self,
        session: SessionId,
        request: &'a ClaimRequest,
        admission: Admission,
        now: Timestamp,
    ) -> ClaimCandidates<'a> {
        let groups = self.claimable_groups(session, request).map(|(group, runs, delay)| CandidateGroup {
            class: group.class,
            latest: now.minus(delay),
            bonus: ahead(group.priority),
            runs: runs.iter().peekable(),
        });
        ClaimCandidates { groups: groups.collect(), admission }
    }

    /// The run of the last crash class that the session may claim now as its trial.
    pub(crate) fn trial(&self, session: SessionId, request: &ClaimRequest, now: Timestamp) -> Option<RunId> {
        let room = SuspectRoom::Class { class: CRASH_CLASS_MAX, room: 1 };
        let mut candidates = self.candidates(session, request, Admission::new(room), now);
        candidates.groups.retain(|group| group.class == CRASH_CLASS_MAX);
        candidates.next()
    }

    /// When the next run becomes claimable for the session.
    pub(crate) fn next_due(
        &self,
        session: SessionId,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let due = self.claimable_groups(session, request).filter_map(|(_, runs, delay)| {
            let (at, _) = runs.range(first_after(now.minus(delay))..).next()?;
            Some(at.plus(delay))
        });
        due.min()
    }

    /// The groups that the session may claim, and how long after its ready time a run is reserved for another session.
    fn claimable_groups<'a>(
        &'a self,
        session: SessionId,
        request: &'a ClaimRequest,
    ) -> impl Iterator<Item = (&'a ReadyGroup, &'a GroupRuns, Duration)> {
        let admission = Admission::new(request.suspects);
        let of_queues = request.queues.iter().filter_map(|queue| self.by_queue.get(queue));
        of_queues
            .flat_map(|groups| request.code.iter().filter_map(|code| groups.get(code)))
            .chain([&self.without_code])
            .flatten()
            .filter(|(group, _)| group.format <= request.format)
            .filter(move |(group, _)| admission.allows(group.class))
            .filter(|(group, _)| !group.failed_builds.contains(&request.build))
            .map(move |(group, runs)| {
                let prefers_another = group.preferred.is_some_and(|preferred| preferred != session);
                (group, runs, if prefers_another { PREFERENCE } else { Duration::ZERO })
            })
    }
}

impl Iterator for ClaimCandidates<'_> {
    type Item = RunId;

    /// The admitted run with the lowest rank.
    fn next(&mut self) -> Option<RunId> {
        let front = |group: &mut CandidateGroup<'_>| {
            let (at, run) = **group.runs.peek()?;
            (at <= group.latest).then_some((at.minus(group.bonus), run))
        };
        let admission = self.admission;
        self.groups.retain(|group| admission.allows(group.class));
        let fronts =
            self.groups.iter_mut().enumerate().filter_map(|(index, group)| Some((front(group)?, index)));
        let ((_, run), index) = fronts.min()?;
        let group = &mut self.groups[index];
        group.runs.next();
        self.admission.admit(group.class);
        Some(run)
    }
}

/// The lowest possible entry after this time.
fn first_after(at: Timestamp) -> (Timestamp, RunId) {
    (Timestamp::from_micros(at.as_micros().saturating_add(1)), RunId::from_bits(0))
}
