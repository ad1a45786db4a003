//! `dev`: a world, a server and a program, for development.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use outlast::core::Clock;
use outlast::sqlite::SqliteUrl;
use outlast::{Client, SystemClock};
use tokio::process::Command as Program;

use super::CommandContext;
use super::serve::{OpenSocket, ServerPlan, serve_until_signal};
use super::worker::PUBLIC_URL;
use crate::app::{WorkerCode, WorkerOptions};
use crate::args::DevArgs;
use crate::config::{LOCAL_WORLD, Origin, Target};
use crate::connect::world_url;
use crate::exit::{CommandError, Exit};
use crate::output::{Console, Tone};
use crate::wait::pause;

/// The first pause before a program that failed is started again; it doubles up to [`RESTART_MAX`].
const RESTART_MIN: Duration = Duration::from_millis(500);

/// The longest pause before a program is started again.
const RESTART_MAX: Duration = Duration::from_secs(10);

/// Starts everything for development, and serves until the process is asked to stop.
pub(super) async fn dev(
    context: &CommandContext,
    args: &DevArgs,
    code: Option<Box<dyn WorkerCode>>,
) -> Result<Exit, CommandError> {
    let console = &context.console;
    let begin = SystemClock.now();
    let url = dev_world(context)?;
    let file = sqlite_file(&url)?;
    if args.fresh {
        remove(&url, file.as_deref())?;
    }
    let is_new = file.as_ref().is_some_and(|file| !file.exists());
    if let Some(folder) =
        file.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder)?;
    }
    let world = outlast::open(&url).await?;
    let client = match &context.codec {
        Some(codec) => Client::new(world.clone()).with_codec(codec.clone()),
        None => Client::new(world.clone()),
    };
    let (socket, address) = OpenSocket::tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, args.port))).await?;
    let worker = match code {
        Some(code) => {
            let (codec, public_url) = (context.codec.clone(), Some(format!("http://{address}")));
            let options = WorkerOptions { codec, public_url, ..WorkerOptions::default() };
            Some(code.start(world, options).await?)
        }
        None => None,
    };
    announce(console, &url, is_new, address, SystemClock.now().since(begin));
    if args.open {
        // The listener accepts already, so the page loads as soon as the server answers.
        open_browser(console, &format!("http://{address}/"));
    }
    let program = keep_running(console, &args.command, &url, address);
    tokio::select! {
        served = serve_until_signal(client, ServerPlan::local(), socket) => served?,
        failed = program => return Err(failed),
    }
    if let Some(worker) = worker {
        worker.stop().await?;
    }
    Ok(Exit::Done)
}

/// The world of the configuration, or that of the folder.
fn dev_world(context: &CommandContext) -> Result<String, CommandError> {
    match context.settings.target()? {
        // A database of the environment is not for experiments.
        None => Ok(LOCAL_WORLD.into()),
        Some(Target::World(world)) if world.origin == Origin::DatabaseUrl => Ok(LOCAL_WORLD.into()),
        Some(_) => world_url(&context.settings, &context.console, "`dev`"),
    }
}

fn sqlite_file(url: &str) -> Result<Option<PathBuf>, CommandError> {
    if !url.starts_with("sqlite:") {
        return Ok(None);
    }
    Ok(Some(SqliteUrl::parse(url).map_err(outlast::Error::from)?.path))
}

/// Removes the world of `dev`. Other worlds are not removed: they may be somebody's data.
fn remove(url: &str, file: Option<&Path>) -> Result<(), CommandError> {
    let Some(file) = file.filter(|_| url == LOCAL_WORLD) else {
        return Err(CommandError::usage(format!(
            "`--fresh` removes only {LOCAL_WORLD}, not {url}; remove it yourself"
        )));
    };
    for ending in ["", "-wal", "-shm"] {
        let path = PathBuf::from(format!("{}{ending}", file.display()));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

fn announce(console: &Console, url: &str, is_new: bool, address: SocketAddr, took: Duration) {
    let look = console.error_look;
    let new = if is_new { " (new)" } else { "" };
    let version = env!("CARGO_PKG_VERSION");
    let name = look.paint(Tone::Strong, format!("outlast {version}"));
    console.message(format!(
        "{name}  world {}{new}  ready in {} ms",
        crate::config::without_password(url),
        took.as_millis()
    ));
    let note = look.paint(Tone::Dim, "(no keys: only this machine can connect)");
    console.message(format!("dashboard  http://{address}/      {note}"));
    console.message(format!("api        http://{address}/api"));
    console.message(format!("commands   `outlast list --server http://{address}`"));
}

/// Opens a page in the browser of the person. A machine without one is no reason to stop.
fn open_browser(console: &Console, page: &str) {
    let named = std::env::var("BROWSER").ok().filter(|program| !program.is_empty());
    let usual = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let program = named.unwrap_or_else(|| usual.to_owned());
    let opened = Program::new(&program).arg(page).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    if let Err(error) = opened {
        console.warning(format!("`{program}` cannot be started: {error}; open {page} yourself"));
    }
}

/// Starts the program again whenever it fails. Without a program it waits forever.
async fn keep_running(console: &Console, command: &[String], url: &str, address: SocketAddr) -> CommandError {
    let Some((program, arguments)) = command.split_first() else { return std::future::pending().await };
    let mut wait = RESTART_MIN;
    loop {
        let begin = SystemClock.now();
        let spawned = Program::new(program)
            .args(arguments)
            .env("OUTLAST_WORLD", url)
            .env(PUBLIC_URL, format!("http://{address}"))
            .kill_on_drop(true)
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => return CommandError::usage(format!("`{program}` cannot be started: {error}")),
        };
        match child.wait().await {
            Ok(status) if status.success() => {
                console.message(format!("{program} ended; the server goes on until Ctrl-C"));
                return std::future::pending().await;
            }
            Ok(status) => console.warning(format!("{program} ended with {status}; starting it again")),
            Err(error) => return CommandError::failure(format!("`{program}`: {error}")),
        }
        // A program that worked for a while is started again soon.
        let is_stable = SystemClock.now().since(begin) > RESTART_MAX;
        wait = if is_stable { RESTART_MIN } else { (wait * 2).min(RESTART_MAX) };
        pause(wait).await;
    }
}
