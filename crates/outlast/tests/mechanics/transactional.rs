//! Transactional steps: the effect and the outcome are one transaction, whatever happens meanwhile.

use std::time::Duration;

use outlast::prelude::*;
use outlast::sqlite::rusqlite::Connection;
use outlast::{ErrorKind, RunId, Status};
use outlast_testkit::{CrashPoint, TestWorld};
use tokio::sync::oneshot;
use tokio_postgres::NoTls;

use super::test_engine::{StepCalls, StepState, TestEngine, with_timeout};

/// Generates a test on each listed world, with a table for effects.
macro_rules! with_transactions {
    ($world:ident: $($name:ident),* $(,)?) => {
        mod $world {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    with_transactions!(@skip $world);
                    super::with_timeout(async { super::$name(super::Ledger::$world().await).await }).await;
                }
            )*
        }
    };
    (@skip sqlite) => {};
    (@skip postgres) => { throwaway::needs_postgres!() };
}

with_transactions! {
    sqlite:
    the_effect_and_the_outcome_are_one,
    a_failed_attempt_is_rolled_back_and_repeated,
    a_panic_rolls_back,
    an_outcome_without_a_turn_survives_the_worker,
    a_step_that_did_not_complete_is_not_undone,
    a_step_that_completed_is_undone,
    a_queued_step_is_transactional_too,
    steps_of_many_runs_have_their_effect_once,
    a_step_that_ends_its_transaction_fails,
    a_session_that_is_gone_cannot_commit,
    a_pause_behind_the_outcome_comes_too_late,
    a_cancel_behind_the_outcome_keeps_it,
    a_payload_behind_the_outcome_loses_the_race,
}

with_transactions! {
    postgres:
    the_effect_and_the_outcome_are_one,
    a_failed_attempt_is_rolled_back_and_repeated,
    a_panic_rolls_back,
    an_outcome_without_a_turn_survives_the_worker,
    a_step_that_did_not_complete_is_not_undone,
    a_step_that_completed_is_undone,
    a_queued_step_is_transactional_too,
    steps_of_many_runs_have_their_effect_once,
    a_step_that_ends_its_transaction_fails,
    a_session_that_has_ended_cannot_commit,
    the_outcome_of_a_paused_run_is_delivered_after_the_pause,
    a_cancelled_run_gets_the_outcome_of_its_attempt,
    a_timeout_rolls_back,
    a_step_that_the_workflow_drops_is_rolled_back,
}

const DEBIT: Step<(String, String), String> =
    Step::new("debit").transactional().retry(Retry::quick()).attempts(3);
const RESTORE: Step<Undo<(String, String), String>, ()> = Step::new("restore");

/// The table and what the step does.
type Debit = (String, String);

#[step(name = "debit", transactional)]
fn debit_in_file(
    tx: &SqliteTx<'_>,
    cx: StepContext<StepState>,
    table: String,
    what: String,
) -> Result<String, StepError> {
    cx.state().log(format!("began {what}"));
    tx.execute(&format!("INSERT INTO {table} VALUES (?1)"), [&what])?;
    match &*what {
        "commits" => tx.execute_batch("COMMIT")?,
        // As if another process had taken the session over.
        "fenced" if cx.attempt() == 1 => tx.execute_batch("DELETE FROM sessions")?,
        "stalls" if cx.attempt() == 1 => {
            let endless =
                "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";
            tx.query_row(endless, [], |row| row.get::<_, i64>(0))?;
        }
        _ => act(&cx, &what)?,
    }
    Ok(what)
}

#[step(name = "debit", transactional)]
async fn debit_on_server(
    tx: &mut PgTx<'_>,
    cx: StepContext<StepState>,
    table: String,
    what: String,
) -> Result<String, StepError> {
    cx.state().log(format!("began {what}"));
    tx.execute(&format!("INSERT INTO {table} VALUES ($1)"), &[&what]).await?;
    match &*what {
        "commits" => tx.batch_execute("COMMIT").await?,
        "blocked" => cx.state().wait_for_gate("go").await,
        "stalls" if cx.attempt() == 1 => tx.batch_execute("SELECT pg_sleep(60)").await?,
        // Longer than the server waits for a client that does nothing.
        "idles" if cx.attempt() == 1 => {
            let pause = || std::thread::park_timeout(Duration::from_millis(1_500));
            tokio::task::spawn_blocking(pause).await.unwrap();
        }
        _ => act(&cx, &what)?,
    }
    Ok(what)
}

