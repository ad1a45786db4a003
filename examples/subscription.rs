//! An endless subscription with `ctx.continue_as`: each period is a generation of the same run, with its own input and
//! without the history of its past. Years of it need as little as the first month.

use outlast::prelude::*;
use serde::{Deserialize, Serialize};

/// What a period needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Subscription {
    customer: String,
    cents: u64,
    period: u32,
}

#[step]
async fn charge(customer: String, cents: u64) -> Result<(), StepError> {
    println!("    charged    {customer} {cents} cents");
    Ok(())
}

/// One period. The price can change and the subscription can end while it waits; both are asked for by hooks.
#[workflow]
async fn subscription(ctx: Context, mut state: Subscription) -> Result<u32, Error> {
    ctx.tag("period", state.period.to_string())?;
    ctx.step(charge, (state.customer.clone(), state.cents)).await?;
    let mut month = ctx.sleep("50ms"); // a month, in a hurry
    loop {
        select! {
            _ = &mut month => break,
            cents = ctx.hook::<u64>("price") => {
                state.cents = cents?;
                println!("    new price  {} cents from period {} on", state.cents, state.period + 1);
            }
            _ = ctx.hook::<()>("end") => return Ok(state.period),
        }
    }
    state.period += 1;
    ctx.continue_as(&state)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let worker = Worker::builder(world.clone()).register((subscription, charge)).start().await?;
    let client = Client::new(world);
    let state = Subscription { customer: "ada".to_owned(), cents: 900, period: 1 };
    let run = client.start(subscription, &state).key("ada").await?;
    run.send("price", &1_200).await?;
    while run.view().await?.generation < 4 {
        tokio::task::yield_now().await;
    }
    run.send("end", &()).await?;
    let periods = run.output().await?;
    let view = run.view().await?;
    println!("    periods    {periods}, generation {}, one run: {}", view.generation, view.status);
    worker.stop().await
}
