//! The attributes [`macro@workflow`] and [`macro@step`] and the macro [`select!`] of Outlast.
//!
//! This crate is a part of `outlast`, which re-exports all three; the expansions refer to items of `::outlast`. Both
//! attributes keep a plain *function* under its name, so you can pass it (`ctx.step(charge, &order)`), register it
//! (`.register((checkout, charge))`) and call it in a unit test. They add one hidden type that holds the definition:
//! the durable name, the types of input and output, and the policy.

mod arguments;
mod determinism;
mod duration;
mod errors;
mod function;
mod kind;
mod names;
mod on_failure;
mod select;
mod signature;
mod step;
mod workflow;

use proc_macro::TokenStream;
use syn::ItemFn;

use errors::Errors;
use kind::Kind;

/// Makes an `async fn` a step: a piece of work with side effects, whose outcome is recorded once.
///
/// ```ignore
/// #[step(attempts = 5, timeout = "30s")]
/// async fn charge(cx: StepContext<Bank>, order: Order) -> Result<Payment, StepError> {
///     Ok(cx.state().charge(&order, cx.key()).await?)
/// }
/// ```
///
/// # Function
///
/// * The first parameter may be the context, recognized by the name of its type: `StepContext<Bank>` for workers whose
///   state is `Bank`, or `StepContext` for workers with any state. It is optional.
/// * All other parameters are the input. Without any, the input is `()`; several are a tuple. They are owned serde
///   values; references, `impl Trait`, generics and `self` are rejected.
/// * If the path of the return type ends in `Result`, the step can fail, and its error is converted to `StepError` by
///   `Into`. Any other return type is the output of a step that cannot fail.
/// * The types must be as visible as the function: a `pub` step has `pub` input and output types.
/// * Attributes that concern callers (documentation, `#[deprecated]`, `#[must_use]`, lint levels) are applied to the
///   resulting function; all others, such as `#[tracing::instrument]`, to the original `async fn`.
///
/// # Arguments
///
/// | argument | meaning |
/// |---|---|
/// | `attempts = 5` | the total number of attempts, at least 1 |
/// | `timeout = "30s"` | how long one attempt may take |
/// | `retry = "api"` | the base of the retry policy: `exponential` (the default), `linear`, `constant`, or a preset: `quick`, `standard`, `aggressive`, `api`, `database`, `network`, `none` |
/// | `initial = "200ms"` | the pause after the first failed attempt |
/// | `multiplier = 2.0` | the factor by which each pause is longer than the one before, at least 1 |
/// | `pause_max = "1m"` | the longest pause |
/// | `heartbeat_timeout = "10s"` | how long an attempt may go without `cx.heartbeat(…)` |
/// | `limit = 10` | the number of attempts at the step that one worker makes at the same time |
/// | `blocking` | the function is not `async` and blocks its thread; it runs on the blocking pool |
/// | `transactional` | the first parameter is a transaction, `tx: &mut PgTx<'_>` or `tx: &SqliteTx<'_>`, in which the outcome is recorded |
/// | `at_most_once` | there is no second attempt, even after a crash; after a crash the step fails as unknown |
/// | `reconcile = look_up` | a function that checks whether an earlier attempt had its effect; see below |
/// | `unique = "order.id, action"` | forms `cx.key()` from these parameters, or fields of them: the same in every run |
/// | `queue = "gpu"` | a worker that serves this queue attempts the step, instead of the worker that holds the run |
/// | `priority = 3` | the priority in its queue, from 0 to 9; that of its run by default |
/// | `name = "…"` | the durable name, 1 to 128 bytes, instead of the function's name |
/// | `was = "…"`, `was = ["…", "…"]` | earlier durable names, which are accepted in histories |
///
/// Durations have the units `us`, `ms`, `s`, `m`, `h`, `d` and `w`, which can be combined: `"1h30m"`. Settings that are
/// omitted have the values of `Policy::DEFAULT`.
///
/// # Reconcile
///
/// ```ignore
/// #[step(reconcile = look_up)]
/// async fn charge(cx: StepContext<Bank>, order: Order) -> Result<Payment, StepError> { /* … */ }
///
/// async fn look_up(cx: StepContext<Bank>, order: Order) -> Result<Option<Payment>, StepError> { /* … */ }
/// ```
///
/// The function has the parameters of the step; the context is optional. It is called before every attempt that may not
/// be the first: after a failed attempt, and when the worker that announced the step is gone. `Some(output)` completes
/// the step without an attempt, `None` lets the step be attempted, and an error counts as a failed attempt. The timeout
/// of the attempt applies to both together.
///
/// With `at_most_once`, it is called instead of failing as unknown: `None` means that the step did not happen, so it is
/// attempted. If the function returns an error, the step fails as unknown.
///
/// # Expansion
///
/// ```ignore
/// pub struct __step_charge;                         // hidden; only ever named
/// impl StepDefinition for __step_charge { /* … */ }       // name, earlier names, types, policy
/// impl<S> StepCode<S> for __step_charge             // for every state, where the context names none
/// where
///     S: StateFor<Bank, Self>,
/// {
///     fn attempt(cx: StepContext<S>, input: Order) -> Attempt<Self> { charge(S::context(cx), input) }
/// }
/// fn charge(cx: StepContext<Bank>, order: Order) -> Attempt<__step_charge> {
///     async fn __outlast_body(cx: StepContext<Bank>, order: Order) -> Result<Payment, StepError> { /* … */ }
///     Attempt::new(async move { __outlast_body(cx, order).await.map_err(Into::into) })
/// }
/// ```
#[proc_macro_attribute]
pub fn step(arguments: TokenStream, item: TokenStream) -> TokenStream {
    on_function(Kind::Step, arguments, item)
}

