//! Programs with compensations, sagas, loops, streams and published states, and workflows with failure strategies and a
//! step after their end. Seeds from [`ORCHESTRATED_SEEDS`](super::ORCHESTRATED_SEEDS) on draw them.

use fastrand::Rng;
use outlast::prelude::*;
use outlast::{Next, RunEnd};
use serde::{Deserialize, Serialize};

use super::attempt_log::StepState;
use super::exchange::Exchange;
use super::generate::{any_job, any_part, any_program};
use super::program::{Job, Leaf, Program, attempt, interpret, work};
use super::values::Text;

/// The stream to which steps and workflows write.
pub(super) const STREAM: &str = "out";

/// A part of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Feature {
    /// A step with a compensation.
    Undoable(Job),
    /// Registers a compensation.
    Compensate(Job),
    /// Settles all compensations.
    Keep,
    /// Executes a program in a saga.
    Saga(Box<Program>),
    /// Executes a program this often, in a loop.
    Iterate { name: u8, rounds: u8, body: Box<Program> },
    /// Executes the undoable parts, then fails.
    FailAfter(Vec<Program>),
    /// A step that writes chunks to a stream.
    Stream { job: Job, chunks: u8 },
    /// Writes chunks to a stream.
    Write { chunks: u8 },
    /// Publishes a state.
    Publish(u8),
    /// A child with a strategy.
    Child { program: Box<Program>, is_cascading: bool, end: ParentEnd },
    /// A part that concerns other runs.
    Exchange(Exchange),
}

/// Reverts a step. It fails for good if its job says so.
#[step(attempts = 3, initial = "100ms", multiplier = 2.0)]
pub(super) async fn undo_work(cx: StepContext<StepState>, undo: Undo<Job, u64>) -> Result<u64, StepError> {
    attempt(&cx, &undo.input.of_compensation(), false).await
}

/// Compensates for something that is not a step.
#[step(attempts = 3, initial = "100ms", multiplier = 2.0)]
pub(super) async fn undo_plain(cx: StepContext<StepState>, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job.of_compensation(), false).await
}

/// Writes chunks, and works.
#[step(attempts = 4, initial = "200ms", multiplier = 3.0)]
pub(super) async fn stream_work(cx: StepContext<StepState>, job: Job, chunks: u8) -> Result<u64, StepError> {
    let execution = cx.state().next_token();
    let stream = cx.stream(STREAM);
    for chunk in 0..chunks {
        stream.write(&(execution, chunk)).await?;
    }
    let token = attempt(&cx, &job, false).await?;
    cx.state().wrote(token, execution, chunks);
    Ok(token)
}

/// Records how a run ended.
#[step]
pub(super) async fn finished(cx: StepContext<StepState>, end: RunEnd) -> Result<(), StepError> {
    cx.state().run_finished(&end).await;
    Ok(())
}

/// Interprets a program, and begins again when it fails.
#[workflow(on_failure = retry(attempts = 3, initial = "500ms", multiplier = 4.0), on_end = finished)]
pub(super) async fn retried(ctx: Context, program: Program) -> Result<String, Error> {
    interpret::<false>(&ctx, &program).await
}

/// Interprets a program, and cancels the run that awaits it when it fails.
#[workflow(on_failure = cascade, on_end = finished)]
pub(super) async fn cascading(ctx: Context, program: Program) -> Result<String, Error> {
    interpret::<false>(&ctx, &program).await
}

impl Job {
    /// The job of a compensation: shielded, and it fails less often.
    fn of_compensation(&self) -> Self {
        Self { is_shielded: true, stops_on_cancel: false, millis: self.millis / 4, ..self.clone() }
    }
}

