//! The test world: complete workflows under virtual time, with mocks.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outlast::prelude::*;
use outlast::{Status, Timestamp};
use outlast_testkit::{TestClock, TestWorld, TestWorldBuilder};
use parking_lot::Mutex;

/// The state of steps that are mocked in all tests.
struct Bank;

#[step(attempts = 3)]
async fn charge(cx: StepContext<Bank>, name: String, cents: u64) -> Result<String, StepError> {
    let Bank = cx.state();
    panic!("charges {name} {cents} outside of tests")
}

#[step]
async fn thank(name: String) -> String {
    format!("thanked {name}")
}

#[workflow]
async fn checkout(ctx: Context, name: String, cents: u64) -> Result<String, Error> {
    let payment = ctx.step(charge, (name.clone(), cents)).await?;
    ctx.sleep("30d").await?;
    let approved = ctx.hook::<bool>("review").timeout("3d").await?;
    let thanks = ctx.step(thank, name).await?;
    Ok(format!("{payment}, {approved}, {thanks}"))
}

/// The world of most tests, with a mocked bank.
fn shop() -> TestWorldBuilder<()> {
    TestWorld::builder()
        .register((checkout, thank))
        .mock(charge, |(name, cents)| Ok(format!("{name} paid {cents}")))
}

fn input() -> (String, u64) {
    ("Ada".to_owned(), 4200)
}

fn day(days: u64) -> Timestamp {
    TestClock::BEGIN.plus(std::time::Duration::from_secs(days * 86_400))
}

async fn an_order_is_approved(shop: TestWorldBuilder<()>) {
    let world = shop.start().await;
    let run = world.client().start(checkout, input()).await.unwrap();
    assert_eq!(world.wait_for_sleep(&run).await, day(30));
    assert_eq!(world.now(), TestClock::BEGIN);
    world.advance("29d").await;
    assert_eq!(run.view().await.unwrap().status, Status::Waiting);
    world.wait_for_hook(&run, "review").await;
    assert_eq!(world.now(), day(30));
    run.send("review", &true).await.unwrap();
    assert_eq!(world.run_until_done(&run).await.unwrap(), "Ada paid 4200, true, thanked Ada");
    assert_eq!(world.now(), day(30));
    world.stop().await.unwrap();
}

#[tokio::test]
async fn time_passes_only_as_the_test_says() {
    an_order_is_approved(shop()).await;
}

#[tokio::test]
async fn a_file_is_as_good_as_memory() {
    an_order_is_approved(shop().on_sqlite()).await;
}

#[tokio::test]
async fn a_trusting_world_keeps_futures() {
    an_order_is_approved(shop().trusting().worker(|worker| worker.live_runs(1))).await;
}

#[tokio::test]
async fn timeouts_come_by_themselves() {
    let world = shop().start().await;
    let run = world.client().start(checkout, input()).await.unwrap();
    assert!(world.run_until_done(&run).await.unwrap_err().is_timeout());
    assert_eq!(world.now(), day(33));
}

#[tokio::test]
async fn the_clock_can_be_moved_to_a_moment_or_to_the_end_of_everything() {
    let world = shop().start().await;
    let run = world.client().start(checkout, input()).await.unwrap();
    world.advance_to(day(31)).await;
    assert_eq!(world.now(), day(31));
    world.wait_for_hook(&run, "review").await;
    assert_eq!(world.now(), day(31));
    world.run_until_idle().await;
    assert_eq!(run.view().await.unwrap().status, Status::Failed);
    assert_eq!(world.clock().now(), day(33));
}

