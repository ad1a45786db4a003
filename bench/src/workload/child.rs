//! This program as a child of itself: what other workloads left in this one's heap does not count, and
//! some workloads need several processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use crate::Result;

/// Runs this program with these arguments, and returns the numbers that it prints.
pub(super) fn measure_in_child(arguments: &[&str]) -> Result<Vec<f64>> {
    let mut command = Command::new(std::env::current_exe()?);
    let child = command.args(arguments).stdin(Stdio::null()).output()?;
    if !child.status.success() {
        let said = String::from_utf8_lossy(&child.stderr);
        return Err(format!("the process `{}` failed: {said}", arguments[0]).into());
    }
    let said = String::from_utf8(child.stdout)?;
    Ok(said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

/// A child that says when it is ready and waits for its input to end. SIGKILL ends it, at the latest when
/// this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What a child says when it is ready.
const READY: &str = "ready";

/// In the child: says that it is ready, and waits until the parent tells it to go on, or is gone.
pub(super) async fn ready() -> Result<()> {
    println!("{READY}");
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    Ok(())
}

impl Process {
    /// Starts this program with these arguments, and waits until it is ready.
    pub(super) fn start(arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("a child without output")?;
        let name = arguments[0].to_owned();
        let mut process = Self { name, child, input, output: BufReader::new(output) };
        let mut said = String::new();
        process.output.read_line(&mut said)?;
        if said.trim() != READY {
            return Err(format!("the process `{}` ended early; it said `{said}`", process.name).into());
        }
        Ok(process)
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to go on.
    pub(super) fn go(&mut self) {
        self.input = None;
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Tells it to go on, waits until it closes its output, and returns what it said meanwhile.
    pub(super) fn last_words(&mut self) -> Result<String> {
        self.go();
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        Ok(said.trim().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
