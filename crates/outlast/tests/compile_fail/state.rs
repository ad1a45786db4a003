//! A step with a state is registered with a worker that has this state.

#![allow(unused)]

use std::sync::Arc;

use outlast::prelude::*;

struct Bank;
struct Library;

#[step]
async fn charge(cx: StepContext<Bank>, cents: u64) -> Result<(), StepError> {
    let (_, _): (&Bank, u64) = (cx.state(), cents);
    Ok(())
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<(), Error> {
    ctx.step(charge, &cents).await
}

fn no_state(world: Arc<dyn outlast::World>) {
    let _ = Worker::builder(world).register(charge);
}

fn no_state_for_one_of_several(world: Arc<dyn outlast::World>) {
    let _ = Worker::builder(world).register((checkout, charge));
}

fn wrong_state(world: Arc<dyn outlast::World>) {
    let _ = Worker::builder(world).state(Library).register((checkout, charge));
}

fn main() {}
