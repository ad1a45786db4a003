//! Finds the programs of Postgres.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest supported major version.
pub(crate) const VERSION_MIN: u32 = 14;

/// The folders in which distributions install versions: the parts before and after the version.
const INSTALL_FOLDERS: [(&str, &str); 4] = [
    ("/usr/lib/postgresql/", "/bin"),
    ("/usr/pgsql-", "/bin"),
    ("/opt/homebrew/opt/postgresql@", "/bin"),
    ("/usr/local/opt/postgresql@", "/bin"),
];

/// The folder with `postgres` and `initdb` of a supported version: the one on the path, the newest one of the
/// distribution's folders, or that of `pg_config`.
pub(crate) fn of_postgres() -> Option<PathBuf> {
    let on_path = on_path("postgres").and_then(|program| folder_of(&program));
    let installed = INSTALL_FOLDERS.into_iter().flat_map(|(before, after)| versions(before, after));
    let mut candidates = on_path.into_iter().chain(installed).chain(of_pg_config());
    candidates.find(|folder| is_usable(folder))
}

/// The first program of that name on the path, or in the folders for server programs.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin"].into_iter().map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The real folder of the program, without symbolic links.
fn folder_of(program: &Path) -> Option<PathBuf> {
    program.canonicalize().ok()?.parent().map(Path::to_path_buf)
}

/// The existing folders `{before}VERSION{after}`, the newest version first.
fn versions(before: &str, after: &str) -> Vec<PathBuf> {
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let Ok(entries) = std::fs::read_dir(format!("{parent}/")) else { return Vec::new() };
    let version = |name: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut found: Vec<u32> = names.filter_map(|name| version(&name)).collect();
    found.sort_by_key(|version| Reverse(*version));
    found.into_iter().map(|version| PathBuf::from(format!("{before}{version}{after}"))).collect()
}

fn of_pg_config() -> Option<PathBuf> {
    Some(PathBuf::from(run_for_output(Path::new("pg_config"), "--bindir")?))
}

fn is_usable(folder: &Path) -> bool {
    let version = run_for_output(&folder.join("postgres"), "--version").and_then(|text| major(&text));
    folder.join("initdb").is_file() && version.is_some_and(|version| version >= VERSION_MIN)
}

/// The major version in `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, or in `17beta1`.
fn major(text: &str) -> Option<u32> {
    let number = text.split_once("(PostgreSQL)")?.1.trim_start();
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse().ok()
}

/// The output of the program for one argument.
fn run_for_output(program: &Path, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(major("postgres (EnterpriseDB) 9"), None);
    }

    #[test]
    fn the_newest_version_comes_first() {
        let root = std::env::temp_dir().join(format!("outlast-programs-{}", crate::random::word()));
        for version in ["9", "14", "100", "common"] {
            std::fs::create_dir_all(root.join(version).join("bin")).unwrap();
        }
        let found = versions(&format!("{}/", root.display()), "/bin");
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, ["100", "14", "9"].map(|version| root.join(version).join("bin")));
    }
}
