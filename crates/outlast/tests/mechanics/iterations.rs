//! `ctx.iterate`: a loop whose past a replay skips.

use outlast::core::limits::{HISTORY_EVENTS_MAX, SKIPPED_EVENTS_DELETED};
use outlast::core::{Event, IterationEnded};
use outlast::prelude::*;
use outlast::{RunId, Status, StuckReason, TokenDelivery};

use super::test_engine::{StepCalls, TestEngine, on_every_world, trace, traces};

on_every_world! {
    a_replay_enters_a_loop_with_its_last_state,
    a_crash_between_iterations_changes_nothing,
    operations_that_an_iteration_leaves_open_are_dropped,
    an_iteration_beside_an_open_operation_is_not_skipped,
    an_iteration_beside_other_code_is_not_skipped,
    loops_can_be_nested_and_follow_each_other,
    payloads_tags_and_patches_outlive_iterations,
    a_child_of_an_earlier_iteration_reaches_no_later_operation,
    a_terminated_run_cancels_children_of_earlier_iterations,
    a_saga_in_each_iteration_keeps_the_history_short,
    a_compensation_from_before_the_loop_runs_without_the_code,
    only_events_since_the_last_iteration_count_for_the_limit,
    skipped_turns_are_deleted_and_the_rest_stays_readable,
    a_generation_begins_inside_a_loop,
    generations_before_the_previous_one_are_deleted,
    a_pinned_generation_keeps_its_version,
    a_state_that_does_not_fit_makes_the_run_stuck,
    a_state_that_is_too_large_is_an_error_of_the_loop,
    a_loop_that_awaits_nothing_makes_the_run_stuck,
    views_mark_skipped_iterations,
    a_loop_that_was_renamed_is_diverged,
    settling_compensations_in_an_iteration_is_no_divergence,
    a_payload_for_a_token_that_an_iteration_has_closed_is_gone,
}

async fn ends(engine: &TestEngine, run: RunId) -> Vec<IterationEnded> {
    let events = engine.turns(run).await.into_iter().flat_map(|turn| turn.events);
    let ended = events.filter_map(|event| match event {
        Event::IterationEnded(ended) => Some(*ended),
        _ => None,
    });
    ended.collect()
}

/// The number of iterations of which the history has an end, and how many of them are cuts.
async fn cuts(engine: &TestEngine, run: RunId) -> (usize, usize) {
    let ends = ends(engine, run).await;
    (ends.len(), ends.iter().filter(|end| end.cut.is_some()).count())
}

/// Counts to `of`, with a step before the loop and one after it.
#[workflow]
async fn counts(ctx: Context, of: u32) -> Result<(u32, String), Error> {
    ctx.note("before").await?;
    let total = ctx
        .iterate("count", 0_u32, async |ctx, done| {
            trace(ctx.run(), "iteration");
            if done == of {
                return Ok(Next::Done(done));
            }
            ctx.note(&format!("iteration {done}")).await?;
            ctx.sleep("1m").await?;
            Ok(Next::Again(done + 1))
        })
        .await?;
    Ok((total, ctx.note("after").await?))
}

async fn a_replay_enters_a_loop_with_its_last_state(engine: TestEngine) {
    let worker = engine.caching_builder().register(counts).start().await.unwrap();
    let run = engine.client.start(counts, 20).await.unwrap();
    engine.run_to("1030s").await;
    engine.crash(worker);
    let before = traces(run.id(), "iteration");
    assert_eq!(before, 18, "17 iterations have ended");
    let worker = engine.worker(counts).await;
    engine.run_to("1090s").await;
    assert_eq!(cuts(&engine, run.id()).await, (18, 18));
    drop(worker);
    engine.run_to("2h").await;
    let _worker = engine.worker(counts).await;
    engine.run_to("3h").await;
    assert_eq!(run.output().await.unwrap(), (20, "after".to_owned()));
    let logged = engine.steps.logged();
    assert_eq!(logged.len(), 22, "each step ran once: {logged:?}");
}

