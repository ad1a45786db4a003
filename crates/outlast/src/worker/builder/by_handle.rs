//! Registering code for handles: functions without attributes, for a contract that several programs share.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::WorkerBuilder;
use crate::authoring::context::Context;
use crate::authoring::step::{Step, StepContext};
use crate::authoring::workflow::Workflow;
use crate::error::{Error, StepError};

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Adds the code of a step with a handle: any async function or closure with the handle's types.
    ///
    /// ```
    /// use outlast::prelude::*;
    ///
    /// const CHARGE: Step<u64, String> = Step::new("charge").attempts(3).timeout("30s");
    /// const CHECKOUT: Workflow<u64, String> = Workflow::new("checkout");
    ///
    /// async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ///     ctx.step(CHARGE, cents).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let world = outlast::open("memory:").await?;
    /// let worker = Worker::builder(world.clone())
    ///     .state("the bank")
    ///     .step(CHARGE, async |cx: StepContext<&str>, cents| {
    ///         Ok::<_, StepError>(format!("{} has {cents}", cx.state()))
    ///     })
    ///     .workflow(CHECKOUT, checkout)
    ///     .start()
    ///     .await?;
    /// let run = Client::new(world).start(CHECKOUT, 4200).await?;
    /// assert_eq!(run.output().await?, "the bank has 4200");
    /// # worker.stop().await
    /// # }
    /// ```
    #[must_use]
    pub fn step<I, O, E, F, Fut>(mut self, step: Step<I, O>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: Into<StepError>,
        F: Fn(StepContext<S>, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        self.registry.add_step_of(step, code);
        self.has_code = true;
        self
    }

    /// Adds the code of a workflow with a handle: any async function with the handle's types.
    /// See [`step`](Self::step) for an example.
    ///
    /// Unlike `#[workflow]`, this does not check the function for code that does not replay.
    #[must_use]
    pub fn workflow<I, O, E, F, Fut>(mut self, workflow: Workflow<I, O>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: Into<Error>,
        F: Fn(Context, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        self.registry.add_workflow_of(workflow, code);
        self.has_code = true;
        self
    }
}
