//! Children: runs that a turn starts, as one change with it.

use outlast_core::limits::{INBOX_MESSAGES_MAX, NAME_BYTES_MAX};
use outlast_core::refusal::{child_exists, child_refused, key_taken};
use outlast_core::turn::Committed;
use outlast_core::{
    ClaimRequest, FailureKind, MessageBody, NewChild, OpNumber, Policy, Retry, RunId, Start, Started, Status,
    Then,
};

use super::case::text;
use super::turn_ext::{TurnExt, stuck, wait};
use super::{Case, all, assert_refused};

/// The last turn of a run can start another run, which does not concern it: the step after its end.
pub async fn the_last_turn_of_a_run_can_start_another_one(case: Case) {
    let worker = case.join("wf").await;
    case.try_start(case.new_start("wf")).await.unwrap();
    let claimed = worker.claim_one().await;
    let mut child = case.new_child(claimed.run, 3, "step:notify");
    child.start.parent.as_mut().unwrap().awaits = false;
    let turn = case.turn(&claimed).child(child.clone()).completing("out");
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn).await;
    let view = case.view(child.start.run).await;
    assert_eq!((view.status, view.parent), (Status::Pending, child.start.parent));
    let starting = case.starting_turn(case.new_start("wf"));
    let mut child = case.new_child(starting.run, 3, "step:notify");
    child.start.parent.as_mut().unwrap().awaits = false;
    worker.commit_done(starting.child(child.clone()).failing()).await;
    assert_eq!(case.status(child.start.run).await, Status::Pending);
}

/// The message to a parent when a child was started, or found.
fn started(child: &NewChild, run: RunId) -> MessageBody {
    MessageBody::ChildStarted { op: child.start.parent.unwrap().op, run }
}

/// A child whose parent is told the id of its run.
fn asking(child: NewChild) -> NewChild {
    NewChild { notify_parent: true, ..child }
}

/// A child with a key.
fn keyed(case: &Case, parent: RunId, workflow: &str, key: &str) -> NewChild {
    let child = case.new_child(parent, 3, workflow);
    let parent = child.start.parent;
    NewChild { start: Start { parent, ..case.new_keyed_start(workflow, key, "in") }, ..child }
}

/// A child is an ordinary run that stores its parent.
pub async fn a_child_is_started_with_its_parents_turn(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let child = case.new_child(parent.run, 3, "child");
    worker.commit_done(case.turn(&parent).steps(1).child(child.clone())).await;
    let view = case.view(child.start.run).await;
    assert_eq!((view.status, view.owner, view.parent), (Status::Pending, None, child.start.parent));
    assert_eq!((view.root(), case.view(parent.run).await.root()), (parent.run, parent.run));
    let history = case.world.history(view.id, 0, 10).await.unwrap();
    assert_eq!(history, [child.start.first_turn(case.clock.now())]);
    assert_eq!(case.counts().await, [(Status::Pending, 1), (Status::Running, 1)].into());
    let claimed = case.join("child").await.claim_one().await;
    assert_eq!((claimed.run, claimed.is_fresh), (view.id, true));
}

/// Every option of a start applies to a child as well.
pub async fn a_child_is_started_like_any_run(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let mut child = keyed(&case, parent.run, "child", "k");
    child.start.tags = [("shop".to_owned(), "7".to_owned())].into();
    child.start.headers = [("traceparent".to_owned(), "00-ab-cd".to_owned())].into();
    child.start.not_before = Some(case.later(60));
    child.start.deadline = Some(case.later(120));
    let mut policy = Policy::DEFAULT;
    policy.retry = Retry::api();
    policy.is_at_most_once = true;
    child.start.policy = Some(Box::new(policy));
    worker.commit_done(case.turn(&parent).child(child.clone())).await;
    let view = case.view(child.start.run).await;
    assert_eq!((&view.tags, view.key.as_deref()), (&child.start.tags, Some("k")));
    assert_eq!((view.wake_at, view.deadline), (child.start.not_before, child.start.deadline));
    let other = case.join("child").await;
    other.claim_nothing().await;
    case.clock.advance("1m");
    let claimed = other.claim_one().await;
    assert_eq!(claimed.history.whole().unwrap()[0].events, [child.start.event()]);
}

/// There is no answer for a child that was started as requested, unless the parent wants one.
pub async fn a_started_child_sends_no_message(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let child = case.new_child(parent.run, 3, "child");
    worker.commit_done(case.turn(&parent).steps(1).child(child).then(wait())).await;
    worker.claim_nothing().await;
    assert_eq!(
        (case.status(parent.run).await, case.inbox_bodies(parent.run).await.len()),
        (Status::Waiting, 0)
    );
}

