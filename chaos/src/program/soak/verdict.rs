//! The verdict: what was flat, and what grew.
//!
//! The median of the last quarter is compared with that of the second. The first quarter is left out:
//! caches fill, and the file grows to its size.

use super::super::Result;
use super::gauge::Sample;

/// Lines that a verdict needs: each quarter has some.
const SAMPLES_MIN: usize = 16;

/// Something that must not grow: by more than a part of what it was, and more than a little.
struct Rule {
    name: &'static str,
    unit: &'static str,
    figure: fn(&Sample) -> f64,
    growth_max: f64,
    slack: f64,
}

/// Each with room for what a shared machine and a reused file do by themselves.
const RULES: [Rule; 5] = [
    Rule { name: "memory", unit: "MiB", figure: |s| s.memory_mib, growth_max: 0.10, slack: 8.0 },
    Rule { name: "descriptors", unit: "", figure: |s| s.descriptors, growth_max: 0.0, slack: 2.0 },
    Rule { name: "log", unit: "MiB", figure: |s| s.log_mib, growth_max: 0.10, slack: 4.0 },
    Rule { name: "file", unit: "MiB", figure: |s| s.file_mib, growth_max: 0.10, slack: 4.0 },
    Rule { name: "p99", unit: "ms", figure: |s| s.p99_ms, growth_max: 0.50, slack: 10.0 },
];

/// Prints what was flat and what grew; an error when something did.
pub(super) fn judge(samples: &[Sample]) -> Result<()> {
    if samples.len() < SAMPLES_MIN {
        println!("too short for a verdict: {} lines, of {SAMPLES_MIN} that it needs", samples.len());
        return Ok(());
    }
    println!("medians of the second and the last quarter:");
    let mut grown = Vec::new();
    for rule in &RULES {
        let (before, after) = quarters(samples, rule.figure);
        let is_flat = after <= (before * (1.0 + rule.growth_max)).max(before + rule.slack);
        let verdict = if is_flat { "flat" } else { "GROWN" };
        println!("  {:11}  {before:>8.1}  {after:>8.1} {:3}  {verdict}", rule.name, rule.unit);
        if !is_flat {
            grown.push(rule.name);
        }
    }
    let (before, after) = quarters(samples, |sample| sample.runs_per_s);
    println!("  {:11}  {before:>8.1}  {after:>8.1}", "runs/s");
    if grown.is_empty() { Ok(()) } else { Err(format!("not flat: {}", grown.join(", ")).into()) }
}

fn quarters(samples: &[Sample], figure: fn(&Sample) -> f64) -> (f64, f64) {
    let quarter = samples.len() / 4;
    let median = |samples: &[Sample]| {
        let mut figures: Vec<f64> = samples.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    (median(&samples[quarter..2 * quarter]), median(&samples[samples.len() - quarter..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(memory: impl Fn(usize) -> f64) -> Vec<Sample> {
        (0..40).map(|index| Sample { memory_mib: memory(index), ..Sample::default() }).collect()
    }

    #[test]
    fn what_grows_again_and_again_is_named() {
        let error = judge(&samples(|index| 100.0 + index as f64)).unwrap_err();
        assert_eq!(error.to_string(), "not flat: memory");
    }

    #[test]
    fn what_grows_at_first_only_is_flat() {
        judge(&samples(|index| 100.0 + index.min(9) as f64 * 50.0)).unwrap();
    }

    #[test]
    fn one_bad_moment_is_not_growth() {
        judge(&samples(|index| if index == 35 { 900.0 } else { 100.0 })).unwrap();
    }
}
