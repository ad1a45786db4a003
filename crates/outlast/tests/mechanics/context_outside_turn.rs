//! A context used outside of its run's turn: in a step, in a spawned task, in another run. Its requests there are not
//! recorded, and the run is stuck until a fixed build continues it.

use outlast::prelude::*;
use outlast::{RunId, StuckReason};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::test_engine::{StepCalls, TestEngine, note, on_every_world};

on_every_world! {
    a_step_that_uses_the_context_makes_the_run_stuck_and_a_fixed_build_continues,
    a_step_that_uses_the_context_of_an_earlier_replay_is_found,
    a_spawned_task_that_uses_the_context_makes_the_run_stuck_and_a_fixed_build_continues,
    an_operation_that_a_spawned_task_awaits_or_drops_makes_the_run_stuck,
    a_run_that_uses_the_context_of_another_one_is_stuck_itself,
    reads_that_record_nothing_answer_anywhere,
}

/// The request to a context.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Use {
    Step,
    Sleep,
    Hook,
    Child,
    Record,
    Patched,
    Tag,
    Random,
}

const USES: [(Use, &str); 8] = [
    (Use::Step, "it requested step `note`"),
    (Use::Sleep, "it requested a timer"),
    (Use::Hook, "it requested hook `leaked`"),
    (Use::Child, "it requested child `nothing`"),
    (Use::Record, "it recorded value `leaked`"),
    (Use::Patched, "it called `patched` with `leaked`"),
    (Use::Tag, "it set tag `leaked`"),
    (Use::Random, "it requested a random number"),
];

#[workflow]
async fn nothing(_ctx: Context) -> Result<(), Error> {
    Ok(())
}

async fn used(ctx: &Context, usage: Use) -> Result<(), Error> {
    match usage {
        Use::Step => drop(ctx.step(note, "leaked".to_owned()).attempts(2).await?),
        Use::Sleep => ctx.sleep("1s").await?,
        Use::Hook => ctx.hook::<()>("leaked").timeout("1s").await?,
        Use::Child => ctx.child(nothing, ()).key("leaked").await?,
        Use::Record => ctx.record("leaked", || ())?,
        Use::Patched => assert!(ctx.patched("leaked")),
        Use::Tag => ctx.tag("leaked", "yes")?,
        Use::Random => drop(ctx.uuid()),
    }
    Ok(())
}

/// Waits for two sleeps and a payload: turns that would record leaked requests.
async fn ticks(ctx: &Context) -> Result<u32, Error> {
    ctx.sleep("200ms").await?;
    ctx.sleep("200ms").await?;
    ctx.hook::<u32>("go").await
}

#[workflow(name = "leaks")]
async fn leaks_into_a_step(ctx: Context, usage: Use) -> Result<u32, Error> {
    let leaked = ctx.clone();
    let inner = ctx.call("inner", usage, move |usage| {
        let leaked = leaked.clone();
        async move {
            tokio::task::yield_now().await;
            used(&leaked, usage).await?;
            Ok::<_, StepError>(1)
        }
    });
    let (inner, went) = join!(inner, ticks(&ctx));
    Ok(inner? + went?)
}

#[workflow(name = "leaks")]
async fn leaks_no_more(ctx: Context, usage: Use) -> Result<u32, Error> {
    let inner = ctx.call("inner", usage, async |_: Use| Ok::<_, StepError>(1));
    let (inner, went) = join!(inner, ticks(&ctx));
    Ok(inner? + went?)
}

/// Spawns a task, in a function that the workflow macro does not check.
fn beside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) {
    drop(tokio::spawn(work));
}

async fn assert_outside(engine: &TestEngine, run: RunId, parts: &[&str]) {
    let stuck = engine.stuck(run).await;
    assert_eq!(stuck.reason, StuckReason::ContextOutside, "{}", stuck.message);
    for part in parts {
        assert!(stuck.message.contains(part), "{part} is not in: {}", stuck.message);
    }
}

async fn a_step_that_uses_the_context_makes_the_run_stuck_and_a_fixed_build_continues(engine: TestEngine) {
    let worker =
        engine.caching_builder().build("a").register((leaks_into_a_step, nothing)).start().await.unwrap();
    let mut runs = Vec::new();
    for (usage, did) in USES {
        let run = engine.client.start(leaks_into_a_step, usage).await.unwrap();
        engine.settle().await;
        assert_outside(
            &engine,
            run.id(),
            &["`ctx` was used inside step `inner`", did, "return from the step"],
        )
        .await;
        engine.assert_history(run.id(), "0 step_started inner\n1 timer_started 200ms").await;
        runs.push(run);
    }
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", leaks_no_more).await;
    for run in runs {
        engine.send(run.id(), "go", 10).await;
        engine.advance("1s").await;
        assert_eq!(run.output().await.unwrap(), 11);
    }
    assert_eq!(engine.steps.count("leaked"), 0);
}

