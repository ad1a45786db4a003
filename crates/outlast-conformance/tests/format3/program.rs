//! The workflows of the frozen histories of format 3: a program is a tree that one workflow interprets; its children
//! interpret subtrees.
//!
//! **This file and `feature.rs` and `exchange.rs` do not change.** The histories in `golden/format3` contain programs in this
//! form, and what this interpreter did with them. It is a copy of that of the simulation at the time when they were frozen;
//! new features go to the simulation. What may change here is how the API of `outlast` is called, when that has to change.

use std::fmt::Debug;
use std::pin::Pin;
use std::task::Poll;

use outlast::prelude::*;
use outlast::{AbandonedChild, ChildOperation, HookOperation, StepOperation, TimerOperation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::feature::Feature;
use super::values::{Number, PayloadType, Text};

/// What a step does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// How long it takes.
    pub(crate) millis: u64,
    /// How many attempts fail.
    pub(crate) fails: u32,
    pub(crate) ending: Ending,
    /// Whether it stops when it is cancelled.
    pub(crate) stops_on_cancel: bool,
    /// Whether its attempts send heartbeats with details.
    pub(crate) beats: bool,
    /// Whether it was requested through a shielded context; its run sets this.
    pub(crate) is_shielded: bool,
}

/// How the failed attempts of a step end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Ending {
    Error,
    Fatal,
    Panic,
}

/// One operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Leaf {
    Work(Job),
    Once(Job),
    TimeLimited(Job),
    Call(u8),
    Sleep(u64),
    Hook { name: u8, timeout: Option<u64>, payload_type: PayloadType },
    Child { program: Box<Program>, timeout: Option<u64>, end: ParentEnd, key: Option<u8>, is_rare: bool },
    Abandoned { program: Box<Program>, key: Option<u8> },
}

/// What a workflow does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Program {
    /// Awaits an operation.
    Await(Leaf),
    /// In sequence, until one fails.
    Seq(Vec<Program>),
    /// Concurrently, with results in the order written.
    Join(Vec<Program>),
    /// Concurrently, with results in the order of their ends.
    Unordered(Vec<Program>),
    /// The first to end, polled in the order written; the others are dropped.
    Race(Vec<Program>),
    /// The first to end of a `FuturesUnordered`; the others are dropped.
    RaceUnordered(Vec<Program>),
    /// Requests an operation and drops it before the next suspension.
    Forget(Leaf),
    /// Requests an operation, executes a program, and drops the operation.
    DropAfter(Leaf, Box<Program>),
    /// Requests an operation, executes a program, and awaits the operation.
    AwaitAfter(Leaf, Box<Program>),
    /// Requests an operation, executes a program, cancels the operation, and awaits it.
    CancelAfter(Leaf, Box<Program>),
    /// The first to succeed; the others are dropped.
    RaceOk(Vec<Program>),
    /// Executes the second program if the run was cancelled during the first.
    CleanUp(Box<Program>, Box<Program>),
    /// One of them, chosen at random.
    RandomChoice(Vec<Program>),
    /// Continues when it fails.
    Try(Box<Program>),
    /// With a shielded context.
    Shield(Box<Program>),
    /// Some at a time, until one fails.
    Parallel(Vec<Program>, usize),
    /// Records a value.
    Record(u8),
    /// Sets a tag.
    Tag(u8),
    /// The first if the run takes the new side of a patch, else the second.
    Patch(u8, Box<Program>, Box<Program>),
    /// Awaits this many payloads of a hook, one after the other.
    Take {
        name: u8,
        count: u8,
        payload_type: PayloadType,
    },
    /// Executes a program, then continues as a new generation with another one.
    Continue(Box<Program>, Box<Program>),
    /// A part that only some seeds draw.
    Feature(Feature),
    /// Executes the inner program. The older build cannot decode it as an input.
    Newer(Box<Program>),
    Fail,
}

/// A step that is retried, with pauses. No step is attempted in a replay.
#[step(attempts = 4, initial = "200ms", multiplier = 3.0)]
pub(crate) async fn work(_job: Job) -> Result<u64, StepError> {
    Ok(0)
}

/// A step that is attempted at most once.
#[step(at_most_once)]
pub(crate) async fn once(_job: Job) -> Result<u64, StepError> {
    Ok(0)
}

/// A step with a timeout and a concurrency limit of one.
#[step(attempts = 3, initial = "50ms", timeout = "1s", limit = 1)]
pub(crate) async fn time_limited(_job: Job) -> Result<u64, StepError> {
    Ok(0)
}

/// Interprets a program.
#[workflow]
pub(crate) async fn play(ctx: Context, program: Program) -> Result<String, Error> {
    interpret(&ctx, &program).await
}

/// Interprets a program.
#[workflow]
pub(crate) async fn rare(ctx: Context, program: Program) -> Result<String, Error> {
    interpret(&ctx, &program).await
}

/// A queue that only some workers serve.
pub(crate) const FAR: &str = "far";

