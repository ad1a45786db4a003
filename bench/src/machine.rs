//! The machine on which the figures were measured, and what the program was built from.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::Result;

/// What a reader needs to compare figures with those of another machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// The processor's model.
    pub(crate) cpu: String,
    /// The cores that this process may use.
    pub(crate) cores: usize,
    /// The memory.
    pub(crate) memory_gib: f64,
    /// The system's kernel.
    pub(crate) kernel: String,
    /// The file system of the folder.
    pub(crate) filesystem: String,
    /// The load of the last minute, before anything was measured: others disturb.
    pub(crate) load: f64,
    /// The compiler.
    pub(crate) rustc: &'static str,
    /// What keeps the runs, and its version.
    pub(crate) store: String,
    /// How the program was built.
    pub(crate) build: &'static str,
}

impl Machine {
    /// Looks at this machine. What cannot be found is called unknown.
    pub(crate) fn read_now(folder: &Path, store: String) -> Self {
        let unknown = || "unknown".to_owned();
        let kibibytes = field(&read("/proc/meminfo"), "MemTotal").and_then(|text| first_number(&text));
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_gib: (kibibytes.unwrap_or(0.0) / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            kernel: Some(read("/proc/sys/kernel/osrelease").trim().to_owned())
                .filter(|kernel| !kernel.is_empty())
                .unwrap_or_else(unknown),
            filesystem: filesystem(&read("/proc/mounts"), folder).unwrap_or_else(unknown),
            load: first_number(&read("/proc/loadavg")).unwrap_or(0.0),
            rustc: env!("OUTLAST_BENCH_RUSTC"),
            store,
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, memory_gib, kernel, filesystem, load, rustc, store, build } = self;
        write!(
            f,
            "{cpu}, {cores} cores, {memory_gib} GiB, Linux {kernel}, {filesystem}, load {load}\n\
             {rustc}, {build}, {store}"
        )
    }
}

/// The most memory that this process ever had, in megabytes.
pub(crate) fn peak_mb() -> Result<f64> {
    let kilobytes = field(&read("/proc/self/status"), "VmHWM").and_then(|text| first_number(&text));
    kilobytes
        .map(|kilobytes| kilobytes * 1_024.0 / 1e6)
        .ok_or_else(|| "the system does not tell the memory".into())
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The kind of the file system that is mounted nearest above the folder.
fn filesystem(mounts: &str, folder: &Path) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = mounts.filter(|(place, _)| folder.starts_with(place));
    above.max_by_key(|(place, _)| place.len()).map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: A: B\nmodel name\t: C\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(field(text, "model"), None);
        assert_eq!(first_number("  24576 kB"), Some(24576.0));
        assert_eq!(first_number(""), None);
    }

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\ntmpfs /tmpo xfs rw 0 0\nodd\n";
        let kind = |folder| filesystem(mounts, Path::new(folder));
        assert_eq!(kind("/srv/x").as_deref(), Some("ext4"));
        assert_eq!(kind("/tmp/x").as_deref(), Some("tmpfs"));
        assert_eq!(filesystem("", Path::new("/")), None);
    }
}
