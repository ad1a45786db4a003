//! The attributes [`macro@workflow`] and [`macro@step`] and the macro [`select!`] of Outlast.
//!
//! This crate is a part of `outlast`, which re-exports all three; its expansions name items of
//! `::outlast`. Both attributes leave a plain *function* under the name that was written, so it can be
//! passed (`ctx.step(charge, &order)`), registered (`.register((checkout, charge))`) and called in a
//! unit test. What they add is one hidden type that carries the definition: the durable name, the
//! types of input and output, the policy.

mod arguments;
mod determinism;
mod duration;
mod errors;
mod function;
mod kind;
mod names;
mod select;
mod signature;
mod step;
mod workflow;

use proc_macro::TokenStream;
use syn::ItemFn;

use errors::Errors;
use kind::Kind;

/// Makes an `async fn` a step: a piece of work with effects, whose outcome is recorded once.
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
/// * The first parameter may be the context, known by the name of its type: `StepContext<Bank>` for
///   workers whose state is `Bank`, `StepContext` for workers with any state. It may be left out, too.
/// * All other parameters are the input: none is `()`, one is its type, several are a tuple. They are
///   owned serde values; references, `impl Trait`, generics and `self` are refused.
/// * A return type whose path ends in `Result` may fail: its error is converted to `StepError` by
///   `Into`. Any other type is the output of a step that cannot fail.
/// * Types are as visible as the function: a `pub` step has `pub` input and output types.
/// * Attributes that callers see (documentation, `#[deprecated]`, `#[must_use]`, lint levels) go to the
///   function that is left; all others, such as `#[tracing::instrument]`, to the original `async fn`.
///
/// # Arguments
///
/// | argument | meaning |
/// |---|---|
/// | `attempts = 5` | attempts in all, from 1 |
/// | `timeout = "30s"` | how long one attempt may take |
/// | `retry = "api"` | where the rest begins: `exponential` (the default), `linear`, `constant`, or a preset, `api`, `database`, `network`, `none` |
/// | `initial = "200ms"` | the pause after the first failed attempt |
/// | `multiplier = 2.0` | by how much each pause is longer than the one before, from 1 |
/// | `pause_max = "1m"` | the longest pause |
/// | `heartbeat_timeout = "10s"` | how long an attempt may go without `cx.heartbeat(…)` |
/// | `limit = 10` | how many attempts at the step one worker makes at the same time |
/// | `blocking` | the function is not `async` and blocks its thread: it runs on the pool for that |
/// | `at_most_once` | there is no second attempt, not even after a crash; then it fails as unknown |
/// | `reconcile = look_up` | the function that looks whether an earlier attempt had its effect, see below |
/// | `unique = "order.id, action"` | makes `cx.key()` of these parameters, or fields of them: the same in every run |
/// | `queue = "gpu"` | the step travels to the workers that serve this queue, instead of being attempted by the one that holds its run |
/// | `priority = 3` | how urgent it is among those of its queue, from 0 to 9; as its run unless set |
/// | `name = "…"` | the durable name, 1 to 128 bytes, instead of the function's |
/// | `was = "…"`, `was = ["…", "…"]` | earlier durable names, whose histories are accepted |
///
/// Durations have the units `us`, `ms`, `s`, `m`, `h`, `d` and `w`, also combined: `"1h30m"`. What is left
/// out is as in `Policy::DEFAULT`.
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
/// The function takes what the step takes; the context may be left out. It is asked before every attempt
/// that may not be the first: after a failed one, and when the worker that announced the step is gone.
/// `Some(output)` completes the step without an attempt, `None` lets it be attempted, an error is that of
/// the attempt. Both together have the attempt's timeout.
///
/// Next to `at_most_once` it takes the place of failing as unknown: `None` means that the step did not
/// happen, so it is attempted. An error of the function then fails the step as unknown.
///
/// # Expansion
///
/// ```ignore
/// pub struct __step_charge;                         // hidden; only ever named
/// impl StepDefinition for __step_charge { /* … */ }       // name, earlier names, types, policy
/// impl StepCode<Bank> for __step_charge {           // for every state, where the context names none
///     fn attempt(cx: StepContext<Bank>, input: Order) -> Attempt<Self> { charge(cx, input) }
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

