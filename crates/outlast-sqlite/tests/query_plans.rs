//! The query plans of all statements in `sql/`: their cost does not grow with the number of runs.
//!
//! The files of worlds are never analysed, and neither is the file of these tests. The statements of pages are built
//! from templates, and the unit tests of `index_scan.rs` check their plans.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeMap;

use common::TempDatabase;
use rusqlite::Connection;

/// The scans of whole tables that are allowed, and why these tables are small.
const ALLOWED_SCANS: [(&str, &str); 12] = [
    ("SCAN counts", "a row per status"),
    ("SCAN sessions", "a row per joined worker"),
    ("SCAN skew", "one row"),
    (
        "SCAN heartbeats",
        "a row per running attempt with details, when a session ends; otherwise the first row is enough",
    ),
    ("SCAN clock", "one row"),
    ("SCAN compatibility", "one row"),
    ("SCAN leftovers", "a row per long run that is being deleted, and one is read at a time"),
    ("COVERING INDEX runs_marked", "a row per run with a mark, when they are counted"),
    ("SCAN runs USING INDEX runs_retrying", "runs that wait for a retry, counted up to a limit"),
    ("SCAN runs USING INDEX runs_cancelling", "runs that were asked to stop, counted up to a limit"),
    ("SCAN (subquery", "the rows of such a count"),
    ("VIRTUAL TABLE INDEX", "a list that is a parameter of the statement"),
];