async fn a_crash_between_iterations_changes_nothing(engine: TestEngine) {
    let run = engine.client.start(counts, 5).await.unwrap();
    for _ in 0..13 {
        let worker = engine.worker(counts).await;
        engine.advance("25s").await;
        engine.crash(worker);
    }
    let _worker = engine.worker(counts).await;
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), (5, "after".to_owned()));
    assert_eq!(engine.steps.logged().len(), 7, "{:?}", engine.steps.logged());
    assert_eq!(cuts(&engine, run.id()).await, (5, 5));
}

async fn operations_that_an_iteration_leaves_open_are_dropped(engine: TestEngine) {
    #[workflow]
    async fn leaves(ctx: Context, _: ()) -> Result<u32, Error> {
        ctx.iterate("leave", 0, async |ctx, done| {
            let _timer = ctx.sleep("1h");
            let _hook = ctx.hook::<u32>("never");
            ctx.sleep("1s").await?;
            Ok(if done == 2 { Next::Done(done) } else { Next::Again(done + 1) })
        })
        .await
    }
    let _worker = engine.worker(leaves).await;
    let run = engine.client.start(leaves, ()).await.unwrap();
    engine.run_to("10s").await;
    assert_eq!(run.output().await.unwrap(), 2);
    assert_eq!(cuts(&engine, run.id()).await, (2, 2));
    let history = engine.history(run.id()).await;
    assert!(history.contains("1 timer_cancelled") && history.contains("2 hook_closed"), "{history}");
}

/// A timer from outside of the loop is open during the first iterations.
#[workflow]
async fn beside_a_timer(ctx: Context, _: ()) -> Result<u32, Error> {
    let timer = ctx.sleep("150s");
    let total = ctx
        .iterate("count", 0_u32, async |ctx, done| {
            trace(ctx.run(), "iteration");
            ctx.sleep("1m").await?;
            Ok(if done == 9 { Next::Done(done) } else { Next::Again(done + 1) })
        })
        .await?;
    timer.await?;
    Ok(total)
}

async fn an_iteration_beside_an_open_operation_is_not_skipped(engine: TestEngine) {
    let worker = engine.caching_builder().register(beside_a_timer).start().await.unwrap();
    let run = engine.client.start(beside_a_timer, ()).await.unwrap();
    engine.run_to("330s").await;
    // The timer is open when the third iteration begins.
    assert_eq!(cuts(&engine, run.id()).await, (5, 2));
    engine.crash(worker);
    let before = traces(run.id(), "iteration");
    let _worker = engine.caching_builder().register(beside_a_timer).start().await.unwrap();
    engine.run_to("370s").await;
    assert_eq!(traces(run.id(), "iteration") - before, 5, "3 again, 2 skipped, the sixth and the seventh");
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), 9);
}

async fn an_iteration_beside_other_code_is_not_skipped(engine: TestEngine) {
    #[workflow]
    async fn beside(ctx: Context, _: ()) -> Result<(u32, u64), Error> {
        let counting = ctx.iterate("count", 0_u32, async |ctx, done| {
            ctx.sleep("1m").await?;
            Ok(if done == 3 { Next::Done(done) } else { Next::Again(done + 1) })
        });
        let other = async { Ok::<_, Error>(ctx.random()) };
        try_join!(counting, other)
    }
    let run = engine.client.start(beside, ()).await.unwrap();
    for _ in 0..9 {
        let worker = engine.worker(beside).await;
        engine.advance("30s").await;
        engine.crash(worker);
    }
    let _worker = engine.worker(beside).await;
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap().0, 3);
    assert_eq!(cuts(&engine, run.id()).await, (3, 2), "the random number was drawn in the first iteration");
}

