//! Controlling schedules: pause, trigger, backfill, delete, and names that are reserved.

use outlast::{Because, OpNumber};

use super::*;

on_every_world! {
    a_paused_schedule_does_not_fire_and_does_not_catch_up,
    a_schedule_is_paused_after_failures_in_a_row,
    a_triggered_firing_obeys_the_overlap_rule,
    a_backfill_runs_one_after_the_other_and_fires_nothing_twice,
    a_deleted_name_is_free_and_firings_continue,
    a_schedule_is_not_retried_when_its_name_is_used_again,
    explain_says_who_can_serve_a_schedule,
    a_key_may_be_held_only_while_its_run_lives,
    reserved_names_are_refused,
    a_definition_that_makes_no_sense_is_refused,
    a_change_is_confirmed_and_made_only_in_the_expected_revision,
}

async fn a_schedule_is_not_retried_when_its_name_is_used_again(engine: TestEngine) {
    let _worker = engine.worker(tick).await;
    let first = engine.client.schedule("s").every("10s").start(tick, "t").await.unwrap();
    engine.run_to("5s").await;
    let run = first.run().await.unwrap();
    engine.client.cancel(run, "no more").await.unwrap();
    engine.wait_for_status(run, Status::Cancelled).await;
    let retry = || engine.client.retry(run).from(OpNumber(0));
    retry().dry_run().await.unwrap();
    engine.client.schedule("s").every("10s").start(tick, "t").await.unwrap();
    let error = retry().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("names another run since then"), "{error}");
}

async fn a_paused_schedule_does_not_fire_and_does_not_catch_up(engine: TestEngine) {
    let _worker = engine.worker(tick).await;
    let handle = engine.client.schedule("s").every("10s").start(tick, "t").await.unwrap();
    engine.run_to("12s").await;
    let actor = engine.client.acting_as("ada");
    actor.schedule_handle("s").pause("the bank is closed").await.unwrap();
    engine.run_to("42s").await;
    handle.pause("another reason").await.unwrap();
    engine.settle().await;
    let paused = handle.view().await.unwrap();
    assert_eq!(paused.next, None);
    let pause = paused.paused.unwrap();
    assert_eq!((&*pause.reason, seconds(pause.since)), ("the bank is closed", 12));
    assert_eq!(pause.actor.as_deref(), Some("ada"));
    let sentence = handle.explain().await.unwrap().sentence;
    assert!(sentence.contains("It is paused since") && sentence.contains("the bank is closed"), "{sentence}");
    handle.resume().await.unwrap();
    engine.run_to("55s").await;
    assert_eq!(engine.steps.logged(), ["t 10", "t 50"]);
    assert_eq!(handle.view().await.unwrap().counts.missed, 0);
}

#[workflow]
async fn fails(ctx: Context) -> Result<(), Error> {
    let instant = seconds(ctx.scheduled_at().unwrap());
    ctx.note(&format!("fails {instant}")).await?;
    if instant == 30 { Ok(()) } else { Err(Error::msg("out of paper")) }
}

async fn a_schedule_is_paused_after_failures_in_a_row(engine: TestEngine) {
    let _worker = engine.worker(fails).await;
    let handle = engine.client.schedule("s").every("10s").pause_after(3).start(fails, ()).await.unwrap();
    engine.run_to("2m").await;
    assert_eq!(engine.steps.logged().len(), 6, "{:?}", engine.steps.logged());
    let view = handle.view().await.unwrap();
    assert_eq!(view.paused.unwrap().reason, "3 firings in a row failed");
    assert_eq!((view.counts.failed, view.counts.completed), (5, 1));
    handle.resume().await.unwrap();
    engine.run_to("2m25s").await;
    assert_eq!(engine.steps.logged().len(), 8);
}

async fn a_triggered_firing_obeys_the_overlap_rule(engine: TestEngine) {
    let _worker = engine.worker(hold).await;
    let handle = engine.client.schedule("s").cron("@yearly").start(hold, ()).await.unwrap();
    engine.run_to("5s").await;
    handle.pause("holidays").await.unwrap();
    handle.trigger().await.unwrap();
    handle.trigger().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.steps.logged(), ["begin 5"]);
    assert_eq!(handle.view().await.unwrap().counts.skipped, 1);
    handle.update().overlap(Overlap::Allow).save().await.unwrap();
    handle.trigger().await.unwrap();
    handle.trigger().await.unwrap();
    engine.settle().await;
    assert_eq!(handle.view().await.unwrap().running.len(), 3);
}

