//! The audit: whether what the database says, what the bank did and what everyone was told agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outlast::core::Event;
use outlast::{Client, Status};

use super::Result;
use super::bank::{Entry, Leg};
use super::picture::{Announced, Picture, Pictured};
use super::place::{Ack, AttemptNote, Diary, Place, WorldKind};
use super::report::Checks;
use super::transfer::{Slip, Transfer};

/// What the audit counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Audit {
    pub(crate) runs: usize,
    /// Attempts at steps.
    pub(crate) attempts: usize,
    /// Those made again, because whoever made them first was gone or lost its session.
    pub(crate) repeated: usize,
    /// Those that a frozen worker began after the outcome was recorded by another: it could not know.
    pub(crate) late: usize,
    pub(crate) entries: usize,
}

/// How often each life of a worker was gone: killed, cut off, or without its session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone {
    times: BTreeMap<u32, usize>,
    lost: BTreeSet<u32>,
}

impl Gone {
    /// As the diary tells.
    pub(crate) fn of(diary: &[Diary]) -> Self {
        let mut gone = Self::default();
        for note in diary {
            match note {
                Diary::Killed { life } => *gone.times.entry(*life).or_default() += 1,
                Diary::Lost { life, .. } => {
                    *gone.times.entry(*life).or_default() += 1;
                    gone.lost.insert(*life);
                }
                // Killed before it noticed, perhaps.
                Diary::Frozen { life, .. } => drop(gone.lost.insert(*life)),
                Diary::Born { .. } | Diary::Took { .. } | Diary::Restarted { .. } => {}
            }
        }
        gone
    }

    /// All who made attempts so far are gone.
    pub(crate) fn and_all(mut self, attempts: &[AttemptNote]) -> Self {
        for life in attempts.iter().map(|note| note.life).collect::<BTreeSet<_>>() {
            *self.times.entry(life).or_default() += 1;
        }
        self
    }
}

/// The database's own check of its files.
pub(crate) async fn check_database(place: &Place, checks: &mut Checks) -> Result<()> {
    if place.world() == WorldKind::Postgres {
        return check_server(&place.url(), checks).await;
    }
    let connection = rusqlite::Connection::open(place.database())?;
    let answer: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    checks.that(answer == "ok", || format!("SQLite says: {answer}"))
}

/// Every index agrees with its table, and every table with itself.
async fn check_server(url: &str, checks: &mut Checks) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let driver = tokio::spawn(connection);
    client.batch_execute("CREATE EXTENSION IF NOT EXISTS amcheck").await?;
    let relations = "SELECT c.oid::regclass::text, c.relkind = 'i' FROM pg_class c \
                     JOIN pg_namespace n ON n.oid = c.relnamespace \
                     WHERE n.nspname = 'outlast' AND c.relkind IN ('i', 'r')";
    for row in client.query(relations, &[]).await? {
        let (name, is_index): (String, bool) = (row.get(0), row.get(1));
        let problem = if is_index {
            let checked = client.batch_execute(&format!("SELECT bt_index_check('{name}', true)")).await;
            checked
                .err()
                .map(|error| error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string))
        } else {
            let corrupt = format!("SELECT msg FROM verify_heapam('{name}') LIMIT 1");
            client.query_opt(&corrupt, &[]).await?.map(|row| row.get(0))
        };
        checks.that(problem.is_none(), || format!("Postgres says of {name}: {problem:?}"))?;
    }
    drop(client);
    driver.await??;
    Ok(())
}

/// Nobody was robbed: a worker that was not frozen kept its session, unless the server was away for so long
/// that the worker had to give it up.
pub(crate) fn check_robbed(diary: &[Diary], session: Duration, checks: &mut Checks) -> Result<()> {
    for note in diary {
        let Diary::Lost { life, at } = note else { continue };
        let is_excused = diary.iter().any(|other| match other {
            Diary::Frozen { life: frozen, .. } => frozen == life,
            Diary::Restarted { from, until, .. } => until.since(*from) > session / 2 && from < at,
            _ => false,
        });
        checks.that(is_excused, || format!("life {life} was robbed of its session at {at}"))?;
    }
    Ok(())
}

/// What was told or done before an instant is in the file as of that instant.
pub(crate) fn check_told(place: &Place, picture: &Picture, checks: &mut Checks) -> Result<()> {
    for ack in place.acks()? {
        let (Ack::Started(key) | Ack::Sent(key) | Ack::Ended(key)) = &ack;
        let run = picture.runs.get(key);
        let is_so = run.is_some_and(|run| match ack {
            Ack::Started(_) => true,
            Ack::Sent(_) => run.view.sent > 0,
            Ack::Ended(_) => run.view.status.is_final(),
        });
        checks.that(is_so, || format!("{ack:?} was acknowledged, but is lost"))?;
    }
    let announced = announced(picture);
    for note in place.attempts()? {
        let is_so = announced.contains_key(&(note.key.clone(), note.attempt));
        checks.that(is_so, || format!("{note:?} came before the commit that announces it"))?;
    }
    Ok(())
}

