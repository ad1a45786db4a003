//! Parallel steps: all at once, a few at a time, and the first of several.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outlast::prelude::*;

/// The current and the maximum number of concurrent steps.
#[derive(Default)]
struct StepCounter {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[step]
async fn resize(cx: StepContext<Arc<StepCounter>>, image: String) -> String {
    let now = cx.state().now.fetch_add(1, Ordering::SeqCst) + 1;
    cx.state().most.fetch_max(now, Ordering::SeqCst);
    tokio::task::yield_now().await; // a real step would process the image here
    cx.state().now.fetch_sub(1, Ordering::SeqCst);
    format!("small {image}")
}

/// All at once: they are requested together at the next await. The outcomes have the order of the requests.
#[workflow]
async fn gallery(ctx: Context, images: Vec<String>) -> Result<String, Error> {
    let resizing: Vec<_> = images.iter().map(|image| ctx.step(resize, image)).collect();
    let mut small = Vec::new();
    for image in resizing {
        small.push(image.await?);
    }
    Ok(small.join(", "))
}

/// At most two at a time.
#[workflow]
async fn two_at_a_time(ctx: Context, images: Vec<String>) -> Result<usize, Error> {
    let small = ctx.parallel(images, 2, |ctx, image| async move { ctx.step(resize, &image).await });
    Ok(small.await?.len())
}

#[step]
async fn price(shop: String) -> Result<String, StepError> {
    if shop != "fast" {
        std::future::pending::<()>().await; // never returns: the attempt is dropped with the race
    }
    Ok(format!("7 EUR at the {shop} shop"))
}

/// The first answer wins, or the timeout.
#[workflow]
async fn cheapest(ctx: Context, shops: (String, String)) -> Result<String, Error> {
    select! {
        found = ctx.step(price, &shops.0) => found,
        found = ctx.step(price, &shops.1) => found,
        slept = ctx.sleep("50ms") => slept.map(|()| "nobody answered".to_owned()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let counter = Arc::new(StepCounter::default());
    let worker = Worker::builder(world.clone())
        .state(counter.clone())
        .register((gallery, two_at_a_time, cheapest, resize, price))
        .start()
        .await?;
    let client = Client::new(world);
    let images = |count: u32| (1..=count).map(|n| format!("image {n}")).collect::<Vec<_>>();

    println!("1. All at once, in the order in which they were asked for.");
    let run = client.start(gallery, images(3)).await?;
    println!("    {}", run.output().await?);

    println!("2. A hundred, two at a time.");
    counter.most.store(0, Ordering::SeqCst);
    let run = client.start(two_at_a_time, images(100)).await?;
    let done = run.output().await?;
    assert!(counter.most.load(Ordering::SeqCst) <= 2);
    println!("    {done} done, never more than 2 under way");

    println!("3. The first of two shops, and the loser is dropped.");
    let run = client.start(cheapest, ("slow".to_owned(), "fast".to_owned())).await?;
    println!("    {}", run.output().await?);

    println!("4. Two shops that do not answer, and a timer that wins.");
    let run = client.start(cheapest, ("slow".to_owned(), "slower".to_owned())).await?;
    println!("    {}", run.output().await?);
    worker.stop().await
}
