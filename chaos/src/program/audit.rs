//! The audit: checks that the database, the bank's entries and the acknowledgements agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outlast::core::Event;
use outlast::{Client, Status};

use super::Result;
use super::bank::{BankEntry, Leg};
use super::booking::{self, BookingCounts};
use super::report::Checks;
use super::snapshot::{AnnouncedAttempt, RunSnapshot, WorldSnapshot};
use super::transfer::{Transfer, TransferOutput};
use super::workdir::{Ack, AttemptNote, ProcessEvent, Workdir, WorldKind};

/// The counts of an audit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Audit {
    pub(crate) runs: usize,
    /// Attempts at steps.
    pub(crate) attempts: usize,
    /// Attempts that were repeated because the first worker was killed or had lost its session.
    pub(crate) repeated: usize,
    /// Attempts that a frozen worker began after another worker had recorded the outcome.
    pub(crate) late: usize,
    pub(crate) entries: usize,
    /// The runs of the second workload.
    pub(crate) bookings: BookingCounts,
}

/// How often each worker process was killed or lost its session.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerLosses {
    times: BTreeMap<u32, usize>,
    lost: BTreeSet<u32>,
}

impl WorkerLosses {
    /// Computed from the logged events.
    pub(crate) fn of(process_events: &[ProcessEvent]) -> Self {
        let mut worker_losses = Self::default();
        for note in process_events {
            match note {
                ProcessEvent::Killed { worker_number } => {
                    *worker_losses.times.entry(*worker_number).or_default() += 1
                }
                ProcessEvent::SessionLost { worker_number, .. } => {
                    *worker_losses.times.entry(*worker_number).or_default() += 1;
                    worker_losses.lost.insert(*worker_number);
                }
                // While it stops, it does not log that its session was lost.
                ProcessEvent::Left { worker_number } => {
                    *worker_losses.times.entry(*worker_number).or_default() += 1;
                    worker_losses.lost.insert(*worker_number);
                }
                // It may have been killed before it noticed the loss.
                ProcessEvent::Frozen { worker_number, .. } => drop(worker_losses.lost.insert(*worker_number)),
                ProcessEvent::Started { .. }
                | ProcessEvent::TookOver { .. }
                | ProcessEvent::Restarted { .. } => {}
            }
        }
        worker_losses
    }

    /// Adds the sessions that a worker has lost.
    pub(crate) fn and_lost_sessions(mut self, worker_number: u32, sessions_lost: u64) -> Self {
        if sessions_lost > 0 {
            *self.times.entry(worker_number).or_default() += sessions_lost as usize;
            self.lost.insert(worker_number);
        }
        self
    }

    /// Adds the loss of all workers that have made attempts so far.
    pub(crate) fn and_all(mut self, attempts: &[AttemptNote]) -> Self {
        for worker_number in attempts.iter().map(|note| note.worker_number).collect::<BTreeSet<_>>() {
            *self.times.entry(worker_number).or_default() += 1;
        }
        self
    }
}

/// The database's own check of its files.
pub(crate) async fn check_database(workdir: &Workdir, checks: &mut Checks) -> Result<()> {
    if workdir.world() == WorldKind::Postgres {
        return check_server(&workdir.url(), checks).await;
    }
    let connection = rusqlite::Connection::open(workdir.database())?;
    let answer: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    checks.that(answer == "ok", || format!("SQLite says: {answer}"))
}

/// Checks all indexes and tables of the schema with `amcheck`.
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

/// A worker that was not frozen keeps its session, unless the server was unavailable for so long that the worker had to
/// give it up.
pub(crate) fn check_session_losses(
    process_events: &[ProcessEvent],
    session: Duration,
    checks: &mut Checks,
) -> Result<()> {
    for note in process_events {
        let ProcessEvent::SessionLost { worker_number, at } = note else { continue };
        let is_explained = process_events.iter().any(|other| match other {
            ProcessEvent::Frozen { worker_number: frozen, .. } => frozen == worker_number,
            ProcessEvent::Restarted { from, until, .. } => {
                until.since(*from) > session / 2 && from < at && *at < until.plus(session)
            }
            _ => false,
        });
        checks.that(is_explained, || {
            format!("life {worker_number} lost its session at {at} without a reason")
        })?;
    }
    Ok(())
}

