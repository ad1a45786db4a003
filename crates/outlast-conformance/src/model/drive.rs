//! Applies operations to a world and to the model, and compares.

use std::fmt::Debug;
use std::time::Duration;

use outlast_core::event::format_of_rules;
use outlast_core::turn::BasedOn;
use outlast_core::{
    ClaimRequest, Effects, Join, ListOrder, Message, MessageBody, MessageId, Page, QueuedSteps, Report,
    RunQuery, RunView, SessionId, Timestamp, Turn, Work, World, WorldError,
};

use super::make::{self, Done, pick};
use super::op::Op;
use super::runs::{Model, Refusal, timeless};
use super::work::{Brought, Facts};
use crate::suite::{Case, one};

/// Applies the operations; says where the world differs from the model.
pub(super) async fn drive(case: &Case, ops: &[Op]) -> Result<(), String> {
    let (mut model, mut done) = (Model::default(), Done::default());
    model.outboxes.are_deferred = case.world.describe().effects == Effects::Deferred;
    for (index, op) in ops.iter().enumerate() {
        let compared = match op {
            Op::Start { .. } | Op::RepeatStart { .. } | Op::Send { .. } | Op::RepeatSend { .. } => {
                drive_client(case, op, &mut model, &mut done).await
            }
            Op::Commit { .. } | Op::CommitStart { .. } | Op::RepeatCommit { .. } => {
                drive_commit(case, op, &mut model, &mut done).await
            }
            _ => drive_session(case, op, &mut model, &mut done).await,
        };
        let compared = match compared {
            Ok(()) => compare(case, &model).await,
            refused => refused,
        };
        compared.map_err(|difference| format!("operation {index}, {op:?}: {difference}"))?;
    }
    compare_histories(case, &model).await
}

async fn drive_client(case: &Case, op: &Op, model: &mut Model, done: &mut Done) -> Result<(), String> {
    let now = case.clock.now();
    let start = match op {
        Op::Start { start } => make::start(case, *start),
        Op::RepeatStart { start } => match pick(&done.starts, *start) {
            Some(start) => start.clone(),
            None => return Ok(()),
        },
        Op::Send { run, says } => {
            let Some(run) = pick(&model.runs, *run).map(|run| run.view.id) else { return Ok(()) };
            let message = make::message(case, run, *says);
            done.messages.push(message.clone());
            return same("send", case.try_send(message.clone()).await, model.send(message, now));
        }
        Op::RepeatSend { message } => {
            let Some(message) = pick(&done.messages, *message).cloned() else { return Ok(()) };
            return same("send", case.try_send(message.clone()).await, model.send(message, now));
        }
        _ => return Ok(()),
    };
    done.starts.push(start.clone());
    let expected = model.start(start.clone(), now).map_err(Refusal::from);
    same("start", case.try_start(start).await, expected)
}

