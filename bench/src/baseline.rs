//! The benchmark program of another revision, run alternately with this one.
//!
//! Figures of different times cannot be compared, because the load of the machine changes. So both programs make each
//! measurement one after the other, each in a new process and in the same place. They alternate in which of them is
//! first, since a measurement affects the next one; the first measurement of each round is repeated and not counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::environment::WorldKind;
use crate::report::number;
use crate::stats::median;

/// The message of a program that lacks a workload. Older programs print it too.
const UNKNOWN: &str = "there is no such workload";

/// This program and the other one.
#[derive(Debug)]
pub(crate) struct ComparedPrograms {
    this: MeasuredProgram,
    other: MeasuredProgram,
}

/// A benchmark program, and its figures so far.
#[derive(Debug)]
struct MeasuredProgram {
    /// How the output names it.
    name: &'static str,
    program: PathBuf,
    figures: BTreeMap<String, Vec<MeasuredFigure>>,
}

/// The needed part of a program's JSON report.
#[derive(Debug, Deserialize)]
struct MeasuredReport {
    results: Vec<MeasuredFigure>,
}

/// One row of one round.
#[derive(Debug, Deserialize)]
struct MeasuredFigure {
    id: String,
    value: f64,
    ratio: f64,
}

/// The medians of one row of the report, in both programs.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) id: &'static str,
    pub(crate) unit: &'static str,
    /// `None` if the program lacks the row.
    pub(crate) this: Option<Medians>,
    pub(crate) other: Option<Medians>,
    /// The value of this program, as a multiple of the other's.
    pub(crate) times: Option<f64>,
}

/// The medians of one program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Medians {
    pub(crate) value: f64,
    pub(crate) ratio: f64,
}

impl ComparedPrograms {
    /// This program and another one.
    pub(crate) fn new(other: &Path) -> Result<Self> {
        let this = MeasuredProgram::new("now", std::env::current_exe()?);
        Ok(Self { this, other: MeasuredProgram::new("against", other.into()) })
    }

    /// Runs one round of a workload in both programs, with their files in `folder`.
    pub(crate) fn measure(
        &mut self,
        workload: &str,
        round: u32,
        world: WorldKind,
        folder: &Path,
    ) -> Result<()> {
        let Self { this, other } = self;
        let (first, second) = if round.is_multiple_of(2) { (other, this) } else { (this, other) };
        // The first measurement after one of this process is often slower by a third, whichever program makes it. It is
        // not counted.
        first.report(workload, world, folder)?;
        first.measure(workload, world, folder)?;
        second.measure(workload, world, folder)
    }

    /// Compares the medians of a row.
    pub(crate) fn compare(&self, id: &'static str, unit: &'static str) -> Comparison {
        let (this, other) = (self.this.medians(id), self.other.medians(id));
        let times = this.zip(other).map(|(this, other)| this.value / other.value);
        Comparison { id, unit, this, other, times }
    }
}

/// Waits until the disks have stored what the measurements before have written, which would slow the next one.
fn flush_disks() {
    // Without the command the figures vary more, in both programs.
    let _ = Command::new("sync").status();
}

impl MeasuredProgram {
    /// Without figures.
    fn new(name: &'static str, program: PathBuf) -> Self {
        Self { name, program, figures: BTreeMap::new() }
    }

    /// Runs one round of a workload, and adds its figures.
    fn measure(&mut self, workload: &str, world: WorldKind, folder: &Path) -> Result<()> {
        match self.report(workload, world, folder)? {
            Some(printed) => self.add(&printed),
            None => {
                eprintln!("  {}: the program lacks {workload}", self.name);
                Ok(())
            }
        }
    }

