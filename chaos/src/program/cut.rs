//! Cut connections: the connection to Postgres ends after byte k of a call, in either direction and for every k.
//!
//! The caller then does not know whether the call was executed. It repeats the call with the same ids at once, while
//! the server may still be executing the first. At the end the call has had its effect once, and no run is held by a
//! session that does not know of it.

mod calls;
mod proxied_world;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use outlast::SystemClock;
use outlast::core::Clock;
use parking_lot::Mutex;
use throwaway::{Postgres, Toward, postgres};

use super::Result;
use super::report::{print_table, seconds};
use calls::CallKind;
use proxied_world::ProxiedWorld;

/// Exchanges that are cut concurrently, each in its own schema and behind its own proxy.
const CONCURRENT: usize = 3;

/// The options of this task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CutOptions {
    /// The number of offsets in each exchange and direction; all if `None`.
    pub(crate) offsets: Option<u32>,
    pub(crate) seed: u64,
    pub(crate) folder: Option<PathBuf>,
}

/// Whether the connection has made such a call before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// The statement is prepared.
    Warm,
    /// The connection is new, and the statement is prepared first.
    New,
}

/// A cut of a connection.
#[derive(Clone, Copy, Debug)]
struct Cut {
    toward: Toward,
    bytes: u64,
}

/// The results of the cuts of one exchange.
#[derive(Clone, Copy, Debug, Default)]
struct CutStatistics {
    cuts: u64,
    /// Calls that were repeated because the first answer was lost.
    repeated: u64,
    /// Claims whose answers were lost: the session held a run that it did not know of.
    lost_claims: u64,
    bytes: [u64; 2],
}

impl CutStatistics {
    fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.repeated += other.repeated;
        self.lost_claims += other.lost_claims;
        self.bytes = [self.bytes[0] + other.bytes[0], self.bytes[1] + other.bytes[1]];
    }
}

/// The kind of an exchange.
type ExchangeKind = (CallKind, Connection);

/// Makes all cuts, checks the world after each, and prints a table.
pub(crate) async fn run(options: &CutOptions) -> Result<()> {
    let CutOptions { offsets, seed, folder } = options;
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
    cut_all(options, &server).await.map_err(|error| {
        format!("{error}\n  to repeat it: cargo xtask chaos --cut{repeat} --seed {seed}").into()
    })
}

async fn cut_all(options: &CutOptions, server: &Postgres) -> Result<()> {
    let began = SystemClock.now();
    let queue: VecDeque<ExchangeKind> = CallKind::ALL
        .into_iter()
        .flat_map(|kind| [(kind, Connection::Warm), (kind, Connection::New)])
        .collect();
    let queue = Arc::new(Mutex::new(queue));
    let tasks: Vec<_> = (0..CONCURRENT)
        .map(|number| tokio::spawn(cut_exchanges(number, options.clone(), server.url(), queue.clone())))
        .collect();
    let (mut statistics_by_call, mut checks) = (BTreeMap::<CallKind, CutStatistics>::new(), 0);
    for cut_exchanges in tasks {
        let (done, made) = cut_exchanges.await??;
        checks += made;
        for (kind, statistics) in done {
            statistics_by_call.entry(kind).or_default().add(&statistics);
        }
    }
    print(&statistics_by_call, checks, &seconds(SystemClock.now().since(began)));
    Ok(())
}

/// Cuts exchanges from the queue until it is empty, in a schema of its own.
async fn cut_exchanges(
    number: usize,
    options: CutOptions,
    url: String,
    queue: Arc<Mutex<VecDeque<ExchangeKind>>>,
) -> Result<(Vec<(CallKind, CutStatistics)>, u64)> {
    let mut proxied_world = ProxiedWorld::open(&url, &format!("lane_{number}")).await?;
    let mut statistics_by_call = Vec::new();
    loop {
        let next = queue.lock().pop_front();
        let Some((kind, connection)) = next else { break };
        let statistics = exchange(&mut proxied_world, kind, connection, &options).await?;
        eprintln!("  {} on a {connection:?} connection: {} cuts", kind.name(), statistics.cuts);
        statistics_by_call.push((kind, statistics));
    }
    proxied_world.check_all().await?;
    Ok((statistics_by_call, proxied_world.checks.made))
}

async fn exchange(
    proxied_world: &mut ProxiedWorld,
    kind: CallKind,
    connection: Connection,
    options: &CutOptions,
) -> Result<CutStatistics> {
    let mut chance = fastrand::Rng::with_seed(options.seed ^ ((kind as u64) << 8) ^ connection as u64);
    let mut statistics = CutStatistics::default();
    let sizes = proxied_world.cut_call(kind, connection, None, &mut statistics).await?;
    if sizes.contains(&0) {
        return Err(format!("{}: the proxy did not see the exchange", kind.name()).into());
    }
    statistics.bytes = sizes;
    for (toward, size) in [(Toward::Server, sizes[0]), (Toward::Client, sizes[1])] {
        for bytes in offsets_to_cut(size, options.offsets, &mut chance) {
            let cut = Cut { toward, bytes };
            proxied_world.cut_call(kind, connection, Some(cut), &mut statistics).await.map_err(|error| {
                format!("{}, on a {connection:?} connection, {cut:?}: {error}", kind.name())
            })?;
        }
    }
    Ok(statistics)
}

/// The offsets at which an exchange of `size` bytes is cut: before the first byte, after the last, and all or some of
/// those in between.
fn offsets_to_cut(size: u64, count: Option<u32>, chance: &mut fastrand::Rng) -> Vec<u64> {
    let Some(count) = count else { return (0..=size).collect() };
    let mut offsets_to_cut: Vec<u64> = (2..count).map(|_| chance.u64(0..=size)).chain([0, size]).collect();
    offsets_to_cut.sort_unstable();
    offsets_to_cut.dedup();
    offsets_to_cut
}

fn print(statistics_by_call: &BTreeMap<CallKind, CutStatistics>, checks: u64, time: &str) {
    let mut table: Vec<(&str, String)> = Vec::new();
    for (kind, statistics) in statistics_by_call {
        let CutStatistics { cuts, repeated, lost_claims, bytes: [to_server, to_client] } = statistics;
        let mut row = format!("{cuts} cuts of {to_server} + {to_client} bytes, {repeated} calls repeated");
        if *lost_claims > 0 {
            row += &format!(", {lost_claims} runs found by `held`");
        }
        table.push((kind.name(), row));
    }
    table.push(("checks", checks.to_string()));
    table.push(("wall time", time.to_owned()));
    print_table("cuts: nothing was lost or duplicated, and every held run is known to its session", &table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_offsets_are_cut_or_a_given_number() {
        let mut chance = fastrand::Rng::with_seed(7);
        assert_eq!(offsets_to_cut(3, None, &mut chance), [0, 1, 2, 3]);
        let some = offsets_to_cut(1_000, Some(8), &mut chance);
        assert!(some.len() <= 8 && some[0] == 0 && some.last() == Some(&1_000), "{some:?}");
    }
}
