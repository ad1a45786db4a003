//! Lists: what they choose, and pages that neither lose nor repeat a run.

use std::collections::BTreeSet;

use outlast::prelude::*;
use outlast::{ListCall, Page, RunId, Status};

use super::rig::{Rig, on_every_world};

on_every_world! {
    a_list_is_the_newest_first,
    a_list_chooses_by_status_and_workflow,
    a_list_chooses_by_tags,
    tags_that_a_workflow_sets_are_found,
    a_list_chooses_by_time,
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

async fn start(rig: &Rig, count: usize) -> Vec<RunId> {
    let started = rig.client.start_many(nap, vec![(); count]).await;
    started.into_iter().map(|run| run.unwrap().id()).collect()
}

fn ids(page: &Page) -> Vec<RunId> {
    page.runs.iter().map(|run| run.id).collect()
}

async fn listed(list: ListCall<'_>) -> Vec<RunId> {
    ids(&list.await.unwrap())
}

async fn a_list_is_the_newest_first(rig: Rig) {
    assert!(listed(rig.client.list()).await.is_empty());
    let mut runs = start(&rig, 3).await;
    assert_eq!(listed(rig.client.list().oldest_first()).await, runs);
    runs.reverse();
    assert_eq!(listed(rig.client.list()).await, runs);
}

async fn a_list_chooses_by_status_and_workflow(rig: Rig) {
    let worker = rig.worker((nap, quick)).await;
    let waits = rig.client.start(nap, ()).await.unwrap().id();
    let done = rig.client.start(quick, ()).await.unwrap();
    done.output().await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    let pending = rig.client.start(quick, ()).await.unwrap().id();
    let list = || rig.client.list().oldest_first();
    assert_eq!(listed(list().status(Status::Waiting)).await, [waits]);
    assert_eq!(listed(list().status(Status::Waiting).status(Status::Pending)).await, [waits, pending]);
    assert_eq!(listed(list().workflow(quick)).await, [done.id(), pending]);
    assert_eq!(listed(list().workflow_named("nap")).await, [waits]);
    assert_eq!(listed(list().workflow(quick).status(Status::Completed)).await, [done.id()]);
    assert!(listed(list().workflow_named("na")).await.is_empty());
    assert!(listed(list().status(Status::Stuck)).await.is_empty());
}

async fn a_list_chooses_by_tags(rig: Rig) {
    let start = |customer: &'static str, tier: &'static str| {
        rig.client.start(nap, ()).tag("customer", customer).tag("tier", tier)
    };
    let ada = start("ada", "1").await.unwrap().id();
    let bob = start("bob", "1").await.unwrap().id();
    start("cyd", "2").await.unwrap();
    let list = || rig.client.list().oldest_first();
    assert_eq!(listed(list().tag("tier", "1")).await, [ada, bob]);
    assert_eq!(listed(list().tag("tier", "1").tag("customer", "bob")).await, [bob]);
    assert!(listed(list().tag("tier", "2").tag("customer", "bob")).await.is_empty());
    assert!(listed(list().tag("tier", "")).await.is_empty());
}

async fn tags_that_a_workflow_sets_are_found(rig: Rig) {
    #[workflow]
    async fn phases(ctx: Context) -> Result<(), Error> {
        ctx.tag("phase", "one")?;
        ctx.sleep("1h").await?;
        ctx.tag("phase", "two")
    }
    let _worker = rig.worker(phases).await;
    let run = rig.client.start(phases, ()).tag("phase", "none").tag("kept", "yes").await.unwrap();
    rig.settle().await;
    let in_phase = |phase: &'static str| listed(rig.client.list().tag("phase", phase).tag("kept", "yes"));
    assert_eq!((in_phase("none").await, in_phase("one").await), (vec![], vec![run.id()]));
    rig.clock.run_until_idle().await;
    assert_eq!((in_phase("one").await, in_phase("two").await), (vec![], vec![run.id()]));
}

async fn a_list_chooses_by_time(rig: Rig) {
    let early = start(&rig, 1).await;
    rig.run_to("1h").await;
    let late = start(&rig, 1).await;
    let hour = rig.moment("1h");
    assert_eq!(listed(rig.client.list().created_from(hour)).await, late);
    assert_eq!(listed(rig.client.list().created_before(hour)).await, early);
    assert!(listed(rig.client.list().created_from(hour).created_before(hour)).await.is_empty());
}

async fn a_list_chooses_by_text_and_key(rig: Rig) {
    let odd = rig.client.start(nap, ()).key("Order_42%ÄÖ").await.unwrap().id();
    let plain = rig.client.start(quick, ()).key("order-43").await.unwrap().id();
    let list = || rig.client.list().oldest_first();
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

async fn a_list_chooses_by_parent_and_root(rig: Rig) {
    #[workflow]
    async fn grandparent(ctx: Context) -> Result<(), Error> {
        ctx.child(parent, ()).await
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<(), Error> {
        try_join!(ctx.child(nap, ()), ctx.child(nap, ()))?;
        Ok(())
    }
    let _worker = rig.worker((grandparent, parent, nap)).await;
    let root = rig.client.start(grandparent, ()).await.unwrap().id();
    rig.client.start(nap, ()).await.unwrap();
    rig.settle().await;
    let list = || rig.client.list().oldest_first();
    let parents = listed(list().parent(root)).await;
    assert_eq!(parents.len(), 1);
    let naps = listed(list().parent(parents[0])).await;
    assert_eq!(naps.len(), 2);
    assert!(listed(list().parent(naps[0])).await.is_empty());
    let family: BTreeSet<_> = listed(list().root(root)).await.into_iter().collect();
    assert_eq!(family.len(), 4);
    assert!(family.contains(&root) && family.contains(&parents[0]));
}

async fn choices_narrow_each_other(rig: Rig) {
    let begin = rig.clock.now();
    for number in 0..4 {
        let call = rig.client.start(nap, ()).key(format!("nap-{number}")).tag("n", (number % 2).to_string());
        call.await.unwrap();
        rig.client.start(quick, ()).tag("n", "1").await.unwrap();
    }
    let page = rig.client.list().workflow(nap).tag("n", "1").status(Status::Pending).text("nap-");
    let page = page.created_from(begin).oldest_first().limit(1).await.unwrap();
    assert_eq!(page.runs[0].key.as_deref(), Some("nap-1"));
    assert_eq!(page.next, Some(page.runs[0].id));
}

/// Goes through all pages; each has `limit` runs but the last.
async fn walk(rig: &Rig, limit: usize) -> Vec<RunId> {
    let mut seen = Vec::new();
    let mut page = rig.client.list().limit(limit).await.unwrap();
    loop {
        seen.extend(ids(&page));
        let Some(next) = page.next else { return seen };
        assert_eq!(page.runs.len(), limit);
        page = rig.client.list().after(next).limit(limit).await.unwrap();
    }
}

async fn pages_of_runs_started_at_the_same_moment_lose_none(rig: Rig) {
    let mut runs = start(&rig, 25).await;
    let moments: BTreeSet<_> =
        rig.client.list().await.unwrap().runs.iter().map(|run| run.created_at).collect();
    assert_eq!(moments.len(), 1, "virtual time stood still");
    runs.reverse();
    for limit in [1, 2, 5, 7, 24, 25, 26] {
        assert_eq!(walk(&rig, limit).await, runs, "pages of {limit}");
    }
}

async fn pages_go_both_ways(rig: Rig) {
    let runs = start(&rig, 10).await;
    let list = || rig.client.list().oldest_first().limit(4);
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

async fn the_last_page_has_a_way_back_and_no_next(rig: Rig) {
    let runs = start(&rig, 6).await;
    let list = || rig.client.list().oldest_first().limit(3);
    let tail = list().after(runs[2]).await.unwrap();
    assert_eq!((ids(&tail), tail.next, tail.prev), (runs[3..].to_vec(), None, Some(runs[3])));
    // Behind the last run there is an empty page, and it claims no more.
    let behind = list().after(runs[5]).await.unwrap();
    assert_eq!((behind.runs.len(), behind.next), (0, None));
    let whole = list().limit(6).await.unwrap();
    assert_eq!((whole.runs.len(), whole.next, whole.prev), (6, None, None));
}

async fn runs_started_while_paging_shift_nothing(rig: Rig) {
    let mut old = start(&rig, 9).await;
    old.reverse();
    let first = rig.client.list().limit(3).await.unwrap();
    start(&rig, 5).await;
    let second = rig.client.list().limit(3).after(first.next.unwrap()).await.unwrap();
    let third = rig.client.list().limit(3).after(second.next.unwrap()).await.unwrap();
    let seen: Vec<_> = [first, second, third].iter().flat_map(ids).collect();
    assert_eq!(seen, old);

    // The oldest first, new runs come at the end: whoever follows sees them.
    let all = rig.client.list().oldest_first().await.unwrap();
    assert_eq!((all.runs.len(), all.next), (14, None));
    let new = start(&rig, 2).await;
    let followed = rig.client.list().oldest_first().after(*ids(&all).last().unwrap()).await.unwrap();
    assert_eq!(ids(&followed), new);
}

async fn a_cursor_of_a_pruned_run_still_works(rig: Rig) {
    let runs = start(&rig, 5).await;
    rig.client.terminate(runs[2], "enough").await.unwrap();
    rig.run_to("1h").await;
    assert_eq!(rig.client.prune(rig.moment("1h")).await.unwrap(), 1);
    let list = || rig.client.list().oldest_first();
    assert_eq!(listed(list().after(runs[2])).await, runs[3..]);
    assert_eq!(listed(list().before(runs[2])).await, runs[..2]);
}

async fn a_page_has_a_greatest_size(rig: Rig) {
    let runs = start(&rig, 1_001).await;
    for limit in [0, 1_000, 5_000, usize::MAX] {
        let page = rig.client.list().oldest_first().limit(limit).await.unwrap();
        assert_eq!((page.runs.len(), page.next), (1_000, Some(runs[999])), "limit {limit}");
    }
}