/// Fails or panics, if the input says so.
fn act(cx: &StepContext<StepState>, what: &str) -> Result<(), StepError> {
    match what {
        "fails" if cx.attempt() < 3 => Err(StepError::msg("not yet")),
        "panics" if cx.attempt() == 1 => panic!("a bug"),
        "fatal" => Err(StepError::fatal("no such account")),
        _ => Ok(()),
    }
}

#[step(name = "restore")]
async fn restore(cx: StepContext<StepState>, undo: Undo<Debit, String>) {
    cx.state().log(format!("restored {:?}", undo.output));
}

#[workflow]
async fn transfer(ctx: Context, debit: Debit) -> Result<String, Error> {
    ctx.step(DEBIT, debit).await
}

#[workflow]
async fn undone(ctx: Context, debit: Debit) -> Result<(), Error> {
    ctx.step(DEBIT, debit).undo(RESTORE).await?;
    Err(Error::msg("the order is cancelled"))
}

#[workflow]
async fn queued(ctx: Context, debit: Debit) -> Result<String, Error> {
    ctx.step(DEBIT, debit).queue("default").await
}

#[workflow]
async fn impatient(ctx: Context, debit: Debit) -> Result<String, Error> {
    ctx.step(DEBIT, debit).timeout("5s").attempts(1).await
}

#[workflow]
async fn racing(ctx: Context, debit: Debit) -> Result<String, Error> {
    let winner = select! {
        stopped = ctx.hook::<u32>("stop") => stopped?.to_string(),
        debited = ctx.step(DEBIT, debit) => debited?,
    };
    ctx.note("after").await?;
    Ok(winner)
}

/// A test engine on a world with transactions, and a table for effects.
struct Ledger {
    engine: TestEngine,
    database: Database,
    table: String,
}

enum Database {
    File(Connection),
    Server(tokio_postgres::Client),
}

impl Ledger {
    async fn sqlite() -> Self {
        Self::on_file(TestEngine::sqlite().await)
    }

    fn on_file(engine: TestEngine) -> Self {
        let connection = Connection::open(engine.world.describe().place).unwrap();
        connection.execute_batch("CREATE TABLE effects (what TEXT)").unwrap();
        Self { engine, database: Database::File(connection), table: "effects".into() }
    }

    async fn postgres() -> Self {
        Self::on_server(TestEngine::postgres().await).await
    }

    async fn on_server(engine: TestEngine) -> Self {
        let table = throwaway::postgres::new_schema_name("effects");
        let (client, connection) =
            tokio_postgres::connect(throwaway::postgres::for_tests(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("CREATE TABLE {table} (what text)")).await.unwrap();
        Self { engine, database: Database::Server(client), table }
    }

    async fn worker(&self) -> Worker {
        let builder = self.engine.builder().register((transfer, undone, queued, impatient, racing, restore));
        let builder = match self.database {
            Database::File(_) => builder.register(debit_in_file),
            Database::Server(_) => builder.register(debit_on_server),
        };
        builder.start().await.unwrap()
    }

    fn debit(&self, what: &str) -> Debit {
        (self.table.clone(), what.to_owned())
    }

    /// The number of rows that steps have inserted and committed.
    async fn effects(&self) -> i64 {
        let sql = format!("SELECT count(*) FROM {}", self.table);
        match &self.database {
            Database::File(connection) => connection.query_row(&sql, [], |row| row.get(0)).unwrap(),
            Database::Server(client) => client.query_one(&sql, &[]).await.unwrap().get(0),
        }
    }
}

async fn the_effect_and_the_outcome_are_one(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(transfer, ledger.debit("plain")).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "plain");
    assert_eq!(ledger.effects().await, 1);
    ledger
        .engine
        .assert_history(
            run.id(),
            "0 step_started debit
             0 step_completed \"plain\"
             run_completed \"plain\"",
        )
        .await;
}

