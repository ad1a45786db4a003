//! Keys: one run per key.

use std::time::Duration;

use outlast_core::limits::KEY_BYTES_MAX;
use outlast_core::turn::Committed;
use outlast_core::{KeyPolicy, RunId, Start, Started};

use super::turn_ext::{TurnExt, wait};
use super::{Case, all, assert_refused};

/// A second start with the same key, workflow and input returns the first run.
pub async fn the_same_key_returns_the_same_run(case: Case) {
    let first = case.try_start(case.new_keyed_start("wf", "order-1", "in")).await.unwrap();
    let second = case.try_start(case.new_keyed_start("wf", "order-1", "in")).await.unwrap();
    assert_eq!(second, Started { run: first.run, is_new: false });
    assert_eq!(case.view(first.run).await.key.as_deref(), Some("order-1"));
    assert_eq!(case.counts().await.values().sum::<u64>(), 1);
}

/// A key still refers to its run after the run has ended.
pub async fn a_key_names_its_run_after_the_end(case: Case) {
    let first = case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap();
    let worker = case.join("wf").await;
    let turn = case.turn(&worker.claim_one().await).completing("out");
    worker.commit_done(turn).await;
    let second = case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap();
    assert_eq!(second, Started { run: first.run, is_new: false });
}

/// A key that names a run of another workflow is refused.
pub async fn a_key_of_another_workflow_conflicts(case: Case) {
    case.try_start(case.new_keyed_start("a", "k", "in")).await.unwrap();
    let other = case.new_keyed_start("b", "k", "in");
    assert_refused!(case.try_start(other.clone()).await, Conflict);
    assert_refused!(case.world.run(other.run).await, NotFound);
}

/// A key that names a run with another input is refused.
pub async fn a_key_with_another_input_conflicts(case: Case) {
    case.try_start(case.new_keyed_start("wf", "k", "one")).await.unwrap();
    assert_refused!(case.try_start(case.new_keyed_start("wf", "k", "two")).await, Conflict);
}

/// The digest is compared, not the payload: a codec may write the same input differently.
pub async fn a_key_compares_digests_and_not_payloads(case: Case) {
    let mut first = case.new_keyed_start("wf", "k", "in");
    first.input = outlast_core::Payload::coded("aes", vec![1]);
    let mut second = case.new_keyed_start("wf", "k", "in");
    second.input = outlast_core::Payload::coded("aes", vec![2]);
    let run = case.try_start(first).await.unwrap().run;
    assert_eq!(case.try_start(second).await, Ok(Started { run, is_new: false }));
}

/// A key also applies to other versions of the workflow.
pub async fn a_key_returns_its_run_to_another_version(case: Case) {
    let first = case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap();
    let mut newer = case.new_keyed_start("wf", "k", "in");
    newer.version = 2;
    assert_eq!(case.try_start(newer).await, Ok(Started { run: first.run, is_new: false }));
    assert_eq!(case.view(first.run).await.version, 1);
}

/// Keys are compared byte by byte: upper and lower case and spaces differ. Starts without a key never share a run.
pub async fn keys_are_compared_exactly(case: Case) {
    let mut runs = Vec::new();
    for key in ["k", "K", "k ", "", "k\u{0}", "k\u{0}x", "ключ"] {
        runs.push(case.try_start(case.new_keyed_start("wf", key, "in")).await.unwrap());
    }
    runs.push(case.try_start(case.new_start("wf")).await.unwrap());
    runs.push(case.try_start(case.new_start("wf")).await.unwrap());
    assert!(runs.iter().all(|started| started.is_new), "{runs:?}");
}

/// Concurrent starts with one key in two processes create one run.
pub async fn concurrent_starts_with_one_key_give_one_run(case: Case) {
    let other = case.join_elsewhere("none").await;
    let starts: Vec<_> = (0..16).map(|_| case.new_keyed_start("wf", "k", "in")).collect();
    let answers = all(starts.into_iter().enumerate().map(|(index, start)| {
        let world = if index % 2 == 0 { case.world.clone() } else { other.world.clone() };
        async move { super::case::one(world.start(vec![start]).await).unwrap() }
    }))
    .await;
    let runs: std::collections::BTreeSet<RunId> = answers.iter().map(|started| started.run).collect();
    assert_eq!(runs.len(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|started| started.is_new).count(), 1);
}

