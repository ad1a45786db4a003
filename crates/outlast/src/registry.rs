//! The registry of a worker: its workflows and steps by name.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use outlast_core::queue::{check_workflow_name, workflow_of_step};
use outlast_core::{Code, Codec, Payload, PayloadError, Policy};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::attempt::AttemptInfo;
use crate::context::Context;
use crate::error::{Error, StepError, kind_of_payload};
use crate::reconcile::not_known;
use crate::replay::{CanRead, QUEUED_VERSION, can_read};
use crate::step::{Step, StepCode, StepContext, StepDefinition, StepFn};
use crate::workflow::{Workflow, WorkflowDefinition, WorkflowFn, contained};

/// The output of one attempt, as a payload.
pub(crate) type AttemptFuture = Pin<Box<dyn Future<Output = Result<Payload, StepError>> + Send>>;

/// One call of a step's code.
pub(crate) type StepCall = Arc<dyn Fn(Arc<AttemptInfo>, Payload) -> AttemptFuture + Send + Sync>;

/// A run's future with its output as a payload.
pub(crate) type ErasedRun = Pin<Box<dyn Future<Output = Result<Payload, Error>> + Send>>;

/// One call of a workflow's code.
pub(crate) type WorkflowCall =
    Arc<dyn Fn(Context, Payload, &dyn Codec) -> Result<ErasedRun, BadInput> + Send + Sync>;

/// An input that a workflow's code cannot read.
pub(crate) struct BadInput {
    /// Whether the worker lacks the codec that can.
    pub(crate) is_coded: bool,
    /// What the run fails with under rules 1.
    pub(crate) error: Error,
    /// Why a run that has it recorded is stuck.
    pub(crate) stuck_message: String,
}

/// Whether an input is one of a workflow, by its type and its check.
type InputCheck = Arc<dyn Fn(Payload, &dyn Codec) -> Result<(), Error> + Send + Sync>;

/// The registry of a worker: collects the code that is passed to `.register((…))`.
pub struct Registry<S> {
    state: Arc<S>,
    codec: Arc<dyn Codec>,
    code: Registered,
    /// What is wrong with what was given.
    problems: Vec<String>,
    /// What stands in for the code of steps, in tests.
    mocks: HashMap<Arc<str>, (StepCall, Manner)>,
}

/// The code of a worker, by durable name.
#[derive(Default, Clone)]
pub(crate) struct Registered {
    steps: HashMap<Arc<str>, StepCall>,
    /// How registered steps are attempted.
    manners: HashMap<Arc<str>, Manner>,
    workflows: HashMap<Code, WorkflowCode>,
}

#[derive(Clone)]
struct WorkflowCode {
    call: WorkflowCall,
    check: InputCheck,
}

/// How a registered step is attempted, wherever it is asked for.
#[derive(Clone)]
pub(crate) struct Manner {
    pub(crate) policy: Policy,
    /// Lets so many attempts be under way at the same time.
    pub(crate) limit: Option<Arc<Semaphore>>,
    /// Whether its code looks for the effect of an earlier attempt.
    reconciles: bool,
    /// Whether its code can read an input.
    pub(crate) can_read: CanRead,
    /// Its place among the registered steps, by name, from 1.
    pub(crate) place: usize,
}

impl Manner {
    fn new(policy: Policy, reconciles: bool, can_read: CanRead) -> Self {
        let permits = |limit| usize::try_from(limit).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let limit = policy.limit.map(|limit| Arc::new(Semaphore::new(permits(limit))));
        Self { policy, limit, reconciles, can_read, place: 0 }
    }
}

impl Registered {
    pub(crate) fn manner(&self, step: &str) -> Option<&Manner> {
        self.manners.get(step)
    }