/// A parent that wants an answer gets the id of the run, and its holder reads it with the next claim.
pub async fn a_parent_can_request_the_id_of_its_child(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let child = asking(case.new_child(parent.run, 3, "child"));
    worker.commit_done(case.turn(&parent).steps(1).child(child.clone())).await;
    assert_eq!(case.inbox_bodies(parent.run).await, [started(&child, child.start.run)]);
    let unread = worker.work(worker.request()).await.unread;
    assert_eq!((unread.len(), unread[0].run, unread[0].messages.len()), (1, parent.run, 1));
    assert_eq!((unread[0].messages[0].position, unread[0].messages[0].at), (1, case.clock.now()));
}

/// An answer to the turn with which the parent begins to wait is not lost.
pub async fn an_answer_wakes_a_parent_that_goes_to_wait_with_the_same_turn(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let child = asking(case.new_child(parent.run, 3, "child"));
    worker.commit_done(case.turn(&parent).steps(1).child(child).then(wait())).await;
    let again = worker.claim_one().await;
    assert_eq!((again.run, again.consumed, again.inbox.len()), (parent.run, 0, 1));
}

/// A turn can start children and consume messages: the answers follow the messages that it has read.
pub async fn an_answer_is_behind_what_the_turn_has_read(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    case.send_payload(run, "a").await;
    let parent = worker.claim_one().await;
    let child = asking(case.new_child(run, 3, "child"));
    worker.commit_done(case.turn(&parent).steps(1).child(child).then(wait())).await;
    let view = case.view(run).await;
    assert_eq!((view.sent, view.consumed), (2, 1));
    assert_eq!(worker.claim_one().await.inbox[0].position, 2);
}

/// The answers of one turn come in the order of its children, each as a message of its own.
pub async fn answers_come_in_the_order_of_the_children(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let children: Vec<_> = (0..3).map(|op| asking(case.new_child(parent.run, op, "child"))).collect();
    let turn = children.iter().fold(case.turn(&parent).steps(1), |turn, child| turn.child(child.clone()));
    worker.commit_done(turn.clone()).await;
    let later = asking(case.new_child(parent.run, 3, "child"));
    worker.commit_done(case.turn_after(&turn).steps(1).child(later.clone())).await;
    let expected: Vec<_> =
        children.iter().chain([&later]).map(|child| started(child, child.start.run)).collect();
    assert_eq!(case.inbox_bodies(parent.run).await, expected);
}

