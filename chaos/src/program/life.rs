//! One life of a worker: this program again, until it is killed or told to stop.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast_testkit::KillerWorld;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::Result;
use super::place::{Diary, Place};
use super::transfer::{Branch, pass, worker};

/// How often a worker looks at itself.
const LOOK: Duration = Duration::from_millis(10);

/// What a life is told.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Orders {
    /// The folder with the database
    pub(crate) folder: PathBuf,
    /// Which life it is
    pub(crate) life: u32,
    /// The commit point at which it kills itself
    #[arg(long)]
    pub(crate) point: Option<u64>,
}

/// Works until the standard input is closed. Dies with its parent, even when it is frozen.
pub(crate) async fn live(orders: &Orders) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let place = Place::new(&orders.folder);
    let log = File::options().create(true).append(true).open(place.log(orders.life))?;
    tracing_subscriber::fmt().with_writer(log).with_ansi(false).init();
    let world = outlast::open(&place.url()).await?;
    let world = Arc::new(match orders.point {
        Some(point) => KillerWorld::deadly_at(world, point),
        None => KillerWorld::harmless(world),
    });
    let books = Arc::new(place.open(|_| None)?);
    let branch = Branch { books: books.clone(), life: orders.life };
    let worker = worker(world.clone(), branch).start().await?;
    let is_over = when_input_ends()?;
    let (life, mut session, mut taken) = (orders.life, worker.session(), 0);
    while !is_over.load(Ordering::Relaxed) {
        pass(LOOK).await;
        if worker.session() != session {
            session = worker.session();
            books.diary.note(&Diary::Lost { life })?;
        }
        if world.taken_over() > taken {
            books.diary.note(&Diary::Took { life, runs: world.taken_over() - taken })?;
            taken = world.taken_over();
        }
    }
    Ok(worker.stop().await?)
}

fn when_input_ends() -> Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    let told = is_over.clone();
    std::thread::Builder::new().name("input".into()).spawn(move || {
        // An error is an end as well.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    })?;
    Ok(is_over)
}
