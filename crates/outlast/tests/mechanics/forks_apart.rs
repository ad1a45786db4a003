//! Forks of runs with compensations, loops and generations: what is the fork's, and what is the other run's.

use outlast::core::History;
use outlast::prelude::*;
use outlast::{Controlled, ErrorKind, OpNumber, RunId, Status, Undo};

use super::forks::{answered, event, fork, refusal, work};
use super::test_engine::{StepState, TestEngine, on_every_world};

on_every_world! {
    compensations_of_copied_steps_are_not_the_forks,
    a_result_in_the_last_copied_poll_depends_on_what_is_the_forks,
    a_result_before_a_copied_fork_depends_on_what_is_the_forks,
    a_loop_continues_in_its_iteration,
    a_cut_before_a_loop_records_it_anew,
    a_generation_can_begin_in_the_last_copied_poll,
    a_cut_between_the_last_drops_of_a_generation_is_before_them,
    a_fork_leaves_the_past_of_its_generation_behind,
    a_fork_of_a_loop_leaves_skipped_iterations_behind,
    an_event_of_a_deleted_generation_refuses_the_fork,
    a_cut_in_a_retried_part_is_the_cut_point_of_the_retry,
    a_fork_is_retried_only_from_what_it_did_itself,
    a_terminated_fork_leaves_the_other_runs_children_alone,
    a_fork_that_is_terminated_before_it_began_undoes_nothing,
    a_saga_that_fails_in_the_last_copied_poll_undoes_nothing_of_the_other_run,
    a_copied_step_that_was_cancelled_is_not_undone,
    a_fork_that_compensates_awaits_its_own_children_after_a_crash,
    a_fork_that_compensates_at_once_does_not_await_runs_that_nobody_starts,
    a_cut_in_the_poll_in_which_the_workflow_returns_keeps_what_it_recorded,
    a_poll_may_go_another_way_behind_the_cut,
    a_run_that_was_cancelled_before_its_first_turn_is_forked_at_its_start,
}

#[step]
async fn undo(cx: StepContext<StepState>, undo: Undo<String, String>) -> Result<(), StepError> {
    cx.state().log(format!("undid {}", undo.input));
    Ok(())
}

#[workflow]
async fn order(ctx: Context) -> Result<String, Error> {
    ctx.step(work, "one".to_owned()).undo(undo).await?;
    ctx.step(work, "two".to_owned()).undo(undo).await?;
    ctx.step(work, "bad three".to_owned()).await
}

async fn compensations_of_copied_steps_are_not_the_forks(engine: TestEngine) {
    let _worker = engine.worker((order, work, undo)).await;
    let run = engine.client.start(order, ()).await.unwrap();
    assert!(run.output().await.is_err());
    assert_eq!((engine.steps.count("undid one"), engine.steps.count("undid two")), (1, 1));
    // The second step is open at the cut: the fork attempts it, and undoes it.
    let at = event(&engine, run.id(), "step_completed", 1).await;
    let copy = fork(run.fork().at(at)).await;
    assert!(copy.output().await.is_err());
    assert_eq!((engine.steps.count("undid one"), engine.steps.count("undid two")), (1, 2));
    assert_eq!((engine.steps.count("began one"), engine.steps.count("began two")), (1, 2));
    let compensating = event(&engine, run.id(), "run_compensating", 0).await;
    let reason = refusal(&engine, run.id(), compensating + 1).await;
    assert!(reason.contains(&format!("with event {compensating}; fork at event {compensating}")), "{reason}");
}

