//! Transactional steps: processes are killed at every point of a transfer, and at random times. Every effect is a row
//! without a key, so an effect that happens twice, or without its outcome, is found by counting rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast::prelude::*;
use outlast::sqlite::rusqlite::Connection;
use outlast::{Status, World};
use outlast_conformance::KillerWorld;
use throwaway::wait_until;

use crate::child::{ChildArgs, ChildExit, ChildProcess, Program, sleep_thread};
use crate::postgres_schema::{Schema, with_client};
use crate::process_folder::{Outputs, ProcessFolder};
use crate::snapshot::{WorldSnapshot, is_any_near_poison};

/// The number of kills at random times, unless `OUTLAST_KILLS` says otherwise.
const KILLS: usize = 12;

/// The number of runs that each process of a kill loop adds: as many as it cannot end before it is killed.
const RUNS_PER_CHILD: u32 = 300;
const RUNS_PER_CHILD_ON_SERVER: u32 = 20;

/// The number of runs of a process that is killed at a chosen point.
const RUNS_OF_SWEEP: u32 = 3;

/// The number of sweeps at the same time.
const CONCURRENT_TRIALS: usize = 3;

#[test]
fn effects_happen_once_in_a_process_killed_at_every_point() {
    sweep(None);
}

#[test]
fn effects_happen_once_in_a_process_killed_at_some_points_on_postgres() {
    throwaway::needs_postgres!();
    sweep(Some(10));
}

#[test]
fn effects_happen_once_in_processes_killed_at_random_times() {
    let folder = tempfile::tempdir().unwrap();
    kill_repeatedly(&ProcessFolder::new(folder.path()));
}

#[test]
fn effects_happen_once_in_processes_killed_at_random_times_on_postgres() {
    throwaway::needs_postgres!();
    let folder = tempfile::tempdir().unwrap();
    let schema = Schema::make(0);
    kill_repeatedly(&ProcessFolder {
        world_url: Some(schema.url.clone()),
        ..ProcessFolder::new(folder.path())
    });
}

/// Kills a process at each of its points, or at this many random ones on Postgres.
fn sweep(some: Option<u64>) {
    let points = {
        let (_folder, process_folder, _schema) = new_folder(some.is_some());
        assert_eq!(start_child(&process_folder, RUNS_OF_SWEEP, None).end(), ChildExit::Done);
        check(&process_folder, RUNS_OF_SWEEP);
        process_folder.report().points
    };
    let chosen: Vec<u64> = match some {
        None => (1..=points).collect(),
        Some(count) => (0..count).map(|_| fastrand::u64(1..=points)).collect(),
    };
    println!("{points} points, killed at {chosen:?}");
    let next = std::sync::Mutex::new(chosen.into_iter());
    let killed = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENT_TRIALS {
            scope.spawn(|| {
                while let Some(point) = { next.lock().unwrap().next() } {
                    let (_folder, process_folder, _schema) = new_folder(some.is_some());
                    if start_child(&process_folder, RUNS_OF_SWEEP, Some(point)).end() == ChildExit::Killed {
                        killed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    assert_eq!(start_child(&process_folder, RUNS_OF_SWEEP, None).end(), ChildExit::Done);
                    check(&process_folder, RUNS_OF_SWEEP);
                }
            });
        }
    });
    let (killed, least) = (killed.into_inner(), if some.is_some() { 5 } else { 25 });
    assert!(killed >= least, "only {killed} processes were killed at their point, fewer than {least}");
}

fn new_folder(is_on_server: bool) -> (tempfile::TempDir, ProcessFolder, Option<Schema>) {
    let folder = tempfile::tempdir().unwrap();
    let schema = is_on_server.then(|| Schema::make(0));
    let world_url = schema.as_ref().map(|schema| schema.url.clone());
    let process_folder = ProcessFolder { world_url, ..ProcessFolder::new(folder.path()) };
    (folder, process_folder, schema)
}