/// Everything that was acknowledged or attempted is in the snapshot.
pub(crate) fn check_acknowledged(
    workdir: &Workdir,
    snapshot: &WorldSnapshot,
    checks: &mut Checks,
) -> Result<()> {
    for ack in workdir.acks()? {
        let (Ack::Started(key) | Ack::Sent(key) | Ack::Ended(key)) = &ack;
        let run = snapshot.runs.get(key);
        let is_correct = run.is_some_and(|run| match ack {
            Ack::Started(_) => true,
            Ack::Sent(_) => run.view.sent > 0,
            Ack::Ended(_) => run.view.status.is_final(),
        });
        checks.that(is_correct, || format!("{ack:?} was acknowledged, but is lost"))?;
    }
    let announced = announced(snapshot);
    for note in workdir.attempts()? {
        let is_correct = announced.contains_key(&(note.key.clone(), note.attempt));
        checks.that(is_correct, || format!("{note:?} came before the commit that announces it"))?;
    }
    Ok(())
}

/// Checks that all runs have ended, and that every effect has happened once.
pub(crate) async fn check_end(
    workdir: &Workdir,
    client: &Client,
    seed: u64,
    worker_losses: &WorkerLosses,
    checks: &mut Checks,
) -> Result<Audit> {
    check_database(workdir, checks).await?;
    let mut snapshot = WorldSnapshot::take(client, checks).await?;
    snapshot.check_end(checks)?;
    check_acknowledged(workdir, &snapshot, checks)?;
    let mut audit = Audit { runs: snapshot.runs.len(), ..Audit::default() };
    let lag = workdir.world().lag();
    check_attempts(&workdir.attempts()?, &snapshot, worker_losses, lag, checks, &mut audit)?;
    if snapshot.runs.values().any(booking::is_booking) {
        audit.bookings = booking::take_and_check(workdir, &mut snapshot, checks).await?;
    }
    check_money(&workdir.entries()?, &snapshot, seed, checks, &mut audit)?;
    Ok(audit)
}

fn announced(snapshot: &WorldSnapshot) -> BTreeMap<(String, u32), AnnouncedAttempt> {
    snapshot.runs.values().flat_map(RunSnapshot::announced).collect()
}

/// Every attempt was made once, and repeated only when its worker was lost. No attempt was made after its outcome was
/// recorded, except by frozen workers.
fn check_attempts(
    notes: &[AttemptNote],
    snapshot: &WorldSnapshot,
    worker_losses: &WorkerLosses,
    lag: Duration,
    checks: &mut Checks,
    audit: &mut Audit,
) -> Result<()> {
    let announced = announced(snapshot);
    let mut made: BTreeMap<(String, u32), BTreeMap<u32, usize>> = BTreeMap::new();
    for note in notes {
        let attempt = (note.key.clone(), note.attempt);
        let ended = announced.get(&attempt).and_then(|attempt_end| attempt_end.ended);
        if ended.is_some_and(|ended| note.at > ended.plus(lag)) {
            let lost_session = worker_losses.lost.contains(&note.worker_number);
            checks.that(lost_session, || format!("{note:?} was made after its outcome was recorded"))?;
            audit.late += 1;
        }
        *made.entry(attempt).or_default().entry(note.worker_number).or_default() += 1;
    }
    for (attempt, workers) in &made {
        let unexplained = |(worker_number, count): (&u32, &usize)| {
            count.saturating_sub(worker_losses.times.get(worker_number).copied().unwrap_or(0))
        };
        let unexplained_count: usize = workers.iter().map(unexplained).sum();
        checks.that(unexplained_count <= 1, || {
            format!("attempt {attempt:?} was made again without a reason: {workers:?}")
        })?;
        audit.repeated += workers.values().sum::<usize>() - 1;
    }
    for (attempt, attempt_end) in &announced {
        let is_correct = attempt_end.ended.is_none() || made.contains_key(attempt);
        checks.that(is_correct, || format!("attempt {attempt:?} has an outcome, but was never made"))?;
    }
    audit.attempts = notes.len();
    Ok(())
}

