//! The cut: the connection to Postgres ends after byte k of a call, in either direction and for every k.
//!
//! Nobody knows then whether the call was carried out. The caller repeats it with the same ids, at once, while
//! the server may still be busy with the first. In the end it has happened once, and no run is held by a session
//! that does not know it.

mod deed;
mod site;

use std::path::PathBuf;

use outlast::SystemClock;
use outlast::core::Clock;
use throwaway::{Postgres, Toward, postgres};

use super::Result;
use super::report::{Checks, print_table, seconds};
use deed::Deed;
use site::Site;

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
    let mut site = Site::open(&server.url()).await?;
    let mut chance = fastrand::Rng::with_seed(plan.seed);
    let mut rows = Vec::new();
    for deed in Deed::ALL {
        let mut tally = Tally::default();
        for connection in [Connection::Warm, Connection::New] {
            let sizes = site.trial(deed, connection, None, &mut tally).await?;
            if sizes.contains(&0) {
                return Err(format!("{}: the exchange was not seen", deed.name()).into());
            }
            tally.bytes[0] += sizes[0];
            tally.bytes[1] += sizes[1];
            for (toward, size) in [(Toward::Server, sizes[0]), (Toward::Client, sizes[1])] {
                for bytes in chosen(size, plan.offsets, &mut chance) {
                    let cut = Cut { toward, bytes };
                    site.trial(deed, connection, Some(cut), &mut tally).await.map_err(|error| {
                        format!("{}, on a {connection:?} connection, {cut:?}: {error}", deed.name())
                    })?;
                }
            }
        }
        eprintln!("  {}: {} cuts, {}", deed.name(), tally.cuts, seconds(SystemClock.now().since(began)));
        rows.push((deed.name(), tally));
    }
    let mut checks = Checks::default();
    site.check_all(&mut checks).await?;
    print(&rows, checks.made + site.checks.made, &seconds(SystemClock.now().since(began)));
    Ok(())
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

fn print(rows: &[(&str, Tally)], checks: u64, time: &str) {
    let mut table: Vec<(&str, String)> = Vec::new();
    for (name, tally) in rows {
        let Tally { cuts, repeated, orphans, bytes: [to_server, to_client] } = tally;
        let mut row = format!("{cuts} cuts of {to_server} + {to_client} bytes, {repeated} calls repeated");
        if *orphans > 0 {
            row += &format!(", {orphans} runs found by `held`");
        }
        table.push((name, row));
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