async fn a_result_in_the_last_copied_poll_depends_on_what_is_the_forks(engine: TestEngine) {
    let _worker = engine.worker((order, work, undo)).await;
    let run = engine.client.start(order, ()).await.unwrap();
    assert!(run.output().await.is_err());
    let at = event(&engine, run.id(), "run_compensating", 0).await;
    let copy = fork(run.fork().at(at)).await;
    assert!(copy.output().await.is_err());
    let history = engine.history(copy.id()).await;
    assert!(history.ends_with("run_forked\nrun_failed bad three failed"), "{history}");
    assert_eq!((engine.steps.count("undid one"), engine.steps.count("undid two")), (1, 1));
    // The same with a result: only the end is missing.
    let given = fork(run.fork().with_output(OpNumber(4), "three")).await;
    assert_eq!(given.output().await.unwrap(), "three");
    let end = event(&engine, given.id(), "run_completed", 0).await;
    let again = fork(given.fork().at(end)).await;
    assert_eq!(again.output().await.unwrap(), "three");
}

async fn a_saga_that_fails_in_the_last_copied_poll_undoes_nothing_of_the_other_run(engine: TestEngine) {
    #[workflow]
    async fn trip(ctx: Context) -> Result<String, Error> {
        let booked = ctx.saga(async |ctx| {
            ctx.step(work, "one".to_owned()).undo(undo).await?;
            ctx.step(work, "bad two".to_owned()).undo(undo).await
        });
        booked.await.or_else(|error| Ok(error.to_string()))
    }
    let _worker = engine.worker((trip, work, undo)).await;
    let run = engine.client.start(trip, ()).await.unwrap();
    let output = run.output().await.unwrap();
    assert_eq!((engine.steps.count("undid one"), engine.steps.count("undid bad two")), (1, 1));
    let at = event(&engine, run.id(), "compensation_started", 0).await;
    let copy = fork(run.fork().at(at)).await;
    assert_eq!(copy.output().await.unwrap(), output);
    assert_eq!((engine.steps.count("undid one"), engine.steps.count("undid bad two")), (1, 1));
    // The fork attempts the second step itself, and undoes it.
    let at = event(&engine, run.id(), "step_failed", 0).await;
    let copy = fork(run.fork().at(at)).await;
    assert_eq!(copy.output().await.unwrap(), output);
    assert_eq!((engine.steps.count("undid one"), engine.steps.count("undid bad two")), (1, 2));
    let history = engine.history(copy.id()).await;
    assert_eq!(history.matches("compensation_started").count(), 1, "{history}");
}