async fn drive_commit(case: &Case, op: &Op, model: &mut Model, done: &mut Done) -> Result<(), String> {
    let (session, turn) = match op {
        Op::Commit { run, shape, mistake } => match make::turn(case, model, done, *run, shape, *mistake) {
            Some(turn) => turn,
            None => return Ok(()),
        },
        Op::CommitStart { session, start, shape } => {
            let Some((_, join, _)) = pick(&done.workers, *session) else { return Ok(()) };
            let join = join.clone();
            let turn = case.starting_turn(make::start(case, *start));
            (join.session, make::shaped(case, model, done, turn, shape, &join.build))
        }
        Op::RepeatCommit { turn } => match pick(&done.turns, *turn).cloned() {
            // What a session that is gone is told of an old turn is not fixed, nor is a repeated
            // start of a run that has gone on, nor a turn that does not know of a crash.
            Some((session, turn)) if model.lives(session) && is_plain_repeat(model, &turn) => (session, turn),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    done.turns.push((session, turn.clone()));
    let answer = one(case.world.commit(session, std::slice::from_ref(&turn)).await);
    same("commit", answer, model.commit(session, turn, case.clock.now()))
}

fn is_plain_repeat(model: &mut Model, turn: &Turn) -> bool {
    let Some(run) = model.find(turn.run) else { return true };
    run.turn == turn.id || matches!(turn.based_on, BasedOn::Turn(_)) && *turn.columns.before == run.columns()
}

async fn drive_session(case: &Case, op: &Op, model: &mut Model, done: &mut Done) -> Result<(), String> {
    let now = case.clock.now();
    let (Op::Beat { session, .. }
    | Op::Claim { session, .. }
    | Op::Deliver { session }
    | Op::Takeover { session }
    | Op::Leave { session }
    | Op::Crash { session }) = op
    else {
        return drive_rest(case, op, model, done).await;
    };
    let Some(index) = session.checked_rem(done.workers.len()) else { return Ok(()) };
    let (worker, join, is_elsewhere) = &mut done.workers[index];
    let (id, world) = (join.session, case.world.clone());
    match op {
        Op::Beat { live, details, .. } => {
            let report = Report { live: *live, ..Report::default() };
            let details = make::details(model, id, details);
            let beat = world.beat(id, &report, &details).await.map(|beat| (beat.held, beat.rules));
            same("beat", beat, model.beat(id, report, details, now))
        }
        // A world that applies outboxes with the commit has nothing to do, whoever asks.
        Op::Deliver { .. } if !model.outboxes.are_deferred => Ok(()),
        Op::Deliver { .. } => same("deliver", deliver_all(&*world, id).await, model.deliver(id, now)),
        &Op::Claim { limit, suspects, ends_overdue_in_micros, .. } => {
            let Some(worker) = worker else { return Ok(()) };
            let later = |micros| now.plus(Duration::from_micros(micros));
            let ends_overdue_from = ends_overdue_in_micros.map_or(Timestamp::NEVER, later);
            let request = ClaimRequest { limit, suspects, ends_overdue_from, ..worker.request() };
            let expected = model.claim(id, &request, now);
            let is_compared = expected.as_ref().is_ok_and(|brought| brought.next_due.is_some());
            let work = world.claim(id, request).await.map(|work| brought(work, is_compared));
            same("claim", work, expected)
        }
        Op::Takeover { .. } => same("takeover", world.takeover(id).await, model.takeover(id, now)),
        Op::Leave { .. } => {
            model.leave(id, now);
            same("leave", world.leave(id).await, Ok(()))
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

/// Delivers until nothing is left; answers how much was done.
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

/// Joins a worker that claims all it can get and crashes, and has another one take over.
async fn drive_doom(
    case: &Case,
    (code, queues, taker): (usize, usize, usize),
    model: &mut Model,
    done: &Done,
) -> Result<(), String> {
    let now = case.clock.now();
    let join = Join { queues: make::queues(queues), ..case.new_join(&code_of(code)) };
    model.join(join.clone(), now);
    let doomed = case.join_with(case.other_handle().await, join).await;
    let (id, request) = (doomed.session, doomed.request());
    let expected = model.claim(id, &request, now);
    let is_compared = expected.as_ref().is_ok_and(|brought| brought.next_due.is_some());
    let work = doomed.world.claim(id, request).await.map(|work| brought(work, is_compared));
    same("claim", work, expected)?;
    let dead = model.sessions.iter_mut().find(|session| session.join.session == id);
    dead.into_iter().for_each(|session| session.is_dead = true);
    case.crash(doomed).await;
    let Some((_, join, _)) = pick(&done.workers, taker) else { return Ok(()) };
    same("takeover", case.world.takeover(join.session).await, model.takeover(join.session, now))
}

fn code_of(number: usize) -> Vec<(&'static str, u32)> {
    [vec![("a", 1), ("step:s", 1), ("b", 1)], vec![("a", 1)], vec![("b", 1)], vec![]][number].clone()
}

async fn drive_rest(case: &Case, op: &Op, model: &mut Model, done: &mut Done) -> Result<(), String> {
    let now = case.clock.now();
    match op {
        Op::Join { build, code, queues, rules, is_elsewhere } => {
            let (build, queues) = (format!("build-{build}").into(), make::queues(*queues));
            let (rules, format) = (*rules, format_of_rules(*rules));
            let join = Join { build, queues, rules, format, ..case.new_join(&code_of(*code)) };
            model.join(join.clone(), now);
            let world = if *is_elsewhere { case.other_handle().await } else { case.world.clone() };
            let worker = case.join_with(world, join.clone()).await;
            done.workers.push((Some(worker), join, *is_elsewhere));
        }
        &Op::Doom { code, queues, taker } => {
            return drive_doom(case, (code, queues, taker), model, done).await;
        }
        Op::Resume { run } => {
            let Some(run) = pick(&model.runs, *run).map(|run| run.view.id) else { return Ok(()) };
            return same("resume", case.world.resume(run).await, model.resume(run, now));
        }
        Op::Prune { ended_micros_ago, after, limit } => {
            let before = make::ago_of(now, *ended_micros_ago);
            let after = after.and_then(|after| pick(&model.runs, after)).map(|run| run.view.id);
            let pruned = case.world.prune(before, after, *limit).await;
            return same("prune", pruned, Ok(model.prune(before, after, *limit)));
        }
        Op::List { query } => {
            let query = make::query(model, *query);
            let page = case
                .world
                .runs(query.clone())
                .await
                .map(|page| Page { runs: page.runs.into_iter().map(timeless).collect(), ..page });
            return same("list", page, Ok(model.page(&query)));
        }
        Op::Advance { micros } => case.clock.advance(Duration::from_micros(*micros)),
        _ => {}
    }
    Ok(())
}

fn brought(work: Work, is_next_due_compared: bool) -> Brought {
    let claimed = work.claimed.into_iter().map(|run| Facts {
        run: run.run,
        turn: run.turn,
        turn_at: run.turn_at,
        seq: run.seq,
        consumed: run.consumed,
        inbox: nameless(run.inbox),
        columns: (*run.columns).clone(),
        is_fresh: run.is_fresh,
        is_overdue: run.is_overdue,
        turns: run.history.whole().map(|history| history.len()),
        details: run.details,
    });
    let unread = work.unread.into_iter().map(|unread| (unread.run, nameless(unread.messages)));
    let mut unread: Vec<_> = unread.collect();
    unread.sort_by_key(|(run, _)| *run);
    Brought { claimed: claimed.collect(), unread, next_due: is_next_due_compared.then_some(work.next_due) }
}

/// Compares what everybody can see.
async fn compare(case: &Case, model: &Model) -> Result<(), String> {
    let queued_steps = QueuedSteps::Listed;
    let query = RunQuery { queued_steps, order: ListOrder::OldestFirst, limit: 1_000, ..RunQuery::default() };
    let runs =
        case.world.runs(query).await.map(|page| page.runs.into_iter().map(timeless).collect::<Vec<_>>());
    let (mut runs, mut expected) = (runs.map_err(|error| error.to_string())?, model.views());
    let alike: Vec<RunView> = runs.iter().filter(|run| expected.contains(run)).cloned().collect();
    runs.retain(|run| !alike.contains(run));
    expected.retain(|run| !alike.contains(run));
    same("runs", Ok(runs), Ok(expected))?;
    same("counts", Ok(case.counts().await), Ok(model.counts()))?;
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
    same("workers", workers, Ok(expected.collect()))
}

async fn compare_histories(case: &Case, model: &Model) -> Result<(), String> {
    for run in &model.runs {
        let history = case.world.history(run.view.id, 0, usize::MAX).await;
        same("history", history, Ok(run.history.clone()))?;
        let unread = case.world.inbox(run.view.id, run.view.consumed).await;
        same("inbox", unread.map(nameless), Ok(run.unread().to_vec()))?;
    }
    for session in &model.sessions {
        let held = case.world.held(session.join.session).await;
        let held = held.map(|held| held.iter().map(|held| held.run).collect::<Vec<_>>());
        let mut expected = model.held(session.join.session);
        expected.sort();
        same("held", held, Ok(expected))?;
    }
    Ok(())
}

/// The messages, without the names of answers: worlds choose those.
fn nameless(mut messages: Vec<Message>) -> Vec<Message> {
    for message in &mut messages {
        if matches!(message.body, MessageBody::ChildStarted { .. } | MessageBody::Refused { .. }) {
            message.id = MessageId::from_bits(0);
        }
    }
    messages
}

fn same<T: Debug + PartialEq>(
    what: &str,
    world: Result<T, outlast_core::WorldError>,
    model: Result<T, Refusal>,
) -> Result<(), String> {
    let world = world.map_err(Refusal::from);
    if world == model { Ok(()) } else { Err(format!("{what}\n  world: {world:?}\n  model: {model:?}")) }
}
