//! The code of a program: its state, workflows and steps, without the type of the state.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use outlast::{CheckReport, Codec, Error, Payload, PayloadError, Timestamp, Worker, WorkerBuilder, World};

type StateFuture<S> = Pin<Box<dyn Future<Output = Result<S, Error>> + Send>>;
type BuilderChange<S> = Box<dyn FnOnce(WorkerBuilder<S>) -> WorkerBuilder<S> + Send>;

/// Where the state of a worker comes from.
pub(super) enum StateSource<S> {
    Value(S),
    Made(Box<dyn FnOnce() -> StateFuture<S> + Send>),
}

/// The code of a program.
pub(super) struct Code<S> {
    state: StateSource<S>,
    code: Vec<BuilderChange<S>>,
    settings: Vec<BuilderChange<S>>,
}

/// What the arguments of a command say about a worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerOptions {
    /// The queues; those of the program if empty.
    pub(crate) queues: Vec<String>,
    /// The codec of payloads.
    pub(crate) codec: Option<SharedCodec>,
    /// Where the server can be reached, with which the URLs of webhooks begin.
    pub(crate) public_url: Option<String>,
}

/// The code of a program, whatever the type of its state.
#[async_trait]
pub(crate) trait WorkerCode: Send {
    /// Starts a worker.
    async fn start(self: Box<Self>, world: Arc<dyn World>, options: WorkerOptions) -> Result<Worker, Error>;

    /// Executes what is ready, and stops.
    async fn run_until_idle(
        self: Box<Self>,
        world: Arc<dyn World>,
        options: WorkerOptions,
    ) -> Result<Option<Timestamp>, Error>;

    /// Replays all open runs. The listener gets the number of runs so far.
    async fn check(
        self: Box<Self>,
        world: Arc<dyn World>,
        options: WorkerOptions,
        on_progress: Box<dyn Fn(u64) + Send>,
    ) -> Result<CheckReport, Error>;
}

impl<S: Send + Sync + 'static> Code<S> {
    pub(super) fn add(&mut self, change: impl FnOnce(WorkerBuilder<S>) -> WorkerBuilder<S> + Send + 'static) {
        self.code.push(Box::new(change));
    }

    pub(super) fn set(&mut self, change: impl FnOnce(WorkerBuilder<S>) -> WorkerBuilder<S> + Send + 'static) {
        self.settings.push(Box::new(change));
    }

    async fn builder(self, world: Arc<dyn World>, options: WorkerOptions) -> Result<WorkerBuilder<S>, Error> {
        let state = match self.state {
            StateSource::Value(state) => state,
            StateSource::Made(make) => make().await?,
        };
        let mut plain = Worker::builder(world);
        if let Some(codec) = options.codec {
            plain = plain.codec(codec);
        }
        let changes = self.code.into_iter().chain(self.settings);
        let builder = changes.fold(plain.state(state), |builder, change| change(builder));
        let builder = match options.public_url {
            Some(url) => builder.public_url(url),
            None => builder,
        };
        Ok(if options.queues.is_empty() { builder } else { builder.queues(options.queues) })
    }
}

impl<S> Code<S> {
    pub(super) fn new(state: StateSource<S>) -> Self {
        Self { state, code: Vec::new(), settings: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.code.is_empty()
    }
}

#[async_trait]
impl<S: Send + Sync + 'static> WorkerCode for Code<S> {
    async fn start(self: Box<Self>, world: Arc<dyn World>, options: WorkerOptions) -> Result<Worker, Error> {
        self.builder(world, options).await?.start().await
    }

    async fn run_until_idle(
        self: Box<Self>,
        world: Arc<dyn World>,
        options: WorkerOptions,
    ) -> Result<Option<Timestamp>, Error> {
        self.builder(world, options).await?.run_until_idle().await
    }

    async fn check(
        self: Box<Self>,
        world: Arc<dyn World>,
        options: WorkerOptions,
        on_progress: Box<dyn Fn(u64) + Send>,
    ) -> Result<CheckReport, Error> {
        let check = self.builder(world, options).await?.check();
        check.on_progress(move |report| on_progress(report.runs())).await
    }
}

/// A codec that the client and the worker of a program share.
#[derive(Clone, Debug)]
pub(crate) struct SharedCodec(pub(super) Arc<dyn Codec>);

impl Codec for SharedCodec {
    fn encode(&self, plain: Payload) -> Result<Payload, PayloadError> {
        self.0.encode(plain)
    }

    fn decode(&self, stored: Payload) -> Result<Payload, PayloadError> {
        self.0.decode(stored)
    }
}