async fn a_step_that_uses_the_context_of_an_earlier_replay_is_found(engine: TestEngine) {
    // It replays after every turn, so that the attempt has the context of a dropped future.
    let _worker = engine.worker(leaks_into_a_step).await;
    let run = engine.client.start(leaks_into_a_step, Use::Step).await.unwrap();
    engine.settle().await;
    assert_outside(&engine, run.id(), &["`ctx` was used inside step `inner`"]).await;
}

#[workflow(name = "spawns")]
async fn spawns(ctx: Context, usage: Use) -> Result<u32, Error> {
    let leaked = ctx.clone();
    beside(async move { used(&leaked, usage).await });
    ctx.hook::<u32>("go").await
}

#[workflow(name = "spawns")]
async fn spawns_no_more(ctx: Context, _usage: Use) -> Result<u32, Error> {
    ctx.hook::<u32>("go").await
}

async fn a_spawned_task_that_uses_the_context_makes_the_run_stuck_and_a_fixed_build_continues(
    engine: TestEngine,
) {
    let worker = engine.caching_builder().build("a").register((spawns, nothing)).start().await.unwrap();
    let mut runs = Vec::new();
    for (usage, did) in USES {
        let run = engine.client.start(spawns, usage).await.unwrap();
        engine.settle().await;
        engine.send(run.id(), "go", 10).await;
        engine.settle().await;
        assert_outside(&engine, run.id(), &["in a spawned task or on another thread", did]).await;
        engine.assert_history(run.id(), "0 hook_opened go").await;
        runs.push(run);
    }
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", spawns_no_more).await;
    for run in runs {
        assert_eq!(engine.output_after_fix(&run).await, 10);
    }
}

async fn an_operation_that_a_spawned_task_awaits_or_drops_makes_the_run_stuck(engine: TestEngine) {
    #[workflow]
    async fn moves(ctx: Context, is_awaited: bool) -> Result<u32, Error> {
        let asleep = ctx.sleep("1h");
        beside(async move {
            if is_awaited {
                let _ = asleep.await;
            }
        });
        ctx.hook::<u32>("go").await
    }
    let _worker = engine.caching_builder().register(moves).start().await.unwrap();
    for (is_awaited, did) in
        [(true, "it awaited a timer, operation 0"), (false, "it dropped a timer, operation 0")]
    {
        let run = engine.client.start(moves, is_awaited).await.unwrap();
        engine.settle().await;
        engine.send(run.id(), "go", 10).await;
        engine.settle().await;
        assert_outside(&engine, run.id(), &[did]).await;
    }
}

async fn a_run_that_uses_the_context_of_another_one_is_stuck_itself(engine: TestEngine) {
    static SHARED: Mutex<Vec<(RunId, Context)>> = Mutex::new(Vec::new());
    #[workflow]
    async fn lends(ctx: Context) -> Result<u32, Error> {
        SHARED.lock().push((ctx.run(), ctx.clone()));
        ctx.hook::<u32>("go").await
    }
    #[workflow]
    async fn borrows(ctx: Context, lender: RunId) -> Result<(), Error> {
        ctx.note("own").await?;
        let lent = SHARED.lock().iter().find(|(run, _)| *run == lender).unwrap().1.clone();
        lent.note("borrowed").await?;
        Ok(())
    }
    let _worker = engine.caching_builder().register((lends, borrows)).start().await.unwrap();
    let lender = engine.client.start(lends, ()).await.unwrap();
    engine.settle().await;
    let borrower = engine.client.start(borrows, lender.id()).await.unwrap();
    engine.settle().await;
    let parts = ["the `ctx` of another run", "it requested step `note`"];
    assert_outside(&engine, borrower.id(), &parts).await;
    engine.send(lender.id(), "go", 10).await;
    assert_eq!(lender.output().await.unwrap(), 10);
    SHARED.lock().retain(|(run, _)| *run != lender.id());
    assert_eq!(engine.steps.logged(), ["own"]);
}

async fn reads_that_record_nothing_answer_anywhere(engine: TestEngine) {
    #[workflow]
    async fn reads(ctx: Context) -> Result<bool, Error> {
        ctx.tag("customer", "ada")?;
        let is_patched = ctx.patched("known");
        let (read, now) = (ctx.clone(), ctx.now());
        ctx.call("read", now, move |now| {
            let read = read.clone();
            async move {
                assert_eq!((read.now(), read.is_cancelled(), read.deadline()), (now, false, None));
                assert_eq!(read.tags().len(), 1);
                Ok::<_, StepError>(is_patched && read.patched("known"))
            }
        })
        .await
    }
    let _worker = engine.caching_builder().register(reads).start().await.unwrap();
    let run = engine.client.start(reads, ()).await.unwrap();
    assert!(run.output().await.unwrap());
}
