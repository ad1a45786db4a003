//! What the operating system knows of this process.

use std::sync::OnceLock;

use super::text::MetricsText;

/// The number of clock ticks per second in `/proc`. Linux has used 100 on every architecture for decades.
const TICKS_PER_SECOND: f64 = 100.0;

/// Writes the standard metrics of a process; nothing where there is no `/proc`.
pub(super) fn write(text: &mut MetricsText) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    if let Some(kilobytes) = resident.and_then(|number| number.trim().parse::<f64>().ok()) {
        text.family("process_resident_memory_bytes", "gauge", "Resident memory.");
        text.sample("process_resident_memory_bytes", &[], kilobytes * 1_024.0);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        text.family("process_open_fds", "gauge", "Open files and sockets.");
        text.sample("process_open_fds", &[], files.count() as f64);
    }
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(times) = ProcessTimes::read(&stat) {
        text.family("process_cpu_seconds_total", "counter", "Time on processors, of user and system code.");
        text.sample("process_cpu_seconds_total", &[], times.cpu_seconds);
        if let Some(booted_at) = booted_at() {
            text.family("process_start_time_seconds", "gauge", "When the process started, in Unix time.");
            text.sample("process_start_time_seconds", &[], booted_at + times.started_after_boot);
        }
    }
}

/// What `/proc/self/stat` says.
#[derive(Debug, PartialEq)]
struct ProcessTimes {
    cpu_seconds: f64,
    /// When the process started, in seconds after the machine did.
    started_after_boot: f64,
}

impl ProcessTimes {
    fn read(stat: &str) -> Option<Self> {
        // The second field is the name of the program in parentheses, which may contain spaces.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let seconds = |index: usize| Some(fields.get(index)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
        // Fields 14, 15 and 22 of proc(5); the first after the name is field 3.
        Some(Self { cpu_seconds: seconds(11)? + seconds(12)?, started_after_boot: seconds(19)? })
    }
}

/// When the machine started, in Unix time.
fn booted_at() -> Option<f64> {
    static BOOTED_AT: OnceLock<Option<f64>> = OnceLock::new();
    *BOOTED_AT.get_or_init(|| {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_whatever_the_name_of_the_program_is() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 99 0 0 0 250 50 0 0 20 0 4 0 12345 0 0";
        let times = ProcessTimes { cpu_seconds: 3.0, started_after_boot: 123.45 };
        assert_eq!(ProcessTimes::read(stat), Some(times));
        assert_eq!(ProcessTimes::read(""), None);
    }
}
