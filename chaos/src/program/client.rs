//! A client in a process of its own: this program again, beside the client of the kill loop and perhaps of another build.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::Result;
use super::life::{patiently, when_input_ends};
use super::place::Place;
use super::teller::Teller;
use super::transfer::pass;

/// How often it looks at the runs.
const TICK: Duration = Duration::from_millis(5);

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Orders {
    /// The folder with the notes, and with the database unless there is a URL
    pub(crate) folder: PathBuf,
    /// What repeats the transfers
    #[arg(long)]
    pub(crate) seed: u64,
    /// The number of its first transfer
    #[arg(long)]
    pub(crate) first: u64,
    /// The URL of a world elsewhere
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The world may be away: what it does not answer is tried again
    #[arg(long)]
    pub(crate) patient: bool,
}

/// Starts transfers until the standard input is closed, then answers those that it started until they have ended, and
/// prints how many there were.
pub(crate) async fn serve(orders: &Orders) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let place = match &orders.url {
        Some(url) => Place::with_world(&orders.folder, url),
        None => Place::new(&orders.folder),
    };
    let world = patiently(async || outlast::open(&place.url()).await).await?;
    let books = Arc::new(place.open(|_| None)?);
    let mut teller = Teller::new(world, books, orders.seed).numbered_from(orders.first);
    if orders.patient {
        teller = teller.patient();
    }
    let is_over = when_input_ends()?;
    while !is_over.load(Ordering::Relaxed) {
        teller.work().await?;
        pass(TICK).await;
    }
    while teller.own_open() > 0 {
        teller.serve().await?;
        pass(TICK).await;
    }
    println!("{}", teller.transfers());
    Ok(())
}
