//! The application: the commands, and the code of a program.

mod code;
mod execute;

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;

use outlast::{Codec, Error, Register, WorkerBuilder};

use self::code::{Code, StateSource};
pub(crate) use self::code::{SharedCodec, WorkerCode, WorkerOptions};
use crate::exit::Exit;

/// A program with the commands of `outlast` and its own workflows and steps.
///
/// ```no_run
/// use outlast::prelude::*;
///
/// struct Bank {
///     url: String,
/// }
///
/// #[step]
/// async fn charge(cx: StepContext<Bank>, cents: u64) -> Result<String, StepError> {
///     Ok(format!("{cents} from {}", cx.state().url))
/// }
///
/// #[workflow]
/// async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
///     ctx.step(charge, cents).await
/// }
///
/// fn main() -> std::process::ExitCode {
///     outlast_cli::App::new()
///         .name("shop")
///         .state_with(async || Ok(Bank { url: std::env::var("BANK_URL")? })) // only if a worker starts
///         .register((checkout, charge))
///         .configure(|worker| worker.queues(["default", "reports"]).retention("30d"))
///         .main()
/// }
/// ```
pub struct App<S = ()> {
    name: Option<String>,
    codec: Option<Arc<dyn Codec>>,
    code: Code<S>,
}

impl App<()> {
    /// A program without code: it has all commands but those that need code.
    #[must_use]
    pub fn new() -> Self {
        Self { name: None, codec: None, code: Code::new(StateSource::Value(())) }
    }

    /// Sets the state that steps access through [`StepContext::state`](outlast::StepContext::state). Call it before
    /// [`register`](App::register).
    ///
    /// # Panics
    ///
    /// When code was registered already.
    #[must_use]
    pub fn state<S: Send + Sync + 'static>(self, state: S) -> App<S> {
        self.with_state(StateSource::Value(state))
    }

    /// Sets a function that makes the state when a worker or a check starts. Other commands do not call it.
    ///
    /// # Panics
    ///
    /// When code was registered already.
    #[must_use]
    pub fn state_with<S, F>(self, make: impl FnOnce() -> F + Send + 'static) -> App<S>
    where
        S: Send + Sync + 'static,
        F: Future<Output = Result<S, Error>> + Send + 'static,
    {
        self.with_state(StateSource::Made(Box::new(move || Box::pin(make()))))
    }

    fn with_state<S>(self, state: StateSource<S>) -> App<S> {
        assert!(self.code.is_empty(), "call `.state(…)` before `.register(…)`");
        App { name: self.name, codec: self.codec, code: Code::new(state) }
    }
}

impl Default for App<()> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Send + Sync + 'static> App<S> {
    /// Names the program in its help; the name of the executable unless set.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds code: a function with `#[workflow]` or `#[step]`, or a tuple of them. Repeated calls add up.
    #[must_use]
    pub fn register<R, M>(mut self, code: R) -> Self
    where
        R: Register<S, M> + Send + 'static,
    {
        self.code.add(|builder| builder.register(code));
        self
    }

    /// Changes the settings of the worker, such as its queues.
    #[must_use]
    pub fn configure(
        mut self,
        settings: impl FnOnce(WorkerBuilder<S>) -> WorkerBuilder<S> + Send + 'static,
    ) -> Self {
        self.code.set(settings);
        self
    }

    /// Sets the codec that all payloads pass through, in workers and commands.
    #[must_use]
    pub fn codec(mut self, codec: impl Codec + 'static) -> Self {
        self.codec = Some(Arc::new(codec));
        self
    }

    /// Executes the command of the process's arguments, and returns its exit code.
    pub fn main(self) -> ExitCode {
        ExitCode::from(self.run(std::env::args_os()).code())
    }

    /// Executes the command of these arguments; the first is the name of the program. It starts a runtime of its own,
    /// and prints to the standard output and error of the process.
    pub fn run<A: Into<OsString> + Clone>(self, arguments: impl IntoIterator<Item = A>) -> Exit {
        let code = (!self.code.is_empty()).then(|| Box::new(self.code) as Box<dyn WorkerCode>);
        let codec = self.codec.map(SharedCodec);
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        execute::execute(self.name, codec, code, arguments)
    }
}

impl<S> fmt::Debug for App<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("name", &self.name).finish_non_exhaustive()
    }
}
