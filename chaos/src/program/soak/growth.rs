//! The check that no resource grew.
//!
//! The median of the last quarter is compared with that of the second. The first quarter is ignored: caches fill, and
//! the file reaches its size.

use super::super::Result;
use super::sampler::Sample;

/// The minimum number of samples: each quarter needs some.
const SAMPLES_MIN: usize = 16;

/// A resource, with its allowed growth as a ratio and as an absolute value.
struct GrowthLimit {
    name: &'static str,
    unit: &'static str,
    figure: fn(&Sample) -> f64,
    growth_max: f64,
    slack: f64,
}

/// The limits allow for the noise of a shared machine and of a reused file.
const LIMITS: [GrowthLimit; 5] = [
    GrowthLimit { name: "memory", unit: "MiB", figure: |s| s.memory_mib, growth_max: 0.10, slack: 8.0 },
    GrowthLimit { name: "descriptors", unit: "", figure: |s| s.descriptors, growth_max: 0.0, slack: 2.0 },
    GrowthLimit { name: "log", unit: "MiB", figure: |s| s.log_mib, growth_max: 0.10, slack: 4.0 },
    GrowthLimit { name: "file", unit: "MiB", figure: |s| s.file_mib, growth_max: 0.10, slack: 4.0 },
    GrowthLimit { name: "p99", unit: "ms", figure: |s| s.p99_ms, growth_max: 0.50, slack: 10.0 },
];

/// Prints the medians. Fails when a resource grew.
pub(super) fn check_growth(samples: &[Sample]) -> Result<()> {
    if samples.len() < SAMPLES_MIN {
        println!("too short for a check of growth: {} of {SAMPLES_MIN} samples", samples.len());
        return Ok(());
    }
    println!("medians of the second and the last quarter:");
    let mut grown = Vec::new();
    for limit in &LIMITS {
        let (before, after) = quarters(samples, limit.figure);
        let is_flat = after <= (before * (1.0 + limit.growth_max)).max(before + limit.slack);
        let result = if is_flat { "flat" } else { "GROWN" };
        println!("  {:11}  {before:>8.1}  {after:>8.1} {:3}  {result}", limit.name, limit.unit);
        if !is_flat {
            grown.push(limit.name);
        }
    }
    let (before, after) = quarters(samples, |sample| sample.runs_per_s);
    println!("  {:11}  {before:>8.1}  {after:>8.1}", "runs/s");
    if grown.is_empty() { Ok(()) } else { Err(format!("these resources grew: {}", grown.join(", ")).into()) }
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
    fn steady_growth_is_an_error() {
        let error = check_growth(&samples(|index| 100.0 + index as f64)).unwrap_err();
        assert_eq!(error.to_string(), "these resources grew: memory");
    }

    #[test]
    fn growth_in_the_first_quarter_is_allowed() {
        check_growth(&samples(|index| 100.0 + index.min(9) as f64 * 50.0)).unwrap();
    }

    #[test]
    fn a_single_outlier_is_allowed() {
        check_growth(&samples(|index| if index == 35 { 900.0 } else { 100.0 })).unwrap();
    }
}
