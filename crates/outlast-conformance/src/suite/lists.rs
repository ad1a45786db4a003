//! Lists of runs.

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::{ListOrder, Page, RunId, RunQuery, Status};

use super::Case;
use super::turn_ext::{TurnExt, stuck, wait};

async fn start_some(case: &Case, count: usize) -> Vec<RunId> {
    case.start_many("wf", count).await
}

async fn list(case: &Case, query: RunQuery) -> Page {
    case.world.runs(query).await.unwrap()
}

fn ids(page: &Page) -> Vec<RunId> {
    page.runs.iter().map(|run| run.id).collect()
}

/// A list is sorted by id: newest first, or oldest first if requested.
pub async fn a_list_is_sorted_both_ways(case: Case) {
    let mut runs = start_some(&case, 4).await;
    let oldest =
        list(&case, RunQuery { order: ListOrder::OldestFirst, limit: 10, ..RunQuery::default() }).await;
    assert_eq!((ids(&oldest), oldest.next), (runs.clone(), None));
    runs.reverse();
    let newest = list(&case, RunQuery { limit: 10, ..RunQuery::default() }).await;
    assert_eq!((ids(&newest), newest.next), (runs, None));
}

/// A list shows a run as `run` does.
pub async fn a_listed_run_is_the_whole_view(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, wait()).await;
    case.send_payload(run, "x").await;
    let page = list(&case, RunQuery { limit: 10, ..RunQuery::default() }).await;
    assert_eq!(page.runs, [case.view(run).await]);
}

/// Runs are listed by status, one or many.
pub async fn a_list_is_filtered_by_status(case: Case) {
    let worker = case.join("wf").await;
    let waiting = case.parked(&worker, wait()).await;
    let stuck = case.parked(&worker, stuck()).await;
    let completed = case.completed(&worker).await;
    case.start("wf").await;
    let by = async |statuses: &[Status]| {
        let query = RunQuery {
            statuses: statuses.into(),
            order: ListOrder::OldestFirst,
            limit: 10,
            ..RunQuery::default()
        };
        ids(&list(&case, query).await)
    };
    assert_eq!(by(&[Status::Waiting]).await, [waiting]);
    assert_eq!(by(&[Status::Completed, Status::Stuck]).await, [stuck, completed]);
    assert_eq!(by(&[Status::Failed]).await, []);
    assert_eq!(by(&[]).await.len(), 4);
}

/// Runs are listed by workflow, together with the other filters.
pub async fn a_list_is_filtered_by_workflow(case: Case) {
    let worker = case.join("a").await;
    let done = case.completed(&worker).await;
    let open = case.start("a").await;
    case.start("b").await;
    let query = RunQuery {
        workflow: Some("a".into()),
        order: ListOrder::OldestFirst,
        limit: 10,
        ..RunQuery::default()
    };
    assert_eq!(ids(&list(&case, query.clone()).await), [done, open]);
    let query = RunQuery { statuses: vec![Status::Pending], ..query };
    assert_eq!(ids(&list(&case, query).await), [open]);
}

/// Each run is on exactly one page. The last page has no cursor to a next one, even if it is full.
pub async fn pages_bring_every_run_once(case: Case) {
    let runs = start_some(&case, 6).await;
    for limit in [1, 2, 3, 4, 6, 7] {
        let (mut listed, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let query = RunQuery { order: ListOrder::OldestFirst, after, limit, ..RunQuery::default() };
            let page = list(&case, query).await;
            listed.extend(ids(&page));
            pages += 1;
            assert!(pages <= runs.len(), "the pages come to an end");
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((listed, pages), (runs.clone(), runs.len().div_ceil(limit)), "pages of {limit}");
    }
}

/// Runs that start while a list is paged do not make it repeat or skip others.
pub async fn pages_are_stable_while_runs_are_added(case: Case) {
    let runs = start_some(&case, 4).await;
    let query = RunQuery { limit: 2, ..RunQuery::default() };
    let first = list(&case, query.clone()).await;
    start_some(&case, 3).await;
    let second = list(&case, RunQuery { after: first.next, ..query }).await;
    assert_eq!((ids(&first), ids(&second)), (vec![runs[3], runs[2]], vec![runs[1], runs[0]]));
    assert_eq!(second.next, None);
}

/// A page of a filtered list has as many matching runs as requested, although other runs are between them.
pub async fn a_filtered_list_is_paged(case: Case) {
    let worker = case.join("wf").await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(case.parked(&worker, wait()).await);
        case.completed(&worker).await;
    }
    let query = RunQuery {
        statuses: vec![Status::Waiting],
        order: ListOrder::OldestFirst,
        limit: 2,
        ..RunQuery::default()
    };
    let first = list(&case, query.clone()).await;
    assert_eq!((ids(&first), first.next), (waiting[..2].to_vec(), Some(waiting[1])));
    let second = list(&case, RunQuery { after: first.next, ..query }).await;
    assert_eq!((ids(&second), second.next), (waiting[2..].to_vec(), None));
}

