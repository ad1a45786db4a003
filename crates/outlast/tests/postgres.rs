//! The engine on Postgres, opened by its URL.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

use std::time::{Duration, Instant};

use outlast::postgres::tokio_postgres;
use outlast::prelude::*;
use outlast::{RunId, Status};

/// The URL of a new schema on the server for tests.
fn new_schema_url() -> String {
    throwaway::postgres::new_schema_url("engine")
}

#[step]
async fn double(number: u64) -> Result<u64, StepError> {
    Ok(number * 2)
}

#[workflow]
async fn leaf(ctx: Context, number: u64) -> Result<u64, Error> {
    ctx.step(double, number).await
}

#[workflow]
async fn tree(ctx: Context, number: u64) -> Result<u64, Error> {
    let doubled = ctx.step(double, number).await?;
    ctx.sleep("20ms").await?;
    let added = ctx.hook::<u64>("more").await?;
    ctx.child(leaf, doubled + added).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_through_steps_timers_hooks_and_children() {
    throwaway::needs_postgres!();
    let url = new_schema_url();
    let world = outlast::open(&url).await.unwrap();
    let worker = Worker::builder(world.clone()).register((tree, leaf, double)).start().await.unwrap();
    let client = Client::new(world);
    let run = client.start(tree, 4).key("k").await.unwrap();
    run.send("more", &1).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 18);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_is_notified_of_a_start_and_of_an_end_without_polling() {
    throwaway::needs_postgres!();
    let url = new_schema_url();
    let here = outlast::open(&url).await.unwrap();
    let there = outlast::open(&url).await.unwrap();
    let worker = Worker::builder(there).register((leaf, double)).start().await.unwrap();
    let client = Client::new(here);
    // The first run opens the connections.
    client.start(leaf, 1).await.unwrap().output().await.unwrap();
    let began = Instant::now();
    for number in 0..20 {
        assert_eq!(client.start(leaf, number).await.unwrap().output().await.unwrap(), number * 2);
    }
    // The slow poll alone would take two seconds each time.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_execute_many_runs_and_each_ends_once() {
    throwaway::needs_postgres!();
    let url = new_schema_url();
    let (first, second) = (outlast::open(&url).await.unwrap(), outlast::open(&url).await.unwrap());
    let one = Worker::builder(first.clone()).register((leaf, double)).start().await.unwrap();
    let two = Worker::builder(second).register((leaf, double)).start().await.unwrap();
    let client = Client::new(first);
    let mut runs = Vec::new();
    for number in 0..200 {
        runs.push(client.start(leaf, number).await.unwrap());
    }
    for (number, run) in (0..).zip(runs) {
        assert_eq!(run.output().await.unwrap(), number * 2);
    }
    let counts = client.counts().await.unwrap();
    assert_eq!(counts.values().sum::<u64>(), 200, "{counts:?}");
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

/// Polls until the condition holds; panics after a minute.
async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let patience = tokio::time::timeout(Duration::from_secs(60), async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(patience.await.is_ok(), "within a minute not: {what}");
}

/// The server's own count of statements, without those of this connection.
async fn statements(server: &tokio_postgres::Client) -> i64 {
    let sql = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements \
               WHERE toplevel AND query NOT LIKE '%pg_stat_statements%'";
    server.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_workers_make_at_most_two_queries_per_second_each() {
    throwaway::needs_postgres!();
    let server = throwaway::Postgres::builder()
        .quick()
        .setting("shared_preload_libraries", "pg_stat_statements")
        .setting("pg_stat_statements.track", "top")
        .start()
        .unwrap();
    let (counter, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    counter.batch_execute("CREATE EXTENSION pg_stat_statements").await.unwrap();
    let mut fleet = Vec::new();
    for _ in 0..3 {
        let world = outlast::open(&server.url()).await.unwrap();
        let worker = Worker::builder(world.clone()).register((leaf, double)).start().await.unwrap();
        fleet.push((world, worker));
    }
    let run = Client::new(fleet[0].0.clone()).start(leaf, 2).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 4);
    let beaten = async |times: u64| fleet.iter().all(|(_, worker)| worker.metrics().beats >= times);
    wait_until("a beat", async || beaten(1).await).await;
    let (before, began) = (statements(&counter).await, Instant::now());
    wait_until("four more beats", async || beaten(5).await).await;
    let made = statements(&counter).await - before;
    let per_second = made as f64 / began.elapsed().as_secs_f64() / fleet.len() as f64;
    println!("{made} statements in {:?}: {per_second:.2} per second and worker", began.elapsed());
    // One more per worker may fall into the measured time.
    let limit = 2.0 * began.elapsed().as_secs_f64() * fleet.len() as f64 + fleet.len() as f64;
    assert!(made > 0 && made as f64 <= limit, "{per_second:.2} statements per second and worker");
    let said = "SELECT count(*) FROM pg_stat_statements WHERE query LIKE '%pg_notify%' AND calls > 10";
    assert_eq!(
        counter.query_one(said, &[]).await.unwrap().get::<_, i64>(0),
        0,
        "nothing is said for nothing"
    );
    for (_, worker) in fleet {
        worker.stop().await.unwrap();
    }
}

#[workflow]
async fn patient(ctx: Context, number: u64) -> Result<u64, Error> {
    let doubled = ctx.step(double, number).await?;
    let added = ctx.hook::<u64>("more").await?;
    Ok(doubled + added)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_woken_run_goes_first_to_the_worker_that_has_its_future() {
    throwaway::needs_postgres!();
    const RUNS: u64 = 40;
    let url = new_schema_url();
    let mut workers = Vec::new();
    for _ in 0..3 {
        let world = outlast::open(&url).await.unwrap();
        workers.push(Worker::builder(world).register((patient, double)).start().await.unwrap());
    }
    // A separate client, so that no local worker takes the runs at their start.
    let client = Client::new(outlast::open(&url).await.unwrap());
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(client.start(patient, number).await.unwrap());
    }
    for run in &runs {
        wait_until("it waits", async || !run.view().await.unwrap().waits.is_empty()).await;
    }
    wait_until("all are let go", async || workers.iter().all(|worker| worker.metrics().live_runs == 0)).await;
    for run in &runs {
        run.send("more", &1).await.unwrap();
    }
    for (number, run) in (0..).zip(&runs) {
        assert_eq!(run.output().await.unwrap(), number * 2 + 1);
    }
    let sum = |count: fn(&outlast::Metrics) -> u64| {
        workers.iter().map(|worker| count(&worker.metrics())).sum::<u64>()
    };
    let (hits, replays) = (sum(|metrics| metrics.cache_hits), sum(|metrics| metrics.replays));
    println!("{hits} futures were found, {replays} runs replayed");
    // A worker that is late by more than 100 ms loses its preference, which may happen on a busy machine. Without the
    // preference, a third of the runs would return to their worker.
    assert!(hits > RUNS * 2 / 3, "{hits} futures were found, {replays} runs replayed");
    for worker in workers {
        worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_pauses_while_the_server_is_unavailable_and_continues_by_itself() {
    throwaway::needs_postgres!();
    let mut server = throwaway::Postgres::builder().quick().start().unwrap();
    let world = outlast::open(&server.url()).await.unwrap();
    // Unavailable for longer than a session, and for a shorter time: no session is lost in either case.
    for session in ["1s", "30s"] {
        let worker = Worker::builder(world.clone())
            .register((patient, tree, leaf, double))
            .session_time(session)
            .start()
            .await
            .unwrap();
        let client = Client::new(world.clone());
        let mut runs = Vec::new();
        for number in 0..10 {
            runs.push(client.start(patient, number).await.unwrap());
        }
        let last = client.start(patient, 10).await.unwrap();
        wait_until("it waits", async || !last.view().await.unwrap().waits.is_empty()).await;
        server.stop().unwrap();
        let impatient = client.retry_unavailable("0s");
        wait_until("the server is missed", async || impatient.counts().await.is_err()).await;
        let began = Instant::now();
        wait_until("it has been away for a while", async || began.elapsed() > Duration::from_secs(2)).await;
        server.start().unwrap();
        wait_until("it answers", async || last.send("more", &1).await.is_ok()).await;
        assert_eq!(last.output().await.unwrap(), 21);
        for (number, run) in (0..).zip(&runs) {
            wait_until("it answers", async || run.send("more", &1).await.is_ok()).await;
            assert_eq!(run.output().await.unwrap(), number * 2 + 1);
        }
        worker.stop().await.unwrap();
    }
}

static GATE: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);
static ATTEMPTED: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);

#[step]
async fn pass_gate(number: u64) -> Result<u64, StepError> {
    ATTEMPTED.add_permits(1);
    let _passed = GATE.acquire().await.unwrap();
    Ok(number)
}

#[workflow]
async fn gated(ctx: Context, number: u64) -> Result<u64, Error> {
    ctx.step(pass_gate, number).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_does_not_stop_other_runs() {
    throwaway::needs_postgres!();
    const NEIGHBOURS: u64 = 200;
    let url = new_schema_url();
    let world = outlast::open(&url).await.unwrap();
    let worker =
        Worker::builder(world.clone()).register((gated, pass_gate, leaf, double)).start().await.unwrap();
    let client = Client::new(world);
    let blocked = client.start(gated, 7).await.unwrap();
    ATTEMPTED.acquire().await.unwrap().forget();

    let server = throwaway::postgres::for_tests();
    let (mut other, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let schema = url.split_once("schema=").unwrap().1.to_owned();
    let open = other.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM {schema}.runs WHERE id = $1 FOR UPDATE");
    open.query(&lock, &[&blocked.id().to_string()]).await.unwrap();
    GATE.add_permits(1);

    let mut runs = Vec::new();
    for number in 0..NEIGHBOURS {
        runs.push(client.start(leaf, number).await.unwrap());
    }
    for (run, number) in runs.iter().zip(0..) {
        assert_eq!(run.output().await.unwrap(), number * 2, "while the lock is held");
    }
    let mut why = client.explain(blocked.id()).await.unwrap();
    wait_until("the blocker is named", async || {
        why = client.explain(blocked.id()).await.unwrap();
        why.blocked_by.is_some()
    })
    .await;
    assert!(why.sentence.contains("its row is locked by process"), "{}", why.sentence);
    open.rollback().await.unwrap();
    assert_eq!(blocked.output().await.unwrap(), 7);
    worker.stop().await.unwrap();
}

/// Makes the database refuse turns that end a step of a run, the first `times` times.
async fn refuse_ends_of_steps(url: &str, run: RunId, times: u32) -> tokio_postgres::Client {
    let (server, connection) =
        tokio_postgres::connect(throwaway::postgres::for_tests(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let schema = url.split_once("schema=").unwrap().1;
    let trigger = format!(
        "CREATE SEQUENCE {schema}.refusals;
         CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('{schema}.refusals') <= {times} THEN RAISE EXCEPTION 'the ledger is closed'; END IF;
            RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON {schema}.turns FOR EACH ROW WHEN (NEW.run = '{run}')
            EXECUTE FUNCTION {schema}.refuse()"
    );
    server.batch_execute(&trigger).await.unwrap();
    server
}

#[workflow]
async fn waits_and_doubles(ctx: Context, number: u64) -> Result<u64, Error> {
    let added = ctx.hook::<u64>("more").await?;
    ctx.step(double, number + added).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_a_trigger_refuses_is_tried_again_and_stuck_when_that_does_not_help() {
    throwaway::needs_postgres!();
    let url = new_schema_url();
    let world = outlast::open(&url).await.unwrap();
    let worker =
        Worker::builder(world.clone()).register((waits_and_doubles, leaf, double)).start().await.unwrap();
    let client = Client::new(world);
    let run = client.start(waits_and_doubles, 3).await.unwrap();
    let server = refuse_ends_of_steps(&url, run.id(), 3).await;
    run.send("more", &1).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 8, "it is refused three times, then no more");

    let schema = url.split_once("schema=").unwrap().1;
    let drop = format!("DROP FUNCTION {schema}.refuse() CASCADE; DROP SEQUENCE {schema}.refusals");
    server.batch_execute(&drop).await.unwrap();
    let run = client.start(waits_and_doubles, 3).await.unwrap();
    let server = refuse_ends_of_steps(&url, run.id(), u32::MAX).await;
    run.send("more", &1).await.unwrap();
    let neighbour = client.start(leaf, 5).await.unwrap();
    assert_eq!(neighbour.output().await.unwrap(), 10);
    wait_until("it is stuck", async || run.view().await.unwrap().status == Status::Stuck).await;
    let view = run.view().await.unwrap();
    let why = view.stuck.unwrap().message;
    assert!(why.contains("the ledger is closed"), "{why}");
    let asked = format!("SELECT last_value FROM {schema}.refusals");
    let asked: i64 = server.query_one(&asked, &[]).await.unwrap().get(0);
    assert!((10..=30).contains(&asked), "asked {asked} times");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_whose_turns_are_refused_with_any_code_stop_no_others_and_can_be_terminated() {
    throwaway::needs_postgres!();
    const CODES: [&str; 6] = ["40001", "40P01", "57014", "53100", "P0001", "42P01"];
    let url = new_schema_url();
    let world = outlast::open(&url).await.unwrap();
    let worker =
        Worker::builder(world.clone()).register((waits_and_doubles, leaf, double)).start().await.unwrap();
    let client = Client::new(world);
    let mut refused = Vec::new();
    let mut codes = String::new();
    for code in CODES {
        let run = client.start(waits_and_doubles, 3).await.unwrap();
        codes.push_str(&format!(" WHEN '{}' THEN '{code}'", run.id()));
        refused.push(run);
    }
    let (server, connection) =
        tokio_postgres::connect(throwaway::postgres::for_tests(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let schema = url.split_once("schema=").unwrap().1;
    let trigger = format!(
        "CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'the ledger is closed' USING ERRCODE = CASE NEW.run{codes} END; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON {schema}.turns FOR EACH ROW
            WHEN (CASE NEW.run{codes} END IS NOT NULL AND NEW.events NOT LIKE '%run_terminated%')
            EXECUTE FUNCTION {schema}.refuse()"
    );
    server.batch_execute(&trigger).await.unwrap();
    for run in &refused {
        run.send("more", &1).await.unwrap();
    }
    for number in 0..20 {
        let others = [(); 3].map(|()| client.start(leaf, number));
        for other in others {
            assert_eq!(other.await.unwrap().output().await.unwrap(), number * 2);
        }
    }
    for (run, code) in refused.iter().zip(CODES) {
        wait_until("it is stuck", async || run.view().await.unwrap().status == Status::Stuck).await;
        let why = run.view().await.unwrap().stuck.unwrap().message;
        assert!(why.contains("the ledger is closed"), "{code}: {why}");
        run.terminate("enough").await.unwrap();
        wait_until("it has ended", async || run.view().await.unwrap().ended_at.is_some()).await;
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_for_nothing_but_its_row_is_explained_by_who_has_that() {
    throwaway::needs_postgres!();
    let url = new_schema_url();
    let world = outlast::open(&url).await.unwrap();
    let client = Client::new(world);
    // Ready, and there is no worker.
    let run = client.start(leaf, 1).await.unwrap();
    assert_eq!(client.explain(run.id()).await.unwrap().blocked_by, None);
    let server = throwaway::postgres::for_tests();
    let (mut other, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let schema = url.split_once("schema=").unwrap().1.to_owned();
    let open = other.transaction().await.unwrap();
    open.query(&format!("SELECT 1 FROM {schema}.runs FOR UPDATE"), &[]).await.unwrap();
    let why = client.explain(run.id()).await.unwrap();
    assert!(why.sentence.contains("its row is locked by process"), "{}", why.sentence);
}

/// The number of runs with one step that the worker ends per second.
async fn runs_per_second(client: &Client) -> f64 {
    const RUNS: u64 = 2_000;
    let began = Instant::now();
    let mut runs = tokio::task::JoinSet::new();
    for number in 0..RUNS {
        let client = client.clone();
        runs.spawn(async move { client.start(leaf, number).await.unwrap().output().await.unwrap() });
    }
    while let Some(output) = runs.join_next().await {
        output.unwrap();
    }
    RUNS as f64 / began.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, for a machine that does nothing else"]
async fn other_runs_keep_four_fifths_of_their_throughput_beside_a_locked_row() {
    throwaway::needs_postgres!();
    const ROUNDS: u64 = 5;
    let url = new_schema_url();
    let world = outlast::open(&url).await.unwrap();
    let worker =
        Worker::builder(world.clone()).register((gated, pass_gate, leaf, double)).start().await.unwrap();
    let client = Client::new(world);
    let server = throwaway::postgres::for_tests();
    let (mut other, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let schema = url.split_once("schema=").unwrap().1.to_owned();
    let lock = format!("SELECT 1 FROM {schema}.runs WHERE id = $1 FOR UPDATE");
    runs_per_second(&client).await;
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let free = runs_per_second(&client).await;
        let blocked = client.start(gated, round).await.unwrap();
        ATTEMPTED.acquire().await.unwrap().forget();
        let open = other.transaction().await.unwrap();
        open.query(&lock, &[&blocked.id().to_string()]).await.unwrap();
        GATE.add_permits(1);
        wait_until("its turn is blocked", async || {
            client.explain(blocked.id()).await.unwrap().blocked_by.is_some()
        })
        .await;
        let beside = runs_per_second(&client).await;
        open.rollback().await.unwrap();
        assert_eq!(blocked.output().await.unwrap(), round);
        GATE.acquire().await.unwrap().forget();
        println!("round {round}: {free:.0} runs/s, beside a locked row {beside:.0}, {:.2} x", beside / free);
        ratios.push(beside / free);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!("median {median:.2} x");
    assert!(median >= 0.8, "beside a locked row the others keep {median:.2} x");
    worker.stop().await.unwrap();
}
