//! Lists: filters, and pages that neither lose nor repeat a run.

use std::collections::BTreeSet;

use outlast::prelude::*;
use outlast::{FailureQuery, FlagFilter, ListCall, Page, RunId, Status};

use super::test_engine::{TestEngine, on_every_world};

on_every_world! {
    a_list_is_the_newest_first,
    a_list_chooses_by_status_and_workflow,
    a_list_chooses_by_tags,
    tags_that_a_workflow_sets_are_found,
    a_list_chooses_by_time,
    a_list_chooses_by_the_time_of_the_end_and_by_flag,
    failed_runs_are_listed_with_their_failures,
    a_list_chooses_by_text_and_key,
    a_list_chooses_by_parent_and_root,
    choices_narrow_each_other,
    pages_of_runs_started_at_the_same_moment_lose_none,
    pages_go_both_ways,
    the_last_page_has_a_way_back_and_no_next,
    runs_started_while_paging_shift_nothing,
    a_cursor_of_a_pruned_run_still_works,
    a_page_has_a_greatest_size,
}

#[workflow]
async fn nap(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await
}

#[workflow]
async fn quick(_ctx: Context) -> Result<(), Error> {
    Ok(())
}

async fn start(engine: &TestEngine, count: usize) -> Vec<RunId> {
    let started = engine.client.start_many(nap, vec![(); count]).await;
    started.into_iter().map(|run| run.unwrap().id()).collect()
}

fn ids(page: &Page) -> Vec<RunId> {
    page.runs.iter().map(|run| run.id).collect()
}

async fn listed(list: ListCall<'_>) -> Vec<RunId> {
    ids(&list.await.unwrap())
}

async fn a_list_is_the_newest_first(engine: TestEngine) {
    assert!(listed(engine.client.list()).await.is_empty());
    let mut runs = start(&engine, 3).await;
    assert_eq!(listed(engine.client.list().oldest_first()).await, runs);
    runs.reverse();
    assert_eq!(listed(engine.client.list()).await, runs);
}

async fn a_list_chooses_by_status_and_workflow(engine: TestEngine) {
    let worker = engine.worker((nap, quick)).await;
    let waits = engine.client.start(nap, ()).await.unwrap().id();
    let done = engine.client.start(quick, ()).await.unwrap();
    done.output().await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let pending = engine.client.start(quick, ()).await.unwrap().id();
    let list = || engine.client.list().oldest_first();
    assert_eq!(listed(list().status(Status::Waiting)).await, [waits]);
    assert_eq!(listed(list().status(Status::Waiting).status(Status::Pending)).await, [waits, pending]);
    assert_eq!(listed(list().workflow(quick)).await, [done.id(), pending]);
    assert_eq!(listed(list().workflow_named("nap")).await, [waits]);
    assert_eq!(listed(list().workflow(quick).status(Status::Completed)).await, [done.id()]);
    assert!(listed(list().workflow_named("na")).await.is_empty());
    assert!(listed(list().status(Status::Stuck)).await.is_empty());
}

async fn a_list_chooses_by_tags(engine: TestEngine) {
    let start = |customer: &'static str, tier: &'static str| {
        engine.client.start(nap, ()).tag("customer", customer).tag("tier", tier)
    };
    let ada = start("ada", "1").await.unwrap().id();
    let bob = start("bob", "1").await.unwrap().id();
    start("cyd", "2").await.unwrap();
    let list = || engine.client.list().oldest_first();
    assert_eq!(listed(list().tag("tier", "1")).await, [ada, bob]);
    assert_eq!(listed(list().tag("tier", "1").tag("customer", "bob")).await, [bob]);
    assert!(listed(list().tag("tier", "2").tag("customer", "bob")).await.is_empty());
    assert!(listed(list().tag("tier", "")).await.is_empty());
}

async fn tags_that_a_workflow_sets_are_found(engine: TestEngine) {
    #[workflow]
    async fn phases(ctx: Context) -> Result<(), Error> {
        ctx.tag("phase", "one")?;
        ctx.sleep("1h").await?;
        ctx.tag("phase", "two")
    }
    let _worker = engine.worker(phases).await;
    let run = engine.client.start(phases, ()).tag("phase", "none").tag("kept", "yes").await.unwrap();
    engine.settle().await;
    let in_phase = |phase: &'static str| listed(engine.client.list().tag("phase", phase).tag("kept", "yes"));
    assert_eq!((in_phase("none").await, in_phase("one").await), (vec![], vec![run.id()]));
    engine.clock.run_until_idle().await;
    assert_eq!((in_phase("one").await, in_phase("two").await), (vec![], vec![run.id()]));
}

async fn a_list_chooses_by_time(engine: TestEngine) {
    let early = start(&engine, 1).await;
    engine.run_to("1h").await;
    let late = start(&engine, 1).await;
    let hour = engine.time_after_begin("1h");
    assert_eq!(listed(engine.client.list().created_from(hour)).await, late);
    assert_eq!(listed(engine.client.list().created_before(hour)).await, early);
    assert!(listed(engine.client.list().created_from(hour).created_before(hour)).await.is_empty());
}