/// A refused start of a child is reported to its parent and does not fail the commit; its siblings are started.
pub async fn a_refused_child_is_told_to_its_parent(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let long = case.new_child(parent.run, 1, &"n".repeat(NAME_BYTES_MAX + 1));
    let mut early = case.new_child(parent.run, 2, "child");
    early.start.not_before = Some(case.later(60));
    early.start.deadline = early.start.not_before;
    let sibling = case.new_child(parent.run, 3, "child");
    let turn = case.turn(&parent).steps(1).child(long.clone()).child(early.clone()).child(sibling.clone());
    worker.commit_done(turn.then(wait())).await;
    let bodies = case.inbox_bodies(parent.run).await;
    let kinds = bodies.iter().map(|body| match body {
        MessageBody::Refused { op, failure } => (op.0, failure.kind),
        other => panic!("{other:?}"),
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [(1, FailureKind::Limit), (2, FailureKind::Invalid)]);
    assert_refused!(case.world.run(long.start.run).await, NotFound);
    assert_refused!(case.world.run(early.start.run).await, NotFound);
    assert_eq!(case.status(sibling.start.run).await, Status::Pending);
    assert_eq!(worker.claim_one().await.inbox.len(), 2, "a refusal wakes the parent");
}

/// A key that names a run of another workflow is refused in the words of a start.
pub async fn a_child_with_another_workflows_key_is_refused(case: Case) {
    let taken = case.try_start(case.new_keyed_start("other", "k", "in")).await.unwrap().run;
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let (silent, known) =
        (keyed(&case, parent.run, "child", "k"), asking(keyed(&case, parent.run, "child", "k")));
    worker.commit_done(case.turn(&parent).steps(1).child(silent.clone()).child(known.clone())).await;
    let refused = |child: &NewChild| {
        let failure = child_refused(&child.start, &key_taken(&child.start, taken, "other"));
        MessageBody::Refused { op: OpNumber(3), failure }
    };
    assert_eq!(case.inbox_bodies(parent.run).await, [refused(&silent), refused(&known)]);
    assert_refused!(case.world.run(silent.start.run).await, NotFound);
    assert_refused!(case.world.run(known.start.run).await, NotFound);
}

/// A detached child with a key is the run that the key names.
pub async fn a_parent_learns_which_run_the_key_of_its_child_names(case: Case) {
    let existing = case.try_start(case.new_keyed_start("child", "k", "in")).await.unwrap().run;
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let child = asking(keyed(&case, parent.run, "child", "k"));
    worker.commit_done(case.turn(&parent).steps(1).child(child.clone())).await;
    assert_eq!(case.inbox_bodies(parent.run).await, [started(&child, existing)]);
    assert_refused!(case.world.run(child.start.run).await, NotFound);
    assert_eq!(case.view(existing).await.parent, None, "it has not become a child");
}

/// An awaited child that was begun by another start is refused, because its end would not reach this parent.
pub async fn an_awaited_child_whose_key_names_a_run_is_refused(case: Case) {
    let existing = case.try_start(case.new_keyed_start("child", "k", "in")).await.unwrap().run;
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let child = keyed(&case, parent.run, "child", "k");
    worker.commit_done(case.turn(&parent).steps(1).child(child.clone())).await;
    let failure = child_exists(&child.start, existing);
    assert_eq!(case.inbox_bodies(parent.run).await, [MessageBody::Refused { op: OpNumber(3), failure }]);
    assert_refused!(case.world.run(child.start.run).await, NotFound);
}

/// The key of a child names it to everyone, and to a sibling in the same turn.
pub async fn the_key_of_a_child_names_it(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let first = asking(keyed(&case, parent.run, "child", "k"));
    let second = asking(keyed(&case, parent.run, "child", "k"));
    let run = first.start.run;
    worker.commit_done(case.turn(&parent).steps(1).child(first.clone()).child(second.clone())).await;
    assert_eq!(case.inbox_bodies(parent.run).await, [started(&first, run), started(&second, run)]);
    let later = case.try_start(case.new_keyed_start("child", "k", "in")).await;
    assert_eq!(later, Ok(Started { run, is_new: false }));
}

/// A child whose id is there already was started by a first try of its operation.
pub async fn a_child_that_exists_counts_as_started(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let silent = keyed(&case, parent.run, "child", "k");
    let known = asking(case.new_child(parent.run, 4, "child"));
    let turn = case.turn(&parent).steps(1).child(silent.clone()).child(known.clone());
    worker.commit_done(turn.clone()).await;
    let again = case.turn_after(&turn).steps(1).child(silent.clone()).child(known.clone());
    worker.commit_done(again).await;
    let run = known.start.run;
    assert_eq!(case.inbox_bodies(parent.run).await, [started(&known, run), started(&known, run)]);
    assert_eq!(case.kinds(silent.start.run).await, ["run_started"]);
    assert_eq!(case.counts().await[&Status::Pending], 2);
}

/// A repeated turn starts nothing twice and sends nothing twice, also after it released its run.
pub async fn a_repeated_turn_has_its_children_once(case: Case) {
    let worker = case.join("wf").await;
    for then in [Then::Hold, wait(), Then::Release] {
        let parent = case.held(&worker).await;
        let child = asking(case.new_child(parent.run, 3, "child"));
        let turn = case.turn(&parent).steps(1).child(child.clone()).then(then);
        worker.commit_done(turn.clone()).await;
        worker.commit_done(turn).await;
        assert_eq!(case.inbox_bodies(parent.run).await, [started(&child, child.start.run)]);
        assert_eq!(case.kinds(child.start.run).await, ["run_started"]);
        case.clock.advance("1s");
        worker.claim().await;
    }
}

/// Repeating the turn that started a child does not deliver the child's end again.
pub async fn a_turn_repeated_after_its_child_ended_changes_nothing(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("child").await);
    let parent = case.held(&worker).await;
    let child = case.new_child(parent.run, 3, "child");
    let turn = case.turn(&parent).steps(1).child(child.clone()).then(wait());
    worker.commit_done(turn.clone()).await;
    let end = case.turn(&other.claim_one().await).completing("out");
    other.commit_done(end).await;
    worker.commit_done(turn).await;
    assert_eq!(case.kinds(child.start.run).await, ["run_started", "run_completed"]);
    other.claim_nothing().await;
}

