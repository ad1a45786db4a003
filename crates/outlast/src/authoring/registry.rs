//! The registry of a worker: its workflows and steps by name.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use outlast_core::queue::{
    BUILT_IN_PREFIX, check_name, check_workflow_name, step_of_workflow, workflow_of_step,
};
use outlast_core::{Code, Codec, EndPlan, FailureStrategy, Payload, PayloadError, Policy, RunStarted, World};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::authoring::attempt::AttemptInfo;
use crate::authoring::context::Context;
use crate::authoring::other_runs::OTHER_RUN_STEPS;
use crate::authoring::reconcile::outcome_unknown;
use crate::authoring::step::{Step, StepCode, StepContext, StepDefinition};
use crate::authoring::transactional::{TransactionKind, attempt_in_transaction};
use crate::authoring::workflow::{Workflow, WorkflowDefinition, catch_check_panic};
use crate::bulk::{BULK_VERSION, BULK_WORKFLOW, bulk};
use crate::error::{Error, StepError, kind_of_payload};
use crate::name_map::{NameHash, NameMap};
use crate::replay::{CanRead, InputError, QUEUED_VERSION, ReplayCode, RunState, WorkflowFuture, can_read};
use crate::schedule::{LateFirings, SCHEDULE_VERSION, SCHEDULE_WORKFLOW, schedule};

/// The steps of the engine.
const BUILT_IN_STEPS: [&str; 2] = ["outlast:fetch", "outlast:bulk_page"];

/// The output of one attempt, as a payload.
pub(crate) type AttemptFuture = Pin<Box<dyn Future<Output = Result<Payload, StepError>> + Send>>;

/// One call of a step's code.
pub(crate) type StepCall = Arc<dyn Fn(Arc<AttemptInfo>, Payload) -> AttemptFuture + Send + Sync>;

/// Calls the function of a workflow.
pub(crate) type WorkflowCall =
    Arc<dyn Fn(Context, Payload, &dyn Codec) -> Result<WorkflowFuture, InputError> + Send + Sync>;

/// Tests an input of a workflow: its type, and its `check`.
type StoredInputCheck = Arc<dyn Fn(Payload, &dyn Codec) -> Result<(), Error> + Send + Sync>;

/// The registry of a worker: collects the code that is passed to `.register((…))`.
pub struct Registry<S> {
    state: Arc<S>,
    codec: Arc<dyn Codec>,
    code: Registered,
    /// The problems that were found.
    problems: Vec<String>,
    /// Replacements for the code of steps, in tests.
    mocks: HashMap<Arc<str>, (StepCall, StepOptions)>,
}

/// The code of a worker, by durable name.
#[derive(Default, Clone)]
pub(crate) struct Registered {
    steps: NameMap<StepCall>,
    /// The options of registered steps.
    step_options: NameMap<StepOptions>,
    workflows: HashMap<Code, WorkflowCode, NameHash>,
    /// How many earlier generations of a run are kept; the default is 1.
    kept_generations: Option<usize>,
    default_strategy: FailureStrategy,
    /// Where the servers of the worker can be reached.
    public_url: Option<Arc<str>>,
    /// Whether a workflow decides something about the ends of its runs.
    has_end_plans: bool,
}

#[derive(Clone)]
struct WorkflowCode {
    call: WorkflowCall,
    check: StoredInputCheck,
    ending: EndPlan,
}

/// The options of a registered step, which apply to all its attempts on this worker.
#[derive(Clone)]
pub(crate) struct StepOptions {
    pub(crate) policy: Policy,
    /// Limits the number of concurrent attempts.
    pub(crate) limit: Option<Arc<Semaphore>>,
    /// Whether the step has a `reconcile` function.
    reconciles: bool,
    /// The transactions in which the step is attempted.
    pub(crate) transaction: Option<TransactionKind>,
    /// Tests whether the step can decode an input.
    pub(crate) can_read: CanRead,
    /// Its position among the registered steps, sorted by name, from 1.
    pub(crate) place: usize,
}

impl StepOptions {
    fn new(policy: Policy, reconciles: bool, can_read: CanRead) -> Self {
        let permits = |limit| usize::try_from(limit).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let limit = policy.limit.map(|limit| Arc::new(Semaphore::new(permits(limit))));
        Self { policy, limit, reconciles, transaction: None, can_read, place: 0 }
    }
}

impl Registered {
    pub(crate) fn step_options_of(&self, step: &str) -> Option<&StepOptions> {
        self.step_options.get(step)
    }

    /// The names of the registered steps, sorted.
    pub(crate) fn steps(&self) -> Vec<Arc<str>> {
        let mut steps: Vec<_> = self.step_options.keys().cloned().collect();
        steps.sort_unstable();
        steps
    }

