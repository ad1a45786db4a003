//! BD, start of `outlast dev`: the time until it answers in an empty folder.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::http_client::HttpConnection;
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::median;
use crate::stopwatch::Stopwatch;

/// Starts; the median counts.
const STARTS: usize = 5;

/// Milliseconds from the start of the process until a page and a list have been read.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BD",
    name: "dev-start",
    what: "`outlast dev` in an empty folder, from its start until probes, API, document and pages were read",
    worlds: &[WorldKind::Sqlite],
    rows: &[Row {
        id: "BD",
        what: "`outlast dev` in an empty folder, until it answers",
        unit: "ms",
        target: Target::AtMost(200.0).everywhere(),
    }],
    run,
};

/// The hidden subcommand that is `outlast dev`.
pub(crate) const COMMAND: &str = "bd-child";

/// The server, until this is dropped.
#[derive(Debug)]
struct DevServer(Child);

impl Drop for DevServer {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let mut times = Vec::with_capacity(STARTS);
    for number in 0..STARTS {
        let folder = env.folder.join(format!("dev-{number}"));
        std::fs::create_dir_all(folder.join(".git"))?;
        times.push(start(&folder)?);
    }
    Ok(vec![Measurement::absolute(median(&times))])
}

/// Starts it, and reads one page of each kind.
fn start(folder: &std::path::Path) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(COMMAND).current_dir(folder).stdin(Stdio::null()).stderr(Stdio::piped());
    command.env_remove("DATABASE_URL").env_remove("OUTLAST_WORLD").env_remove("OUTLAST_SERVER");
    let watch = Stopwatch::start();
    let mut server = DevServer(command.spawn()?);
    let output = server.0.stderr.take().ok_or("the server has no output")?;
    let address = BufReader::new(output).lines().map_while(std::io::Result::ok).find_map(|line| {
        let (_, rest) = line.split_once("http://")?;
        Some(rest.split('/').next()?.to_owned())
    });
    let address = address.ok_or("`outlast dev` ended without an address")?;
    block_on(async {
        let mut connection = HttpConnection::open(&address).await?;
        for path in ["/livez", "/readyz", "/openapi.json", "/metrics", "/api/runs", "/runs"] {
            connection.get(path).await?;
        }
        Ok(watch.seconds() * 1e3)
    })
}

/// The program `outlast` with the arguments of `dev`.
pub(crate) fn child() -> Result<()> {
    match outlast_cli::App::new().run(["outlast", "dev", "--port", "0"]) {
        outlast_cli::Exit::Done => Ok(()),
        exit => Err(format!("`outlast dev` ended with code {}", exit.code()).into()),
    }
}