/// Makes an `async fn` a workflow: a function that outlasts the process that started it.
///
/// ```ignore
/// #[workflow(was = "buy")]
/// async fn checkout(ctx: Context, order: Order) -> Result<Receipt, Error> {
///     let payment = ctx.step(charge, &order).await?;
///     Ok(Receipt { payment })
/// }
/// ```
///
/// The first parameter is the context, `Context`. For the others, for the return type (with `Error` in
/// place of `StepError`) and for attributes the rules of [`macro@step`] hold.
///
/// # Arguments
///
/// | argument | meaning |
/// |---|---|
/// | `name = "…"` | the durable name, 1 to 128 bytes, instead of the function's |
/// | `was = "…"`, `was = ["…", "…"]` | earlier durable names, whose histories are accepted |
/// | `version = 2` | the version that new runs are pinned to, from 1, which is the default |
/// | `queue = "reports"` | the queue in which its runs stand, unless their start says otherwise |
/// | `priority = 3` | how urgent its runs are, from 0, the default, to 9 |
/// | `check = check_order` | a function that judges the input before a run begins: `fn(&Order) -> Result<(), E>` |
/// | `unchecked = "reason"` | leaves out the checks below, and says why that is right |
///
/// The `check` takes a reference to each parameter but the context. Its error, which is anything that can
/// be displayed, refuses the start: nothing is written.
///
/// # Determinism
///
/// A workflow must request the same operations on every replay. The body and the types of the parameters
/// are searched for names that are known not to allow this, and the error says what to use instead:
///
/// | refused | instead |
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
/// Closures given to a method named `call` are not searched, nor are steps defined inside the body;
/// arguments of macros are, where they are expressions. The search knows names, not types: it finds
/// mistakes, it proves nothing.
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

/// Waits for several futures and continues with the first that is ready.
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
/// A branch is `pattern = future => expression`; the comma after a block may be left out. The pattern
/// must match every value. The order of the branches is the whole rule, so it replays:
///
/// 1. All futures are made, in order, before any is polled.
/// 2. They are polled in order, and the first that is ready is taken. Of two that are ready at once the
///    one written first wins.
/// 3. All futures are dropped. Dropping an operation ends the run's interest in it.
/// 4. The expression of the branch is evaluated; `?`, `return`, `break` and `.await` mean what they mean
///    outside. Its value is the value of `select!`.
///
/// There is no `else` and there are no preconditions.
#[proc_macro]
pub fn select(branches: TokenStream) -> TokenStream {
    select::expand(branches.into()).into()
}

fn on_function(kind: Kind, arguments: TokenStream, item: TokenStream) -> TokenStream {
    let item = proc_macro2::TokenStream::from(item);
    let (expansion, errors) = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(function) => match kind {
            Kind::Step | Kind::BlockingStep => step::expand(arguments.into(), &function),
            Kind::Workflow => workflow::expand(arguments.into(), &function),
        },
        Err(error) => not_a_function(kind, item, error),
    };
    let mut tokens = errors.into_tokens();
    tokens.extend(expansion);
    tokens.into()
}

/// The error for an item that is no function, or that has a syntax error. The item is kept, so that editors still know
/// it.
fn not_a_function(
    kind: Kind,
    item: proc_macro2::TokenStream,
    error: syn::Error,
) -> (proc_macro2::TokenStream, Errors) {
    let mut errors = Errors::default();
    match syn::parse2::<syn::Item>(item.clone()) {
        Ok(item) => errors.at(item, format!("{kind} goes on an `async fn`")),
        Err(_) => errors.push(error),
    }
    (item, errors)
}
