//! A client in a process of its own: this program again, perhaps of another build, beside the client of the kill loop.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::Result;
use super::load_client::LoadClient;
use super::transfer::sleep;
use super::workdir::Workdir;
use super::worker_process::{retry_while_unavailable, watch_stdin};

/// The interval at which it checks the runs.
const TICK: Duration = Duration::from_millis(5);

/// The arguments of a client process.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct ClientArgs {
    /// The folder with the logs, and with the database unless there is a URL
    pub(crate) folder: PathBuf,
    /// The seed of the transfers
    #[arg(long)]
    pub(crate) seed: u64,
    /// The number of its first transfer
    #[arg(long)]
    pub(crate) first: u64,
    /// The URL of a world outside the folder
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The world may be unavailable: failed calls are repeated
    #[arg(long = "patient")]
    pub(crate) retrying: bool,
}

/// Starts transfers until the standard input is closed, then answers its runs until they have ended, and prints the
/// number of transfers.
pub(crate) async fn run(args: &ClientArgs) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let workdir = match &args.url {
        Some(url) => Workdir::with_world(&args.folder, url),
        None => Workdir::new(&args.folder),
    };
    let world = retry_while_unavailable(async || outlast::open(&workdir.url()).await).await?;
    let logs = Arc::new(workdir.open(|_| None)?);
    let mut load_client = LoadClient::new(world, logs, args.seed).numbered_from(args.first);
    if args.retrying {
        load_client = load_client.retrying();
    }
    let is_stdin_closed = watch_stdin()?;
    while !is_stdin_closed.load(Ordering::Relaxed) {
        load_client.tick().await?;
        sleep(TICK).await;
    }
    while load_client.own_open() > 0 {
        load_client.answer_runs().await?;
        sleep(TICK).await;
    }
    println!("{}", load_client.transfers());
    Ok(())
}