/// Two starts with one key in one batch give one run.
pub async fn one_key_twice_in_a_batch_gives_one_run(case: Case) {
    let starts = vec![case.new_keyed_start("wf", "k", "in"), case.new_keyed_start("wf", "k", "in")];
    let run = starts[0].run;
    let answers = case.world.start(starts).await.unwrap();
    assert_eq!(answers, [Ok(Started { run, is_new: true }), Ok(Started { run, is_new: false })]);
}

/// A turn from a start whose key is in use writes nothing, and returns the existing run.
pub async fn a_turn_from_a_start_with_a_known_key_writes_nothing(case: Case) {
    let first = case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap();
    let worker = case.join("other").await;
    let turn = case.starting_turn(case.new_keyed_start("wf", "k", "in")).steps(1);
    let existed = Ok(Committed::Existed(Started { run: first.run, is_new: false }));
    assert_eq!(worker.commit(turn.clone()).await, existed);
    assert_eq!(worker.commit(turn.clone()).await, existed, "a repeat answers the same");
    assert_refused!(case.world.run(turn.run).await, NotFound);
    assert_eq!((worker.held().await, case.kinds(first.run).await), (0, vec!["run_started"]));
}

/// A turn from a start whose key is another workflow's is refused.
pub async fn a_turn_from_a_start_with_another_workflows_key_conflicts(case: Case) {
    case.try_start(case.new_keyed_start("a", "k", "in")).await.unwrap();
    let worker = case.join("b").await;
    let turn = case.starting_turn(case.new_keyed_start("b", "k", "in"));
    assert_refused!(worker.commit(turn.clone()).await, Conflict);
    assert_refused!(case.world.run(turn.run).await, NotFound);
}

/// A key may be as long as the limit, and not longer.
pub async fn a_key_past_its_limit_is_refused(case: Case) {
    let longest = case.new_keyed_start("wf", &"k".repeat(KEY_BYTES_MAX), "in");
    assert!(case.try_start(longest).await.is_ok());
    let longer = case.new_keyed_start("wf", &"k".repeat(KEY_BYTES_MAX + 1), "in");
    assert_refused!(case.try_start(longer).await, Limit);
}

/// A start with a key and a window.
fn windowed(case: &Case, workflow: &str, input: &str, seconds: u64) -> Start {
    let mut start = case.new_keyed_start(workflow, "k", input);
    start.key.as_mut().unwrap().window = Some(Duration::from_secs(seconds));
    start
}

/// Within the key's window a start returns the existing run; after it, a start creates a new run.
pub async fn a_key_counts_within_the_window(case: Case) {
    let first = case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap().run;
    case.clock.advance("59s999ms999us");
    let within = case.try_start(windowed(&case, "wf", "in", 60)).await;
    assert_eq!(within, Ok(Started { run: first, is_new: false }));
    case.clock.advance("1us");
    let start = windowed(&case, "wf", "in", 60);
    assert_eq!(case.try_start(start.clone()).await, Ok(Started { run: start.run, is_new: true }));
    assert_eq!((case.view(first).await.key, case.view(start.run).await.key), (None, Some("k".into())));
    let query = outlast_core::RunQuery { key: Some("k".into()), limit: 10, ..Default::default() };
    assert_eq!(case.listed(query).await, [start.run]);
}

/// The window of the later start applies. A start without a window always returns the existing run.
pub async fn a_key_without_a_window_counts_for_ever(case: Case) {
    let first = case.try_start(windowed(&case, "wf", "in", 60)).await.unwrap().run;
    case.clock.advance("1000d");
    let later = case.try_start(case.new_keyed_start("wf", "k", "in")).await;
    assert_eq!(later, Ok(Started { run: first, is_new: false }));
}

