//! The demonstration: 240 runs of the last days, with every status and mark.
//!
//! The runs are real. The engine executes them on a clock that is three days behind and catches up in jumps, so that
//! there are sleeps of days, while steps take the time that they need.

mod clock;
mod workflows;

use std::sync::Arc;
use std::time::Duration;

use outlast::core::{BuiltInRuns, Clock, RunQuery, Status};
use outlast::prelude::*;
use outlast::{OpNumber, SystemClock};

use crate::load::{order, start_with_old_input};
use crate::workflows::{approval, checkout, import, rating, restock};
use clock::PastClock;
use workflows::{
    Booking, backup, catalogue, fulfilment, gallery, hostile, metering, offboarding, report, subscription,
    trip,
};

/// The runs that there are in the end.
const RUNS: u64 = 240;

/// The orders of each visit of the past: hours ago, and how many.
const VISITS: [(f64, u64); 6] = [(76.0, 18), (49.0, 17), (26.0, 18), (7.0, 17), (1.2, 18), (0.2, 13)];

/// Fills the file with the demonstration, unless it has runs.
///
/// # Errors
///
/// If the file cannot be used.
pub(crate) async fn prepare(url: &str) -> Result<(), Error> {
    let clock = PastClock::behind(hours(VISITS[0].0));
    let world = outlast::open_with_clock(url, Arc::new(clock.clone())).await?;
    let client = Client::new(world.clone());
    if client.counts().await?.values().sum::<u64>() > 0 {
        return Ok(());
    }
    start_with_old_input(&client).await?;
    let worker = workflows::register(crate::workflows::worker(world)).drain("1s").start().await?;
    start_long_runs(&client).await?;
    let mut number = 100;
    for (visit, (ago, orders)) in VISITS.into_iter().enumerate() {
        advance(&client, &clock, hours(ago)).await?;
        for _ in 0..orders {
            number += 1;
            client.start(checkout, order(number)).key(format!("order-{number}")).await?;
        }
        start_others(&client, visit).await?;
        settle(&client).await?;
    }
    fill(&client, number).await?;
    mark(&client).await?;
    advance(&client, &clock, Duration::ZERO).await?;
    worker.stop().await
}

/// Moves the clock nearer to the present, from one wake time to the next, so that every run wakes in time.
async fn advance(client: &Client, clock: &PastClock, lag: Duration) -> Result<(), Error> {
    loop {
        let built_in = BuiltInRuns::Listed;
        let waiting =
            RunQuery { statuses: vec![Status::Waiting], built_in, limit: 200, ..RunQuery::default() };
        let next = client.runs(waiting).await?.runs.iter().filter_map(|run| run.wake_at).min();
        let left = next.map_or(Duration::ZERO, |next| SystemClock.now().since(next));
        if left <= lag {
            clock.jump(lag);
            return Ok(());
        }
        clock.jump(left);
        settle(client).await?;
    }
}

/// The worker of the demonstration, on the machine's clock.
pub(crate) fn worker(world: Arc<dyn outlast::core::World>) -> outlast::WorkerBuilder<()> {
    workflows::register(crate::workflows::worker(world)).drain("1s")
}

/// Starts what is in progress while somebody looks.
///
/// # Errors
///
/// If the world cannot be used.
pub(crate) async fn start_live_runs(client: &Client) -> Result<(), Error> {
    client.start(backup, "volume-7".to_owned()).key("backup-7").tag("volume", "volume-7").await.map(drop)
}

fn hours(hours: f64) -> Duration {
    Duration::from_secs_f64(hours * 3_600.0)
}

/// Waits until nothing is in progress: all open runs wait for something that is far away.
#[allow(clippy::disallowed_methods, reason = "the services around a shop take real time")]
async fn settle(client: &Client) -> Result<(), Error> {
    let mut quiet = 0;
    while quiet < 2 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        let query = RunQuery {
            statuses: vec![Status::Pending, Status::Running, Status::Waiting],
            limit: 200,
            ..RunQuery::default()
        };
        let now = client.world().clock().now();
        let soon = now.plus(Duration::from_secs(5));
        let runs = client.runs(query).await?.runs;
        let is_busy = runs.iter().any(|run| match run.status {
            Status::Waiting => run.wake_at.is_some_and(|at| at < soon),
            Status::Pending => &*run.queue == "default" && run.wake_at.is_none_or(|at| at <= now),
            _ => true,
        });
        quiet = if is_busy { 0 } else { quiet + 1 };
    }
    Ok(())
}

