//! The server that `cargo xtask fuzz-api` sends requests to: a world with runs in several statuses, and a worker.
//!
//! It prints its address and an access key, and ends when its standard input is closed.

#![allow(missing_docs, reason = "a program")]

use outlast::prelude::*;
use outlast_api::Role;
use outlast_server::{AccessKey, AccessKeys, Config, router, serve};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[step(attempts = 2, initial = "10ms")]
async fn charge(cx: StepContext, cents: u64) -> Result<u64, StepError> {
    cx.stream("progress").write(&cents).await?;
    if cents == 13 { Err(StepError::msg("the card was declined")) } else { Ok(cents) }
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<u64, Error> {
    ctx.publish(&json!({ "cents": cents }));
    ctx.step(charge, cents).await
}

#[workflow]
async fn approval(ctx: Context, input: Value) -> Result<Value, Error> {
    let decision = ctx.hook::<Value>("decision").timeout("1h").await?;
    ctx.child(checkout, 7).await?;
    Ok(json!([input, decision]))
}

#[workflow]
async fn nap(ctx: Context) -> Result<(), Error> {
    ctx.sleep("3d").await
}

#[workflow]
async fn broken(_ctx: Context) -> Result<(), Error> {
    panic!("a bug")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let world = outlast::open(&format!("sqlite:{}", folder.path().join("fuzz.db").display())).await?;
    let worker =
        Worker::builder(world.clone()).register((checkout, approval, nap, broken, charge)).start().await?;
    let client = Client::new(world);
    for cents in [1, 2, 13] {
        client.start(checkout, cents).key(format!("order-{cents}")).tag("shop", "a").await?;
    }
    client.start(approval, json!({ "a": [1, "two", null] })).await?;
    client.start(nap, ()).await?;
    client.start(broken, ()).await?;
    client.start(nap, ()).queue("nobody").await?;

    let (key, stored) = AccessKey::generate("fuzz", Role::Admin)?;
    let shutdown = CancellationToken::new();
    let config = Config::keys(AccessKeys::new([stored])).shutdown(shutdown.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{} {}", listener.local_addr()?, key.secret());
    let served = tokio::spawn(serve(listener, router(client, config), shutdown.clone()));
    let mut input = Vec::new();
    tokio::io::stdin().read_to_end(&mut input).await?;
    shutdown.cancel();
    served.await??;
    worker.stop().await?;
    Ok(())
}