async fn a_list_chooses_by_the_time_of_the_end_and_by_flag(engine: TestEngine) {
    let _worker = engine.worker((nap, quick)).await;
    let waits = engine.client.start(nap, ()).await.unwrap();
    let ended = engine.client.start(quick, ()).await.unwrap();
    ended.output().await.unwrap();
    engine.settle().await;
    let list = || engine.client.list();
    let at = engine.view(ended.id()).await.ended_at.unwrap();
    assert_eq!(listed(list().ended_from(at)).await, [ended.id()]);
    assert!(listed(list().ended_before(at)).await.is_empty());
    assert!(listed(list().flag(FlagFilter::Retrying)).await.is_empty());
    let both = [waits.id(), RunId::from_bits(1), ended.id()];
    let views = engine.client.runs_by_id(&both).await.unwrap();
    assert_eq!(views, [engine.view(waits.id()).await, engine.view(ended.id()).await]);
    let events = engine.client.events(waits.id()).await.unwrap();
    assert_eq!(engine.client.event_count(waits.id()).await.unwrap(), events.len() as u64);
    assert_eq!(engine.client.events(waits.id()).from(1).await.unwrap(), events[1..]);
}

async fn failed_runs_are_listed_with_their_failures(engine: TestEngine) {
    #[workflow]
    async fn hopeless(ctx: Context, order: u32) -> Result<(), Error> {
        ctx.call("charge", order, async |order: u32| {
            Err::<(), _>(StepError::fatal(format!("no card for order {order}")))
        })
        .await
    }
    let _worker = engine.worker((hopeless, quick)).await;
    engine.client.start(quick, ()).await.unwrap().output().await.unwrap();
    for order in [1, 22] {
        engine.client.start(hopeless, order).await.unwrap().output().await.unwrap_err();
    }
    let failed = engine.client.failures(FailureQuery::default()).await.unwrap();
    let failures: Vec<_> = failed.iter().map(|run| run.failure.clone().unwrap()).collect();
    assert_eq!(failures.len(), 2);
    assert!(failures[0].message.contains("no card for order 22"), "{}", failures[0].message);
    assert_eq!(failures[0].step.as_deref(), Some("charge"));
    let fingerprint = Some(failures[0].fingerprint);
    let query = FailureQuery { fingerprint, ..FailureQuery::default() };
    assert_eq!(engine.client.failures(query).await.unwrap().len(), 2, "they differ only in a number");
}

async fn a_list_chooses_by_text_and_key(engine: TestEngine) {
    let odd = engine.client.start(nap, ()).key("Order_42%ÄÖ").await.unwrap().id();
    let plain = engine.client.start(quick, ()).key("order-43").await.unwrap().id();
    let list = || engine.client.list().oldest_first();
    for text in ["order_42", "ORDER_", "42%", "_42"] {
        assert_eq!(listed(list().text(text)).await, [odd], "{text}");
    }
    assert_eq!(listed(list().text("order")).await, [odd, plain]);
    assert_eq!(listed(list().text("QUICK")).await, [plain]);
    assert_eq!(listed(list().text(odd.to_string().to_lowercase())).await, [odd]);
    assert!(listed(list().text("order*")).await.is_empty());
    assert_eq!(listed(list().key("order-43")).await, [plain]);
    assert!(listed(list().key("order-4")).await.is_empty());
}

