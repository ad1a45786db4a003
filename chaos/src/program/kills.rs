//! The kill loop: workers die and freeze again and again, and nothing is lost or doubled.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outlast::core::Clock;
use outlast::{SystemClock, Timestamp};

use super::Result;
use super::audit::{self, Audit, Gone};
use super::fleet::{Fleet, Losses, WORKERS};
use super::life::patiently;
use super::lookout::Lookout;
use super::picture::Picture;
use super::place::{Books, Diary, Place, WorldKind};
use super::report::{Checks, Folder, print_table, seconds};
use super::server::Server;
use super::teller::Teller;
use super::transfer::pass;
use super::upgrade::{OldClient, Share, Shares, check_shares, has_begun, old_build};

/// How often the fleet and the runs are looked at.
const TICK: Duration = Duration::from_millis(5);

/// How long the whole may take: so much for each kill, and so much for the rest.
const PATIENCE_PER_KILL: Duration = Duration::from_secs(3);
const PATIENCE_PER_RESTART: Duration = Duration::from_secs(10);
const PATIENCE_AT_END: Duration = Duration::from_secs(90);

/// How long old workers work alone after a rollback, under load.
const ROLLED_BACK: Duration = Duration::from_secs(3);

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) world: WorldKind,
    pub(crate) kills: u32,
    /// How often the server is restarted, if the world has one.
    pub(crate) restarts: u32,
    pub(crate) seed: u64,
    pub(crate) folder: Option<PathBuf>,
    /// The program of an older build, whose workers are a part of the fleet.
    pub(crate) old: Option<PathBuf>,
}

/// Runs the loop, checks everything, and prints a table.
pub(crate) async fn run(plan: &Plan) -> Result<()> {
    let Plan { world, kills, restarts, seed, folder, old } = plan;
    let (what, mut repeat) = match world {
        WorldKind::Sqlite => ("one SQLite file".to_owned(), format!("--world sqlite --kills {kills}")),
        WorldKind::Postgres => (
            format!("one Postgres, which is restarted {restarts} times"),
            format!("--world postgres --kills {kills} --restarts {restarts}"),
        ),
    };
    match old {
        None => eprintln!("{kills} kills of {WORKERS} workers on {what}, seed {seed}"),
        Some(old) => {
            eprintln!("{kills} kills of workers of two builds on {what}, seed {seed}");
            repeat.push_str(&format!(" --old {}", old.display()));
        }
    }
    let above = folder.as_deref();
    let folder = Folder::new(above)?;
    let mut server = match world {
        WorldKind::Sqlite => None,
        WorldKind::Postgres => Some(Server::start(above, *kills, *restarts, *seed)?),
    };
    let place = server.as_ref().map_or(folder.place(), |server| server.place(folder.path()));
    let done = Loop::play(place, server.as_mut(), plan).await;
    if done.is_err()
        && let Some(server) = server
    {
        server.save(folder.path());
    }
    folder.close(done, &format!("cargo xtask chaos {repeat} --seed {seed}"))
}

struct Loop<'a> {
    place: Place,
    books: Arc<Books>,
    teller: Teller,
    /// A client of the older build, if there is one.
    old_client: Option<OldClient>,
    fleet: Fleet,
    server: Option<&'a mut Server>,
    began: Timestamp,
    until: Timestamp,
}

/// What a loop with an older build came to.
struct Upgraded {
    old_build: String,
    old_transfers: u64,
}

