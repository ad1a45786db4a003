//! A nightly report: a schedule that fires at local times, catches up after downtime, and is controlled by name.
//!
//! The example runs under virtual time, so three nights pass in a moment.

use outlast::prelude::*;
use outlast::{CatchUp, Firing};
use outlast_testkit::TestWorld;

/// Computes the input of a firing when it is due.
#[step]
async fn teams(firing: Firing) -> Result<Vec<String>, StepError> {
    println!("    teams    for the night of {}", firing.scheduled_at);
    Ok(vec!["sales".into(), "support".into()])
}

#[step]
async fn count_orders(team: String) -> Result<u64, StepError> {
    Ok(team.len() as u64)
}

#[workflow]
async fn report(ctx: Context, teams: Vec<String>) -> Result<(), Error> {
    // The instant of the schedule: also when the report runs late, or is restarted days later.
    let night = ctx.scheduled_at().unwrap_or(ctx.now());
    for team in teams {
        let orders = ctx.step(count_orders, &team).await?;
        println!("    report   {team}: {orders} orders until {night}");
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let world = TestWorld::builder().register((report, teams, count_orders)).start().await;
    let client = world.client();

    println!("1. A schedule fires at three in the morning, in Berlin.");
    let nightly = client.schedule("nightly-report").cron("0 3 * * *").timezone("Europe/Berlin");
    let nightly = nightly.catch_up(CatchUp::Last).deadline("1h").tag("kind", "report");
    let schedule = nightly.input_from(teams).start(report).await?;
    for instant in schedule.next(2).await? {
        println!("    next     {instant}");
    }
    let firing = world.advance_to_firing("nightly-report", 1).await;
    client.handle::<()>(firing.run).output().await?;

    println!("2. A paused schedule does not fire.");
    client.acting_as("ada").schedule_handle("nightly-report").pause("the books are closed").await?;
    world.advance("3d").await;
    println!("    explain  {}", schedule.explain().await?.sentence);
    schedule.resume().await?;

    println!("3. It fires on demand.");
    schedule.trigger().await?;
    world.settle().await;

    println!("4. The nights that were missed are done later, one after the other.");
    let now = world.now();
    let two_days = std::time::Duration::from_secs(2 * 86_400);
    schedule.backfill(now.minus(two_days)..now).await?;
    world.settle().await;
    let view = schedule.view().await?;
    println!("    counts   {} fired, {} completed", view.counts.fired, view.counts.completed);
    schedule.delete().await
}