/// Three pages of three rows, and then a second loop.
#[workflow]
async fn nested(ctx: Context, _: ()) -> Result<(u32, u32), Error> {
    let rows = ctx
        .iterate("pages", (0_u32, 0_u32), async |ctx, (page, rows)| {
            if page == 3 {
                return Ok(Next::Done(rows));
            }
            let first = rows;
            let rows = ctx
                .iterate("rows", rows, async |ctx, row| {
                    ctx.note(&format!("page {page} row {row}")).await?;
                    ctx.sleep("10s").await?;
                    Ok(if row == first + 2 { Next::Done(row + 1) } else { Next::Again(row + 1) })
                })
                .await?;
            ctx.sleep("10s").await?;
            Ok(Next::Again((page + 1, rows)))
        })
        .await?;
    let more = ctx.iterate("more", 0_u32, async |ctx, done| {
        ctx.sleep("10s").await?;
        Ok(if done == 3 { Next::Done(done) } else { Next::Again(done + 1) })
    });
    Ok((rows, more.await?))
}

async fn loops_can_be_nested_and_follow_each_other(engine: TestEngine) {
    let run = engine.client.start(nested, ()).await.unwrap();
    for _ in 0..40 {
        let worker = engine.worker(nested).await;
        engine.advance("4s").await;
        engine.crash(worker);
    }
    let _worker = engine.worker(nested).await;
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), (9, 3));
    let logged = engine.steps.logged();
    assert_eq!(logged.len(), 9, "{logged:?}");
    let ends = ends(&engine, run.id()).await;
    let skips: Vec<_> = ends.iter().map(|end| end.cut.as_ref().unwrap().skips.len()).collect();
    assert_eq!(skips, [1, 1, 1, 2, 2, 1, 2, 2, 1, 2, 2, 2], "the end of a page replaces those of its rows");
}

#[workflow]
async fn collects(ctx: Context, _: ()) -> Result<(Vec<u32>, Option<String>), Error> {
    let sums = ctx
        .iterate("collect", Vec::new(), async |ctx, mut taken: Vec<u32>| {
            if !ctx.patched("tagged") {
                return Err(Error::msg("a new run takes the new branch"));
            }
            ctx.tag("taken", taken.len().to_string())?;
            match ctx.hook::<u32>("add").await? {
                0 => return Ok(Next::Done(taken)),
                add => taken.push(add),
            }
            Ok(Next::Again(taken))
        })
        .await?;
    Ok((sums, ctx.tags().get("taken").cloned()))
}

async fn payloads_tags_and_patches_outlive_iterations(engine: TestEngine) {
    let run = engine.client.start(collects, ()).await.unwrap();
    for payload in 1..=7 {
        let worker = engine.worker(collects).await;
        engine.send(run.id(), "other", payload).await;
        engine.send(run.id(), "add", payload).await;
        engine.settle().await;
        engine.crash(worker);
    }
    let view = engine.view(run.id()).await;
    assert_eq!((view.kept, view.status), (7, Status::Waiting), "{view:?}");
    assert_eq!(view.tags.get("taken").map(String::as_str), Some("7"));
    let ends = ends(&engine, run.id()).await;
    let cut = ends.last().and_then(|end| end.cut.as_ref()).unwrap();
    assert_eq!((cut.kept.len(), cut.patches.len(), cut.tags.len()), (7, 1, 1));
    let _worker = engine.worker(collects).await;
    engine.send(run.id(), "add", 0).await;
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), ((1..=7).collect(), Some("7".to_owned())));
    assert_eq!(engine.view(run.id()).await.kept, 7);
    assert_eq!(engine.history(run.id()).await.matches("version_chosen").count(), 1);
}

#[workflow]
async fn child(ctx: Context, name: u32) -> Result<u32, Error> {
    ctx.hook::<u32>("go").await?;
    Ok(name)
}

/// Each iteration starts a child; the last one awaits its own.
#[workflow]
async fn starts_children(ctx: Context, _: ()) -> Result<u32, Error> {
    ctx.iterate("children", 1_u32, async |ctx, number| {
        let own = ctx.child(child, number).on_parent_end(match number {
            1 => ParentEnd::Cancel,
            _ => ParentEnd::Abandon,
        });
        if number < 3 {
            ctx.sleep("1s").await?;
            return Ok(Next::Again(number + 1));
        }
        Ok(Next::Done(own.await?))
    })
    .await
}

async fn children_of(engine: &TestEngine, run: RunId) -> Vec<RunId> {
    let page = engine.client.list().parent(run).await.unwrap();
    let mut children: Vec<_> = page.runs.into_iter().map(|view| view.id).collect();
    children.sort();
    children
}

