//! Forks: runs with the events of others before a cut.

use std::collections::BTreeMap;

use outlast_core::limits::FORK_OUTPUTS_MAX;
use outlast_core::{
    Event, FORKED_FROM, Fork, ForkOrigin, ForkPlan, ForkPoint, Join, OpNumber, Outcome, RunId, RunQuery,
    Start, Status, Tags, TurnRecord,
};

use super::case::text;
use super::turn_ext::TurnExt;
use super::{Case, TestWorker, assert_refused};

/// A run with four turns and a completed step in each but the first. It has eight events.
async fn worked(case: &Case, worker: &TestWorker) -> RunId {
    let claimed = case.held(worker).await;
    let mut turn = case.turn(&claimed).steps(1);
    for op in [1, 3, 5] {
        worker.commit_done(turn.clone()).await;
        turn = case.turn_after(&turn);
        turn.events.push(Event::StepCompleted { op: OpNumber(op), output: text(&format!("out {op}")) });
        turn = if op < 5 { turn.steps(1) } else { turn.completing("out") };
    }
    worker.commit_done(turn).await;
    claimed.run
}

async fn turns(case: &Case, run: RunId) -> Vec<TurnRecord> {
    case.world.history(run, 0, 100).await.expect("the run exists")
}

/// The fork of a run at an event.
async fn new_fork(case: &Case, of: RunId, at: u64) -> Fork {
    let history = turns(case, of).await;
    let plan = ForkPlan::of(&history, ForkPoint::At(at), false).expect("it can be forked");
    let origin = plan.origin(of, Some("ada".into()));
    let rewritten = history.iter().filter(|turn| plan.rewrites().contains(&turn.seq)).cloned().collect();
    let start = Start { tags: plan.tags(of), priority: 3, key: None, ..case.new_start("wf") };
    Fork {
        rewritten: plan.rewrite(rewritten, &origin, &BTreeMap::new()),
        start,
        ranges: plan.ranges().to_vec(),
        copied: plan.copied(),
        replay_from: plan.replay_from(),
        continued: plan.continued(),
        messages: Vec::new(),
        origin,
    }
}

/// A fork is a run of its own: it is ready at once, with the copied turns, its own row, and its messages.
pub async fn a_fork_has_the_turns_before_the_cut(case: Case) {
    let worker = case.join("wf").await;
    let of = worked(&case, &worker).await;
    let mut fork = new_fork(&case, of, 6).await;
    let (run, before) = (fork.start.run, turns(&case, of).await);
    fork.messages = vec![case.new_message(run, "x"), case.new_message(run, "y")];
    let started = case.world.fork(fork.clone()).await.expect("a run is forked");
    assert_eq!((started.run, started.is_new), (run, true));
    let (copy, now) = (turns(&case, run).await, turns(&case, of).await);
    assert_eq!(before, now, "the other run is not changed");
    let numbers: Vec<_> = copy.iter().map(|turn| (turn.seq, turn.events.len())).collect();
    assert_eq!(numbers, [(0, 1), (1, 1), (2, 2), (4, 2)]);
    assert_eq!(copy[1..3], before[1..3], "copied turns are identical");
    assert_eq!((copy[0].at, copy[3].at, &copy[3].build), (before[0].at, before[3].at, &before[3].build));
    let Event::RunStarted(begin) = &copy[0].events[0] else { panic!("{copy:?}") };
    assert_eq!(begin.forked.as_deref(), Some(&fork.origin));
    let view = case.view(run).await;
    assert_eq!((view.status, view.priority, view.owner, view.ended_at), (Status::Pending, 3, None, None));
    assert_eq!((view.forked_from(), view.sent, view.consumed), (Some(of), 2, 0));
    assert!(view.created_at >= copy[3].at && view.parent.is_none() && view.key.is_none());
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.run, claimed.seq, claimed.turn), (run, 6, copy[3].id));
    assert_eq!((claimed.turn_at, claimed.is_fresh, claimed.inbox.len()), (copy[3].at, false, 2));
    worker.commit_done(case.turn(&claimed).consuming(2).completing("other")).await;
    assert_eq!(case.world.event_count(run).await, Ok(7));
    let past = outlast_core::Timestamp::from_micros(0);
    let ended = case.world.ended(run, past).await.unwrap().expect("it has ended");
    assert_eq!(ended.outcome, Outcome::Completed(text("other")));
}

/// Forks are counted and listed as other runs.
pub async fn forks_are_counted_and_found_by_their_tag(case: Case) {
    let worker = case.join("wf").await;
    let of = worked(&case, &worker).await;
    let fork = new_fork(&case, of, 4).await;
    case.world.fork(fork.clone()).await.unwrap();
    let counts = case.counts().await;
    assert_eq!((counts[&Status::Pending], counts[&Status::Completed]), (1, 1));
    let tags = Tags::from([(FORKED_FROM.to_owned(), of.to_string())]);
    assert_eq!(case.listed(RunQuery { tags, limit: 10, ..RunQuery::default() }).await, [fork.start.run]);
}

