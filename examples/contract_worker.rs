//! The worker of a shop. It has the code for the contract in `contract/`, and runs until Enter is pressed.
//!
//! ```text
//! cargo run --example contract_worker -- shop.db
//! ```

use outlast::prelude::*;
use outlast_example_contract::{ADDRESS, CHARGE, CHECKOUT, Order, Receipt, SHIP};

async fn checkout(ctx: Context, order: Order) -> Result<Receipt, Error> {
    let payment = ctx.step(CHARGE, &order).await?;
    let address = ctx.hook(ADDRESS).timeout("30d").await?;
    let parcel = ctx.step(SHIP, (order, address)).await?;
    Ok(Receipt { payment, parcel })
}

async fn charge(cx: StepContext, order: Order) -> Result<String, StepError> {
    if cx.attempt() == 1 {
        return Err(StepError::retry_after("the bank is busy", "100ms"));
    }
    println!("charge   {} cents for {}", order.cents, order.item);
    Ok(format!("payment {}", order.id))
}

async fn ship(_cx: StepContext, (order, address): (Order, String)) -> Result<String, StepError> {
    println!("ship     {} to {address}", order.item);
    Ok(format!("parcel {}", order.id))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "shop.db".to_owned());
    let world = outlast::open(&format!("sqlite:{file}")).await?;
    let worker = Worker::builder(world)
        .workflow(CHECKOUT, checkout)
        .step(CHARGE, charge)
        .step(SHIP, ship)
        .on_retry(|about| println!("retry    {}: {}", about.step, about.message))
        .start()
        .await?;
    println!("serving {file}; press Enter to stop");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    worker.stop().await
}
