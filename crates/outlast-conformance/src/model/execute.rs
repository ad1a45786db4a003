//! Applies operations to a world and to the model, and compares.

use std::fmt::Debug;
use std::time::Duration;

use outlast_core::event::format_of_rules;
use outlast_core::turn::BasedOn;
use outlast_core::{
    BuiltInRuns, ClaimRequest, Effects, Join, ListOrder, Message, MessageBody, MessageId, QueuedSteps,
    Report, RunQuery, RunView, SessionId, Timestamp, Turn, Work, World, WorldError,
};

use super::op::Op;
use super::runs::{Model, Refusal, without_update_times};
use super::values::{self, PastCalls, pick};
use super::work::{ClaimFacts, ExpectedWork};
use crate::suite::{Case, one};

/// Applies the operations. Fails at the first difference between world and model.
pub(super) async fn execute(case: &Case, ops: &[Op]) -> Result<(), String> {
    let (mut model, mut past) = (Model::default(), PastCalls::default());
    model.outboxes.are_deferred = case.world.describe().effects == Effects::Deferred;
    for (index, op) in ops.iter().enumerate() {
        let compared = match op {
            Op::Start { .. } | Op::RepeatStart { .. } | Op::Send { .. } | Op::RepeatSend { .. } => {
                execute_client_call(case, op, &mut model, &mut past).await
            }
            Op::Commit { .. } | Op::CommitStart { .. } | Op::RepeatCommit { .. } => {
                execute_commit(case, op, &mut model, &mut past).await
            }
            _ => execute_session_call(case, op, &mut model, &mut past).await,
        };
        let compared = match compared {
            Ok(()) => compare(case, &model).await,
            refused => refused,
        };
        compared.map_err(|difference| format!("operation {index}, {op:?}: {difference}"))?;
    }
    compare_histories(case, &model).await
}

async fn execute_client_call(
    case: &Case,
    op: &Op,
    model: &mut Model,
    past: &mut PastCalls,
) -> Result<(), String> {
    let now = case.clock.now();
    let start = match op {
        Op::Start { start } => values::start(case, *start),
        Op::RepeatStart { start } => match pick(&past.starts, *start) {
            Some(start) => start.clone(),
            None => return Ok(()),
        },
        Op::Send { run, kind } => {
            let Some(run) = pick(&model.runs, *run).map(|run| run.view.id) else { return Ok(()) };
            let message = values::message(case, run, *kind);
            past.messages.push(message.clone());
            return compare_answers("send", case.try_send(message.clone()).await, model.send(message, now));
        }
        Op::RepeatSend { message } => {
            let Some(message) = pick(&past.messages, *message).cloned() else { return Ok(()) };
            return compare_answers("send", case.try_send(message.clone()).await, model.send(message, now));
        }
        _ => return Ok(()),
    };
    past.starts.push(start.clone());
    let expected = model.start(start.clone(), now).map_err(Refusal::from);
    compare_answers("start", case.try_start(start).await, expected)
}

