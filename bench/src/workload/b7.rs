//! B7: how fast everything goes on after `kill -9`, and that nothing was lost or done too often.

pub(super) mod child;
mod effects;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use outlast::Status;
use outlast::prelude::*;

use self::effects::{Effects, STEPS};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::env::{Env, WorldKind, block_on};
use crate::stopwatch::{Stopwatch, pause};

/// The runs in flight.
const RUNS: usize = 500;

/// The effects after which the child is killed: half of all.
const EFFECTS_AT_KILL: usize = RUNS * STEPS / 2;

/// How often the parent looks at the effects.
const LOOK: Duration = Duration::from_micros(200);

/// Seconds from the restart to the last output.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B7",
    what: "500 runs of 10 steps (1 ms each) in flight, SIGKILL half-way, restart; exact counts",
    worlds: &[WorldKind::Sqlite],
    rows: &[Row {
        id: "B7",
        what: "500 runs of 10 steps killed half-way, restart to all done",
        unit: "s",
        target: Target::AtMost(3.0),
    }],
    run,
};

fn run(env: &Env) -> Result<Vec<Measurement>> {
    let at_kill = kill_half_way(&env.folder)?;
    let watch = Stopwatch::start();
    let mut second = Process::spawn(&env.folder)?;
    let said = second.last_words()?;
    let seconds = watch.seconds();
    if said.trim() != child::DONE {
        return Err(format!("the restarted process of B7 ended without finishing; it said `{said}`").into());
    }
    let mut faults = Effects::read(&env.folder)?.faults(RUNS);
    let completed = block_on(completed(env))?;
    if completed != RUNS as u64 {
        faults.push(format!("{completed} of {RUNS} runs are completed"));
    }
    if at_kill >= RUNS * STEPS {
        faults.push("all steps were done before the process was killed".into());
    }
    Ok(vec![Measurement { faults, ..Measurement::absolute(seconds) }])
}

/// Starts the runs in a child, kills it when half of the effects are there, and returns how many are.
fn kill_half_way(folder: &Path) -> Result<usize> {
    let mut first = Process::spawn(folder)?;
    while Effects::count(folder) < EFFECTS_AT_KILL {
        if let Some(status) = first.0.try_wait()? {
            return Err(format!("the process of B7 ended before it was killed: {status}").into());
        }
        pause(LOOK);
    }
    drop(first);
    Ok(Effects::count(folder))
}

/// How many runs the file says are completed.
async fn completed(env: &Env) -> Result<u64> {
    let counts = Client::new(env.open().await?).counts().await?;
    Ok(counts.get(&Status::Completed).copied().unwrap_or(0))
}

/// This program as a child. SIGKILL ends it, at the latest when this is dropped.
struct Process(Child);

impl Process {
    fn spawn(folder: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(child::COMMAND).arg(folder).arg(RUNS.to_string());
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?))
    }

    /// Waits until the child closes its output, and returns what it said.
    fn last_words(&mut self) -> Result<String> {
        let mut said = String::new();
        if let Some(output) = &mut self.0.stdout {
            output.read_to_string(&mut said)?;
        }
        Ok(said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
