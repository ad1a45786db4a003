//! What a worker has the code of: workflows and steps by name.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use outlast_core::{Code, Codec, Payload, Policy};
use tokio::sync::Semaphore;

use crate::attempt::About;
use crate::context::Context;
use crate::error::{Error, StepError, kind_of_payload};
use crate::step::{StepCode, StepContext, StepDefinition, StepFn};
use crate::workflow::{WorkflowDefinition, WorkflowFn};

/// The output of one attempt, as a payload.
pub(crate) type AttemptFuture = Pin<Box<dyn Future<Output = Result<Payload, StepError>> + Send>>;

/// One call of a step's code.
pub(crate) type StepCall = Arc<dyn Fn(Arc<About>, Payload) -> AttemptFuture + Send + Sync>;

/// A run's future with its output as a payload.
pub(crate) type ErasedRun = Pin<Box<dyn Future<Output = Result<Payload, Error>> + Send>>;

type WorkflowCall = fn(Context, Payload, &dyn Codec) -> Result<ErasedRun, Error>;

/// Collects what `.register((…))` is given.
pub struct Registry<S> {
    state: Arc<S>,
    codec: Arc<dyn Codec>,
    code: Registered,
    twice: Vec<String>,
    /// What stands in for the code of steps, in tests.
    mocks: HashMap<Arc<str>, (StepCall, Manner)>,
}

/// The code of a worker, by durable name.
#[derive(Default, Clone)]
pub(crate) struct Registered {
    steps: HashMap<Arc<str>, StepCall>,
    /// How registered steps are attempted.
    manners: HashMap<Arc<str>, Manner>,
    workflows: HashMap<Code, WorkflowCall>,
}

/// How a registered step is attempted, wherever it is asked for.
#[derive(Clone)]
pub(crate) struct Manner {
    pub(crate) policy: Policy,
    /// Lets so many attempts be under way at the same time.
    pub(crate) limit: Option<Arc<Semaphore>>,
}

impl Manner {
    fn new(policy: Policy) -> Self {
        let permits = |limit| usize::try_from(limit).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { policy, limit: policy.limit.map(|limit| Arc::new(Semaphore::new(permits(limit)))) }
    }
}

impl Registered {
    pub(crate) fn manner(&self, step: &str) -> Option<&Manner> {
        self.manners.get(step)
    }

    /// Whether there is no second attempt at a step: either side may say so.
    pub(crate) fn is_at_most_once(&self, step: &str, policy: &Policy) -> bool {
        policy.is_at_most_once || self.manner(step).is_some_and(|manner| manner.policy.is_at_most_once)
    }

    pub(crate) fn step(&self, name: &str) -> Option<&StepCall> {
        self.steps.get(name)
    }

    pub(crate) fn workflow(&self, workflow: &Arc<str>, version: u32) -> Option<WorkflowCall> {
        self.workflows.get(&Code { workflow: workflow.clone(), version }).copied()
    }

    pub(crate) fn code(&self) -> Arc<[Code]> {
        let mut code: Vec<_> = self.workflows.keys().cloned().collect();
        code.sort();
        code.into()
    }
}

impl<S: Send + Sync + 'static> Registry<S> {
    pub(crate) fn new(state: Arc<S>, codec: Arc<dyn Codec>) -> Self {
        Self { state, codec, code: Registered::default(), twice: Vec::new(), mocks: HashMap::new() }
    }

    /// The code, or the names that were registered twice.
    pub(crate) fn finish(mut self) -> Result<Registered, Error> {
        for (name, (call, manner)) in self.mocks {
            self.code.steps.insert(name.clone(), call);
            self.code.manners.entry(name).or_insert(manner);
        }
        match self.twice.first() {
            None => Ok(self.code),
            Some(name) => Err(Error::invalid(format!(
                "{name} is registered twice; register it once, or give one of the two another name with `name = \"…\"`"
            ))),
        }
    }

    /// Lets `code` stand in for that of a step, registered or not, before or after.
    pub(crate) fn replace<I, O>(
        &mut self,
        names: impl Iterator<Item = &'static str>,
        policy: Policy,
        code: impl Fn(I) -> Result<O, StepError> + Send + Sync + 'static,
    ) where
        I: serde::de::DeserializeOwned,
        O: serde::Serialize,
    {
        let (codec, code) = (self.codec.clone(), Arc::new(code));
        let manner = Manner::new(policy);
        for name in names {
            let (codec, code) = (codec.clone(), code.clone());
            let call: StepCall = Arc::new(move |_about, input| {
                let (codec, code) = (codec.clone(), code.clone());
                // Inside the future, so that a panic of the code is one of the attempt.
                Box::pin(async move {
                    let input = decode_input::<I>(input, &*codec, name)?;
                    encode_output(&code(input)?, &*codec)
                })
            });
            self.mocks.insert(name.into(), (call, manner.clone()));
        }
    }

    fn add_step<D: StepCode<S>>(&mut self) {
        let (state, codec) = (self.state.clone(), self.codec.clone());
        let call: StepCall = Arc::new(move |about, input| {
            let cx = StepContext::new(state.clone(), about.clone());
            attempt::<D, S>(cx, &about, input, &codec)
        });
        let manner = Manner::new(D::policy());
        for name in std::iter::once(&D::NAME).chain(D::WAS) {
            self.code.manners.insert((*name).into(), manner.clone());
            if self.code.steps.insert((*name).into(), call.clone()).is_some() {
                self.twice.push(format!("step `{name}`"));
            }
        }
    }

    fn add_workflow<D: WorkflowDefinition>(&mut self) {
        for name in std::iter::once(&D::NAME).chain(D::WAS) {
            let code = Code { workflow: (*name).into(), version: D::VERSION };
            if self.code.workflows.insert(code, erased::<D>).is_some() {
                self.twice.push(format!("workflow `{name}` version {}", D::VERSION));
            }
        }
    }
}

