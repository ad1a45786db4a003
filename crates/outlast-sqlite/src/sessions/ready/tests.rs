//! What a look costs, in steps of SQLite's machine.

use outlast_core::event::FORMAT;
use outlast_core::limits::SUSPECT_CRASHES;
use outlast_core::queue::default_queues;
use rusqlite::StatementStatus;

use super::*;

/// Runs that are ready and may be claimed.
const READY: u32 = 100;

fn request() -> ClaimRequest {
    ClaimRequest {
        limit: READY as usize,
        code: [Code { workflow: "w".into(), version: 1 }].into(),
        queues: default_queues(),
        build: "mine".into(),
        format: FORMAT,
        suspects: SuspectRoom::Nothing,
        ends_overdue_from: Timestamp::NEVER,
    }
}

fn insert(connection: &Connection, run: u32, format: u32, crashes: u32, failed: &str) {
    let sql = "INSERT INTO runs (queue, priority, id, workflow, version, format, status, turn, next_seq, turn_at, \
               created_at, updated_at, ready_at, crashes, failed_builds, failed_at) \
               VALUES ('default', 0, ?1, 'w', 1, ?2, 'pending', 'turn_00000000000000000000000000', 1, 0, 0, 0, ?3, \
               ?4, ?5, 1)";
    let id = RunId::from_bits(run.into()).to_string();
    connection.execute(sql, params![id, format, run, crashes, failed]).unwrap();
}

/// How many steps of SQLite's machine a look takes that finds all that is ready.
fn steps(connection: &Connection) -> i32 {
    let found = look(
        connection,
        Timestamp::from_micros(1_000_000),
        SessionId::from_bits(1),
        &request(),
        READY as usize,
    );
    assert_eq!(found.unwrap().ready.len(), READY as usize);
    let statements = [&sql::READY_BY_CODE, &sql::READY_IN_LINE, &sql::DUE_IN_LINE, &sql::READY_CODELESS];
    let steps =
        statements.map(|sql| connection.prepare_cached(sql).unwrap().reset_status(StatementStatus::VmStep));
    steps.iter().sum()
}

/// The steps of a look with these runs beside, in hundredths of the steps without them.
fn cost_beside(beside: impl Fn(&Connection, u32)) -> i32 {
    let connection = Connection::open_in_memory().unwrap();
    crate::schema::migrate::make_schema(&connection).unwrap();
    connection.set_prepared_statement_cache_capacity(64);
    (0..READY).for_each(|run| insert(&connection, 100_000 + run, FORMAT, 0, ""));
    let alone = steps(&connection);
    connection.execute_batch("BEGIN").unwrap();
    (0..10_000).for_each(|run| beside(&connection, run));
    connection.execute_batch("COMMIT").unwrap();
    steps(&connection) * 100 / alone
}

#[test]
fn a_claim_beside_ten_thousand_runs_that_its_build_failed_costs_the_same() {
    let stuck = cost_beside(|connection, run| insert(connection, run, FORMAT, 0, "[\"other\",\"mine\"]"));
    assert!(stuck <= 110, "{stuck} %");
}

#[test]
fn a_claim_beside_ten_thousand_runs_of_a_higher_crash_class_costs_the_same() {
    let suspects = cost_beside(|connection, run| insert(connection, run, FORMAT, SUSPECT_CRASHES, ""));
    assert!(suspects <= 110, "{suspects} %");
}

#[test]
fn a_claim_beside_ten_thousand_runs_of_a_newer_format_costs_the_same() {
    let newer = cost_beside(|connection, run| insert(connection, run, FORMAT + 1, 0, ""));
    assert!(newer <= 110, "{newer} %");
}

#[test]
fn a_line_tells_the_crash_classes_apart() {
    let connection = Connection::open_in_memory().unwrap();
    crate::schema::migrate::make_schema(&connection).unwrap();
    for crashes in 0..=6 {
        insert(&connection, crashes, 2, crashes, "");
    }
    let mut statement = connection.prepare("SELECT line FROM runs ORDER BY crashes").unwrap();
    let lines: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    for (crashes, line) in (0..).zip(lines) {
        let class = if is_suspect(crashes) { crash_class(crashes) } else { 0 };
        assert_eq!(line, format!("2 {class} "));
    }
}