    /// Checks that the world has the transactions that the steps need.
    pub(crate) fn check_transactions(&self, world: &dyn World) -> Result<(), Error> {
        let mut needed: Vec<_> = self
            .step_options
            .iter()
            .filter_map(|(step, options)| Some((step, options.transaction?)))
            .collect();
        needed.sort_by_key(|(step, _)| *step);
        needed.into_iter().try_for_each(|(step, kind)| kind.check(step, world))
    }

    pub(crate) fn step(&self, name: &str) -> Option<&StepCall> {
        self.steps.get(name)
    }

    /// The function of a workflow, if it is registered.
    pub(crate) fn workflow(&self, workflow: &Arc<str>, version: u32) -> Option<&WorkflowCall> {
        self.workflows.get(&Code { workflow: workflow.clone(), version }).map(|code| &code.call)
    }

    /// Tests an input of a workflow; `None` when the workflow is not registered.
    pub(crate) fn check(
        &self,
        workflow: &Arc<str>,
        version: u32,
        input: Payload,
        codec: &dyn Codec,
    ) -> Option<Result<(), Error>> {
        let code = self.workflows.get(&Code { workflow: workflow.clone(), version })?;
        Some(catch_check_panic(|| (code.check)(input, codec)))
    }

    pub(crate) fn code(&self) -> Arc<[Code]> {
        let mut code: Vec<_> = self.workflows.keys().cloned().collect();
        code.sort();
        code.into()
    }
}

impl Registered {
    /// Adds the workflows that every worker has.
    fn add_built_in_workflows(&mut self) {
        let late = Arc::<LateFirings>::default();
        self.add_built_in(SCHEDULE_WORKFLOW, SCHEDULE_VERSION, move |ctx, input, codec| {
            let schedule = |ctx, state| schedule(ctx, state, late.clone());
            call_workflow_function(SCHEDULE_WORKFLOW, schedule, ctx, input, codec)
        });
        self.add_built_in(BULK_WORKFLOW, BULK_VERSION, |ctx, input, codec| {
            call_workflow_function(BULK_WORKFLOW, bulk, ctx, input, codec)
        });
    }

    fn add_built_in(
        &mut self,
        name: &str,
        version: u32,
        call: impl Fn(Context, Payload, &dyn Codec) -> Result<WorkflowFuture, InputError> + Send + Sync + 'static,
    ) {
        let (call, check) = (Arc::new(call), Arc::new(|_: Payload, _: &dyn Codec| Ok(())));
        let code = WorkflowCode { call, check, ending: EndPlan::new() };
        self.workflows.insert(Code { workflow: name.into(), version }, code);
    }
}

impl ReplayCode for Registered {
    fn call_workflow(
        &self,
        state: &Arc<RunState>,
        started: &RunStarted,
        codec: &dyn Codec,
    ) -> Option<Result<WorkflowFuture, InputError>> {
        let RunStarted { workflow, version, input, .. } = started;
        let call = self.workflow(workflow, *version)?;
        state.set_public_url(self.public_url.as_ref());
        Some(call(Context::new(state.clone()), input.clone(), codec))
    }

    fn newest_version(&self, workflow: &str) -> Option<u32> {
        let versions = self.workflows.keys().filter(|code| *code.workflow == *workflow);
        versions.map(|code| code.version).max()
    }

    fn kept_generations(&self) -> usize {
        self.kept_generations.unwrap_or(1)
    }

    fn end_plan(&self, workflow: &str, version: u32) -> Option<EndPlan> {
        if !self.has_end_plans {
            return None;
        }
        let code = self.workflows.get(&Code { workflow: workflow.into(), version })?;
        Some(code.ending.clone()).filter(|plan| *plan != EndPlan::new())
    }

    fn default_strategy(&self, workflow: &str) -> FailureStrategy {
        let is_of_engine = step_of_workflow(workflow).is_some() || workflow.starts_with(BUILT_IN_PREFIX);
        if is_of_engine { FailureStrategy::Fail } else { self.default_strategy }
    }

    fn has_step(&self, step: &str) -> bool {
        self.steps.contains_key(step)
    }

    fn can_read_input(&self, step: &str) -> Option<CanRead> {
        self.step_options_of(step).map(|options| options.can_read)
    }

    /// A step with a `reconcile` function may be attempted again: the next attempt first checks for the effect.
    fn is_at_most_once(&self, step: &str, policy: &Policy) -> bool {
        match self.step_options_of(step) {
            Some(options) => {
                !options.reconciles && (policy.is_at_most_once || options.policy.is_at_most_once)
            }
            None => policy.is_at_most_once,
        }
    }
}