    /// Whether there is no second attempt at a step: either side may say so. One that reconciles may be
    /// left to another worker, which looks first.
    pub(crate) fn is_at_most_once(&self, step: &str, policy: &Policy) -> bool {
        match self.manner(step) {
            Some(manner) => !manner.reconciles && (policy.is_at_most_once || manner.policy.is_at_most_once),
            None => policy.is_at_most_once,
        }
    }

    /// The names of the steps, in order: each stands before its place.
    pub(crate) fn steps(&self) -> Vec<Arc<str>> {
        let mut steps: Vec<_> = self.manners.keys().cloned().collect();
        steps.sort_unstable();
        steps
    }

    pub(crate) fn step(&self, name: &str) -> Option<&StepCall> {
        self.steps.get(name)
    }

    pub(crate) fn workflow(&self, workflow: &Arc<str>, version: u32) -> Option<&WorkflowCall> {
        self.workflows.get(&Code { workflow: workflow.clone(), version }).map(|code| &code.call)
    }

    /// Whether an input is one of this workflow; `None` when its code is not here.
    pub(crate) fn check(
        &self,
        workflow: &Arc<str>,
        version: u32,
        input: Payload,
        codec: &dyn Codec,
    ) -> Option<Result<(), Error>> {
        let code = self.workflows.get(&Code { workflow: workflow.clone(), version })?;
        Some(contained(|| (code.check)(input, codec)))
    }

    pub(crate) fn code(&self) -> Arc<[Code]> {
        let mut code: Vec<_> = self.workflows.keys().cloned().collect();
        code.sort();
        code.into()
    }
}