/// The header of runs whose steps are queued; children inherit it.
pub(crate) const QUEUES: &str = "queues";

impl Job {
    pub(crate) fn in_context(&self, ctx: &Context) -> Self {
        Self { is_shielded: ctx.is_shielded(), ..self.clone() }
    }

    /// Queues some steps if the run has the header. The job decides which, so that programs are the same with and
    /// without queues.
    pub(crate) fn queued_if_enabled(
        &self,
        ctx: &Context,
        step: StepOperation<u64, Self>,
    ) -> StepOperation<u64, Self> {
        if !ctx.headers().contains_key(QUEUES) {
            return step;
        }
        match self.millis % 4 {
            0 => step.queue(FAR),
            1 => step.queue("default").priority((self.millis % 10) as u8),
            _ => step,
        }
    }
}

/// A requested operation of any kind.
enum RequestedOperation {
    Step(StepOperation<u64, Job>),
    Call(StepOperation<Number, u8>),
    Timer(TimerOperation),
    Number(HookOperation<Number>),
    Text(HookOperation<String>),
    Pair(HookOperation<(u64, bool)>),
    Child(ChildOperation<Text>),
    Abandoned(AbandonedChild),
}

impl Leaf {
    fn request(&self, ctx: &Context) -> RequestedOperation {
        match self {
            Self::Work(job) => {
                RequestedOperation::Step(job.queued_if_enabled(ctx, ctx.step(work, job.in_context(ctx))))
            }
            Self::Once(job) => {
                RequestedOperation::Step(job.queued_if_enabled(ctx, ctx.step(once, job.in_context(ctx))))
            }
            Self::TimeLimited(job) => RequestedOperation::Step(
                job.queued_if_enabled(ctx, ctx.step(time_limited, job.in_context(ctx))),
            ),
            Self::Call(number) => {
                let call = async |number: u8| Ok::<_, StepError>(Number(u64::from(number)));
                RequestedOperation::Call(ctx.call(&format!("call-{number}"), *number, call))
            }
            Self::Sleep(millis) => RequestedOperation::Timer(ctx.sleep(format!("{millis}ms"))),
            Self::Hook { name, timeout, payload_type } => {
                let (name, timeout) = (format!("hook-{name}"), *timeout);
                match payload_type {
                    PayloadType::Number => RequestedOperation::Number(hook(ctx, &name, timeout)),
                    PayloadType::Text => RequestedOperation::Text(hook(ctx, &name, timeout)),
                    PayloadType::Pair => RequestedOperation::Pair(hook(ctx, &name, timeout)),
                }
            }
            Self::Child { program, timeout, end, key, is_rare } => {
                let workflow = Workflow::<Program, Text>::new(if *is_rare { "rare" } else { "play" });
                let mut child = ctx.child(workflow, &**program).on_parent_end(*end);
                if let Some(millis) = timeout {
                    child = child.timeout(format!("{millis}ms"));
                }
                if let Some(key) = key {
                    child = child.key(format!("child-{key}"));
                }
                RequestedOperation::Child(child)
            }
            Self::Abandoned { program, key } => {
                let mut child = ctx.child(play, &**program);
                if let Some(key) = key {
                    child = child.key(format!("child-{key}"));
                }
                RequestedOperation::Abandoned(child.abandon())
            }
        }
    }
}

fn hook<T: DeserializeOwned + Debug>(ctx: &Context, name: &str, timeout: Option<u64>) -> HookOperation<T> {
    let hook = ctx.hook(name);
    match timeout {
        Some(millis) => hook.timeout(format!("{millis}ms")),
        None => hook,
    }
}

impl RequestedOperation {
    fn cancel(&self) {
        match self {
            Self::Step(step) => step.cancel(),
            Self::Call(call) => call.cancel(),
            Self::Timer(timer) => timer.cancel(),
            Self::Number(hook) => hook.cancel(),
            Self::Text(hook) => hook.cancel(),
            Self::Pair(hook) => hook.cancel(),
            Self::Child(child) => child.cancel(),
            Self::Abandoned(_) => {}
        }
    }

    async fn outcome(self) -> Result<String, Error> {
        match self {
            Self::Step(step) => step.await.map(|output| format!("s{output}")),
            Self::Call(call) => call.await.map(|output| format!("s{}", output.0)),
            Self::Timer(timer) => timer.await.map(|()| "t".into()),
            Self::Number(hook) => hook.await.map(|payload| format!("h{}", payload.0)),
            Self::Text(hook) => hook.await.map(|payload| format!("h{payload}")),
            Self::Pair(hook) => hook.await.map(|payload| format!("h{}", payload.0)),
            Self::Child(child) => child.await.map(|output| format!("c{}", output.0.len())),
            Self::Abandoned(child) => child.await.map(|run| format!("a{run}")),
        }
    }
}

type Interpreted<'a> = Pin<Box<dyn Future<Output = Result<String, Error>> + Send + 'a>>;

