//! Worlds on an existing pool, and behind a pooler.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{
    NO_EXPIRY, TestSchema, claim, commit, completed, join, new_start, one_event_turn, start, wait_until,
};
use outlast_core::{RunId, SessionId, Status, Then, Timestamp, World, WorldError};
use outlast_postgres::deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use outlast_postgres::tokio_postgres::{NoTls, SimpleQueryMessage};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;
use throwaway::PoolMode;

const SESSION: SessionId = SessionId::from_bits(1);
const RUN: RunId = RunId::from_bits(3);

fn pool(url: &str, size: usize) -> Pool {
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(url.parse().unwrap(), NoTls, config);
    Pool::builder(manager).max_size(size).build().unwrap()
}

fn schema_and_pool(size: usize) -> (TestSchema, Pool) {
    (TestSchema::new(TestClock::new()), pool(throwaway::postgres::for_tests(), size))
}

fn options(test_schema: &TestSchema) -> PostgresOptions {
    PostgresOptions::new().schema(&test_schema.schema)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_without_a_listener_connection_polls() {
    let (test_schema, pool) = schema_and_pool(4);
    let world = PostgresWorld::on_pool(pool, options(&test_schema)).await.unwrap();
    assert!(world.describe().hints.contains("polling"), "{:?}", world.describe());
    let other = test_schema.open_real_time().await;
    let waiting = async {
        let request = common::request();
        join(&world, SESSION, NO_EXPIRY).await;
        let epoch = world.claim(SESSION, request).await.unwrap().epoch;
        // Nothing changes in this world; only its own polling wakes the worker.
        world.changed(epoch, Timestamp::NEVER).await;
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap();
    start(&other, RUN).await;
    let (ended, ()) = tokio::join!(world.ended(RUN, Timestamp::NEVER), async {
        join(&other, SessionId::from_bits(2), NO_EXPIRY).await;
        let claimed = claim(&other, SessionId::from_bits(2)).await.remove(0);
        let mut end = one_event_turn(RUN, claimed.turn, 1, 10, Then::End(outlast_core::Status::Completed));
        end.events = vec![common::completed()];
        commit(&other, SessionId::from_bits(2), end).await.unwrap();
    });
    assert_eq!(ended.unwrap().unwrap().run, RUN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_with_a_listener_url_is_notified_and_its_death_is_noticed() {
    let (test_schema, pool) = schema_and_pool(4);
    let world = PostgresWorld::on_pool(pool, options(&test_schema).listen(test_schema.url())).await.unwrap();
    assert!(world.describe().hints.contains("NOTIFY"), "{:?}", world.describe());
    let other = test_schema.open_real_time().await;
    let second = SessionId::from_bits(2);
    join(&world, SESSION, NO_EXPIRY).await;
    join(&other, second, NO_EXPIRY).await;
    start(&world, RUN).await;
    assert_eq!(claim(&world, SESSION).await.len(), 1);
    drop(world);
    wait_until("its run is released", async || !claim(&other, second).await.is_empty()).await;
}

/// Work is polled every twenty seconds, and ends every two. Without notifications, the rounds would take far longer.
const TIME_LIMIT: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_without_a_listener_connection_notifies_worlds_that_have_one() {
    let (test_schema, pool) = schema_and_pool(4);
    let pool_world = PostgresWorld::on_pool(pool, options(&test_schema)).await.unwrap();
    let other = test_schema.open_real_time().await;
    let (second, started_at) = (SessionId::from_bits(2), Instant::now());
    join(&other, second, NO_EXPIRY).await;
    join(&pool_world, SESSION, NO_EXPIRY).await;
    for round in 1..=10 {
        // It notifies of starts.
        let epoch = other.claim(second, common::request()).await.unwrap().epoch;
        start(&pool_world, RunId::from_bits(round)).await;
        other.changed(epoch, Timestamp::NEVER).await;
        wait_until("claimed", async || !claim(&other, second).await.is_empty()).await;
        // It notifies of ends.
        let run = RunId::from_bits(100 + round);
        start(&other, run).await;
        let claimed = claim(&pool_world, SESSION).await;
        let mut end = one_event_turn(run, claimed[0].turn, 1, 1_000 + round, Then::End(Status::Completed));
        end.events = vec![completed()];
        let (ended, done) =
            tokio::join!(other.ended(run, Timestamp::NEVER), commit(&pool_world, SESSION, end));
        done.unwrap();
        assert_eq!(ended.unwrap().unwrap().run, run);
    }
    assert!(started_at.elapsed() < TIME_LIMIT, "{:?}", started_at.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_without_a_listener_connection_sends_its_notifications_before_it_is_closed() {
    let (test_schema, pool) = schema_and_pool(4);
    let other = test_schema.open_real_time().await;
    let started_at = Instant::now();
    join(&other, SESSION, NO_EXPIRY).await;
    for round in 1..=10 {
        let epoch = other.claim(SESSION, common::request()).await.unwrap().epoch;
        let pool_world = PostgresWorld::on_pool(pool.clone(), options(&test_schema)).await.unwrap();
        start(&pool_world, RunId::from_bits(round)).await;
        drop(pool_world);
        other.changed(epoch, Timestamp::NEVER).await;
        wait_until("claimed", async || !claim(&other, SESSION).await.is_empty()).await;
    }
    assert!(started_at.elapsed() < TIME_LIMIT, "{:?}", started_at.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_without_a_notification_is_found_by_reading() {
    let test_schema = TestSchema::new(TestClock::new());
    // A world with a virtual clock sends no notifications.
    let (client, worker) = (test_schema.open_real_time().await, test_schema.open().await);
    join(&worker, SESSION, NO_EXPIRY).await;
    start(&client, RUN).await;
    let claimed = claim(&worker, SESSION).await;
    let mut end = one_event_turn(RUN, claimed[0].turn, 1, 10, Then::End(Status::Completed));
    end.events = vec![completed()];
    commit(&worker, SESSION, end).await.unwrap();
    let ended = client.ended(RUN, Timestamp::from_micros(0)).await.unwrap();
    assert_eq!(ended.map(|ended| ended.run), Some(RUN));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_statements_on_the_pool_keep_their_settings() {
    let (test_schema, pool) = schema_and_pool(1);
    let world = PostgresWorld::on_pool(pool.clone(), options(&test_schema)).await.unwrap();
    let settings = "SELECT current_setting('enable_seqscan'), current_setting('plan_cache_mode'), \
                    current_setting('enable_sort')";
    start(&world, RUN).await;
    // Also drop a call before it has finished, unless it is too fast.
    let dropped_call = world.start(vec![new_start(RunId::from_bits(4))]);
    drop(tokio::time::timeout(Duration::ZERO, dropped_call).await);
    let client = pool.get().await.unwrap();
    let row = client.query_one(settings, &[]).await.unwrap();
    assert_eq!([row.get::<_, &str>(0), row.get(1), row.get(2)], ["on", "auto", "on"]);
    drop(client);
    // The world's statements have the settings: a function checks them.
    let server = test_schema.connect().await;
    let checking_function = format!(
        "CREATE OR REPLACE FUNCTION {0}.clock() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN \
         IF current_setting('enable_seqscan') <> 'off' OR current_setting('plan_cache_mode') <> 'force_generic_plan' \
         THEN RAISE EXCEPTION 'plain settings'; END IF; RETURN 1; END $$",
        test_schema.schema
    );
    server.batch_execute(&checking_function).await.unwrap();
    world.start(vec![new_start(RunId::from_bits(5))]).await.unwrap().remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_for_a_pool_without_a_free_connection_has_the_remedy() {
    let (test_schema, pool) = schema_and_pool(1);
    let mut options = options(&test_schema);
    options.timeout = Duration::from_secs(1);
    let world = PostgresWorld::on_pool(pool.clone(), options).await.unwrap();
    let taken = pool.get().await.unwrap();
    let error = world.counts().await.unwrap_err();
    assert!(
        matches!(&error, WorldError::Unavailable(why) if why.contains("make the pool larger")),
        "{error}"
    );
    drop(taken);
    world.counts().await.unwrap();
    // The same for the world's own pool.
    let own = PostgresWorld::open(&format!("{}&pool=1&timeout=1", test_schema.url()), PostgresOptions::new())
        .await
        .unwrap();
    let other = test_schema.connect().await;
    other.batch_execute(&format!("BEGIN; LOCK TABLE {}.runs", test_schema.schema)).await.unwrap();
    // Calls that do not share a statement, so all but the first wait for a connection.
    let prunes = (0..6).map(|_| own.prune(Timestamp::from_micros(1), None, 1));
    let error = futures_util::future::join_all(prunes).await;
    let is_named = |answer: &Result<_, WorldError>| matches!(answer, Err(WorldError::Unavailable(why)) if why.contains("raise `pool`"));
    assert!(error.iter().any(is_named), "{error:?}");
    other.batch_execute("ROLLBACK").await.unwrap();
    start(&own, RUN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_renewed_although_the_pool_is_full() {
    let test_schema = TestSchema::new(TestClock::new());
    let world =
        PostgresWorld::open(&format!("{}&pool=1", test_schema.url()), PostgresOptions::new()).await.unwrap();
    join(&world, SESSION, NO_EXPIRY).await;
    let other = test_schema.connect().await;
    other.batch_execute(&format!("BEGIN; LOCK TABLE {}.tags", test_schema.schema)).await.unwrap();
    let mut tagged = new_start(RUN);
    tagged.tags.insert("color".into(), "red".into());
    let blocked = world.start(vec![tagged]);
    let report = outlast_core::Report::default();
    let (started, ()) = tokio::join!(blocked, async {
        let beat = tokio::time::timeout(Duration::from_secs(10), world.beat(SESSION, &report, &[])).await;
        // Unlock the table, so that the start does not wait for its timeout.
        other.batch_execute("ROLLBACK").await.unwrap();
        beat.expect("a beat does not wait for the pool").unwrap();
    });
    started.unwrap().remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_transaction_mode_is_refused_with_the_remedy() {
    let server = throwaway::Postgres::builder().quick().start().unwrap();
    let bouncer = match throwaway::pgbouncer(&server.url(), PoolMode::Transaction) {
        Ok(bouncer) => bouncer,
        Err(why) => return println!("skipped: {why}"),
    };
    let direct = TestSchema::on(&server.url(), TestClock::new());
    let pooled =
        TestSchema { schema: direct.schema.clone(), ..TestSchema::on(&bouncer.url(), TestClock::new()) };
    let check = |error: WorldError| {
        let text = error.to_string();
        assert!(matches!(error, WorldError::Invalid(_)), "{text}");
        assert!(text.contains("pgbouncer") && text.contains("connect to the server itself"), "{text}");
        assert!(!text.contains(&bouncer.address().password), "{text}");
    };
    let started_at = Instant::now();
    check(PostgresWorld::open(&pooled.url(), PostgresOptions::new()).await.unwrap_err());
    // On its console: let it ignore settings that it does not know.
    let mut console = bouncer.address().clone();
    console.database = "pgbouncer".into();
    let (client, connection) = tokio_postgres::connect(&console.to_string(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.simple_query("SET ignore_startup_parameters = 'options'").await.unwrap();
    for pool in ["4", "1"] {
        let url = pooled.url().replace("pool=4", &format!("pool={pool}"));
        check(PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap_err());
    }
    check(outlast_postgres::migrate(&pooled.url()).await.unwrap_err());
    for size in [2, 8] {
        check(PostgresWorld::on_pool(pool(&bouncer.url(), size), options(&direct)).await.unwrap_err());
    }
    // Also if each client gets another server connection each time, as with many clients.
    client.simple_query("SET server_round_robin = 1").await.unwrap();
    check(PostgresWorld::on_pool(pool(&bouncer.url(), 8), options(&direct)).await.unwrap_err());
    assert!(started_at.elapsed() < Duration::from_secs(15), "{:?}", started_at.elapsed());
    // No connection of the server keeps a setting of a world: other clients may get it.
    let (other, connection) = tokio_postgres::connect(&bouncer.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..20 {
        let shown = other.simple_query("SHOW enable_seqscan").await.unwrap();
        let is_on = |message: &_| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("on"));
        assert!(shown.iter().any(is_on), "{shown:?}");
    }
    let shown = client.simple_query("SHOW POOLS").await.unwrap();
    assert!(shown.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_))));
    // Without the pooler the world can be opened.
    let world = PostgresWorld::on_pool(pool(&server.url(), 2), options(&direct)).await.unwrap();
    start(&world, RUN).await;
}

/// A worker and a client behind a pooler in session mode: one process does the work of another, is notified, and its
/// death is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_works_behind_a_pooler_in_session_mode() {
    let server = throwaway::Postgres::builder().quick().start().unwrap();
    let bouncer = match throwaway::pgbouncer(&server.url(), PoolMode::Session) {
        Ok(bouncer) => bouncer,
        Err(why) => return println!("skipped: {why}"),
    };
    // On its console: the pooler refuses settings that it does not know, or ignores them.
    let mut console = bouncer.address().clone();
    console.database = "pgbouncer".into();
    let (console, connection) = tokio_postgres::connect(&console.to_string(), NoTls).await.unwrap();
    tokio::spawn(connection);
    for ignored in ["", "options"] {
        console.simple_query(&format!("SET ignore_startup_parameters = '{ignored}'")).await.unwrap();
        let pooled = TestSchema::on(&bouncer.url(), TestClock::new());
        outlast_postgres::migrate(&pooled.url()).await.unwrap();
        let (client, worker) = (pooled.open_real_time().await, pooled.open_real_time().await);
        let second = SessionId::from_bits(2);
        join(&worker, SESSION, NO_EXPIRY).await;
        join(&client, second, NO_EXPIRY).await;
        let epoch = worker.claim(SESSION, common::request()).await.unwrap().epoch;
        start(&client, RUN).await;
        worker.changed(epoch, Timestamp::NEVER).await;
        wait_until("claimed", async || !claim(&worker, SESSION).await.is_empty()).await;
        drop(worker);
        wait_until("its run is released", async || !claim(&client, second).await.is_empty()).await;
        drop(client);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_statement_mode_is_refused_with_the_remedy() {
    let server = throwaway::Postgres::builder().quick().start().unwrap();
    let bouncer = match throwaway::pgbouncer(&server.url(), PoolMode::Statement) {
        Ok(bouncer) => bouncer,
        Err(why) => return println!("skipped: {why}"),
    };
    let pooled = TestSchema::on(&bouncer.url(), TestClock::new());
    let error = PostgresWorld::open(&pooled.url(), PostgresOptions::new()).await.unwrap_err();
    let WorldError::Invalid(text) = &error else { panic!("{error:?}") };
    assert!(text.contains("pgbouncer") && text.contains("`pool_mode` to `session`"), "{text}");
}