    /// Runs one round of a workload, and returns what the program prints; `None` if it lacks the workload.
    fn report(&self, workload: &str, world: WorldKind, folder: &Path) -> Result<Option<Vec<u8>>> {
        flush_disks();
        let mut command = Command::new(&self.program);
        command.args(["--only", workload, "--rounds", "1", "--json", "--world", &world.to_string()]);
        let shown = self.program.display();
        let output = command.arg("--folder").arg(folder).output();
        let output = output.map_err(|error| format!("`{shown}` cannot be started: {error}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains(UNKNOWN) {
            return Ok(None);
        }
        if !output.status.success() {
            return Err(format!("`{shown}` ended with {} at {workload}:\n{errors}", output.status).into());
        }
        Ok(Some(output.stdout))
    }

    /// Adds the figures of a report.
    fn add(&mut self, printed: &[u8]) -> Result<()> {
        let MeasuredReport { results } = serde_json::from_slice(printed)
            .map_err(|error| format!("`{}` printed no report: {error}", self.program.display()))?;
        eprint!("  {}:", self.name);
        for figure in results {
            eprint!("  {}, ratio {}", number(figure.value), number(figure.ratio));
            self.figures.entry(figure.id.clone()).or_default().push(figure);
        }
        eprintln!();
        Ok(())
    }

    /// The medians of a row.
    fn medians(&self, id: &str) -> Option<Medians> {
        let figures = self.figures.get(id)?;
        let of = |pick: fn(&MeasuredFigure) -> f64| median(&figures.iter().map(pick).collect::<Vec<_>>());
        Some(Medians { value: of(|figure| figure.value), ratio: of(|figure| figure.ratio) })
    }
}

impl Comparison {
    /// The head of the table.
    pub(crate) fn head() -> [String; 6] {
        ["id", "now", "against", "now / against", "ratio now", "ratio against"].map(str::to_owned)
    }

    /// The row of the table.
    pub(crate) fn cells(&self) -> [String; 6] {
        let Self { id, unit, this, other, times } = self;
        let shown = |figure: Option<f64>| figure.map_or("-".to_owned(), number);
        let value = |medians: &Option<Medians>| shown(medians.map(|medians| medians.value));
        let ratio = |medians: &Option<Medians>| shown(medians.map(|medians| medians.ratio));
        let now = format!("{} {unit}", value(this));
        [(*id).to_owned(), now, value(other), shown(*times), ratio(this), ratio(other)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(value: f64) -> String {
        format!(
            r#"{{"world":"sqlite","results":[{{"id":"B2","what":"x","value":{value},"ratio":0.5,"ok":true}}]}}"#
        )
    }

    fn programs() -> ComparedPrograms {
        ComparedPrograms::new(Path::new("old")).unwrap()
    }

    #[test]
    fn the_medians_of_both_programs_are_compared() {
        let mut programs = programs();
        for value in [300.0, 100.0, 200.0] {
            programs.other.add(printed(value).as_bytes()).unwrap();
            programs.this.add(printed(value + 300.0).as_bytes()).unwrap();
        }
        let compared = programs.compare("B2", "runs/s");
        assert_eq!(compared.other, Some(Medians { value: 200.0, ratio: 0.5 }));
        assert_eq!(compared.cells(), ["B2", "500 runs/s", "200", "2.5", "0.5", "0.5"]);
    }

    #[test]
    fn a_row_that_the_other_program_lacks_is_shown_without_its_figures() {
        let mut programs = programs();
        programs.this.add(printed(20.0).replace("B2", "BF").as_bytes()).unwrap();
        assert_eq!(programs.compare("BF", "ms").cells(), ["BF", "20 ms", "-", "-", "0.5", "-"]);
    }

    #[test]
    fn an_error_names_the_program_without_a_report() {
        let error = programs().other.add(b"hello").unwrap_err().to_string();
        assert!(error.contains("`old` printed no report"), "{error}");
        let mut missing = MeasuredProgram::new("against", "no-such-program".into());
        let error = missing.measure("B2", WorldKind::Memory, Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("`no-such-program` cannot be started"), "{error}");
    }
}
