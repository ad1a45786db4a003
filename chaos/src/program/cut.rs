//! The cut: the connection to Postgres ends after byte k of a call, in either direction and for every k.
//!
//! Nobody knows then whether the call was carried out. The caller repeats it with the same ids, at once, while
//! the server may still be busy with the first. In the end it has happened once, and no run is held by a session
//! that does not know it.

mod deed;
mod site;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use outlast::SystemClock;
use outlast::core::Clock;
use parking_lot::Mutex;
use throwaway::{Postgres, Toward, postgres};

use super::Result;
use super::report::{print_table, seconds};
use deed::Deed;
use site::Site;

/// Exchanges that are cut at the same time, each in its own schema and behind its own proxy.
const LANES: usize = 3;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How many offsets of each exchange and direction; all if `None`.
    pub(crate) offsets: Option<u32>,
    pub(crate) seed: u64,
    pub(crate) folder: Option<PathBuf>,
}

/// Whether the connection has seen such a call before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// The statement is prepared.
    Warm,
    /// The connection is new, and the statement is prepared first.
    New,
}

/// A cut that is to be made.
#[derive(Clone, Copy, Debug)]
struct Cut {
    toward: Toward,
    bytes: u64,
}

/// What the cuts of one exchange came to.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    cuts: u64,
    /// Calls of which the first answer was lost though they were carried out, as far as can be told.
    repeated: u64,
    /// Runs that the session held and did not know of.
    orphans: u64,
    bytes: [u64; 2],
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.repeated += other.repeated;
        self.orphans += other.orphans;
        self.bytes = [self.bytes[0] + other.bytes[0], self.bytes[1] + other.bytes[1]];
    }
}

/// An exchange that is cut.
type Work = (Deed, Connection);

/// Makes the cuts, checks after each, and prints a table.
pub(crate) async fn run(plan: &Plan) -> Result<()> {
    let Plan { offsets, seed, folder } = plan;
    let (which, repeat) = match offsets {
        None => ("every offset".to_owned(), String::new()),
        Some(count) => (format!("{count} offsets"), format!(" --offsets {count}")),
    };
    eprintln!("cuts at {which} of each exchange and direction, seed {seed}");
    postgres::require()?;
    let mut builder = Postgres::builder().quick();
    if let Some(folder) = folder {
        builder = builder.within(folder);
    }
    let server = builder.start()?;
    cuts(plan, &server).await.map_err(|error| {
        format!("{error}\n  repeat it with: cargo xtask chaos --cut{repeat} --seed {seed}").into()
    })
}

async fn cuts(plan: &Plan, server: &Postgres) -> Result<()> {
    let began = SystemClock.now();
    let work: VecDeque<Work> =
        Deed::ALL.into_iter().flat_map(|deed| [(deed, Connection::Warm), (deed, Connection::New)]).collect();
    let work = Arc::new(Mutex::new(work));
    let lanes: Vec<_> = (0..LANES)
        .map(|number| tokio::spawn(lane(number, plan.clone(), server.url(), work.clone())))
        .collect();
    let (mut tallies, mut checks) = (BTreeMap::<Deed, Tally>::new(), 0);
    for lane in lanes {
        let (done, made) = lane.await??;
        checks += made;
        for (deed, tally) in done {
            tallies.entry(deed).or_default().add(&tally);
        }
    }
    print(&tallies, checks, &seconds(SystemClock.now().since(began)));
    Ok(())
}

/// Cuts as long as there is something to cut, in a schema of its own.
async fn lane(
    number: usize,
    plan: Plan,
    url: String,
    work: Arc<Mutex<VecDeque<Work>>>,
) -> Result<(Vec<(Deed, Tally)>, u64)> {
    let mut site = Site::open(&url, &format!("lane_{number}")).await?;
    let mut tallies = Vec::new();
    loop {
        let next = work.lock().pop_front();
        let Some((deed, connection)) = next else { break };
        let tally = exchange(&mut site, deed, connection, &plan).await?;
        eprintln!("  {} on a {connection:?} connection: {} cuts", deed.name(), tally.cuts);
        tallies.push((deed, tally));
    }
    site.check_all().await?;
    Ok((tallies, site.checks.made))
}

async fn exchange(site: &mut Site, deed: Deed, connection: Connection, plan: &Plan) -> Result<Tally> {
    let mut chance = fastrand::Rng::with_seed(plan.seed ^ ((deed as u64) << 8) ^ connection as u64);
    let mut tally = Tally::default();
    let sizes = site.trial(deed, connection, None, &mut tally).await?;
    if sizes.contains(&0) {
        return Err(format!("{}: the exchange was not seen", deed.name()).into());
    }
    tally.bytes = sizes;
    for (toward, size) in [(Toward::Server, sizes[0]), (Toward::Client, sizes[1])] {
        for bytes in chosen(size, plan.offsets, &mut chance) {
            let cut = Cut { toward, bytes };
            site.trial(deed, connection, Some(cut), &mut tally).await.map_err(|error| {
                format!("{}, on a {connection:?} connection, {cut:?}: {error}", deed.name())
            })?;
        }
    }
    Ok(tally)
}

/// The offsets at which an exchange of so many bytes is cut: before its first byte, behind its last, and all or
/// some of those in between.
fn chosen(size: u64, count: Option<u32>, chance: &mut fastrand::Rng) -> Vec<u64> {
    let Some(count) = count else { return (0..=size).collect() };
    let mut chosen: Vec<u64> = (2..count).map(|_| chance.u64(0..=size)).chain([0, size]).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

fn print(tallies: &BTreeMap<Deed, Tally>, checks: u64, time: &str) {
    let mut table: Vec<(&str, String)> = Vec::new();
    for (deed, tally) in tallies {
        let Tally { cuts, repeated, orphans, bytes: [to_server, to_client] } = tally;
        let mut row = format!("{cuts} cuts of {to_server} + {to_client} bytes, {repeated} calls repeated");
        if *orphans > 0 {
            row += &format!(", {orphans} runs found by `held`");
        }
        table.push((deed.name(), row));
    }
    table.push(("checks", checks.to_string()));
    table.push(("wall time", time.to_owned()));
    print_table("cuts: nothing was lost, nothing doubled, and no run has no one who knows it", &table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_offsets_are_cut_or_as_many_as_told() {
        let mut chance = fastrand::Rng::with_seed(7);
        assert_eq!(chosen(3, None, &mut chance), [0, 1, 2, 3]);
        let some = chosen(1_000, Some(8), &mut chance);
        assert!(some.len() <= 8 && some[0] == 0 && some.last() == Some(&1_000), "{some:?}");
    }
}
