//! The benchmark program of another revision, run alternately with this one.
//!
//! Figures of different times cannot be compared, because the load of the machine changes. So after each measurement of
//! this program, the other program makes the same measurement in the same place.

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

/// The other program, and its figures so far.
#[derive(Debug)]
pub(crate) struct BaselineProgram {
    program: PathBuf,
    figures: BTreeMap<String, Vec<BaselineFigure>>,
}

/// The needed part of the other program's JSON report.
#[derive(Debug, Deserialize)]
struct BaselineReport {
    results: Vec<BaselineFigure>,
}

/// One row of one round.
#[derive(Debug, Deserialize)]
struct BaselineFigure {
    id: String,
    value: f64,
    ratio: f64,
}

/// The medians of one row of the report, in both programs.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) id: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    pub(crate) ratio: f64,
    /// The medians of the other program, if it has the row.
    pub(crate) other: Option<Medians>,
}

/// The medians of the other program.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Medians {
    pub(crate) value: f64,
    pub(crate) ratio: f64,
    /// The value of this program, as a multiple of the other's.
    pub(crate) times: f64,
}

impl BaselineProgram {
    /// Without figures.
    pub(crate) fn new(program: &Path) -> Self {
        Self { program: program.into(), figures: BTreeMap::new() }
    }

    /// Runs one round of a workload in the other program, with its files in `folder`.
    pub(crate) fn measure(&mut self, workload: &str, world: WorldKind, folder: &Path) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["--only", workload, "--rounds", "1", "--json", "--world", &world.to_string()]);
        let shown = self.program.display();
        let output = command.arg("--folder").arg(folder).output();
        let output = output.map_err(|error| format!("`{shown}` cannot be started: {error}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains(UNKNOWN) {
            eprintln!("  against: the other program lacks {workload}");
            return Ok(());
        }
        if !output.status.success() {
            return Err(format!("`{shown}` ended with {} at {workload}:\n{errors}", output.status).into());
        }
        self.add(&output.stdout)
    }

    /// Adds the figures of a report.
    fn add(&mut self, printed: &[u8]) -> Result<()> {
        let BaselineReport { results } = serde_json::from_slice(printed)
            .map_err(|error| format!("`{}` printed no report: {error}", self.program.display()))?;
        eprint!("  against:");
        for figure in results {
            eprint!("  {}, ratio {}", number(figure.value), number(figure.ratio));
            self.figures.entry(figure.id.clone()).or_default().push(figure);
        }
        eprintln!();
        Ok(())
    }

    /// Compares a row's medians with those of the other program.
    pub(crate) fn compare(&self, id: &'static str, unit: &'static str, value: f64, ratio: f64) -> Comparison {
        let other = self.figures.get(id).map(|figures| {
            let of = |pick: fn(&BaselineFigure) -> f64| median(&figures.iter().map(pick).collect::<Vec<_>>());
            let (then, ratio) = (of(|figure| figure.value), of(|figure| figure.ratio));
            Medians { value: then, ratio, times: value / then }
        });
        Comparison { id, unit, value, ratio, other }
    }
}

impl Comparison {
    /// The head of the table.
    pub(crate) fn head() -> [String; 6] {
        ["id", "now", "against", "now / against", "ratio now", "ratio against"].map(str::to_owned)
    }

    /// The row of the table.
    pub(crate) fn cells(&self) -> [String; 6] {
        let Self { id, unit, value, ratio, other } = self;
        let shown =
            |pick: fn(&Medians) -> f64| other.as_ref().map_or("-".to_owned(), |other| number(pick(other)));
        let now = format!("{} {unit}", number(*value));
        let (then, times) = (shown(|other| other.value), shown(|other| other.times));
        [(*id).to_owned(), now, then, times, number(*ratio), shown(|other| other.ratio)]
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

    #[test]
    fn the_medians_of_both_programs_are_compared() {
        let mut other = BaselineProgram::new(Path::new("old"));
        for value in [300.0, 100.0, 200.0] {
            other.add(printed(value).as_bytes()).unwrap();
        }
        let compared = other.compare("B2", "runs/s", 500.0, 0.75);
        assert_eq!(compared.other, Some(Medians { value: 200.0, ratio: 0.5, times: 2.5 }));
        assert_eq!(compared.cells(), ["B2", "500 runs/s", "200", "2.5", "0.75", "0.5"]);
    }

    #[test]
    fn a_row_that_the_other_program_lacks_is_shown_without_its_figures() {
        let compared = BaselineProgram::new(Path::new("old")).compare("BF", "ms", 20.0, 1.0);
        assert_eq!(compared.cells(), ["BF", "20 ms", "-", "-", "1", "-"]);
    }

    #[test]
    fn an_error_names_the_program_without_a_report() {
        let error = BaselineProgram::new(Path::new("old")).add(b"hello").unwrap_err().to_string();
        assert!(error.contains("`old` printed no report"), "{error}");
        let mut missing = BaselineProgram::new(Path::new("no-such-program"));
        let error = missing.measure("B2", WorldKind::Memory, Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("`no-such-program` cannot be started"), "{error}");
    }
}
