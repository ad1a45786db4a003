//! Tags: what a run can be found by.

use outlast_core::limits::{NAME_BYTES_MAX, TAG_VALUE_BYTES_MAX, TAGS_MAX};
use outlast_core::{RunId, RunQuery, Start, Tags, Turn};

use super::turn_ext::{TurnExt, wait};
use super::{Case, assert_refused};

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn start_with(case: &Case, pairs: &[(&str, &str)]) -> RunId {
    let start = Start { tags: tags(pairs), ..case.new_start("wf") };
    case.try_start(start).await.expect("the world starts a run").run
}

async fn found(case: &Case, pairs: &[(&str, &str)]) -> Vec<RunId> {
    let order = outlast_core::ListOrder::OldestFirst;
    case.listed(RunQuery { tags: tags(pairs), order, limit: 10, ..RunQuery::default() }).await
}

/// The tags of a start are on the run as they were given, and in its history.
pub async fn the_tags_of_a_start_are_on_the_run(case: Case) {
    let given = tags(&[("shop", "7"), ("Ünïcode ", "\u{0}'\"%_"), ("empty", "")]);
    let start = Start { tags: given.clone(), ..case.new_start("wf") };
    case.try_start(start.clone()).await.unwrap();
    assert_eq!(case.view(start.run).await.tags, given);
    let history = case.world.history(start.run, 0, 1).await.unwrap();
    assert_eq!(history[0].events, [start.event()]);
}

/// Tags have limits: how many, how long their names and values, and that they have a name.
pub async fn tags_past_their_limits_are_refused(case: Case) {
    let many = |count: usize| (0..count).map(|index| (format!("tag-{index}"), String::new())).collect();
    let one = |name: usize, value: usize| Tags::from([("n".repeat(name), "v".repeat(value))]);
    for fine in [many(TAGS_MAX), one(NAME_BYTES_MAX, TAG_VALUE_BYTES_MAX), one(1, 0)] {
        let start = Start { tags: fine.clone(), ..case.new_start("wf") };
        let run = case.try_start(start).await.unwrap().run;
        assert_eq!(case.view(run).await.tags, fine);
    }
    let long = [one(NAME_BYTES_MAX + 1, 1), one(1, TAG_VALUE_BYTES_MAX + 1), one(0, 1)];
    for bad in long.into_iter().chain([many(TAGS_MAX + 1)]) {
        let start = Start { tags: bad, ..case.new_start("wf") };
        let run = start.run;
        assert_refused!(case.try_start(start).await, Limit);
        assert_refused!(case.world.run(run).await, NotFound);
    }
}

/// A turn adds tags and changes values; tags of other names stay.
pub async fn a_turn_sets_tags(case: Case) {
    let worker = case.join("wf").await;
    let run = start_with(&case, &[("a", "1"), ("b", "1")]).await;
    let turn = case.turn(&worker.claim_one().await).tagged("b", "2").tagged("c", "2");
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.view(run).await.tags, tags(&[("a", "1"), ("b", "2"), ("c", "2")]));
    worker.commit_done(turn.clone()).await;
    worker.commit_done(case.turn_after(&turn).steps(1).tagged("c", "").then(wait())).await;
    assert_eq!(case.view(run).await.tags, tags(&[("a", "1"), ("b", "2"), ("c", "")]));
}

/// Repeating an earlier turn does not set its tags again.
pub async fn an_old_turn_does_not_bring_its_tags_back(case: Case) {
    let worker = case.join("wf").await;
    let run = start_with(&case, &[]).await;
    let first = case.turn(&worker.claim_one().await).steps(1).tagged("a", "1");
    worker.commit_done(first.clone()).await;
    worker.commit_done(case.turn_after(&first).steps(1).tagged("a", "2")).await;
    assert_refused!(worker.commit(first).await, Fenced);
    assert_eq!(case.view(run).await.tags, tags(&[("a", "2")]));
}

/// A turn from a start adds to the tags of its start.
pub async fn a_turn_from_a_start_sets_tags(case: Case) {
    let worker = case.join("wf").await;
    let start = Start { tags: tags(&[("a", "1"), ("b", "1")]), ..case.new_start("wf") };
    let turn = case.starting_turn(start).tagged("b", "2");
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.view(turn.run).await.tags, tags(&[("a", "1"), ("b", "2")]));
    assert_eq!(found(&case, &[("b", "2")]).await, [turn.run]);
}

/// The last turn may set tags too, and they outlive the end.
pub async fn tags_outlive_the_end(case: Case) {
    let worker = case.join("wf").await;
    let run = start_with(&case, &[("a", "1")]).await;
    let turn = case.turn(&worker.claim_one().await).tagged("result", "good").completing("out");
    worker.commit_done(turn).await;
    assert_eq!(found(&case, &[("a", "1"), ("result", "good")]).await, [run]);
}

/// Runs are found by all the tags that are requested, with the values they have now.
pub async fn runs_are_found_by_their_tags(case: Case) {
    let worker = case.join("wf").await;
    let first = start_with(&case, &[("shop", "7"), ("kind", "new")]).await;
    let claimed = worker.claim_one().await;
    let second = start_with(&case, &[("shop", "7"), ("kind", "old")]).await;
    start_with(&case, &[("shop", "8"), ("kind", "7")]).await;
    case.start("wf").await;
    assert_eq!(found(&case, &[("shop", "7")]).await, [first, second]);
    assert_eq!(found(&case, &[("shop", "7"), ("kind", "new")]).await, [first]);
    assert_eq!(found(&case, &[("shop", "7"), ("kind", "7")]).await, []);
    worker.commit_done(case.turn(&claimed).tagged("kind", "done")).await;
    assert_eq!(found(&case, &[("kind", "new")]).await, []);
    assert_eq!(found(&case, &[("kind", "done")]).await, [first]);
}

/// Tags are compared byte by byte: upper and lower case and spaces differ, and there are no wildcards.
pub async fn tags_are_compared_exactly(case: Case) {
    let run = start_with(&case, &[("shop", "Seven"), ("empty", "")]).await;
    for other in [("shop", "seven"), ("Shop", "Seven"), ("shop", "Seven "), ("shop", "%"), ("shop", "")] {
        assert_eq!(found(&case, &[other]).await, [], "{other:?}");
    }
    assert_eq!(found(&case, &[("empty", "")]).await, [run]);
}

/// A list by tag is filtered further and paged like any other.
pub async fn a_list_by_tag_is_paged(case: Case) {
    let mut runs = Vec::new();
    for index in 0..4 {
        runs.push(start_with(&case, &[("shop", "7"), ("index", &index.to_string())]).await);
        case.start("wf").await;
    }
    let query = RunQuery { tags: tags(&[("shop", "7")]), limit: 3, ..RunQuery::default() };
    let first = case.world.runs(query.clone()).await.unwrap();
    assert_eq!(first.runs.iter().map(|run| run.id).collect::<Vec<_>>(), [runs[3], runs[2], runs[1]]);
    assert_eq!(case.listed(RunQuery { after: first.next, ..query.clone() }).await, [runs[0]]);
    let none = RunQuery { workflow: Some("other".into()), ..query };
    assert_eq!(case.listed(none).await, []);
}

/// A run can wait with a turn that sets tags.
pub async fn a_turn_with_tags_alone_is_committed(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    let turn = Turn { events: Vec::new(), ..case.turn(&claimed) }.tagged("a", "1").then(wait());
    worker.commit_done(turn).await;
    worker.claim_nothing().await;
    assert_eq!(case.view(claimed.run).await.tags, tags(&[("a", "1")]));
}