/// Starts the runs that live for days.
async fn start_long_runs(client: &Client) -> Result<(), Error> {
    for number in [1, 2, 3, 4] {
        let order = order(number);
        let customer = order.customer.clone();
        client.start(rating, order).key(format!("rating-{number}")).tag("customer", customer).await?;
    }
    let schedules =
        [("nightly-report", "0 3 * * MON-FRI", "Europe/Berlin"), ("weekly-stock", "30 6 * * MON", "UTC")];
    for (name, cron, zone) in schedules {
        client.schedule(name).cron(cron).timezone(zone).start(report, name).await?;
    }
    client.schedule("price-check").every("4h").start(report, "prices").await?;
    client.start(metering, 1_000).key("meter-7").await?;
    client.start(subscription, 1).key("subscription-ada").await?;
    client.start(offboarding, "edsger".to_owned()).key("offboarding-edsger").await?;
    client.start(checkout, order(23)).key("gift-23").queue("gift-wrap").priority(7).await.map(drop)
}

/// Starts what is special about a visit.
async fn start_others(client: &Client, visit: usize) -> Result<(), Error> {
    match visit {
        0 => {
            let run = client.start(approval, order(7)).key("approval-7").await?;
            run.cancel("ordered twice").await.map(drop)
        }
        1 => client.start(fulfilment, 3).key("fulfilment-1").await.map(drop),
        2 => {
            for (place, can_be_undone) in [("Lisbon", true), ("Oslo", false)] {
                let booking = Booking { place: place.to_owned(), can_be_undone };
                client.start(trip, booking).key(format!("trip-{}", place.to_lowercase())).await?;
            }
            // Before the run asks for it.
            let run = client.start(gallery, "harbour".to_owned()).key("gallery-1").await?;
            run.send("caption", &"Harbour at night").await?;
            client.start(gallery, "station".to_owned()).key("gallery-2").await.map(drop)
        }
        3 => {
            client.by_key("rating-2").send("stars", &5_u8).await?;
            client.start(import, 2_000).key("import-3").tag("file", "prices.csv").await?;
            for number in [61, 62, 63] {
                client
                    .start(approval, order(number))
                    .key(format!("approval-{number}"))
                    .tag("limit", "100")
                    .await?;
            }
            Ok(())
        }
        4 => {
            client.start(hostile, "<script>alert(1)</script>".to_owned()).key("<b>key</b>").await?;
            client.start(catalogue, 20).key("catalogue-spring").tag("file", "spring.csv").await.map(drop)
        }
        _ => {
            // The bank has confirmed the payment on the phone.
            let unpaid = client.by_key("trip-lisbon").id().await?;
            client.fork::<()>(unpaid).with_output(OpNumber(4), &()).await?;
            client.start(restock, "Rotterdam".to_owned()).key("restock-rotterdam").await.map(drop)
        }
    }
}

/// Starts orders until there are as many runs as there should be.
async fn fill(client: &Client, mut number: u64) -> Result<(), Error> {
    loop {
        let runs = client.counts().await?.values().sum::<u64>();
        match RUNS.saturating_sub(runs + 1) {
            0 => return Ok(()),
            // An order starts a second run, its invoice; an approval does not.
            1 => client.start(approval, order(88)).key("approval-88").await.map(drop)?,
            left => {
                for _ in 0..(left / 2).max(1) {
                    number += 1;
                    client.start(checkout, order(number)).key(format!("order-{number}")).await?;
                }
            }
        }
        settle(client).await?;
    }
}

/// Pauses, cancels and protects some of the runs.
async fn mark(client: &Client) -> Result<(), Error> {
    client.schedule_handle("weekly-stock").pause("stocktaking").await?;
    client.by_key("approval-62").pause("the customer is on holiday until Monday").await?;
    client.quarantine(client.by_key("trip-lisbon").id().await?).await?;
    client.by_key("offboarding-edsger").cancel("the customer stays").await?;
    settle(client).await
}