async fn a_child_of_an_earlier_iteration_reaches_no_later_operation(engine: TestEngine) {
    let worker = engine.worker((starts_children, child)).await;
    let run = engine.client.start(starts_children, ()).await.unwrap();
    engine.run_to("10s").await;
    let children = children_of(&engine, run.id()).await;
    assert_eq!(children.len(), 3);
    engine.crash(worker);
    let _worker = engine.worker((starts_children, child)).await;
    engine.send(children[1], "go", 1).await;
    engine.settle().await;
    assert_eq!(engine.status(children[1]).await, Status::Completed);
    assert_eq!(engine.status(run.id()).await, Status::Waiting, "the outcome is not that of its own child");
    engine.send(children[2], "go", 1).await;
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), 3);
    assert_eq!(engine.status(children[0]).await, Status::Cancelled, "as its policy says");
}

async fn a_terminated_run_cancels_children_of_earlier_iterations(engine: TestEngine) {
    let worker = engine.worker((starts_children, child)).await;
    let run = engine.client.start(starts_children, ()).await.unwrap();
    engine.run_to("10s").await;
    let children = children_of(&engine, run.id()).await;
    engine.crash(worker);
    let _worker = engine.worker(child).await;
    engine.client.terminate(run.id(), "enough").await.unwrap();
    engine.settle().await;
    assert!(run.output().await.unwrap_err().is_cancelled());
    assert_eq!(engine.status(children[0]).await, Status::Cancelled);
    assert_eq!(engine.status(children[1]).await, Status::Waiting, "it is abandoned");
}

#[step]
async fn undo(undo: Undo<String, String>) -> Result<(), StepError> {
    drop(undo);
    Ok(())
}

async fn a_saga_in_each_iteration_keeps_the_history_short(engine: TestEngine) {
    #[workflow]
    async fn books(ctx: Context, _: ()) -> Result<u32, Error> {
        ctx.iterate("book", 0_u32, async |ctx, done| {
            let booked = ctx.saga(async |ctx| {
                ctx.note("book").undo(undo).await?;
                if done % 2 == 0 { Err(Error::msg("even")) } else { Ok(()) }
            });
            let is_booked = booked.await.is_ok();
            ctx.sleep("1m").await?;
            // The third one is left registered.
            if is_booked && done != 3 {
                ctx.keep();
            }
            Ok(if done == 5 { Next::Done(done) } else { Next::Again(done + 1) })
        })
        .await
    }
    let run = engine.client.start(books, ()).await.unwrap();
    for _ in 0..9 {
        let worker = engine.worker((books, undo)).await;
        engine.advance("50s").await;
        engine.crash(worker);
    }
    let _worker = engine.worker((books, undo)).await;
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), 5);
    let ends = ends(&engine, run.id()).await;
    let skipped: Vec<_> = ends.iter().map(|end| end.cut.is_some()).collect();
    assert_eq!(skipped, [true, true, true, false, true], "a compensation outlives the fourth iteration");
}

async fn a_compensation_from_before_the_loop_runs_without_the_code(engine: TestEngine) {
    #[workflow]
    async fn books(ctx: Context, _: ()) -> Result<u32, Error> {
        ctx.note("book").undo(undo).await?;
        ctx.iterate("wait", 0_u32, async |ctx, done| {
            ctx.sleep("1m").await?;
            Ok(if done == 50 { Next::Done(done) } else { Next::Again(done + 1) })
        })
        .await
    }
    let worker = engine.worker((books, undo)).await;
    let run = engine.client.start(books, ()).await.unwrap();
    engine.run_to("330s").await;
    assert_eq!(cuts(&engine, run.id()).await, (5, 5));
    engine.crash(worker);
    let _worker = engine.worker(undo).await;
    engine.client.terminate(run.id(), "enough").compensating().await.unwrap();
    engine.run_to("400s").await;
    let view = engine.view(run.id()).await;
    assert!(view.status == Status::Cancelled && view.marks.is_compensated(), "{view:?}");
}

