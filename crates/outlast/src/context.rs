//! The context: all that a workflow can ask for.

use std::borrow::Borrow;
use std::future::Future;
use std::sync::Arc;

use outlast_core::{Codec, IntoDuration, Policy, RunId, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StepError;
use crate::operation::{HookOperation, StepOperation, TimerOperation};
use crate::registry::{StepCall, decode_input, encode_output};
use crate::replay::RunState;
use crate::replay::state::NewStep;
use crate::step::StepHandle;

/// All that a workflow can ask for. Every operation it returns is a future.
///
/// An operation gets its number when it is called and is requested at the next suspension, polled or
/// not. So operations can be collected, joined and raced as they are.
#[derive(Clone, Debug)]
pub struct Context {
    state: Arc<RunState>,
}

impl Context {
    pub(crate) fn new(state: Arc<RunState>) -> Self {
        Self { state }
    }

    pub(crate) fn codec(&self) -> Arc<dyn Codec> {
        self.state.codec().clone()
    }

    /// Asks for a step. Its outcome is recorded once; attempts are made as its policy says.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[step(attempts = 3)]
    /// async fn charge(cents: u64) -> Result<String, StepError> {
    ///     Ok(format!("paid {cents}"))
    /// }
    ///
    /// #[workflow]
    /// async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ///     Ok(ctx.step(charge, &cents).timeout("30s").await?)
    /// }
    /// ```
    pub fn step<H, M>(&self, step: H, input: impl Borrow<H::Input>) -> StepOperation<H::Output>
    where
        H: StepHandle<M>,
    {
        let new = NewStep { name: step.name().into(), was: step.was(), policy: step.policy(), call: None };
        StepOperation::new(self.state.create_step(new, input.borrow()))
    }

    /// Asks for a step that is written in place. The input is recorded, and given to each attempt.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # async fn fetch(id: u64) -> Result<String, std::io::Error> { Ok(format!("user {id}")) }
    /// #[workflow]
    /// async fn greet(ctx: Context, id: u64) -> Result<String, Error> {
    ///     ctx.call("fetch-user", id, async |id| fetch(id).await).await
    /// }
    /// ```
    pub fn call<A, O, E, F, Fut>(&self, name: &str, input: A, call: F) -> StepOperation<O>
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        E: Into<StepError> + 'static,
        F: Fn(A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let (codec, step) = (self.codec(), name.to_owned());
        let erased: StepCall = Arc::new(move |_about, input| {
            let input = match decode_input::<A>(input, &*codec, &step) {
                Ok(input) => input,
                Err(error) => return Box::pin(std::future::ready(Err(error))),
            };
            let (attempt, codec) = (call(input), codec.clone());
            Box::pin(async move { encode_output(&attempt.await.map_err(Into::into)?, &*codec) })
        });
        let new = NewStep { name: name.into(), was: &[], policy: Policy::DEFAULT, call: Some(erased) };
        StepOperation::new(self.state.create_step(new, &input))
    }

    /// Waits for a duration, through crashes and deploys.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn remind(ctx: Context) -> Result<(), Error> {
    ///     ctx.sleep("3d").await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn sleep(&self, duration: impl IntoDuration) -> TimerOperation {
        TimerOperation::new(self.state.create_timer(duration.into_duration()))
    }

    /// Waits for a payload that the outside sends to this run by the hook's name.
    ///
    /// A payload sent before anyone waits is kept. Several are taken in the order they were sent.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn review(ctx: Context) -> Result<bool, Error> {
    ///     ctx.hook::<bool>("review").timeout("3d").await
    /// }
    /// ```
    pub fn hook<T: DeserializeOwned>(&self, name: &str) -> HookOperation<T> {
        HookOperation::new(self.state.create_hook(name))
    }

    /// The time of this turn: the same in every replay.
    pub fn now(&self) -> Timestamp {
        self.state.now()
    }

    /// A random number: the same in every replay.
    pub fn random(&self) -> u64 {
        self.state.random()
    }

    /// A random UUID (version 4): the same in every replay.
    pub fn uuid(&self) -> String {
        let bits = (u128::from(self.random()) << 64) | u128::from(self.random());
        let bits = bits & !(0xf000_u128 << 64) | (0x4000_u128 << 64);
        let bits = bits & !(0b11_u128 << 62) | (0b10_u128 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.state.run()
    }

    /// Whether the run was told to stop.
    pub fn is_cancelled(&self) -> bool {
        self.state.is_cancelled()
    }
}
