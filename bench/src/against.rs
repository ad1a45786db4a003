//! The benchmark program of another revision, measured in turns with this one.
//!
//! Figures of two sessions cannot be compared: the machine does other things meanwhile. So after each measurement
//! of this program the other one makes the same measurement, in the same place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::env::WorldKind;
use crate::report::number;
use crate::stats::median;

/// What a program says that does not have a workload.
const UNKNOWN: &str = "there is no such workload";

/// The other program, and what it measured so far.
#[derive(Debug)]
pub(crate) struct Other {
    program: PathBuf,
    figures: BTreeMap<String, Vec<Figure>>,
}

/// What the other program prints with `--json`, as far as it is needed.
#[derive(Debug, Deserialize)]
struct Printed {
    results: Vec<Figure>,
}

/// One row of one round.
#[derive(Debug, Deserialize)]
struct Figure {
    id: String,
    value: f64,
    ratio: f64,
}

/// The medians of one row of the report, in both programs.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Compared {
    pub(crate) id: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    pub(crate) ratio: f64,
    /// What the other program measured, if it has the row.
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

impl Other {
    /// Nothing measured yet.
    pub(crate) fn new(program: &Path) -> Self {
        Self { program: program.into(), figures: BTreeMap::new() }
    }

    /// Lets the other program measure a workload once, with its files in `folder`.
    pub(crate) fn measure(&mut self, workload: &str, world: WorldKind, folder: &Path) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["--only", workload, "--rounds", "1", "--json", "--world", &world.to_string()]);
        let shown = self.program.display();
        let output = command.arg("--folder").arg(folder).output();
        let output = output.map_err(|error| format!("`{shown}` cannot be started: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains(UNKNOWN) {
            eprintln!("  against: it has no {workload}");
            return Ok(());
        }
        if !output.status.success() {
            return Err(format!("`{shown}` ended with {} at {workload}:\n{said}", output.status).into());
        }
        self.add(&output.stdout)
    }

    /// Adds what the program printed.
    fn add(&mut self, printed: &[u8]) -> Result<()> {
        let Printed { results } = serde_json::from_slice(printed)
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
    pub(crate) fn compare(&self, id: &'static str, unit: &'static str, value: f64, ratio: f64) -> Compared {
        let other = self.figures.get(id).map(|figures| {
            let of = |pick: fn(&Figure) -> f64| median(&figures.iter().map(pick).collect::<Vec<_>>());
            let (then, ratio) = (of(|figure| figure.value), of(|figure| figure.ratio));
            Medians { value: then, ratio, times: value / then }
        });
        Compared { id, unit, value, ratio, other }
    }
}

impl Compared {
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
    fn medians_of_both_are_compared() {
        let mut other = Other::new(Path::new("old"));
        for value in [300.0, 100.0, 200.0] {
            other.add(printed(value).as_bytes()).unwrap();
        }
        let compared = other.compare("B2", "runs/s", 500.0, 0.75);
        assert_eq!(compared.other, Some(Medians { value: 200.0, ratio: 0.5, times: 2.5 }));
        assert_eq!(compared.cells(), ["B2", "500 runs/s", "200", "2.5", "0.75", "0.5"]);
    }

    #[test]
    fn a_row_that_the_other_program_lacks_is_shown_without_its_figures() {
        let compared = Other::new(Path::new("old")).compare("BF", "ms", 20.0, 1.0);
        assert_eq!(compared.cells(), ["BF", "20 ms", "-", "-", "1", "-"]);
    }

    #[test]
    fn a_program_that_prints_something_else_is_named() {
        let error = Other::new(Path::new("old")).add(b"hello").unwrap_err().to_string();
        assert!(error.contains("`old` printed no report"), "{error}");
        let mut missing = Other::new(Path::new("no-such-program"));
        let error = missing.measure("B2", WorldKind::Memory, Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("`no-such-program` cannot be started"), "{error}");
    }
}
