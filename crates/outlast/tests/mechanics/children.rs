//! Children: started with the turn, awaited without polling, and always answered.

use std::collections::BTreeSet;

use outlast::core::limits::{HOOK_BUFFER_MAX, INBOX_MESSAGES_MAX};
use outlast::core::{Headers, MessageBody, MessageId, NewMessage, Payload};
use outlast::prelude::*;
use outlast::{ErrorKind, RunId, RunQuery, RunView, Status, Wait};

use super::test_engine::{StepCalls, TestEngine, on_every_world, trace, traces};

on_every_world! {
    a_parent_awaits_its_childs_output,
    a_childs_failure_is_the_parents_to_handle,
    a_child_of_a_child_knows_its_parent_and_its_root,
    a_workflow_can_start_itself_as_a_child,
    a_child_that_takes_too_long_is_cancelled,
    an_end_in_time_does_not_lose_against_the_timeout,
    children_are_cancelled_when_their_parent_ends,
    a_parent_waits_for_the_children_it_said_it_would,
    an_abandoned_child_continues_alone,
    an_abandoned_child_with_a_key_is_started_once,
    a_key_that_names_another_run_fails_the_operation,
    a_cancelled_parent_cancels_its_children,
    a_cancelled_child_tells_its_parent,
    a_child_without_code_waits_and_can_be_cancelled,
    a_child_survives_the_crash_of_both,
    a_child_that_ends_while_the_parent_goes_to_wait_wakes_it,
    a_refused_turn_starts_no_child_twice,
    headers_travel_to_children,
    an_input_that_the_child_refuses_fails_the_operation,
    a_check_that_became_stricter_leaves_older_children_alone,
    a_childs_id_stays_when_it_has_ended,
    an_empty_key_fails_the_operation,
    payloads_to_a_run_that_has_returned_do_not_fail_it,
    many_children_of_one_run,
}

#[workflow]
async fn double(ctx: Context, number: u32) -> Result<u32, Error> {
    trace(ctx.run(), "polled");
    ctx.note(&format!("double {number}")).await?;
    Ok(number * 2)
}

async fn only(engine: &TestEngine, workflow: &str) -> RunView {
    let runs = engine.client.runs(RunQuery { workflow: Some(workflow.into()), ..RunQuery::default() }).await;
    let mut runs = runs.unwrap().runs;
    assert_eq!(runs.len(), 1, "runs of {workflow}");
    runs.remove(0)
}

/// The sum of the numbers up to this one: each level is a run.
#[workflow]
async fn sum_up_to(ctx: Context, number: u32) -> Result<u32, Error> {
    ctx.note(&format!("add {number}")).await?;
    match number {
        0 => Ok(0),
        _ => Ok(number + ctx.child(sum_up_to, number - 1).await?),
    }
}

async fn a_workflow_can_start_itself_as_a_child(engine: TestEngine) {
    let worker = engine.worker(sum_up_to).await;
    let run = engine.client.start(sum_up_to, 20).await.unwrap();
    engine.steps.wait_for_log("add 10", 1).await;
    engine.crash(worker);
    let _worker = engine.worker(sum_up_to).await;
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), 210);
    let runs = engine.client.list().root(run.id()).await.unwrap().runs;
    assert_eq!(runs.len(), 21, "each level is a run of its own");
}

async fn a_parent_awaits_its_childs_output(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<u32, Error> {
        let (one, two) = try_join!(ctx.child(double, 1), ctx.child(double, 20))?;
        Ok(one + two)
    }
    let _worker = engine.worker((parent, double)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 42);
    let history = engine.history(run.id()).await;
    assert!(history.starts_with("0 child_started double\n1 child_started double\n"), "{history}");
    assert!(history.ends_with("run_completed 42") && history.contains("0 child_completed 2"), "{history}");
}

