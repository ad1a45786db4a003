//! Workers that are gone when instants come: which instants are caught up, and that none fires twice.

use super::super::faulty_world::Call;
use super::*;

on_every_world! {
    after_three_days_without_workers_the_last_instant_fires,
    after_three_days_without_workers_nothing_is_caught_up_if_so_defined,
    after_three_days_without_workers_all_instants_fire_up_to_the_limit,
    after_three_days_without_workers_jitter_spreads_the_firings,
    after_three_days_without_workers_firings_without_jitter_have_a_rate,
    the_last_instants_fire_although_the_end_of_the_schedule_has_passed,
    crashes_change_nothing_about_what_fires,
    firings_that_outlive_their_generation_are_known_after_a_crash,
    an_instant_fires_once_when_its_commit_is_repeated,
}

/// A schedule that fires daily at three, has fired once, and then misses three instants.
async fn missed(engine: &TestEngine, catch_up: CatchUp) -> ScheduleHandle {
    let worker = engine.worker(day).await;
    let handle =
        engine.client.schedule("s").cron("0 3 * * *").catch_up(catch_up).start(day, ()).await.unwrap();
    engine.run_to("4h").await;
    assert_eq!(engine.steps.logged(), ["day 1"]);
    engine.crash(worker);
    engine.clock.advance(std::time::Duration::from_secs(3 * 86_400));
    handle
}

#[workflow]
async fn day(ctx: Context) -> Result<(), Error> {
    let instant = seconds(ctx.scheduled_at().unwrap());
    assert_eq!(instant % 86_400, 3 * 3_600);
    ctx.note(&format!("day {}", instant / 86_400 + 1)).await?;
    Ok(())
}

async fn after_three_days_without_workers_the_last_instant_fires(engine: TestEngine) {
    let handle = missed(&engine, CatchUp::Last).await;
    let _worker = engine.worker(day).await;
    engine.settle().await;
    assert_eq!(engine.steps.logged(), ["day 1", "day 4"]);
    let view = handle.view().await.unwrap();
    assert_eq!((view.counts.fired, view.counts.missed), (2, 2));
    engine.advance("1d").await;
    assert_eq!(engine.steps.logged(), ["day 1", "day 4", "day 5"]);
}

async fn after_three_days_without_workers_nothing_is_caught_up_if_so_defined(engine: TestEngine) {
    let handle = missed(&engine, CatchUp::None).await;
    let _worker = engine.worker(day).await;
    engine.settle().await;
    assert_eq!(engine.steps.logged(), ["day 1"]);
    assert_eq!(handle.view().await.unwrap().counts.missed, 3);
    engine.advance("1d").await;
    assert_eq!(engine.steps.logged(), ["day 1", "day 5"]);
}

async fn after_three_days_without_workers_all_instants_fire_up_to_the_limit(engine: TestEngine) {
    let handle = missed(&engine, CatchUp::All(10)).await;
    let worker = engine.worker(day).await;
    engine.settle().await;
    let mut logged = engine.steps.logged();
    logged.sort();
    assert_eq!(logged, ["day 1", "day 2", "day 3", "day 4"]);
    assert_eq!(handle.view().await.unwrap().counts.missed, 0);
    // The limit keeps the newest.
    handle.update().catch_up(CatchUp::All(2)).save().await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    engine.clock.advance(std::time::Duration::from_secs(5 * 86_400));
    let _worker = engine.worker(day).await;
    engine.settle().await;
    let mut later = engine.steps.logged().split_off(4);
    later.sort();
    assert_eq!(later, ["day 8", "day 9"]);
    assert_eq!(handle.view().await.unwrap().counts.missed, 3);
}

/// This many daily schedules that have fired once, and then miss three instants.
async fn many_missed(engine: &TestEngine, schedules: usize, jitter: &str) {
    let worker = engine.worker(day).await;
    for number in 0..schedules {
        let schedule = engine.client.schedule(format!("s{number}")).cron("0 3 * * *").jitter(jitter);
        schedule.start(day, ()).await.unwrap();
    }
    engine.run_to("4h").await;
    assert_eq!(engine.steps.count("day 1"), schedules);
    engine.crash(worker);
    engine.clock.advance(std::time::Duration::from_secs(3 * 86_400));
}