/// A turn that ends its run starts children too, and gets no answers.
pub async fn a_turn_that_ends_its_run_is_told_nothing(case: Case) {
    case.try_start(case.new_keyed_start("other", "k", "in")).await.unwrap();
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let child = asking(case.new_child(parent.run, 3, "child"));
    let refused = keyed(&case, parent.run, "child", "k");
    worker.commit_done(case.turn(&parent).child(child.clone()).child(refused).completing("out")).await;
    let view = case.view(parent.run).await;
    assert_eq!((view.status, view.sent), (Status::Completed, 0));
    assert_eq!(case.status(child.start.run).await, Status::Pending);
}

/// A stuck turn decides nothing: it starts nothing, sends nothing and sets no tag.
pub async fn a_stuck_turn_does_nothing_beyond_its_run(case: Case) {
    let worker = case.join("wf").await;
    let (bystander, parent) = (case.parked(&worker, wait()).await, case.held(&worker).await);
    let child = asking(case.new_child(parent.run, 3, "child"));
    let turn = case.turn(&parent).child(child.clone()).sending(case.new_cancel(bystander)).tagged("a", "1");
    worker.commit_done(turn.then(stuck())).await;
    assert_refused!(case.world.run(child.start.run).await, NotFound);
    let view = case.view(parent.run).await;
    assert_eq!((view.status, view.sent, view.tags.len()), (Status::Stuck, 0, 0));
    assert_eq!(case.view(bystander).await.sent, 0);
}

/// A refused turn has no effect on other runs.
pub async fn a_refused_turn_does_nothing_beyond_its_run(case: Case) {
    let worker = case.join("wf").await;
    let (bystander, parent) = (case.parked(&worker, wait()).await, case.held(&worker).await);
    case.send_payload(parent.run, "unread").await;
    let child = case.new_child(parent.run, 3, "child");
    let turn = case.turn(&parent).child(child.clone()).sending(case.new_cancel(bystander)).tagged("a", "1");
    let rival = case.join("wf").await;
    assert_refused!(rival.commit(turn.clone()).await, Fenced);
    assert_refused!(worker.commit(turn.firing(case.clock.now())).await, Conflict);
    assert_refused!(case.world.run(child.start.run).await, NotFound);
    assert_eq!((case.view(bystander).await.sent, case.view(parent.run).await.tags.len()), (0, 0));
}

/// A turn from a start may have children, and gets answers as any other.
pub async fn a_turn_from_a_start_may_have_children(case: Case) {
    let worker = case.join("wf").await;
    let turn = case.starting_turn(case.new_start("wf"));
    let child = asking(case.new_child(turn.run, 3, "child"));
    let turn = turn.child(child.clone()).then(wait());
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.inbox_bodies(turn.run).await, [started(&child, child.start.run)]);
    assert_eq!(worker.claim_one().await.inbox.len(), 1, "the answer has woken it");
    assert_eq!(case.kinds(child.start.run).await, ["run_started"]);
}

/// A turn from a start that holds its run receives the answer with its next claim.
pub async fn a_run_held_from_its_start_reads_its_answer(case: Case) {
    let worker = case.join("wf").await;
    let turn = case.starting_turn(case.new_start("wf"));
    let child = asking(case.new_child(turn.run, 3, "child"));
    worker.commit_done(turn.clone().child(child)).await;
    let unread = worker.work(ClaimRequest { limit: 0, ..worker.request() }).await.unread;
    assert_eq!((unread.len(), unread[0].run, unread[0].messages.len()), (1, turn.run, 1));
}

/// A turn from a start that writes nothing starts no children.
pub async fn a_turn_from_a_start_that_existed_has_no_children(case: Case) {
    let existing = case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap().run;
    let worker = case.join("other").await;
    let turn = case.starting_turn(case.new_keyed_start("wf", "k", "in"));
    let child = asking(case.new_child(turn.run, 3, "child"));
    let existed = Committed::Existed(Started { run: existing, is_new: false });
    assert_eq!(worker.commit(turn.child(child.clone()).tagged("a", "1")).await, Ok(existed));
    assert_refused!(case.world.run(child.start.run).await, NotFound);
    let view = case.view(existing).await;
    assert_eq!((view.sent, view.tags.len()), (0, 0));
}