/// Everything has ended, and every effect has happened once.
pub(crate) async fn check_end(
    place: &Place,
    client: &Client,
    seed: u64,
    gone: &Gone,
    checks: &mut Checks,
) -> Result<Audit> {
    check_database(place, checks).await?;
    let picture = Picture::take(client, checks).await?;
    picture.check_end(checks)?;
    check_told(place, &picture, checks)?;
    let mut audit = Audit { runs: picture.runs.len(), ..Audit::default() };
    let lag = place.world().lag();
    check_attempts(&place.attempts()?, &picture, gone, lag, checks, &mut audit)?;
    check_money(&place.entries()?, &picture, seed, checks, &mut audit)?;
    Ok(audit)
}

fn announced(picture: &Picture) -> BTreeMap<(String, u32), Announced> {
    picture.runs.values().flat_map(Pictured::announced).collect()
}

/// Every attempt was made once, and again only when whoever made it was gone; none after its outcome
/// was recorded, except by those who slept meanwhile.
fn check_attempts(
    notes: &[AttemptNote],
    picture: &Picture,
    gone: &Gone,
    lag: Duration,
    checks: &mut Checks,
    audit: &mut Audit,
) -> Result<()> {
    let announced = announced(picture);
    let mut made: BTreeMap<(String, u32), BTreeMap<u32, usize>> = BTreeMap::new();
    for note in notes {
        let attempt = (note.key.clone(), note.attempt);
        let ended = announced.get(&attempt).and_then(|told| told.ended);
        if ended.is_some_and(|ended| note.at > ended.plus(lag)) {
            let slept = gone.lost.contains(&note.life);
            checks.that(slept, || format!("{note:?} was made after its outcome was recorded"))?;
            audit.late += 1;
        }
        *made.entry(attempt).or_default().entry(note.life).or_default() += 1;
    }
    for (attempt, makers) in &made {
        let unexplained =
            |(life, count): (&u32, &usize)| count.saturating_sub(gone.times.get(life).copied().unwrap_or(0));
        let once: usize = makers.iter().map(unexplained).sum();
        checks
            .that(once <= 1, || format!("attempt {attempt:?} was made again without a reason: {makers:?}"))?;
        audit.repeated += makers.values().sum::<usize>() - 1;
    }
    for (attempt, told) in &announced {
        let is_so = told.ended.is_none() || made.contains_key(attempt);
        checks.that(is_so, || format!("attempt {attempt:?} has an outcome, but was never made"))?;
    }
    audit.attempts = notes.len();
    Ok(())
}

/// No cent was made or lost, and each transfer did to the bank what its run says.
fn check_money(
    entries: &[Entry],
    picture: &Picture,
    seed: u64,
    checks: &mut Checks,
    audit: &mut Audit,
) -> Result<()> {
    audit.entries = entries.len();
    let (mut keys, mut receipts) = (BTreeSet::new(), BTreeSet::new());
    let mut legs: BTreeMap<u64, BTreeMap<Leg, &Entry>> = BTreeMap::new();
    for entry in entries {
        checks.that(keys.insert(&entry.key), || format!("the bank answered {} twice", entry.key))?;
        if let Ok(receipt) = entry.answer {
            checks.that(receipts.insert(receipt), || format!("receipt {receipt} was given twice"))?;
        }
        let before = legs.entry(entry.transfer).or_default().insert(entry.leg, entry);
        checks.that(before.is_none(), || format!("{:?} of transfer {}: two", entry.leg, entry.transfer))?;
    }
    let sum: i64 = entries.iter().filter(|entry| entry.answer.is_ok()).map(|entry| entry.cents).sum();
    checks.that(sum == 0, || format!("{sum} cents came from nowhere"))?;
    for (key, run) in &picture.runs {
        if let Some(id) = Transfer::id_of(key) {
            let did = legs.remove(&id).unwrap_or_default();
            check_transfer(&Transfer::numbered(seed, id), run, &did, checks)?;
        } else {
            check_batch(key, run, picture, checks)?;
        }
    }
    checks.that(legs.is_empty(), || format!("the bank knows transfers that no run made: {legs:?}"))
}

