//! Child processes: what they are told, how they are waited for, and that none is left behind.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use outlast::core::Clock;
use outlast::{Error, SystemClock};
use outlast_conformance::KillerWorld;

use crate::ledger::Place;
use crate::medley::{Company, Replay};
use crate::{chains, medley, pausing, sleeping, troubles};

const SIGKILL: i32 = 9;

/// How long a child may take. Far more than any needs: its end is a failed test, not a measurement.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const NAP: Duration = Duration::from_millis(2);

/// What a child is told to do.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) program: Program,
    pub(crate) place: Place,
    /// The commit point at which it kills itself.
    pub(crate) point: Option<u64>,
}

/// The programs that a child can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Program {
    /// Something of everything.
    Medley(Company, Replay),
    /// Cancels, deadlines, payloads that cannot be read, and a build that lacks code.
    Troubles,
    /// Many runs of some slow steps.
    Chains {
        /// How many it starts.
        starts: u32,
        /// How many it holds at the same time.
        live: usize,
    },
    /// A run that sleeps.
    Sleeper,
    /// A run with one step under way and one between two attempts.
    Pauser,
}

const PROGRAM: &str = "OUTLAST_CRASH_PROGRAM";
const FOLDER: &str = "OUTLAST_CRASH_FOLDER";
const URL: &str = "OUTLAST_CRASH_URL";
const POINT: &str = "OUTLAST_CRASH_POINT";

impl Orders {
    /// The orders of this process, if it is a child.
    pub(crate) fn from_environment() -> Option<Self> {
        let program = std::env::var(PROGRAM).ok()?;
        Some(Self {
            program: serde_json::from_str(&program).unwrap(),
            place: Place {
                folder: std::env::var_os(FOLDER).unwrap().into(),
                elsewhere: std::env::var(URL).ok(),
            },
            point: std::env::var(POINT).ok().map(|point| point.parse().unwrap()),
        })
    }
}

/// Does what the orders say.
pub(crate) async fn obey(orders: Orders) -> Result<(), Error> {
    let place = orders.place;
    place.note_life(SystemClock.now());
    let world = outlast::open(&place.url()).await?;
    let world = Arc::new(match orders.point {
        Some(point) => KillerWorld::deadly_at(world, point),
        None => KillerWorld::harmless(world),
    });
    let outputs = match orders.program {
        Program::Medley(company, replay) => medley::play(&place, world.clone(), company, replay).await?,
        Program::Troubles => troubles::play(&place, world.clone()).await?,
        Program::Chains { starts, live } => chains::play(&place, world.clone(), starts, live).await?,
        Program::Sleeper => sleeping::play(&place, world.clone()).await?,
        Program::Pauser => pausing::play(&place, world.clone()).await?,
    };
    place.write_result(world.points(), outputs);
    Ok(())
}

/// A child process, which dies with its owner.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    program: Program,
    /// What it says.
    output: PathBuf,
}

impl Process {
    /// Starts this test binary again, as a program.
    pub(crate) fn start(orders: Orders) -> Self {
        let path = orders.place.folder.join("output");
        let output = File::options().create(true).append(true).open(&path).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child_program", "--nocapture"])
            .env(PROGRAM, serde_json::to_string(&orders.program).unwrap())
            .env(FOLDER, &orders.place.folder)
            .env_remove(URL)
            .env_remove(POINT)
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        if let Some(url) = &orders.place.elsewhere {
            command.env(URL, url);
        }
        if let Some(point) = orders.point {
            command.env(POINT, point.to_string());
        }
        Self { child: command.spawn().unwrap(), program: orders.program, output: path }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills it, as `kill -9` does, and waits until it is dead.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ending {
        let what = format!("the end of child {} ({:?})", self.id(), self.program);
        let status = until(&what, || self.child.try_wait().unwrap());
        Ending::of(status).unwrap_or_else(|| {
            let said = std::fs::read_to_string(&self.output).unwrap_or_default();
            panic!("the child failed: {status}; it and those before it said:\n{said}")
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that it is dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, and well.
    Done,
    /// By SIGKILL.
    Killed,
}

impl Ending {
    /// None for a child that failed.
    fn of(status: ExitStatus) -> Option<Self> {
        match (status.success(), status.signal()) {
            (true, _) => Some(Self::Done),
            (false, Some(SIGKILL)) => Some(Self::Killed),
            _ => None,
        }
    }
}

/// Looks again and again until there is something to see; panics when that takes too long.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    // Counted in naps, not by a clock: a frozen machine makes nobody late.
    for _ in 0..PATIENCE.as_millis() / NAP.as_millis() {
        if let Some(seen) = look() {
            return seen;
        }
        nap(NAP);
    }
    panic!("waited in vain for {what}");
}

/// Lets some time pass.
pub(crate) fn nap(time: Duration) {
    std::thread::park_timeout(time);
}