async fn a_failed_attempt_is_rolled_back_and_repeated(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(transfer, ledger.debit("fails")).await.unwrap();
    ledger.engine.run_to("10s").await;
    assert_eq!(run.output().await.unwrap(), "fails");
    assert_eq!(ledger.engine.steps.count("began fails"), 3);
    assert_eq!(ledger.effects().await, 1);
}

async fn a_panic_rolls_back(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(transfer, ledger.debit("panics")).await.unwrap();
    ledger.engine.run_to("10s").await;
    assert_eq!(run.output().await.unwrap(), "panics");
    assert_eq!(ledger.engine.steps.count("began panics"), 2);
    assert_eq!(ledger.effects().await, 1);
}

async fn an_outcome_without_a_turn_survives_the_worker(ledger: Ledger) {
    let worker = ledger.worker().await;
    let (reached, is_reached) = oneshot::channel();
    // The first commit announces the step, and the second one records its outcome.
    ledger.engine.faults.before_commit(1, async move {
        let _ = reached.send(());
        std::future::pending().await
    });
    let run = ledger.engine.client.start(transfer, ledger.debit("plain")).await.unwrap();
    is_reached.await.unwrap();
    assert_eq!(ledger.effects().await, 1);
    ledger.engine.crash(worker);
    let _worker = ledger.worker().await;
    ledger.engine.settle().await;
    assert_eq!(run.output().await.unwrap(), "plain");
    assert_eq!(ledger.engine.steps.count("began plain"), 1, "it is not attempted again");
    assert_eq!(ledger.effects().await, 1);
}

async fn a_step_that_did_not_complete_is_not_undone(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(undone, ledger.debit("fatal")).await.unwrap();
    assert!(run.output().await.unwrap_err().to_string().contains("no such account"));
    assert_eq!(ledger.engine.steps.logged(), ["began fatal"]);
    assert_eq!(ledger.effects().await, 0);
}

async fn a_step_that_completed_is_undone(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(undone, ledger.debit("plain")).await.unwrap();
    assert!(run.output().await.unwrap_err().to_string().contains("the order is cancelled"));
    assert_eq!(ledger.engine.steps.logged(), ["began plain", "restored Some(\"plain\")"]);
}

async fn a_queued_step_is_transactional_too(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(queued, ledger.debit("plain")).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "plain");
    assert_eq!(ledger.effects().await, 1);
}

async fn steps_of_many_runs_have_their_effect_once(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let starts = (0..50).map(|number| {
        let what = if number % 5 == 0 { "fatal" } else { "plain" };
        ledger.engine.client.start(transfer, ledger.debit(what)).into_future()
    });
    let runs = try_join_all(starts).await.unwrap();
    let outputs = join_all(runs.iter().map(|run| run.output())).await;
    assert_eq!(outputs.iter().filter(|output| output.is_ok()).count(), 40);
    assert_eq!(ledger.effects().await, 40);
}

async fn a_step_that_ends_its_transaction_fails(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(transfer, ledger.debit("commits")).await.unwrap();
    ledger.engine.run_to("10s").await;
    let error = run.output().await.unwrap_err();
    match ledger.database {
        // SQLite asks before it prepares the statement, so nothing was committed.
        Database::File(_) => {
            assert!(error.to_string().contains("not authorized"), "{error}");
            assert_eq!(ledger.effects().await, 0);
        }
        Database::Server(_) => assert!(error.to_string().contains("transaction itself"), "{error}"),
    }
    let run = ledger.engine.client.start(transfer, ledger.debit("plain")).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "plain", "the connection can be used");
}

async fn a_session_that_is_gone_cannot_commit(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(transfer, ledger.debit("fenced")).await.unwrap();
    ledger.engine.run_to("10s").await;
    assert_eq!(run.output().await.unwrap(), "fenced");
    assert_eq!(ledger.effects().await, 1, "the transaction of a session that has ended is rolled back");
}