impl<'a> Loop<'a> {
    async fn play(place: Place, mut server: Option<&'a mut Server>, plan: &Plan) -> Result<()> {
        let Plan { kills, restarts, seed, .. } = *plan;
        let began = SystemClock.now();
        let patience = PATIENCE_PER_KILL * kills + PATIENCE_PER_RESTART * restarts + PATIENCE_AT_END;
        let until = began.plus(patience);
        let books = Arc::new(place.open(|_| None)?);
        let mut teller = None;
        if plan.old.is_none() {
            teller = Some(open_teller(&place, &books, plan).await?);
        }
        let mut fleet = Fleet::start(&place, books.clone(), seed, kills, plan.old.clone())?;
        let mut old_client = match &plan.old {
            Some(old) => Some(OldClient::start(old, &place, seed, restarts > 0)?),
            None => None,
        };
        // This process must not open the world before: it would migrate it.
        while let Some(client) = &mut old_client
            && !(fleet.losses()?.kills >= Fleet::old_alone(kills) && has_begun(&place)?)
        {
            client.check()?;
            if let Some(server) = &mut server {
                server.tick(&fleet.losses()?, &books)?;
            }
            if SystemClock.now() >= until {
                return Err("waited in vain for the first runs of the old build".into());
            }
            pass(TICK).await;
        }
        let teller = match teller {
            Some(teller) => teller,
            None => open_teller(&place, &books, plan).await?,
        };
        let mut this = Self { place, books, teller, old_client, fleet, server, began, until };
        this.storm(kills).await?;
        let old_build = this.roll_back().await?;
        let old_transfers = this.calm().await?;
        let upgraded = old_build.zip(old_transfers);
        let upgraded = upgraded.map(|(old_build, old_transfers)| Upgraded { old_build, old_transfers });
        this.settle(seed, upgraded).await
    }

    /// Works under fire.
    async fn storm(&mut self, kills: u32) -> Result<()> {
        let mut told = 0;
        let mut lookout: Option<Lookout> = None;
        loop {
            let losses = self.fleet.losses()?;
            if let Some(server) = &mut self.server {
                server.tick(&losses, &self.books)?;
            }
            if losses.is_calm && self.server.as_ref().is_none_or(|server| server.is_calm()) {
                return match lookout {
                    Some(lookout) => lookout.end().await,
                    None => Ok(()),
                };
            }
            if losses.is_calm && self.server.is_some() && lookout.is_none() {
                lookout = Some(Lookout::begin(&self.place.url()).await?);
            }
            if let Some(client) = &mut self.old_client {
                client.check()?;
            }
            let open = self.teller.work().await?;
            if losses.kills >= told + 20 {
                told = losses.kills;
                eprintln!(
                    "  {} of {kills} kills, {} stops, {} transfers, {open} runs open, {}",
                    losses.kills,
                    losses.stops,
                    self.teller.transfers(),
                    seconds(SystemClock.now().since(self.began))
                );
            }
            self.wait("the kills").await?;
        }
    }

    /// Lets the workers of the new build stop, and the old ones work alone for a while. Answers their build; nothing when
    /// there is only one.
    async fn roll_back(&mut self) -> Result<Option<String>> {
        if self.old_client.is_none() {
            return Ok(None);
        }
        self.fleet.roll_back()?;
        // A worker that has just been started may not have joined yet.
        while self.fleet.losses()?.new_workers > 0
            || self.teller.client().workers().await?.len() != self.fleet.size()
        {
            self.work_on("the end of the new workers").await?;
        }
        let old_build = old_build(self.teller.client(), &mut Checks::default()).await?;
        let until = SystemClock.now().plus(ROLLED_BACK);
        while SystemClock.now() < until {
            self.work_on("old workers").await?;
        }
        Ok(Some(old_build))
    }

    /// Goes on with the load for a moment.
    async fn work_on(&mut self, what: &str) -> Result<()> {
        self.fleet.losses()?;
        self.teller.work().await?;
        self.wait(what).await
    }

    /// Lets everything end, and the sessions of the dead be taken over. Answers how many transfers the old client started.
    async fn calm(&mut self) -> Result<Option<u64>> {
        let mut old_transfers = None;
        if let Some(client) = &mut self.old_client {
            client.close();
        }
        while let Some(client) = &mut self.old_client {
            old_transfers = client.ended()?;
            if old_transfers.is_some() {
                self.old_client = None;
            }
            self.teller.serve().await?;
            self.fleet.losses()?;
            self.wait("the end of the old client's runs").await?;
        }
        while self.teller.serve().await? > 0 {
            self.fleet.losses()?;
            self.wait("the end of all runs").await?;
        }
        while self.teller.client().workers().await?.len() != self.fleet.size() {
            self.wait("the takeover of dead sessions").await?;
        }
        Ok(old_transfers)
    }