async fn only_events_since_the_last_iteration_count_for_the_limit(engine: TestEngine) {
    #[workflow]
    async fn chatters(ctx: Context, _: ()) -> Result<u64, Error> {
        ctx.iterate("chat", 0_u64, async |ctx, done| {
            for number in 0..HISTORY_EVENTS_MAX / 2 {
                ctx.record("number", || number)?;
            }
            ctx.sleep("1s").await?;
            Ok(if done == 3 { Next::Done(done) } else { Next::Again(done + 1) })
        })
        .await
    }
    let _worker = engine.caching_builder().register(chatters).start().await.unwrap();
    let run = engine.client.start(chatters, ()).await.unwrap();
    engine.run_to("1m").await;
    assert_eq!(run.output().await.unwrap(), 3);
}

#[workflow]
async fn chats(ctx: Context, of: u64) -> Result<u64, Error> {
    ctx.note("before").await?;
    ctx.iterate("chat", 0_u64, async |ctx, done| {
        for number in 0..100 {
            ctx.record("number", || number)?;
        }
        ctx.sleep("1s").await?;
        Ok(if done == of { Next::Done(done) } else { Next::Again(done + 1) })
    })
    .await
}

async fn skipped_turns_are_deleted_and_the_rest_stays_readable(engine: TestEngine) {
    let worker = engine.caching_builder().register(chats).start().await.unwrap();
    let run = engine.client.start(chats, 100).await.unwrap();
    engine.send(run.id(), "other", 7).await;
    engine.run_to("90500ms").await;
    engine.crash(worker);
    let turns = engine.turns(run.id()).await;
    let events: usize = turns.iter().map(|turn| turn.events.len()).sum();
    assert!(events < 2 * SKIPPED_EVENTS_DELETED as usize, "{events} events are left");
    let last = turns.last().unwrap();
    assert!(last.seq > 9 * SKIPPED_EVENTS_DELETED - 1_000, "{}", last.seq);
    let kept = turns.iter().flat_map(|turn| &turn.events).any(|event| event.message().is_some());
    assert!(kept, "the payload that no hook has taken is kept");
    let exported = engine.client.export(run.id()).await.unwrap();
    let read = outlast::core::History::from_json(&exported).unwrap();
    assert_eq!(read.turns, turns);
    assert!(outlast::replay(chats, read).is_ok());
    let _worker = engine.worker(chats).await;
    engine.run_to("2m").await;
    assert_eq!(run.output().await.unwrap(), 100);
    assert_eq!(engine.steps.logged(), ["before"]);
}

async fn a_generation_begins_inside_a_loop(engine: TestEngine) {
    #[workflow]
    async fn both(ctx: Context, generation: u32) -> Result<(u64, u32), Error> {
        let done = ctx.iterate("count", 0_u32, async |ctx, done| {
            ctx.sleep("10s").await?;
            match done {
                3 if generation < 3 => ctx.continue_as(&(generation + 1)),
                3 => Ok(Next::Done(done)),
                _ => Ok(Next::Again(done + 1)),
            }
        });
        Ok((ctx.generation(), done.await?))
    }
    let run = engine.client.start(both, 1).await.unwrap();
    for payload in 0..15 {
        let worker = engine.worker(both).await;
        engine.send(run.id(), "other", payload).await;
        engine.advance("7s").await;
        engine.crash(worker);
    }
    let _worker = engine.worker(both).await;
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), (3, 3));
    assert_eq!(engine.view(run.id()).await.kept, 15);
}