/// Makes an `async fn` a workflow: a durable function that outlasts the process that started it.
///
/// ```ignore
/// #[workflow(was = "buy")]
/// async fn checkout(ctx: Context, order: Order) -> Result<Receipt, Error> {
///     let payment = ctx.step(charge, &order).await?;
///     Ok(Receipt { payment })
/// }
/// ```
///
/// The first parameter is the context, `Context`. For the other parameters, for the return type (with `Error` instead
/// of `StepError`) and for attributes, the rules of [`macro@step`] apply.
///
/// # Arguments
///
/// | argument | meaning |
/// |---|---|
/// | `name = "…"` | the durable name, 1 to 128 bytes, instead of the function's name |
/// | `was = "…"`, `was = ["…", "…"]` | earlier durable names, whose runs are accepted |
/// | `version = 2` | the version of new runs, at least 1, which is the default |
/// | `queue = "reports"` | the queue of its runs, unless their start sets another one |
/// | `priority = 3` | the priority of its runs, from 0 (the default) to 9 |
/// | `on_failure = retry` | what happens when a run fails: `fail` (the default), `retry`, `cascade` or `quarantine`; see below |
/// | `on_end = notify` | a step that is started when a run has ended; see below |
/// | `check = check_order` | a function that validates the input before a run is started: `fn(&Order) -> Result<(), E>` |
/// | `unchecked = "reason"` | disables the checks below, and documents why that is correct |
///
/// The `check` function takes a reference to each parameter except the context. If it returns an error, which can be of
/// any type that implements `Display`, the start is rejected and nothing is written.
///
/// # Failure and end
///
/// Both arguments are recorded when a run is started, and kept for its life.
///
/// | strategy | what happens when the workflow returns an error |
/// |---|---|
/// | `fail` | the run ends as failed |
/// | `retry` | it begins again with the same input, up to three tries in all, after 5 s and 10 s; `retry(attempts = 5, initial = "1m", multiplier = 2.0, pause_max = "1h")` sets other values. First its children and compensations end. There is no next try after a cancel, a fatal error, an exceeded limit or the deadline |
/// | `cascade` | it ends as failed, and the run that awaits it is cancelled |
/// | `quarantine` | it ends as failed and in quarantine: it is not deleted until it is released |
///
/// The step of `on_end` has one parameter of the type `RunEnd` beside its context. It is executed from a queue, its own
/// or that of the run, and it cannot delay or change the end of the run.
///
/// # Determinism
///
/// A workflow must request the same operations in every replay. The macro searches the body and the types of the
/// parameters for names that are known to prevent this, and the error names the replacement:
///
/// | rejected | replacement |
/// |---|---|
/// | `SystemTime::now`, `Instant::now`, `Utc::now`, `Local::now` and their like | `ctx.now()` |
/// | `rand::`, `fastrand::`, `thread_rng` | `ctx.random()` |
/// | `Uuid::new_v4`, `Uuid::now_v7` | `ctx.uuid()` |
/// | `tokio::time::`, `thread::sleep` | `ctx.sleep(…)`, `.timeout(…)` |
/// | `tokio::spawn`, `tokio::task::`, `std::thread` | `join!`, a step |
/// | `tokio::join!`, `tokio::try_join!` | `join!`, `try_join!` of the prelude |
/// | `tokio::select!`, `futures::select!` | [`select!`] |
/// | `HashMap`, `HashSet` | `BTreeMap`, `BTreeSet`, `Vec` |
/// | files, environment, network, processes, HTTP clients | a step, `ctx.call(…)` |
///
/// Closures that are passed to a method named `call`, and steps that are defined inside the body, are not searched.
/// Arguments of macros are searched if they are expressions. The search knows names, not types: it finds common
/// mistakes, but it proves nothing.
///
/// # Expansion
///
/// ```ignore
/// struct __workflow_checkout;                                  // hidden; only ever named
/// impl WorkflowDefinition for __workflow_checkout { /* … */ }        // name, earlier names, version, types, `run`
/// fn checkout(ctx: Context, order: Order) -> RunFuture<__workflow_checkout> {
///     async fn __outlast_body(ctx: Context, order: Order) -> Result<Receipt, Error> { /* … */ }
///     RunFuture::new(async move { __outlast_body(ctx, order).await.map_err(Into::into) })
/// }
/// ```
#[proc_macro_attribute]
pub fn workflow(arguments: TokenStream, item: TokenStream) -> TokenStream {
    on_function(Kind::Workflow, arguments, item)
}

