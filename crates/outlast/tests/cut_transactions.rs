//! Connections to Postgres are cut at the last message of a transactional step, which records the outcome and commits: the
//! effect happens once, whether the message, a part of it, or its answer was lost.

#![allow(clippy::unwrap_used, reason = "a test")]

use outlast::prelude::*;
use throwaway::{Proxy, Toward, proxy};
use tokio_postgres::NoTls;

/// The statement in the last message.
const LAST_MESSAGE: &str = "record_outcome";

/// The distance between two cuts, in bytes.
const DISTANCE: u64 = 23;

#[step(transactional, attempts = 20, initial = "1ms")]
async fn book(tx: &mut PgTx<'_>, table: String, number: i64) -> Result<i64, StepError> {
    tx.execute(&format!("INSERT INTO {table} VALUES ($1)"), &[&number]).await?;
    Ok(number)
}

#[workflow]
async fn booking(ctx: Context, table: String, number: i64) -> Result<i64, Error> {
    ctx.step(book, (table, number)).await
}

struct Trials {
    proxy: Proxy,
    client: Client,
    server: tokio_postgres::Client,
    table: String,
    number: i64,
}

impl Trials {
    /// Executes a run, and checks that its effect happened once.
    async fn run(&mut self) {
        self.number += 1;
        let run = self.client.start(booking, (self.table.clone(), self.number)).await.unwrap();
        assert_eq!(run.output().await.unwrap(), self.number);
        let count = format!("SELECT count(*), count(DISTINCT number) FROM {}", self.table);
        let row = self.server.query_one(&count, &[]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (self.number, self.number));
    }

    /// The bytes of a whole exchange in one direction.
    async fn bytes(&mut self, toward: Toward) -> u64 {
        let exchange = self.proxy.watch(LAST_MESSAGE);
        self.run().await;
        exchange.bytes(toward)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_the_last_message_neither_loses_nor_repeats_an_effect() {
    throwaway::needs_postgres!();
    let (place, table) = (throwaway::postgres::for_tests(), throwaway::postgres::new_schema_name("cut"));
    let proxy = proxy(place).unwrap();
    let url = throwaway::postgres::schema_url(&proxy.url(), &table);
    let world = outlast::open(&url).await.unwrap();
    let worker = Worker::builder(world.clone()).register((booking, book)).start().await.unwrap();
    let (server, connection) = tokio_postgres::connect(place, NoTls).await.unwrap();
    tokio::spawn(connection);
    let table = format!("{table}.bookings");
    server.batch_execute(&format!("CREATE TABLE {table} (number bigint)")).await.unwrap();
    let mut trials = Trials { proxy, client: Client::new(world), server, table, number: 0 };
    let mut cuts = 0;
    for toward in [Toward::Server, Toward::Client] {
        let bytes = trials.bytes(toward).await;
        assert!(bytes > 20, "the last message and its answer are longer than {bytes} bytes");
        let offsets = (0..bytes).step_by(DISTANCE as usize).chain([bytes - 1, bytes]);
        for offset in offsets {
            let exchange = trials.proxy.cut(LAST_MESSAGE, toward, offset);
            trials.run().await;
            cuts += u32::from(exchange.is_cut());
        }
    }
    assert!(cuts > 20, "only {cuts} connections were cut");
    worker.stop().await.unwrap();
}
