//! `schema.sql` is the result of the migrations, and histories and inboxes can be read with SQL.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{TempDatabase, block_on, new_start};
use outlast_core::{
    Headers, MessageBody, MessageId, NewMessage, OpNumber, Outcome, Payload, RunId, Start, World,
};

#[test]
fn the_dump_is_the_result_of_the_migrations() {
    let database = TempDatabase::new();
    drop(database.open());
    let connection = rusqlite::Connection::open(database.path()).unwrap();
    let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name";
    let mut statement = connection.prepare(sql).unwrap();
    let statements = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let mut dump = "-- Generated: the schema as the migrations leave it.\n".to_owned();
    for statement in statements {
        dump.push('\n');
        dump.push_str(&statement.unwrap());
        dump.push_str(";\n");
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(file, &dump).unwrap();
    }
    let stored = std::fs::read_to_string(file).unwrap_or_default();
    assert!(stored == dump, "`schema.sql` is out of date; run this test with UPDATE_SCHEMA=1");
}

#[test]
fn a_history_can_be_read_with_sql() {
    let database = TempDatabase::new();
    let world = database.open();
    let run = RunId::from_bits(1);
    let start = Start { workflow: "checkout".into(), input: Payload::json(&42).unwrap(), ..new_start(run) };
    block_on(world.start(vec![start])).unwrap().remove(0).unwrap();
    let connection = rusqlite::Connection::open(database.path()).unwrap();
    let sql = "SELECT seq, kind, op, body ->> 'input' FROM events WHERE run = ?1 ORDER BY seq";
    let event = connection
        .query_row(sql, [run.to_string()], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, Option<i64>>(2)?,
                row.get::<_, i64>(3)?,
            ))
        })
        .unwrap();
    assert_eq!(event, (0, "run_started".into(), None, 42));
}

#[test]
fn an_inbox_can_be_read_with_sql() {
    let database = TempDatabase::new();
    let world = database.open();
    let run = RunId::from_bits(1);
    block_on(world.start(vec![new_start(run)])).unwrap().remove(0).unwrap();
    let outcome = Outcome::Completed(Payload::json(&42).unwrap());
    let bodies = [
        MessageBody::Terminate { reason: "enough".into() },
        MessageBody::Wake { op: Some(OpNumber(3)) },
        MessageBody::ChildEnded { op: OpNumber(4), outcome },
    ];
    let messages = (1..).zip(bodies).map(|(id, body)| {
        let (id, headers) = (MessageId::from_bits(id), Headers::new());
        NewMessage { id, run, body, headers }
    });
    block_on(world.send(messages.collect())).unwrap().into_iter().for_each(|sent| assert!(sent.is_ok()));
    let connection = rusqlite::Connection::open(database.path()).unwrap();
    let sql = "SELECT concat_ws(' ', kind, op, outcome, body) FROM inbox ORDER BY position";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let rows: Vec<String> = rows.map(Result::unwrap).collect();
    assert_eq!(rows, ["terminate enough", "wake 3", "child_ended 4 completed 42"]);
}

#[test]
fn tags_can_contain_nul_and_control_characters() {
    let database = TempDatabase::new();
    let world = database.open();
    let run = RunId::from_bits(1);
    let tags = [("a\0b", "1"), ("a\0c", "\0"), ("\"'\\", "é\u{1}")];
    let tags = tags.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let start = Start { tags, ..new_start(run) };
    block_on(world.start(vec![start.clone()])).unwrap().remove(0).unwrap();
    assert_eq!(block_on(world.run(run)).unwrap().tags, start.tags);
}
