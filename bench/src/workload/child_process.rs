//! Child processes of this program: their memory is not affected by other workloads, and some workloads need several
//! processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use crate::Result;

/// Runs this program with these arguments, and returns the numbers that it prints.
pub(super) fn measure_in_child(arguments: &[&str]) -> Result<Vec<f64>> {
    let mut command = Command::new(std::env::current_exe()?);
    let child = command.args(arguments).stdin(Stdio::null()).output()?;
    if !child.status.success() {
        let output = String::from_utf8_lossy(&child.stderr);
        return Err(format!("the process `{}` failed: {output}", arguments[0]).into());
    }
    let output = String::from_utf8(child.stdout)?;
    Ok(output.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

/// A child that prints when it is ready, and waits until its input is closed. It is killed with SIGKILL when this is
/// dropped.
#[derive(Debug)]
pub(super) struct ChildProcess {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// The line that a child prints when it is ready.
const READY: &str = "ready";

/// In the child: prints that it is ready, and waits until the parent closes the input.
pub(super) async fn ready() -> Result<()> {
    println!("{READY}");
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    Ok(())
}

impl ChildProcess {
    /// Starts this program with these arguments, and waits until it is ready.
    pub(super) fn start(arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("a child has no output")?;
        let name = arguments[0].to_owned();
        let mut process = Self { name, child, input, output: BufReader::new(output) };
        let mut output = String::new();
        process.output.read_line(&mut output)?;
        if output.trim() != READY {
            return Err(
                format!("the process `{}` ended early with the output `{output}`", process.name).into()
            );
        }
        Ok(process)
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it continue.
    pub(super) fn go(&mut self) {
        self.input = None;
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Lets it continue, waits until it closes its output, and returns the rest of its output.
    pub(super) fn last_line(&mut self) -> Result<String> {
        self.go();
        let mut output = String::new();
        self.output.read_to_string(&mut output)?;
        Ok(output.trim().to_owned())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
