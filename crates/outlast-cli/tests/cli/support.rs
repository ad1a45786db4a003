//! A world with a worker, and the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{RunId, SystemClock};
use tempfile::TempDir;

#[step(attempts = 1)]
async fn charge(cents: u64) -> Result<String, StepError> {
    if cents == 13 {
        return Err(StepError::fatal("card declined"));
    }
    Ok(format!("payment of {cents}"))
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ctx.step(charge, cents).await
}

#[workflow]
async fn survey(ctx: Context) -> Result<serde_json::Value, Error> {
    ctx.hook::<serde_json::Value>("rating").await
}

#[workflow]
async fn nap(ctx: Context) -> Result<(), Error> {
    ctx.sleep("3d").await
}

/// Replies to 1, drops 2, keeps 3 without a reply, and ends with others.
#[workflow]
async fn shop(ctx: Context) -> Result<(), Error> {
    let quotes = ctx.open_hook::<u32>("quote").token("shop").await?;
    let mut kept = Vec::new();
    loop {
        let message = quotes.next().received().await?;
        match message.payload {
            1 => message.reply(&"1 euro")?,
            2 => drop(message),
            3 => kept.push(message),
            _ => return Ok(()),
        }
    }
}

#[workflow]
async fn notified(ctx: Context) -> Result<(), Error> {
    let webhook = ctx.webhook("paid").verify("bank").await?;
    webhook.next().await.map(drop)
}

#[workflow]
async fn echo(
    ctx: Context,
    value: Box<serde_json::value::RawValue>,
) -> Result<Box<serde_json::value::RawValue>, Error> {
    ctx.publish(&value);
    Ok(value)
}

/// A SQLite world in a temporary folder, with a worker that executes its runs.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) client: Client,
    worker: Worker,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("shop.db").display());
        let world = outlast::open(&url).await.unwrap();
        let worker = Worker::builder(world.clone())
            .register((checkout, charge, survey, nap, echo, shop, notified))
            .public_url("https://out.example")
            .start()
            .await
            .unwrap();
        Self { folder, client: Client::new(world), worker }
    }

    /// Calls the program on this world.
    pub(crate) async fn call(&self, arguments: &[&str]) -> Called {
        self.call_with(arguments, &[]).await
    }

    /// Calls the program on this world, with variables of the environment.
    pub(crate) async fn call_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Called {
        let mut variables: Vec<_> = variables.to_vec();
        if !variables.iter().any(|(name, _)| *name == "OUTLAST_SERVER") {
            variables.push(("OUTLAST_WORLD", "sqlite:shop.db"));
        }
        call(self.folder.path(), arguments, &variables).await
    }

    /// Waits until a run waits for something.
    pub(crate) async fn suspended(&self, run: RunId) {
        let begun = SystemClock.now();
        while self.client.run(run).await.unwrap().waits.is_empty() {
            assert!(SystemClock.now().since(begun).as_secs() < 30, "the run does not wait");
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn stop(self) {
        self.worker.stop().await.unwrap();
    }
}

/// What a call of the program printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Called {
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// The output as a type of the API.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for Called {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// The program, in a folder and with no other configuration.
pub(crate) fn program(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
    command.args(arguments).current_dir(folder).env_clear().stdin(Stdio::null());
    command.env("XDG_CONFIG_HOME", folder.join("config")).env("LANG", "C.UTF-8");
    command.envs(variables.iter().copied());
    command
}

/// Calls the program.
pub(crate) async fn call(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Called {
    let mut command = program(folder, arguments, variables);
    tokio::task::spawn_blocking(move || command.output().unwrap().into()).await.unwrap()
}

/// The names of the files in a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}