fn kill_repeatedly(process_folder: &ProcessFolder) {
    let seed = std::env::var("OUTLAST_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("seed: OUTLAST_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let wanted = std::env::var("OUTLAST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let more = if process_folder.world_url.is_some() { RUNS_PER_CHILD_ON_SERVER } else { RUNS_PER_CHILD };
    let (mut starts, mut kills) = (more, 0);
    for number in 1.. {
        if kills == wanted {
            break;
        }
        assert!(number <= 4 * wanted, "the processes end before they can be killed");
        let mut child = start_child(process_folder, starts, None);
        starts += more;
        let enough = count_effects(process_folder) + rng.i64(1..=40);
        wait_until("some effects", || {
            (count_effects(process_folder) >= enough || child.has_ended()).then_some(())
        });
        sleep_thread(Duration::from_micros(rng.u64(0..4_000)));
        if child.has_ended() {
            continue;
        }
        child.kill();
        kills += 1;
        if is_any_near_poison(&process_folder.copy_database(&format!("at-kill-{kills}"))) {
            // One more kill would leave a run stuck.
            assert_eq!(start_child(process_folder, starts, None).end(), ChildExit::Done);
        }
    }
    assert_eq!(start_child(process_folder, starts, None).end(), ChildExit::Done);
    check(process_folder, starts);
    println!("{starts} runs, {kills} kills");
}

fn start_child(process_folder: &ProcessFolder, starts: u32, point: Option<u64>) -> ChildProcess {
    let process_folder = process_folder.clone();
    ChildProcess::start(ChildArgs { program: Program::Transfers { starts }, process_folder, point })
}

/// Every effect of every run happened once, and the runs ended as they should.
fn check(process_folder: &ProcessFolder, starts: u32) {
    let mut expected = BTreeMap::new();
    for number in 0..starts {
        let effects: &[&str] = if fails(number) { &["debit", "undo"] } else { &["debit", "credit"] };
        expected.extend(effects.iter().map(|effect| ((key(number), (*effect).to_owned()), 1)));
    }
    assert_eq!(effects(process_folder), expected);
    // A snapshot contains a limited number of runs.
    let snapshot = WorldSnapshot::take(process_folder);
    assert!(!snapshot.runs.is_empty());
    for (key, run) in &snapshot.runs {
        let number = key.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap();
        let status = if fails(number) { Status::Failed } else { Status::Completed };
        assert_eq!(run.view.status, status, "{key}");
    }
}

fn key(number: u32) -> String {
    format!("transfer-{number}")
}

/// Whether a run fails after its first step, and undoes it.
fn fails(number: u32) -> bool {
    number.is_multiple_of(3)
}

/// How often each effect of each run happened.
fn effects(process_folder: &ProcessFolder) -> BTreeMap<(String, String), i64> {
    const COUNTS: &str = "SELECT run, effect, count(*) FROM effects GROUP BY run, effect";
    match &process_folder.world_url {
        None => {
            let file = open_file(process_folder);
            let mut statement = file.prepare(COUNTS).unwrap();
            let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?))).unwrap();
            rows.map(Result::unwrap).collect()
        }
        Some(url) => {
            let mut effects = BTreeMap::new();
            create_table(url);
            let sql = COUNTS.replace("effects", &server_table(url));
            with_client(url, async |client| {
                let rows = client.query(&sql, &[]).await.unwrap();
                effects.extend(rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))));
            });
            effects
        }
    }
}

fn count_effects(process_folder: &ProcessFolder) -> i64 {
    if process_folder.world_url.is_none() {
        // Only a connection that waits for no lock is fast enough.
        let file = Connection::open(process_folder.database()).unwrap();
        return file.query_row("SELECT count(*) FROM effects", [], |row| row.get(0)).unwrap_or(0);
    }
    effects(process_folder).values().sum()
}

fn open_file(process_folder: &ProcessFolder) -> Connection {
    let connection = Connection::open(process_folder.database()).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection.execute_batch("CREATE TABLE IF NOT EXISTS effects (run TEXT, effect TEXT)").unwrap();
    connection
}

fn create_table(url: &str) {
    // Two processes must not create it at the same time.
    let sql = format!(
        "SELECT pg_advisory_lock(7); CREATE TABLE IF NOT EXISTS {} (run text, effect text)",
        server_table(url)
    );
    with_client(url, async |client| client.batch_execute(&sql).await.unwrap());
}

/// The table on the server, in the schema of the world.
fn server_table(url: &str) -> String {
    let schema = url.split("schema=").nth(1).unwrap().split('&').next().unwrap();
    format!("{schema}.effects")
}

