//! Runs that start child runs: awaited, with a timeout, independent, and cancelled together.

use outlast::prelude::*;
use outlast::{RunId, Status};

#[workflow]
async fn parcel(ctx: Context, number: u32) -> Result<String, Error> {
    ctx.tag("parcel", number.to_string())?;
    ctx.sleep("20ms").await?; // a real parcel takes days
    if number == 13 {
        return Err(Error::msg("parcel 13 is lost"));
    }
    Ok(format!("parcel {number} was delivered"))
}

/// Each parcel is a run of its own, with its own history. The order waits until the last one has been delivered.
#[workflow]
async fn order(ctx: Context, parcels: Vec<u32>) -> Result<Vec<String>, Error> {
    let children: Vec<_> = parcels.iter().map(|number| ctx.child(parcel, number)).collect();
    try_join_all(children).await
}

/// A child that takes too long is cancelled, and so are its own children.
#[workflow]
async fn hurry(ctx: Context) -> Result<String, Error> {
    match ctx.child(order, vec![1, 2]).timeout("5ms").await {
        Err(error) if error.is_timeout() => Ok("did not wait for the order".into()),
        ended => Ok(ended?.join(", ")),
    }
}

/// Starts a child that continues after its parent has ended. Its key ensures that there is only one.
#[workflow]
async fn subscribe(ctx: Context, customer: u32) -> Result<RunId, Error> {
    ctx.child(parcel, customer).key(format!("welcome-{customer}")).abandon().await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let worker = Worker::builder(world.clone()).register((order, parcel, hurry, subscribe)).start().await?;
    let client = Client::new(world);

    println!("1. A hundred children, awaited together.");
    let run = client.start(order, (100..200).collect::<Vec<_>>()).await?;
    let delivered = run.output().await?;
    println!("    {} of them, the first: {}", delivered.len(), delivered[0]);

    println!("2. One of three children fails: the parent returns its error, and its end cancels the others.");
    let run = client.start(order, vec![12, 13, 14]).await?;
    println!("    {}", run.output().await.expect_err("parcel 13 is lost"));

    println!("3. A child that takes too long.");
    let run = client.start(hurry, ()).await?;
    println!("    {}", run.output().await?);
    let child = client.list().parent(run.id()).await?.runs.remove(0);
    let ended = client.handle::<Vec<String>>(child.id).output().await;
    println!("    the order: {}", ended.expect_err("it was cancelled"));
    let family = client.list().root(run.id()).await?.runs;
    println!("    {} runs have the same root", family.len());

    println!("4. Started twice with the same key: there is one child, and it continues alone.");
    let first = client.start(subscribe, 7).await?.output().await?;
    let second = client.start(subscribe, 7).await?.output().await?;
    assert_eq!(first, second);
    println!("    {}", client.handle::<String>(first).output().await?);
    assert_eq!(client.run(first).await?.status, Status::Completed);
    worker.stop().await
}
