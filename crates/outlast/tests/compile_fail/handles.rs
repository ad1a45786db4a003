//! A handle has the types that its code has, and that its callers use.

#![allow(unused)]

use outlast::prelude::*;

const CHARGE: Step<u64, String> = Step::new("charge");
const CHECKOUT: Workflow<u64, String> = Workflow::new("checkout").check(check_text);

fn check_text(_text: &String) -> Result<(), Error> {
    Ok(())
}

async fn takes_text(_cx: StepContext, cents: String) -> Result<String, StepError> {
    Ok(cents)
}

async fn returns_a_number(ctx: Context, cents: u64) -> Result<u64, Error> {
    let charged: u64 = ctx.step(CHARGE, cents).await?;
    Ok(charged)
}

async fn start(client: Client) -> Result<(), Error> {
    let run = client.start(CHECKOUT, "42").await?;
    Ok(())
}

fn worker(world: std::sync::Arc<dyn outlast::World>) {
    let _ = Worker::builder(world).step(CHARGE, takes_text).workflow(CHECKOUT, returns_a_number);
}

fn main() {}
