//! What the code that is running belongs to: for libraries that get no context passed, such as those that write logs.

use std::sync::Arc;

use outlast_core::{OpNumber, RunId};

use crate::replay::polling::{self, Scope};

/// The run, and perhaps the attempt at a step, to which the running code belongs; see [`current`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Current {
    /// The run.
    pub run: RunId,
    /// The workflow of the run.
    pub workflow: Arc<str>,
    /// The step, in the code of a step; `None` in the code of a workflow.
    pub step: Option<CurrentStep>,
}

/// The attempt at a step to which the running code belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CurrentStep {
    /// The name under which the workflow requested the step.
    pub name: Arc<str>,
    /// The number of the operation.
    pub op: OpNumber,
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
}

/// Returns to what the code that calls this function belongs, without a context: for a library that several steps and
/// workflows use, such as a logger. `None` outside of workflows and steps, and in tasks and threads that a step has spawned.
///
/// In a workflow it must not decide what the workflow requests, except by the run and the name of the workflow, which are
/// the same in every replay.
///
/// ```
/// use outlast::prelude::*;
///
/// /// A library that knows nothing of contexts.
/// fn label() -> String {
///     match outlast::current() {
///         Some(current) => format!("{} of {}", current.step.map_or("workflow".into(), |step| step.name), current.run),
///         None => "outside".into(),
///     }
/// }
///
/// #[step]
/// async fn charge() -> String {
///     label()
/// }
///
/// #[workflow]
/// async fn checkout(ctx: Context) -> Result<String, Error> {
///     ctx.step(charge, ()).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
/// # let world = outlast::open("memory:").await?;
/// # let worker = Worker::builder(world.clone()).register((checkout, charge)).start().await?;
/// let run = Client::new(world).start(checkout, ()).await?;
/// assert_eq!(run.output().await?, format!("charge of {}", run.id()));
/// assert_eq!(label(), "outside");
/// # worker.stop().await
/// # }
/// ```
pub fn current() -> Option<Current> {
    Some(match polling::scope()? {
        Scope::Workflow { run, workflow } => Current { run, workflow, step: None },
        Scope::Attempt(info) => {
            let step = CurrentStep { name: info.step.clone(), op: info.op, attempt: info.attempt };
            Current { run: info.run, workflow: info.workflow.clone(), step: Some(step) }
        }
    })
}
