//! Workflows of the simulation: a program is a tree that one workflow interprets; its children interpret subtrees.

use std::fmt::Debug;
use std::pin::Pin;
use std::task::Poll;

use outlast::prelude::*;
use outlast::{AbandonedChild, ChildOperation, HookOperation, StepOperation, TimerOperation};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

use super::attempt_log::StepState;
use super::clock::sleep;
use super::orchestration::Feature;
use super::values::{Number, PayloadType, Text, register_hook};

/// What a step does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// How long it takes.
    pub(super) millis: u64,
    /// How many attempts fail.
    pub(super) fails: u32,
    pub(super) ending: Ending,
    /// Whether it stops when it is cancelled.
    pub(super) stops_on_cancel: bool,
    /// Whether its attempts send heartbeats with details.
    pub(super) beats: bool,
    /// Whether it was requested through a shielded context; its run sets this.
    pub(super) is_shielded: bool,
}

/// A job as the older build decodes it: some jobs are unknown to it.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct OlderJob(Job);

impl<'de> Deserialize<'de> for OlderJob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let job = Job::deserialize(deserializer)?;
        if job.millis % 10 == 7 {
            return Err(D::Error::custom("this build does not know such a job"));
        }
        Ok(Self(job))
    }
}

/// How the failed attempts of a step end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Ending {
    Error,
    Fatal,
    Panic,
}

/// One operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Leaf {
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
pub(super) enum Program {
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

/// A program as the older build decodes it: some programs are unknown to it.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct OlderProgram(Program);

impl<'de> Deserialize<'de> for OlderProgram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Program::deserialize(deserializer)? {
            Program::Newer(_) => Err(D::Error::custom("this build does not know such a program")),
            program => Ok(Self(program)),
        }
    }
}

/// A step that is retried, with pauses.
#[step(attempts = 4, initial = "200ms", multiplier = 3.0)]
pub(super) async fn work(cx: StepContext<StepState>, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job, false).await
}

/// As [`work`], in the older build.
#[step(name = "work", attempts = 4, initial = "200ms", multiplier = 3.0)]
pub(super) async fn work_older(cx: StepContext<StepState>, job: OlderJob) -> Result<u64, StepError> {
    attempt(&cx, &job.0, false).await
}

/// A step that is attempted at most once.
#[step(at_most_once)]
pub(super) async fn once(cx: StepContext<StepState>, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job, true).await
}

/// A step with a timeout and a concurrency limit of one.
#[step(attempts = 3, initial = "50ms", timeout = "1s", limit = 1)]
pub(super) async fn time_limited(cx: StepContext<StepState>, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job, false).await
}

pub(super) async fn attempt(
    cx: &StepContext<StepState>,
    job: &Job,
    is_at_most_once: bool,
) -> Result<u64, StepError> {
    cx.state().begin(cx, is_at_most_once, job.is_shielded).await;
    let _running = cx.state().run_attempt(cx).await;
    let part = std::time::Duration::from_millis(job.millis) / 2;
    let working = async {
        for _ in 0..2 {
            if job.beats {
                cx.state().beat(cx).await;
            }
            sleep(part).await;
        }
    };
    if job.stops_on_cancel {
        select! {
            () = cx.cancelled() => return Err(StepError::fatal("stopped by a cancel")),
            () = working => {}
        }
    } else {
        working.await;
    }
    if cx.attempt() <= job.fails {
        cx.state().node.wait_until_running().await;
        return match job.ending {
            Ending::Error => Err(StepError::msg("failed as planned")),
            Ending::Fatal => Err(StepError::fatal("failed as planned")),
            // A panic that is not printed.
            Ending::Panic => std::panic::resume_unwind(Box::new("failed as planned")),
        };
    }
    Ok(cx.state().end(cx).await)
}

/// Interprets a program. Every worker has it.
#[workflow]
pub(super) async fn play(ctx: Context, program: Program) -> Result<String, Error> {
    interpret::<false>(&ctx, &program).await
}

/// As [`play`], in the older build.
#[workflow(name = "play")]
pub(super) async fn play_older(ctx: Context, program: OlderProgram) -> Result<String, Error> {
    interpret::<true>(&ctx, &program.0).await
}

/// Interprets a program. Some workers lack it.
#[workflow]
pub(super) async fn rare(ctx: Context, program: Program) -> Result<String, Error> {
    interpret::<false>(&ctx, &program).await
}

