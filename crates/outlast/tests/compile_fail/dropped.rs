//! An operation or a start that is not awaited is most likely a mistake.

#![allow(unused)]
#![deny(unused_must_use)]

use outlast::prelude::*;

#[step]
async fn charge(cents: u64) {
    println!("{cents}");
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<(), Error> {
    ctx.step(charge, &cents);
    ctx.sleep("1h");
    ctx.hook::<u64>("paid").timeout("1d");
    ctx.call("fetch", cents, async |cents| Ok::<_, StepError>(cents));
    Ok(())
}

async fn start(client: Client) {
    client.start(checkout, &42).key("order-42");
}

fn main() {}