async fn a_backfill_runs_one_after_the_other_and_fires_nothing_twice(engine: TestEngine) {
    let _worker = engine.worker(hold).await;
    let handle = holds(&engine, Overlap::Allow).await;
    engine.run_to("35s").await;
    for instant in [10, 20, 30] {
        end_firing(&engine, "s", instant).await;
    }
    handle.pause("to look at the backfill alone").await.unwrap();
    engine.run_to("65s").await;
    let range = engine.time_after_begin("20s")..engine.time_after_begin("60s");
    handle.backfill(range).await.unwrap();
    handle.resume().await.unwrap();
    engine.settle().await;
    // 20 and 30 have fired before; 60 is the end of the range.
    let running = async || {
        let view = view(&engine, "s").await;
        view.running.iter().map(|firing| seconds(firing.scheduled_at)).collect::<Vec<_>>()
    };
    assert_eq!(running().await, [40]);
    end_firing(&engine, "s", 40).await;
    assert_eq!(running().await, [50]);
    end_firing(&engine, "s", 50).await;
    assert_eq!(running().await, [] as [u64; 0]);
    let view = handle.view().await.unwrap();
    assert_eq!((view.counts.fired, view.counts.repeated, view.backlog.len()), (5, 2, 0));
    let empty = engine.time_after_begin("20s")..engine.time_after_begin("10s");
    assert_eq!(handle.backfill(empty).await.unwrap_err().kind(), ErrorKind::Invalid);
}

async fn a_deleted_name_is_free_and_firings_continue(engine: TestEngine) {
    let _worker = engine.worker((hold, tick)).await;
    let handle = holds(&engine, Overlap::Skip).await;
    engine.run_to("12s").await;
    let firing = view(&engine, "s").await.running[0].run;
    handle.delete().await.unwrap();
    assert_eq!(handle.delete().await.unwrap_err().kind(), ErrorKind::NotFound);
    let error = handle.pause("gone").await.unwrap_err().to_string();
    assert!(error.contains("there is no schedule `s`"), "{error}");
    engine.client.schedule("s").every("5s").start(tick, "t").await.unwrap();
    engine.run_to("18s").await;
    assert_eq!(engine.steps.logged(), ["begin 10", "t 17"]);
    assert_eq!(engine.status(firing).await, Status::Waiting);
}

async fn explain_says_who_can_serve_a_schedule(engine: TestEngine) {
    let handle = engine.client.schedule("s").every("10s").queue("night").start(tick, "t").await.unwrap();
    let alone = handle.explain().await.unwrap();
    assert!(matches!(alone.because, Because::NoWorker { .. }), "{alone:?}");
    assert!(alone.sentence.contains("the schedule `s`, which starts `tick`: every 10s"), "{alone:?}");
    let _day = engine.worker(tick).await;
    let by_day = handle.explain().await.unwrap();
    assert!(matches!(&by_day.because, Because::NotServed { queue, .. } if queue == "night"), "{by_day:?}");
    // This worker has no code of the workflow: it serves the schedule nevertheless.
    let _night = engine.builder().queues(["night"]).start().await.unwrap();
    engine.run_to("12s").await;
    let served = handle.explain().await.unwrap();
    let schedule = served.schedule.unwrap();
    assert_eq!((schedule.counts.fired, schedule.running.len()), (1, 1));
    assert!(served.sentence.contains("It fires next at 2030-01-01T00:00:20"), "{}", served.sentence);
    let firing = engine.client.explain(schedule.running[0].run).await.unwrap();
    assert!(matches!(firing.because, Because::NoCode { .. }), "{firing:?}");
}

async fn a_key_may_be_held_only_while_its_run_lives(engine: TestEngine) {
    #[workflow]
    async fn waits(ctx: Context, _number: u32) -> Result<u32, Error> {
        ctx.hook::<u32>("go").await
    }
    let _worker = engine.worker(waits).await;
    let start = async |number: u32| engine.client.start(waits, number).key("k").key_while_running().await;
    let first = start(1).await.unwrap();
    assert!(!start(1).await.unwrap().is_new());
    assert_eq!(start(2).await.unwrap_err().kind(), ErrorKind::Conflict);
    engine.send(first.id(), "go", 1).await;
    engine.settle().await;
    assert_eq!(first.output().await.unwrap(), 1);
    let second = start(2).await.unwrap();
    assert!(second.is_new() && second.id() != first.id());
    assert_eq!(engine.view(first.id()).await.key, None);
    let error = engine.client.start(waits, 1).key_while_running().await.unwrap_err().to_string();
    assert!(error.contains("needs a key"), "{error}");
}

