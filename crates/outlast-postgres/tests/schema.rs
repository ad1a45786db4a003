//! `schema.sql` is the result of the migrations; histories can be read with SQL; schemas do not affect each other.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{TestSchema, new_start};
use outlast_core::{Payload, RunId, Start, World, WorldError};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

/// Tables with their columns, constraints, indexes, views and functions, as Postgres shows them.
const DUMP: &str = "
    SELECT format('%s %s: %s%s', 'table', c.relname,
        (SELECT string_agg(format('%s %s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END,
                coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '')), ', ' ORDER BY a.attnum)
         FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
        coalesce(' WITH (' || array_to_string(c.reloptions, ', ') || ')', '')), 1, c.relname
    FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'r'
    UNION ALL
    SELECT format('constraint %s of %s: %s', n.conname, n.conrelid::regclass, pg_get_constraintdef(n.oid)), 2, n.conname
    FROM pg_constraint n WHERE n.connamespace = $1::text::regnamespace
    UNION ALL
    SELECT indexdef, 3, indexname FROM pg_indexes WHERE schemaname = $1
    UNION ALL
    SELECT format('view %s: %s', viewname, definition), 4, viewname FROM pg_views WHERE schemaname = $1
    UNION ALL
    SELECT pg_get_functiondef(p.oid), 5, p.proname FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace
    ORDER BY 2, 3, 1";

#[tokio::test]
async fn the_dump_is_the_result_of_the_migrations() {
    let test_schema = TestSchema::new(TestClock::new());
    drop(test_schema.open().await);
    let server = test_schema.connect().await;
    let mut dump = "-- Generated: the schema as the migrations leave it.\n".to_owned();
    for row in server.query(DUMP, &[&test_schema.schema]).await.unwrap() {
        dump.push('\n');
        let text: String = row.get(0);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        dump.push_str(&with_channel(&lines.join("\n").replace(&test_schema.schema, "outlast")));
        dump.push('\n');
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(file, &dump).unwrap();
    }
    let kept = std::fs::read_to_string(file).unwrap_or_default();
    assert!(kept == dump, "`schema.sql` is out of date; run this test with UPDATE_SCHEMA=1");
}

/// The text with a placeholder for the channel, whose name depends on the schema's and is different in each test.
fn with_channel(text: &str) -> String {
    let Some((before, rest)) = text.split_once("pg_notify('") else { return text.to_owned() };
    let (_, after) = rest.split_once('\'').unwrap();
    format!("{before}pg_notify('{{channel}}'{after}")
}

#[tokio::test]
async fn a_history_can_be_read_with_sql() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open().await;
    let run = RunId::from_bits(1);
    let input = Payload::json(&"4\u{0}2").unwrap();
    let new = Start { workflow: "checkout".into(), input, ..new_start(run) };
    world.start(vec![new]).await.unwrap().remove(0).unwrap();
    let server = test_schema.connect().await;
    let sql = format!(
        "SELECT seq, kind, op, body ->> 'input' FROM {}.events WHERE run = $1 ORDER BY seq",
        test_schema.schema
    );
    let row = server.query_one(&sql, &[&run.to_string()]).await.unwrap();
    let event: (i64, String, Option<i64>, String) = (row.get(0), row.get(1), row.get(2), row.get(3));
    assert_eq!(event, (0, "run_started".into(), None, "4\u{FFFD}2".into()));
}

#[tokio::test]
async fn names_of_schemas_may_contain_any_characters_and_are_not_executed() {
    for name in ["My%20Shop", "drop%22%3B--", "a'b"] {
        let test_schema = TestSchema::new(TestClock::new());
        let url = test_schema.url().replace(&test_schema.schema, name);
        let world = PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap();
        world.start(vec![new_start(RunId::from_bits(1))]).await.unwrap().remove(0).unwrap();
        assert_eq!(world.counts().await.unwrap().values().sum::<u64>(), 1, "{name}");
        let server = test_schema.connect().await;
        let plain = name.replace("%20", " ").replace("%22", "\"").replace("%3B", ";");
        let drop = format!("DROP SCHEMA \"{}\" CASCADE", plain.replace('"', "\"\""));
        server.batch_execute(&drop).await.unwrap();
    }
    let test_schema = TestSchema::new(TestClock::new());
    let url = test_schema.url().replace(&test_schema.schema, "pg_mine");
    let error = PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap_err();
    assert!(matches!(error, WorldError::Invalid(_)), "{error}");
}

#[tokio::test]
async fn a_newer_schema_without_the_functions_of_this_build_and_a_missing_one_with_migrate_off_are_refused() {
    let test_schema = TestSchema::new(TestClock::new());
    let off = format!("{}&migrate=off", test_schema.url());
    let error = PostgresWorld::open(&off, PostgresOptions::new()).await.unwrap_err();
    let named = format!("there is no schema `{}`", test_schema.schema);
    assert!(
        matches!(&error, WorldError::Conflict(why) if why.contains(&named) && why.contains("migrate(url)")),
        "{error}"
    );
    outlast_postgres::migrate(&test_schema.url()).await.unwrap();
    outlast_postgres::migrate(&test_schema.url()).await.unwrap();
    drop(PostgresWorld::open(&off, PostgresOptions::new()).await.unwrap());
    let newer = format!("INSERT INTO {}.migrations (version) VALUES (99)", test_schema.schema);
    test_schema.connect().await.batch_execute(&newer).await.unwrap();
    drop(
        PostgresWorld::open(&off, PostgresOptions::new())
            .await
            .expect("the schema has the functions of this build"),
    );
    let dropped = format!("DROP FUNCTION {}.clock_v3()", test_schema.schema);
    test_schema.connect().await.batch_execute(&dropped).await.unwrap();
    let error = PostgresWorld::open(&test_schema.url(), PostgresOptions::new()).await.unwrap_err();
    assert!(matches!(&error, WorldError::Conflict(why) if why.contains("newer build")), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_can_create_the_schema_at_the_same_time() {
    let test_schema = TestSchema::new(TestClock::new());
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = test_schema.url();
            tokio::spawn(async move { PostgresWorld::open(&url, PostgresOptions::new()).await.map(drop) })
        })
        .collect();
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
}
