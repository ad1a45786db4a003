//! The Postgres server of the workers: started by this program, and restarted repeatedly.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use outlast::core::Clock;
use outlast::{SystemClock, Timestamp};
use rustix::process::{Pid, Signal, kill_process};
use throwaway::{Postgres, postgres};

use super::Result;
use super::workdir::{LogFiles, ProcessEvent, Workdir};
use super::worker_pool::KillCounts;

/// The time within which a session is taken over if its lock was not acquired again after a restart.
const SETTLE_TIME: Duration = Duration::from_secs(3);

/// The interval at which a recovering server is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How the server is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestartKind {
    /// A fast shutdown, which does not wait for clients.
    Fast,
    /// The server is killed.
    Crash,
    /// One of its backend processes is killed; the server then ends all others and recovers by itself.
    BackendCrash,
}

impl fmt::Display for RestartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Crash => "crash",
            Self::BackendCrash => "crash of a backend",
        })
    }
}

/// A server, and its planned restarts.
#[derive(Debug)]
pub(crate) struct Server {
    /// `None` during a restart.
    postgres: Option<Postgres>,
    restarting: Option<JoinHandle<Result<Postgres>>>,
    due: VecDeque<(RestartDue, RestartKind)>,
    /// The time at which sessions that the last restart cost were taken over.
    settled_at: Timestamp,
    url: String,
}

/// When a restart is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestartDue {
    /// After this many kills.
    Kills(u32),
    /// After all kills: every worker has to survive it.
    Calm,
}

impl Server {
    /// Starts a server with the durability of production, with its files in `above`. Most of the restarts are spread
    /// over the kills.
    pub(crate) fn start(above: Option<&Path>, kills: u32, restarts: u32, seed: u64) -> Result<Self> {
        postgres::require()?;
        let mut builder = Postgres::builder().setting("max_connections", "200");
        if let Some(above) = above {
            builder = builder.within(above);
        }
        let postgres = builder.start()?;
        let url = postgres.url();
        let (due, settled_at) = (restart_plan(kills, restarts, seed), SystemClock.now());
        Ok(Self { postgres: Some(postgres), restarting: None, due, settled_at, url })
    }

    /// The working directory of the workers in a folder.
    pub(crate) fn workdir(&self, folder: &Path) -> Workdir {
        Workdir::with_world(folder, &self.url)
    }

    /// Begins a restart that is due, without waiting for its end.
    pub(crate) fn tick(&mut self, kill_counts: &KillCounts, logs: &Arc<LogFiles>) -> Result<()> {
        if self.restarting.as_ref().is_some_and(JoinHandle::is_finished) {
            self.wait()?;
            self.settled_at = SystemClock.now().plus(SETTLE_TIME);
        }
        let Some((due, kind)) = self.due.front().copied() else { return Ok(()) };
        let is_due = match due {
            RestartDue::Kills(kills) => kill_counts.kills >= kills,
            RestartDue::Calm => kill_counts.is_done && SystemClock.now() >= self.settled_at,
        };
        if !is_due {
            return Ok(());
        }
        if let Some(postgres) = self.postgres.take() {
            self.due.pop_front();
            let logs = logs.clone();
            let restart_server = move || restart(postgres, kind, &logs);
            self.restarting = Some(std::thread::Builder::new().name("restart".into()).spawn(restart_server)?);
        }
        Ok(())
    }

    /// Whether all restarts are done.
    pub(crate) fn is_done(&self) -> bool {
        self.due.is_empty() && self.restarting.is_none() && SystemClock.now() >= self.settled_at
    }

    fn wait(&mut self) -> Result<()> {
        if let Some(thread) = self.restarting.take() {
            self.postgres = Some(thread.join().map_err(|_| "the thread of the restart panicked")??);
        }
        Ok(())
    }

    /// Saves the server's log and a dump, for the analysis of a failure.
    pub(crate) fn save(mut self, folder: &Path) {
        let _ = self.wait();
        let Some(postgres) = &self.postgres else { return };
        let _ = std::fs::copy(postgres.folder().join("server.log"), folder.join("server.log"));
        let mut dump = Command::new(postgres.programs().join("pg_dump"));
        dump.arg(&self.url).arg("--file").arg(folder.join("runs.sql")).stdin(Stdio::null());
        let _ = dump.status();
    }
}

/// The planned restarts: half of them are crashes, and a third happens after the kills.
fn restart_plan(kills: u32, restarts: u32, seed: u64) -> VecDeque<(RestartDue, RestartKind)> {
    let mut chance = fastrand::Rng::with_seed(seed ^ 0x5e72);
    let first = chance.u32(..4);
    let kinds = [RestartKind::Fast, RestartKind::Crash, RestartKind::Fast, RestartKind::BackendCrash];
    let during_kills = restarts * 2 / 3;
    (0..restarts)
        .map(|nth| {
            let kind = kinds[((first + nth) % 4) as usize];
            if nth >= during_kills {
                return (RestartDue::Calm, kind);
            }
            let (from, to) = (kills * nth / during_kills, kills * (nth + 1) / during_kills);
            (RestartDue::Kills(chance.u32(from..=to)), kind)
        })
        .collect()
}

fn restart(mut postgres: Postgres, kind: RestartKind, logs: &LogFiles) -> Result<Postgres> {
    let from = SystemClock.now();
    match kind {
        RestartKind::Fast => postgres.stop()?,
        RestartKind::Crash => postgres.kill()?,
        RestartKind::BackendCrash => kill_backend(&postgres)?,
    }
    postgres.start()?;
    let until = SystemClock.now();
    logs.process_events.append(&ProcessEvent::Restarted { how: kind.to_string(), from, until })?;
    Ok(postgres)
}

/// Kills the server's process with the highest pid, which most often serves a client. The server then ends all others,
/// and refuses connections until it has recovered.
fn kill_backend(postgres: &Postgres) -> Result<()> {
    let server = postgres.pid().ok_or("the server does not run")?;
    let children = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"))?;
    let last: i32 = children.split_whitespace().filter_map(|pid| pid.parse().ok()).max().unwrap_or(0);
    let pid = Pid::from_raw(last).ok_or("the server has no processes")?;
    match kill_process(pid, Signal::KILL) {
        // It has ended by itself.
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        done => done?,
    }
    while Path::new(&format!("/proc/{last}")).exists() {
        std::thread::park_timeout(POLL_INTERVAL);
    }
    let url = postgres.url();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    while runtime.block_on(tokio_postgres::connect(&url, tokio_postgres::NoTls)).is_err() {
        std::thread::park_timeout(POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_spread_over_the_kills_and_half_of_them_are_crashes() {
        let restart_plan = restart_plan(200, 20, 7);
        let kills = restart_plan.iter().filter_map(|(due, _)| match due {
            RestartDue::Kills(kills) => Some(*kills),
            RestartDue::Calm => None,
        });
        let kills: Vec<u32> = kills.collect();
        assert!(kills.is_sorted() && kills.len() == 13 && kills[12] > 180, "{restart_plan:?}");
        assert_eq!(restart_plan.iter().filter(|(_, kind)| *kind == RestartKind::Fast).count(), 10);
        assert_eq!(restart_plan, super::restart_plan(200, 20, 7), "a seed repeats them");
        assert!(super::restart_plan(200, 0, 7).is_empty());
    }
}