/// The window begins with the run's start, not with its end, and the run continues without its key.
pub async fn a_run_continues_without_its_key(case: Case) {
    let worker = case.join("wf").await;
    let first = case.try_start(windowed(&case, "wf", "in", 60)).await.unwrap().run;
    let claimed = worker.claim_one().await;
    case.clock.advance("1m");
    let second = case.try_start(windowed(&case, "wf", "in", 60)).await.unwrap();
    assert!(second.is_new);
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    assert_eq!((case.kinds(first).await.len(), case.view(first).await.key), (2, None));
}

/// A key past its window is free for another workflow and another input.
pub async fn a_key_past_its_window_conflicts_with_nothing(case: Case) {
    case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap();
    assert_refused!(case.try_start(windowed(&case, "other", "in", 60)).await, Conflict);
    case.clock.advance("1m");
    let start = windowed(&case, "other", "another input", 60);
    assert_eq!(case.try_start(start.clone()).await, Ok(Started { run: start.run, is_new: true }));
    assert_refused!(case.try_start(case.new_keyed_start("wf", "k", "in")).await, Conflict);
}

/// A start that is repeated after its run lost the key returns its run, and the key stays with the later run.
pub async fn a_start_repeated_after_its_key_was_lost_answers_as_before(case: Case) {
    let start = windowed(&case, "wf", "in", 60);
    let first = case.try_start(start.clone()).await;
    case.clock.advance("1m");
    let second = case.try_start(windowed(&case, "wf", "in", 60)).await.unwrap().run;
    assert_eq!(case.try_start(start).await, first);
    let again = case.try_start(case.new_keyed_start("wf", "k", "in")).await;
    assert_eq!(again, Ok(Started { run: second, is_new: false }));
}

/// A turn from a start and a child take a key past its window as a start does.
pub async fn a_turn_and_a_child_take_a_key_past_its_window(case: Case) {
    let worker = case.join("wf").await;
    let turn = case.starting_turn(windowed(&case, "wf", "in", 60));
    worker.commit_done(turn.clone()).await;
    case.clock.advance("1m");
    let again = case.starting_turn(windowed(&case, "wf", "in", 60));
    worker.commit_done(again.clone()).await;
    assert_eq!((case.view(turn.run).await.key, case.view(again.run).await.key), (None, Some("k".into())));
    case.clock.advance("1m");
    let mut child = case.new_child(again.run, 3, "child");
    child.start = Start { parent: child.start.parent, ..windowed(&case, "child", "in", 60) };
    worker.commit_done(case.turn_after(&again).child(child.clone())).await;
    assert_eq!(case.view(again.run).await.key, None);
    assert_eq!(case.view(child.start.run).await.key.as_deref(), Some("k"));
}

/// A start that replaces the run with its key.
fn replacing(case: &Case, workflow: &str, input: &str) -> Start {
    let mut start = case.new_keyed_start(workflow, "k", input);
    start.key.as_mut().unwrap().policy = KeyPolicy::Replace;
    start
}

/// A start that replaces takes the key of a run, whatever its workflow and input are, and asks the run to stop. A repeat
/// changes nothing.
pub async fn a_start_replaces_the_run_with_its_key(case: Case) {
    let worker = case.join("wf").await;
    let first = case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap().run;
    let claimed = worker.claim_one().await;
    let start = replacing(&case, "other", "another input");
    for _ in 0..2 {
        assert_eq!(case.try_start(start.clone()).await, Ok(Started { run: start.run, is_new: true }));
    }
    assert_eq!((case.view(first).await.key, case.view(start.run).await.key), (None, Some("k".into())));
    let replaced = case.view(first).await;
    assert!(replaced.is_cancel_requested && replaced.sent == 1, "{replaced:?}");
    let inbox = case.world.inbox(first, 0).await.unwrap();
    assert_eq!(inbox[0].body, start.cancel_of_replaced(first).body);
    worker.commit_done(case.turn(&claimed).steps(1)).await;
    let third = replacing(&case, "other", "another input");
    assert_eq!(case.try_start(third.clone()).await, Ok(Started { run: third.run, is_new: true }));
    // The first start is repeated after its run lost the key: it takes nothing back.
    assert_eq!(case.try_start(start.clone()).await, Ok(Started { run: start.run, is_new: true }));
    assert_eq!(case.view(third.run).await.key.as_deref(), Some("k"));
    assert!(!case.view(third.run).await.is_cancel_requested);
}

