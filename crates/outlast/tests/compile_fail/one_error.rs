//! A function with an attribute that is refused is one error: its uses are not errors as well.

#![allow(unused)]

use std::sync::Arc;

use outlast::prelude::*;

#[step]
async fn greet(name: &str) -> Result<String, StepError> {
    Ok(format!("hello {name}"))
}

#[step]
fn forgot_async(cents: u64) -> u64 {
    not_defined_anywhere(cents)
}

#[step]
async fn any_value<T: Clone>(value: T) -> T {
    value
}

#[workflow]
async fn without_context(cents: u64) -> Result<u64, Error> {
    Ok(cents)
}

mod other {
    #[outlast::step]
    pub async unsafe fn dangerous() {}
}

#[workflow]
async fn uses_them(ctx: Context) -> Result<String, Error> {
    let cents: u64 = ctx.step(forgot_async, 42).timeout("30s").await?;
    let same = ctx.step(any_value, &cents).await?;
    ctx.child(without_context, same).await?;
    ctx.step(other::dangerous, ()).await?;
    ctx.step(greet, "Ada").await
}

async fn registers_them(world: Arc<dyn outlast::World>) -> Result<(), Error> {
    let client = Client::new(world.clone());
    let run = client.start(without_context, 42_u64).key("one").await?;
    let output: u64 = run.output().await?;
    let code = (uses_them, greet, forgot_async, any_value, without_context);
    let worker = Worker::builder(world).register(code).register(other::dangerous).start().await?;
    worker.stop().await
}

async fn calls_one() {
    let greeting: String = greet("Ada").await.unwrap();
}

fn main() {}
