//! axe-core, which checks the accessibility of a page. It is downloaded, since its licence differs from that of this
//! repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::programs;

/// The package.
const PACKAGE: &str = "axe-core@4";

/// The source of the script, for a browser.
///
/// # Errors
///
/// When it is not installed, with the remedy.
pub fn source() -> Result<String> {
    let path = path();
    std::fs::read_to_string(&path).map_err(|error| {
        let remedy = "run `cargo xtask test`, which installs it with npm";
        Error::new(format!("axe-core is missing: `{}`: {error}; {remedy}", path.display()))
    })
}

/// Why pages cannot be checked on this machine; `None` if they can.
pub fn missing() -> Option<String> {
    source().err().map(|error| error.to_string())
}

/// Makes sure that the script is installed: npm downloads it if needed.
///
/// # Errors
///
/// When it is missing and cannot be installed, with the remedy.
pub fn require() -> Result<()> {
    if source().is_ok() {
        return Ok(());
    }
    let npm = programs::on_path("npm")
        .ok_or_else(|| Error::new("npm is needed to install axe-core; install Node.js".to_owned()))?;
    eprintln!("    no axe-core: installing it with npm");
    let folder = folder();
    let cannot = |error: std::io::Error| Error::new(format!("axe-core cannot be installed: {error}"));
    std::fs::create_dir_all(&folder).map_err(cannot)?;
    let mut install = Command::new(npm);
    install.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).arg(PACKAGE);
    let output = install.stdin(Stdio::null()).output().map_err(cannot)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Err(Error::new(format!("npm cannot install {PACKAGE}: {text}")));
    }
    source().map(drop)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/axe")
}

fn path() -> PathBuf {
    folder().join("node_modules/axe-core/axe.min.js")
}