async fn generations_before_the_previous_one_are_deleted(engine: TestEngine) {
    #[workflow]
    async fn chatters(ctx: Context, generation: u64) -> Result<u64, Error> {
        for number in 0..SKIPPED_EVENTS_DELETED {
            ctx.record("number", || number)?;
        }
        ctx.sleep("1s").await?;
        if generation < 6 { ctx.continue_as(&(generation + 1)) } else { Ok(generation) }
    }
    for (kept, expected) in
        [(None, vec![1, 5, 6]), (Some(0), vec![1, 6]), (Some(100), vec![1, 2, 3, 4, 5, 6])]
    {
        let builder = engine.caching_builder().register(chatters);
        let builder = match kept {
            None => builder,
            Some(kept) => builder.keep_generations(kept),
        };
        let worker = builder.start().await.unwrap();
        let run = engine.client.start(chatters, 1).await.unwrap();
        engine.advance("1m").await;
        assert_eq!(run.output().await.unwrap(), 6);
        let turns = engine.turns(run.id()).await;
        let begins = turns.iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
            Event::RunStarted(_) => Some(1),
            Event::RunContinued(continued) => Some(continued.generation),
            _ => None,
        });
        assert_eq!(begins.collect::<Vec<_>>(), expected, "{kept:?}");
        worker.stop().await.unwrap();
    }
}

async fn a_pinned_generation_keeps_its_version(engine: TestEngine) {
    #[workflow(name = "versioned")]
    async fn first(ctx: Context, generation: u32) -> Result<u32, Error> {
        ctx.sleep("1s").await?;
        match generation {
            1 => ctx.continue_pinned(&2),
            2 => ctx.continue_as(&3),
            _ => Ok(1),
        }
    }
    #[workflow(name = "versioned", version = 2)]
    async fn second(ctx: Context, generation: u32) -> Result<u32, Error> {
        ctx.sleep("1s").await?;
        Ok(10 * generation)
    }
    let worker = engine.worker(first).await;
    let run = engine.client.start(first, 1).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.worker((first, second)).await;
    engine.run_to("1500ms").await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.generation, view.version), (2, 1));
    engine.run_to("1m").await;
    assert_eq!(run.output().await.unwrap(), 30);
}

async fn a_state_that_does_not_fit_makes_the_run_stuck(engine: TestEngine) {
    #[workflow(name = "counter")]
    async fn by_number(ctx: Context, _: ()) -> Result<u32, Error> {
        ctx.iterate("count", 0_u32, async |ctx, done| {
            ctx.sleep("1m").await?;
            Ok(if done == 3 { Next::Done(done) } else { Next::Again(done + 1) })
        })
        .await
    }
    #[workflow(name = "counter")]
    async fn by_text(ctx: Context, _: ()) -> Result<u32, Error> {
        ctx.iterate("count", String::new(), async |ctx, done| {
            ctx.sleep("1m").await?;
            Ok(Next::<String, u32>::Again(done + "!"))
        })
        .await
    }
    let worker = engine.worker(by_number).await;
    let run = engine.client.start(by_number, ()).await.unwrap();
    engine.run_to("90s").await;
    engine.crash(worker);
    let worker = engine.worker_of_build("text", by_text).await;
    engine.run_to("130s").await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Undecodable);
    assert!(stuck.message.contains("the state of the loop that operation 0 began"), "{}", stuck.message);
    engine.crash(worker);
    let _worker = engine.worker(by_number).await;
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), 3);
}

async fn a_state_that_is_too_large_is_an_error_of_the_loop(engine: TestEngine) {
    #[workflow]
    async fn grows(ctx: Context, _: ()) -> Result<String, Error> {
        let grown = ctx.iterate("grow", String::from("x"), async |ctx, state| {
            ctx.sleep("1s").await?;
            Ok(Next::<String, ()>::Again(state.repeat(300)))
        });
        let error = grown.await.unwrap_err();
        ctx.sleep("1s").await?;
        Ok(error.to_string())
    }
    let _worker = engine.worker(grows).await;
    let run = engine.client.start(grows, ()).await.unwrap();
    engine.run_to("1m").await;
    let output = run.output().await.unwrap();
    assert!(output.contains("limit"), "{output}");
    assert_eq!(cuts(&engine, run.id()).await, (3, 2));
}

async fn a_loop_that_awaits_nothing_makes_the_run_stuck(engine: TestEngine) {
    #[workflow]
    async fn spins(ctx: Context, _: ()) -> Result<u32, Error> {
        ctx.iterate("spin", 0_u32, async |_, done| Ok(Next::Again(done + 1))).await
    }
    let _worker = engine.worker(spins).await;
    let run = engine.client.start(spins, ()).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Hung);
    assert!(stuck.message.contains("let each iteration await something"), "{}", stuck.message);
}

