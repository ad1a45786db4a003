//! A worker process: this program again, until it is killed or its standard input is closed.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast::core::Clock;
use outlast::{Error, ErrorKind, SystemClock};
use outlast_conformance::KillerWorld;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::Result;
use super::booking;
use super::transfer::{StepState, sleep, worker};
use super::workdir::{ProcessEvent, Workdir};

/// The interval at which a worker checks its session.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The arguments of a worker process.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct WorkerArgs {
    /// The folder with the logs, and with the database unless there is a URL
    pub(crate) folder: PathBuf,
    /// The number of the process
    pub(crate) number: u32,
    /// The URL of a world outside the folder
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The commit point at which it kills itself
    #[arg(long)]
    pub(crate) point: Option<u64>,
}

/// Runs a worker until the standard input is closed. Dies with its parent, even when it is frozen.
pub(crate) async fn run(args: &WorkerArgs) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let workdir = match &args.url {
        Some(url) => Workdir::with_world(&args.folder, url),
        None => Workdir::new(&args.folder),
    };
    let log = File::options().create(true).append(true).open(workdir.log(args.number))?;
    tracing_subscriber::fmt().with_writer(log).with_ansi(false).init();
    let world = retry_while_unavailable(async || outlast::open(&workdir.url()).await).await?;
    let world = Arc::new(match args.point {
        Some(point) => KillerWorld::killed_at(world, point),
        None => KillerWorld::counting(world),
    });
    let logs = Arc::new(workdir.open(|_| None)?);
    let worker = retry_while_unavailable(async || {
        let state = StepState { logs: logs.clone(), worker_number: args.number };
        booking::register(worker(world.clone(), state, workdir.world().session()), workdir.world())
            .start()
            .await
    })
    .await?;
    let is_stdin_closed = watch_stdin()?;
    let (number, mut session, mut taken) = (args.number, worker.session(), 0);
    while !is_stdin_closed.load(Ordering::Relaxed) {
        sleep(CHECK_INTERVAL).await;
        if worker.session() != session {
            session = worker.session();
            logs.process_events
                .append(&ProcessEvent::SessionLost { worker_number: number, at: SystemClock.now() })?;
        }
        if world.taken_over() > taken {
            logs.process_events.append(&ProcessEvent::TookOver {
                worker_number: number,
                runs: world.taken_over() - taken,
            })?;
            taken = world.taken_over();
        }
    }
    Ok(worker.stop().await?)
}

/// Repeats a call while the world is unavailable: a server that is restarting refuses connections.
pub(crate) async fn retry_while_unavailable<T>(tick: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match tick().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tracing::warn!(%error, "the world is unavailable; retrying");
                sleep(CHECK_INTERVAL).await;
            }
            done => return done,
        }
    }
}

pub(crate) fn watch_stdin() -> Result<Arc<AtomicBool>> {
    let is_stdin_closed = Arc::new(AtomicBool::new(false));
    let reached_end = is_stdin_closed.clone();
    std::thread::Builder::new().name("input".into()).spawn(move || {
        // An error counts as the end.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        reached_end.store(true, Ordering::Relaxed);
    })?;
    Ok(is_stdin_closed)
}
