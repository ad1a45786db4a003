//! The effects of B7: a file to which every attempt appends one line.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Result;

/// The steps of each run.
pub(super) const STEPS: usize = 10;

/// The bytes of a line, so that lines are counted without reading them.
const LINE_BYTES: usize = 12;

/// The maximum number of reported faults; the rest is counted.
const FAULTS_MAX: usize = 5;

/// The file, opened to append.
#[derive(Debug)]
pub(super) struct EffectsFile(File);

impl EffectsFile {
    /// Opens the file to append, and creates it if needed.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path(folder))?))
    }

    /// Adds one line in one write.
    pub(super) fn add(&self, run: usize, step: usize) -> std::io::Result<()> {
        (&self.0).write_all(line(run, step).as_bytes())
    }
}

/// How often each step of each run was attempted.
#[derive(Debug, Default)]
pub(super) struct Effects(BTreeMap<(usize, usize), usize>);

impl Effects {
    /// The number of effects so far.
    pub(super) fn count(folder: &Path) -> usize {
        let bytes = path(folder).metadata().map_or(0, |metadata| metadata.len());
        usize::try_from(bytes).unwrap_or(usize::MAX) / LINE_BYTES
    }

    /// Reads all effects.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        Self::parse(&std::fs::read_to_string(path(folder))?)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut effects = Self::default();
        for line in text.lines() {
            let parsed =
                line.split_once(' ').and_then(|(run, step)| Some((run.parse().ok()?, step.parse().ok()?)));
            let effect = parsed.ok_or_else(|| format!("`{line}` is not an effect of B7"))?;
            *effects.0.entry(effect).or_default() += 1;
        }
        Ok(effects)
    }

    /// The faults: steps that were never attempted, and runs with more than one extra attempt (a run had one step in
    /// flight when it was killed).
    pub(super) fn faults(&self, runs: usize) -> Vec<String> {
        let all = self.0.values().sum::<usize>();
        let mut known = 0;
        let mut faults = Vec::new();
        for run in 0..runs {
            let counts: Vec<_> =
                (0..STEPS).map(|step| self.0.get(&(run, step)).copied().unwrap_or(0)).collect();
            let (sum, missing) =
                (counts.iter().sum::<usize>(), counts.iter().filter(|count| **count == 0).count());
            known += sum;
            if missing > 0 {
                faults.push(format!("run {run}: {missing} of {STEPS} steps were never attempted"));
            } else if sum > STEPS + 1 {
                faults.push(format!("run {run}: {} extra attempts for one kill: {counts:?}", sum - STEPS));
            }
        }
        if all != known {
            faults.push(format!("{} effects belong to no step", all - known));
        }
        let more = faults.len().saturating_sub(FAULTS_MAX);
        if more > 0 {
            faults.truncate(FAULTS_MAX);
            faults.push(format!("and {more} more like these"));
        }
        faults
    }
}

fn line(run: usize, step: usize) -> String {
    format!("{run:08} {step:02}\n")
}

fn path(folder: &Path) -> PathBuf {
    folder.join("effects")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(extra: &[(usize, usize)], missing: &[(usize, usize)]) -> Vec<String> {
        let all = (0..2).flat_map(|run| (0..STEPS).map(move |step| (run, step)));
        let text = all.filter(|effect| !missing.contains(effect)).chain(extra.iter().copied());
        let text: String = text.map(|(run, step)| line(run, step)).collect();
        Effects::parse(&text).unwrap().faults(2)
    }

    #[test]
    fn a_line_has_its_length() {
        assert!([line(0, 0), line(499, 9)].iter().all(|line| line.len() == LINE_BYTES));
    }

    #[test]
    fn one_extra_attempt_per_run_is_what_a_kill_may_cost() {
        assert_eq!(faults(&[], &[]), [""; 0]);
        assert_eq!(faults(&[(0, 4), (1, 9)], &[]), [""; 0]);
    }

    #[test]
    fn a_second_extra_attempt_is_a_fault() {
        assert!(faults(&[(0, 4), (0, 4)], &[])[0].starts_with("run 0: 2 extra attempts"));
        assert!(faults(&[(1, 4), (1, 5)], &[])[0].starts_with("run 1: 2 extra attempts"));
    }

    #[test]
    fn a_lost_step_is_a_fault_and_so_is_an_unknown_one() {
        assert_eq!(faults(&[], &[(1, 3)]), ["run 1: 1 of 10 steps were never attempted"]);
        assert_eq!(faults(&[(7, 0)], &[]), ["1 effects belong to no step"]);
        assert!(Effects::parse("nonsense\n").is_err());
    }

    #[test]
    fn the_list_of_faults_is_truncated() {
        let faults = Effects::default().faults(9);
        assert_eq!((faults.len(), faults[5].as_str()), (6, "and 4 more like these"));
    }

    #[test]
    fn effects_survive_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Effects::count(folder.path()), 0);
        let file = EffectsFile::open(folder.path()).unwrap();
        file.add(0, 0).unwrap();
        EffectsFile::open(folder.path()).unwrap().add(0, 1).unwrap();
        assert_eq!(Effects::count(folder.path()), 2);
        assert_eq!(Effects::read(folder.path()).unwrap().0.len(), 2);
    }
}
