//! Child processes: their arguments, waiting for their end, and killing those that are left.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use outlast::core::Clock;
use outlast::{Error, SystemClock};
use outlast_conformance::KillerWorld;
use throwaway::wait_until_or;

use crate::mixed_program::{Replay, StartOrder};
use crate::process_folder::ProcessFolder;
use crate::{
    between_attempts, chain_program, compensating_program, diagnosis, during_sleep, failing_program,
    forked_program, long_program, mixed_program, orchestrated_program, retried_program, schedules, streaming,
    token_program, transfers,
};

const SIGKILL: i32 = 9;

/// The arguments of a child.
#[derive(Clone, Debug)]
pub(crate) struct ChildArgs {
    pub(crate) program: Program,
    pub(crate) process_folder: ProcessFolder,
    /// The commit point at which it kills itself.
    pub(crate) point: Option<u64>,
}

/// The programs that a child can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Program {
    /// Runs of all kinds.
    Mixed(StartOrder, Replay),
    /// Cancels, deadlines, payloads that cannot be decoded, and a build that lacks code.
    Failing,
    /// Runs that fail and compensate.
    Compensating,
    /// Runs that fail and are retried.
    Retried,
    /// Runs that are forked.
    Forked,
    /// Runs with tokens and replies.
    Tokens,
    /// Runs that loop, continue, are paused, or write to streams.
    Long,
    /// A saga, a schedule, a start that sends, a deletion, and a loop whose turns are deleted.
    Orchestrated,
    /// Many runs of some slow steps.
    Chains {
        /// The number of runs that it starts.
        starts: u32,
        /// The maximum number of live runs.
        live: usize,
    },
    /// A run that sleeps.
    Sleeper,
    /// A run with one step in progress and one between two attempts.
    Pauser,
    /// A run whose step writes to a stream.
    Streamer,
    /// A worker that serves schedules.
    Schedules,
    /// Runs with transactional steps.
    Transfers {
        /// The number of runs that it starts.
        starts: u32,
    },
}

const PROGRAM: &str = "OUTLAST_CRASH_PROGRAM";
const FOLDER: &str = "OUTLAST_CRASH_FOLDER";
const URL: &str = "OUTLAST_CRASH_URL";
const POINT: &str = "OUTLAST_CRASH_POINT";

impl ChildArgs {
    /// The arguments of this process, if it is a child.
    pub(crate) fn from_environment() -> Option<Self> {
        let program = std::env::var(PROGRAM).ok()?;
        Some(Self {
            program: serde_json::from_str(&program).unwrap(),
            process_folder: ProcessFolder {
                folder: std::env::var_os(FOLDER).unwrap().into(),
                world_url: std::env::var(URL).ok(),
            },
            point: std::env::var(POINT).ok().map(|point| point.parse().unwrap()),
        })
    }
}

/// Runs the program of a child.
pub(crate) async fn run_child(args: ChildArgs) -> Result<(), Error> {
    let process_folder = args.process_folder;
    process_folder.log_start(SystemClock.now());
    let world = outlast::open(&process_folder.url()).await?;
    let world = Arc::new(match args.point {
        Some(point) => KillerWorld::killed_at(world, point),
        None => KillerWorld::counting(world),
    });
    let outputs = match args.program {
        Program::Mixed(order, replay) => {
            mixed_program::run(&process_folder, world.clone(), order, replay).await?
        }
        Program::Failing => failing_program::run(&process_folder, world.clone()).await?,
        Program::Compensating => compensating_program::run(&process_folder, world.clone()).await?,
        Program::Retried => retried_program::run(&process_folder, world.clone()).await?,
        Program::Forked => forked_program::run(&process_folder, world.clone()).await?,
        Program::Tokens => token_program::run(&process_folder, world.clone()).await?,
        Program::Long => long_program::run(&process_folder, world.clone()).await?,
        Program::Orchestrated => orchestrated_program::run(&process_folder, world.clone()).await?,
        Program::Chains { starts, live } => {
            chain_program::run(&process_folder, world.clone(), starts, live).await?
        }
        Program::Sleeper => during_sleep::run(&process_folder, world.clone()).await?,
        Program::Pauser => between_attempts::run(&process_folder, world.clone()).await?,
        Program::Streamer => streaming::run(&process_folder, world.clone()).await?,
        Program::Schedules => schedules::run(world.clone()).await?,
        Program::Transfers { starts } => transfers::run(&process_folder, world.clone(), starts).await?,
    };
    process_folder.write_result(world.points(), outputs);
    Ok(())
}

/// A child process. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    child: Child,
    program: Program,
    process_folder: ProcessFolder,
}

impl ChildProcess {
    /// Starts this test binary again, as a child.
    pub(crate) fn start(args: ChildArgs) -> Self {
        let path = args.process_folder.output();
        let output = File::options().create(true).append(true).open(path).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child_program", "--nocapture"])
            .env(PROGRAM, serde_json::to_string(&args.program).unwrap())
            .env(FOLDER, &args.process_folder.folder)
            .env_remove(URL)
            .env_remove(POINT)
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        if let Some(url) = &args.process_folder.world_url {
            command.env(URL, url);
        }
        if let Some(point) = args.point {
            command.env(POINT, point.to_string());
        }
        Self { child: command.spawn().unwrap(), program: args.program, process_folder: args.process_folder }
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
    pub(crate) fn end(mut self) -> ChildExit {
        let what = format!("the end of child {} ({:?})", self.id(), self.program);
        let status = wait_until_or(
            &what,
            || self.child.try_wait().unwrap(),
            || diagnosis::describe(&self.process_folder),
        );
        ChildExit::of(status).unwrap_or_else(|| {
            let output_text = std::fs::read_to_string(self.process_folder.output()).unwrap_or_default();
            panic!("the child failed: {status}; output of all children so far:\n{output_text}")
        })
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // An error means that it is dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The exit of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildExit {
    /// It ended successfully.
    Done,
    /// It was killed by SIGKILL.
    Killed,
}

impl ChildExit {
    /// `None` for a child that failed.
    fn of(status: ExitStatus) -> Option<Self> {
        match (status.success(), status.signal()) {
            (true, _) => Some(Self::Done),
            (false, Some(SIGKILL)) => Some(Self::Killed),
            _ => None,
        }
    }
}

/// Blocks the thread for a time.
pub(crate) fn sleep_thread(time: Duration) {
    std::thread::park_timeout(time);
}
