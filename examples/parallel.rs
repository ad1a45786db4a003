//! Parallel steps: all at once, a few at a time, and a race.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outlast::prelude::*;

/// Counts the steps in progress, and their maximum.
#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[step]
async fn resize(cx: StepContext<Arc<Crowd>>, image: String) -> String {
    let now = cx.state().now.fetch_add(1, Ordering::SeqCst) + 1;
    cx.state().most.fetch_max(now, Ordering::SeqCst);
    tokio::task::yield_now().await; // a real step would process the image here
    cx.state().now.fetch_sub(1, Ordering::SeqCst);
    format!("small {image}")
}

/// Runs all steps at once: they are requested together at the next await. The results are in the order of the images.
#[workflow]
async fn gallery(ctx: Context, images: Vec<String>) -> Result<String, Error> {
    let resizing: Vec<_> = images.iter().map(|image| ctx.step(resize, image)).collect();
    let mut small = Vec::new();
    for image in resizing {
        small.push(image.await?);
    }
    Ok(small.join(", "))
}

/// Runs at most two steps at a time.
#[workflow]
async fn gently(ctx: Context, images: Vec<String>) -> Result<usize, Error> {
    let small = ctx.parallel(images, 2, |ctx, image| async move { ctx.step(resize, &image).await });
    Ok(small.await?.len())
}

#[step]
async fn price(shop: String) -> Result<String, StepError> {
    if shop != "fast" {
        std::future::pending::<()>().await; // never responds: the attempt is dropped with the race
    }
    Ok(format!("7 EUR at the {shop} shop"))
}

/// Returns the first price. If no shop responds in time, the timer wins.
#[workflow]
async fn cheapest(ctx: Context, shops: (String, String)) -> Result<String, Error> {
    select! {
        found = ctx.step(price, &shops.0) => found,
        found = ctx.step(price, &shops.1) => found,
        slept = ctx.sleep("50ms") => slept.map(|()| "no shop responded".to_owned()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let crowd = Arc::new(Crowd::default());
    let worker = Worker::builder(world.clone())
        .state(crowd.clone())
        .register((gallery, gently, cheapest, resize, price))
        .start()
        .await?;
    let client = Client::new(world);
    let images = |count: u32| (1..=count).map(|n| format!("image {n}")).collect::<Vec<_>>();

    println!("1. All steps at once, with the results in the order of the images.");
    let run = client.start(gallery, images(3)).await?;
    println!("    {}", run.output().await?);

    println!("2. A hundred steps, two at a time.");
    crowd.most.store(0, Ordering::SeqCst);
    let run = client.start(gently, images(100)).await?;
    let done = run.output().await?;
    assert!(crowd.most.load(Ordering::SeqCst) <= 2);
    println!("    {done} done, never more than 2 in progress");

    println!("3. A race of two shops: the loser is dropped.");
    let run = client.start(cheapest, ("slow".to_owned(), "fast".to_owned())).await?;
    println!("    {}", run.output().await?);

    println!("4. Two shops that do not respond: the timer wins.");
    let run = client.start(cheapest, ("slow".to_owned(), "slower".to_owned())).await?;
    println!("    {}", run.output().await?);
    worker.stop().await
}