impl Feature {
    /// Executes the part, and returns a trace of its results.
    pub(super) async fn execute<const OLDER: bool>(&self, ctx: &Context) -> Result<String, Error> {
        Ok(match self {
            Self::Undoable(job) => {
                let step = job.queued_if_enabled(ctx, ctx.step(work, job.scaled(ctx)));
                format!("u{}", step.undo(undo_work).await?)
            }
            Self::Compensate(job) => {
                ctx.compensate(undo_plain, job.scaled(ctx))?;
                "compensate".into()
            }
            Self::Keep => {
                ctx.keep();
                "keep".into()
            }
            Self::Saga(program) => ctx.saga(async |ctx| interpret::<OLDER>(&ctx, program).await).await?,
            Self::Iterate { name, rounds, body } => {
                let rounds = *rounds;
                let body = |ctx: Context, (round, seen): (u8, usize)| async move {
                    let seen = seen + interpret::<OLDER>(&ctx, body).await?.len();
                    if round + 1 < rounds { Ok(Next::Again((round + 1, seen))) } else { Ok(Next::Done(seen)) }
                };
                format!("i{}", ctx.iterate(&format!("loop-{name}"), (0, 0), body).await?)
            }
            Self::FailAfter(programs) => {
                for program in programs {
                    interpret::<OLDER>(ctx, program).await?;
                }
                return Err(Error::msg("failed as planned"));
            }
            Self::Stream { job, chunks } => {
                format!("w{}", ctx.step(stream_work, (job.scaled(ctx), *chunks)).await?)
            }
            Self::Write { chunks } => {
                let stream = ctx.stream(STREAM);
                (0..*chunks).for_each(|chunk| stream.write(&("workflow", ctx.generation(), chunk)));
                "write".into()
            }
            Self::Publish(number) => {
                ctx.publish(&(ctx.generation(), *number));
                "publish".into()
            }
            Self::Child { program, is_cascading, end } => {
                let name = if *is_cascading { "cascading" } else { "retried" };
                let child = Workflow::<Program, Text<OLDER>>::new(name);
                let child = ctx.child(child, &**program).on_parent_end(*end).tag("kind", name);
                format!("c{}", child.await?.0.len())
            }
            Self::Exchange(exchange) => exchange.execute::<OLDER>(ctx).await?,
        })
    }
}

/// A random part of a program.
pub(super) fn any_feature(rng: &mut Rng, depth: u32) -> Program {
    let lower = depth.saturating_sub(1);
    let part = |rng: &mut Rng| Box::new(any_part(rng, lower));
    Program::Feature(match rng.u32(0..20) {
        0..=3 => Feature::Undoable(any_job(rng)),
        4 | 5 => Feature::Compensate(any_job(rng)),
        6 => Feature::Keep,
        7 | 8 => Feature::Saga(Box::new(undoable_parts(rng, lower))),
        9 => Feature::Saga(part(rng)),
        10 | 11 => Feature::Iterate { name: rng.u8(0..2), rounds: rng.u8(1..5), body: part(rng) },
        12 | 13 => Feature::FailAfter(vec![undoable_parts(rng, lower)]),
        14 | 15 => Feature::Stream { job: any_job(rng), chunks: rng.u8(0..6) },
        16 => Feature::Write { chunks: rng.u8(1..4) },
        17 => Feature::Publish(rng.u8(0..9)),
        _ if depth > 0 => Feature::Child {
            program: Box::new(any_program(rng, lower)),
            is_cascading: rng.bool(),
            end: [ParentEnd::Cancel, ParentEnd::Wait, ParentEnd::Abandon][rng.usize(0..3)],
        },
        _ => Feature::Compensate(any_job(rng)),
    })
}

/// Several parts with compensations, of which some run at the same time.
fn undoable_parts(rng: &mut Rng, depth: u32) -> Program {
    let mut parts = Vec::new();
    for _ in 0..rng.usize(1..4) {
        let undoable = Program::Feature(Feature::Undoable(any_job(rng)));
        parts.push(match rng.u32(0..4) {
            0 => Program::DropAfter(Leaf::Work(any_job(rng)), Box::new(undoable)),
            1 => Program::Race(vec![undoable, any_part(rng, depth)]),
            _ => undoable,
        });
    }
    if rng.u32(0..3) == 0 { Program::Parallel(parts, 3) } else { Program::Seq(parts) }
}