fn check_transfer(
    order: &Transfer,
    run: &Pictured,
    did: &BTreeMap<Leg, &Entry>,
    checks: &mut Checks,
) -> Result<()> {
    for (leg, entry) in did {
        let (account, cents) = match leg {
            Leg::Debit => (order.from, -order.cents),
            Leg::Credit => (order.to, order.cents),
            Leg::Refund => (order.from, order.cents),
        };
        let is_so = (entry.account, entry.cents) == (account, cents);
        checks.that(is_so, || format!("{entry:?} is not a part of {order:?}"))?;
    }
    let receipt = |leg| did.get(&leg).and_then(|entry| entry.answer.as_ref().ok()).copied();
    let slip = output::<Slip>(run)?;
    let (debit, credit, refund) = (receipt(Leg::Debit), receipt(Leg::Credit), receipt(Leg::Refund));
    let is_so = match (run.view.status, &slip) {
        (Status::Completed, Some(slip)) => {
            slip.credit.is_some() != slip.refund.is_some()
                && (Some(slip.debit), slip.credit, slip.refund) == (debit, credit, refund)
        }
        // Not enough money: the debit was refused, and nothing followed.
        (Status::Failed, None) => did.len() == 1 && did.contains_key(&Leg::Debit) && debit.is_none(),
        (Status::Cancelled, None) => credit.is_none() && debit.is_some() == refund.is_some(),
        _ => false,
    };
    checks
        .that(is_so, || format!("{order:?} is {} with {slip:?}, but the bank says {did:?}", run.view.status))
}

/// A batch has waited for all its transfers, and tells of each what it returned.
fn check_batch(key: &str, run: &Pictured, picture: &Picture, checks: &mut Checks) -> Result<()> {
    let slips: Vec<Option<Slip>> = output(run)?.ok_or_else(|| format!("{key} is {}", run.view.status))?;
    let first: u64 = key.strip_prefix("batch-").ok_or("a run has a strange key")?.parse()?;
    for (id, slip) in (first..).zip(&slips) {
        let child = picture.runs.get(&format!("transfer-{id}"));
        let child = child.ok_or_else(|| format!("transfer {id} of {key} is missing"))?;
        let returned = output::<Slip>(child)?;
        checks
            .that(returned == *slip, || format!("{key} has {slip:?} of transfer {id}, not {returned:?}"))?;
    }
    Ok(())
}

fn output<T: serde::de::DeserializeOwned>(run: &Pictured) -> Result<Option<T>> {
    let last = run.history.last().and_then(|turn| turn.events.last());
    Ok(match last {
        Some(Event::RunCompleted { output }) => Some(output.decode()?),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use outlast::{Counts, Timestamp};

    use super::*;

    /// Judges an attempt that these lives made, one after the other.
    fn judge(lives: &[u32], diary: &[Diary]) -> Result<Audit, String> {
        let picture = Picture { runs: BTreeMap::new(), counts: Counts::new(), workers: 0 };
        let note = |life: &u32| AttemptNote {
            key: "run.0.1".into(),
            attempt: 1,
            step: "debit".into(),
            life: *life,
            at: Timestamp::from_micros(0),
        };
        let (notes, mut audit) = (lives.iter().map(note).collect::<Vec<_>>(), Audit::default());
        let (gone, lag) = (Gone::of(diary), Duration::ZERO);
        check_attempts(&notes, &picture, &gone, lag, &mut Checks::default(), &mut audit)
            .map(|()| audit)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_attempt_is_made_again_only_when_whoever_made_it_is_gone() {
        let (killed, lost) =
            (Diary::Killed { life: 1 }, Diary::Lost { life: 2, at: Timestamp::from_micros(0) });
        assert_eq!(judge(&[1], &[]).unwrap().repeated, 0);
        assert!(judge(&[1, 2], &[]).unwrap_err().contains("made again without a reason"));
        assert!(judge(&[1, 1], &[]).is_err(), "by the same life neither");
        assert_eq!(judge(&[1, 2], std::slice::from_ref(&killed)).unwrap().repeated, 1);
        assert!(judge(&[1, 2, 3], std::slice::from_ref(&killed)).is_err());
        assert_eq!(judge(&[1, 2, 2], &[killed, lost]).unwrap().repeated, 2);
    }

    #[test]
    fn who_was_not_frozen_keeps_its_session_though_the_server_restarts() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let lost = Diary::Lost { life: 2, at: at(10) };
        let frozen = |life| Diary::Frozen { life, from: at(1), until: at(9) };
        let restarted = |until| Diary::Restarted { how: "fast".into(), from: at(4), until: at(until) };
        let robbed =
            |diary: &[Diary]| check_robbed(diary, Duration::from_secs(6), &mut Checks::default()).is_err();
        assert!(robbed(std::slice::from_ref(&lost)) && robbed(&[lost.clone(), frozen(1)]));
        assert!(!robbed(&[lost.clone(), frozen(2)]));
        assert!(robbed(&[lost.clone(), restarted(5)]), "it was back soon enough");
        assert!(!robbed(&[lost, restarted(8)]));
    }
}