    async fn wait(&self, what: &str) -> Result<()> {
        if SystemClock.now() < self.until {
            pass(TICK).await;
            return Ok(());
        }
        let open = self.teller.open_runs().await?;
        let lines = open.iter().take(20).map(|view| {
            let key = view.key.as_deref().unwrap_or("without a key");
            format!(
                "\n    {} {key}: {}, held by {:?}, waits for {:?}",
                view.id, view.status, view.owner, view.waits
            )
        });
        let time = seconds(self.until.since(self.began));
        Err(format!(
            "waited {time} in vain for {what}; open are {}:{}",
            open.len(),
            lines.collect::<String>()
        )
        .into())
    }

    async fn settle(self, seed: u64, upgraded: Option<Upgraded>) -> Result<()> {
        let losses = self.fleet.stop()?;
        let time = SystemClock.now().since(self.began);
        let diary = self.place.diary()?;
        let mut checks = Checks::default();
        let gone = Gone::of(&diary);
        if self.place.world() == WorldKind::Postgres {
            audit::check_robbed(&diary, self.place.world().session(), &mut checks)?;
        }
        let audit = audit::check_end(&self.place, self.teller.client(), seed, &gone, &mut checks).await?;
        let mut rows = Vec::new();
        if let Some(Upgraded { old_build, old_transfers }) = upgraded {
            let picture = Picture::take(self.teller.client(), &mut checks).await?;
            let Shares { old, new, both } = check_shares(&picture, &old_build, &mut checks)?;
            let share = |share: Share| format!("{} runs ended, {} turns", share.ended, share.turns);
            rows.push(("old build", format!("{}; {old_transfers} transfers by its client", share(old))));
            rows.push(("new build", format!("{}; {both} runs by both builds", share(new))));
        }
        print(&losses, &diary, &self.teller, &audit, time, checks, rows);
        Ok(())
    }
}

/// A client of this process.
async fn open_teller(place: &Place, books: &Arc<Books>, plan: &Plan) -> Result<Teller> {
    let open = async || outlast::open(&place.url()).await;
    // A server that is just restarted refuses.
    let world = if plan.restarts > 0 { patiently(open).await? } else { open().await? };
    let teller = Teller::new(world, books.clone(), plan.seed);
    Ok(if plan.restarts > 0 { teller.patient() } else { teller })
}

fn print(
    losses: &Losses,
    diary: &[Diary],
    teller: &Teller,
    audit: &Audit,
    time: Duration,
    checks: Checks,
    builds: Vec<(&'static str, String)>,
) {
    let lost = diary.iter().filter(|note| matches!(note, Diary::Lost { .. })).count();
    let took = diary.iter().map(|note| if let Diary::Took { runs, .. } = note { *runs } else { 0 });
    let from_outside = losses.kills - losses.at_points;
    let mut rows = vec![
        ("runs", format!("{} ({} transfers)", audit.runs, teller.transfers())),
        (
            "kills",
            format!(
                "{} ({} at a commit point, {from_outside} at an instant)",
                losses.kills, losses.at_points
            ),
        ),
        ("stops", format!("{} (frozen for longer than the session)", losses.stops)),
        ("sessions lost alive", lost.to_string()),
        ("runs taken over", format!("{} or more", took.sum::<u64>())),
        ("runs stuck as poison", format!("{} (resumed)", teller.resumed.len())),
        (
            "attempts",
            format!("{} ({} made again, {} of them late)", audit.attempts, audit.repeated, audit.late),
        ),
        ("bank entries", audit.entries.to_string()),
        ("checks", checks.made.to_string()),
        ("wall time", seconds(time)),
    ];
    if let Some(restarts) = restarts(diary) {
        rows.insert(
            3,
            ("restarts", format!("{restarts}; {} calls of the client unanswered", teller.unanswered)),
        );
    }
    rows.splice(1..1, builds);
    print_table("kill loop: all runs ended, every effect happened once", &rows);
}

/// How often the server went away, how, and for how long.
fn restarts(diary: &[Diary]) -> Option<String> {
    let mut kinds = BTreeMap::<&str, u32>::new();
    let mut longest = Duration::ZERO;
    for note in diary {
        if let Diary::Restarted { how, from, until } = note {
            *kinds.entry(how).or_default() += 1;
            longest = longest.max(until.since(*from));
        }
    }
    let kinds: Vec<_> = kinds.iter().map(|(how, count)| format!("{count} {how}")).collect();
    (!kinds.is_empty()).then(|| format!("{}, the longest took {}", kinds.join(", "), seconds(longest)))
}
