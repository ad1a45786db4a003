//! One life of a worker: this program again, until it is killed or told to stop.

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
use super::place::{Diary, Place};
use super::transfer::{Branch, pass, worker};

/// How often a worker looks at itself.
const LOOK: Duration = Duration::from_millis(10);

/// What a life is told.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Orders {
    /// The folder with the notes, and with the database unless there is a URL
    pub(crate) folder: PathBuf,
    /// Which life it is
    pub(crate) life: u32,
    /// The URL of a world elsewhere
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The commit point at which it kills itself
    #[arg(long)]
    pub(crate) point: Option<u64>,
}

/// Works until the standard input is closed. Dies with its parent, even when it is frozen.
pub(crate) async fn live(orders: &Orders) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let place = match &orders.url {
        Some(url) => Place::with_world(&orders.folder, url),
        None => Place::new(&orders.folder),
    };
    let log = File::options().create(true).append(true).open(place.log(orders.life))?;
    tracing_subscriber::fmt().with_writer(log).with_ansi(false).init();
    let world = patiently(async || outlast::open(&place.url()).await).await?;
    let world = Arc::new(match orders.point {
        Some(point) => KillerWorld::deadly_at(world, point),
        None => KillerWorld::harmless(world),
    });
    let books = Arc::new(place.open(|_| None)?);
    let worker = patiently(async || {
        let branch = Branch { books: books.clone(), life: orders.life };
        worker(world.clone(), branch, place.world().session()).start().await
    })
    .await?;
    let is_over = when_input_ends()?;
    let (life, mut session, mut taken) = (orders.life, worker.session(), 0);
    while !is_over.load(Ordering::Relaxed) {
        pass(LOOK).await;
        if worker.session() != session {
            session = worker.session();
            books.diary.note(&Diary::Lost { life, at: SystemClock.now() })?;
        }
        if world.taken_over() > taken {
            books.diary.note(&Diary::Took { life, runs: world.taken_over() - taken })?;
            taken = world.taken_over();
        }
    }
    Ok(worker.stop().await?)
}

/// A server that is just restarted refuses. Whoever starts a worker in production starts it again.
pub(crate) async fn patiently<T>(work: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match work().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tracing::warn!(%error, "not yet; trying again");
                pass(LOOK).await;
            }
            done => return done,
        }
    }
}

pub(crate) fn when_input_ends() -> Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    let told = is_over.clone();
    std::thread::Builder::new().name("input".into()).spawn(move || {
        // An error is an end as well.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    })?;
    Ok(is_over)
}
