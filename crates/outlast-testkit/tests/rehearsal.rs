//! Rehearsals: the inputs of a test, and the reports of failures.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use expect_test::{Expect, expect};
use outlast::prelude::*;
use outlast::{ErrorKind, ParentEnd, Status};
use outlast_testkit::Rehearsal;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    name: String,
    cents: u64,
}

#[step(attempts = 3)]
async fn charge(order: Order) -> Result<String, StepError> {
    panic!("a rehearsal does not run steps, and charges nobody: {order:?}")
}

#[step]
async fn ship(name: String) -> String {
    panic!("a rehearsal does not run steps, and ships nothing: {name}")
}

#[workflow]
async fn checkout(ctx: Context, order: Order) -> Result<String, Error> {
    let payment = ctx.step(charge, &order).await?;
    if order.cents > 1000 && !ctx.hook::<bool>("review").timeout("3d").await? {
        return Err(Error::msg("not approved"));
    }
    let parcel = match ctx.step(ship, &order.name).await {
        Ok(parcel) => parcel,
        Err(error) if error.kind() == ErrorKind::Fatal => "no parcel".to_owned(),
        Err(error) => return Err(error),
    };
    ctx.sleep("1h").await?;
    Ok(format!("{payment}, {parcel}"))
}

fn order(cents: u64) -> Order {
    Order { name: "42".into(), cents }
}

/// The report of a failed rehearsal.
fn check_report(rehearse: impl FnOnce(), expected: Expect) {
    let panic = catch_unwind(AssertUnwindSafe(rehearse)).unwrap_err();
    expected.assert_eq(panic.downcast_ref::<String>().unwrap());
}

#[test]
fn a_workflow_continues_with_the_given_outcomes() {
    let order = order(4200);
    let mut run = Rehearsal::of(checkout, &order);
    run.asks_for(charge, &order);
    run.completes(charge, "paid".to_owned());
    run.waits_for_hook("review");
    assert_eq!(run.open(), ["hook `review`, for 3d"]);
    run.advances("1d");
    assert_eq!(run.open(), ["hook `review`, for 2d"]);
    run.receives("review", &true);
    run.completes(ship, "sent".to_owned());
    run.sleeps_for("1h");
    run.advances("59m");
    run.sleeps_for("1m");
    assert_eq!(run.status(), None);
    run.advances("1m");
    assert_eq!(run.output().unwrap(), "paid, sent");
    assert_eq!(run.status(), Some(Status::Completed));
    assert_eq!(run.now().to_string(), "2030-01-02T01:00:00.000000Z");
    assert_eq!(run.history().len(), 5);
}

#[test]
fn a_step_that_fails_for_good_is_the_workflows_to_handle() {
    let mut run = Rehearsal::of(checkout, order(1));
    run.completes(charge, "paid".to_owned());
    run.fails(ship, StepError::fatal("no stock"));
    run.advances("1h");
    assert_eq!(run.output().unwrap(), "paid, no parcel");

    let mut run = Rehearsal::of(checkout, order(1));
    run.fails(charge, std::io::Error::other("the bank is closed"));
    let error = run.output().unwrap_err();
    assert_eq!(error.to_string(), "step `charge` failed after 3 attempts: the bank is closed");
    assert!(error.is_exhausted());
    assert_eq!(run.status(), Some(Status::Failed));
}

#[test]
fn a_payload_that_comes_early_is_kept() {
    let mut run = Rehearsal::of(checkout, order(4200));
    run.receives("review", &false);
    run.completes(charge, "paid".to_owned());
    assert_eq!(run.output().unwrap_err().message(), "not approved");
}

#[test]
fn a_cancel_ends_waits_and_lets_steps_land() {
    let mut run = Rehearsal::of(checkout, order(4200));
    run.cancels("customer left");
    run.asks_for(charge, order(4200));
    run.completes(charge, "paid".to_owned());
    assert!(run.output().unwrap_err().is_cancelled(), "the hook that follows is refused");

    let mut run = Rehearsal::of(checkout, order(4200));
    run.completes(charge, "paid".to_owned());
    run.cancels("customer left");
    assert!(run.output().unwrap_err().is_cancelled());
    assert_eq!(run.status(), Some(Status::Cancelled));
}

