//! `cargo xtask fuzz-api`: random requests to a real server, by schemathesis.
//!
//! The tool reads the description of the API and makes requests that fit it, and some that do not. No answer may be a server
//! error, and every answer must fit the description.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cargo::{cargo, run as run_command, succeeds};
use crate::error::{Error, Result};

/// The text of `help`.
pub(crate) const HELP: &str = "\
fuzz-api [--minutes N] [--seed S]
    Send random requests to a server on this machine and compare the answers with the description of
    the API, for a minute by default. Needs Python 3; installs schemathesis under `target`.";

/// The version of the tool.
const TOOL: &str = "schemathesis>=4,<5";

/// Paths that never end: their tests read them as streams.
const EXCLUDED: &str = "/live$";

/// What is checked of each answer. That every route needs an access key is checked by a test of the server: here the limit
/// for wrong keys would answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
response_headers_conformance,response_schema_conformance,unsupported_method,allow_header_conformance,\
missing_required_header,use_after_free";

/// How long and with which seed.
#[derive(Debug, PartialEq, Eq)]
struct FuzzRequest {
    seconds: u64,
    seed: Option<u64>,
}

impl FuzzRequest {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut request = Self { seconds: 60, seed: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let number = rest.next().and_then(|number| number.parse::<u64>().ok());
            match (argument.as_str(), number) {
                ("--minutes", Some(minutes @ 1..=600)) => request.seconds = minutes * 60,
                ("--seed", Some(seed)) => request.seed = Some(seed),
                ("--minutes" | "--seed", _) => {
                    return Err(Error::Usage(format!("`{argument}` needs a number")));
                }
                _ => return Err(Error::Usage(format!("`fuzz-api` takes no `{argument}`"))),
            }
        }
        Ok(request)
    }
}

/// Builds and starts the server, and sends requests to it.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let request = FuzzRequest::parse(arguments)?;
    let tool = install(root)?;
    let mut build = cargo(root);
    run_command(build.args(["build", "--package", "outlast-server", "--example", "fuzz_target"]))?;
    let server = Server::start(root)?;
    let mut fuzz = Command::new(tool);
    fuzz.current_dir(root.join("target/fuzz-api")).arg("run").arg(format!("{}/openapi.json", server.address));
    fuzz.args(["--url", &server.address, "--checks", CHECKS, "--exclude-path-regex", EXCLUDED]);
    fuzz.args(["--max-time", &request.seconds.to_string(), "--request-timeout", "35", "--no-color"]);
    // `wait` may hold a request for a minute: the header makes no difference to other routes.
    fuzz.arg("--header").arg(format!("Authorization: Bearer {}", server.key));
    fuzz.args(["--suppress-health-check", "all", "--continue-on-failure", "--warnings", "off"]);
    if let Some(seed) = request.seed {
        fuzz.args(["--seed", &seed.to_string()]);
    }
    // Not with `run_command`, which would print the access key.
    let status = fuzz.stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(Error::Failed(format!("schemathesis ended with {status}; repeat it with `--seed`")))
        }
        Err(error) => Err(Error::Failed(format!("schemathesis cannot be started: {error}"))),
    }
}

/// Installs the tool into a folder of its own, unless it is there.
fn install(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/fuzz-api");
    let venv = folder.join("venv");
    let tool = venv.join("bin/schemathesis");
    if succeeds(Command::new(&tool).arg("--version")) {
        return Ok(tool);
    }
    let failed = |error| Error::Failed(format!("`{}` cannot be created: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    run_command(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    run_command(Command::new(venv.join("bin/pip")).args(["install", "--quiet", TOOL]))?;
    Ok(tool)
}

/// The server, until this is dropped.
#[derive(Debug)]
struct Server {
    process: Child,
    address: String,
    key: String,
}

impl Server {
    fn start(root: &Path) -> Result<Self> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let mut command = Command::new(target.join("debug/examples/fuzz_target"));
        command.env_remove("RUST_BACKTRACE");
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process =
            process.map_err(|error| Error::Failed(format!("the server cannot be started: {error}")))?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            // An empty line is handled below.
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let Some((address, key)) = line.trim().split_once(' ') else {
            return Err(Error::Failed("the server did not print its address".into()));
        };
        let (address, key) = (address.to_owned(), key.to_owned());
        Ok(Self { process, address, key })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends when its input is closed.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_numbers() {
        let parse =
            |line: &str| FuzzRequest::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("").unwrap(), FuzzRequest { seconds: 60, seed: None });
        assert_eq!(parse("--minutes 3 --seed 7").unwrap(), FuzzRequest { seconds: 180, seed: Some(7) });
        for wrong in ["--minutes", "--minutes x", "--seed", "--hours 1", "--minutes 0"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
