//! Starts and sends inside a transaction of the caller, on the world's file.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::time::Duration;

use outlast::prelude::*;
use outlast::sqlite::rusqlite::{Connection, Transaction, TransactionBehavior};
use outlast::{Client, Worker};

/// Much longer than it takes to notice a commit, and shorter than the slow poll.
const NOTICED: Duration = Duration::from_secs(5);

#[workflow]
async fn ship(ctx: Context, order: u64) -> Result<u64, Error> {
    let weight: u64 = ctx.hook("weighed").await?;
    Ok(order + weight)
}

struct Shop {
    _folder: tempfile::TempDir,
    client: Client,
    worker: Worker,
    connection: Connection,
}

impl Shop {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.db");
        let world = outlast::open(&format!("sqlite:{}", file.display())).await.unwrap();
        let worker = Worker::builder(world.clone()).register((ship,)).start().await.unwrap();
        let connection = orders(&file);
        Self { _folder: folder, client: Client::new(world), worker, connection }
    }

    fn begin(&mut self) -> (Transaction<'_>, &Client) {
        let behavior = TransactionBehavior::Immediate;
        (self.connection.transaction_with_behavior(behavior).unwrap(), &self.client)
    }

    fn count(&self, table: &str) -> i64 {
        self.connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }
}

/// The caller's own table in the world's file.
fn orders(file: &Path) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection.busy_timeout(NOTICED).unwrap();
    connection.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, run TEXT)").unwrap();
    connection
}

#[tokio::test]
async fn a_run_begins_when_the_callers_transaction_commits() {
    let mut shop = Shop::open().await;
    let (mut tx, client) = shop.begin();
    let run = client.start(ship, 40).key("order-40").within(&mut tx).await.unwrap();
    tx.execute("INSERT INTO orders VALUES (40, ?)", [run.id().to_string()]).unwrap();
    assert!(run.view().await.is_err(), "not there before the commit");
    tx.commit().unwrap();

    let (mut tx, client) = shop.begin();
    client.send(run.id(), "weighed", &2).within(&mut tx).await.unwrap();
    tx.commit().unwrap();
    assert_eq!(tokio::time::timeout(NOTICED, run.output()).await.unwrap().unwrap(), 42);
    assert_eq!((shop.count("orders"), shop.count("runs")), (1, 1));
    shop.worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_rolled_back_transaction_has_no_effect() {
    let mut shop = Shop::open().await;
    let run = shop.client.start(ship, 1).await.unwrap();
    let (mut tx, client) = shop.begin();
    let never = client.start(ship, 2).key("order-2").within(&mut tx).await.unwrap();
    client.send(run.id(), "weighed", &100).within(&mut tx).await.unwrap();
    tx.rollback().unwrap();

    assert!(never.view().await.is_err());
    assert_eq!((shop.count("runs"), shop.count("inbox")), (1, 0));
    assert_eq!(shop.client.counts().await.unwrap().values().sum::<u64>(), 1);
    let again = shop.client.start(ship, 2).key("order-2").await.unwrap();
    assert!(again.is_new(), "the key is free");
    shop.worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_refused_call_leaves_the_transaction_as_it_was() {
    let mut shop = Shop::open().await;
    shop.client.start(ship, 1).key("order-1").await.unwrap();
    let (mut tx, client) = shop.begin();
    tx.execute("INSERT INTO orders VALUES (1, NULL)", []).unwrap();
    let error = client.start(ship, 2).key("order-1").within(&mut tx).await.unwrap_err();
    assert!(error.to_string().contains("order-1"), "{error}");
    let unknown = client.new_id();
    client.send(unknown, "weighed", &1).within(&mut tx).await.unwrap_err();
    tx.commit().unwrap();
    assert_eq!((shop.count("orders"), shop.count("runs")), (1, 1));
    shop.worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_transaction_elsewhere_is_refused() {
    let shop = Shop::open().await;
    let other = tempfile::tempdir().unwrap();
    let mut elsewhere = orders(&other.path().join("other.db"));
    let mut tx = elsewhere.transaction().unwrap();
    let error = shop.client.start(ship, 1).within(&mut tx).await.unwrap_err();
    assert!(error.to_string().contains("begin it on a connection to that file"), "{error}");

    let memory = Client::new(outlast::open("memory:").await.unwrap());
    let error = memory.start(ship, 1).within(&mut tx).await.unwrap_err();
    assert!(error.to_string().contains("cannot be used with a memory world"), "{error}");
    shop.worker.stop().await.unwrap();
}