/// The sum of all entries is zero, and the entries of each transfer match its run.
fn check_money(
    entries: &[BankEntry],
    snapshot: &WorldSnapshot,
    seed: u64,
    checks: &mut Checks,
    audit: &mut Audit,
) -> Result<()> {
    audit.entries = entries.len();
    let (mut keys, mut receipts) = (BTreeSet::new(), BTreeSet::new());
    let mut legs: BTreeMap<u64, BTreeMap<Leg, &BankEntry>> = BTreeMap::new();
    for entry in entries {
        checks.that(keys.insert(&entry.key), || format!("the bank has two entries for {}", entry.key))?;
        if let Ok(receipt) = entry.answer {
            checks.that(receipts.insert(receipt), || format!("receipt {receipt} was given twice"))?;
        }
        let before = legs.entry(entry.transfer).or_default().insert(entry.leg, entry);
        checks.that(before.is_none(), || format!("{:?} of transfer {}: two", entry.leg, entry.transfer))?;
    }
    let sum: i64 = entries.iter().filter(|entry| entry.answer.is_ok()).map(|entry| entry.cents).sum();
    checks.that(sum == 0, || format!("the entries add up to {sum} cents instead of 0"))?;
    for (key, run) in &snapshot.runs {
        if let Some(id) = Transfer::id_of(key) {
            let entries_by_leg = legs.remove(&id).unwrap_or_default();
            check_transfer(&Transfer::numbered(seed, id), run, &entries_by_leg, checks)?;
        } else {
            check_batch(key, run, snapshot, checks)?;
        }
    }
    checks.that(legs.is_empty(), || format!("the bank has transfers without a run: {legs:?}"))
}

fn check_transfer(
    order: &Transfer,
    run: &RunSnapshot,
    entries_by_leg: &BTreeMap<Leg, &BankEntry>,
    checks: &mut Checks,
) -> Result<()> {
    for (leg, entry) in entries_by_leg {
        let (account, cents) = match leg {
            Leg::Debit => (order.from, -order.cents),
            Leg::Credit => (order.to, order.cents),
            Leg::Refund => (order.from, order.cents),
        };
        let is_correct = (entry.account, entry.cents) == (account, cents);
        checks.that(is_correct, || format!("{entry:?} is not a part of {order:?}"))?;
    }
    let receipt = |leg| entries_by_leg.get(&leg).and_then(|entry| entry.answer.as_ref().ok()).copied();
    let output = output::<TransferOutput>(run)?;
    let (debit, credit, refund) = (receipt(Leg::Debit), receipt(Leg::Credit), receipt(Leg::Refund));
    let is_correct = match (run.view.status, &output) {
        (Status::Completed, Some(output)) => {
            output.credit.is_some() != output.refund.is_some()
                && (Some(output.debit), output.credit, output.refund) == (debit, credit, refund)
        }
        // Not enough money: the debit was refused, and no other request followed.
        (Status::Failed, None) => {
            entries_by_leg.len() == 1 && entries_by_leg.contains_key(&Leg::Debit) && debit.is_none()
        }
        (Status::Cancelled, None) => credit.is_none() && debit.is_some() == refund.is_some(),
        _ => false,
    };
    checks.that(is_correct, || {
        format!("{order:?} is {} with {output:?}, but the bank says {entries_by_leg:?}", run.view.status)
    })
}