/// Repeating the call changes nothing, whatever has become of both runs since.
pub async fn forking_again_with_the_same_id_changes_nothing(case: Case) {
    let worker = case.join("wf").await;
    let of = worked(&case, &worker).await;
    let mut fork = new_fork(&case, of, 4).await;
    fork.messages = vec![case.new_message(fork.start.run, "x")];
    let first = case.world.fork(fork.clone()).await.unwrap();
    assert_eq!(case.world.fork(fork.clone()).await, Ok(first));
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).consuming(1).completing("out")).await;
    worker.settle().await;
    case.world.delete(of).await.expect("it has ended");
    assert_eq!(case.world.fork(fork).await, Ok(first));
    assert_eq!((case.status(first.run).await, case.view(first.run).await.sent), (Status::Completed, 1));
    assert_eq!(case.counts().await[&Status::Completed], 1);
}

/// What a replay skips stays behind.
pub async fn a_fork_copies_only_the_turns_in_its_ranges(case: Case) {
    let worker = case.join("wf").await;
    let of = worked(&case, &worker).await;
    let whole = new_fork(&case, of, 6).await;
    assert_eq!((&whole.ranges[..], whole.copied), (&[1..=2][..], 2));
    for range in [1..=4, 6..=6] {
        let wrong = Fork { ranges: vec![range], copied: 1, ..whole.clone() };
        assert_refused!(case.world.fork(wrong).await, Invalid);
    }
    let fork = Fork { ranges: vec![2..=3], copied: 1, ..whole };
    case.world.fork(fork.clone()).await.expect("a run is forked");
    let copy = turns(&case, fork.start.run).await;
    assert_eq!(copy.iter().map(|turn| turn.seq).collect::<Vec<_>>(), [0, 2, 4]);
    assert_eq!(case.world.event_count(fork.start.run).await, Ok(6));
}

/// A fork with too many messages is refused, and leaves nothing behind.
pub async fn a_fork_has_limited_messages(case: Case) {
    let worker = case.join("wf").await;
    let of = worked(&case, &worker).await;
    let mut fork = new_fork(&case, of, 4).await;
    let run = fork.start.run;
    fork.messages = (0..=FORK_OUTPUTS_MAX).map(|_| case.new_message(run, "x")).collect();
    assert_refused!(case.world.fork(fork.clone()).await, Invalid);
    assert_refused!(case.world.run(run).await, NotFound);
    worker.claim_nothing().await;
    fork.messages.pop();
    case.world.fork(fork).await.expect("a run is forked");
    assert_eq!(case.view(run).await.sent, FORK_OUTPUTS_MAX as u64);
}

/// The two runs do not depend on each other.
pub async fn a_fork_outlives_the_other_run(case: Case) {
    let worker = case.join("wf").await;
    let of = worked(&case, &worker).await;
    let fork = new_fork(&case, of, 6).await;
    case.world.fork(fork.clone()).await.unwrap();
    let before = turns(&case, fork.start.run).await;
    worker.settle().await;
    case.world.delete(of).await.expect("it has ended");
    assert_refused!(case.world.history(of, 0, 1).await, NotFound);
    assert_eq!(turns(&case, fork.start.run).await, before);
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    assert_eq!(case.status(fork.start.run).await, Status::Completed);
}

/// A fork is refused if the other run does not exist, or does not have the turns any more that are to be copied.
pub async fn a_fork_without_its_turns_is_refused(case: Case) {
    let worker = case.join("wf").await;
    let of = worked(&case, &worker).await;
    let fork = new_fork(&case, of, 6).await;
    let missing = RunId::from_bits(7);
    let unknown = Fork { origin: ForkOrigin { of: missing, ..fork.origin.clone() }, ..fork.clone() };
    assert_refused!(case.world.fork(unknown).await, NotFound);
    let changed = Fork { copied: fork.copied + 1, ..fork.clone() };
    assert_refused!(case.world.fork(changed).await, Conflict);
    let short = Fork { origin: ForkOrigin { at: 7, ..fork.origin.clone() }, ..fork.clone() };
    assert_refused!(case.world.fork(short).await, Invalid);
    assert_refused!(case.world.run(fork.start.run).await, NotFound);
    assert_eq!(case.counts().await.get(&Status::Pending).copied().unwrap_or(0), 0);
    case.world.fork(fork).await.expect("nothing has changed");
}

/// A worker that cannot read the beginning of a fork does not get it.
pub async fn an_older_worker_gets_no_forks(case: Case) {
    let join = Join { format: 2, ..case.new_join(&[("wf", 1)]) };
    let old = case.join_with(case.other_handle().await, join).await;
    let of = worked(&case, &old).await;
    let fork = new_fork(&case, of, 4).await;
    case.world.fork(fork.clone()).await.unwrap();
    old.claim_nothing().await;
    assert_eq!(case.join("wf").await.claim_one().await.run, fork.start.run);
}
