//! `schema.sql` is what the migrations make, histories can be read with SQL, and schemas are kept apart.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Place, new_start};
use outlast_core::{Payload, RunId, Start, World, WorldError};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

/// Tables with their columns, constraints, indexes, views and functions, as Postgres writes them.
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
async fn the_dump_is_what_the_migrations_make() {
    let place = Place::new(TestClock::new());
    drop(place.open().await);
    let server = place.connect().await;
    let mut dump = "-- Generated: the schema as the migrations leave it.\n".to_owned();
    for row in server.query(DUMP, &[&place.schema]).await.unwrap() {
        dump.push('\n');
        let text: String = row.get(0);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        dump.push_str(&with_channel(&lines.join("\n").replace(&place.schema, "outlast")));
        dump.push('\n');
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(file, &dump).unwrap();
    }
    let kept = std::fs::read_to_string(file).unwrap_or_default();
    assert!(kept == dump, "`schema.sql` is out of date; run this test with UPDATE_SCHEMA=1");
}

/// The text with a word for the channel: its name is made of the schema's, which is another in each test.
fn with_channel(text: &str) -> String {
    let Some((before, rest)) = text.split_once("pg_notify('") else { return text.to_owned() };
    let (_, after) = rest.split_once('\'').unwrap();
    format!("{before}pg_notify('{{channel}}'{after}")
}

#[tokio::test]
async fn a_person_reads_a_history_with_sql() {
    let place = Place::new(TestClock::new());
    let world = place.open().await;
    let run = RunId::from_bits(1);
    let input = Payload::json(&"4\u{0}2").unwrap();
    let new = Start { workflow: "checkout".into(), input, ..new_start(run) };
    world.start(vec![new]).await.unwrap().remove(0).unwrap();
    let server = place.connect().await;
    let sql = format!(
        "SELECT seq, kind, op, body ->> 'input' FROM {}.events WHERE run = $1 ORDER BY seq",
        place.schema
    );
    let row = server.query_one(&sql, &[&run.to_string()]).await.unwrap();
    let event: (i64, String, Option<i64>, String) = (row.get(0), row.get(1), row.get(2), row.get(3));
    assert_eq!(event, (0, "run_started".into(), None, "4\u{FFFD}2".into()));
}

#[tokio::test]
async fn names_of_schemas_are_only_names() {
    for name in ["My%20Shop", "drop%22%3B--", "a'b"] {
        let place = Place::new(TestClock::new());
        let url = place.url().replace(&place.schema, name);
        let world = PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap();
        world.start(vec![new_start(RunId::from_bits(1))]).await.unwrap().remove(0).unwrap();
        assert_eq!(world.counts().await.unwrap().values().sum::<u64>(), 1, "{name}");
        let server = place.connect().await;
        let plain = name.replace("%20", " ").replace("%22", "\"").replace("%3B", ";");
        let drop = format!("DROP SCHEMA \"{}\" CASCADE", plain.replace('"', "\"\""));
        server.batch_execute(&drop).await.unwrap();
    }
    let place = Place::new(TestClock::new());
    let url = place.url().replace(&place.schema, "pg_mine");
    let refused = PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap_err();
    assert!(matches!(refused, WorldError::Invalid(_)), "{refused}");
}

#[tokio::test]
async fn a_newer_schema_without_the_functions_of_this_build_is_refused_and_an_old_one_when_asked() {
    let place = Place::new(TestClock::new());
    let off = format!("{}&migrate=off", place.url());
    let refused = PostgresWorld::open(&off, PostgresOptions::new()).await.unwrap_err();
    let named = format!("there is no schema `{}`", place.schema);
    assert!(
        matches!(&refused, WorldError::Conflict(why) if why.contains(&named) && why.contains("migrate(url)")),
        "{refused}"
    );
    outlast_postgres::migrate(&place.url()).await.unwrap();
    outlast_postgres::migrate(&place.url()).await.unwrap();
    drop(PostgresWorld::open(&off, PostgresOptions::new()).await.unwrap());
    let newer = format!("INSERT INTO {}.migrations (version) VALUES (99)", place.schema);
    place.connect().await.batch_execute(&newer).await.unwrap();
    drop(
        PostgresWorld::open(&off, PostgresOptions::new())
            .await
            .expect("the functions of this build are there"),
    );
    let dropped = format!("DROP FUNCTION {}.clock_v2()", place.schema);
    place.connect().await.batch_execute(&dropped).await.unwrap();
    let refused = PostgresWorld::open(&place.url(), PostgresOptions::new()).await.unwrap_err();
    assert!(matches!(&refused, WorldError::Conflict(why) if why.contains("newer build")), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_make_the_schema_at_the_same_time() {
    let place = Place::new(TestClock::new());
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = place.url();
            tokio::spawn(async move { PostgresWorld::open(&url, PostgresOptions::new()).await.map(drop) })
        })
        .collect();
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
}