async fn a_session_that_has_ended_cannot_commit(ledger: Ledger) {
    let worker = ledger.worker().await;
    let run = ledger.engine.client.start(transfer, ledger.debit("blocked")).await.unwrap();
    ledger.engine.steps.wait_for_log("began blocked", 1).await;
    ledger.engine.world.leave(worker.session()).await.unwrap();
    ledger.engine.steps.open("go");
    // The worker joins again, and attempts the step again.
    assert_eq!(run.output().await.unwrap(), "blocked");
    assert_eq!(ledger.engine.steps.count("began blocked"), 2);
    assert_eq!(ledger.effects().await, 1);
}

async fn the_outcome_of_a_paused_run_is_delivered_after_the_pause(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(transfer, ledger.debit("blocked")).await.unwrap();
    ledger.engine.steps.wait_for_log("began blocked", 1).await;
    ledger.engine.client.pause(run.id()).await.unwrap();
    ledger.engine.steps.open("go");
    ledger.engine.settle().await;
    assert_eq!(ledger.effects().await, 1);
    assert!(!ledger.engine.history(run.id()).await.contains("step_completed"));
    ledger.engine.client.resume(run.id()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "blocked");
    assert_eq!(ledger.engine.steps.count("began blocked"), 1);
}

async fn a_cancelled_run_gets_the_outcome_of_its_attempt(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(transfer, ledger.debit("blocked")).await.unwrap();
    ledger.engine.steps.wait_for_log("began blocked", 1).await;
    ledger.engine.client.cancel(run.id(), "stop").await.unwrap();
    ledger.engine.steps.open("go");
    assert_eq!(run.output().await.unwrap(), "blocked");
    assert_eq!(ledger.effects().await, 1);
}

async fn a_timeout_rolls_back(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(impatient, ledger.debit("blocked")).await.unwrap();
    ledger.engine.steps.wait_for_log("began blocked", 1).await;
    ledger.engine.clock.advance(std::time::Duration::from_secs(6));
    assert_eq!(run.output().await.unwrap_err().kind(), ErrorKind::Timeout);
    ledger.engine.steps.open("go");
    ledger.engine.settle().await;
    assert_eq!(ledger.effects().await, 0);
}

async fn a_step_that_the_workflow_drops_is_rolled_back(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(racing, ledger.debit("blocked")).await.unwrap();
    ledger.engine.steps.wait_for_log("began blocked", 1).await;
    ledger.engine.send(run.id(), "stop", 7).await;
    assert_eq!(run.output().await.unwrap(), "7");
    ledger.engine.steps.open("go");
    ledger.engine.settle().await;
    assert_eq!(ledger.effects().await, 0);
}

/// Makes the call just before the commit of the turn with the outcome of a run, which is in its inbox by then. Returns the
/// id of the run.
fn behind_the_outcome<C: Future<Output = ()> + Send + 'static>(
    ledger: &Ledger,
    call: impl FnOnce(Client, RunId) -> C,
) -> RunId {
    let (client, run) = (ledger.engine.client.clone(), ledger.engine.client.new_id());
    ledger.engine.faults.before_commit(1, call(client, run));
    run
}

async fn a_pause_behind_the_outcome_comes_too_late(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let pause = async |client: Client, run| assert!(client.pause(run).await.is_ok());
    let run = behind_the_outcome(&ledger, pause);
    let start = ledger.engine.client.start(transfer, ledger.debit("plain")).id(run);
    let run = start.await.unwrap();
    assert_eq!(run.output().await.unwrap(), "plain");
    assert_eq!(ledger.engine.steps.count("began plain"), 1);
    assert_eq!(ledger.effects().await, 1);
}

async fn a_cancel_behind_the_outcome_keeps_it(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let cancel = async |client: Client, run| assert!(client.cancel(run, "stop").await.is_ok());
    let run = behind_the_outcome(&ledger, cancel);
    let start = ledger.engine.client.start(transfer, ledger.debit("plain")).id(run);
    let run = start.await.unwrap();
    assert_eq!(run.output().await.unwrap(), "plain");
    assert_eq!(ledger.effects().await, 1);
}