#[tokio::test]
async fn a_mock_is_attempted_as_its_step_would_be() {
    let attempts = Arc::new(AtomicU32::new(0));
    let count = attempts.clone();
    let world = TestWorld::builder()
        .state(Bank)
        // In either order, the mock is used.
        .mock(charge, move |(_, cents)| match count.fetch_add(1, Ordering::Relaxed) {
            0 => Err(StepError::msg("the bank is closed")),
            1 => panic!("the bank burns"),
            _ => Ok(format!("paid {cents} at last")),
        })
        .register((checkout, charge, thank))
        .start()
        .await;
    let run = world.client().start(checkout, input()).await.unwrap();
    run.send("review", &false).await.unwrap();
    let output = world.run_until_done(&run).await.unwrap();
    assert_eq!(output, "paid 4200 at last, false, thanked Ada");
    assert_eq!(attempts.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_mock_can_remember_what_it_was_given() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let given = seen.clone();
    let world = shop()
        .mock(thank, move |name| {
            given.lock().push(name);
            Err(StepError::fatal("no thanks"))
        })
        .start()
        .await;
    let run = world.client().start(checkout, input()).await.unwrap();
    run.send("review", &true).await.unwrap();
    assert_eq!(world.run_until_done(&run).await.unwrap_err().to_string(), "step `thank` failed: no thanks");
    assert_eq!(*seen.lock(), ["Ada"]);
}

/// The message of a test whose wait fails.
async fn report(waits: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = tokio::spawn(waits).await.unwrap_err().into_panic();
    panic.downcast_ref::<String>().unwrap().clone()
}

/// Asserts that the message names this line of this file.
macro_rules! assert_says {
    ($text:expr, $line:expr, $($part:expr),+) => {{
        let text = $text;
        let place = format!("awaited at {}:{}:", file!(), $line);
        assert!(text.contains(&place), "{place} is not in {text}");
        $(assert!(text.contains($part), "{} is not in {text}", $part);)+
    }};
}

#[workflow]
async fn hopeful(ctx: Context) -> Result<(), Error> {
    ctx.hook::<()>("never").await
}

#[tokio::test]
async fn a_wait_without_end_is_a_message_and_no_hang() {
    let world = TestWorld::builder().register(hopeful).start().await;
    let run = world.client().start(hopeful, ()).await.unwrap();
    let line = line!() + 1;
    let text = report(async move { drop(world.run_until_done(&run).await) }).await;
    assert_says!(text, line, "did not reach its end", "It waits for a payload for hook `never` (since");
}

#[tokio::test]
async fn a_loop_without_end_is_a_message_and_no_hang() {
    #[workflow]
    async fn restless(ctx: Context) -> Result<(), Error> {
        loop {
            ctx.sleep("1d").await?;
        }
    }
    let world = TestWorld::builder().register(restless).trusting().start().await;
    let run = world.client().start(restless, ()).await.unwrap();
    let line = line!() + 1;
    let text = report(async move { world.wait_for_hook(&run, "never").await }).await;
    assert_says!(
        text,
        line,
        "did not reach hook `never`",
        "the clock was advanced 10000 times",
        "meanwhile it waited for a timer (until 2030-01-02T00:00:00.000000Z), ",
        ", 9992 more"
    );
}

#[tokio::test]
async fn a_stuck_run_is_a_message_and_no_hang() {
    let world = TestWorld::builder().register((checkout, thank)).start().await;
    let run = world.client().start(checkout, input()).await.unwrap();
    let line = line!() + 1;
    let text = report(async move { _ = world.wait_for_sleep(&run).await }).await;
    assert_says!(text, line, "did not reach a timer", "step `charge` is not registered with this worker");
}

#[tokio::test]
async fn a_child_without_code_explains_why_its_parent_waits() {
    #[workflow]
    async fn parent(ctx: Context) -> Result<(), Error> {
        ctx.child(hopeful, ()).await
    }
    let world = TestWorld::builder().register(parent).start().await;
    let run = world.client().start(parent, ()).await.unwrap();
    let line = line!() + 1;
    let text = report(async move { drop(world.run_until_done(&run).await) }).await;
    assert_says!(
        text,
        line,
        "It waits for child `hopeful` (run_",
        "\nchild run_",
        "no joined worker has workflow `hopeful`, version 1"
    );
}

#[tokio::test]
async fn a_wait_for_a_hook_that_is_misspelt_names_the_hooks_that_were_open() {
    let world = shop().start().await;
    let run = world.client().start(checkout, input()).await.unwrap();
    let line = line!() + 1;
    let text = report(async move { world.wait_for_hook(&run, "reviwe").await }).await;
    assert_says!(
        text,
        line,
        "did not reach hook `reviwe`",
        "It failed at ",
        "meanwhile it waited for a timer (until 2030-01-31T00:00:00.000000Z), hook `review` (until 2030-02-03T"
    );
}

#[tokio::test]
async fn a_world_that_does_not_start_and_a_time_that_is_none_name_the_tests_line() {
    let line = line!() + 1;
    let text = report(async { drop(TestWorld::builder().start().await) }).await;
    assert!(text.contains(&format!("the test world of {}:{line}:", file!())), "{text}");

    let world = shop().start().await;
    let place = Arc::new(Mutex::new(String::new()));
    let (seen, before) = (place.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(at) = panic.location().filter(|_| panic.to_string().contains("3 moons")) {
            *seen.lock() = format!("{}:{}", at.file(), at.line());
        }
        before(panic);
    }));
    let line = line!() + 1;
    let text = report(async move { world.advance("3 moons").await }).await;
    assert!(text.contains("3 moons"), "{text}");
    assert_eq!(*place.lock(), format!("{}:{line}", file!()));
}

#[step(queue = "gpu")]
async fn resize(image: u64) -> Result<u64, StepError> {
    Err(StepError::msg(format!("there is no machine for image {image} here")))
}

#[workflow]
async fn publish(ctx: Context, image: u64) -> Result<u64, Error> {
    ctx.step(resize, image).await
}

#[tokio::test]
async fn a_queued_step_is_mocked_as_any_other() {
    let world = TestWorld::builder()
        .register((publish, resize))
        .mock(resize, |image| Ok(image / 2))
        .worker(|worker| worker.queues(["default", "gpu"]))
        .start()
        .await;
    let run = world.client().start(publish, 8).await.unwrap();
    assert_eq!(world.run_until_done(&run).await.unwrap(), 4);
}

#[tokio::test]
async fn a_queued_step_without_a_worker_is_reported() {
    let said = report(async {
        let world = TestWorld::builder().register((publish, resize)).start().await;
        let run = world.client().start(publish, 8).await.unwrap();
        drop(world.run_until_done(&run).await);
    });
    let said = said.await;
    assert!(said.contains("It waits for step `resize` in queue `gpu`"), "{said}");
    assert!(said.contains("\nqueued step run_") && said.contains("serves queue `gpu`"), "{said}");
}