async fn a_fork_that_compensates_awaits_its_own_children_after_a_crash(engine: TestEngine) {
    #[workflow]
    async fn nap(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1d").await
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<String, Error> {
        let child = ctx.child(nap, ()).on_parent_end(ParentEnd::Wait);
        ctx.hook::<u32>("go").await?;
        ctx.step(work, "two".to_owned()).undo(undo).await?;
        drop(child);
        Err(Error::msg("no"))
    }
    // While no worker has the code of the child, it does not begin, and the run can be forked.
    let worker = engine.worker((parent, work, undo)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("hook_opened")).await;
    let events = engine.turns(run.id()).await.iter().map(|turn| turn.events.len() as u64).sum();
    let copy = fork(run.fork().at(events)).await;
    engine.wait_for_history(copy.id(), |history| history.contains("run_forked")).await;
    // A child that has begun needs its code in order to be cancelled.
    let other = engine.worker((parent, nap, work, undo)).await;
    engine.wait_for_status(copy.id(), Status::Waiting).await;
    let child = engine.client.children(copy.id()).await.unwrap().runs[0].id;
    engine.wait_for_status(child, Status::Waiting).await;
    engine.crash(other);
    engine.advance("1m").await;
    engine.send(copy.id(), "go", 1).await;
    engine.wait_for_history(copy.id(), |history| history.contains("run_compensating")).await;
    engine.crash(worker);
    let _worker = engine.worker((parent, work, undo)).await;
    engine.advance("1m").await;
    engine.settle().await;
    let history = engine.history(copy.id()).await;
    assert!(!history.contains("compensation_started"), "its child has not ended: {history}");
    let _other = engine.worker((parent, nap, work, undo)).await;
    engine.wait_for_status(copy.id(), Status::Failed).await;
    assert_eq!(engine.steps.count("undid two"), 1);
}

async fn a_fork_that_compensates_at_once_does_not_await_runs_that_nobody_starts(engine: TestEngine) {
    #[workflow]
    async fn both(ctx: Context) -> Result<String, Error> {
        let queued = ctx.step(work, "queued".to_owned()).queue("gpu").undo(undo);
        let both = futures_util::future::try_join(queued, ctx.step(work, "bad".to_owned()));
        both.await.map(|(there, _)| there)
    }
    let _worker = engine.worker((both, work, undo)).await;
    let run = engine.client.start(both, ()).await.unwrap();
    assert!(run.output().await.is_err());
    // The workflow returns in the last copied poll, and the queued step is open.
    let at = event(&engine, run.id(), "run_compensating", 0).await;
    let copy = fork(run.fork().at(at)).await;
    assert!(copy.output().await.is_err());
    assert_eq!(engine.steps.count("undid queued"), 0);
}

async fn a_cut_in_the_poll_in_which_the_workflow_returns_keeps_what_it_recorded(engine: TestEngine) {
    #[workflow]
    async fn measured(ctx: Context) -> Result<u32, Error> {
        let first = ctx.record("first", || 3u32)?;
        Ok(first * ctx.record("second", || 5u32)?)
    }
    let _worker = engine.worker(measured).await;
    let run = engine.client.start(measured, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 15);
    for at in 1..=3 {
        assert_eq!(fork(run.fork().at(at)).await.output().await.unwrap(), 15, "at {at}");
    }
    let other = fork(run.fork().with_output(OpNumber(0), &4)).await;
    assert_eq!(other.output().await.unwrap(), 20);
}

async fn a_poll_may_go_another_way_behind_the_cut(engine: TestEngine) {
    #[workflow]
    async fn branches(ctx: Context, (undoes, waits): (bool, bool)) -> Result<String, Error> {
        let slow = ctx.step(work, "slow".to_owned());
        let slow = if undoes { slow.undo(undo) } else { slow };
        let other = async {
            // A fork that has not copied the answer takes the old branch.
            if ctx.patched("new") { ctx.step(work, "two".to_owned()).await } else { Ok("old".to_owned()) }
        };
        let first = select! {
            slow = slow => slow,
            other = other => other,
        };
        if waits {
            ctx.hook::<u32>("end").await?;
        }
        ctx.keep();
        first
    }
    let _worker = engine.worker((branches, work, undo)).await;
    for (undoes, waits) in [(false, false), (false, true), (true, false), (true, true)] {
        let run = engine.client.start(branches, (undoes, waits)).await.unwrap();
        if waits {
            engine.send(run.id(), "end", 1).await;
        }
        assert_eq!(run.output().await.unwrap(), "two");
        let at = event(&engine, run.id(), "step_started", 0).await + 1;
        let copy = fork(run.fork().at(at)).await;
        if waits {
            engine.send(copy.id(), "end", 1).await;
        }
        assert_eq!(copy.output().await.unwrap(), "old", "{undoes} {waits}");
        let end = event(&engine, copy.id(), "run_completed", 0).await;
        assert_eq!(fork(copy.fork().at(end)).await.output().await.unwrap(), "old");
    }
    assert_eq!(engine.steps.count("began slow"), 4, "only the runs that were forked attempt it");
    engine.steps.open("slow");
}

async fn a_run_that_was_cancelled_before_its_first_turn_is_forked_at_its_start(engine: TestEngine) {
    #[workflow]
    async fn quick(ctx: Context) -> Result<u32, Error> {
        ctx.record("number", || 7u32)
    }
    let run = engine.client.start(quick, ()).await.unwrap();
    engine.client.cancel(run.id(), "not needed").await.unwrap();
    let _worker = engine.worker(quick).await;
    engine.wait_for_status(run.id(), Status::Cancelled).await;
    let reason = refusal(&engine, run.id(), 2).await;
    assert!(reason.contains("it had ended with event 1; fork at event 1"), "{reason}");
    assert_eq!(fork(run.fork().at(1)).await.output().await.unwrap(), 7);
}

async fn a_result_before_a_copied_fork_depends_on_what_is_the_forks(engine: TestEngine) {
    let _worker = engine.worker((order, work, undo)).await;
    let run = engine.client.start(order, ()).await.unwrap();
    assert!(run.output().await.is_err());
    let compensating = event(&engine, run.id(), "run_compensating", 0).await;
    let copy = fork(run.fork().at(compensating)).await;
    assert!(copy.output().await.is_err());
    // Its copied events end with `run_forked`: the workflow had returned in the poll before that.
    let end = event(&engine, copy.id(), "run_failed", 0).await;
    let again = fork(copy.fork().at(end)).await;
    assert!(again.output().await.is_err());
    let history = engine.history(again.id()).await;
    assert!(history.ends_with("run_forked\nrun_forked\nrun_failed bad three failed"), "{history}");
    // A third one, directly before the event of the second.
    let third = fork(again.fork().at(end)).await;
    assert!(third.output().await.is_err());
    assert_eq!((engine.steps.count("undid one"), engine.steps.count("undid two")), (1, 1));
}

#[workflow]
async fn looping(ctx: Context) -> Result<u32, Error> {
    ctx.step(work, "before".to_owned()).await?;
    let looped = ctx.iterate("loop", 0u32, async |ctx: Context, done: u32| {
        let name = if done == 3 { "bad".to_owned() } else { format!("good {done}") };
        ctx.step(work, name).await?;
        Ok(if done == 5 { Next::Done(done) } else { Next::Again(done + 1) })
    });
    looped.await
}

async fn a_loop_continues_in_its_iteration(engine: TestEngine) {
    let worker = engine.worker((looping, work)).await;
    let run = engine.client.start(looping, ()).await.unwrap();
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    let at = event(&engine, run.id(), "step_failed", 0).await;
    let copy = fork(run.fork().at(at)).await;
    assert_eq!(copy.output().await.unwrap(), 5);
    assert_eq!((engine.steps.count("began good 2"), engine.steps.count("began before")), (1, 1));
    assert_eq!((engine.steps.count("began bad"), engine.steps.count("began good 4")), (2, 1));
    // The iteration of the fork is not skipped, so a later replay knows what is the fork's.
    worker.stop().await.unwrap();
    let _worker = engine.worker((looping, work)).await;
    let end = event(&engine, copy.id(), "run_completed", 0).await;
    let again = fork(copy.fork().at(end)).await;
    assert_eq!(again.output().await.unwrap(), 5);
    assert_eq!(engine.steps.count("began bad"), 2);
}

async fn a_cut_before_a_loop_records_it_anew(engine: TestEngine) {
    let _worker = engine.worker((looping, work)).await;
    let run = engine.client.start(looping, ()).await.unwrap();
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    let at = event(&engine, run.id(), "loop_started", 0).await;
    let copy = fork(run.fork().at(at)).await;
    assert_eq!(copy.output().await.unwrap(), 5);
    assert_eq!((engine.steps.count("began good 2"), engine.steps.count("began before")), (2, 1));
}

#[workflow]
async fn generations(ctx: Context, (done, of): (u32, u32)) -> Result<u64, Error> {
    ctx.step(work, format!("{done} of {of}")).await?;
    ctx.hook::<u32>("go").await?;
    if done < of { ctx.continue_as(&(done + 1, of)) } else { Ok(ctx.generation()) }
}

async fn a_generation_can_begin_in_the_last_copied_poll(engine: TestEngine) {
    let _worker = engine.worker((generations, work)).await;
    let run = engine.client.start(generations, (1, 2)).await.unwrap();
    engine.send(run.id(), "go", 1).await;
    engine.wait_for_history(run.id(), |history| history.contains("run_continued")).await;
    let at = event(&engine, run.id(), "run_continued", 0).await;
    let copy = fork(run.fork().at(at)).await;
    engine.send(copy.id(), "go", 1).await;
    assert_eq!(copy.output().await.unwrap(), 2);
    assert_eq!((engine.steps.count("began 1 of 2"), engine.steps.count("began 2 of 2")), (1, 2));
    // In the second generation.
    let at = event(&engine, run.id(), "step_completed", 1).await + 1;
    let later = fork(run.fork().at(at)).await;
    assert_eq!(engine.view(later.id()).await.generation, 2);
    engine.send(later.id(), "go", 1).await;
    assert_eq!(later.output().await.unwrap(), 2);
    assert_eq!(engine.steps.count("began 2 of 2"), 2);
}

async fn a_cut_between_the_last_drops_of_a_generation_is_before_them(engine: TestEngine) {
    #[workflow]
    async fn rounds(ctx: Context, round: u32) -> Result<u32, Error> {
        if round == 2 {
            return Ok(round);
        }
        ctx.step(work, "one".to_owned()).undo(undo).await?;
        let (slow, go) = (ctx.step(work, "slow two".to_owned()), ctx.hook::<u32>("go"));
        // The dropped step is awaited while compensations are registered, and dropped when the generation ends.
        select! {
            _ = slow => (),
            _ = go => (),
        }
        ctx.keep();
        ctx.continue_as(&2)
    }
    let _worker = engine.worker((rounds, work, undo)).await;
    let run = engine.client.start(rounds, 1).await.unwrap();
    engine.steps.wait_for_log("began slow two", 1).await;
    engine.send(run.id(), "go", 1).await;
    assert_eq!(run.output().await.unwrap(), 2);
    let dropped = event(&engine, run.id(), "step_dropped", 0).await;
    let continued = event(&engine, run.id(), "run_continued", 0).await;
    assert_eq!(continued, dropped + 1);
    assert_eq!(run.fork().at(continued).dry_run().await.unwrap().at, dropped);
    assert_eq!(fork(run.fork().at(continued)).await.output().await.unwrap(), 2);
    engine.steps.open("slow two");
}

/// The numbers of the events that a run has.
async fn numbers(engine: &TestEngine, run: RunId) -> Vec<u64> {
    engine.client.events(run).await.unwrap().iter().map(|event| event.number).collect()
}

async fn a_fork_leaves_the_past_of_its_generation_behind(engine: TestEngine) {
    let _worker = engine.worker((generations, work)).await;
    let run = engine.client.start(generations, (1, 3)).await.unwrap();
    for generation in 1..=3 {
        engine.wait_for_view(run.id(), |view| view.generation == generation && !view.waits.is_empty()).await;
        if generation == 1 {
            // Nobody takes this payload: it goes from generation to generation.
            engine.send(run.id(), "other", 1).await;
        }
        engine.send(run.id(), "go", 1).await;
    }
    assert_eq!(run.output().await.unwrap(), 3);
    let at = event(&engine, run.id(), "step_completed", 2).await;
    let copy = fork(run.fork().at(at)).await;
    engine.wait_for_view(copy.id(), |view| view.generation == 3 && !view.waits.is_empty()).await;
    let (of, copied) = (numbers(&engine, run.id()).await, numbers(&engine, copy.id()).await);
    assert!(copied.len() < of.len() && copied[0] == 0 && copied.contains(&(at - 1)), "{copied:?} {of:?}");
    assert!(copied.iter().all(|number| *number >= at || of.contains(number)));
    // Views and exports show what there is, and it replays.
    let view = engine.view(copy.id()).await;
    assert_eq!((view.generation, view.forked_from()), (3, Some(run.id())));
    let operations = engine.client.operations(copy.id()).await.unwrap();
    assert!(operations.iter().any(|operation| &*operation.name == "go"), "{operations:?}");
    let exported = engine.client.export(copy.id()).await.unwrap();
    assert_eq!(History::from_json(&exported).unwrap().to_json(), exported);
    let sentence = engine.client.explain(copy.id()).await.unwrap().sentence;
    assert!(sentence.contains("`go`"), "{sentence}");
    engine.send(copy.id(), "go", 1).await;
    assert_eq!(copy.output().await.unwrap(), 3);
    assert_eq!(engine.steps.count("began 1 of 3"), 1);
    let again = fork(copy.fork().at(at)).await;
    engine.send(again.id(), "go", 1).await;
    assert_eq!(again.output().await.unwrap(), 3);
}

async fn a_fork_of_a_loop_leaves_skipped_iterations_behind(engine: TestEngine) {
    let worker = engine.worker((looping, work)).await;
    let run = engine.client.start(looping, ()).await.unwrap();
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    let at = event(&engine, run.id(), "step_failed", 0).await;
    let copy = fork(run.fork().at(at)).await;
    assert_eq!(copy.output().await.unwrap(), 5);
    let (of, copied) = (numbers(&engine, run.id()).await, numbers(&engine, copy.id()).await);
    assert!(copied.iter().filter(|number| **number < at).count() < of.len() - 2, "{copied:?} {of:?}");
    worker.stop().await.unwrap();
    let _worker = engine.worker((looping, work)).await;
    let again = fork(copy.fork().at(event(&engine, copy.id(), "run_completed", 0).await)).await;
    assert_eq!(again.output().await.unwrap(), 5);
}

async fn an_event_of_a_deleted_generation_refuses_the_fork(engine: TestEngine) {
    let _worker = engine.worker((generations, work)).await;
    let run = engine.client.start(generations, (1, 4)).await.unwrap();
    for generation in 1..=4 {
        engine.wait_for_view(run.id(), |view| view.generation == generation && !view.waits.is_empty()).await;
        engine.send(run.id(), "go", 1).await;
    }
    assert_eq!(run.output().await.unwrap(), 4);
    // As the engine does when many events are skipped.
    engine.world.delete_turns(run.id(), 1..6, &[]).await.unwrap();
    let reason = refusal(&engine, run.id(), 4).await;
    assert!(reason.contains("belong to a generation") && reason.contains("is deleted"), "{reason}");
}

async fn a_cut_in_a_retried_part_is_the_cut_point_of_the_retry(engine: TestEngine) {
    #[workflow]
    async fn fragile(ctx: Context) -> Result<String, Error> {
        ctx.step(work, "one".to_owned()).await?;
        ctx.step(work, "bad".to_owned()).await
    }
    let _worker = engine.worker((fragile, work)).await;
    let run = engine.client.start(fragile, ()).await.unwrap();
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    assert_eq!(engine.client.retry(run.id()).await.unwrap(), Controlled::Requested);
    assert_eq!(run.output().await.unwrap(), "bad");
    let failed = event(&engine, run.id(), "step_failed", 0).await;
    let retried = event(&engine, run.id(), "run_retried", 0).await;
    assert_eq!(run.fork().at(retried).dry_run().await.unwrap().at, failed);
    for at in [failed, retried, retried + 1] {
        let copy = fork(run.fork().at(at)).await;
        assert_eq!(copy.output().await.unwrap(), "bad", "{at}");
    }
    assert_eq!((engine.steps.count("began one"), engine.steps.count("began bad")), (1, 5));
}

async fn a_fork_is_retried_only_from_what_it_did_itself(engine: TestEngine) {
    #[workflow]
    async fn two(ctx: Context) -> Result<String, Error> {
        ctx.step(work, "one".to_owned()).await?;
        ctx.step(work, "bad".to_owned()).await
    }
    let _worker = engine.worker((two, work)).await;
    let run = engine.client.start(two, ()).await.unwrap();
    assert!(run.output().await.is_err());
    let copy = fork(run.fork().at(event(&engine, run.id(), "step_failed", 0).await)).await;
    assert!(copy.output().await.is_err());
    let early = engine.client.retry(copy.id()).from(OpNumber(0)).await.unwrap_err();
    assert_eq!(early.kind(), ErrorKind::Conflict);
    assert!(early.to_string().contains("operation 0 ended before the run was forked"), "{early}");
    engine.steps.log("fixed bad");
    assert_eq!(engine.client.retry(copy.id()).await.unwrap(), Controlled::Requested);
    assert_eq!(copy.output().await.unwrap(), "bad");
    assert_eq!(engine.steps.count("began one"), 1);
}

async fn a_terminated_fork_leaves_the_other_runs_children_alone(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<(), Error> {
        // Dropped, and cancelled when the run ends.
        let child = ctx.child(answered, ());
        futures_util::future::select(Box::pin(child), Box::pin(ctx.sleep("1m"))).await;
        ctx.hook::<u32>("end").await?;
        Ok(())
    }
    let _worker = engine.worker((parent, answered)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.run_to("2m").await;
    engine.wait_for_history(run.id(), |history| history.contains("hook_opened")).await;
    let child = engine.client.operations(run.id()).await.unwrap()[0].child.unwrap();
    let end = engine.client.events(run.id()).await.unwrap().len() as u64;
    let copies = [fork(run.fork().at(end)).await, fork(run.fork().at(end)).await];
    for copy in &copies {
        engine.wait_for_status(copy.id(), Status::Waiting).await;
    }
    engine.client.terminate(copies[0].id(), "not needed").await.unwrap();
    assert!(copies[0].output().await.is_err());
    engine.send(copies[1].id(), "end", 1).await;
    copies[1].output().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(child).await, Status::Waiting);
    engine.send(run.id(), "end", 1).await;
    run.output().await.unwrap();
    engine.wait_for_status(child, Status::Cancelled).await;
}

async fn a_fork_that_is_terminated_before_it_began_undoes_nothing(engine: TestEngine) {
    let worker = engine.worker((order, work, undo)).await;
    let run = engine.client.start(order, ()).await.unwrap();
    assert!(run.output().await.is_err());
    worker.stop().await.unwrap();
    let at = event(&engine, run.id(), "step_completed", 1).await + 1;
    let copy = fork(run.fork().at(at)).await;
    // In this one the second step is open.
    let open = fork(run.fork().at(at - 1)).await;
    for copy in [&copy, &open] {
        engine.client.terminate(copy.id(), "not needed").compensating().await.unwrap();
    }
    let _worker = engine.worker((order, work, undo)).await;
    assert!(copy.output().await.is_err() && open.output().await.is_err());
    assert_eq!(engine.steps.count("undid one"), 1, "that of the other run");
    assert_eq!(engine.steps.count("undid two"), 1, "that of the other run");
    assert!(engine.history(open.id()).await.ends_with("run_terminated terminated: not needed"));
    let retried = engine.client.retry(copy.id()).from(OpNumber(0)).await.unwrap_err();
    assert!(retried.to_string().contains("before the run was forked"), "{retried}");
}

async fn a_copied_step_that_was_cancelled_is_not_undone(engine: TestEngine) {
    #[workflow]
    async fn order(ctx: Context) -> Result<String, Error> {
        let (slow, go) = (ctx.step(work, "slow".to_owned()).undo(undo), ctx.hook::<u32>("go"));
        // The step is cancelled, and its end is awaited.
        select! {
            _ = slow => (),
            _ = go => (),
        }
        ctx.hook::<u32>("later").await?;
        Err(Error::msg("no"))
    }
    let _worker = engine.worker((order, work, undo)).await;
    let run = engine.client.start(order, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.send(run.id(), "go", 1).await;
    engine.wait_for_history(run.id(), |history| history.matches("hook_opened").count() == 2).await;
    let at = event(&engine, run.id(), "hook_opened", 1).await + 1;
    let copy = fork(run.fork().at(at)).await;
    engine.send(copy.id(), "later", 1).await;
    assert!(copy.output().await.is_err());
    // Only the other run has attempted the step.
    assert_eq!((engine.steps.count("began slow"), engine.steps.count("undid slow")), (1, 0));
    engine.steps.open("slow");
}
