//! Groups of failed runs.
//!
//! The groups of the last 24 hours are kept in memory, and a request reads only the failures that are new since the one
//! before. A failure may become visible a little after others that ended later, so reading begins [`OVERLAP`] before the
//! newest failure that is known, and runs that were counted are skipped.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use outlast_core::{FailureQuery, RunFailure, RunId, RunView, Timestamp};

use super::problems::of_error;
use super::{Service, convert};
use crate::failure::name_of;
use crate::failure_group::{FailureDetailJson, FailureFilter, FailureGroupJson, FailureListJson};
use crate::problem::{Problem, ProblemCode};

/// How long failures are counted.
const WINDOW: Duration = Duration::from_secs(24 * 3_600);

/// How far before the newest known failure reading begins.
const OVERLAP: Duration = Duration::from_secs(60);

/// The largest number of groups.
const GROUPS_MAX: usize = 1_000;

/// The largest number of failures that one request reads.
const READ_MAX: usize = 10_000;

/// Failures read at a time.
const PAGE: usize = 1_000;

/// The runs that a group shows.
const SAMPLES: usize = 5;

/// The runs that a group lists.
const LISTED: usize = 50;

/// The groups of the failures that were read.
#[derive(Debug, Default)]
pub(super) struct FailureGroups {
    groups: BTreeMap<(String, u64), FailureGroup>,
    /// The end of the newest failure that was read.
    newest: Option<Timestamp>,
    /// The runs that were counted and that are read again.
    counted: HashMap<RunId, Timestamp>,
    truncated: bool,
}

#[derive(Debug)]
struct FailureGroup {
    failure: RunFailure,
    first: Timestamp,
    last: Timestamp,
    /// Hours since 1970, and the failures in each.
    by_hour: BTreeMap<i64, u64>,
    samples: VecDeque<(Timestamp, RunId)>,
}

impl Service {
    /// `GET /api/failures`.
    ///
    /// # Errors
    ///
    /// `invalid_request` if the time is more than 24 hours ago.
    pub async fn failures(&self, filter: &FailureFilter) -> Result<FailureListJson, Problem> {
        let now = self.now().0;
        let earliest = now.minus(WINDOW);
        let since = filter.since.map_or(earliest, |since| since.0);
        if since < earliest.minus(Duration::from_secs(60)) {
            return Err(Problem::field("?since", "it is more than 24 hours ago; list failed runs instead"));
        }
        self.read_failures(now).await?;
        let groups = self.failure_groups.lock();
        let is_wanted = |workflow: &str| filter.workflow.as_ref().is_none_or(|wanted| wanted == workflow);
        let shown =
            groups.groups.iter().filter(|((workflow, _), group)| is_wanted(workflow) && group.last >= since);
        let mut items: Vec<_> =
            shown.map(|((workflow, _), group)| group.json(workflow, since, now)).collect();
        items.sort_by_key(|group| std::cmp::Reverse((group.count, group.last.0)));
        Ok(FailureListJson { items, since: since.into(), truncated: groups.truncated })
    }

    /// `GET /api/failures/{fingerprint}`.
    ///
    /// # Errors
    ///
    /// `not_found` if no failed run has it.
    pub async fn failure(&self, fingerprint: &str) -> Result<FailureDetailJson, Problem> {
        let not_found = || {
            let detail = format!("no failed run has the fingerprint `{fingerprint}`");
            Problem::new(ProblemCode::NotFound, detail)
        };
        let number = u64::from_str_radix(fingerprint, 16).map_err(|_| not_found())?;
        let query = FailureQuery { fingerprint: Some(number), limit: LISTED, ..FailureQuery::default() };
        let runs = self.client.failures(query).await.map_err(of_error)?;
        if runs.is_empty() {
            return Err(not_found());
        }
        let mut groups = self.failures(&FailureFilter::default()).await?.items;
        groups.retain(|group| group.fingerprint == fingerprint);
        Ok(FailureDetailJson { groups, runs: runs.iter().map(convert::run).collect() })
    }

