//! Compensations, replies, streams, schedules and generations under the test kit: rehearsed, in a test world, and with a crash
//! at every commit.

#![allow(clippy::unwrap_used, reason = "a test")]

use outlast::prelude::*;
use outlast::{OpNumber, Status, TokenDelivery};
use outlast_testkit::{CrashPoint, Rehearsal, TestWorld, torture};

#[step]
async fn book(what: String) -> Result<u32, StepError> {
    if what == "hotel" { Err(StepError::fatal("no room")) } else { Ok(what.len() as u32) }
}

#[step]
async fn cancel_booking(undo: Undo<String, u32>) -> Result<(), StepError> {
    if undo.output.is_none() && undo.input != "hotel" { Err(StepError::fatal("no output")) } else { Ok(()) }
}

#[workflow]
async fn travel(ctx: Context, last: String) -> Result<u32, Error> {
    let mut total = 0;
    for what in ["flight".to_owned(), "train".to_owned(), last] {
        total += ctx.step(book, &what).undo(cancel_booking).await?;
        ctx.stream("log").write(&what);
    }
    ctx.publish(&total);
    ctx.keep();
    ctx.hook::<()>("home").await?;
    Ok(total)
}

fn undo(what: &str, output: Option<u32>) -> Undo<String, u32> {
    Undo::new(what.to_owned(), output)
}

#[test]
fn compensations_are_rehearsed_in_reverse_order() {
    let mut run = Rehearsal::of(travel, "hotel".to_owned());
    run.completes(book, 6);
    run.completes(book, 5);
    run.fails(book, StepError::fatal("no room"));
    assert_eq!(run.status(), None, "it compensates first");
    run.asks_for(cancel_booking, undo("hotel", None));
    run.completes(cancel_booking, ());
    run.asks_for(cancel_booking, undo("train", Some(5)));
    run.fails(cancel_booking, StepError::fatal("the train has left"));
    run.asks_for(cancel_booking, undo("flight", Some(6)));
    run.completes(cancel_booking, ());
    assert_eq!(run.status(), Some(Status::Failed));
    let error = run.output().unwrap_err();
    assert!(error.message().starts_with("no room"), "{error}");
    let failed: Vec<_> = error.failed_compensations().iter().map(|failed| &*failed.message).collect();
    assert_eq!(failed, ["the train has left"]);
    assert_eq!(run.written::<String>("log"), ["flight", "train"]);
    assert_eq!(run.published::<u32>(), None);
}

#[test]
fn what_was_kept_is_not_compensated_in_a_rehearsal() {
    let mut run = Rehearsal::of(travel, "taxi".to_owned());
    for output in [6, 5, 4] {
        run.completes(book, output);
    }
    assert_eq!(run.published::<u32>(), Some(15));
    run.cancels("the customer is ill");
    assert_eq!(run.status(), Some(Status::Cancelled), "{:?}", run.open());
}

#[tokio::test]
async fn a_run_that_compensates_survives_a_crash_at_every_commit() {
    for last in ["hotel", "taxi"] {
        let torture = torture(travel, last.to_owned()).register((book, cancel_booking));
        let report = if last == "taxi" { torture.answer("home", &()).await } else { torture.await };
        assert!(report.commits() >= 4, "{report}");
    }
    // Cancelled before the point of no return, and after it.
    let torture = torture(travel, "taxi".to_owned()).register((book, cancel_booking));
    torture.cancel_after("1h", "the customer is ill").await;
}

const QUOTE: Hook<u32, String> = Hook::new("quote");

/// Replies to an ask by token, writes to a stream, and continues as a second generation.
#[workflow]
async fn shop(ctx: Context, offers: u32) -> Result<String, Error> {
    if ctx.generation() > 1 {
        ctx.sleep("1h").await?;
        return Ok(format!("{offers} offers"));
    }
    let quotes = ctx.open_hook(QUOTE).token("counter").await?;
    let message = quotes.next().received().await?;
    ctx.stream("log").write(&message.payload);
    message.reply(&format!("{} euros", message.payload))?;
    quotes.close();
    ctx.continue_as(&(offers + 1))
}

#[tokio::test]
async fn a_test_world_answers_asks_follows_streams_and_sees_generations() {
    for builder in [TestWorld::builder(), TestWorld::builder().on_sqlite()] {
        let world = builder.register(shop).start().await;
        let client = world.client();
        let run = client.start(shop, 0).await.unwrap();
        world.wait_for_hook(&run, "quote").await;
        assert_eq!(client.ask(run.id(), QUOTE, &7).key("a").await.unwrap(), "7 euros");
        assert_eq!(world.run_until_done(&run).await.unwrap(), "1 offers");
        assert_eq!(run.view().await.unwrap().generation, 2);
        let mut log = client.stream::<u32>(run.id(), "log").follow().await.unwrap();
        assert_eq!(log.read_to_end().await.unwrap(), [7]);
        assert_eq!(client.send_to_token("counter", &8).await.unwrap(), TokenDelivery::Unknown);
        assert_eq!(
            client.ask(run.id(), QUOTE, &7).key("a").await.unwrap(),
            "7 euros",
            "the same reply again"
        );
        world.stop().await.unwrap();
    }
}