async fn reserved_names_are_refused(engine: TestEngine) {
    #[workflow]
    async fn reserved(ctx: Context) -> Result<Vec<String>, Error> {
        let mut errors = vec![
            ctx.hook::<u32>("outlast:x").await.unwrap_err(),
            ctx.record("step:x", || 1).unwrap_err(),
            ctx.tag("outlast:x", "y").unwrap_err(),
            ctx.child(tick, "t").key("outlast:x").await.unwrap_err(),
            ctx.child(tick, "t").queue("outlast:x").await.unwrap_err(),
        ];
        let call = ctx.call("outlast:x", 1, async |n: u32| Ok::<_, StepError>(n));
        errors.push(call.await.unwrap_err());
        Ok(errors.into_iter().map(|error| error.to_string()).collect())
    }
    let _worker = engine.worker(reserved).await;
    let client = &engine.client;
    let run = client.start(reserved, ()).await.unwrap();
    engine.settle().await;
    let mut refusals: Vec<String> = run.output().await.unwrap();
    assert_eq!(refusals.len(), 6);
    let mut refused = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        refusals.push(error.to_string());
    };
    refused(client.start(tick, "t").key("outlast:x").await.map(drop));
    refused(client.start(tick, "t").tag("outlast:x", "y").await.map(drop));
    refused(client.start(tick, "t").header("step:x", "y").await.map(drop));
    refused(client.start(tick, "t").queue("outlast:x").await.map(drop));
    refused(client.start_json("outlast:schedule", 1, "{}").await.map(drop));
    refused(client.send(run.id(), "outlast:schedule", "x").await);
    refused(client.schedule("outlast:x").every("1m").start(tick, "t").await.map(drop));
    refused(client.schedule("x").every("1m").tag("outlast:x", "y").start(tick, "t").await.map(drop));
    let step: Step<u32, u32> = Step::new("outlast:x");
    let code = async |_: StepContext<StepState>, n: u32| Ok::<_, StepError>(n);
    refused(engine.builder().step(step, code).start().await.map(drop));
    for refusal in refusals {
        assert!(refusal.contains("which is reserved for the engine; choose another one"), "{refusal}");
    }
}

async fn a_definition_that_makes_no_sense_is_refused(engine: TestEngine) {
    let new = || engine.client.schedule("s");
    let refused = async |builder: outlast::ScheduleBuilder<'_>, expected: &str| {
        let error = builder.start(tick, "t").await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(new(), "needs `.cron(…)` or `.every(…)`").await;
    refused(new().cron("* * * *"), "is not a cron expression").await;
    refused(new().cron("* * * * * *"), "is not a cron expression").await;
    refused(new().cron("0 0 30 2 *"), "matches no time").await;
    refused(new().cron(format!("{}0 * * * *", "0,".repeat(200))), "the limit is 256").await;
    refused(new().cron("@daily").timezone("Europe/Atlantis"), "there is no time zone").await;
    refused(new().cron("@daily").every("1m"), "not both").await;
    refused(new().every("1m").timezone("UTC"), "intervals have no time zone").await;
    refused(new().every("10ms"), "at least `1s`").await;
    refused(new().every("soon"), "is not a duration").await;
    refused(new().every("1m").catch_up(CatchUp::All(0)), "from 1 to 1000").await;
    let (early, late) = (engine.time_after_begin("1m"), engine.time_after_begin("2m"));
    refused(new().every("1m").start_at(late).end_at(early), "set a later end").await;
    let update = engine.client.schedule_handle("s").update().every("1m").save().await.unwrap_err();
    assert_eq!(update.kind(), ErrorKind::NotFound);
}

async fn a_change_is_confirmed_and_made_only_in_the_expected_revision(engine: TestEngine) {
    use outlast::ScheduleAnswer;
    let time = std::time::Duration::from_secs(10);
    let _worker = engine.worker(tick).await;
    let handle = engine.client.schedule("s").every("10s").start(tick, "t").await.unwrap();
    let confirmed = || handle.confirmed(time);
    assert_eq!(view(&engine, "s").await.revision, 1);
    assert_eq!(confirmed().pause("a").await.unwrap(), ScheduleAnswer::Done);
    assert_eq!(confirmed().pause("b").await.unwrap(), ScheduleAnswer::Already);
    assert_eq!(view(&engine, "s").await.revision, 2);
    assert_eq!(confirmed().if_revision(1).resume().await.unwrap(), ScheduleAnswer::Stale);
    assert_eq!(confirmed().if_revision(2).resume().await.unwrap(), ScheduleAnswer::Done);
    assert_eq!(confirmed().resume().await.unwrap(), ScheduleAnswer::Nothing);
    assert_eq!(confirmed().trigger().await.unwrap(), ScheduleAnswer::Done);
    let definition = || engine.client.schedule("s").every("1h").start_json("tick", 1, r#""t""#);
    assert_eq!(definition().replace(Some(2), time).await.unwrap(), ScheduleAnswer::Stale);
    assert_eq!(definition().replace(Some(3), time).await.unwrap(), ScheduleAnswer::Done);
    assert_eq!(definition().replace(None, time).await.unwrap(), ScheduleAnswer::Already);
    let error = definition().create_only().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(view(&engine, "s").await.revision, 4);
}