/// The length of a page has a limit.
pub async fn a_page_has_a_limit(case: Case) {
    start_some(&case, PAGE_RUNS_MAX + 1).await;
    let query = RunQuery { limit: usize::MAX, ..RunQuery::default() };
    let first = list(&case, query.clone()).await;
    assert_eq!(first.runs.len(), PAGE_RUNS_MAX);
    assert_eq!(list(&case, RunQuery { after: first.next, ..query }).await.runs.len(), 1);
}

/// A list by key contains the run of the key if it matches the other filters.
pub async fn a_run_is_found_by_its_key(case: Case) {
    case.start("wf").await;
    let run = case.try_start(case.new_keyed_start("wf", "order-1", "in")).await.unwrap().run;
    let query = RunQuery { key: Some("order-1".into()), limit: 10, ..RunQuery::default() };
    assert_eq!(ids(&list(&case, query.clone()).await), [run]);
    let ended = RunQuery { statuses: vec![Status::Completed], ..query.clone() };
    assert_eq!(ids(&list(&case, ended).await), []);
    assert_eq!(ids(&list(&case, RunQuery { key: Some("order-2".into()), ..query }).await), []);
}

/// Runs are listed by the run that started them.
pub async fn a_list_is_filtered_by_parent(case: Case) {
    let family = Family::started(&case).await;
    let by = |parent| RunQuery { parent: Some(parent), ..oldest_first() };
    assert_eq!(case.listed(by(family.root)).await, [family.child, family.sibling]);
    assert_eq!(case.listed(by(family.child)).await, [family.grandchild]);
    assert_eq!(case.listed(by(family.grandchild)).await, []);
    let completed = RunQuery { statuses: vec![Status::Completed], ..by(family.root) };
    assert_eq!(case.listed(completed).await, []);
}

/// A list by root contains the root and all its descendants. A run that has a parent is not a root.
pub async fn a_list_is_filtered_by_root(case: Case) {
    let family = Family::started(&case).await;
    case.start("wf").await;
    let by = |root| RunQuery { root: Some(root), ..oldest_first() };
    let all = [family.root, family.child, family.sibling, family.grandchild];
    assert_eq!(case.listed(by(family.root)).await, all);
    assert_eq!(case.listed(by(family.child)).await, []);
    let first = list(&case, RunQuery { limit: 3, ..by(family.root) }).await;
    assert_eq!(case.listed(RunQuery { after: first.next, ..by(family.root) }).await, [family.grandchild]);
}

/// Runs can be listed by the time of their start: from one time on, and before another.
pub async fn a_list_is_filtered_by_time(case: Case) {
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push((case.start("wf").await, case.clock.now()));
        case.clock.advance("1s");
    }
    let between = |created_from, created_before| RunQuery { created_from, created_before, ..oldest_first() };
    let moment = runs[1].1;
    assert_eq!(case.listed(between(Some(moment), None)).await, [runs[1].0, runs[2].0]);
    assert_eq!(case.listed(between(None, Some(moment))).await, [runs[0].0]);
    assert_eq!(case.listed(between(Some(moment), Some(runs[2].1))).await, [runs[1].0]);
    assert_eq!(case.listed(between(Some(moment), Some(moment))).await, []);
}

/// A text finds runs by a part of their id, workflow or key, in upper or lower case.
pub async fn a_list_is_filtered_by_text(case: Case) {
    let order = case.try_start(case.new_keyed_start("Checkout", "Order-100%_1", "in")).await.unwrap().run;
    let refund = case.try_start(case.new_keyed_start("refund", "order-100ab1", "in")).await.unwrap().run;
    let plain = case.start("ORDERLY").await;
    let by = |text: &str| RunQuery { text: Some(text.into()), ..oldest_first() };
    assert_eq!(case.listed(by("order")).await, [order, refund, plain]);
    assert_eq!(case.listed(by("CHECK")).await, [order]);
    assert_eq!(case.listed(by("100%_1")).await, [order], "nothing stands for anything else");
    assert_eq!(case.listed(by("\\")).await, []);
    assert_eq!(case.listed(by(&refund.to_string().to_lowercase())).await, [refund]);
    assert_eq!(case.listed(by(&refund.to_string()[10..])).await, [refund]);
    assert_eq!(case.listed(by("run_")).await.len(), 3);
    assert_eq!(case.listed(by("")).await.len(), 3);
    assert_eq!(case.listed(by("nothing like it")).await, []);
}

/// The search for a text ignores case in all alphabets.
pub async fn a_text_is_found_in_every_alphabet(case: Case) {
    let run = case.try_start(case.new_keyed_start("wf", "Größe-КЛЮЧ", "in")).await.unwrap().run;
    for text in ["ключ", "GRÖ", "ße-К"] {
        assert_eq!(
            case.listed(RunQuery { text: Some(text.into()), ..oldest_first() }).await,
            [run],
            "{text}"
        );
    }
}