async fn a_childs_failure_is_the_parents_to_handle(engine: TestEngine) {
    #[workflow]
    async fn fails(_ctx: Context) -> Result<u32, Error> {
        Err(Error::msg("no truck"))
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<String, Error> {
        let error = ctx.child(fails, ()).await.unwrap_err();
        ctx.child(fails, ()).await.map(|_| String::new()).or(Ok(format!("handled: {error}")))
    }
    #[workflow]
    async fn passes_on(ctx: Context) -> Result<u32, Error> {
        ctx.child(fails, ()).await
    }
    let _worker = engine.worker((parent, fails, passes_on)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "handled: no truck");
    let run = engine.client.start(passes_on, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap_err().to_string(), "no truck");
    assert_eq!(engine.status(run.id()).await, Status::Failed);
}

async fn a_child_of_a_child_knows_its_parent_and_its_root(engine: TestEngine) {
    #[workflow]
    async fn grandchild(ctx: Context) -> Result<(Option<RunId>, RunId), Error> {
        Ok((ctx.parent(), ctx.root()))
    }
    #[workflow]
    async fn child(ctx: Context) -> Result<(RunId, Option<RunId>, RunId), Error> {
        let (parent, root) = ctx.child(grandchild, ()).await?;
        Ok((ctx.run(), parent, root))
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<(RunId, Option<RunId>, RunId), Error> {
        assert_eq!((ctx.parent(), ctx.root()), (None, ctx.run()));
        ctx.child(child, ()).await
    }
    let _worker = engine.worker((parent, child, grandchild)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    let (child, parent_of_grandchild, root) = run.output().await.unwrap();
    assert_eq!((parent_of_grandchild, root), (Some(child), run.id()));
    let of_root = RunQuery { root: Some(run.id()), ..RunQuery::default() };
    assert_eq!(engine.client.runs(of_root).await.unwrap().runs.len(), 3);
    let of_parent = RunQuery { parent: Some(run.id()), ..RunQuery::default() };
    let children = engine.client.runs(of_parent).await.unwrap().runs;
    assert_eq!(children.iter().map(|run| run.id).collect::<Vec<_>>(), [child]);
}

#[workflow]
async fn naps(ctx: Context) -> Result<u32, Error> {
    let slept = ctx.sleep("1h").await;
    if let Err(error) = slept {
        ctx.shielded().note(&error.to_string()).await?;
        return Err(error);
    }
    ctx.note("slept").await?;
    Ok(7)
}

async fn a_child_that_takes_too_long_is_cancelled(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<String, Error> {
        let error = ctx.child(naps, ()).timeout("10m").await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        ctx.sleep("10m").await?;
        Ok(error.to_string())
    }
    let _worker = engine.worker((parent, naps)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    let waits = engine.view(run.id()).await.waits;
    let child = only(&engine, "naps").await.id;
    let until = Some(engine.time_after_begin("10m"));
    assert_eq!(waits, [Wait::Child { op: 0, workflow: "naps".into(), run: child, until }]);
    engine.run_to("10m").await;
    assert_eq!(engine.status(child).await, Status::Cancelled);
    assert_eq!(engine.steps.count("cancelled: its parent did not wait longer"), 1);
    engine.run_to("20m").await;
    assert!(run.output().await.unwrap().contains("did not end in time"));
}

async fn an_end_in_time_does_not_lose_against_the_timeout(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<u32, Error> {
        ctx.child(naps, ()).timeout("1h").await
    }
    let worker = engine.worker((parent, naps)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    // Only the child's code is registered at first: the child ends exactly at the timeout.
    let child_only = engine.worker(naps).await;
    engine.run_to("59m").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.run_to("3h").await;
    // Too late: the child ended when its sleep was over.
    child_only.stop().await.unwrap();
    let _worker = engine.worker((parent, naps)).await;
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn children_are_cancelled_when_their_parent_ends(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<u32, Error> {
        let child = ctx.child(naps, ());
        ctx.hook::<u32>("go").await?;
        drop(child);
        ctx.note("gone").await?;
        Ok(1)
    }
    let _worker = engine.worker((parent, naps)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    // A child that has not begun is cancelled without its code.
    engine.settle().await;
    engine.send(run.id(), "go", 1).await;
    assert_eq!(run.output().await.unwrap(), 1);
    engine.settle().await;
    let child = only(&engine, "naps").await;
    assert_eq!(child.status, Status::Cancelled);
    assert_eq!(engine.steps.count(&format!("cancelled: its parent {} has ended", run.id())), 1);
}

async fn a_parent_waits_for_the_children_it_said_it_would(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<u32, Error> {
        let child = ctx.child(naps, ()).on_parent_end(ParentEnd::Wait);
        ctx.note("going").await?;
        drop(child);
        Ok(1)
    }
    let worker = engine.worker((parent, naps)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    let child = only(&engine, "naps").await.id;
    let view = engine.view(run.id()).await;
    assert_eq!(view.waits, [Wait::Child { op: 0, workflow: "naps".into(), run: child, until: None }]);
    engine.crash(worker);
    let _worker = engine.worker((parent, naps)).await;
    engine.run_to("59m").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), 1);
    assert_eq!((engine.steps.count("slept"), engine.steps.count("going")), (1, 1));
}

async fn an_abandoned_child_continues_alone(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<RunId, Error> {
        ctx.child(naps, ()).abandon().await
    }
    let _worker = engine.worker((parent, naps)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    let child = run.output().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(child).await, Status::Waiting);
    assert_eq!(engine.view(child).await.parent.unwrap().run, run.id());
    engine.run_to("1h").await;
    assert_eq!(engine.client.handle::<u32>(child).output().await.unwrap(), 7);
}

#[workflow]
async fn welcomes(ctx: Context, who: u32) -> Result<RunId, Error> {
    ctx.child(double, who).key(format!("welcome-{who}")).abandon().await
}

async fn an_abandoned_child_with_a_key_is_started_once(engine: TestEngine) {
    let _worker = engine.worker((welcomes, double)).await;
    let first = engine.client.start(welcomes, 5).await.unwrap().output().await.unwrap();
    let second = engine.client.start(welcomes, 5).await.unwrap().output().await.unwrap();
    assert_eq!(first, second);
    assert_eq!(engine.client.find::<u32>("welcome-5").await.unwrap().unwrap().id(), first);
    engine.settle().await;
    assert_eq!(engine.steps.count("double 5"), 1);
}

async fn a_key_that_names_another_run_fails_the_operation(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context, input: u32) -> Result<String, Error> {
        let error = ctx.child(double, input).key("taken").await.unwrap_err();
        assert!(error.is_conflict(), "{error}");
        let error_too = ctx.child(double, input + 1).key("taken").abandon().await.unwrap_err();
        assert_eq!(error_too.kind(), ErrorKind::Conflict);
        Ok(error.to_string())
    }
    let _worker = engine.worker((parent, double)).await;
    let taken = engine.client.start(double, 5).key("taken").await.unwrap();
    let run = engine.client.start(parent, 5).await.unwrap();
    let message = run.output().await.unwrap();
    assert!(message.contains(&format!("key `taken` names run {}", taken.id())), "{message}");
}

#[workflow]
async fn holds_a_nap(ctx: Context) -> Result<u32, Error> {
    ctx.child(naps, ()).await
}

async fn a_cancelled_parent_cancels_its_children(engine: TestEngine) {
    let _worker = engine.worker((holds_a_nap, naps)).await;
    let run = engine.client.start(holds_a_nap, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    assert!(run.output().await.unwrap_err().is_cancelled());
    engine.settle().await;
    assert_eq!(only(&engine, "naps").await.status, Status::Cancelled);
    let word = format!("cancelled: its parent {} was cancelled: enough", run.id());
    assert_eq!(engine.steps.count(&word), 1, "{:?}", engine.steps.logged());
}

async fn a_cancelled_child_tells_its_parent(engine: TestEngine) {
    let _worker = engine.worker((holds_a_nap, naps)).await;
    let run = engine.client.start(holds_a_nap, ()).await.unwrap();
    engine.settle().await;
    let child = only(&engine, "naps").await.id;
    engine.client.cancel(child, "not today").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.to_string().contains("not today"), "{error}");
    assert_eq!(engine.status(run.id()).await, Status::Failed, "the parent itself was not cancelled");
    assert!(engine.history(run.id()).await.contains("0 child_cancelled cancelled: not today"));
}

async fn a_child_without_code_waits_and_can_be_cancelled(engine: TestEngine) {
    let _worker = engine.worker(holds_a_nap).await;
    let run = engine.client.start(holds_a_nap, ()).await.unwrap();
    engine.settle().await;
    let child = only(&engine, "naps").await;
    assert_eq!(child.status, Status::Pending);
    engine.client.cancel(child.id, "nobody can do it").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!(error.to_string(), "cancelled: nobody can do it");
}

async fn a_child_survives_the_crash_of_both(engine: TestEngine) {
    let worker = engine.worker((holds_a_nap, naps)).await;
    let run = engine.client.start(holds_a_nap, ()).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let worker = engine.worker((holds_a_nap, naps)).await;
    engine.run_to("30m").await;
    engine.crash(worker);
    let _worker = engine.worker((holds_a_nap, naps)).await;
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), 7);
    assert_eq!(engine.steps.count("slept"), 1);
    engine
        .assert_history(
            run.id(),
            "0 child_started naps
         0 child_completed 7
         run_completed 7",
        )
        .await;
}

async fn a_child_that_ends_while_the_parent_goes_to_wait_wakes_it(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<u32, Error> {
        let child = ctx.child(double, 3);
        ctx.note("busy").await?;
        child.await
    }
    let _worker = engine.worker((parent, double)).await;
    for _ in 0..50 {
        let run = engine.client.start(parent, ()).await.unwrap();
        assert_eq!(run.output().await.unwrap(), 6);
    }
}

async fn a_refused_turn_starts_no_child_twice(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<u32, Error> {
        ctx.sleep("1m").await?;
        ctx.child(double, 3).await
    }
    let _worker = engine.worker((parent, double)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    // A message arrives just before the timer fires: the turn that starts the child is refused.
    let (client, id) = (engine.client.clone(), run.id());
    engine.faults.before_a_timer_fires(async move { client.send(id, "late", &1).await.unwrap() });
    engine.run_to("1m").await;
    assert_eq!(run.output().await.unwrap(), 6);
    assert_eq!(engine.steps.count("double 3"), 1);
    only(&engine, "double").await;
}

async fn headers_travel_to_children(engine: TestEngine) {
    #[workflow]
    async fn who(ctx: Context) -> Result<Option<String>, Error> {
        Ok(ctx.headers().get("who").cloned())
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<Option<String>, Error> {
        ctx.child(who, ()).await
    }
    let _worker = engine.worker((parent, who)).await;
    let run = engine.client.start(parent, ()).header("who", "Zoë").await.unwrap();
    assert_eq!(run.output().await.unwrap().as_deref(), Some("Zoë"));
}

async fn an_input_that_the_child_refuses_fails_the_operation(engine: TestEngine) {
    fn check_number(number: &u32) -> Result<(), Error> {
        if *number > 9 { Err(Error::msg("too many")) } else { Ok(()) }
    }
    #[workflow(check = check_number)]
    async fn picky(_ctx: Context, number: u32) -> Result<u32, Error> {
        Ok(number)
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<(u32, String), Error> {
        let error = ctx.child(picky, 10).await.unwrap_err();
        let fine = ctx.child(picky, 9).await?;
        Ok((fine, format!("{:?}: {error}", error.kind())))
    }
    let _worker = engine.worker((parent, picky)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    let (fine, error) = run.output().await.unwrap();
    assert_eq!(fine, 9);
    assert!(error.starts_with("Invalid") && error.contains("too many"), "{error}");
    only(&engine, "picky").await;
}

async fn a_check_that_became_stricter_leaves_older_children_alone(engine: TestEngine) {
    static STRICT: std::sync::Mutex<BTreeSet<RunId>> = std::sync::Mutex::new(BTreeSet::new());
    fn check_number((parent, number): &(RunId, u32)) -> Result<(), Error> {
        let is_strict = STRICT.lock().unwrap().contains(parent);
        if is_strict && *number < 10 { Err(Error::msg("too small")) } else { Ok(()) }
    }
    #[workflow(check = check_number)]
    async fn picky(ctx: Context, input: (RunId, u32)) -> Result<u32, Error> {
        ctx.sleep("1h").await?;
        Ok(input.1)
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<String, Error> {
        let before = ctx.child(picky, (ctx.run(), 5)).await?;
        let after = ctx.child(picky, (ctx.run(), 5)).await.unwrap_err();
        ctx.sleep("1h").await?;
        Ok(format!("{before}, {after}"))
    }
    let worker = engine.worker((parent, picky)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    STRICT.lock().unwrap().insert(run.id());
    engine.crash(worker);
    let worker = engine.worker((parent, picky)).await;
    engine.run_to("90m").await;
    // A refused start stays refused.
    STRICT.lock().unwrap().clear();
    engine.crash(worker);
    let _worker = engine.worker((parent, picky)).await;
    engine.run_to("3h").await;
    let output = run.output().await.unwrap();
    assert!(output.starts_with("5, ") && output.contains("too small"), "{output}");
}

async fn a_childs_id_stays_when_it_has_ended(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<bool, Error> {
        let mut child = ctx.child(naps, ());
        let before = child.run();
        (&mut child).await?;
        Ok(child.run() == before)
    }
    let _worker = engine.worker((parent, naps)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.run_to("1h").await;
    assert!(run.output().await.unwrap());
}

async fn an_empty_key_fails_the_operation(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<String, Error> {
        Ok(ctx.child(naps, ()).key("").await.unwrap_err().to_string())
    }
    let _worker = engine.worker((parent, naps)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    assert!(run.output().await.unwrap().contains("key is empty"));
}

async fn payloads_to_a_run_that_has_returned_do_not_fail_it(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<u32, Error> {
        let child = ctx.child(naps, ()).on_parent_end(ParentEnd::Wait);
        ctx.note("going").await?;
        drop(child);
        Ok(42)
    }
    let _worker = engine.caching_builder().register((parent, naps)).start().await.unwrap();
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    for part in 0..=HOOK_BUFFER_MAX / 1_000 {
        let message = |number: usize| NewMessage {
            id: MessageId::from_bits((part * 1_000 + number) as u128),
            run: run.id(),
            body: MessageBody::Hook { name: "h".into(), payload: Payload::null(), to: Default::default() },
            headers: Headers::new(),
        };
        engine.world.send((0..1_000).map(message).collect()).await.unwrap();
        engine.settle().await;
    }
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), 42);
}

/// More children than the limit of an inbox, from which their ends are exempt.
async fn many_children_of_one_run(engine: TestEngine) {
    const CHILDREN: u32 = 10_000;
    const { assert!(CHILDREN as u64 >= INBOX_MESSAGES_MAX) };
    #[workflow]
    async fn leaf(_ctx: Context, number: u32) -> Result<u32, Error> {
        Ok(number)
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<u64, Error> {
        trace(ctx.run(), "polled");
        let children: Vec<_> = (0..CHILDREN).map(|number| ctx.child(leaf, number)).collect();
        let outputs = try_join_all(children).await?;
        Ok(outputs.into_iter().map(u64::from).sum())
    }
    // Without a replay after every turn, which would be slow for a long history.
    let _worker = engine.caching_builder().register((parent, leaf)).start().await.unwrap();
    let run = engine.client.start(parent, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), u64::from(CHILDREN) * u64::from(CHILDREN - 1) / 2);
    assert_eq!(traces(run.id(), "polled"), 1, "it was never replayed");
    let counts = engine.client.counts().await.unwrap();
    assert_eq!(counts.get(&Status::Completed), Some(&(u64::from(CHILDREN) + 1)));
}
