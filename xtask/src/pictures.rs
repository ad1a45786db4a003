//! `cargo xtask pictures`: the pictures of the dashboard in the documentation.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use throwaway::chromedriver;

use crate::cargo::{cargo, run as run_command};
use crate::error::{Error, Result};
use crate::setup::require_c_compiler;

/// The text of `help`.
pub(crate) const HELP: &str = "\
pictures [--all FOLDER]
    Take the pictures of the dashboard in `docs/images` again, of the demonstration of the shop. With
    `--all`, take every screen in both themes, wide and narrow, into a folder, to look at them:
    `docs/images/screens` has them as they were last judged.";

/// The demonstration, which ends with this value.
struct Demonstration(Child);

impl Drop for Demonstration {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the demonstration, and lets a browser take the pictures.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (pictures, folder) = match words[..] {
        [] => ("pictures::pictures", root.join("docs/images")),
        ["--all", folder] => ("pictures::all_screens", std::path::absolute(folder).unwrap_or_default()),
        _ => return Err(Error::Usage("`pictures` takes nothing, or `--all` and a folder".into())),
    };
    let failed =
        |error| Error::Failed(format!("the folder `{}` cannot be created: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    require_c_compiler()?;
    chromedriver::require()?;
    run_command(cargo(root).args(["build", "--package", "shop"]))?;
    let file = std::env::temp_dir().join(format!("outlast-pictures-{}.db", std::process::id()));
    let (demonstration, site) = start(root, &file)?;
    let mut test = cargo(root);
    test.args(["test", "--package", "outlast-dashboard", "--test", "browser", "--"]);
    test.args(["--ignored", "--exact", pictures]);
    test.env("OUTLAST_PICTURES_SITE", site).env("OUTLAST_PICTURES_FOLDER", folder);
    let taken = run_command(&mut test);
    drop(demonstration);
    for suffix in ["", "-wal", "-shm"] {
        let mut path = file.clone().into_os_string();
        path.push(suffix);
        let _ = std::fs::remove_file(path);
    }
    taken
}

/// The demonstration and its address.
fn start(root: &Path, file: &Path) -> Result<(Demonstration, String)> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let mut command = Command::new(target.join("debug").join("shop"));
    command.arg(file).args(["--demo", "--port", "0"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let failed = |error: std::io::Error| Error::Failed(format!("the shop cannot be started: {error}"));
    let mut child = command.spawn().map_err(failed)?;
    let output = child.stdout.take();
    let demonstration = Demonstration(child);
    let mut line = String::new();
    if let Some(output) = output {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    match line.split("http://").nth(1) {
        Some(host) => Ok((demonstration, format!("http://{}", host.trim().trim_end_matches('/')))),
        None => Err(Error::Failed("the shop has not printed the address of its dashboard".into())),
    }
}