/// Waits for several futures, and continues with the first that is ready.
///
/// ```ignore
/// let answer = select! {
///     paid = ctx.hook::<Payment>("paid") => { format!("paid {}", paid?.cents) }
///     late = ctx.sleep("1d") => {
///         late?;
///         "too late".to_owned()
///     }
/// };
/// ```
///
/// A branch is `pattern = future => expression`; the comma after a block is optional. The pattern must match every
/// value. The result depends only on the order of the branches, so it is the same in a replay:
///
/// 1. All futures are created, in order, before any is polled.
/// 2. They are polled in order, and the first that is ready is taken. If two are ready at the same time, the one
///    written first wins.
/// 3. All futures are dropped. Dropping an operation discards its outcome.
/// 4. The expression of the branch is evaluated; `?`, `return`, `break` and `.await` have their usual meaning. Its
///    value is the value of `select!`.
///
/// There are neither `else` branches nor preconditions.
#[proc_macro]
pub fn select(branches: TokenStream) -> TokenStream {
    select::expand(branches.into()).into()
}

fn on_function(kind: Kind, arguments: TokenStream, item: TokenStream) -> TokenStream {
    let item = proc_macro2::TokenStream::from(item);
    let tokens = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(function) => {
            let (expansion, errors) = match kind {
                Kind::Step | Kind::BlockingStep | Kind::TransactionalStep(_) => {
                    step::expand(arguments.into(), &function)
                }
                Kind::Workflow => workflow::expand(arguments.into(), &function),
            };
            match expansion {
                Some(expansion) => {
                    let mut tokens = errors.into_tokens();
                    tokens.extend(expansion);
                    tokens
                }
                None => errors.into_stub(&function),
            }
        }
        Err(error) => not_a_function(kind, item, error),
    };
    tokens.into()
}

/// The error for an item that is no function, or that has a syntax error. The item is kept, so that editors still know
/// it.
fn not_a_function(kind: Kind, item: proc_macro2::TokenStream, error: syn::Error) -> proc_macro2::TokenStream {
    let mut errors = Errors::default();
    match syn::parse2::<syn::Item>(item.clone()) {
        Ok(item) => errors.at(item, format!("{kind} goes on an `async fn`")),
        Err(_) => errors.push(error),
    }
    let mut tokens = errors.into_tokens();
    tokens.extend(item);
    tokens
}