/// Parents that use one key in one call get one child; each gets its own answer.
pub async fn one_key_in_two_turns_of_a_call_gives_one_child(case: Case) {
    let worker = case.join("wf").await;
    let parents = [case.held(&worker).await, case.held(&worker).await, case.held(&worker).await];
    let mut children = parents.each_ref().map(|parent| asking(keyed(&case, parent.run, "child", "k")));
    children[2].notify_parent = false;
    let turns: Vec<_> = parents
        .iter()
        .zip(&children)
        .map(|(parent, child)| case.turn(parent).steps(1).child(child.clone()))
        .collect();
    case.world.commit(worker.session, &turns).await.unwrap();
    worker.settle().await;
    let run = children[0].start.run;
    assert_eq!(case.inbox_bodies(parents[0].run).await, [started(&children[0], run)]);
    assert_eq!(case.inbox_bodies(parents[1].run).await, [started(&children[1], run)]);
    let failure = child_exists(&children[2].start, run);
    assert_eq!(case.inbox_bodies(parents[2].run).await, [MessageBody::Refused { op: OpNumber(3), failure }]);
    assert_eq!(case.counts().await, [(Status::Pending, 1), (Status::Running, 3)].into());
}

/// Parents in two processes that start a child with one key at the same time get one child.
pub async fn concurrent_children_with_one_key_are_one_run(case: Case) {
    let workers = [case.join("wf").await, case.join_elsewhere("wf").await];
    let mut turns = Vec::new();
    for index in 0..8 {
        let parent = case.held(&workers[index % 2]).await;
        turns.push(case.turn(&parent).steps(1).child(asking(keyed(&case, parent.run, "child", "k"))));
    }
    let commits = turns.iter().enumerate().map(|(index, turn)| workers[index % 2].commit_done(turn.clone()));
    all(commits).await;
    let mut runs = std::collections::BTreeSet::new();
    for turn in &turns {
        match &case.inbox_bodies(turn.run).await[..] {
            [MessageBody::ChildStarted { run, .. }] => runs.insert(*run),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!(case.counts().await[&Status::Pending], 1);
}

/// A refused turn starts none of its children; those of other turns in the batch are started.
pub async fn a_refused_turn_leaves_its_neighbours_children_alone(case: Case) {
    let worker = case.join("wf").await;
    let parents = [case.held(&worker).await, case.held(&worker).await, case.held(&worker).await];
    let children = parents.each_ref().map(|parent| case.new_child(parent.run, 3, "child"));
    let mut turns: Vec<_> = parents
        .iter()
        .zip(&children)
        .map(|(parent, child)| case.turn(parent).steps(1).child(child.clone()).tagged("a", "1"))
        .collect();
    turns[1].based_on = outlast_core::turn::BasedOn::Turn(turns[0].id);
    let answers = case.world.commit(worker.session, &turns).await.unwrap();
    worker.settle().await;
    assert_refused!(&answers[1], Fenced);
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert_refused!(case.world.run(children[1].start.run).await, NotFound);
    assert_eq!(case.counts().await, [(Status::Pending, 2), (Status::Running, 3)].into());
}

/// The effects of a turn are as durable as the turn.
pub async fn children_and_answers_survive_a_crash(case: Case) {
    let (heir, doomed) = (case.join("wf").await, case.join_elsewhere("wf").await);
    let parent = case.held(&doomed).await;
    let child = asking(case.new_child(parent.run, 3, "child"));
    doomed.commit_done(case.turn(&parent).steps(1).child(child.clone())).await;
    case.crash(doomed).await;
    heir.takeover().await;
    assert_eq!(heir.claim_one().await.inbox.len(), 1);
    assert_eq!(case.status(child.start.run).await, Status::Pending);
}

/// A full inbox still takes the answer: without it the parent would wait for ever.
pub async fn a_full_inbox_takes_an_answer(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let batch = (0..INBOX_MESSAGES_MAX).map(|_| case.new_message(parent.run, "x")).collect();
    case.world.send(batch).await.unwrap();
    let child = asking(case.new_child(parent.run, 3, "child"));
    worker.commit_done(case.turn(&parent).steps(1).child(child)).await;
    assert_eq!(case.view(parent.run).await.sent, INBOX_MESSAGES_MAX + 1);
}

/// A grandchild has the same root; a start stores its parent as given.
pub async fn a_parent_is_kept_as_it_was_told(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let mut child = case.new_child(parent.run, 3, "child");
    let root = RunId::from_bits(case.id());
    let parent_of_child = outlast_core::Parent { root, awaits: false, ..child.start.parent.unwrap() };
    child.start = Start { parent: Some(parent_of_child), input: text("in"), ..child.start };
    worker.commit_done(case.turn(&parent).child(child.clone())).await;
    let view = case.view(child.start.run).await;
    assert_eq!((view.parent, view.root()), (Some(parent_of_child), root));
    assert_eq!(case.world.history(view.id, 0, 1).await.unwrap()[0].events, [child.start.event()]);
}
