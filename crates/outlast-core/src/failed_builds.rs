//! Failed builds: the builds that could not continue a run, and the event number at which they failed.

use std::sync::Arc;

use crate::limits::FAILED_BUILDS_MAX;

/// The builds that left a run stuck, oldest first, and the event number at which they did.
///
/// The list applies only while the run has not progressed past that event: once a build has continued the run, every
/// build can claim it again. No build in the list can claim a stuck run.
// Shared and small, because every turn and every live run has one, and most are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailedBuilds(Option<Arc<List>>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct List {
    builds: Vec<Arc<str>>,
    at: u64,
}

impl FailedBuilds {
    fn new(builds: Vec<Arc<str>>, at: u64) -> Self {
        Self((!builds.is_empty()).then(|| Arc::new(List { builds, at })))
    }

    /// The stored list: the event number, and the text of [`FailedBuilds::text`]. A text that cannot be read is an
    /// empty list: every build may then try the run, and nothing is lost.
    pub fn from_stored(at: u64, text: &str) -> Self {
        let builds: Vec<Arc<str>> = if text.is_empty() {
            Vec::new()
        } else {
            let builds: Vec<String> = serde_json::from_str(text).unwrap_or_default();
            builds.into_iter().map(Into::into).collect()
        };
        Self::new(builds, at)
    }

    /// The builds as one column: empty, or a JSON array of their names, oldest first.
    pub fn text(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let builds: Vec<&str> = self.builds().iter().map(|build| &**build).collect();
        serde_json::to_string(&builds).unwrap_or_default()
    }

    /// The event number that the run had reached when the builds failed.
    pub fn at(&self) -> u64 {
        self.0.as_ref().map_or(0, |list| list.at)
    }

    /// The builds, oldest first.
    pub fn builds(&self) -> &[Arc<str>] {
        self.0.as_ref().map_or(&[], |list| &list.builds)
    }

    /// Whether no build failed.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether this build failed.
    pub fn contains(&self, build: &str) -> bool {
        self.builds().iter().any(|failed| &**failed == build)
    }

    /// Whether the list still applies to a run whose next event has this number.
    pub fn counts_at(&self, next_event: u64) -> bool {
        !self.is_empty() && next_event <= self.at()
    }

    /// The list for a run whose next event has this number: empty once the run has progressed.
    #[must_use]
    pub fn at_event(&self, next_event: u64) -> Self {
        if self.counts_at(next_event) { self.clone() } else { Self::default() }
    }

    /// The list after one more build failed at this event.
    pub fn with(&self, build: &str, next_event: u64) -> Failed {
        let mut builds = self.at_event(next_event).builds().to_vec();
        builds.retain(|failed| &**failed != build);
        let replaced_oldest = builds.len() >= FAILED_BUILDS_MAX;
        if replaced_oldest {
            builds.remove(0);
        }
        builds.push(build.into());
        Failed { list: Self::new(builds, next_event), replaced_oldest }
    }
}

/// A list of failed builds after one more was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The list.
    pub list: FailedBuilds,
    /// Whether the list was full: the oldest build was removed and may retry after a pause.
    pub replaced_oldest: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(builds: &[&str], at: u64) -> FailedBuilds {
        builds.iter().fold(FailedBuilds::default(), |list, build| list.with(build, at).list)
    }

    #[test]
    fn a_list_counts_until_the_run_progresses() {
        let failed = list(&["a"], 7);
        assert!(failed.counts_at(7) && !failed.counts_at(8));
        assert!(failed.at_event(8).is_empty());
        assert_eq!(list(&["a"], 7).with("b", 9).list, list(&["b"], 9));
    }

    #[test]
    fn a_ninth_build_replaces_the_oldest() {
        let builds: Vec<String> = (0..FAILED_BUILDS_MAX).map(|build| build.to_string()).collect();
        let full = list(&builds.iter().map(String::as_str).collect::<Vec<_>>(), 3);
        let Failed { list, replaced_oldest } = full.with("new", 3);
        assert!(replaced_oldest && !list.contains("0") && list.contains("new"));
        assert_eq!(list.builds().len(), FAILED_BUILDS_MAX);
    }

    #[test]
    fn a_build_that_fails_again_is_listed_once() {
        let Failed { list, replaced_oldest } = list(&["a", "b"], 3).with("a", 3);
        assert_eq!(list.builds(), ["b".into(), "a".into()]);
        assert!(!replaced_oldest);
    }

    #[test]
    fn a_list_survives_being_stored() {
        for failed in [FailedBuilds::default(), list(&["a\"b", "é"], 12)] {
            assert_eq!(FailedBuilds::from_stored(failed.at(), &failed.text()), failed);
        }
        assert!(FailedBuilds::from_stored(3, "no list").is_empty());
    }
}
