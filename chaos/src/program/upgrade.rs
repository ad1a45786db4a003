//! A rolling upgrade during the kill loop: workers and a client of an older build beside those of this one.
//!
//! At first all workers are old, and create the schema. Then half of them are new: the first one migrates the schema
//! while old ones work, and from then on runs are started that use everything that only the new build has. Then the new
//! workers stop, as in a rollback, and the old ones finish all runs that they can read. New workers finish the others.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use outlast::core::event::FORMAT;
use outlast::{Client, RunView};

use super::Result;
use super::load_client::NUMBERS;
use super::newest_format::format_of;
use super::report::Checks;
use super::snapshot::WorldSnapshot;
use super::workdir::{Ack, Workdir, WorldKind};

/// The number of runs that the old build must end before the new one starts.
const ENDED_BY_OLD_MIN: usize = 20;

/// A client process of the older build. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct OldClient {
    child: Child,
}

impl Drop for OldClient {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl OldClient {
    /// Starts the client. Its range of transfer numbers differs from that of this process.
    pub(crate) fn start(
        program: &Path,
        workdir: &Workdir,
        seed: u64,
        may_be_unavailable: bool,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("client").arg(workdir.folder());
        command.args(["--seed", &seed.to_string(), "--first", &NUMBERS.to_string()]);
        if workdir.world() == WorldKind::Postgres {
            command.arg("--url").arg(workdir.url());
        }
        if may_be_unavailable {
            command.arg("--patient");
        }
        let log = File::options().create(true).append(true).open(workdir.folder().join("client.log"))?;
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

    /// Makes it stop starting transfers.
    pub(crate) fn close(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The number of its transfers, when all have ended.
    pub(crate) fn ended(&mut self) -> Result<Option<u64>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        if !status.success() {
            return Err(format!("the old client ended with {status}; see `client.log`").into());
        }
        let mut said = String::new();
        self.child.stdout.take().ok_or("the old client has no output")?.read_to_string(&mut said)?;
        Ok(Some(said.trim().parse()?))
    }
}

/// Whether the old build has ended enough runs.
pub(crate) fn has_begun(workdir: &Workdir) -> Result<bool> {
    let ended = workdir.acks()?.iter().filter(|ack| matches!(ack, Ack::Ended(_))).count();
    Ok(ended >= ENDED_BY_OLD_MIN)
}

/// A build, and the highest durable format that it can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OldBuild {
    pub(crate) build: String,
    pub(crate) format: u32,
}

impl OldBuild {
    /// Whether workers of this build can finish a run: they have code for transfers only, and a batch waits for its
    /// transfers.
    pub(crate) fn can_finish(&self, view: &RunView) -> bool {
        &*view.workflow == "transfer" && view.format <= self.format
    }
}

/// The build of the workers when only old ones are left.
pub(crate) async fn old_build(client: &Client, checks: &mut Checks) -> Result<OldBuild> {
    let workers = client.workers().await?.into_iter();
    let mut builds: Vec<OldBuild> =
        workers.map(|worker| OldBuild { build: worker.build, format: worker.format }).collect();
    builds.dedup();
    checks.that(builds.len() == 1, || {
        format!("the remaining workers have the builds {builds:?}, expected the old build alone")
    })?;
    Ok(builds.remove(0))
}

/// The work of one build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuildShare {
    pub(crate) ended: usize,
    pub(crate) turns: usize,
}

/// The work of both builds, and the number of runs that both worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuildShares {
    pub(crate) old: BuildShare,
    pub(crate) new: BuildShare,
    pub(crate) both: usize,
    /// The runs that only the newest format can represent.
    pub(crate) newest_format: usize,
}

/// Counts the work of each build, and checks that both ended runs and continued runs of the other, and that the old one
/// was never given a run that it cannot read.
pub(crate) fn check_shares(
    snapshot: &WorldSnapshot,
    old: &OldBuild,
    checks: &mut Checks,
) -> Result<BuildShares> {
    let mut shares = BuildShares::default();
    for (key, run) in &snapshot.runs {
        for (number, turn) in run.history.iter().enumerate().skip(1) {
            let was_readable = *turn.build != *old.build || format_of(&run.history[..number]) <= old.format;
            checks.that(was_readable, || format!("the old build continued {key}, which it cannot read"))?;
        }
        shares.newest_format += usize::from(format_of(&run.history) == FORMAT);
        // The first turn is the start, which no worker made.
        let mut builds = BTreeMap::<bool, usize>::new();
        for turn in run.history.iter().skip(1) {
            *builds.entry(*turn.build == *old.build).or_default() += 1;
        }
        shares.old.turns += builds.get(&true).copied().unwrap_or(0);
        shares.new.turns += builds.get(&false).copied().unwrap_or(0);
        shares.both += usize::from(builds.len() == 2);
        match run.history.last() {
            Some(turn) if *turn.build == *old.build => shares.old.ended += 1,
            _ => shares.new.ended += 1,
        }
    }
    let is_shared = shares.old.ended > 0 && shares.new.ended > 0 && shares.both > 0;
    checks.that(shares.newest_format > 0, || "no run needed the newest format".to_owned())?;
    checks.that(is_shared, || format!("the builds did not share the work: {shares:?}"))?;
    Ok(shares)
}