/// A run is listed only if it matches all filters.
pub async fn filters_hold_together(case: Case) {
    let family = Family::started(&case).await;
    case.start("child").await;
    let query = RunQuery {
        root: Some(family.root),
        workflow: Some("child".into()),
        statuses: vec![Status::Pending],
        text: Some("CHILD".into()),
        created_from: Some(case.clock.now()),
        ..oldest_first()
    };
    assert_eq!(case.listed(query.clone()).await, [family.child, family.sibling]);
    assert_eq!(case.listed(RunQuery { key: Some("k".into()), ..query.clone() }).await, []);
    assert_eq!(case.listed(RunQuery { parent: Some(family.child), ..query }).await, []);
}

/// Paging forwards to the end and backwards again returns the same pages, in both orders.
pub async fn pages_are_walked_both_ways(case: Case) {
    start_some(&case, 7).await;
    for (order, limit) in [ListOrder::OldestFirst, ListOrder::NewestFirst]
        .into_iter()
        .flat_map(|order| [1, 2, 3, 6, 7, 8].map(|limit| (order, limit)))
    {
        let query = RunQuery { order, limit, ..RunQuery::default() };
        let mut pages = vec![list(&case, query.clone()).await];
        assert_eq!(pages[0].prev, None, "the first page");
        while let Some(after) = pages[pages.len() - 1].next {
            pages.push(list(&case, RunQuery { after: Some(after), ..query.clone() }).await);
        }
        let mut back = vec![pages[pages.len() - 1].clone()];
        while let Some(before) = back[back.len() - 1].prev {
            back.push(list(&case, RunQuery { before: Some(before), ..query.clone() }).await);
        }
        back.reverse();
        assert_eq!(back, pages, "{order:?}, pages of {limit}");
    }
}

/// The page before a run contains the runs that directly precede it in the order of the list.
pub async fn a_page_in_front_holds_the_last_of_those_in_front(case: Case) {
    let runs = start_some(&case, 5).await;
    let page = list(&case, RunQuery { before: Some(runs[3]), limit: 2, ..oldest_first() }).await;
    assert_eq!((ids(&page), page.prev, page.next), (vec![runs[1], runs[2]], Some(runs[1]), Some(runs[2])));
    let page = list(&case, RunQuery { before: Some(runs[1]), limit: 2, ..RunQuery::default() }).await;
    assert_eq!((ids(&page), page.prev, page.next), (vec![runs[3], runs[2]], Some(runs[3]), Some(runs[2])));
    let first = list(&case, RunQuery { before: Some(runs[0]), ..oldest_first() }).await;
    assert_eq!((ids(&first), first.prev, first.next), (vec![], None, None));
}

/// With two cursors, the list contains the runs between them and is read forwards.
pub async fn two_cursors_bound_a_list(case: Case) {
    let runs = start_some(&case, 6).await;
    let query = RunQuery { after: Some(runs[0]), before: Some(runs[4]), limit: 2, ..oldest_first() };
    let page = list(&case, query.clone()).await;
    assert_eq!((ids(&page), page.next), (vec![runs[1], runs[2]], Some(runs[2])));
    let page = list(&case, RunQuery { after: page.next, ..query.clone() }).await;
    assert_eq!((ids(&page), page.next), (vec![runs[3]], None));
    for (after, before) in [(4, 0), (2, 2), (2, 3)] {
        let none = RunQuery { after: Some(runs[after]), before: Some(runs[before]), ..query.clone() };
        assert_eq!(case.listed(none).await, []);
    }
    let newest =
        RunQuery { order: ListOrder::NewestFirst, after: Some(runs[4]), before: Some(runs[1]), ..query };
    assert_eq!(case.listed(newest).await, [runs[3], runs[2]]);
}

/// The cursors apply to a list by key as well.
pub async fn a_list_by_key_keeps_to_its_cursors(case: Case) {
    let before = case.start("wf").await;
    let run = case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap().run;
    let query = RunQuery { key: Some("k".into()), ..oldest_first() };
    assert_eq!(case.listed(RunQuery { after: Some(before), ..query.clone() }).await, [run]);
    assert_eq!(case.listed(RunQuery { after: Some(run), ..query.clone() }).await, []);
    assert_eq!(case.listed(RunQuery { before: Some(run), ..query }).await, []);
}

fn oldest_first() -> RunQuery {
    RunQuery { order: ListOrder::OldestFirst, limit: 10, ..RunQuery::default() }
}

/// Runs that started each other.
struct Family {
    root: RunId,
    child: RunId,
    sibling: RunId,
    grandchild: RunId,
}

impl Family {
    async fn started(case: &Case) -> Self {
        let worker = case.join("wf").await;
        let root = case.held(&worker).await;
        let children = [case.new_child(root.run, 1, "child"), case.new_child(root.run, 2, "child")];
        let [child, sibling] = children.clone().map(|child| child.start.run);
        let turn = children.into_iter().fold(case.turn(&root), |turn, child| turn.child(child));
        worker.commit_done(turn.clone()).await;
        let mut below = case.new_child(child, 1, "grandchild");
        let parent = below.start.parent.unwrap();
        below.start.parent = Some(outlast_core::Parent { root: root.run, ..parent });
        let grandchild = below.start.run;
        // The engine decides which turn starts a run; the world stores it as given.
        worker.commit_done(case.turn_after(&turn).child(below).completing("out")).await;
        Self { root: root.run, child, sibling, grandchild }
    }
}
