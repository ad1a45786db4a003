//! Starts and sends inside transactions of the caller, and from SQL alone.

#![allow(clippy::unwrap_used, reason = "a test")]

use outlast::postgres::tokio_postgres::error::SqlState;
use outlast::postgres::tokio_postgres::{self, Config, NoTls};
use outlast::prelude::*;

#[workflow]
async fn ship(ctx: Context, order: u64) -> Result<u64, Error> {
    let weight: u64 = ctx.hook("weighed").await?;
    Ok(order + weight)
}

struct Shop {
    schema: String,
    client: Client,
    worker: Worker,
    server: tokio_postgres::Client,
}

impl Shop {
    async fn open() -> Self {
        let (place, schema) =
            (throwaway::postgres::for_tests(), throwaway::postgres::new_schema_name("within"));
        let world = outlast::open(&throwaway::postgres::schema_url(place, &schema)).await.unwrap();
        let worker = Worker::builder(world.clone()).register((ship,)).start().await.unwrap();
        let server = connect(&place.parse().unwrap()).await;
        server.batch_execute(&format!("CREATE TABLE {schema}.orders (id bigint, run text)")).await.unwrap();
        Self { client: Client::new(world), worker, server, schema }
    }

    async fn begin(&mut self) -> (tokio_postgres::Transaction<'_>, &Client) {
        (self.server.transaction().await.unwrap(), &self.client)
    }

    async fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {}.{table}", self.schema);
        self.server.query_one(&sql, &[]).await.unwrap().get(0)
    }

    /// Calls a function of the schema.
    async fn call(&self, call: &str) -> Result<String, tokio_postgres::Error> {
        let sql = format!("SELECT coalesce({}.{call}::text, '')", self.schema);
        Ok(self.server.query_one(&sql, &[]).await?.get(0))
    }
}

async fn connect(config: &Config) -> tokio_postgres::Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_begins_when_the_callers_transaction_commits() {
    throwaway::needs_postgres!();
    let mut shop = Shop::open().await;
    let insert = format!("INSERT INTO {}.orders VALUES (40, $1)", shop.schema);
    let (mut tx, client) = shop.begin().await;
    let run = client.start(ship, 40).key("order-40").within(&mut tx).await.unwrap();
    tx.execute(&insert, &[&run.id().to_string()]).await.unwrap();
    assert!(run.view().await.is_err(), "not there before the commit");
    tx.commit().await.unwrap();

    let (mut tx, client) = shop.begin().await;
    client.send(run.id(), "weighed", &2).within(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(run.output_within("10s").await.unwrap(), 42);
    assert_eq!((shop.count("orders").await, shop.count("runs").await), (1, 1));
    shop.worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolled_back_and_refused_calls_have_no_effect() {
    throwaway::needs_postgres!();
    let mut shop = Shop::open().await;
    let run = shop.client.start(ship, 1).key("order-1").await.unwrap();
    let (mut tx, client) = shop.begin().await;
    let never = client.start(ship, 2).key("order-2").within(&mut tx).await.unwrap();
    client.send(run.id(), "weighed", &100).within(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(never.view().await.is_err());
    assert_eq!((shop.count("runs").await, shop.count("inbox").await), (1, 0));

    let insert = format!("INSERT INTO {}.orders VALUES (1, NULL)", shop.schema);
    let (mut tx, client) = shop.begin().await;
    tx.execute(&insert, &[]).await.unwrap();
    let error = client.start(ship, 2).key("order-1").within(&mut tx).await.unwrap_err();
    assert!(error.to_string().contains("order-1"), "{error}");
    client.send(client.new_id(), "weighed", &1).within(&mut tx).await.unwrap_err();
    let memory = Client::new(outlast::open("memory:").await.unwrap());
    let error = memory.start(ship, 1).within(&mut tx).await.unwrap_err();
    assert!(error.to_string().contains("cannot be used with a memory world"), "{error}");
    tx.commit().await.unwrap();
    assert_eq!((shop.count("orders").await, shop.count("runs").await), (1, 1));
    shop.worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_in_another_database_is_refused_and_stays_usable() {
    throwaway::needs_postgres!();
    let shop = Shop::open().await;
    let other = format!("other_{}", shop.schema);
    shop.server.batch_execute(&format!("CREATE DATABASE {other}")).await.unwrap();
    let mut config: Config = throwaway::postgres::for_tests().parse().unwrap();
    let mut server = connect(config.dbname(&other)).await;
    let mut tx = server.transaction().await.unwrap();
    let error = shop.client.start(ship, 1).within(&mut tx).await.unwrap_err();
    assert!(error.to_string().contains("begin it there"), "{error}");
    let row = tx.query_one("SELECT 1", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 1);
    shop.worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_language_starts_runs_and_sends_to_them() {
    throwaway::needs_postgres!();
    let shop = Shop::open().await;
    let started = shop.call("start_run('ship', '40', key => 'order-40', tags => '{\"customer\": \"ada\"}')");
    let run = started.await.unwrap();
    let again = shop.client.start(ship, 40).key("order-40").tag("customer", "ada").await.unwrap();
    assert_eq!((again.id().to_string(), again.is_new()), (run.clone(), false), "key and input are the same");
    assert_eq!(again.view().await.unwrap().tags["customer"], "ada");

    let sent = format!("send_to('{run}', 'weighed', '2', key => 'scales-7')");
    shop.call(&sent).await.unwrap();
    shop.client.send(again.id(), "weighed", &3).key("scales-7").await.unwrap();
    assert_eq!(again.output_within("10s").await.unwrap(), 42);
    assert_eq!(shop.count("inbox").await, 1, "what has one key is sent once");
    let refused = shop.call(&sent.replace("scales-7", "scales-8")).await.unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE), "{refused}");
    shop.worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_from_sql_are_checked() {
    throwaway::needs_postgres!();
    let shop = Shop::open().await;
    shop.call("start_run('ship', '1', key => 'k')").await.unwrap();
    let deep = format!("start_run('ship', '{}{}')", "[".repeat(65), "]".repeat(65));
    let cases = [
        ("start_run('ship', '2', key => 'k')", "another workflow or input"),
        ("start_run('')", "the workflow's name is empty"),
        ("start_run('ship', '1', key => '')", "the start key is empty"),
        ("start_run('ship', '1', queue => '')", "the queue's name is empty"),
        ("start_run('ship', '1', priority => 10)", "not between 0 and 9"),
        ("start_run('ship', '1', deadline => '2001-01-01')", "is not after now"),
        ("start_run('ship', '1', tags => '{\"\": \"x\"}')", "more than 32 tags, or one"),
        ("start_run('ship', '{')", "invalid input syntax for type json"),
        (&deep, "nested deeper than 64 levels"),
        ("send_to('run_0', 'weighed')", "there is no run run_0"),
        ("send_to('run_0', '')", "the hook's name is empty"),
    ];
    for (call, wanted) in cases {
        let error = shop.call(call).await.unwrap_err();
        let message = error.as_db_error().unwrap().message().to_owned();
        assert!(message.contains(wanted), "{call}: {message}");
    }
    assert_eq!(shop.count("runs").await, 1);
    shop.worker.stop().await.unwrap();
}