#[workflow]
async fn undoes(ctx: Context) -> Result<String, Error> {
    let shielded = ctx.shielded();
    let answer = shielded.hook::<String>("answer");
    let slept = ctx.sleep("1h").await;
    let parcel = shielded.step(ship, "back").await?;
    slept?;
    Ok(format!("{parcel} {}", answer.await?))
}

#[test]
fn shielded_operations_continue_after_a_cancel() {
    let mut run = Rehearsal::of(undoes, ());
    run.cancels("customer left");
    assert_eq!(run.open(), ["hook `answer`", r#"step `ship` with "back""#]);
    run.cancels("a second one changes nothing");
    run.completes(ship, "returned".to_owned());
    assert!(run.output().unwrap_err().is_cancelled());
    assert_eq!(run.status(), Some(Status::Cancelled));
}

#[workflow]
async fn race(ctx: Context) -> Result<String, Error> {
    let names = ["a", "b", "c"].map(|name| ctx.step(ship, name.to_owned()));
    let mut ships: FuturesUnordered<_> = names.into_iter().collect();
    let mut order = Vec::new();
    while let Some(parcel) = ships.next().await {
        order.push(parcel.unwrap_or_else(|error| error.message().to_owned()));
    }
    Ok(order.join(" "))
}

#[test]
fn steps_of_one_name_end_in_any_order() {
    let mut run = Rehearsal::of(race, ());
    assert_eq!(run.open(), [r#"step `ship` with "a""#, r#"step `ship` with "b""#, r#"step `ship` with "c""#]);
    run.completes_for(ship, "c".to_owned(), "C".to_owned());
    run.fails_for(ship, "b".to_owned(), StepError::fatal("lost"));
    run.completes(ship, "A".to_owned());
    assert_eq!(run.output().unwrap(), "C lost A");
}

#[workflow]
async fn crowd(ctx: Context, hooks: u32) -> Result<u32, Error> {
    let mut sum = 0;
    let mut open: FuturesUnordered<_> = (0..hooks).map(|n| ctx.hook::<u32>(n.to_string())).collect();
    while let Some(number) = open.next().await {
        sum += number?;
    }
    Ok(sum)
}

#[test]
fn nothing_that_is_open_is_left_out() {
    let mut run = Rehearsal::of(crowd, 250);
    assert_eq!(run.open().len(), 250);
    run.waits_for_hook("249");
    (0..250).rev().for_each(|n: u32| run.receives(n.to_string(), &1));
    assert_eq!(run.output().unwrap(), 250);
}

#[workflow]
async fn first_of_two(ctx: Context) -> Result<String, Error> {
    select! {
        parcel = ctx.step(ship, "x".to_owned()) => parcel,
        slept = ctx.sleep("1m") => slept.map(|()| "too late".to_owned()),
    }
}

#[test]
fn timers_fire_in_order_and_losers_of_a_race_are_not_open() {
    let mut run = Rehearsal::of(first_of_two, ());
    run.advances("1h");
    assert_eq!(run.output().unwrap(), "too late");
    assert!(run.open().is_empty());
}

const FETCH_USER: Step<u64, String> = Step::new("fetch-user");

#[workflow]
async fn greet(ctx: Context, id: u64) -> Result<String, Error> {
    let user: String =
        ctx.call("fetch-user", id, async |id| Err(StepError::msg(format!("no network for {id}")))).await?;
    Ok(format!("hello {user}"))
}

#[test]
fn a_step_in_place_is_named_by_a_constant() {
    let mut run = Rehearsal::of(greet, 7);
    run.asks_for(FETCH_USER, 7);
    run.completes(FETCH_USER, "Ada".to_owned());
    assert_eq!(run.output().unwrap(), "hello Ada");
}

#[test]
fn a_wrong_expectation_is_answered_with_all_that_is_known() {
    check_report(
        || {
            let mut run = Rehearsal::of(checkout, order(4200));
            run.completes(charge, "paid".to_owned());
            run.asks_for(charge, order(1));
        },
        expect![[r#"
            workflow `checkout`: step `charge` with {"name":"42","cents":1} is not open
            it waits for
              hook `review`, for 3d
            what happened
              0s     run_started checkout {"name":"42","cents":4200}
              0s     step_started 0 charge {"name":"42","cents":4200}
              0s     step_completed 0 "paid"
              0s     hook_opened 1 review
        "#]],
    );
}

#[test]
fn asking_for_the_output_before_the_end_reports_the_open_operations() {
    check_report(
        || drop(Rehearsal::of(first_of_two, ()).output()),
        expect![[r#"
            workflow `first_of_two`: it has not ended
            it waits for
              step `ship` with "x"
              timer, due in 1m
            what happened
              0s     run_started first_of_two null
              0s     step_started 0 ship "x"
              0s     timer_started 1 1m
        "#]],
    );
}

#[workflow(check = check_cents)]
async fn checked(_ctx: Context, cents: u64) -> Result<u64, Error> {
    Ok(cents)
}

fn check_cents(cents: &u64) -> Result<(), String> {
    if *cents > 0 { Ok(()) } else { Err("cents must be positive".to_owned()) }
}

#[test]
fn an_input_that_its_workflow_refuses_cannot_be_rehearsed() {
    check_report(
        || drop(Rehearsal::of(checked, 0)),
        expect!["the check of workflow `checked` refuses the input: cents must be positive"],
    );
    assert_eq!(Rehearsal::of(checked, 1).output().unwrap(), 1);
}

#[test]
fn calls_after_the_end_are_refused() {
    check_report(
        || {
            let mut run = Rehearsal::of(first_of_two, ());
            run.advances("1h");
            run.receives("review", &true);
        },
        expect![[r#"
            workflow `first_of_two`: hook `review` cannot receive anything
            the run is completed
            what happened
              0s     run_started first_of_two null
              0s     step_started 0 ship "x"
              0s     timer_started 1 1m
              1m     timer_fired 1
              1m     run_completed "too late"
        "#]],
    );
}

#[workflow]
async fn restless(ctx: Context) -> Result<(), Error> {
    loop {
        ctx.sleep("0s").await?;
    }
}

#[test]
fn a_loop_of_sleeps_without_end_is_a_message_and_no_hang() {
    let mut run = Rehearsal::of(restless, ());
    let panic = catch_unwind(AssertUnwindSafe(|| run.advances("1s"))).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("the workflow sleeps in a loop, so advance the time by less"), "{text}");
}

static CALLS: AtomicU32 = AtomicU32::new(0);

#[workflow]
async fn moody(ctx: Context) -> Result<(), Error> {
    // A different answer at each replay, like a file or the environment.
    if CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
        ctx.sleep("1h").await?;
    } else {
        ctx.step(ship, "x".to_owned()).await?;
    }
    Ok(())
}

#[test]
fn a_workflow_that_is_not_deterministic_is_found_out() {
    let panic = catch_unwind(|| Rehearsal::of(moody, ())).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("diverged at operation 0: history has timer"), "{text}");
}

#[workflow]
async fn foreign(_ctx: Context) -> Result<(), Error> {
    std::future::pending::<()>().await;
    Ok(())
}

#[test]
fn a_foreign_await_is_found_out() {
    let panic = catch_unwind(|| Rehearsal::of(foreign, ())).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("awaits something that is not an operation"), "{text}");
}

#[workflow]
async fn parcel(_ctx: Context, number: u32) -> Result<String, Error> {
    Err(Error::msg(format!("parcel {number} does not run here")))
}

#[workflow]
async fn parcels(ctx: Context) -> Result<String, Error> {
    let (first, second) = (ctx.child(parcel, 1), ctx.child(parcel, 2).timeout("1d"));
    let told = ctx.child(parcel, 3).key("parcel-3").abandon().await?;
    ctx.tag("told", told.to_string())?;
    let first = first.await?;
    ctx.sleep("7d").await?;
    let second = second.await.map_err(|error| error.to_string());
    Ok(format!("{first}, {second:?}"))
}

#[test]
fn children_end_as_the_test_says() {
    let mut run = Rehearsal::of(parcels, ());
    run.asks_for_child(parcel, 1);
    assert_eq!(run.open(), ["child `parcel` with 1", "child `parcel` with 2, for 1d"]);
    run.child_completes(parcel, "there".to_owned());
    run.sleeps_for("7d");
    run.wakes();
    run.child_fails(parcel, Error::msg("lost"));
    assert_eq!(run.output().unwrap(), r#"there, Err("lost")"#);
}

#[test]
fn a_child_that_is_not_open_cannot_end() {
    check_report(
        || Rehearsal::of(race, ()).child_completes(parcel, String::new()),
        expect![[r#"
        workflow `race`: child `parcel` is not open
        it waits for
          step `ship` with "a"
          step `ship` with "b"
          step `ship` with "c"
        what happened
          0s     run_started race null
          0s     step_started 0 ship "a"
          0s     step_started 1 ship "b"
          0s     step_started 2 ship "c"
    "#]],
    );
}

#[workflow]
async fn convoy(ctx: Context) -> Result<Vec<String>, Error> {
    let mut open: FuturesUnordered<_> = [1, 2, 3].into_iter().map(|n| ctx.child(parcel, n)).collect();
    let mut order = Vec::new();
    while let Some(parcel) = open.next().await {
        order.push(parcel.unwrap_or_else(|error| error.message().to_owned()));
    }
    Ok(order)
}

#[test]
fn children_of_one_workflow_end_in_any_order() {
    let mut run = Rehearsal::of(convoy, ());
    run.child_completes_for(parcel, 3, "third".to_owned());
    run.child_fails_for(parcel, 2, Error::msg("lost"));
    run.child_completes(parcel, "first".to_owned());
    assert_eq!(run.output().unwrap(), ["third", "lost", "first"]);
}

#[workflow]
async fn patient(ctx: Context) -> Result<String, Error> {
    let parcel = ctx.child(parcel, 7).on_parent_end(ParentEnd::Wait);
    select! {
        there = parcel => there,
        slept = ctx.sleep("1h") => slept.map(|()| "not waiting".to_owned()),
    }
}

#[test]
fn the_report_distinguishes_returned_and_waiting_workflows() {
    let mut run = Rehearsal::of(patient, ());
    run.advances("1h");
    check_report(
        || drop(run.output()),
        expect![[r#"
            workflow `patient`: it has not ended
            the workflow has returned; the run ends when these children have
              child `parcel` with 7
            what happened
              0s     run_started patient null
              0s     child_started 0 parcel 7
              0s     timer_started 1 1h
              1h     timer_fired 1
              1h     child_dropped 0
        "#]],
    );
    run.child_completes(parcel, "there".to_owned());
    assert_eq!(run.output().unwrap(), "not waiting");
}

#[allow(
    clippy::disallowed_methods,
    reason = "what `#[workflow]` does not see: it looks at no other function"
)]
async fn helper() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}

#[workflow]
async fn hasty(_ctx: Context) -> Result<(), Error> {
    helper().await;
    Ok(())
}

#[test]
fn a_helper_that_uses_tokio_is_a_foreign_await() {
    let panic = catch_unwind(|| Rehearsal::of(hasty, ())).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("common causes are tokio::time"), "{text}");
    assert!(text.contains("use ctx.sleep"), "{text}");
    assert!(!text.contains("reactor"), "{text}");
}

/// The location at which a rehearsal panics, as `file:line`.
fn place_of(rehearse: impl FnOnce()) -> String {
    thread_local! {
        static PLACE: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
    }
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line()));
            PLACE.set(place.unwrap_or_default());
            before(panic);
        }));
    });
    catch_unwind(AssertUnwindSafe(rehearse)).unwrap_err();
    PLACE.take()
}