impl<S: Send + Sync + 'static> Registry<S> {
    pub(crate) fn new(state: Arc<S>, codec: Arc<dyn Codec>) -> Self {
        Self { state, codec, code: Registered::default(), problems: Vec::new(), mocks: HashMap::new() }
    }

    /// The code, or what is wrong with it.
    pub(crate) fn finish(mut self) -> Result<Registered, Error> {
        for (name, (call, manner)) in self.mocks {
            self.code.steps.insert(name.clone(), call);
            // What stands in for a step does not look for earlier effects.
            let change = |own: &mut Manner| (own.reconciles, own.can_read) = (false, manner.can_read);
            self.code.manners.entry(name).and_modify(change).or_insert(manner);
        }
        if let Some(problem) = self.problems.pop() {
            return Err(Error::invalid(problem));
        }
        for (index, step) in self.code.steps().into_iter().enumerate() {
            self.code.manners.entry(step).and_modify(|manner| manner.place = index + 1);
        }
        // Any step may travel by a queue, and is then the whole life of a run.
        for step in self.code.steps.keys() {
            let code = Code { workflow: workflow_of_step(step), version: QUEUED_VERSION };
            self.code.workflows.insert(code, queued_step(step.clone()));
        }
        Ok(self.code)
    }

    /// Lets `code` stand in for that of a step, registered or not, before or after.
    pub(crate) fn replace<I, O>(
        &mut self,
        names: impl Iterator<Item = &'static str>,
        policy: Policy,
        code: impl Fn(I) -> Result<O, StepError> + Send + Sync + 'static,
    ) where
        I: DeserializeOwned,
        O: Serialize,
    {
        let (codec, code) = (self.codec.clone(), Arc::new(code));
        let manner = Manner::new(policy, false, can_read::<I>);
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
        let call: StepCall = Arc::new(move |about, input| attempt::<D, S>(&state, about, input, &codec));
        self.add_step_code(
            D::NAME,
            D::WAS,
            Manner::new(D::policy(), D::RECONCILES, can_read::<D::Input>),
            call,
        );
    }

    /// Adds code for a step that is known by its handle.
    pub(crate) fn add_step_of<I, O, E, F, Fut>(&mut self, step: Step<I, O>, code: F)
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: Into<StepError>,
        F: Fn(StepContext<S>, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let (state, codec, name) = (self.state.clone(), self.codec.clone(), step.name());
        let call: StepCall = Arc::new(move |about, input| {
            let input = match decode_input::<I>(input, &*codec, name) {
                Ok(input) => input,
                Err(error) => return Box::pin(std::future::ready(Err(error))),
            };
            let (codec, attempt) = (codec.clone(), code(StepContext::new(state.clone(), about, None), input));
            Box::pin(async move { encode_output(&attempt.await.map_err(Into::into)?, &*codec) })
        });
        self.add_step_code(
            name,
            step.earlier_names(),
            Manner::new(step.manner(), false, can_read::<I>),
            call,
        );
    }

    fn add_step_code(
        &mut self,
        name: &'static str,
        was: &'static [&'static str],
        manner: Manner,
        call: StepCall,
    ) {
        for name in std::iter::once(&name).chain(was) {
            self.code.manners.insert((*name).into(), manner.clone());
            if self.code.steps.insert((*name).into(), call.clone()).is_some() {
                self.problems.push(twice(&format!("step `{name}`")));
            }
        }
    }

    fn add_workflow<D: WorkflowDefinition>(&mut self) {
        let code = WorkflowCode {
            call: Arc::new(|ctx, input, codec| begun(D::NAME, D::run, ctx, input, codec)),
            check: Arc::new(|input, codec| {
                D::check(&input_of(D::NAME, input, codec).map_err(|bad| bad.error)?)
            }),
        };
        self.add_workflow_code(D::NAME, D::WAS, D::VERSION, &code);
    }

    /// Adds code for a workflow that is known by its handle.
    pub(crate) fn add_workflow_of<I, O, E, F, Fut>(&mut self, workflow: Workflow<I, O>, run: F)
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: Into<Error>,
        F: Fn(Context, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let name = workflow.name();
        let code = WorkflowCode {
            call: Arc::new(move |ctx, input, codec| begun(name, &run, ctx, input, codec)),
            check: Arc::new(move |input, codec| {
                workflow.checked(&input_of(name, input, codec).map_err(|bad| bad.error)?)
            }),
        };
        self.add_workflow_code(name, workflow.earlier_names(), workflow.version(), &code);
    }

    fn add_workflow_code(
        &mut self,
        name: &'static str,
        was: &'static [&'static str],
        version: u32,
        code: &WorkflowCode,
    ) {
        for name in std::iter::once(&name).chain(was) {
            self.problems.extend(check_workflow_name(name).err());
            if self.code.workflows.insert(Code { workflow: (*name).into(), version }, code.clone()).is_some()
            {
                self.problems.push(twice(&format!("workflow `{name}` version {version}")));
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

fn twice(what: &str) -> String {
    format!(
        "{what} is registered twice; register it once, or give one of the two another name with `name = \"…\"`"
    )
}

/// The code of the runs that are this step, queued.
fn queued_step(step: Arc<str>) -> WorkflowCode {
    WorkflowCode {
        call: Arc::new(move |ctx, input, _codec| {
            let step = step.clone();
            Ok(Box::pin(async move { ctx.whole_life(step, input).await }))
        }),
        check: Arc::new(|_input, _codec| Ok(())),
    }
}

fn attempt<D: StepCode<S>, S: Send + Sync + 'static>(
    state: &Arc<S>,
    about: Arc<AttemptInfo>,
    input: Payload,
    codec: &Arc<dyn Codec>,
) -> AttemptFuture {
    let again = (D::RECONCILES && !about.is_first).then(|| input.clone());
    let (cx, input) = match prepared::<D, S>(state, &about, input, &**codec) {
        Ok(prepared) => prepared,
        Err(error) => return Box::pin(std::future::ready(Err(error))),
    };
    let codec = codec.clone();
    let Some(again) = again else {
        let attempt = D::attempt(cx, input).keeping(&about);
        return Box::pin(async move { encode_output(&attempt.await?, &*codec) });
    };
    let looking = D::reconcile(cx.clone(), input);
    Box::pin(async move {
        let found = looking.await;
        let found = found.map_err(|error| if about.is_at_most_once { not_known(error) } else { error });
        let output = match found? {
            Some(output) => output,
            None => D::attempt(cx, decode_input(again, &*codec, D::NAME)?).keeping(&about).await?,
        };
        encode_output(&output, &*codec)
    })
}

/// What an attempt is given.
fn prepared<D: StepDefinition, S>(
    state: &Arc<S>,
    about: &Arc<AttemptInfo>,
    input: Payload,
    codec: &dyn Codec,
) -> Result<(StepContext<S>, D::Input), StepError> {
    let input = decode_input::<D::Input>(input, codec, D::NAME)?;
    let unique = D::unique(&input)?;
    Ok((StepContext::new(state.clone(), about.clone(), unique), input))
}

/// An input that does not fit is not attempted again by this build: another attempt reads the same bytes.
pub(crate) fn decode_input<T: DeserializeOwned>(
    input: Payload,
    codec: &dyn Codec,
    step: &str,
) -> Result<T, StepError> {
    codec.decode(input).and_then(|plain| plain.decode()).map_err(|error| {
        let message = format!("the input of step `{step}` does not fit: {error}");
        StepError::unreadable(message, &error)
    })
}

pub(crate) fn encode_output<T: Serialize>(output: &T, codec: &dyn Codec) -> Result<Payload, StepError> {
    Payload::json(output).and_then(|plain| codec.encode(plain)).map_err(|error| {
        StepError::of_failure(outlast_core::Failure::new(kind_of_payload(&error), error.to_string()))
    })
}

fn input_of<I: DeserializeOwned>(workflow: &str, input: Payload, codec: &dyn Codec) -> Result<I, BadInput> {
    let bad = |error: &PayloadError, text| BadInput {
        is_coded: error.is_coded(),
        error: text,
        stuck_message: format!("the recorded input of workflow `{workflow}` {}", error.cannot_be_read()),
    };
    let plain = codec.decode(input).map_err(|error| bad(&error, Error::from(error.clone())))?;
    plain.decode::<I>().map_err(|error| {
        let text = Error::invalid(format!("the input of workflow `{workflow}` does not fit: {error}"));
        bad(&error, text)
    })
}

/// The run that a workflow's code begins with an input.
fn begun<I, O, E, Fut>(
    workflow: &str,
    run: impl Fn(Context, I) -> Fut,
    ctx: Context,
    input: Payload,
    codec: &dyn Codec,
) -> Result<ErasedRun, BadInput>
where
    I: DeserializeOwned,
    O: Serialize,
    E: Into<Error>,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
{
    let input = input_of(workflow, input, codec)?;
    let codec = ctx.codec();
    let run = run(ctx, input);
    Ok(Box::pin(async move {
        let output = run.await.map_err(Into::into)?;
        Ok(codec.encode(Payload::json(&output)?)?)
    }))
}

/// Code that can be passed to [`register`](crate::WorkerBuilder::register): a workflow, a step, or a tuple of up to 12
/// of them. `M` is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be registered with a worker whose state is `{S}`",
    label = "expected functions with `#[workflow]` or `#[step]`, or a tuple of up to 12 of them",
    note = "a step with `StepContext<T>` needs a worker with state `T`: call `.state(…)` before `.register(…)`",
    note = "to see which one of a tuple it is, register them one by one: `.register(a).register(b)`"
)]
pub trait Register<S, M> {
    /// Adds the code to the registry.
    fn register(self, registry: &mut Registry<S>);
}

/// Type-level mark of steps in [`Register`].
#[derive(Debug)]
pub struct StepMark<Args>(std::marker::PhantomData<Args>);

/// Type-level mark of workflows in [`Register`].
#[derive(Debug)]
pub struct WorkflowMark<Args>(std::marker::PhantomData<Args>);

/// Type-level mark of tuples in [`Register`].
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
