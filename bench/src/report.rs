//! The report: a table, or one JSON object.

use serde::Serialize;

use crate::Result;
use crate::baseline::{ComparedPrograms, Comparison};
use crate::environment::WorldKind;
use crate::machine::Machine;
use crate::raw::RawLimits;
use crate::stats::median;
use crate::workload::{Measurement, Row, Target};

/// All rounds of one row.
#[derive(Debug)]
pub(crate) struct RowResults {
    row: &'static Row,
    /// The measurement of each round.
    pub(crate) rounds: Vec<Measurement>,
}

impl RowResults {
    /// Without figures.
    pub(crate) fn of(row: &'static Row) -> Self {
        Self { row, rounds: Vec::new() }
    }

    /// Prints errors in the work itself to the standard error.
    pub(crate) fn print_faults(&self) {
        for fault in self.rounds.iter().flat_map(|round| &round.faults) {
            eprintln!("{}: {fault}", self.row.id);
        }
    }

    fn entry(&self, world: WorldKind) -> ReportRow {
        let of = |pick: fn(&Measurement) -> f64| median(&self.rounds.iter().map(pick).collect::<Vec<_>>());
        let (value, ratio) = (of(|round| round.value), of(|round| round.ratio));
        let is_right = self.rounds.iter().all(|round| round.faults.is_empty());
        let target = self.row.target.on(world);
        ReportRow {
            id: self.row.id,
            what: self.row.what,
            value,
            unit: self.row.unit,
            ratio,
            target: target.limit(),
            ok: is_right && target.is_met_by(ratio),
            wanted: target.to_string(),
            verdict: match (is_right, target.is_met_by(ratio)) {
                (false, _) => "WRONG",
                (true, false) => "MISS",
                (true, true) if target == Target::Unlimited => "",
                (true, true) => "ok",
            },
        }
    }
}

/// All results, with the conditions of the measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    world: String,
    settings: Settings,
    raw: RawLimitsJson,
    results: Vec<ReportRow>,
    /// The comparison with another program, if one was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    against: Vec<Comparison>,
}

/// The conditions of the measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    /// The number of rounds.
    pub(crate) rounds: u32,
    /// The folder of the files.
    pub(crate) folder: String,
    /// What a commit waits for.
    pub(crate) sync: &'static str,
    /// The machine.
    #[serde(flatten)]
    pub(crate) machine: Machine,
}

#[derive(Debug, Serialize)]
struct RawLimitsJson {
    c1_us: f64,
    r100_rows_s: f64,
}

/// One row of the report.
#[derive(Debug, Serialize)]
struct ReportRow {
    id: &'static str,
    what: &'static str,
    value: f64,
    unit: &'static str,
    ratio: f64,
    target: Option<f64>,
    ok: bool,
    #[serde(skip)]
    wanted: String,
    #[serde(skip)]
    verdict: &'static str,
}

impl Report {
    /// The medians of all rounds.
    pub(crate) fn new(world: WorldKind, settings: Settings, raw: RawLimits, findings: &[RowResults]) -> Self {
        Self {
            world: world.to_string(),
            settings,
            raw: RawLimitsJson { c1_us: raw.c1_us, r100_rows_s: raw.r100_rows_s },
            results: findings.iter().map(|finding| finding.entry(world)).collect(),
            against: Vec::new(),
        }
    }

    /// The report with a comparison, if there is a program to compare with.
    pub(crate) fn against(mut self, programs: Option<&ComparedPrograms>) -> Self {
        let compare = |programs: &ComparedPrograms, entry: &ReportRow| programs.compare(entry.id, entry.unit);
        self.against = programs
            .iter()
            .flat_map(|programs| self.results.iter().map(|entry| compare(programs, entry)))
            .collect();
        self
    }

    /// One JSON object on one line.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// The machine, the raw limits, and an aligned table.
    pub(crate) fn to_table(&self) -> String {
        let Settings { rounds, folder, sync, machine } = &self.settings;
        let raw = format!("C1 {} us, R100 {} rows/s", number(self.raw.c1_us), number(self.raw.r100_rows_s));
        let mut text = format!(
            "{machine}, mimalloc\nworld {}, sync {sync}, in {folder}\n\
             median of {rounds} round(s); raw limits of the disk: {raw}\n\n",
            self.world
        );
        let head = ["id", "what", "value", "ratio", "target", ""].map(str::to_owned);
        let rows = self.results.iter().map(ReportRow::cells);
        let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
        for line in aligned(&rows, &[2, 3]) {
            text.push_str(&line);
            text.push('\n');
        }
        if !self.against.is_empty() {
            let rows = self.against.iter().map(Comparison::cells);
            let rows: Vec<_> = std::iter::once(Comparison::head()).chain(rows).collect();
            text.push_str("\nmeasured in turns with another program:\n\n");
            for line in aligned(&rows, &[1, 2, 3, 4, 5]) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    }
}

impl ReportRow {
    fn cells(&self) -> [String; 6] {
        let value = format!("{} {}", number(self.value), self.unit);
        let ratio = number(self.ratio);
        [self.id.into(), self.what.into(), value, ratio, self.wanted.clone(), self.verdict.into()]
    }
}

/// Lines whose columns stand under each other; the columns with numbers, `right`, are set right.
fn aligned<const N: usize>(rows: &[[String; N]], right: &[usize]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let cell = |column: usize, text: &str| match right.contains(&column) {
        true => format!("{text:>0$}", widths[column]),
        false => format!("{text:<0$}", widths[column]),
    };
    let line = |row: &[String; N]| {
        let cells: [String; N] = std::array::from_fn(|column| cell(column, &row[column]));
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A number as people read it: three digits of it count, thousands stand apart.
pub(crate) fn number(number: f64) -> String {
    let decimals = match number.abs() {
        large if large >= 100.0 => 0,
        ten if ten >= 10.0 => 1,
        one if one >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.decimals$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        let left = whole.len() - at;
        if at > 0 && left.is_multiple_of(3) && grouped.ends_with(|c: char| c.is_ascii_digit()) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let part = part.trim_end_matches('0');
    if part.is_empty() { grouped } else { format!("{grouped}.{part}") }
}

#[cfg(test)]
mod tests;