async fn a_payload_behind_the_outcome_loses_the_race(ledger: Ledger) {
    let _worker = ledger.worker().await;
    let send = async |client: Client, run| client.send(run, "stop", &7_u32).await.unwrap();
    let run = behind_the_outcome(&ledger, send);
    let start = ledger.engine.client.start(racing, ledger.debit("plain")).id(run);
    let run = start.await.unwrap();
    assert_eq!(run.output().await.unwrap(), "plain");
    assert_eq!(ledger.effects().await, 1);
}

/// The first attempt does not end by itself. It is rolled back, the second one has its effect, and so does another run.
async fn check_timeout(ledger: Ledger, what: &str) {
    let _worker = ledger.worker().await;
    let run = ledger.engine.client.start(transfer, ledger.debit(what)).await.unwrap();
    ledger.engine.wait_for_history(run.id(), |history| history.contains("step_retried")).await;
    assert_eq!(ledger.effects().await, 0, "the first attempt is rolled back");
    let other = ledger.engine.client.start(transfer, ledger.debit("plain")).await.unwrap();
    assert_eq!(other.output().await.unwrap(), "plain");
    ledger.engine.run_to("10s").await;
    assert_eq!(run.output().await.unwrap(), what);
    assert_eq!(ledger.engine.steps.count(&format!("began {what}")), 2);
    assert_eq!(ledger.effects().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_without_end_is_interrupted_on_sqlite() {
    let engine = TestEngine::sqlite_with("timeout=1").await;
    with_timeout(check_timeout(Ledger::on_file(engine), "stalls")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_without_end_is_ended_by_postgres() {
    throwaway::needs_postgres!();
    let engine = TestEngine::postgres_with("pool=4&timeout=1").await;
    with_timeout(check_timeout(Ledger::on_server(engine).await, "stalls")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_in_which_nothing_happens_is_ended_by_postgres() {
    throwaway::needs_postgres!();
    let engine = TestEngine::postgres_with("pool=4&timeout=1").await;
    with_timeout(check_timeout(Ledger::on_server(engine).await, "idles")).await;
}

#[tokio::test]
async fn a_world_without_transactions_is_refused_when_the_worker_starts() {
    let world = outlast::open("memory:").await.unwrap();
    let builder = Worker::builder(world).state(()).register((buy, pay));
    let error = builder.start().await.unwrap_err().to_string();
    assert!(error.contains("step `pay` is transactional on an SQLite file"), "{error}");
    assert!(error.contains("open it with a `sqlite:` URL"), "{error}");
    assert!(error.contains(".on_sqlite()") && error.contains(".mock("), "{error}");
}

#[step(transactional)]
fn pay(tx: &SqliteTx<'_>, cents: u32) -> Result<i64, StepError> {
    tx.execute_batch("CREATE TABLE IF NOT EXISTS payments (cents)")?;
    tx.execute("INSERT INTO payments VALUES (?1)", [cents])?;
    Ok(tx.query_row("SELECT count(*) FROM payments", [], |row| row.get(0))?)
}

#[workflow]
async fn buy(ctx: Context, cents: u32) -> Result<i64, Error> {
    ctx.step(pay, cents).await
}

#[tokio::test]
async fn a_mock_needs_no_transaction() {
    let world = TestWorld::builder().register((buy, pay)).mock(pay, |_| Ok(7)).start().await;
    let run = world.client().start(buy, 5).await.unwrap();
    assert_eq!(world.run_until_done(&run).await.unwrap(), 7);
    world.stop().await.unwrap();
}

#[tokio::test]
async fn a_crash_after_the_effect_repeats_nothing_in_a_test_world() {
    let world = TestWorld::builder().on_sqlite().register((buy, pay)).start().await;
    world.crash_worker(CrashPoint::after_effect_of(pay));
    let run = world.client().start(buy, 5).await.unwrap();
    assert_eq!(world.run_until_done(&run).await.unwrap(), 1);
    assert_eq!(world.crashes(), 1);
    let run = world.client().start(buy, 5).await.unwrap();
    assert_eq!(world.run_until_done(&run).await.unwrap(), 2, "the first one paid once");
    assert_eq!(world.client().run(run.id()).await.unwrap().status, Status::Completed);
    world.stop().await.unwrap();
}