#[test]
fn a_report_names_the_line_of_the_test() {
    let here = |line: u32| format!("{}:{line}", file!());
    let mut run = Rehearsal::of(patient, ());
    assert_eq!(place_of(|| run.asks_for(ship, "x".to_owned())), here(line!()));
    assert_eq!(place_of(|| run.completes(ship, "x".to_owned())), here(line!()));
    assert_eq!(place_of(|| run.fails_for(ship, "x".to_owned(), StepError::msg("no"))), here(line!()));
    assert_eq!(place_of(|| run.asks_for_child(parcel, 1)), here(line!()));
    assert_eq!(place_of(|| run.child_completes(convoy, Vec::new())), here(line!()));
    assert_eq!(place_of(|| run.child_completes_for(parcel, 1, String::new())), here(line!()));
    assert_eq!(place_of(|| run.waits_for_hook("review")), here(line!()));
    assert_eq!(place_of(|| run.sleeps_for("2h")), here(line!()));
    assert_eq!(place_of(|| run.advances("3 moons")), here(line!()));
    assert_eq!(place_of(|| drop(run.output())), here(line!()));
    assert_eq!(place_of(|| drop(Rehearsal::of(foreign, ()))), here(line!()));
}

#[step(queue = "gpu", attempts = 3)]
async fn resize(image: u64) -> Result<u64, StepError> {
    panic!("a rehearsal does not run steps, wherever they travel: {image}")
}

