//! BTX, transactional steps: how many steps per second change a table of the user, as a part of ordinary steps.

use std::sync::Arc;

use outlast::World;
use outlast::prelude::*;
use rusqlite::Connection;
use tokio_postgres::NoTls;

use super::count_workflow::{count_at_once, count_once, worker};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::Stopwatch;

/// The runs, all started at once.
const RUNS: usize = 2_000;

/// The steps of each.
const STEPS: u64 = 3;

const STEPS_TOTAL: f64 = (RUNS as u64 * STEPS) as f64;

/// Transactional steps per second, as a part of the ordinary steps per second.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BTX",
    name: "transactional-steps",
    what: "2,000 runs of 3 transactional steps that insert a row each, started at once; x the same with ordinary steps",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[Row {
        id: "BTX",
        what: "2,000 runs of 3 transactional steps; x ordinary steps",
        unit: "steps/s",
        target: Target::AtLeast(0.3).everywhere(),
    }],
    run,
};

const BOOK: Step<u64, u64> = Step::new("book").transactional();

#[step(name = "book", transactional)]
fn book_in_file(tx: &SqliteTx<'_>, number: u64) -> Result<u64, StepError> {
    tx.prepare_cached("INSERT INTO bookings (number) VALUES (?1)")?.execute([number as i64])?;
    Ok(number + 1)
}

#[step(name = "book", transactional)]
async fn book_on_server(tx: &mut PgTx<'_>, number: u64) -> Result<u64, StepError> {
    let insert = tx.prepare_cached("INSERT INTO bookings (number) VALUES ($1)").await?;
    tx.execute(&insert, &[&(number as i64)]).await?;
    Ok(number + 1)
}

#[workflow]
async fn books(ctx: Context, steps: u64) -> Result<u64, Error> {
    let mut number = 0;
    for _ in 0..steps {
        number = ctx.step(BOOK, number).await?;
    }
    Ok(number)
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    block_on(async {
        let world = env.open().await?;
        let ordinary = ordinary_steps_s(&world).await?;
        create_table(env, &world).await?;
        let builder = Worker::builder(world.clone()).register(books);
        let worker = match env.world {
            WorldKind::Postgres => builder.register(book_on_server).start().await?,
            _ => builder.register(book_in_file).start().await?,
        };
        let client = Client::new(world.clone());
        client.start(books, STEPS).await?.output().await?;
        let watch = Stopwatch::start();
        book_at_once(&client).await?;
        let steps_s = STEPS_TOTAL / watch.seconds();
        worker.stop().await?;
        let mut figure = Measurement::relative(steps_s, steps_s / ordinary);
        let (expected, found) = ((RUNS as u64 + 1) * STEPS, count_rows(env, &world).await?);
        if found != expected {
            figure.faults.push(format!("{expected} steps inserted {found} rows"));
        }
        Ok(vec![figure])
    })
}

async fn ordinary_steps_s(world: &Arc<dyn World>) -> Result<f64> {
    let worker = worker(world).await?;
    let client = Client::new(world.clone());
    count_once(&client, STEPS).await?;
    let watch = Stopwatch::start();
    count_at_once(&client, RUNS, STEPS).await?;
    let seconds = watch.seconds();
    worker.stop().await?;
    Ok(STEPS_TOTAL / seconds)
}

async fn book_at_once(client: &Client) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..RUNS {
        let client = client.clone();
        tasks.spawn(async move { client.start(books, STEPS).await?.output().await });
    }
    while let Some(booked) = tasks.join_next().await {
        booked??;
    }
    Ok(())
}

const CREATE: &str = "DROP TABLE IF EXISTS bookings; CREATE TABLE bookings (number bigint)";
const COUNT: &str = "SELECT count(*) FROM bookings";

/// A connection to the database of this round.
async fn connect(env: &Environment) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(&env.database()?.url(), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn create_table(env: &Environment, world: &Arc<dyn World>) -> Result<()> {
    match env.world {
        WorldKind::Postgres => connect(env).await?.batch_execute(CREATE).await?,
        _ => Connection::open(world.describe().place)?.execute_batch(CREATE)?,
    }
    Ok(())
}

async fn count_rows(env: &Environment, world: &Arc<dyn World>) -> Result<u64> {
    let rows: i64 = match env.world {
        WorldKind::Postgres => connect(env).await?.query_one(COUNT, &[]).await?.get(0),
        _ => Connection::open(world.describe().place)?.query_row(COUNT, [], |row| row.get(0))?,
    };
    Ok(rows.unsigned_abs())
}
