//! A world on a pool that exists, and behind a pooler.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{LONG, Place, claim, commit, completed, join, new_start, start, step, until};
use outlast_core::{RunId, SessionId, Status, Then, Timestamp, World, WorldError};
use outlast_postgres::deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use outlast_postgres::tokio_postgres::{NoTls, SimpleQueryMessage};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);
const RUN: RunId = RunId::from_bits(3);

fn pool(url: &str, size: usize) -> Pool {
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(url.parse().unwrap(), NoTls, config);
    Pool::builder(manager).max_size(size).build().unwrap()
}

fn on_server(size: usize) -> (Place, Pool) {
    (Place::new(TestClock::new()), pool(throwaway::postgres::for_tests(), size))
}

fn options(place: &Place) -> PostgresOptions {
    PostgresOptions::new().schema(&place.schema)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_without_a_connection_that_listens_looks_by_itself() {
    let (place, pool) = on_server(4);
    let world = PostgresWorld::on_pool(pool, options(&place)).await.unwrap();
    assert!(world.describe().hints.contains("polling"), "{:?}", world.describe());
    let other = place.open_real().await;
    let waiting = async {
        let request = common::request();
        join(&world, SESSION, LONG).await;
        let epoch = world.claim(SESSION, request).await.unwrap().epoch;
        // Only what another process does happens meanwhile, and nothing but looking tells of it.
        world.changed(epoch, Timestamp::NEVER).await;
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap();
    start(&other, RUN).await;
    let (ended, ()) = tokio::join!(world.ended(RUN, Timestamp::NEVER), async {
        join(&other, SessionId::from_bits(2), LONG).await;
        let claimed = claim(&other, SessionId::from_bits(2)).await.remove(0);
        let mut end = step(RUN, claimed.turn, 1, 10, Then::End(outlast_core::Status::Completed));
        end.events = vec![common::completed()];
        commit(&other, SessionId::from_bits(2), end).await.unwrap();
    });
    assert_eq!(ended.unwrap().unwrap().run, RUN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_with_a_url_to_listen_on_hears_at_once_and_is_missed_at_once() {
    let (place, pool) = on_server(4);
    let world = PostgresWorld::on_pool(pool, options(&place).listen(place.url())).await.unwrap();
    assert!(world.describe().hints.contains("NOTIFY"), "{:?}", world.describe());
    let other = place.open_real().await;
    let second = SessionId::from_bits(2);
    join(&world, SESSION, LONG).await;
    join(&other, second, LONG).await;
    start(&world, RUN).await;
    assert_eq!(claim(&world, SESSION).await.len(), 1);
    drop(world);
    until("its run is free", async || !claim(&other, second).await.is_empty()).await;
}

/// Work that nobody says is looked for every twenty seconds, ends every two: so many rounds would take far longer.
const ENOUGH: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_without_a_connection_that_listens_is_heard_by_those_that_have_one() {
    let (place, pool) = on_server(4);
    let quiet = PostgresWorld::on_pool(pool, options(&place)).await.unwrap();
    let other = place.open_real().await;
    let (second, begun) = (SessionId::from_bits(2), Instant::now());
    join(&other, second, LONG).await;
    join(&quiet, SESSION, LONG).await;
    for round in 1..=10 {
        // Its starts.
        let epoch = other.claim(second, common::request()).await.unwrap().epoch;
        start(&quiet, RunId::from_bits(round)).await;
        other.changed(epoch, Timestamp::NEVER).await;
        until("claimed", async || !claim(&other, second).await.is_empty()).await;
        // Its ends.
        let run = RunId::from_bits(100 + round);
        start(&other, run).await;
        let claimed = claim(&quiet, SESSION).await;
        let mut end = step(run, claimed[0].turn, 1, 1_000 + round, Then::End(Status::Completed));
        end.events = vec![completed()];
        let (ended, done) = tokio::join!(other.ended(run, Timestamp::NEVER), commit(&quiet, SESSION, end));
        done.unwrap();
        assert_eq!(ended.unwrap().unwrap().run, run);
    }
    assert!(begun.elapsed() < ENOUGH, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_without_a_connection_that_listens_says_everything_before_it_is_gone() {
    let (place, pool) = on_server(4);
    let other = place.open_real().await;
    let begun = Instant::now();
    join(&other, SESSION, LONG).await;
    for round in 1..=10 {
        let epoch = other.claim(SESSION, common::request()).await.unwrap().epoch;
        let quiet = PostgresWorld::on_pool(pool.clone(), options(&place)).await.unwrap();
        start(&quiet, RunId::from_bits(round)).await;
        drop(quiet);
        other.changed(epoch, Timestamp::NEVER).await;
        until("claimed", async || !claim(&other, SESSION).await.is_empty()).await;
    }
    assert!(begun.elapsed() < ENOUGH, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_nobody_says_is_seen_by_who_looks() {
    let place = Place::new(TestClock::new());
    // With a clock of its own the worker says nothing.
    let (client, worker) = (place.open_real().await, place.open().await);
    join(&worker, SESSION, LONG).await;
    start(&client, RUN).await;
    let claimed = claim(&worker, SESSION).await;
    let mut end = step(RUN, claimed[0].turn, 1, 10, Then::End(Status::Completed));
    end.events = vec![completed()];
    commit(&worker, SESSION, end).await.unwrap();
    let ended = client.ended(RUN, Timestamp::from_micros(0)).await.unwrap();
    assert_eq!(ended.map(|ended| ended.run), Some(RUN));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_statements_on_the_pool_keep_their_settings() {
    let (place, pool) = on_server(1);
    let world = PostgresWorld::on_pool(pool.clone(), options(&place)).await.unwrap();
    let settings = "SELECT current_setting('enable_seqscan'), current_setting('plan_cache_mode'), \
                    current_setting('enable_sort')";
    start(&world, RUN).await;
    // One that nobody waits for to its end, too, unless it was too quick for that.
    let late = world.start(vec![new_start(RunId::from_bits(4))]);
    drop(tokio::time::timeout(Duration::ZERO, late).await);
    let client = pool.get().await.unwrap();
    let row = client.query_one(settings, &[]).await.unwrap();
    assert_eq!([row.get::<_, &str>(0), row.get(1), row.get(2)], ["on", "auto", "on"]);
    drop(client);
    // And ours have them: the function itself is asked.
    let server = place.connect().await;
    let spy = format!(
        "CREATE OR REPLACE FUNCTION {0}.clock() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN \
         IF current_setting('enable_seqscan') <> 'off' OR current_setting('plan_cache_mode') <> 'force_generic_plan' \
         THEN RAISE EXCEPTION 'plain settings'; END IF; RETURN 1; END $$",
        place.schema
    );
    server.batch_execute(&spy).await.unwrap();
    world.start(vec![new_start(RunId::from_bits(5))]).await.unwrap().remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_without_a_free_connection_is_named() {
    let (place, pool) = on_server(1);
    let mut options = options(&place);
    options.timeout = Duration::from_secs(1);
    let world = PostgresWorld::on_pool(pool.clone(), options).await.unwrap();
    let taken = pool.get().await.unwrap();
    let refused = world.counts().await.unwrap_err();
    assert!(
        matches!(&refused, WorldError::Unavailable(why) if why.contains("make the pool larger")),
        "{refused}"
    );
    drop(taken);
    world.counts().await.unwrap();
    // The same for a pool of the world's own.
    let own = PostgresWorld::open(&format!("{}&pool=1&timeout=1", place.url()), PostgresOptions::new())
        .await
        .unwrap();
    let other = place.connect().await;
    other.batch_execute(&format!("BEGIN; LOCK TABLE {}.runs", place.schema)).await.unwrap();
    // Calls that are not made together, so that all but the first wait for a connection.
    let prunes = (0..6).map(|_| own.prune(Timestamp::from_micros(1), None, 1));
    let refused = futures_util::future::join_all(prunes).await;
    let is_named = |answer: &Result<_, WorldError>| matches!(answer, Err(WorldError::Unavailable(why)) if why.contains("raise `pool`"));
    assert!(refused.iter().any(is_named), "{refused:?}");
    other.batch_execute("ROLLBACK").await.unwrap();
    start(&own, RUN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_pool_costs_no_session() {
    let place = Place::new(TestClock::new());
    let world =
        PostgresWorld::open(&format!("{}&pool=1", place.url()), PostgresOptions::new()).await.unwrap();
    join(&world, SESSION, LONG).await;
    let other = place.connect().await;
    other.batch_execute(&format!("BEGIN; LOCK TABLE {}.tags", place.schema)).await.unwrap();
    let mut tagged = new_start(RUN);
    tagged.tags.insert("color".into(), "red".into());
    let blocked = world.start(vec![tagged]);
    let report = outlast_core::Report::default();
    let (started, ()) = tokio::join!(blocked, async {
        let beat = tokio::time::timeout(Duration::from_secs(10), world.beat(SESSION, &report, &[])).await;
        // Or the other would wait for as long as a statement may take.
        other.batch_execute("ROLLBACK").await.unwrap();
        beat.expect("a beat waits for nobody").unwrap();
    });
    started.unwrap().remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_transaction_mode_is_refused_with_the_remedy() {
    let server = throwaway::Postgres::builder().quick().start().unwrap();
    let bouncer = match throwaway::pgbouncer(&server.url()) {
        Ok(bouncer) => bouncer,
        Err(why) => return println!("skipped: {why}"),
    };
    let direct = Place::on(&server.url(), TestClock::new());
    let pooled = Place { schema: direct.schema.clone(), ..Place::on(&bouncer.url(), TestClock::new()) };
    let check = |refused: WorldError| {
        let text = refused.to_string();
        assert!(matches!(refused, WorldError::Invalid(_)), "{text}");
        assert!(text.contains("pgbouncer") && text.contains("connect to the server itself"), "{text}");
        assert!(!text.contains(&bouncer.address().password), "{text}");
    };
    let began = Instant::now();
    check(PostgresWorld::open(&pooled.url(), PostgresOptions::new()).await.unwrap_err());
    // On its console: settings that it does not know are passed over.
    let mut console = bouncer.address().clone();
    console.database = "pgbouncer".into();
    let (client, connection) = tokio_postgres::connect(&console.to_string(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.simple_query("SET ignore_startup_parameters = 'options'").await.unwrap();
    check(PostgresWorld::open(&pooled.url(), PostgresOptions::new()).await.unwrap_err());
    for size in [2, 8] {
        check(PostgresWorld::on_pool(pool(&bouncer.url(), size), options(&direct)).await.unwrap_err());
    }
    // Also when every client has a server of its own for the moment, as with many of them.
    client.simple_query("SET server_round_robin = 1").await.unwrap();
    check(PostgresWorld::on_pool(pool(&bouncer.url(), 8), options(&direct)).await.unwrap_err());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let shown = client.simple_query("SHOW POOLS").await.unwrap();
    assert!(shown.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_))));
    // The server itself is fine.
    let world = PostgresWorld::on_pool(pool(&server.url(), 2), options(&direct)).await.unwrap();
    start(&world, RUN).await;
}