async fn views_mark_skipped_iterations(engine: TestEngine) {
    let _worker = engine.worker(counts).await;
    let run = engine.client.start(counts, 4).await.unwrap();
    engine.run_to("150s").await;
    let operations = engine.client.operations(run.id()).await.unwrap();
    let skipped: Vec<_> = operations.iter().map(|op| (op.op.0, op.is_skipped)).collect();
    let expected = [(0, false), (2, true), (3, true), (5, true), (6, true), (8, false), (9, false)];
    assert_eq!(skipped, expected);
    let events = engine.client.events(run.id()).await.unwrap();
    let kept: Vec<_> =
        events.iter().filter(|event| !event.is_skipped).map(|event| event.event.kind()).collect();
    let expected = [
        "run_started",
        "step_started",
        "step_completed",
        "loop_started",
        "iteration_ended",
        "step_started",
        "step_completed",
        "timer_started",
    ];
    assert_eq!(kept, expected);
}

async fn a_loop_that_was_renamed_is_diverged(engine: TestEngine) {
    #[workflow(name = "counter")]
    async fn before(ctx: Context, _: ()) -> Result<u32, Error> {
        let again = async |ctx: Context, done: u32| {
            ctx.sleep("1m").await?;
            Ok(Next::<u32, u32>::Again(done + 1))
        };
        ctx.iterate("count", 0_u32, again).await
    }
    #[workflow(name = "counter")]
    async fn after(ctx: Context, _: ()) -> Result<u32, Error> {
        let again = async |ctx: Context, done: u32| {
            ctx.sleep("1m").await?;
            Ok(Next::<u32, u32>::Again(done + 1))
        };
        ctx.iterate("total", 0_u32, again).await
    }
    let worker = engine.worker(before).await;
    let run = engine.client.start(before, ()).await.unwrap();
    engine.run_to("90s").await;
    engine.crash(worker);
    let _worker = engine.worker_of_build("new", after).await;
    engine.run_to("130s").await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Diverged);
    let expected = "history has loop `count`, code asked for loop `total`";
    assert!(stuck.message.contains(expected), "{}", stuck.message);
}

async fn settling_compensations_in_an_iteration_is_no_divergence(engine: TestEngine) {
    #[workflow]
    async fn settling(ctx: Context) -> Result<u32, Error> {
        ctx.iterate("rounds", 0u32, |ctx: Context, round: u32| async move {
            ctx.keep();
            ctx.hook::<u32>("go").await?;
            Ok(if round < 1 { Next::Again(round + 1) } else { Next::Done(round) })
        })
        .await
    }
    let _worker = engine.worker(settling).await;
    let run = engine.client.start(settling, ()).await.unwrap();
    engine.send(run.id(), "go", 1).await;
    engine.settle().await;
    engine.send(run.id(), "go", 2).await;
    assert_eq!(run.output().await.unwrap(), 1);
}

async fn a_payload_for_a_token_that_an_iteration_has_closed_is_gone(engine: TestEngine) {
    #[workflow]
    async fn reopens(ctx: Context) -> Result<Option<u32>, Error> {
        let rounds = ctx.iterate("rounds", 0_u32, async |ctx, round| {
            let open = ctx.open_hook::<u32>("review").token("order-7").await?;
            if round == 0 {
                ctx.sleep("1m").await?;
                return Ok(Next::Again(1));
            }
            match open.next().timeout("1m").await {
                Err(error) if error.is_timeout() => Ok(Next::Done(None)),
                payload => Ok(Next::Done(Some(payload?))),
            }
        });
        rounds.await
    }
    // The worker replays the run after each turn.
    let _worker = engine.worker(reopens).await;
    let run = engine.client.start(reopens, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.client.send_to_token("order-7", &1).await.unwrap(), TokenDelivery::Delivered);
    engine.advance("1m").await;
    assert_eq!(cuts(&engine, run.id()).await, (1, 1));
    engine.advance("1m").await;
    assert_eq!(run.output().await.unwrap(), None);
}