/// What the steps use: the table, and the world that kills the process at a point.
#[derive(Clone)]
struct Bank {
    table: String,
    world: Arc<KillerWorld>,
}

const MOVE: Step<(String, String), u32> = Step::new("move").transactional();
const UNDO: Step<Undo<(String, String), u32>, ()> = Step::new("undo").transactional();

#[step(name = "move", transactional)]
fn move_in_file(
    tx: &SqliteTx<'_>,
    cx: StepContext<Bank>,
    run: String,
    effect: String,
) -> Result<u32, StepError> {
    insert(tx, &cx, &run, &effect)?;
    Ok(7)
}

#[step(name = "undo", transactional)]
fn undo_in_file(
    tx: &SqliteTx<'_>,
    cx: StepContext<Bank>,
    undo: Undo<(String, String), u32>,
) -> Result<(), StepError> {
    assert_eq!(undo.output, Some(7), "only a step that completed is undone");
    insert(tx, &cx, &undo.input.0, "undo")
}

fn insert(tx: &SqliteTx<'_>, cx: &StepContext<Bank>, run: &str, effect: &str) -> Result<(), StepError> {
    cx.state().world.pass();
    tx.prepare_cached("INSERT INTO effects VALUES (?1, ?2)")?.execute([run, effect])?;
    cx.state().world.pass();
    Ok(())
}

#[step(name = "move", transactional)]
async fn move_on_server(
    tx: &mut PgTx<'_>,
    cx: StepContext<Bank>,
    run: String,
    effect: String,
) -> Result<u32, StepError> {
    insert_on_server(tx, &cx, &run, &effect).await?;
    Ok(7)
}

#[step(name = "undo", transactional)]
async fn undo_on_server(
    tx: &mut PgTx<'_>,
    cx: StepContext<Bank>,
    undo: Undo<(String, String), u32>,
) -> Result<(), StepError> {
    assert_eq!(undo.output, Some(7), "only a step that completed is undone");
    insert_on_server(tx, &cx, &undo.input.0, "undo").await
}

async fn insert_on_server(
    tx: &PgTx<'_>,
    cx: &StepContext<Bank>,
    run: &str,
    effect: &str,
) -> Result<(), StepError> {
    cx.state().world.pass();
    let insert = tx.prepare_cached(&format!("INSERT INTO {} VALUES ($1, $2)", cx.state().table)).await?;
    tx.execute(&insert, &[&run, &effect]).await?;
    cx.state().world.pass();
    Ok(())
}

#[workflow]
async fn transfer(ctx: Context, key: String, fails: bool) -> Result<u32, Error> {
    let moved = ctx.step(MOVE, (key.clone(), "debit".to_owned())).undo(UNDO).await?;
    if fails {
        return Err(Error::msg("the account is closed"));
    }
    let received = ctx.step(MOVE, (key, "credit".to_owned())).await?;
    ctx.keep();
    Ok(moved + received)
}

/// Starts the runs and executes them until they have ended.
pub(crate) async fn run(
    process_folder: &ProcessFolder,
    world: Arc<KillerWorld>,
    starts: u32,
) -> Result<Outputs, Error> {
    let table = match &process_folder.world_url {
        None => {
            open_file(process_folder);
            "effects".to_owned()
        }
        Some(url) => {
            let url = url.clone();
            let created = tokio::task::spawn_blocking(move || create_table(&url));
            created.await.unwrap();
            server_table(process_folder.world_url.as_deref().unwrap_or_default())
        }
    };
    let bank = Bank { table, world: world.clone() };
    let world: Arc<dyn World> = world;
    let builder = Worker::builder(world.clone()).state(bank).register(transfer);
    let worker = match &process_folder.world_url {
        None => builder.register((move_in_file, undo_in_file)).start().await?,
        Some(_) => builder.register((move_on_server, undo_on_server)).start().await?,
    };
    let client = Client::new(world);
    let mut runs = Vec::new();
    for number in 0..starts {
        let run = client.start(transfer, (key(number), fails(number))).key(key(number)).await?;
        if starts <= RUNS_OF_SWEEP {
            // One after the other, so that no commit contains the turns of two runs.
            drop(run.output().await);
        }
        runs.push(run);
    }
    for run in runs {
        // Some fail.
        drop(run.output().await);
    }
    worker.stop().await?;
    Ok(Outputs::new())
}