impl<S> fmt::Debug for Registry<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered")
            .field("steps", &self.steps.keys())
            .field("workflows", &self.workflows.keys())
            .finish()
    }
}

fn attempt<D: StepCode<S>, S: Send + Sync + 'static>(
    cx: StepContext<S>,
    about: &About,
    input: Payload,
    codec: &Arc<dyn Codec>,
) -> AttemptFuture {
    let input = match decode_input::<D::Input>(input, &**codec, D::NAME) {
        Ok(input) => input,
        Err(error) => return Box::pin(std::future::ready(Err(error))),
    };
    let codec = codec.clone();
    let attempt = D::attempt(cx, input).keeping(about);
    Box::pin(async move { encode_output(&attempt.await?, &*codec) })
}

/// An input that does not fit fails the step for good: another attempt reads the same bytes.
pub(crate) fn decode_input<T: serde::de::DeserializeOwned>(
    input: Payload,
    codec: &dyn Codec,
    step: &str,
) -> Result<T, StepError> {
    codec
        .decode(input)
        .and_then(|plain| plain.decode())
        .map_err(|error| StepError::fatal(format!("the input of step `{step}` does not fit: {error}")))
}

pub(crate) fn encode_output<T: serde::Serialize>(
    output: &T,
    codec: &dyn Codec,
) -> Result<Payload, StepError> {
    Payload::json(output).and_then(|plain| codec.encode(plain)).map_err(|error| {
        StepError::of_failure(outlast_core::Failure::new(kind_of_payload(&error), error.to_string()))
    })
}

fn erased<D: WorkflowDefinition>(
    ctx: Context,
    input: Payload,
    codec: &dyn Codec,
) -> Result<ErasedRun, Error> {
    let input = codec.decode(input)?.decode::<D::Input>().map_err(|error| {
        Error::invalid(format!("the input of workflow `{}` does not fit: {error}", D::NAME))
    })?;
    let codec = ctx.codec();
    let run = D::run(ctx, input);
    Ok(Box::pin(async move { Ok(codec.encode(Payload::json(&run.await?)?)?) }))
}

/// What `.register(…)` takes: a workflow, a step, or a tuple of them. `M` is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be registered with a worker whose state is `{S}`",
    label = "expected functions with `#[workflow]` or `#[step]`, or a tuple of up to 12 of them",
    note = "a step with `StepContext<T>` needs a worker with state `T`: call `.state(…)` before `.register(…)`",
    note = "to see which one of a tuple it is, register them one by one: `.register(a).register(b)`"
)]
pub trait Register<S, M> {
    /// Adds itself to the registry.
    fn register(self, registry: &mut Registry<S>);
}

/// Marks a step among things to register.
#[derive(Debug)]
pub struct StepMark<Args>(std::marker::PhantomData<Args>);

/// Marks a workflow among things to register.
#[derive(Debug)]
pub struct WorkflowMark<Args>(std::marker::PhantomData<Args>);

/// Marks a tuple among things to register.
#[derive(Debug)]
pub struct TupleMark<Marks>(std::marker::PhantomData<Marks>);

#[diagnostic::do_not_recommend]
impl<S, F, Args> Register<S, StepMark<Args>> for F
where
    S: Send + Sync + 'static,
    F: StepFn<Args>,
    F::Definition: StepCode<S> + StepDefinition,
{
    fn register(self, registry: &mut Registry<S>) {
        registry.add_step::<F::Definition>();
    }
}

#[diagnostic::do_not_recommend]
impl<S, F, Args> Register<S, WorkflowMark<Args>> for F
where
    S: Send + Sync + 'static,
    F: WorkflowFn<Args>,
{
    fn register(self, registry: &mut Registry<S>) {
        registry.add_workflow::<F::Definition>();
    }
}

macro_rules! tuples {
    ($(($($thing:ident $mark:ident),+))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<S, $($thing, $mark,)+> Register<S, TupleMark<($($mark,)+)>> for ($($thing,)+)
        where
            $($thing: Register<S, $mark>,)+
        {
            fn register(self, registry: &mut Registry<S>) {
                #[allow(non_snake_case, reason = "the type parameters name the tuple's elements")]
                let ($($thing,)+) = self;
                $($thing.register(registry);)+
            }
        }
    )*};
}
tuples! {
    (A MA)
    (A MA, B MB)
    (A MA, B MB, C MC)
    (A MA, B MB, C MC, D MD)
    (A MA, B MB, C MC, D MD, E ME)
    (A MA, B MB, C MC, D MD, E ME, F MF)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML)
}
