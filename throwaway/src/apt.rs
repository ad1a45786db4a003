//! Installs Debian packages, as root.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::account::is_root;
use crate::error::{Error, Result};

/// Whether packages can be installed: as root, on Debian or a derivative.
pub fn is_possible() -> bool {
    is_debian() && is_root()
}

/// Whether packages are installed with `apt-get`.
pub fn is_debian() -> bool {
    let mut apt = Command::new("apt-get");
    apt.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Path::new("/etc/debian_version").exists() && apt.status().is_ok_and(|status| status.success())
}

/// Installs the packages, unless `present` returns true. Their services are not started, and no database cluster is
/// created.
///
/// # Errors
///
/// When a command fails; the message contains it. The caller checks whether the packages work.
pub fn install(packages: &[&str], present: impl Fn() -> bool) -> Result<()> {
    // Concurrent processes install one after the other; the second one finds the packages installed.
    let lock_file = File::open("/etc/debian_version");
    if let Ok(lock_file) = &lock_file {
        let _ = lock_file.lock();
    }
    if present() {
        return Ok(());
    }
    let _quiet = [
        TemporaryFile::write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n"),
        TemporaryFile::write(
            "/etc/postgresql-common/createcluster.d/outlast.conf",
            "create_main_cluster = false\n",
        ),
    ];
    run(apt().arg("update"))?;
    run(apt().args(["install", "-y", "--no-install-recommends"]).args(packages))
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    // Waits for another installation to end.
    command.args(["-o", "DPkg::Lock::Timeout=300"]);
    command
}

/// Runs the command without input; its output goes to the standard error.
fn run(command: &mut Command) -> Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    eprintln!("    {line}");
    // The standard output belongs to the program that needs the package.
    match command.stdin(Stdio::null()).stdout(std::io::stderr()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::new(format!("`{line}` ended with {status}"))),
        Err(error) => Err(Error::new(format!("`{line}` cannot be started: {error}"))),
    }
}

/// A file of the system that exists as long as this value. An existing file is not changed.
#[derive(Debug)]
struct TemporaryFile {
    file: PathBuf,
}

impl TemporaryFile {
    fn write(path: &str, text: &str) -> Option<Self> {
        let file = PathBuf::from(path);
        if file.exists() {
            return None;
        }
        std::fs::create_dir_all(file.parent()?).ok()?;
        let temporary = Self { file };
        std::fs::write(&temporary.file, text).ok()?;
        make_executable(&temporary.file);
        Some(temporary)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
        // Also remove the folder, if it is empty.
        let _ = self.file.parent().map(std::fs::remove_dir);
    }
}

#[cfg(unix)]
fn make_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755));
}

#[cfg(not(unix))]
fn make_executable(_: &Path) {}