#[workflow]
async fn nightly(ctx: Context) -> Result<String, Error> {
    ctx.sleep("30m").await?;
    Ok(ctx.scheduled_at().map_or_else(String::new, |night| night.to_string()))
}

#[tokio::test]
async fn a_test_world_advances_to_the_third_firing_of_a_schedule() {
    for builder in [TestWorld::builder(), TestWorld::builder().on_sqlite()] {
        let world = builder.register(nightly).start().await;
        world.client().schedule("report").cron("0 3 * * *").start(nightly, ()).await.unwrap();
        let third = world.advance_to_firing("report", 3).await;
        assert_eq!(third.scheduled_at, world.now(), "not a moment later");
        let night = world.run_until_done(&world.client().handle::<String>(third.run)).await.unwrap();
        assert_eq!(night, "2030-01-03T03:00:00.000000Z");
        world.stop().await.unwrap();
    }
}

/// Its operations are the flight (0) and its compensation, the hook (2), and the hotel (3).
#[workflow]
async fn forked_travel(ctx: Context) -> Result<u32, Error> {
    let flight = ctx.step(book, "flight").undo(cancel_booking).await?;
    let nights = ctx.hook::<u32>("nights").timeout("1d").await?;
    let hotel = ctx.step(book, "hotel").await?;
    Ok(flight + nights * hotel)
}

#[test]
fn a_rehearsal_is_forked_with_another_outcome_and_without_the_compensations_of_the_other_run() {
    let mut run = Rehearsal::of(forked_travel, ());
    run.completes(book, 6);
    run.advances("1h");
    let before_hotel = run.events();
    let mut fork = run.forks_at(before_hotel);
    run.receives("nights", &2);
    run.fails(book, StepError::fatal("no room"));
    run.asks_for(cancel_booking, undo("flight", Some(6)));
    run.completes(cancel_booking, ());
    // The wait of the fork has its full time again, and the flight is the other run's.
    fork.advances("23h");
    fork.waits_for_hook("nights");
    fork.receives("nights", &3);
    fork.fails(book, StepError::fatal("no room"));
    assert_eq!((fork.status(), fork.open()), (Some(Status::Failed), Vec::new()));
    // The other run compensates, so it is forked where it did not.
    let mut cheap = run.forks_with(0, &1);
    cheap.receives("nights", &1);
    cheap.completes(book, 10);
    assert_eq!(cheap.output().unwrap(), 11);
    assert_eq!(cheap.forks_with(2, &5).forks_with(3, &10).output().unwrap(), 51);
}

#[tokio::test]
async fn a_fork_in_a_test_world_survives_a_crash() {
    for builder in [TestWorld::builder(), TestWorld::builder().on_sqlite()] {
        let world =
            builder.register((forked_travel, cancel_booking)).mock(book, |what| Ok(what.len() as u32));
        let world = world.start().await;
        let run = world.client().start(forked_travel, ()).await.unwrap();
        world.wait_for_hook(&run, "nights").await;
        run.send("nights", &2).await.unwrap();
        assert_eq!(world.run_until_done(&run).await.unwrap(), 16);
        world.crash_worker(CrashPoint::before_commit());
        let fork = run.fork().with_output(OpNumber(2), &3).await.unwrap();
        assert_eq!(world.run_until_done(&fork).await.unwrap(), 21);
        assert_eq!((world.crashes(), fork.view().await.unwrap().forked_from()), (1, Some(run.id())));
        world.stop().await.unwrap();
    }
}

/// Three iterations, each with a step and a wait.
#[workflow]
async fn chapters(ctx: Context) -> Result<u32, Error> {
    let read = ctx.iterate("chapter", 0u32, async |ctx: Context, pages: u32| {
        let pages = pages + ctx.step(book, format!("chapter {pages}")).await?;
        ctx.hook::<()>("next").await?;
        Ok(if pages > 10 { Next::Done(pages) } else { Next::Again(pages) })
    });
    read.await
}

#[test]
fn iterations_are_rehearsed_one_after_the_other() {
    let mut run = Rehearsal::of(chapters, ());
    for (input, pages) in [("chapter 0", 4), ("chapter 4", 5), ("chapter 9", 6)] {
        run.asks_for(book, input.to_owned());
        run.completes(book, pages);
        run.receives("next", &());
    }
    assert_eq!(run.output().unwrap(), 15);
}

#[tokio::test]
async fn iterations_survive_a_crash_at_every_commit() {
    let torture = torture(chapters, ()).mock(book, |_| Ok(4));
    let report = torture.answer("next", &()).answer("next", &()).answer("next", &()).await;
    assert!(report.commits() >= 6, "{report}");
}

/// One night after the other, with firings that it is told about.
#[tokio::test]
async fn a_schedule_in_a_test_world_survives_a_crash_of_the_worker() {
    let world = TestWorld::builder().register(nightly).start().await;
    world.client().schedule("report").every("1d").start(nightly, ()).await.unwrap();
    for nth in 1..4 {
        world.crash_worker(CrashPoint::after_commit());
        let firing = world.advance_to_firing("report", nth).await;
        world.run_until_done(&world.client().handle::<String>(firing.run)).await.unwrap();
    }
    assert_eq!(world.crashes(), 3);
    world.stop().await.unwrap();
}
