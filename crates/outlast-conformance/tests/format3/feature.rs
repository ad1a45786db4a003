//! Parts of programs with compensations, sagas, loops, streams and published states, and workflows with failure strategies
//! and a step after their end.

use outlast::prelude::*;
use outlast::{Next, RunEnd};
use serde::{Deserialize, Serialize};

use super::exchange::Exchange;
use super::program::{Job, Program, interpret, work};
use super::values::Text;

/// The stream to which steps and workflows write.
pub(crate) const STREAM: &str = "out";

/// A part of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Feature {
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

/// Reverts a step.
#[step(attempts = 3, initial = "100ms", multiplier = 2.0)]
pub(crate) async fn undo_work(_undo: Undo<Job, u64>) -> Result<u64, StepError> {
    Ok(0)
}

/// Compensates for something that is not a step.
#[step(attempts = 3, initial = "100ms", multiplier = 2.0)]
pub(crate) async fn undo_plain(_job: Job) -> Result<u64, StepError> {
    Ok(0)
}

/// Writes chunks, and works.
#[step(attempts = 4, initial = "200ms", multiplier = 3.0)]
pub(crate) async fn stream_work(_job: Job, _chunks: u8) -> Result<u64, StepError> {
    Ok(0)
}

/// Follows the end of a run.
#[step]
pub(crate) async fn finished(_end: RunEnd) -> Result<(), StepError> {
    Ok(())
}

/// Interprets a program, and begins again when it fails.
#[workflow(on_failure = retry(attempts = 3, initial = "500ms", multiplier = 4.0), on_end = finished)]
pub(crate) async fn retried(ctx: Context, program: Program) -> Result<String, Error> {
    interpret(&ctx, &program).await
}

/// Interprets a program, and cancels the run that awaits it when it fails.
#[workflow(on_failure = cascade, on_end = finished)]
pub(crate) async fn cascading(ctx: Context, program: Program) -> Result<String, Error> {
    interpret(&ctx, &program).await
}

impl Feature {
    /// Executes the part, and returns a trace of its results.
    pub(crate) async fn execute(&self, ctx: &Context) -> Result<String, Error> {
        Ok(match self {
            Self::Undoable(job) => {
                let step = job.queued_if_enabled(ctx, ctx.step(work, job.in_context(ctx)));
                format!("u{}", step.undo(undo_work).await?)
            }
            Self::Compensate(job) => {
                ctx.compensate(undo_plain, job.in_context(ctx))?;
                "compensate".into()
            }
            Self::Keep => {
                ctx.keep();
                "keep".into()
            }
            Self::Saga(program) => ctx.saga(async |ctx| interpret(&ctx, program).await).await?,
            Self::Iterate { name, rounds, body } => {
                let rounds = *rounds;
                let body = |ctx: Context, (round, seen): (u8, usize)| async move {
                    let seen = seen + interpret(&ctx, body).await?.len();
                    if round + 1 < rounds { Ok(Next::Again((round + 1, seen))) } else { Ok(Next::Done(seen)) }
                };
                format!("i{}", ctx.iterate(&format!("loop-{name}"), (0, 0), body).await?)
            }
            Self::FailAfter(programs) => {
                for program in programs {
                    interpret(ctx, program).await?;
                }
                return Err(Error::msg("failed as planned"));
            }
            Self::Stream { job, chunks } => {
                format!("w{}", ctx.step(stream_work, (job.in_context(ctx), *chunks)).await?)
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
                let child = Workflow::<Program, Text>::new(name);
                let child = ctx.child(child, &**program).on_parent_end(*end).tag("kind", name);
                format!("c{}", child.await?.0.len())
            }
            Self::Exchange(exchange) => exchange.execute(ctx).await?,
        })
    }
}