#[workflow]
async fn publish(ctx: Context, image: u64) -> Result<u64, Error> {
    select! {
        small = ctx.step(resize, image) => small,
        late = ctx.sleep("1h") => late.map(|()| image),
    }
}

#[test]
fn queued_steps_end_as_others_do() {
    let mut run = Rehearsal::of(publish, 7);
    run.asks_for(resize, 7);
    assert_eq!(run.open(), ["step `resize` with 7", "timer, due in 1h"]);
    run.completes(resize, 3);
    assert_eq!(run.output().unwrap(), 3);

    let mut run = Rehearsal::of(publish, 7);
    run.fails(resize, StepError::msg("no memory"));
    let error = run.output().unwrap_err();
    assert_eq!((error.step(), error.attempts(), error.is_exhausted()), (Some("resize"), 3, true));

    let mut run = Rehearsal::of(publish, 7);
    run.advances("1h");
    assert_eq!(run.output().unwrap(), 7);
}

#[workflow]
async fn reviewed(ctx: Context) -> Result<String, Error> {
    let review = ctx.hook::<bool>("review").timeout("3d").received().await?;
    let who = review.headers.get("user").map_or("somebody", String::as_str);
    Ok(format!("{who} said {}", review.payload))
}

#[test]
fn a_payload_that_the_hook_cannot_decode_is_rejected_and_the_hook_stays_open() {
    let mut run = Rehearsal::of(reviewed, ());
    run.receives("review", "yes");
    assert_eq!(run.status(), None);
    run.waits_for_hook("review");
    let [reason] = &run.rejected("review")[..] else { panic!("{:?}", run.rejected("review")) };
    assert!(reason.contains("the payload is not a `bool`"), "{reason}");
    run.receives("review", &true);
    assert_eq!(run.output().unwrap(), "somebody said true");
}

#[test]
fn a_payload_can_bring_headers() {
    let mut run = Rehearsal::of(reviewed, ());
    run.receives_with("review", &true, [("user".to_owned(), "ada".to_owned())].into());
    assert_eq!(run.output().unwrap(), "ada said true");
}

#[step]
async fn import_page(page: u64) -> Result<u64, StepError> {
    Ok(page)
}

/// Imports pages until one is empty.
#[workflow]
async fn import(ctx: Context, _: ()) -> Result<u64, Error> {
    ctx.iterate("pages", (0_u64, 0_u64), async |ctx, (page, rows)| {
        match ctx.step(import_page, page).await? {
            0 => Ok(Next::Done(rows)),
            more => Ok(Next::Again((page + 1, rows + more))),
        }
    })
    .await
}

#[test]
fn a_loop_is_rehearsed_iteration_by_iteration() {
    let mut run = Rehearsal::of(import, ());
    for page in 0..5 {
        run.asks_for(import_page, page);
        run.completes(import_page, 20);
    }
    run.completes(import_page, 0);
    assert_eq!(run.output().unwrap(), 100);
}
