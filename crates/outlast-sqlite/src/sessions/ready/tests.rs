//! The cost of a search, in steps of SQLite's virtual machine.

use outlast_core::event::FORMAT;
use outlast_core::limits::SUSPECT_CRASHES;
use outlast_core::queue::default_queues;
use rusqlite::StatementStatus;

use super::*;

/// The number of runs that are ready and that the worker may claim.
const READY_RUNS: u32 = 100;

fn request() -> ClaimRequest {
    ClaimRequest {
        limit: READY_RUNS as usize,
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

/// The number of steps of SQLite's virtual machine that a search for all ready runs takes.
fn steps(connection: &Connection) -> i32 {
    let found = find_claimable(
        connection,
        Timestamp::from_micros(1_000_000),
        SessionId::from_bits(1),
        &request(),
        READY_RUNS as usize,
    );
    assert_eq!(found.unwrap().ready.len(), READY_RUNS as usize);
    let statements = [&sql::READY_BY_CODE, &sql::READY_IN_LINE, &sql::DUE_IN_LINE, &sql::READY_WITHOUT_CODE];
    let steps =
        statements.map(|sql| connection.prepare_cached(sql).unwrap().reset_status(StatementStatus::VmStep));
    steps.iter().sum()
}

/// The cost of a search with 10,000 additional runs, in percent of its cost without them.
fn cost_with(insert_other: impl Fn(&Connection, u32)) -> i32 {
    let connection = Connection::open_in_memory().unwrap();
    crate::schema::migrate::create_schema(&connection).unwrap();
    connection.set_prepared_statement_cache_capacity(64);
    (0..READY_RUNS).for_each(|run| insert(&connection, 100_000 + run, FORMAT, 0, ""));
    let alone = steps(&connection);
    connection.execute_batch("BEGIN").unwrap();
    (0..10_000).for_each(|run| insert_other(&connection, run));
    connection.execute_batch("COMMIT").unwrap();
    steps(&connection) * 100 / alone
}

#[test]
fn ten_thousand_runs_that_its_build_failed_do_not_slow_down_a_claim() {
    let stuck = cost_with(|connection, run| insert(connection, run, FORMAT, 0, "[\"other\",\"mine\"]"));
    assert!(stuck <= 110, "{stuck} %");
}

#[test]
fn ten_thousand_runs_of_a_higher_crash_class_do_not_slow_down_a_claim() {
    let suspects = cost_with(|connection, run| insert(connection, run, FORMAT, SUSPECT_CRASHES, ""));
    assert!(suspects <= 110, "{suspects} %");
}

#[test]
fn ten_thousand_runs_of_a_newer_format_do_not_slow_down_a_claim() {
    let newer = cost_with(|connection, run| insert(connection, run, FORMAT + 1, 0, ""));
    assert!(newer <= 110, "{newer} %");
}

#[test]
fn runs_of_different_crash_classes_have_different_lines() {
    let connection = Connection::open_in_memory().unwrap();
    crate::schema::migrate::create_schema(&connection).unwrap();
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
