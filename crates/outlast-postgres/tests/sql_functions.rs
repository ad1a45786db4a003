//! The SQL functions for programs in other languages store the same data as the library.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::TestSchema;
use outlast_core::{Event, MessageBody, RunId, World};
use outlast_postgres::PostgresWorld;
use outlast_testkit::TestClock;
use tokio_postgres::Client;

async fn open() -> (TestSchema, PostgresWorld, Client) {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, server) = (test_schema.open_real_time().await, test_schema.connect().await);
    (test_schema, world, server)
}

async fn call(test_schema: &TestSchema, server: &Client, call: &str) -> RunId {
    let row = server.query_one(&format!("SELECT {}.{call}", test_schema.schema), &[]).await.unwrap();
    row.get::<_, &str>(0).parse().unwrap()
}

async fn input(world: &PostgresWorld, run: RunId) -> String {
    let turn = world.history(run, 0, 1).await.unwrap().remove(0);
    let Some(Event::RunStarted(started)) = turn.events.first() else { panic!("{turn:?}") };
    String::from_utf8(started.input.bytes().to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_with_the_escape_character_are_stored_and_read_unchanged() {
    let (test_schema, world, server) = open().await;
    let sql = "start_run('w\u{E000}', '1', key => 'k\u{E000}0', queue => 'q\u{E000}', tags => '{\"t\u{E000}\": \"v\u{E000}\"}')";
    let run = call(&test_schema, &server, sql).await;
    let view = world.run(run).await.unwrap();
    assert_eq!((&*view.workflow, view.key.as_deref()), ("w\u{E000}", Some("k\u{E000}0")));
    assert_eq!(&*view.queue, "q\u{E000}");
    assert_eq!(view.tags["t\u{E000}"], "v\u{E000}");
    let send = format!("SELECT {}.send_to('{run}', 'h\u{E000}', '2')", test_schema.schema);
    server.query_one(&send, &[]).await.unwrap();
    let message = world.inbox(run, 0).await.unwrap().remove(0);
    assert!(matches!(&message.body, MessageBody::Hook { name, .. } if &**name == "h\u{E000}"), "{message:?}");
    assert_eq!(call(&test_schema, &server, sql).await, run, "the key is the same text");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_may_be_text_json_or_jsonb() {
    let (test_schema, world, server) = open().await;
    let value = r#"'{"a":[1,"b, \": c"]}'"#;
    for typed in ["", "::text", "::json", "::jsonb"] {
        let run = call(&test_schema, &server, &format!("start_run('w', {value}{typed}, key => 'k')")).await;
        assert_eq!(input(&world, run).await, r#"{"a":[1,"b, \": c"]}"#, "{typed}");
        let send = format!("SELECT {}.send_to('{run}', 'h', {value}{typed})", test_schema.schema);
        server.query_one(&send, &[]).await.unwrap();
    }
    let runs = world.counts().await.unwrap().values().sum::<u64>();
    assert_eq!(runs, 1, "all inputs are equal, so the key names one run");
    let run = call(&test_schema, &server, "start_run('w')").await;
    assert_eq!(input(&world, run).await, "null");
    let run = call(&test_schema, &server, "start_run('w', NULL::jsonb)").await;
    assert_eq!(input(&world, run).await, "null");
}

/// The library passes limits with every call; the functions contain no limits of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_parameters_of_functions() {
    let (test_schema, _world, server) = open().await;
    let TestSchema { schema, .. } = &test_schema;
    let run = call(&test_schema, &server, "start_run('w')").await;
    let functions = format!(
        "UPDATE {schema}.runs SET owner = 'ses_1', status = 'running', crashes = 9 WHERE id = '{run}';
         INSERT INTO {schema}.sessions (id, host, pid, build, code, queues, time, rules, format, interface, joined_at, expires_at,
             beat_at, boot, has_lock) VALUES ('ses_1', 'h', 1, 'b', '[]', '[]', 1, 1, 1, 1, 0, 0, 0, 0, false);
         SELECT {schema}.end_session_v3(1, 'ses_1', true, NULL, 7);"
    );
    server.batch_execute(&functions).await.unwrap();
    let class = format!("SELECT held_class FROM {schema}.sessions WHERE id = 'ses_1'");
    assert_eq!(server.query_one(&class, &[]).await.unwrap().get::<_, i32>(0), 7);
    let limits = r#"{"poison_crashes":12,"suspect_crashes":6,"crash_class_max":8,"failed_builds":1,"retry":0,"message":"m"}"#;
    let free = format!("SELECT freed FROM {schema}.free_v3(1, 'ses_1', 10, '{limits}')");
    server.query(&free, &[]).await.unwrap();
    let crashes = format!("SELECT crashes FROM {schema}.runs WHERE id = '{run}'");
    let crashes: i32 = server.query_one(&crashes, &[]).await.unwrap().get(0);
    assert_eq!(crashes, 9, "a crash counts only for runs of class 7, and this one has class 8");
}
