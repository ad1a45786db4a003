//! The input has the type that the step or workflow takes, and the output the one that it returns.

#![allow(unused)]

use outlast::prelude::*;

#[step]
async fn charge(cents: u64) -> Result<String, StepError> {
    Ok(format!("{cents}"))
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ctx.step(charge, "42").await
}

#[workflow]
async fn wrong_output(ctx: Context, cents: u64) -> Result<u64, Error> {
    ctx.step(charge, &cents).await
}

async fn start(client: Client) -> Result<(), Error> {
    let _ = client.start(checkout, "42").await?;
    let run = client.start(checkout, &42).await?;
    let _: u64 = run.output().await?;
    Ok(())
}

fn main() {}
