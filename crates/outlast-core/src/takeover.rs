//! Takeover: what becomes of the runs of a worker that crashed.

use crate::limits::{POISON_CRASHES, SUSPECT_CRASHES};
use crate::run::{Stuck, StuckReason};

/// The crashes of a run after its worker crashed once more.
///
/// A suspect travels alone, so a crash with a suspect aboard counts against the suspect only.
pub fn crashes_after(crashes: u32, suspect_aboard: bool) -> u32 {
    if suspect_aboard && !is_suspect(crashes) { crashes } else { crashes.saturating_add(1) }
}

/// Whether a run with so many crashes is a suspect.
pub fn is_suspect(crashes: u32) -> bool {
    crashes >= SUSPECT_CRASHES
}

/// Why a run with so many crashes is stuck; `None` when it may be tried again.
pub fn poison(crashes: u32, build: &str) -> Option<Stuck> {
    (crashes >= POISON_CRASHES).then(|| Stuck {
        reason: StuckReason::Poison,
        message: format!(
            "its worker crashed {crashes} times in a row with this run aboard; \
             mend what kills the process, then resume the run or deploy another build"
        ),
        build: build.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_with_a_suspect_aboard_counts_against_the_suspect_only() {
        assert_eq!(crashes_after(0, false), 1);
        assert_eq!(crashes_after(1, true), 1);
        assert_eq!(crashes_after(2, true), 3);
    }

    #[test]
    fn a_run_is_stuck_after_the_limit_and_not_before() {
        assert_eq!(poison(POISON_CRASHES - 1, "b"), None);
        assert!(poison(POISON_CRASHES, "b").is_some());
    }
}