async fn a_list_chooses_by_parent_and_root(engine: TestEngine) {
    #[workflow]
    async fn grandparent(ctx: Context) -> Result<(), Error> {
        ctx.child(parent, ()).await
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<(), Error> {
        try_join!(ctx.child(nap, ()), ctx.child(nap, ()))?;
        Ok(())
    }
    let _worker = engine.worker((grandparent, parent, nap)).await;
    let root = engine.client.start(grandparent, ()).await.unwrap().id();
    engine.client.start(nap, ()).await.unwrap();
    engine.settle().await;
    let list = || engine.client.list().oldest_first();
    let parents = listed(list().parent(root)).await;
    assert_eq!(parents.len(), 1);
    let naps = listed(list().parent(parents[0])).await;
    assert_eq!(naps.len(), 2);
    assert!(listed(list().parent(naps[0])).await.is_empty());
    let family: BTreeSet<_> = listed(list().root(root)).await.into_iter().collect();
    assert_eq!(family.len(), 4);
    assert!(family.contains(&root) && family.contains(&parents[0]));
}

async fn choices_narrow_each_other(engine: TestEngine) {
    let begin = engine.clock.now();
    for number in 0..4 {
        let call =
            engine.client.start(nap, ()).key(format!("nap-{number}")).tag("n", (number % 2).to_string());
        call.await.unwrap();
        engine.client.start(quick, ()).tag("n", "1").await.unwrap();
    }
    let page = engine.client.list().workflow(nap).tag("n", "1").status(Status::Pending).text("nap-");
    let page = page.created_from(begin).oldest_first().limit(1).await.unwrap();
    assert_eq!(page.runs[0].key.as_deref(), Some("nap-1"));
    assert_eq!(page.next, Some(page.runs[0].id));
}

/// Reads all pages; each but the last has `limit` runs.
async fn walk(engine: &TestEngine, limit: usize) -> Vec<RunId> {
    let mut seen = Vec::new();
    let mut page = engine.client.list().limit(limit).await.unwrap();
    loop {
        seen.extend(ids(&page));
        let Some(next) = page.next else { return seen };
        assert_eq!(page.runs.len(), limit);
        page = engine.client.list().after(next).limit(limit).await.unwrap();
    }
}

async fn pages_of_runs_started_at_the_same_moment_lose_none(engine: TestEngine) {
    let mut runs = start(&engine, 25).await;
    let moments: BTreeSet<_> =
        engine.client.list().await.unwrap().runs.iter().map(|run| run.created_at).collect();
    assert_eq!(moments.len(), 1, "virtual time stood still");
    runs.reverse();
    for limit in [1, 2, 5, 7, 24, 25, 26] {
        assert_eq!(walk(&engine, limit).await, runs, "pages of {limit}");
    }
}

async fn pages_go_both_ways(engine: TestEngine) {
    let runs = start(&engine, 10).await;
    let list = || engine.client.list().oldest_first().limit(4);
    let first = list().await.unwrap();
    assert_eq!((ids(&first), first.prev), (runs[..4].to_vec(), None));
    let second = list().after(first.next.unwrap()).await.unwrap();
    let third = list().after(second.next.unwrap()).await.unwrap();
    assert_eq!(ids(&third), runs[8..]);
    let back = list().before(third.prev.unwrap()).await.unwrap();
    assert_eq!(ids(&back), ids(&second));
    let front = list().before(back.prev.unwrap()).await.unwrap();
    assert_eq!((ids(&front), front.prev), (runs[..4].to_vec(), None));
    assert_eq!(front.next, Some(runs[3]), "and forth again");
    let between = list().after(runs[2]).before(runs[5]).await.unwrap();
    assert_eq!(ids(&between), runs[3..5]);
}

async fn the_last_page_has_a_way_back_and_no_next(engine: TestEngine) {
    let runs = start(&engine, 6).await;
    let list = || engine.client.list().oldest_first().limit(3);
    let tail = list().after(runs[2]).await.unwrap();
    assert_eq!((ids(&tail), tail.next, tail.prev), (runs[3..].to_vec(), None, Some(runs[3])));
    // After the last run there is an empty page without a next one.
    let behind = list().after(runs[5]).await.unwrap();
    assert_eq!((behind.runs.len(), behind.next), (0, None));
    let whole = list().limit(6).await.unwrap();
    assert_eq!((whole.runs.len(), whole.next, whole.prev), (6, None, None));
}

async fn runs_started_while_paging_shift_nothing(engine: TestEngine) {
    let mut old = start(&engine, 9).await;
    old.reverse();
    let first = engine.client.list().limit(3).await.unwrap();
    start(&engine, 5).await;
    let second = engine.client.list().limit(3).after(first.next.unwrap()).await.unwrap();
    let third = engine.client.list().limit(3).after(second.next.unwrap()).await.unwrap();
    let seen: Vec<_> = [first, second, third].iter().flat_map(ids).collect();
    assert_eq!(seen, old);

    // With the oldest first, new runs are at the end, and later pages contain them.
    let all = engine.client.list().oldest_first().await.unwrap();
    assert_eq!((all.runs.len(), all.next), (14, None));
    let new = start(&engine, 2).await;
    let followed = engine.client.list().oldest_first().after(*ids(&all).last().unwrap()).await.unwrap();
    assert_eq!(ids(&followed), new);
}

async fn a_cursor_of_a_pruned_run_still_works(engine: TestEngine) {
    let runs = start(&engine, 5).await;
    engine.client.terminate(runs[2], "enough").await.unwrap();
    engine.run_to("1h").await;
    assert_eq!(engine.client.prune(engine.time_after_begin("1h")).await.unwrap(), 1);
    let list = || engine.client.list().oldest_first();
    assert_eq!(listed(list().after(runs[2])).await, runs[3..]);
    assert_eq!(listed(list().before(runs[2])).await, runs[..2]);
}

async fn a_page_has_a_greatest_size(engine: TestEngine) {
    let runs = start(&engine, 1_001).await;
    for limit in [0, 1_000, 5_000, usize::MAX] {
        let page = engine.client.list().oldest_first().limit(limit).await.unwrap();
        assert_eq!((page.runs.len(), page.next), (1_000, Some(runs[999])), "limit {limit}");
    }
}
