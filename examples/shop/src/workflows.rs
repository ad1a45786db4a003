//! The workflows and steps of the shop. Each is one kind of run that the dashboard shows.

use std::time::Duration;

use outlast::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An order of a customer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Order {
    /// The number of the order.
    pub(crate) number: u64,
    /// Who ordered it.
    pub(crate) customer: String,
    /// What was ordered; a unicorn is out of stock.
    pub(crate) article: String,
    /// The price.
    pub(crate) cents: u64,
}

/// What an import publishes.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    imported: u32,
    of: u32,
}

/// What a payment service or a warehouse needs for its answer.
#[allow(clippy::disallowed_methods, reason = "the services around a shop take real time")]
pub(crate) async fn take(least_ms: u64, most_ms: u64) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(least_ms..=most_ms))).await;
}

#[step]
async fn reserve(order: Order) -> Result<String, StepError> {
    take(80, 250).await;
    if order.article == "unicorn" {
        return Err(StepError::fatal("`unicorn` is not in stock").with_code("out_of_stock"));
    }
    Ok(format!("shelf {}-{}", order.number % 7, order.number % 31))
}

#[step]
async fn release(undo: Undo<Order, String>) -> Result<String, StepError> {
    take(60, 200).await;
    Ok(format!("released {}", undo.output.unwrap_or_default()))
}

/// The bank answers on the second or third attempt of some orders, and declines some cards.
#[step(attempts = 5, initial = "600ms", timeout = "10s")]
async fn charge(cx: StepContext, order: Order) -> Result<String, StepError> {
    tracing::info!(order.cents, "asking the bank");
    take(200, 700).await;
    let needs = match order.number % 8 {
        1 => 2,
        5 => 3,
        _ => 1,
    };
    if cx.attempt() < needs {
        return Err(StepError::msg("the bank does not respond").class(ErrorClass::Network));
    }
    if order.number % 9 == 4 {
        return Err(StepError::fatal("the card ending in 4242 was declined").with_code("card_declined"));
    }
    Ok(format!("payment {}", cx.key()))
}

#[step]
async fn refund(undo: Undo<Order, String>) -> Result<String, StepError> {
    take(150, 400).await;
    Ok(format!("{} cents refunded", undo.input.cents))
}

#[step]
async fn ship(order: Order) -> Result<String, StepError> {
    take(150, 500).await;
    if order.number % 13 == 6 {
        return Err(StepError::fatal("the address does not exist").with_code("bad_address"));
    }
    Ok(format!("parcel-{}", order.number))
}

#[step]
pub(crate) async fn mail(to: String, text: String) -> Result<(), StepError> {
    take(40, 150).await;
    let _ = (to, text);
    Ok(())
}

/// An order: what was reserved and paid is undone if it cannot be shipped.
#[workflow(version = 2)]
pub(crate) async fn checkout(ctx: Context, order: Order) -> Result<String, Error> {
    ctx.tag("customer", &order.customer)?;
    ctx.step(reserve, &order).undo(release).await?;
    ctx.step(charge, &order).undo(refund).await?;
    let thanks = (order.customer.clone(), format!("Thank you for {}", order.article));
    let (parcel, ()) = try_join!(ctx.step(ship, &order), ctx.step(mail, thanks))?;
    let bill = ctx.child(invoice, &order).key(format!("invoice-{}", order.number)).await?;
    Ok(format!("{parcel}, {bill}"))
}

#[workflow]
pub(crate) async fn invoice(ctx: Context, order: Order) -> Result<String, Error> {
    ctx.step(mail, (order.customer, format!("Invoice over {} cents", order.cents))).await?;
    ctx.sleep("400ms").await?;
    Ok(format!("invoice-{}", order.number))
}

/// Asks for a rating three days after the parcel, and waits a week for it.
#[workflow]
pub(crate) async fn rating(ctx: Context, order: Order) -> Result<String, Error> {
    ctx.step(mail, (order.customer.clone(), "Your parcel is on its way".to_owned())).await?;
    ctx.sleep("3d").await?;
    ctx.step(mail, (order.customer, "Do you like it?".to_owned())).await?;
    match ctx.hook::<u8>("stars").timeout("7d").await {
        Ok(stars) => Ok(format!("{stars} stars")),
        Err(error) if error.is_timeout() => Ok("no rating".into()),
        Err(error) => Err(error),
    }
}

/// A decision that a person makes.
#[derive(Serialize, Deserialize)]
struct Decision {
    approved: bool,
    by: String,
}

/// An order over a limit needs the approval of a person.
#[workflow]
pub(crate) async fn approval(ctx: Context, order: Order) -> Result<String, Error> {
    ctx.step(mail, ("finance".to_owned(), format!("Approve {} cents?", order.cents))).await?;
    let decision = ctx.hook::<Decision>("decision").timeout("2d").await?;
    Ok(format!("{} by {}", if decision.approved { "approved" } else { "refused" }, decision.by))
}

#[step]
async fn import_rows(cx: StepContext, from: u32, to: u32) -> Result<u32, StepError> {
    take(150, 600).await;
    if cx.attempt() == 1 && from % 400 == 300 {
        return Err(StepError::msg("the file server closed the connection").class(ErrorClass::Network));
    }
    cx.stream("log").write(&format!("rows {from} to {to} imported")).await?;
    Ok(to - from)
}

/// A long import that publishes its progress and writes a log.
#[workflow]
pub(crate) async fn import(ctx: Context, rows: u32) -> Result<u32, Error> {
    let mut imported = 0;
    while imported < rows {
        ctx.publish(&Progress { imported, of: rows });
        let parts = (0..4).map(|part| imported + part * 100).filter(|from| *from < rows);
        let parts = parts.map(|from| ctx.step(import_rows, (from, (from + 100).min(rows))));
        imported += try_join_all(parts.collect::<Vec<_>>()).await?.into_iter().sum::<u32>();
    }
    ctx.publish(&Progress { imported, of: rows });
    Ok(imported)
}

/// The points of a customer.
#[derive(Serialize, Deserialize)]
pub(crate) struct Points {
    points: u32,
}

#[workflow]
pub(crate) async fn loyalty(ctx: Context, balance: Points) -> Result<u32, Error> {
    ctx.step(mail, ("customer".to_owned(), format!("You have {} points", balance.points))).await?;
    Ok(balance.points)
}

#[step(attempts = 20, initial = "20s")]
async fn sync_stock(cx: StepContext, warehouse: String) -> Result<(), StepError> {
    take(300, 900).await;
    let attempt = cx.attempt();
    Err(StepError::msg(format!("{warehouse} is closed for maintenance (request {attempt})"))
        .class(ErrorClass::Server))
}

/// A step that is attempted again and again.
#[workflow]
pub(crate) async fn restock(ctx: Context, warehouse: String) -> Result<(), Error> {
    ctx.step(sync_stock, &warehouse).await
}

/// Everything that a worker of the shop registers.
pub(crate) fn worker(world: std::sync::Arc<dyn outlast::core::World>) -> outlast::WorkerBuilder<()> {
    Worker::builder(world)
        .register((checkout, invoice, rating, approval, import, loyalty, restock))
        .register((reserve, release, charge, refund, ship, mail, import_rows, sync_stock))
        // The dashboard makes forms of the types of their inputs.
        .describe(checkout)
        .describe(rating)
        .describe(approval)
        .describe(import)
        .describe(restock)
}
