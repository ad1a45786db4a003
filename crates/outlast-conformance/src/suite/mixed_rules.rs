//! Workers of different builds: the rules and formats of new runs while an older build is joined.

use outlast_core::event::{RULES, format_of_rules};
use outlast_core::{ClaimRequest, Event, Join, Report, RunId, Start};

use super::turn_ext::TurnExt;
use super::{Case, TestWorker};

/// A worker of a build that knows the first rules and can read the first format.
async fn join_old(case: &Case, workflow: &str) -> TestWorker {
    let join = Join { rules: 1, format: 1, ..case.new_join(&[(workflow, 1)]) };
    case.join_with(case.other_handle().await, join).await
}

/// The rules of a run as its history says, and its format.
async fn rules(case: &Case, run: RunId) -> (u32, u32) {
    let history = case.world.history(run, 0, 1).await.unwrap();
    let Event::RunStarted(started) = &history[0].events[0] else { panic!("{history:?}") };
    (started.rules, case.view(run).await.format)
}

/// New runs get the lowest rules among those of the joined sessions, and the format of these rules.
pub async fn new_runs_get_the_lowest_rules_that_every_session_knows(case: Case) {
    let run = case.start("wf").await;
    assert_eq!(rules(&case, run).await, (RULES, format_of_rules(RULES)), "nobody is joined");
    let new = case.join("none").await;
    let old = join_old(&case, "wf").await;
    let run = case.start("wf").await;
    assert_eq!(rules(&case, run).await, (1, 1));
    assert_eq!(old.claim_one().await.run, run, "the older build is given it, and not the newer run");
    old.leave().await;
    assert_eq!(rules(&case, case.start("wf").await).await, (RULES, format_of_rules(RULES)));
    new.leave().await;
}

/// A start that requests lower rules gets those.
pub async fn a_start_may_ask_for_lower_rules(case: Case) {
    case.join("wf").await;
    let run = case.try_start(Start { rules: 1, ..case.new_start("wf") }).await.unwrap().run;
    assert_eq!(rules(&case, run).await, (1, 1));
}

/// Children get the rules of any new run.
pub async fn a_child_gets_the_lowest_rules(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    join_old(&case, "none").await;
    let child = case.new_child(parent.run, 1, "child");
    worker.commit_done(case.turn(&parent).steps(1).child(child.clone())).await;
    assert_eq!(rules(&case, child.start.run).await, (1, 1));
}

/// A run that a session starts by a turn keeps the rules that the turn was computed with.
pub async fn a_turn_from_a_start_keeps_its_rules(case: Case) {
    let worker = case.join("wf").await;
    let old = join_old(&case, "wf").await;
    let turn = case.starting_turn(case.new_start("wf")).then(outlast_core::Then::Release);
    worker.commit_done(turn.clone()).await;
    assert_eq!(rules(&case, turn.run).await, (RULES, format_of_rules(RULES)));
    old.claim_nothing().await;
}

/// A beat returns the rules of new runs. A session that was taken over does not count.
pub async fn a_beat_tells_the_rules_of_new_runs(case: Case) {
    let worker = case.join("wf").await;
    let beat = async || case.world.beat(worker.session, &Report::default(), &[]).await.unwrap().rules;
    assert_eq!(beat().await, RULES);
    let old = join_old(&case, "none").await;
    assert_eq!(beat().await, 1);
    case.crash(old).await;
    worker.takeover().await;
    assert_eq!(beat().await, RULES);
    assert_eq!(rules(&case, case.start("wf").await).await, (RULES, format_of_rules(RULES)));
}

/// A worker cannot claim a run whose format it cannot read.
pub async fn a_run_is_given_only_to_those_who_can_read_its_format(case: Case) {
    let run = case.start("wf").await;
    let worker = case.join("wf").await;
    let old = ClaimRequest { format: format_of_rules(RULES) - 1, ..worker.request() };
    let work = worker.work(old).await;
    assert!(work.claimed.is_empty());
    assert_eq!(work.next_due, None);
    assert_eq!(worker.claim_one().await.run, run);
}
