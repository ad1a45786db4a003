//! Transfers between accounts: both sides of a transfer are transactional steps, so each happens once, without a key. Kill
//! the program while it works and start it again: no cent is lost or made.
//!
//! ```text
//! cargo run --example transfer                # in a temporary folder
//! cargo run --example transfer -- bank.db     # kill it, and run it again
//! ```

use outlast::prelude::*;
use outlast::sqlite::rusqlite::Connection;
use serde::{Deserialize, Serialize};

const TRANSFERS: u32 = 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Transfer {
    from: String,
    to: String,
    cents: i64,
}

/// Takes the money. The balance changes if and only if this outcome is recorded.
#[step(transactional)]
fn debit(tx: &SqliteTx<'_>, transfer: Transfer) -> Result<(), StepError> {
    let balance: i64 = tx.query_row(
        "UPDATE accounts SET cents = cents - ?2 WHERE name = ?1 RETURNING cents",
        (&transfer.from, transfer.cents),
        |row| row.get(0),
    )?;
    // An error rolls the transaction back.
    if balance < 0 {
        Err(StepError::fatal(format!("{} has too little money", transfer.from)))
    } else {
        Ok(())
    }
}

#[step(transactional)]
fn credit(tx: &SqliteTx<'_>, transfer: Transfer) -> Result<(), StepError> {
    let sql = "UPDATE accounts SET cents = cents + ?2 WHERE name = ?1";
    match tx.execute(sql, (&transfer.to, transfer.cents))? {
        0 => Err(StepError::fatal(format!("there is no account {}", transfer.to))),
        _ => Ok(()),
    }
}

/// Gives the money back. It runs only if `debit` completed.
#[step(transactional)]
fn give_back(tx: &SqliteTx<'_>, undo: Undo<Transfer, ()>) -> Result<(), StepError> {
    let Transfer { from, cents, .. } = undo.input;
    tx.execute("UPDATE accounts SET cents = cents + ?2 WHERE name = ?1", (&from, cents))?;
    Ok(())
}

#[workflow]
async fn transfer(ctx: Context, order: Transfer) -> Result<(), Error> {
    ctx.step(debit, &order).undo(give_back).await?;
    ctx.step(credit, &order).await?;
    ctx.keep(); // it is done: nothing is undone any more
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let folder = tempfile::tempdir()?;
    let file = std::env::args().nth(1).map_or_else(|| folder.path().join("bank.db"), Into::into);
    let world = outlast::open(&format!("sqlite:{}", file.display())).await?;
    let bank = Connection::open(&file)?;
    bank.execute_batch(
        "CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, cents INTEGER);
         INSERT OR IGNORE INTO accounts VALUES ('ada', 1000), ('bob', 500)",
    )?;

    let worker =
        Worker::builder(world.clone()).register((transfer, debit, credit, give_back)).start().await?;
    let client = Client::new(world);
    let mut runs = Vec::new();
    for number in 0..TRANSFERS {
        // Every fifth receiver does not exist: the money is given back.
        let to = if number % 5 == 4 { "nobody" } else { "bob" };
        let order = Transfer { from: "ada".into(), to: to.into(), cents: 10 };
        runs.push(client.start(transfer, &order).key(format!("transfer-{number}")).await?);
    }
    let outcomes = join_all(runs.iter().map(|run| run.output())).await;
    let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    println!("{done} transfers, {} given back", outcomes.len() - done);

    let mut balances = bank.prepare("SELECT name, cents FROM accounts ORDER BY name")?;
    let rows = balances.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    for row in rows {
        let (name, cents) = row?;
        println!("{name}: {cents} cents");
    }
    Ok(worker.stop().await?)
}