/// The output of a batch has the outputs of all its transfers.
fn check_batch(key: &str, run: &RunSnapshot, snapshot: &WorldSnapshot, checks: &mut Checks) -> Result<()> {
    let outputs: Vec<Option<TransferOutput>> =
        output(run)?.ok_or_else(|| format!("{key} is {}", run.view.status))?;
    let first: u64 = key.strip_prefix("batch-").ok_or("a run has an unknown key")?.parse()?;
    for (id, expected) in (first..).zip(&outputs) {
        let child = snapshot.runs.get(&format!("transfer-{id}"));
        let child = child.ok_or_else(|| format!("transfer {id} of {key} is missing"))?;
        let returned = output::<TransferOutput>(child)?;
        checks.that(returned == *expected, || {
            format!("{key} has {expected:?} of transfer {id}, not {returned:?}")
        })?;
    }
    Ok(())
}

fn output<T: serde::de::DeserializeOwned>(run: &RunSnapshot) -> Result<Option<T>> {
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

    /// Audits an attempt that these workers made, one after the other.
    fn audit_attempts(lives: &[u32], process_events: &[ProcessEvent]) -> Result<Audit, String> {
        let snapshot = WorldSnapshot {
            runs: BTreeMap::new(),
            built_in: Vec::new(),
            after_end: BTreeMap::new(),
            counts: Counts::new(),
            workers: 0,
        };
        let note = |worker_number: &u32| AttemptNote {
            key: "run.0.1".into(),
            attempt: 1,
            step: "debit".into(),
            worker_number: *worker_number,
            at: Timestamp::from_micros(0),
        };
        let (notes, mut audit) = (lives.iter().map(note).collect::<Vec<_>>(), Audit::default());
        let (worker_losses, lag) = (WorkerLosses::of(process_events), Duration::ZERO);
        check_attempts(&notes, &snapshot, &worker_losses, lag, &mut Checks::default(), &mut audit)
            .map(|()| audit)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_attempt_is_repeated_only_when_its_worker_was_lost() {
        let (killed, lost) = (
            ProcessEvent::Killed { worker_number: 1 },
            ProcessEvent::SessionLost { worker_number: 2, at: Timestamp::from_micros(0) },
        );
        assert_eq!(audit_attempts(&[1], &[]).unwrap().repeated, 0);
        assert!(audit_attempts(&[1, 2], &[]).unwrap_err().contains("made again without a reason"));
        assert!(audit_attempts(&[1, 1], &[]).is_err(), "not by the same worker either");
        assert_eq!(audit_attempts(&[1, 2], std::slice::from_ref(&killed)).unwrap().repeated, 1);
        assert!(audit_attempts(&[1, 2, 3], std::slice::from_ref(&killed)).is_err());
        assert_eq!(audit_attempts(&[1, 2, 2], &[killed, lost]).unwrap().repeated, 2);
    }

    #[test]
    fn a_worker_that_was_not_frozen_keeps_its_session_when_the_server_restarts() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let lost = ProcessEvent::SessionLost { worker_number: 2, at: at(10) };
        let frozen = |worker_number| ProcessEvent::Frozen { worker_number, from: at(1), until: at(9) };
        let restarted = |until| ProcessEvent::Restarted { how: "fast".into(), from: at(4), until: at(until) };
        let robbed = |process_events: &[ProcessEvent]| {
            check_session_losses(process_events, Duration::from_secs(6), &mut Checks::default()).is_err()
        };
        assert!(robbed(std::slice::from_ref(&lost)) && robbed(&[lost.clone(), frozen(1)]));
        assert!(!robbed(&[lost.clone(), frozen(2)]));
        assert!(robbed(&[lost.clone(), restarted(5)]), "it was back soon enough");
        assert!(!robbed(&[lost, restarted(8)]));
        let later = ProcessEvent::SessionLost { worker_number: 2, at: at(15) };
        assert!(robbed(&[later, restarted(8)]), "it was back for long");
    }
}