/// The steps of each statement's plan, in any order.
const PLANS: [(&str, &[&str]); 100] = [
    (
        "chunks_read",
        &[
            "INDEX chunks_by_stream (run=? AND stream=? AND first>?)",
            "COVERING INDEX chunks_by_stream (run=? AND stream=? AND first<?)",
            "PRIMARY KEY (run=? AND op=? AND stream=?)",
        ],
    ),
    ("chunks_trim", &["INDEX chunks_by_stream (run=? AND stream=? AND first<?)"]),
    ("counts", &["SCAN counts"]),
    (
        "due_in_line",
        &["INDEX runs_ready (queue=? AND workflow=? AND version=? AND line=? AND priority=? AND ready_at>?)"],
    ),
    ("delete_candidate", &["PRIMARY KEY (id=?)"]),
    ("failures", &["INDEX runs_failed ((ended_at,id)>(?,?) AND (ended_at,id)<(?,?))", "PRIMARY KEY (run=?)"]),
    (
        "failures_by_fingerprint",
        &[
            "INDEX runs_by_fingerprint (fingerprint=? AND (ended_at,id)>(?,?) AND (ended_at,id)<(?,?))",
            "PRIMARY KEY (run=?)",
        ],
    ),
    ("first_build", &["INDEX turns_by_run (run=? AND seq=?)"]),
    ("heartbeat_delete", &["PRIMARY KEY (run=? AND op=?)", "PRIMARY KEY (id=?)"]),
    ("heartbeat_put", &["PRIMARY KEY (id=?)"]),
    ("heartbeats", &["PRIMARY KEY (run=?)"]),
    ("heartbeats_delete_ended", &["SCAN heartbeats", "PRIMARY KEY (id=?)"]),
    ("held_list", &["INDEX runs_held (owner=?)", "INDEX turns_by_run (run=? AND seq=?)"]),
    ("history", &["INDEX turns_by_run (run=? AND seq>?)"]),
    ("inbox_clear_consumed", &["PRIMARY KEY (run=? AND position>? AND position<?)"]),
    ("inbox_first_unconsumed", &["PRIMARY KEY (run=? AND position>?)"]),
    ("inbox_position", &["INDEX inbox_id (run=? AND id=?)"]),
    ("inbox_read", &["PRIMARY KEY (run=? AND position>?)"]),
    ("overdue_next", &["INDEX runs_overdue (deadline>?)"]),
    ("leftover_done", &["PRIMARY KEY (run=?)"]),
    ("mark_counts", &["COVERING INDEX runs_marked"]),
    ("prune_chunk", &["INTEGER PRIMARY KEY (rowid=?)"]),
    ("prune_chunk_sizes", &["INDEX chunks_by_stream (run=?)"]),
    ("prune_heartbeats", &["PRIMARY KEY (run=?)"]),
    ("prune_message_sizes", &["PRIMARY KEY (run=?)"]),
    ("prune_candidates", &["PRIMARY KEY (id>?)"]),
    ("prune_message", &["PRIMARY KEY (run=? AND position=?)"]),
    ("prune_runs", &["PRIMARY KEY (id=?)"]),
    ("prune_replies", &["PRIMARY KEY (run=?)"]),
    ("prune_tokens", &["INDEX tokens_by_run (run=?)"]),
    ("prune_tokens_keep", &["INDEX tokens_by_run (run=?)", "PRIMARY KEY (id=?)"]),
    ("replies_old", &["INDEX replies_by_time (at<?)"]),
    ("reply_delete", &["PRIMARY KEY (run=? AND message=?)"]),
    ("reply_read", &["PRIMARY KEY (run=? AND message=?)"]),
    ("run_reopen", &["PRIMARY KEY (id=?)"]),
    ("run_reopenable", &["PRIMARY KEY (id=?)"]),
    ("token_delete", &["PRIMARY KEY (hash=?)"]),
    ("token_free", &["PRIMARY KEY (hash=?)"]),
    ("token_keep", &["PRIMARY KEY (hash=?)"]),
    ("token_read", &["PRIMARY KEY (hash=?)", "PRIMARY KEY (id=?)"]),
    ("tokens_over", &["INDEX tokens_kept (kept_until<?)"]),
    ("prune_states", &["PRIMARY KEY (run=?)"]),
    ("prune_stream_writers", &["PRIMARY KEY (run=?)"]),
    ("prune_streams", &["PRIMARY KEY (run=?)"]),
    ("prune_tags", &["PRIMARY KEY (run=?)"]),
    ("prune_turn", &["INTEGER PRIMARY KEY (rowid=?)"]),
    ("prune_turn_sizes", &["INDEX turns_by_run (run=?)"]),
    (
        "queue_next_line",
        &[
            "INDEX runs_ready (queue=? AND workflow=? AND version=? AND line>?)",
            "INDEX runs_ready (queue=? AND workflow=? AND version>?)",
            "INDEX runs_ready (queue=? AND workflow>?)",
            "INDEX runs_ready (queue>?)",
        ],
    ),
    (
        "queue_next_priority",
        &["INDEX runs_ready (queue=? AND workflow=? AND version=? AND line=? AND priority<?)"],
    ),
    (
        "queue_ready",
        &["INDEX runs_ready (queue=? AND workflow=? AND version=? AND line=? AND priority=? AND ready_at"],
    ),
    (
        "queue_ready_failed",
        &["INDEX runs_ready (queue=? AND workflow=? AND version=? AND line=? AND priority=? AND ready_at"],
    ),
    ("queues_held", &["INDEX runs_held (owner>?)"]),
    ("queues_without_code", &["INDEX runs_codeless (ready_at"]),
    ("record_count", &["PRIMARY KEY (space=?)"]),
    ("record_delete", &["PRIMARY KEY (space=? AND id=?)"]),
    ("record_read", &["PRIMARY KEY (space=? AND id=?)"]),
    ("records_ascending", &["PRIMARY KEY (space=? AND id>?)"]),
    ("records_descending", &["PRIMARY KEY (space=? AND id<?)"]),
    ("ready_by_code", &["INDEX runs_ready (queue=? AND workflow=? AND version=? AND line>?)"]),
    ("ready_without_code", &["INDEX runs_codeless (ready_at>?)"]),
    ("ready_in_line", &["INDEX runs_ready (queue=? AND workflow=? AND version=? AND line=? AND priority<?)"]),
    ("ready_overdue", &["INDEX runs_overdue (deadline<?)"]),
    ("ready_steps", &["INDEX runs_ready (queue=? AND workflow>? AND workflow<?)"]),
    ("rules_lowest", &["INDEX sessions_by_rules"]),
    ("run_by_key", &["INDEX runs_key (key=?)"]),
    ("run_change", &["PRIMARY KEY (id=?)"]),
    ("run_claim", &["PRIMARY KEY (id=?)"]),
    ("run_ends", &["PRIMARY KEY (id=?)", "INDEX turns_by_run (run=?)"]),
    ("run_ended", &["PRIMARY KEY (id=?)"]),
    ("run_exists", &["PRIMARY KEY (id=?)"]),
    ("run_release", &["PRIMARY KEY (id=?)"]),
    ("run_is_ready", &["PRIMARY KEY (id=?)"]),
    ("run_holder", &["sessions USING PRIMARY KEY (id=?)", "runs USING PRIMARY KEY (id=?)"]),
    ("run_format", &["PRIMARY KEY (id=?)"]),
    ("turns_count", &["COVERING INDEX turns_by_run (run=? AND seq>? AND seq<?)"]),
    ("turns_copy", &["INDEX turns_by_run (run=? AND seq>? AND seq<?)"]),
    ("run_marks", &["PRIMARY KEY (id=?)"]),
    ("run_owner", &["PRIMARY KEY (id=?)"]),
    ("run_set_marks", &["PRIMARY KEY (id=?)"]),
    ("run_raise_format", &["PRIMARY KEY (id=?)"]),
    ("run_receiver", &["PRIMARY KEY (id=?)"]),
    ("run_resume", &["PRIMARY KEY (id=?)"]),
    ("run_sent", &["PRIMARY KEY (id=?)"]),
    ("run_position", &["PRIMARY KEY (id=?)", "INDEX turns_by_run (run=? AND seq=?)"]),
    ("run_clear_key", &["PRIMARY KEY (id=?)"]),
    ("run_view", &["PRIMARY KEY (id=?)", "PRIMARY KEY (run=?)"]),
    ("session_exists", &["PRIMARY KEY (id=?)"]),
    ("session_beat", &["PRIMARY KEY (id=?)", "INDEX runs_held (owner=?)"]),
    ("session_delete", &["PRIMARY KEY (id=?)"]),
    ("session_foreign_writes", &["PRIMARY KEY (id=?)"]),
    ("session_add_foreign_write", &["PRIMARY KEY (id=?)"]),
    ("state_read", &["PRIMARY KEY (run=?)"]),
    ("stream_read", &["PRIMARY KEY (run=? AND name=?)"]),
    ("stream_writers", &["PRIMARY KEY (run=? AND op=?)"]),
    ("streams", &["PRIMARY KEY (run=?)"]),
    ("streams_count", &["PRIMARY KEY (run=?)"]),
    ("turn_with_event", &["INDEX turns_by_run (run=? AND seq<?)"]),
    ("turns_delete_range", &["INDEX turns_by_run (run=? AND seq>? AND seq<?)"]),
    ("unread", &["INDEX runs_unread (owner=?)"]),
    ("workers", &["SCAN sessions", "INDEX runs_held (owner=?)"]),
];