impl<S: Send + Sync + 'static> Registry<S> {
    pub(crate) fn new(state: Arc<S>, codec: Arc<dyn Codec>) -> Self {
        Self { state, codec, code: Registered::default(), problems: Vec::new(), mocks: HashMap::new() }
    }

    /// Sets the strategy of workflows that have none.
    pub(crate) fn set_default_strategy(&mut self, strategy: FailureStrategy) {
        self.code.default_strategy = strategy;
    }

    /// Sets how many earlier generations of a run are kept.
    pub(crate) fn keep_generations(&mut self, generations: usize) {
        self.code.kept_generations = Some(generations);
    }

    /// Sets where the servers of the worker can be reached.
    pub(crate) fn set_public_url(&mut self, public_url: &str) {
        self.code.public_url = Some(public_url.into());
    }

    /// Whether it is known where the servers of the worker can be reached.
    pub(crate) fn has_public_url(&self) -> bool {
        self.code.public_url.is_some()
    }

    /// The collected code, or the last problem that was found.
    pub(crate) fn finish(mut self) -> Result<Arc<Registered>, Error> {
        for (name, (call, options)) in self.mocks {
            self.code.steps.insert(name.clone(), call);
            // A replacement has no `reconcile` function, and needs no transaction.
            let change = |own: &mut StepOptions| {
                (own.reconciles, own.transaction, own.can_read) = (false, None, options.can_read);
            };
            self.code.step_options.entry(name).and_modify(change).or_insert(options);
        }
        if let Some(problem) = self.problems.pop() {
            return Err(Error::invalid(problem));
        }
        for (index, step) in self.code.steps().into_iter().enumerate() {
            self.code.step_options.entry(step).and_modify(|options| options.place = index + 1);
        }
        // Every step can be queued: a run of its own then executes it.
        for step in self.code.steps.keys() {
            let code = Code { workflow: workflow_of_step(step), version: QUEUED_VERSION };
            self.code.workflows.insert(code, queued_step(step.clone()));
        }
        self.code.add_built_in_workflows();
        Ok(Arc::new(self.code))
    }

    /// Replaces the code of a step, whether the step is registered before, after or not at all.
    #[cfg(any(test, feature = "test-support"))]
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
        let options = StepOptions::new(policy, false, can_read::<I>);
        for name in names {
            let (codec, code) = (codec.clone(), code.clone());
            let call: StepCall = Arc::new(move |_info, input| {
                let (codec, code) = (codec.clone(), code.clone());
                // Inside the future, so that a panic of the code is a panic of the attempt.
                Box::pin(async move {
                    let input = decode_input::<I>(input, &*codec, name)?;
                    encode_output(&code(input)?, &*codec)
                })
            });
            self.mocks.insert(name.into(), (call, options.clone()));
        }
    }

    pub(super) fn add_step<D: StepCode<S>>(&mut self) {
        let (state, codec) = (self.state.clone(), self.codec.clone());
        let call: StepCall = Arc::new(move |info, input| attempt_step::<D, S>(&state, info, input, &codec));
        let mut options = StepOptions::new(D::policy(), D::RECONCILES, can_read::<D::Input>);
        options.transaction = D::TRANSACTION;
        self.add_step_code(D::NAME, D::WAS, options, call);
    }

    /// Adds code for a step that is defined by a `Step` constant.
    pub(crate) fn add_step_of<I, O, E, F, Fut>(&mut self, step: Step<I, O>, code: F)
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: Into<StepError>,
        F: Fn(StepContext<S>, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let (state, codec, name) = (self.state.clone(), self.codec.clone(), step.name());
        let call: StepCall = Arc::new(move |info, input| {
            let input = match decode_input::<I>(input, &*codec, name) {
                Ok(input) => input,
                Err(error) => return Box::pin(std::future::ready(Err(error))),
            };
            let (codec, attempt) = (codec.clone(), code(StepContext::new(state.clone(), info, None), input));
            Box::pin(async move { encode_output(&attempt.await.map_err(Into::into)?, &*codec) })
        });
        self.add_step_code(
            name,
            step.earlier_names(),
            StepOptions::new(step.default_policy(), false, can_read::<I>),
            call,
        );
    }

    fn add_step_code(
        &mut self,
        name: &'static str,
        was: &'static [&'static str],
        options: StepOptions,
        call: StepCall,
    ) {
        for name in std::iter::once(&name).chain(was) {
            if !BUILT_IN_STEPS.contains(name) && !OTHER_RUN_STEPS.contains(name) {
                self.problems.extend(check_name("step", name).err());
            }
            self.code.step_options.insert((*name).into(), options.clone());
            if self.code.steps.insert((*name).into(), call.clone()).is_some() {
                self.problems.push(registered_twice(&format!("step `{name}`")));
            }
        }
    }

    pub(super) fn add_workflow<D: WorkflowDefinition>(&mut self) {
        let code = WorkflowCode {
            call: Arc::new(|ctx, input, codec| call_workflow_function(D::NAME, D::run, ctx, input, codec)),
            check: Arc::new(|input, codec| {
                D::check(&decode_workflow_input(D::NAME, input, codec).map_err(|bad| bad.error)?)
            }),
            ending: D::ending(),
        };
        self.add_workflow_code(D::NAME, D::WAS, D::VERSION, &code);
    }

    /// Adds code for a workflow that is defined by a `Workflow` constant.
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
            call: Arc::new(move |ctx, input, codec| call_workflow_function(name, &run, ctx, input, codec)),
            check: Arc::new(move |input, codec| {
                workflow.checked(&decode_workflow_input(name, input, codec).map_err(|bad| bad.error)?)
            }),
            ending: workflow.end_plan(),
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
        self.code.has_end_plans |= code.ending != EndPlan::new();
        for name in std::iter::once(&name).chain(was) {
            self.problems.extend(check_workflow_name(name).err());
            if self.code.workflows.insert(Code { workflow: (*name).into(), version }, code.clone()).is_some()
            {
                self.problems.push(registered_twice(&format!("workflow `{name}` version {version}")));
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

fn registered_twice(what: &str) -> String {
    format!(
        "{what} is registered twice; register it once, or give one of the two another name with `name = \"…\"`"
    )
}

/// The workflow of runs that execute this step from a queue.
fn queued_step(step: Arc<str>) -> WorkflowCode {
    WorkflowCode {
        call: Arc::new(move |ctx, input, _codec| {
            let step = step.clone();
            Ok(Box::pin(async move { ctx.run_queued_step(step, input).await }))
        }),
        check: Arc::new(|_input, _codec| Ok(())),
        ending: EndPlan::new(),
    }
}

fn attempt_step<D: StepCode<S>, S: Send + Sync + 'static>(
    state: &Arc<S>,
    info: Arc<AttemptInfo>,
    input: Payload,
    codec: &Arc<dyn Codec>,
) -> AttemptFuture {
    if D::TRANSACTION.is_some() {
        return Box::pin(attempt_in_transaction::<D, S>(state.clone(), info, input, codec.clone()));
    }
    // `reconcile` consumes the first input; the attempt after it needs another one.
    let second_input = (D::RECONCILES && !info.is_first).then(|| input.clone());
    let (cx, input) = match prepare_attempt::<D, S>(state, &info, input, &**codec) {
        Ok(prepared) => prepared,
        Err(error) => return Box::pin(std::future::ready(Err(error))),
    };
    let codec = codec.clone();
    let Some(second_input) = second_input else {
        let attempt = D::attempt(cx, input).holding_permits(&info);
        return Box::pin(async move { encode_output(&attempt.await?, &*codec) });
    };
    let reconciling = D::reconcile(cx.clone(), input);
    Box::pin(async move {
        let found = reconciling.await;
        let found = found.map_err(|error| if info.is_at_most_once { outcome_unknown(error) } else { error });
        let output = match found? {
            Some(output) => output,
            None => {
                D::attempt(cx, decode_input(second_input, &*codec, D::NAME)?).holding_permits(&info).await?
            }
        };
        encode_output(&output, &*codec)
    })
}

/// The context and the decoded input of an attempt.
pub(super) fn prepare_attempt<D: StepDefinition, S>(
    state: &Arc<S>,
    info: &Arc<AttemptInfo>,
    input: Payload,
    codec: &dyn Codec,
) -> Result<(StepContext<S>, D::Input), StepError> {
    let input = decode_input::<D::Input>(input, codec, D::NAME)?;
    let unique = D::unique(&input)?;
    Ok((StepContext::new(state.clone(), info.clone(), unique), input))
}

/// Decodes the input of a step. An error is not retried by this build, because the stored input does not change.
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

fn decode_workflow_input<I: DeserializeOwned>(
    workflow: &str,
    input: Payload,
    codec: &dyn Codec,
) -> Result<I, InputError> {
    let bad = |error: &PayloadError, text| InputError {
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

/// Decodes the input and calls the function of a workflow.
fn call_workflow_function<I, O, E, Fut>(
    workflow: &str,
    run: impl Fn(Context, I) -> Fut,
    ctx: Context,
    input: Payload,
    codec: &dyn Codec,
) -> Result<WorkflowFuture, InputError>
where
    I: DeserializeOwned,
    O: Serialize,
    E: Into<Error>,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
{
    let input = decode_workflow_input(workflow, input, codec)?;
    let codec = ctx.codec();
    let run = run(ctx, input);
    Ok(Box::pin(async move {
        let output = run.await.map_err(Into::into)?;
        Ok(codec.encode(Payload::json(&output)?)?)
    }))
}