/// A queue that only some workers serve.
pub(super) const FAR: &str = "far";

/// The header of runs whose steps are queued; children inherit it.
pub(super) const QUEUES: &str = "queues";

/// The header of runs in real time, whose pauses are shortened; children inherit it.
pub(super) const SHORT_PAUSES: &str = "haste";

/// The divisor of pauses in real time.
const PAUSE_DIVISOR: u64 = 20;

/// A pause of a program, shortened if the run is in real time.
pub(super) fn scaled(ctx: &Context, millis: u64) -> u64 {
    if ctx.headers().contains_key(SHORT_PAUSES) { millis / PAUSE_DIVISOR } else { millis }
}

impl Job {
    pub(super) fn scaled(&self, ctx: &Context) -> Self {
        Self { millis: scaled(ctx, self.millis), is_shielded: ctx.is_shielded(), ..self.clone() }
    }

    /// Queues some steps if the run has the header. The job decides which, so that programs are the same with and
    /// without queues.
    pub(super) fn queued_if_enabled(
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
enum RequestedOperation<const OLDER: bool> {
    Step(StepOperation<u64, Job>),
    Call(StepOperation<Number<OLDER>, u8>),
    Timer(TimerOperation),
    Number(HookOperation<Number<OLDER>>),
    Text(HookOperation<String>),
    Pair(HookOperation<(u64, bool)>),
    Child(ChildOperation<Text<OLDER>>),
    Abandoned(AbandonedChild),
}

impl Leaf {
    fn request<const OLDER: bool>(&self, ctx: &Context) -> RequestedOperation<OLDER> {
        match self {
            Self::Work(job) => {
                RequestedOperation::Step(job.queued_if_enabled(ctx, ctx.step(work, job.scaled(ctx))))
            }
            Self::Once(job) => {
                RequestedOperation::Step(job.queued_if_enabled(ctx, ctx.step(once, job.scaled(ctx))))
            }
            Self::TimeLimited(job) => {
                RequestedOperation::Step(job.queued_if_enabled(ctx, ctx.step(time_limited, job.scaled(ctx))))
            }
            Self::Call(number) => {
                let call = async |number: u8| Ok::<_, StepError>(Number::<OLDER>(u64::from(number)));
                RequestedOperation::Call(ctx.call(&format!("call-{number}"), *number, call))
            }
            Self::Sleep(millis) => {
                RequestedOperation::Timer(ctx.sleep(format!("{}ms", scaled(ctx, *millis))))
            }
            Self::Hook { name, timeout, payload_type } => {
                let (name, timeout) = (format!("hook-{name}"), timeout.map(|millis| scaled(ctx, millis)));
                match payload_type {
                    PayloadType::Number => {
                        RequestedOperation::Number(hook(ctx, &name, timeout, *payload_type))
                    }
                    PayloadType::Text => RequestedOperation::Text(hook(ctx, &name, timeout, *payload_type)),
                    PayloadType::Pair => RequestedOperation::Pair(hook(ctx, &name, timeout, *payload_type)),
                }
            }
            Self::Child { program, timeout, end, key, is_rare } => {
                let workflow = Workflow::<Program, Text<OLDER>>::new(if *is_rare { "rare" } else { "play" });
                let mut child = ctx.child(workflow, &**program).on_parent_end(*end);
                if let Some(millis) = timeout {
                    child = child.timeout(format!("{}ms", scaled(ctx, *millis)));
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

fn hook<T: DeserializeOwned + Debug>(
    ctx: &Context,
    name: &str,
    timeout: Option<u64>,
    payload_type: PayloadType,
) -> HookOperation<T> {
    let hook = ctx.hook(name);
    register_hook(ctx.run(), &hook, payload_type);
    match timeout {
        Some(millis) => hook.timeout(format!("{millis}ms")),
        None => hook,
    }
}

impl<const OLDER: bool> RequestedOperation<OLDER> {
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
pub(super) fn interpret<'a, const OLDER: bool>(ctx: &'a Context, program: &'a Program) -> Interpreted<'a> {
    Box::pin(async move {
        Ok(match program {
            Program::Await(leaf) => leaf.request::<OLDER>(ctx).outcome().await?,
            Program::Seq(programs) => {
                let mut seen = Vec::new();
                for program in programs {
                    seen.push(interpret::<OLDER>(ctx, program).await?);
                }
                format!("({})", seen.join(" "))
            }
            Program::Forget(leaf) => {
                drop(leaf.request::<OLDER>(ctx));
                "forgot".into()
            }
            Program::DropAfter(leaf, during)
            | Program::AwaitAfter(leaf, during)
            | Program::CancelAfter(leaf, during) => {
                let requested = leaf.request::<OLDER>(ctx);
                let seen = interpret::<OLDER>(ctx, during).await?;
                end_after(program, requested, seen).await?
            }
            Program::CleanUp(program, clean_up) => match interpret::<OLDER>(ctx, program).await {
                Err(_) if ctx.is_cancelled() => interpret::<OLDER>(&ctx.shielded(), clean_up).await?,
                seen => seen?,
            },
            Program::RandomChoice(programs) => {
                let chosen = ctx.random() % programs.len().max(1) as u64;
                interpret::<OLDER>(ctx, &programs[chosen as usize]).await?
            }
            Program::Shield(program) => interpret::<OLDER>(&ctx.shielded(), program).await?,
            Program::Try(program) => format!("try{:?}", interpret::<OLDER>(ctx, program).await),
            Program::Record(name) => {
                let now = ctx.now().as_micros().unsigned_abs() / 1_000;
                format!("v{}", ctx.record(&format!("value-{name}"), || Number::<OLDER>(now))?.0)
            }
            Program::Tag(name) => {
                let now = ctx.now().to_string();
                ctx.tag(format!("tag-{name}"), &now)?;
                format!("{:?}", ctx.tags())
            }
            Program::Patch(name, new, old) => {
                let side = if ctx.patched(&format!("patch-{name}")) { new } else { old };
                interpret::<OLDER>(ctx, side).await?
            }
            Program::Take { name, count, payload_type } => {
                let leaf = Leaf::Hook { name: *name, timeout: None, payload_type: *payload_type };
                take::<OLDER>(ctx, &leaf, *count).await?
            }
            Program::Continue(first, next) => {
                interpret::<OLDER>(ctx, first).await?;
                return ctx.continue_as(&**next);
            }
            Program::Feature(feature) => feature.execute::<OLDER>(ctx).await?,
            Program::Newer(program) => interpret::<OLDER>(ctx, program).await?,
            Program::Fail => return Err(Error::msg("failed as planned")),
            many => at_once::<OLDER>(ctx, many).await?,
        })
    })
}

/// Drops, awaits or cancels an operation, after a program has seen something.
async fn end_after<const OLDER: bool>(
    program: &Program,
    requested: RequestedOperation<OLDER>,
    seen: String,
) -> Result<String, Error> {
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

async fn take<const OLDER: bool>(ctx: &Context, leaf: &Leaf, count: u8) -> Result<String, Error> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(leaf.request::<OLDER>(ctx).outcome().await?);
    }
    Ok(format!("{taken:?}"))
}

fn each<'a, const OLDER: bool>(ctx: &'a Context, programs: &'a [Program]) -> Vec<Interpreted<'a>> {
    programs.iter().map(|program| interpret::<OLDER>(ctx, program)).collect()
}

/// Executes several programs concurrently.
async fn at_once<const OLDER: bool>(ctx: &Context, program: &Program) -> Result<String, Error> {
    Ok(match program {
        Program::Join(programs) => format!("join{:?}", join_all(each::<OLDER>(ctx, programs)).await),
        Program::Unordered(programs) => {
            let ends: Vec<_> =
                each::<OLDER>(ctx, programs).into_iter().collect::<FuturesUnordered<_>>().collect().await;
            format!("all{ends:?}")
        }
        Program::Race(programs) => format!("first{:?}", first(each::<OLDER>(ctx, programs)).await),
        Program::RaceUnordered(programs) => {
            let end = each::<OLDER>(ctx, programs).into_iter().collect::<FuturesUnordered<_>>().next().await;
            format!("any{end:?}")
        }
        Program::RaceOk(programs) => format!("ok{:?}", race_ok(each::<OLDER>(ctx, programs)).await),
        Program::Parallel(programs, limit) => {
            let seen = ctx.parallel(programs, *limit, |_, program| interpret::<OLDER>(ctx, program)).await?;
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