/// A waiting run that is replaced becomes ready, and one that has ended only loses its key. Without an earlier run it is a
/// start like any other.
pub async fn a_replaced_run_becomes_ready(case: Case) {
    let worker = case.join("wf").await;
    let start = replacing(&case, "wf", "in");
    assert_eq!(case.try_start(start.clone()).await, Ok(Started { run: start.run, is_new: true }));
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).then(wait())).await;
    assert!(worker.claim().await.is_empty());
    let second = replacing(&case, "none", "in");
    case.try_start(second.clone()).await.unwrap();
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.run, claimed.inbox.len()), (start.run, 1));
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    let turn = case.starting_turn(replacing(&case, "wf", "in"));
    worker.commit_done(turn.clone()).await;
    assert!(case.view(second.run).await.is_cancel_requested);
    assert_eq!(case.view(turn.run).await.key.as_deref(), Some("k"));
    worker.commit_done(case.turn_after(&turn).completing("out")).await;
    let last = replacing(&case, "wf", "in");
    case.try_start(last.clone()).await.unwrap();
    let ended = case.view(turn.run).await;
    assert!(ended.key.is_none() && !ended.is_cancel_requested);
}

/// A start whose key is held only while its run lives.
fn held_while_running(case: &Case, workflow: &str, input: &str) -> Start {
    let mut start = case.new_keyed_start(workflow, "k", input);
    start.key.as_mut().unwrap().policy = KeyPolicy::WhileRunning;
    start
}

/// While the run lives, the key names it. After its end a start with this policy gets the key, also for another workflow
/// and input; one without the policy does not.
pub async fn a_key_held_while_running_is_free_after_the_end(case: Case) {
    let worker = case.join("wf").await;
    let first = case.try_start(held_while_running(&case, "wf", "in")).await.unwrap().run;
    let again = case.try_start(held_while_running(&case, "wf", "in")).await;
    assert_eq!(again, Ok(Started { run: first, is_new: false }));
    assert_refused!(case.try_start(held_while_running(&case, "wf", "another input")).await, Conflict);
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    let kept = case.try_start(case.new_keyed_start("wf", "k", "in")).await;
    assert_eq!(kept, Ok(Started { run: first, is_new: false }));
    let start = held_while_running(&case, "other", "another input");
    assert_eq!(case.try_start(start.clone()).await, Ok(Started { run: start.run, is_new: true }));
    assert_eq!((case.view(first).await.key, case.view(start.run).await.key), (None, Some("k".into())));
    assert_eq!(case.try_start(start.clone()).await, Ok(Started { run: start.run, is_new: true }));
}

/// A turn from a start and a child take the key of a run that has ended as a start does.
pub async fn a_turn_and_a_child_take_the_key_of_an_ended_run(case: Case) {
    let worker = case.join("wf").await;
    let first = case.try_start(held_while_running(&case, "wf", "in")).await.unwrap().run;
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    let turn = case.starting_turn(held_while_running(&case, "wf", "in"));
    worker.commit_done(turn.clone()).await;
    assert_eq!((case.view(first).await.key, case.view(turn.run).await.key), (None, Some("k".into())));
    let parent = case.starting_turn(case.new_start("wf"));
    worker.commit_done(parent.clone()).await;
    worker.commit_done(case.turn_after(&turn).completing("out")).await;
    let mut child = case.new_child(parent.run, 3, "child");
    child.start = Start { parent: child.start.parent, ..held_while_running(&case, "child", "in") };
    worker.commit_done(case.turn_after(&parent).child(child.clone())).await;
    assert_eq!(case.view(turn.run).await.key, None);
    assert_eq!(case.view(child.start.run).await.key.as_deref(), Some("k"));
}
