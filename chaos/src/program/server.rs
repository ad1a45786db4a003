//! The Postgres under the workers: a server of this program's own, restarted again and again.

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
use super::fleet::Losses;
use super::place::{Books, Diary, Place};

/// A session whose lock is not taken again in time is found free, suspected, and taken over, within so long.
const SETTLING: Duration = Duration::from_secs(3);

/// How often a server that recovers is looked at.
const GLANCE: Duration = Duration::from_millis(5);

/// How the server goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    /// As an administrator does it, without waiting for clients.
    Fast,
    /// The server is killed.
    Crash,
    /// One of its processes is killed, so that it ends all others and recovers by itself.
    Part,
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Crash => "crash",
            Self::Part => "crash of a part",
        })
    }
}

/// A server, and the blows it will get.
#[derive(Debug)]
pub(crate) struct Server {
    /// None while it gets one.
    postgres: Option<Postgres>,
    under_way: Option<JoinHandle<Result<Postgres>>>,
    due: VecDeque<(Due, Blow)>,
    /// When all who lived through the last one have shown whether they were robbed.
    settled: Timestamp,
    url: String,
}

/// When a blow is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// After so many kills.
    Kills(u32),
    /// When no worker is killed any more: all of them have to live through it.
    Calm,
}

impl Server {
    /// Starts one, as durable as in production, with its files in `above`. It gets so many blows, most of them
    /// spread over the kills.
    pub(crate) fn start(above: Option<&Path>, kills: u32, restarts: u32, seed: u64) -> Result<Self> {
        postgres::require()?;
        let mut builder = Postgres::builder().setting("max_connections", "200");
        if let Some(above) = above {
            builder = builder.within(above);
        }
        let postgres = builder.start()?;
        let url = postgres.url();
        let (due, settled) = (blows(kills, restarts, seed), SystemClock.now());
        Ok(Self { postgres: Some(postgres), under_way: None, due, settled, url })
    }

    /// The place of the workers in a folder.
    pub(crate) fn place(&self, folder: &Path) -> Place {
        Place::with_world(folder, &self.url)
    }

    /// Strikes when it is time to, without waiting for the server to be back.
    pub(crate) fn tick(&mut self, losses: &Losses, books: &Arc<Books>) -> Result<()> {
        if self.under_way.as_ref().is_some_and(JoinHandle::is_finished) {
            self.wait()?;
            self.settled = SystemClock.now().plus(SETTLING);
        }
        let Some((due, blow)) = self.due.front().copied() else { return Ok(()) };
        let is_due = match due {
            Due::Kills(kills) => losses.kills >= kills,
            Due::Calm => losses.is_calm && SystemClock.now() >= self.settled,
        };
        if !is_due {
            return Ok(());
        }
        if let Some(postgres) = self.postgres.take() {
            self.due.pop_front();
            let books = books.clone();
            let strike = move || restart(postgres, blow, &books);
            self.under_way = Some(std::thread::Builder::new().name("restart".into()).spawn(strike)?);
        }
        Ok(())
    }

    /// Whether all is over.
    pub(crate) fn is_calm(&self) -> bool {
        self.due.is_empty() && self.under_way.is_none() && SystemClock.now() >= self.settled
    }

    fn wait(&mut self) -> Result<()> {
        if let Some(thread) = self.under_way.take() {
            self.postgres = Some(thread.join().map_err(|_| "the thread of the restart panicked")??);
        }
        Ok(())
    }

    /// Saves what tells of the server, for whoever looks for what went wrong.
    pub(crate) fn save(mut self, folder: &Path) {
        let _ = self.wait();
        let Some(postgres) = &self.postgres else { return };
        let _ = std::fs::copy(postgres.folder().join("server.log"), folder.join("server.log"));
        let mut dump = Command::new(postgres.programs().join("pg_dump"));
        dump.arg(&self.url).arg("--file").arg(folder.join("runs.sql")).stdin(Stdio::null());
        let _ = dump.status();
    }
}

/// The blows: half of them are crashes, and a third comes after the kills.
fn blows(kills: u32, restarts: u32, seed: u64) -> VecDeque<(Due, Blow)> {
    let mut chance = fastrand::Rng::with_seed(seed ^ 0x5e72);
    let first = chance.u32(..4);
    let kinds = [Blow::Fast, Blow::Crash, Blow::Fast, Blow::Part];
    let under_fire = restarts * 2 / 3;
    (0..restarts)
        .map(|nth| {
            let blow = kinds[((first + nth) % 4) as usize];
            if nth >= under_fire {
                return (Due::Calm, blow);
            }
            let (from, to) = (kills * nth / under_fire, kills * (nth + 1) / under_fire);
            (Due::Kills(chance.u32(from..=to)), blow)
        })
        .collect()
}

fn restart(mut postgres: Postgres, blow: Blow, books: &Books) -> Result<Postgres> {
    let from = SystemClock.now();
    match blow {
        Blow::Fast => postgres.stop()?,
        Blow::Crash => postgres.kill()?,
        Blow::Part => kill_part(&postgres)?,
    }
    postgres.start()?;
    let until = SystemClock.now();
    books.diary.note(&Diary::Restarted { how: blow.to_string(), from, until })?;
    Ok(postgres)
}

/// Kills the process of the server with the highest number, most often one that works for a client. The server
/// then ends all others, and lets nobody in until it has recovered.
fn kill_part(postgres: &Postgres) -> Result<()> {
    let server = postgres.pid().ok_or("the server does not run")?;
    let children = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"))?;
    let last: i32 = children.split_whitespace().filter_map(|pid| pid.parse().ok()).max().unwrap_or(0);
    let pid = Pid::from_raw(last).ok_or("the server has no processes")?;
    match kill_process(pid, Signal::KILL) {
        // It left by itself, and nothing happens.
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        done => done?,
    }
    while Path::new(&format!("/proc/{last}")).exists() {
        std::thread::park_timeout(GLANCE);
    }
    let url = postgres.url();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    while runtime.block_on(tokio_postgres::connect(&url, tokio_postgres::NoTls)).is_err() {
        std::thread::park_timeout(GLANCE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blows_are_spread_over_the_kills_and_half_of_them_are_crashes() {
        let blows = blows(200, 20, 7);
        let kills = blows.iter().filter_map(|(due, _)| match due {
            Due::Kills(kills) => Some(*kills),
            Due::Calm => None,
        });
        let kills: Vec<u32> = kills.collect();
        assert!(kills.is_sorted() && kills.len() == 13 && kills[12] > 180, "{blows:?}");
        assert_eq!(blows.iter().filter(|(_, blow)| *blow == Blow::Fast).count(), 10);
        assert_eq!(blows, super::blows(200, 20, 7), "a seed repeats them");
        assert!(super::blows(200, 0, 7).is_empty());
    }
}
