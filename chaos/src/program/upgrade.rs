//! A rolling upgrade under fire: workers and a client of an older build beside those of this one.
//!
//! At first all are old, so the old build makes the schema and works. Then half of the workers are new: the first of them
//! migrates the schema while old ones work. In the end the new ones stop, as in a rollback, and the old ones finish
//! everything.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use outlast::Client;

use super::Result;
use super::picture::Picture;
use super::place::{Ack, Place, WorldKind};
use super::report::Checks;
use super::teller::NUMBERS;

/// How many runs the old build ends before there is another one.
const ENDED_BEFORE: usize = 20;

/// A client of the older build, which dies with its owner.
#[derive(Debug)]
pub(crate) struct OldClient {
    child: Child,
}

impl Drop for OldClient {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl OldClient {
    /// Starts it. Its transfers have other numbers than those of this process.
    pub(crate) fn start(program: &Path, place: &Place, seed: u64, may_be_away: bool) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("client").arg(place.folder());
        command.args(["--seed", &seed.to_string(), "--first", &NUMBERS.to_string()]);
        if place.world() == WorldKind::Postgres {
            command.arg("--url").arg(place.url());
        }
        if may_be_away {
            command.arg("--patient");
        }
        let log = File::options().create(true).append(true).open(place.folder().join("client.log"))?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        Ok(Self { child })
    }

    /// Fails when it has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                Err(format!("the old client ended by itself with {status}; see `client.log`").into())
            }
        }
    }

    /// Tells it to start nothing any more.
    pub(crate) fn close(&mut self) {
        drop(self.child.stdin.take());
    }

    /// How many transfers it started, when all of them have ended.
    pub(crate) fn ended(&mut self) -> Result<Option<u64>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        if !status.success() {
            return Err(format!("the old client ended with {status}; see `client.log`").into());
        }
        let mut said = String::new();
        self.child.stdout.take().ok_or("the old client says nothing")?.read_to_string(&mut said)?;
        Ok(Some(said.trim().parse()?))
    }
}

/// Whether the old build has shown that it works, before there is another one.
pub(crate) fn has_begun(place: &Place) -> Result<bool> {
    let ended = place.acks()?.iter().filter(|ack| matches!(ack, Ack::Ended(_))).count();
    Ok(ended >= ENDED_BEFORE)
}

/// The build of the workers when only old ones are left.
pub(crate) async fn old_build(client: &Client, checks: &mut Checks) -> Result<String> {
    let mut builds: Vec<String> = client.workers().await?.into_iter().map(|worker| worker.build).collect();
    builds.sort_unstable();
    builds.dedup();
    checks.that(builds.len() == 1, || {
        format!("workers of the builds {builds:?} are left, not the old ones alone")
    })?;
    Ok(builds.remove(0))
}

/// What a build did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) ended: usize,
    pub(crate) turns: usize,
}

/// What the two builds did, and how many runs were worked on by both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) old: Share,
    pub(crate) new: Share,
    pub(crate) both: usize,
}

/// Counts what each build did, and checks that both ended runs and went on with runs of the other.
pub(crate) fn check_shares(picture: &Picture, old: &str, checks: &mut Checks) -> Result<Shares> {
    let mut shares = Shares::default();
    for run in picture.runs.values() {
        // The first turn is the start, which no worker made.
        let mut builds = BTreeMap::<bool, usize>::new();
        for turn in run.history.iter().skip(1) {
            *builds.entry(&*turn.build == old).or_default() += 1;
        }
        shares.old.turns += builds.get(&true).copied().unwrap_or(0);
        shares.new.turns += builds.get(&false).copied().unwrap_or(0);
        shares.both += usize::from(builds.len() == 2);
        match run.history.last() {
            Some(turn) if &*turn.build == old => shares.old.ended += 1,
            _ => shares.new.ended += 1,
        }
    }
    let did_both = shares.old.ended > 0 && shares.new.ended > 0 && shares.both > 0;
    checks.that(did_both, || format!("the builds did not share the work: {shares:?}"))?;
    Ok(shares)
}
