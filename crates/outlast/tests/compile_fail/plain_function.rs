//! Plain functions are neither steps nor workflows.

#![allow(unused)]

use std::sync::Arc;

use outlast::prelude::*;

async fn charge(cents: u64) -> Result<String, StepError> {
    Ok(format!("{cents}"))
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ctx.step(charge, &cents).await
}

#[step]
async fn ship(name: String) {
    drop(name);
}

fn register(world: Arc<dyn outlast::World>) {
    let _ = Worker::builder(world.clone()).register(charge);
    let _ = Worker::builder(world).register((checkout, charge));
}

fn start(client: Client) {
    let _ = client.start(charge, &42);
    let _ = client.start(ship, &"parcel".to_owned());
}

fn main() {}
