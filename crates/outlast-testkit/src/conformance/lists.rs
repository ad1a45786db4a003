//! Lists of runs.

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::{Order, Page, RunId, RunQuery, Status};

use super::Case;
use super::shape::{stuck, wait};

async fn start_some(case: &Case, count: usize) -> Vec<RunId> {
    let mut runs = Vec::new();
    for _ in 0..count {
        runs.push(case.start("wf").await);
    }
    runs
}

async fn list(case: &Case, query: RunQuery) -> Page {
    case.world.runs(query).await.unwrap()
}

fn ids(page: &Page) -> Vec<RunId> {
    page.runs.iter().map(|run| run.id).collect()
}

/// A list is sorted by id, newest first unless it is asked for the other way round.
pub async fn a_list_is_sorted_both_ways(case: Case) {
    let mut runs = start_some(&case, 4).await;
    let oldest = list(&case, RunQuery { order: Order::OldestFirst, limit: 10, ..RunQuery::default() }).await;
    assert_eq!((ids(&oldest), oldest.next), (runs.clone(), None));
    runs.reverse();
    let newest = list(&case, RunQuery { limit: 10, ..RunQuery::default() }).await;
    assert_eq!((ids(&newest), newest.next), (runs, None));
}

/// A listed run is what `run` would answer.
pub async fn a_listed_run_is_the_whole_view(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, wait()).await;
    case.tell(run, "x").await;
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
            order: Order::OldestFirst,
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
    let query =
        RunQuery { workflow: Some("a".into()), order: Order::OldestFirst, limit: 10, ..RunQuery::default() };
    assert_eq!(ids(&list(&case, query.clone()).await), [done, open]);
    let query = RunQuery { statuses: vec![Status::Pending], ..query };
    assert_eq!(ids(&list(&case, query).await), [open]);
}

/// Pages bring every run once; the last says that it is the last, even when it is full.
pub async fn pages_bring_every_run_once(case: Case) {
    let runs = start_some(&case, 6).await;
    for limit in [1, 2, 3, 4, 6, 7] {
        let (mut listed, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let query = RunQuery { order: Order::OldestFirst, after, limit, ..RunQuery::default() };
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

/// Rows that are added meanwhile neither repeat nor hide a run that was there.
pub async fn pages_are_stable_while_runs_are_added(case: Case) {
    let runs = start_some(&case, 4).await;
    let query = RunQuery { limit: 2, ..RunQuery::default() };
    let first = list(&case, query.clone()).await;
    start_some(&case, 3).await;
    let second = list(&case, RunQuery { after: first.next, ..query }).await;
    assert_eq!((ids(&first), ids(&second)), (vec![runs[3], runs[2]], vec![runs[1], runs[0]]));
    assert_eq!(second.next, None);
}

/// A filtered list is paged by what it lists.
pub async fn a_filtered_list_is_paged(case: Case) {
    let worker = case.join("wf").await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(case.parked(&worker, wait()).await);
        case.completed(&worker).await;
    }
    let query = RunQuery {
        statuses: vec![Status::Waiting],
        order: Order::OldestFirst,
        limit: 2,
        ..RunQuery::default()
    };
    let first = list(&case, query.clone()).await;
    assert_eq!((ids(&first), first.next), (waiting[..2].to_vec(), Some(waiting[1])));
    let second = list(&case, RunQuery { after: first.next, ..query }).await;
    assert_eq!((ids(&second), second.next), (waiting[2..].to_vec(), None));
}

/// However much is asked for, one page has a limit.
pub async fn a_page_has_a_limit(case: Case) {
    let starts = (0..=PAGE_RUNS_MAX).map(|_| case.new_start("wf")).collect();
    case.world.start(starts).await.unwrap();
    let query = RunQuery { limit: usize::MAX, ..RunQuery::default() };
    let first = list(&case, query.clone()).await;
    assert_eq!(first.runs.len(), PAGE_RUNS_MAX);
    assert_eq!(list(&case, RunQuery { after: first.next, ..query }).await.runs.len(), 1);
}

/// A key finds its run, and other filters still count.
pub async fn a_run_is_found_by_its_key(case: Case) {
    case.start("wf").await;
    let run = case.try_start(case.new_keyed_start("wf", "order-1", "in")).await.unwrap().run;
    let query = RunQuery { key: Some("order-1".into()), limit: 10, ..RunQuery::default() };
    assert_eq!(ids(&list(&case, query.clone()).await), [run]);
    let ended = RunQuery { statuses: vec![Status::Completed], ..query.clone() };
    assert_eq!(ids(&list(&case, ended).await), []);
    assert_eq!(ids(&list(&case, RunQuery { key: Some("order-2".into()), ..query }).await), []);
}