async fn after_three_days_without_workers_jitter_spreads_the_firings(engine: TestEngine) {
    many_missed(&engine, 100, "60s").await;
    let _worker = engine.worker(day).await;
    engine.settle().await;
    let mut fired = vec![engine.steps.count("day 4")];
    for _ in 0..4 {
        engine.advance("15s").await;
        fired.push(engine.steps.count("day 4"));
    }
    assert!(fired[0] < 5 && fired[4] == 100, "{fired:?}");
    let quarters: Vec<_> = fired.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(quarters.iter().all(|fired| (10..=40).contains(fired)), "{quarters:?}");
    assert_eq!(engine.steps.count("day 2") + engine.steps.count("day 3"), 0);
}

async fn after_three_days_without_workers_firings_without_jitter_have_a_rate(engine: TestEngine) {
    many_missed(&engine, 130, "0s").await;
    let _worker = engine.worker(day).await;
    engine.settle().await;
    let at_once = engine.steps.count("day 4");
    // A turn that is computed again takes another place.
    assert!((40..=101).contains(&at_once), "{at_once}");
    engine.advance("100ms").await;
    let soon = engine.steps.count("day 4");
    assert!(soon <= at_once + 11, "{at_once} and {soon}: one every 10 ms");
    engine.advance("2s").await;
    assert_eq!(engine.steps.count("day 4"), 130);
}

async fn the_last_instants_fire_although_the_end_of_the_schedule_has_passed(engine: TestEngine) {
    let days = |days: u64| std::time::Duration::from_secs(days * 86_400);
    let worker = engine.worker(day).await;
    let schedule = engine.client.schedule("s").cron("0 3 * * *").end_at(engine.clock.now().plus(days(3)));
    schedule.catch_up(CatchUp::All(10)).start(day, ()).await.unwrap();
    engine.run_to("4h").await;
    engine.crash(worker);
    engine.clock.advance(days(5));
    let _worker = engine.worker(day).await;
    engine.settle().await;
    let mut logged = engine.steps.logged();
    logged.sort();
    assert_eq!(logged, ["day 1", "day 2", "day 3"]);
    let statuses = engine.client.list().await.unwrap().runs.into_iter().map(|run| run.status);
    assert!(statuses.into_iter().all(|status| status == Status::Completed));
}

async fn crashes_change_nothing_about_what_fires(engine: TestEngine) {
    let all = engine.client.schedule("all").every("1s").catch_up(CatchUp::All(100)).overlap(Overlap::Allow);
    let mut worker = engine.worker(tick).await;
    all.start(tick, "t").await.unwrap();
    for _ in 0..20 {
        engine.advance("1s500ms").await;
        engine.crash(worker);
        worker = engine.worker(tick).await;
    }
    engine.advance("5s").await;
    engine.client.schedule_handle("all").pause("to count").await.unwrap();
    engine.settle().await;
    let view = view(&engine, "all").await;
    let mut logged = engine.steps.logged();
    logged.sort();
    logged.dedup();
    let last = view.counts.fired;
    assert_eq!(logged.len() as u64, last, "{view:?}");
    let mut expected: Vec<_> = (1..=last).map(|instant| format!("t {instant}")).collect();
    expected.sort();
    assert_eq!(logged, expected);
    assert_eq!((view.counts.missed, view.counts.skipped), (0, 0));
    let firings = engine.client.list().tag("outlast:schedule", "all").await.unwrap().runs;
    assert_eq!(firings.len() as u64, last);
}

async fn firings_that_outlive_their_generation_are_known_after_a_crash(engine: TestEngine) {
    let worker = engine.worker(hold).await;
    holds(&engine, Overlap::Allow).await;
    engine.run_to("45s").await;
    engine.crash(worker);
    let _worker = engine.worker(hold).await;
    engine.settle().await;
    for instant in [30, 10, 20] {
        end_firing(&engine, "s", instant).await;
    }
    let view = view(&engine, "s").await;
    assert_eq!(view.running.iter().map(|firing| seconds(firing.scheduled_at)).collect::<Vec<_>>(), [40]);
    assert_eq!(view.counts.completed, 3);
}

async fn an_instant_fires_once_when_its_commit_is_repeated(engine: TestEngine) {
    let _worker = engine.worker(tick).await;
    engine.client.schedule("s").every("10s").start(tick, "t").await.unwrap();
    engine.settle().await;
    engine.faults.lose_answer(Call::Commit, 0);
    engine.faults.lose_answer(Call::Commit, 2);
    engine.run_to("35s").await;
    assert_eq!(engine.steps.logged(), ["t 10", "t 20", "t 30"]);
}