async fn execute_commit(case: &Case, op: &Op, model: &mut Model, past: &mut PastCalls) -> Result<(), String> {
    let (session, turn) = match op {
        Op::Commit { run, shape, mistake } => match values::turn(case, model, past, *run, shape, *mistake) {
            Some(turn) => turn,
            None => return Ok(()),
        },
        Op::CommitStart { session, start, shape } => {
            let Some((_, join, _)) = pick(&past.workers, *session) else { return Ok(()) };
            let join = join.clone();
            let turn = case.starting_turn(values::start(case, *start));
            (join.session, values::finish_turn(case, model, past, turn, shape, &join.build))
        }
        Op::RepeatCommit { turn } => match pick(&past.turns, *turn).cloned() {
            // Worlds may differ in their answers to an old turn of an ended session, to a repeated start of a run
            // that has advanced, and to a turn from before a crash.
            Some((session, turn)) if model.is_live(session) && is_plain_repeat(model, &turn) => {
                (session, turn)
            }
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    past.turns.push((session, turn.clone()));
    let answer = one(case.world.commit(session, std::slice::from_ref(&turn)).await);
    compare_answers("commit", answer, model.commit(session, turn, case.clock.now()))
}

fn is_plain_repeat(model: &mut Model, turn: &Turn) -> bool {
    let Some(run) = model.find(turn.run) else { return true };
    run.turn == turn.id || matches!(turn.based_on, BasedOn::Turn(_)) && *turn.columns.before == run.columns()
}

async fn execute_session_call(
    case: &Case,
    op: &Op,
    model: &mut Model,
    past: &mut PastCalls,
) -> Result<(), String> {
    let now = case.clock.now();
    let (Op::Beat { session, .. }
    | Op::Claim { session, .. }
    | Op::Deliver { session }
    | Op::Takeover { session }
    | Op::Leave { session }
    | Op::Crash { session }) = op
    else {
        return execute_other(case, op, model, past).await;
    };
    let Some(index) = session.checked_rem(past.workers.len()) else { return Ok(()) };
    let (worker, join, is_elsewhere) = &mut past.workers[index];
    let (id, world) = (join.session, case.world.clone());
    match op {
        Op::Beat { live, details, .. } => {
            let mut report = Report::default();
            report.live = *live;
            let details = values::details(model, id, details);
            let beat = world.beat(id, &report, &details).await.map(|beat| (beat.held, beat.rules));
            compare_answers("beat", beat, model.beat(id, report, details, now))
        }
        // A world that applies outboxes with the commit has nothing to deliver.
        Op::Deliver { .. } if !model.outboxes.are_deferred => Ok(()),
        Op::Deliver { .. } => {
            compare_answers("deliver", deliver_all(&*world, id).await, model.deliver(id, now))
        }
        &Op::Claim { limit, suspects, ends_overdue_in_micros, .. } => {
            let Some(worker) = worker else { return Ok(()) };
            let later = |micros| now.plus(Duration::from_micros(micros));
            let ends_overdue_from = ends_overdue_in_micros.map_or(Timestamp::NEVER, later);
            let request = ClaimRequest { limit, suspects, ends_overdue_from, ..worker.request() };
            let expected = model.claim(id, &request, now);
            let is_compared = expected.as_ref().is_ok_and(|work_facts| work_facts.next_due.is_some());
            let work = world.claim(id, request).await.map(|work| work_facts(work, is_compared));
            compare_answers("claim", work, expected)
        }
        Op::Takeover { .. } => compare_answers("takeover", world.takeover(id).await, model.takeover(id, now)),
        Op::Leave { .. } => {
            model.leave(id, now);
            compare_answers("leave", world.leave(id).await, Ok(()))
        }
        _ => {
            if *is_elsewhere && let Some(worker) = worker.take() {
                let dead = model.sessions.iter_mut().find(|session| session.join.session == id);
                dead.into_iter().for_each(|session| session.is_dead = true);
                case.crash(worker).await;
            }
            Ok(())
        }
    }
}

/// Delivers until nothing is left. Returns how many effects were applied.
async fn deliver_all(world: &dyn World, session: SessionId) -> Result<u64, WorldError> {
    let mut applied = 0;
    loop {
        let delivered = world.deliver(session).await?;
        applied += delivered.applied;
        if delivered.left == 0 {
            return Ok(applied);
        }
    }
}

/// Joins a worker that claims all available runs and crashes; another worker takes over.
async fn execute_claim_and_crash(
    case: &Case,
    (code, queues, takeover_by): (usize, usize, usize),
    model: &mut Model,
    past: &PastCalls,
) -> Result<(), String> {
    let now = case.clock.now();
    let join = Join { queues: values::queues(queues), ..case.new_join(&code_of(code)) };
    model.join(join.clone(), now);
    let worker = case.join_with(case.other_handle().await, join).await;
    let (id, request) = (worker.session, worker.request());
    let expected = model.claim(id, &request, now);
    let is_compared = expected.as_ref().is_ok_and(|work_facts| work_facts.next_due.is_some());
    let work = worker.world.claim(id, request).await.map(|work| work_facts(work, is_compared));
    compare_answers("claim", work, expected)?;
    let dead = model.sessions.iter_mut().find(|session| session.join.session == id);
    dead.into_iter().for_each(|session| session.is_dead = true);
    case.crash(worker).await;
    let Some((_, join, _)) = pick(&past.workers, takeover_by) else { return Ok(()) };
    compare_answers("takeover", case.world.takeover(join.session).await, model.takeover(join.session, now))
}

fn code_of(number: usize) -> Vec<(&'static str, u32)> {
    [vec![("a", 1), ("step:s", 1), ("b", 1)], vec![("a", 1)], vec![("b", 1)], vec![]][number].clone()
}

async fn execute_other(case: &Case, op: &Op, model: &mut Model, past: &mut PastCalls) -> Result<(), String> {
    let now = case.clock.now();
    match op {
        Op::Join { build, code, queues, rules, is_elsewhere } => {
            let (build, queues) = (format!("build-{build}").into(), values::queues(*queues));
            let (rules, format) = (*rules, format_of_rules(*rules));
            let join = Join { build, queues, rules, format, ..case.new_join(&code_of(*code)) };
            model.join(join.clone(), now);
            let world = if *is_elsewhere { case.other_handle().await } else { case.world.clone() };
            let worker = case.join_with(world, join.clone()).await;
            past.workers.push((Some(worker), join, *is_elsewhere));
        }
        &Op::ClaimAllAndCrash { code, queues, takeover_by } => {
            return execute_claim_and_crash(case, (code, queues, takeover_by), model, past).await;
        }
        Op::Resume { run } => {
            let Some(run) = pick(&model.runs, *run).map(|run| run.view.id) else { return Ok(()) };
            return compare_answers("resume", case.world.resume(run).await, model.resume(run, now));
        }
        Op::Prune { ended_micros_ago, after, limit } => {
            let before = values::time_before(now, *ended_micros_ago);
            let after = after.and_then(|after| pick(&model.runs, after)).map(|run| run.view.id);
            let pruned = case.world.prune(before, after, *limit).await;
            return compare_answers("prune", pruned, Ok(model.prune(before, after, *limit)));
        }
        Op::List { query } => {
            let query = values::query(model, *query);
            let page = case.world.runs(query.clone()).await.map(|mut page| {
                page.runs = page.runs.into_iter().map(without_update_times).collect();
                page
            });
            return compare_answers("list", page, Ok(model.page(&query)));
        }
        Op::Advance { micros } => case.clock.advance(Duration::from_micros(*micros)),
        _ => {}
    }
    Ok(())
}

fn work_facts(work: Work, is_next_due_compared: bool) -> ExpectedWork {
    let claimed = work.claimed.into_iter().map(|run| ClaimFacts {
        run: run.run,
        turn: run.turn,
        turn_at: run.turn_at,
        seq: run.seq,
        consumed: run.consumed,
        inbox: without_answer_ids(run.inbox),
        columns: (*run.columns).clone(),
        is_fresh: run.is_fresh,
        is_overdue: run.is_overdue,
        turns: run.history.whole().map(|history| history.len()),
        details: run.details,
    });
    let unread = work.unread.into_iter().map(|unread| (unread.run, without_answer_ids(unread.messages)));
    let mut unread: Vec<_> = unread.collect();
    unread.sort_by_key(|(run, _)| *run);
    ExpectedWork {
        claimed: claimed.collect(),
        unread,
        next_due: is_next_due_compared.then_some(work.next_due),
    }
}

/// Compares runs, counts and workers.
async fn compare(case: &Case, model: &Model) -> Result<(), String> {
    let queued_steps = QueuedSteps::Listed;
    let built_in = BuiltInRuns::Listed;
    let query = RunQuery {
        queued_steps,
        built_in,
        order: ListOrder::OldestFirst,
        limit: 1_000,
        ..RunQuery::default()
    };
    let runs = case
        .world
        .runs(query)
        .await
        .map(|page| page.runs.into_iter().map(without_update_times).collect::<Vec<_>>());
    let (mut runs, mut expected) = (runs.map_err(|error| error.to_string())?, model.views());
    let alike: Vec<RunView> = runs.iter().filter(|run| expected.contains(run)).cloned().collect();
    runs.retain(|run| !alike.contains(run));
    expected.retain(|run| !alike.contains(run));
    compare_answers("runs", Ok(runs), Ok(expected))?;
    compare_answers("counts", Ok(case.counts().await), Ok(model.counts()))?;
    let workers = case.world.workers().await.map(|workers| {
        let facts = workers.into_iter().map(|worker| {
            let times = (worker.beat_at, worker.expires_at);
            (worker.session, times, worker.held, worker.queues, worker.report)
        });
        facts.collect::<Vec<_>>()
    });
    let expected = model.sessions.iter().map(|session| {
        let (id, queues) = (session.join.session, &session.join.queues);
        let queues = queues.iter().map(ToString::to_string).collect();
        let times = (session.beat_at, session.expires_at);
        (id, times, model.held(id).len() as u64, queues, session.report.clone())
    });
    compare_answers("workers", workers, Ok(expected.collect()))
}

async fn compare_histories(case: &Case, model: &Model) -> Result<(), String> {
    for run in &model.runs {
        let history = case.world.history(run.view.id, 0, usize::MAX).await;
        compare_answers("history", history, Ok(run.history.clone()))?;
        let unread = case.world.inbox(run.view.id, run.view.consumed).await;
        compare_answers("inbox", unread.map(without_answer_ids), Ok(run.unread().to_vec()))?;
    }
    for session in &model.sessions {
        let held = case.world.held(session.join.session).await;
        let held = held.map(|held| held.iter().map(|held| held.run).collect::<Vec<_>>());
        let mut expected = model.held(session.join.session);
        expected.sort();
        compare_answers("held", held, Ok(expected))?;
    }
    Ok(())
}

/// The messages, without the ids of answers to parents: worlds choose those.
fn without_answer_ids(mut messages: Vec<Message>) -> Vec<Message> {
    for message in &mut messages {
        if matches!(message.body, MessageBody::ChildStarted { .. } | MessageBody::Refused { .. }) {
            message.id = MessageId::from_bits(0);
        }
    }
    messages
}

fn compare_answers<T: Debug + PartialEq>(
    call: &str,
    world: Result<T, outlast_core::WorldError>,
    model: Result<T, Refusal>,
) -> Result<(), String> {
    let world = world.map_err(Refusal::from);
    if world == model { Ok(()) } else { Err(format!("{call}\n  world: {world:?}\n  model: {model:?}")) }
}
