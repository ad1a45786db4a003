//! Applies operations to a world and to the model, and compares.

use std::fmt::Debug;
use std::time::Duration;

use outlast_core::turn::From;
use outlast_core::{
    ClaimRequest, Join, NewMessage, Order, RunQuery, SessionId, Start, Then, Timestamp, Turn, TurnId, Work,
};

use super::op::{Mistake, Op, Shape, ThenKind};
use super::runs::{Model, Refusal, timeless};
use super::work::Brought;
use crate::conformance::shape::{Shape as _, stuck_by, wait, wait_until};
use crate::conformance::{Case, Worker, one};

const WORKFLOWS: [&str; 2] = ["a", "b"];

/// What has been done so far, to be repeated later.
#[derive(Default)]
struct Done {
    starts: Vec<Start>,
    messages: Vec<NewMessage>,
    turns: Vec<(SessionId, Turn)>,
    // Sessions stay known after they are gone, so that fencing is tried too.
    workers: Vec<(Option<Worker>, Join, bool)>,
}

/// Applies the operations; says where the world differs from the model.
pub(super) async fn drive(case: &Case, ops: &[Op]) -> Result<(), String> {
    let (mut model, mut done) = (Model::default(), Done::default());
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
        Op::Start { workflow, key, input } => new_start(case, *workflow, *key, *input),
        Op::RepeatStart { start } => match pick(&done.starts, *start) {
            Some(start) => start.clone(),
            None => return Ok(()),
        },
        Op::Send { run, is_cancel } => {
            let Some(run) = pick(&model.runs, *run).map(|run| run.view.id) else { return Ok(()) };
            let message = if *is_cancel { case.new_cancel(run) } else { case.new_message(run, "x") };
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
    same("start", case.try_start(start.clone()).await, model.start(start, now))
}

async fn drive_commit(case: &Case, op: &Op, model: &mut Model, done: &mut Done) -> Result<(), String> {
    let (session, turn) = match op {
        Op::Commit { run, shape, mistake } => match turn_of(case, model, done, *run, *shape, *mistake) {
            Some(turn) => turn,
            None => return Ok(()),
        },
        Op::CommitStart { session, workflow, key, shape } => {
            let Some((_, join, _)) = pick(&done.workers, *session) else { return Ok(()) };
            let turn = case.starting_turn(new_start(case, *workflow, *key, 0));
            (join.session, shaped(case, turn, *shape, &join.build))
        }
        Op::RepeatCommit { turn } => match pick(&done.turns, *turn).cloned() {
            // What a session that is gone is told of an old turn is not fixed, nor is a repeated
            // start of a run that has gone on.
            Some((session, turn)) if model.lives(session) && is_plain_repeat(model, &turn) => (session, turn),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    done.turns.push((session, turn.clone()));
    let build = turn.build.to_string();
    let answer = one(case.world.commit(session, std::slice::from_ref(&turn)).await);
    same("commit", answer, model.commit(session, turn, &build, case.clock.now()))
}

fn is_plain_repeat(model: &mut Model, turn: &Turn) -> bool {
    let last = model.find(turn.run).map(|run| run.turn);
    matches!(turn.from, From::Turn(_)) || last.is_none_or(|last| last == turn.id)
}

async fn drive_session(case: &Case, op: &Op, model: &mut Model, done: &mut Done) -> Result<(), String> {
    let now = case.clock.now();
    let (Op::Beat { session }
    | Op::Claim { session, .. }
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
        Op::Beat { .. } => same("beat", world.beat(id).await.map(|beat| beat.held), model.beat(id, now)),
        Op::Claim { limit, suspect, .. } => {
            let Some(worker) = worker else { return Ok(()) };
            let request = ClaimRequest { limit: *limit, suspect: *suspect, ..worker.request() };
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

/// Joins a worker that claims all it can get and crashes, and has another one take over.
async fn drive_doom(
    case: &Case,
    code: usize,
    taker: usize,
    model: &mut Model,
    done: &Done,
) -> Result<(), String> {
    let now = case.clock.now();
    let join = case.new_join(&code_of(code));
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
    [vec![("a", 1), ("b", 1)], vec![("a", 1)], vec![("b", 1)], vec![]][number].clone()
}

async fn drive_rest(case: &Case, op: &Op, model: &mut Model, done: &mut Done) -> Result<(), String> {
    let now = case.clock.now();
    match op {
        Op::Join { build, code, is_elsewhere } => {
            let join = Join { build: format!("build-{build}").into(), ..case.new_join(&code_of(*code)) };
            model.join(join.clone(), now);
            let world = if *is_elsewhere { case.other_handle().await } else { case.world.clone() };
            let worker = case.join_with(world, join.clone()).await;
            done.workers.push((Some(worker), join, *is_elsewhere));
        }
        Op::Doom { code, taker } => return drive_doom(case, *code, *taker, model, done).await,
        Op::Resume { run } => {
            let Some(run) = pick(&model.runs, *run).map(|run| run.view.id) else { return Ok(()) };
            return same("resume", case.world.resume(run).await, model.resume(run, now));
        }
        Op::Advance { micros } => case.clock.advance(Duration::from_micros(*micros)),
        _ => {}
    }
    Ok(())
}

fn new_start(case: &Case, workflow: usize, key: Option<usize>, input: usize) -> Start {
    let workflow = WORKFLOWS[workflow];
    match key {
        Some(key) => case.new_keyed_start(workflow, &format!("key-{key}"), &format!("in-{input}")),
        None => case.new_start(workflow),
    }
}

/// A turn of the run as its holder would compute it, with this mistake.
fn turn_of(
    case: &Case,
    model: &Model,
    done: &Done,
    run: usize,
    shape: Shape,
    mistake: Mistake,
) -> Option<(SessionId, Turn)> {
    let held: Vec<_> = model.runs.iter().filter(|run| run.view.owner.is_some()).collect();
    // Mostly runs that someone holds, now and then any.
    let run = pick(&held, run).copied().filter(|_| !run.is_multiple_of(8)).or(pick(&model.runs, run))?;
    let session = match mistake {
        Mistake::From(session) => pick(&done.workers, session)?.1.session,
        _ => run.view.owner?,
    };
    let build = &done.workers.iter().find(|(_, join, _)| join.session == session)?.1.build;
    let from = if mistake == Mistake::Stale { TurnId::from_bits(case.id()) } else { run.turn };
    let consumes = shape.consumes.min(run.unread().len());
    // Every message that is consumed becomes an event.
    let shape = Shape { events: shape.events.max(consumes as u32), ..shape };
    let turn = Turn {
        run: run.view.id,
        id: TurnId::from_bits(case.id()),
        from: From::Turn(from),
        seq: run.seq(),
        at: case.clock.now(),
        build: build.clone(),
        events: Vec::new(),
        consumed: run.view.consumed + consumes as u64,
        fired_until: shape.fires_micros_ago.map(|ago| ago_of(case.clock.now(), ago)),
        clears_crashes: run.view.crashes > 0,
        then: Then::Hold,
    };
    Some((session, shaped(case, turn, shape, build)))
}

fn ago_of(now: Timestamp, micros: u64) -> Timestamp {
    Timestamp::from_micros(now.as_micros() - micros as i64)
}

fn shaped(case: &Case, turn: Turn, shape: Shape, build: &str) -> Turn {
    let turn = Turn { build: build.into(), ..turn };
    match shape.then {
        ThenKind::Hold => turn.steps(shape.events),
        ThenKind::Release => turn.steps(shape.events).then(Then::Release),
        ThenKind::Complete => turn.steps(shape.events).completing("out"),
        ThenKind::Fail => turn.steps(shape.events).failing(),
        ThenKind::Cancel => turn.steps(shape.events).cancelling(),
        // It came to no decision, so it fired nothing.
        ThenKind::Stuck => Turn { fired_until: None, ..turn.steps(shape.events).then(stuck_by(build)) },
        ThenKind::Wait { wake_in_micros: None } => turn.steps(shape.events).then(wait()),
        ThenKind::Wait { wake_in_micros: Some(micros) } => {
            let at = case.clock.now().plus(Duration::from_micros(micros));
            turn.steps(shape.events).then(wait_until(at))
        }
    }
}

fn brought(work: Work, is_next_due_compared: bool) -> Brought {
    let positions =
        |messages: &[outlast_core::Message]| messages.iter().map(|m| m.position).collect::<Vec<_>>();
    let claimed = work.claimed.iter().map(|run| {
        let (inbox, turns) = (positions(&run.inbox), run.history.as_ref().map_or(0, Vec::len));
        (run.run, run.turn, run.turn_at, run.seq, run.consumed, inbox, run.crashes, run.is_fresh, turns)
    });
    let mut unread: Vec<_> =
        work.unread.iter().map(|unread| (unread.run, positions(&unread.messages))).collect();
    unread.sort();
    Brought { claimed: claimed.collect(), unread, next_due: is_next_due_compared.then_some(work.next_due) }
}

/// Compares what everybody can see.
async fn compare(case: &Case, model: &Model) -> Result<(), String> {
    let query = RunQuery { order: Order::OldestFirst, limit: 1_000, ..RunQuery::default() };
    let runs = case.world.runs(query).await.map(|page| page.runs.into_iter().map(timeless).collect());
    same("runs", runs, Ok(model.views()))?;
    same("counts", Ok(case.counts().await), Ok(model.counts()))?;
    let workers = case.world.workers().await.map(|workers| {
        workers.iter().map(|worker| (worker.session, worker.expires_at, worker.held)).collect::<Vec<_>>()
    });
    let expected = model.sessions.iter().map(|session| {
        let id = session.join.session;
        (id, session.expires_at, model.held(id).len() as u64)
    });
    same("workers", workers, Ok(expected.collect()))
}

async fn compare_histories(case: &Case, model: &Model) -> Result<(), String> {
    for run in &model.runs {
        let history = case.world.history(run.view.id, 0, usize::MAX).await;
        same("history", history, Ok(run.history.clone()))?;
        let unread = case.world.inbox(run.view.id, run.view.consumed).await;
        same("inbox", unread, Ok(run.unread().to_vec()))?;
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

fn same<T: Debug + PartialEq>(
    what: &str,
    world: Result<T, outlast_core::WorldError>,
    model: Result<T, Refusal>,
) -> Result<(), String> {
    let world = world.map_err(Refusal::from);
    if world == model { Ok(()) } else { Err(format!("{what}\n  world: {world:?}\n  model: {model:?}")) }
}

fn pick<T>(list: &[T], number: usize) -> Option<&T> {
    list.get(number.checked_rem(list.len())?)
}