/// The statements by name, without the templates of pages.
fn statements() -> BTreeMap<String, String> {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/sql")).unwrap();
    let statements = folder.map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        // Two columns represent all that only a run's holder changes: no index contains the others.
        let sql = std::fs::read_to_string(&path).unwrap();
        (
            name,
            sql.replace("{columns}", "crashes, deadline")
                .replace("{assigned}", "crashes, deadline")
                .replace("{values}", "?, ?"),
        )
    });
    statements.filter(|(_, sql)| !sql.contains("{filters}")).collect()
}

fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let parameters = vec![rusqlite::types::Null; statement.parameter_count()];
    let steps = statement.query_map(rusqlite::params_from_iter(parameters), |row| row.get(3)).unwrap();
    steps.collect::<Result<_, _>>().unwrap()
}

fn open_database() -> (TempDatabase, Connection) {
    let database = TempDatabase::new();
    drop(database.open());
    let connection = Connection::open(database.path()).unwrap();
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).unwrap();
    (database, connection)
}

#[test]
fn no_statement_scans_a_table_that_grows_or_sorts_its_rows() {
    let (_database, connection) = open_database();
    for (name, sql) in statements() {
        for step in plan(&connection, &sql) {
            let is_allowed = ALLOWED_SCANS.iter().any(|(scan, _)| step.contains(scan));
            assert!(!step.contains("SCAN") || is_allowed || step.contains("CONSTANT ROW"), "{name}: {step}");
            assert!(!step.contains("TEMP B-TREE"), "{name}: {step}");
        }
    }
}

#[test]
fn every_statement_uses_the_index_that_is_meant_for_it() {
    let (_database, connection) = open_database();
    let statements = statements();
    for (name, steps) in PLANS {
        let plan = plan(&connection, &statements[name]);
        for step in steps {
            assert!(plan.iter().any(|line| line.contains(step)), "{name}: {step} is not in {plan:#?}");
        }
    }
}

#[test]
fn every_statement_that_searches_rows_has_an_expected_plan() {
    let (_database, connection) = open_database();
    for (name, sql) in statements() {
        let searches = plan(&connection, &sql).iter().any(|step| step.contains("SEARCH"));
        assert!(!searches || PLANS.iter().any(|(known, _)| *known == name), "{name} has no line in PLANS");
    }
}