/// Executes a program, and returns a trace of its results.
pub(crate) fn interpret<'a>(ctx: &'a Context, program: &'a Program) -> Interpreted<'a> {
    Box::pin(async move {
        Ok(match program {
            Program::Await(leaf) => leaf.request(ctx).outcome().await?,
            Program::Seq(programs) => {
                let mut seen = Vec::new();
                for program in programs {
                    seen.push(interpret(ctx, program).await?);
                }
                format!("({})", seen.join(" "))
            }
            Program::Forget(leaf) => {
                drop(leaf.request(ctx));
                "forgot".into()
            }
            Program::DropAfter(leaf, during)
            | Program::AwaitAfter(leaf, during)
            | Program::CancelAfter(leaf, during) => {
                let requested = leaf.request(ctx);
                let seen = interpret(ctx, during).await?;
                end_after(program, requested, seen).await?
            }
            Program::CleanUp(program, clean_up) => match interpret(ctx, program).await {
                Err(_) if ctx.is_cancelled() => interpret(&ctx.shielded(), clean_up).await?,
                seen => seen?,
            },
            Program::RandomChoice(programs) => {
                let chosen = ctx.random() % programs.len().max(1) as u64;
                interpret(ctx, &programs[chosen as usize]).await?
            }
            Program::Shield(program) => interpret(&ctx.shielded(), program).await?,
            Program::Try(program) => format!("try{:?}", interpret(ctx, program).await),
            Program::Record(name) => {
                let now = ctx.now().as_micros().unsigned_abs() / 1_000;
                format!("v{}", ctx.record(&format!("value-{name}"), || Number(now))?.0)
            }
            Program::Tag(name) => {
                let now = ctx.now().to_string();
                ctx.tag(format!("tag-{name}"), &now)?;
                format!("{:?}", ctx.tags())
            }
            Program::Patch(name, new, old) => {
                let side = if ctx.patched(&format!("patch-{name}")) { new } else { old };
                interpret(ctx, side).await?
            }
            Program::Take { name, count, payload_type } => {
                let leaf = Leaf::Hook { name: *name, timeout: None, payload_type: *payload_type };
                take(ctx, &leaf, *count).await?
            }
            Program::Continue(first, next) => {
                interpret(ctx, first).await?;
                return ctx.continue_as(&**next);
            }
            Program::Feature(feature) => feature.execute(ctx).await?,
            Program::Newer(program) => interpret(ctx, program).await?,
            Program::Fail => return Err(Error::msg("failed as planned")),
            many => at_once(ctx, many).await?,
        })
    })
}

/// Drops, awaits or cancels an operation, after a program has seen something.
async fn end_after(program: &Program, requested: RequestedOperation, seen: String) -> Result<String, Error> {
    match program {
        Program::AwaitAfter(..) => Ok(format!("{seen} {}", requested.outcome().await?)),
        Program::CancelAfter(..) => {
            requested.cancel();
            Ok(format!("{seen} {:?}", requested.outcome().await))
        }
        _ => {
            drop(requested);
            Ok(seen)
        }
    }
}

async fn take(ctx: &Context, leaf: &Leaf, count: u8) -> Result<String, Error> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(leaf.request(ctx).outcome().await?);
    }
    Ok(format!("{taken:?}"))
}

fn each<'a>(ctx: &'a Context, programs: &'a [Program]) -> Vec<Interpreted<'a>> {
    programs.iter().map(|program| interpret(ctx, program)).collect()
}

/// Executes several programs concurrently.
async fn at_once(ctx: &Context, program: &Program) -> Result<String, Error> {
    Ok(match program {
        Program::Join(programs) => format!("join{:?}", join_all(each(ctx, programs)).await),
        Program::Unordered(programs) => {
            let ends: Vec<_> =
                each(ctx, programs).into_iter().collect::<FuturesUnordered<_>>().collect().await;
            format!("all{ends:?}")
        }
        Program::Race(programs) => format!("first{:?}", first(each(ctx, programs)).await),
        Program::RaceUnordered(programs) => {
            let end = each(ctx, programs).into_iter().collect::<FuturesUnordered<_>>().next().await;
            format!("any{end:?}")
        }
        Program::RaceOk(programs) => format!("ok{:?}", race_ok(each(ctx, programs)).await),
        Program::Parallel(programs, limit) => {
            let seen = ctx.parallel(programs, *limit, |_, program| interpret(ctx, program)).await?;
            format!("some{seen:?}")
        }
        _ => String::new(),
    })
}

async fn first(mut racers: Vec<Interpreted<'_>>) -> Result<String, Error> {
    std::future::poll_fn(|cx| {
        if racers.is_empty() {
            return Poll::Ready(Ok(String::new()));
        }
        let ready = racers.iter_mut().map(|racer| racer.as_mut().poll(cx)).find(Poll::is_ready);
        ready.unwrap_or(Poll::Pending)
    })
    .await
}