    /// Counts the failures that are new.
    async fn read_failures(&self, now: Timestamp) -> Result<(), Problem> {
        let from = {
            let groups = self.failure_groups.lock();
            let earliest = now.minus(WINDOW);
            groups.newest.map_or(earliest, |newest| newest.minus(OVERLAP).max(earliest))
        };
        let mut query = FailureQuery { ended_from: Some(from), limit: PAGE, ..FailureQuery::default() };
        let mut found = Vec::new();
        let mut truncated = false;
        loop {
            let page = self.client.failures(query.clone()).await.map_err(of_error)?;
            let last = page.last().and_then(|run| Some((run.ended_at?, Some(run.id))));
            let is_last = page.len() < PAGE;
            found.extend(page);
            match last.filter(|_| !is_last) {
                Some(_) if found.len() >= READ_MAX => {
                    truncated = true;
                    break;
                }
                Some(last) => query.ended_before = Some(last),
                None => break,
            }
        }
        let mut groups = self.failure_groups.lock();
        groups.truncated |= truncated;
        groups.add_all(&found);
        groups.forget_before(now.minus(WINDOW));
        Ok(())
    }
}

impl FailureGroups {
    fn add_all(&mut self, found: &[RunView]) {
        // The oldest first, so that the newest message and samples stay.
        for run in found.iter().rev() {
            let (Some(failure), Some(ended_at)) = (&run.failure, run.ended_at) else { continue };
            if self.counted.insert(run.id, ended_at).is_some() {
                continue;
            }
            self.newest = self.newest.max(Some(ended_at));
            let key = (run.workflow.to_string(), failure.fingerprint);
            if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
                self.truncated = true;
                continue;
            }
            let group = self.groups.entry(key).or_insert_with(|| FailureGroup {
                failure: (**failure).clone(),
                first: ended_at,
                last: ended_at,
                by_hour: BTreeMap::new(),
                samples: VecDeque::new(),
            });
            group.add(run.id, failure, ended_at);
        }
    }

    /// Forgets what is too old to be counted.
    fn forget_before(&mut self, time: Timestamp) {
        let newest = self.newest;
        let is_read_again = |at: Timestamp| newest.is_some_and(|newest| at >= newest.minus(OVERLAP));
        self.counted.retain(|_, at| is_read_again(*at));
        self.groups.retain(|_, group| {
            group.by_hour = group.by_hour.split_off(&hour(time));
            group.last >= time
        });
        if self.groups.is_empty() {
            self.truncated = false;
        }
    }
}

impl FailureGroup {
    fn add(&mut self, run: RunId, failure: &RunFailure, ended_at: Timestamp) {
        *self.by_hour.entry(hour(ended_at)).or_default() += 1;
        self.first = self.first.min(ended_at);
        if ended_at >= self.last {
            (self.last, self.failure) = (ended_at, failure.clone());
        }
        self.samples.push_front((ended_at, run));
        self.samples.truncate(SAMPLES);
    }

    fn json(&self, workflow: &str, since: Timestamp, now: Timestamp) -> FailureGroupJson {
        let hours = hour(now) - 23..=hour(now);
        FailureGroupJson {
            fingerprint: format!("{:016x}", self.failure.fingerprint),
            workflow: workflow.to_owned(),
            step: self.failure.step.as_deref().map(Into::into),
            kind: name_of(&self.failure.kind),
            code: self.failure.code.as_deref().map(Into::into),
            message: self.failure.message.to_string(),
            count: self.by_hour.range(hour(since)..).map(|(_, count)| count).sum(),
            by_hour: hours.map(|hour| self.by_hour.get(&hour).copied().unwrap_or(0)).collect(),
            first: self.first.into(),
            last: self.last.into(),
            samples: self.samples.iter().map(|(_, run)| *run).collect(),
        }
    }
}

fn hour(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(3_600_000_000)
}
