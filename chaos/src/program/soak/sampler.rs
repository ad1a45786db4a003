//! Measurements: rates, latencies, memory, descriptors and files.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use outlast::{Client, Counts};

use super::super::Result;
use super::super::workdir::{DATABASE, Workdir};
use super::load::Times;

/// Measures this process and the files of a database.
pub(super) struct Sampler {
    files: [PathBuf; 2],
}

/// One line of the output.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) runs_per_s: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) memory_mib: f64,
    pub(super) descriptors: f64,
    pub(super) log_mib: f64,
    pub(super) file_mib: f64,
    pub(super) open: u64,
    pub(super) ended: u64,
    pub(super) pruned: u64,
}

impl Sampler {
    pub(super) fn new(workdir: &Workdir) -> Self {
        Self { files: DATABASE.map(|name| workdir.folder().join(name)) }
    }

    /// Takes a sample of the last `time`, at `at` after the start.
    pub(super) async fn sample(
        &self,
        at: Duration,
        time: Duration,
        mut times: Times,
        client: &Client,
        pruned: u64,
    ) -> Result<Sample> {
        times.short.sort_unstable();
        let counts = client.counts().await?;
        let [file_mib, log_mib] =
            [0, 1].map(|index| mib(self.files[index].metadata().map_or(0, |m| m.len())));
        Ok(Sample {
            at,
            runs_per_s: times.runs as f64 / time.as_secs_f64(),
            p50_ms: quantile_ms(&times.short, 0.50),
            p99_ms: quantile_ms(&times.short, 0.99),
            memory_mib: memory_mib()?,
            descriptors: std::fs::read_dir("/proc/self/fd")?.count() as f64,
            log_mib,
            file_mib,
            open: count(&counts, false),
            ended: count(&counts, true),
            pruned,
        })
    }
}

impl Sample {
    pub(super) const HEAD: &str =
        "     time   runs/s   p50 ms   p99 ms  memory MiB   fds  log MiB  file MiB    open   ended    pruned";
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, runs_per_s, p50_ms, p99_ms, memory_mib, descriptors, log_mib, file_mib, .. } = self;
        let (open, ended, pruned) = (self.open, self.ended, self.pruned);
        write!(
            f,
            "{:>7} s  {runs_per_s:>7.0}  {p50_ms:>7.1}  {p99_ms:>7.1}  {memory_mib:>10.1}  {descriptors:>4.0}  \
             {log_mib:>7.1}  {file_mib:>8.1}  {open:>6}  {ended:>6}  {pruned:>8}",
            at.as_secs()
        )
    }
}

fn count(counts: &Counts, is_final: bool) -> u64 {
    counts.iter().filter(|(status, _)| status.is_final() == is_final).map(|(_, count)| count).sum()
}

/// The resident memory of the process.
fn memory_mib() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("`/proc/self/status` has no VmRSS")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes / 1024.0)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}

/// The quantile of sorted times.
fn quantile_ms(sorted: &[Duration], part: f64) -> f64 {
    let index = (sorted.len() as f64 * part) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_times() {
        let times: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!((quantile_ms(&times, 0.5), quantile_ms(&times, 0.99)), (51.0, 100.0));
        assert_eq!(quantile_ms(&[], 0.5), 0.0);
    }

    #[test]
    fn the_header_is_as_wide_as_a_line() {
        assert_eq!(Sample::HEAD.len(), Sample::default().to_string().len());
    }
}
