//! The workflows of the frozen histories: a program is data, which one workflow interprets, and its children too.
//!
//! **This file does not change.** The histories in `golden/rules1` hold programs in this form and what this
//! interpreter did with them, so whoever changes what it does (the order in which it asks for operations, what it
//! returns) makes the comparison worthless. The simulation has programs of its own, which began as the same code:
//! new features go there. What may change here is how the API of `outlast` is called, when that has to change.

use std::pin::Pin;
use std::task::Poll;

use outlast::prelude::*;
use outlast::{AbandonedChild, ChildOperation, HookOperation, StepOperation, TimerOperation};
use serde::{Deserialize, Serialize};

/// What a step does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// How long it takes.
    pub(crate) millis: u64,
    /// How many attempts fail.
    pub(crate) fails: u32,
    pub(crate) ending: Ending,
    /// Whether it stops when it is told to.
    pub(crate) heeds: bool,
    /// Whether it sends heartbeats with details.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) beats: bool,
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
    Hasty(Job),
    Call(u8),
    Sleep(u64),
    Hook(u8, Option<u64>),
    Child {
        program: Box<Program>,
        timeout: Option<u64>,
        end: ParentEnd,
        key: Option<u8>,
        is_rare: bool,
    },
    Abandoned {
        program: Box<Program>,
        key: Option<u8>,
    },
    /// A step whose output is not of the type that the workflow expects.
    Misread(Job),
    /// A child whose output is not of the type that the workflow expects.
    MisreadChild(Box<Program>),
    /// A child that is given no program.
    MisledChild(u64),
}

/// What a workflow does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Program {
    /// Awaits an operation.
    Await(Leaf),
    /// One after the other, until one fails.
    Seq(Vec<Program>),
    /// All at once, seen in the order written.
    Join(Vec<Program>),
    /// All at once, seen in the order in which they end.
    Unordered(Vec<Program>),
    /// The first to end, looked at in the order written; the others are dropped.
    Race(Vec<Program>),
    /// The first to end of a `FuturesUnordered`; the others are dropped.
    RaceUnordered(Vec<Program>),
    /// Asks for an operation and drops it before the next suspension.
    Forget(Leaf),
    /// Asks for an operation, does something else, and drops it.
    DropAfter(Leaf, Box<Program>),
    /// Asks for an operation, does something else, and awaits it.
    AwaitAfter(Leaf, Box<Program>),
    /// Does the second when the run was cancelled meanwhile.
    CleanUp(Box<Program>, Box<Program>),
    /// One by chance.
    Toss(Vec<Program>),
    /// Goes on when it fails.
    Try(Box<Program>),
    /// Some at a time, until one fails.
    Parallel(Vec<Program>, usize),
    /// Records a value.
    Record(u8),
    /// Sets a tag.
    Tag(u8),
    /// The first when the run takes the new side of a patch, else the second.
    Patch(u8, Box<Program>, Box<Program>),
    /// Takes payloads of a hook until so many came.
    Take(u8, u8),
    /// Looks at what the context knows.
    Look,
    Fail,
}

/// Retried, with pauses.
#[step(attempts = 4, initial = "200ms", multiplier = 3.0)]
pub(crate) async fn work(cx: StepContext, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job).await
}

/// Never attempted again.
#[step(at_most_once)]
pub(crate) async fn once(cx: StepContext, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job).await
}

/// Impatient, and one at a time.
#[step(attempts = 3, initial = "50ms", timeout = "1s", limit = 1)]
pub(crate) async fn hasty(cx: StepContext, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job).await
}

/// `work`, for a workflow that is wrong about what it returns.
const WORK_AS_TEXT: Step<Job, String> = Step::new("work").attempts(2);

/// `play`, for a workflow that is wrong about what it returns.
const PLAY_AS_NUMBER: Workflow<Program, u64> = Workflow::new("play");

/// `play`, for those who are wrong about what it takes.
pub(crate) const PLAY_A_NUMBER: Workflow<u64, String> = Workflow::new("play");

#[allow(clippy::disallowed_methods, reason = "the time of the runtime is paused: this is virtual time")]
async fn attempt(cx: &StepContext, job: &Job) -> Result<u64, StepError> {
    if job.beats {
        cx.heartbeat(cx.last_details::<u64>().unwrap_or_default() + 1);
    }
    let working = tokio::time::sleep(std::time::Duration::from_millis(job.millis));
    if job.heeds {
        select! {
            () = cx.cancelled() => return Err(StepError::fatal("it was told to stop")),
            () = working => {}
        }
    } else {
        working.await;
    }
    if cx.attempt() <= job.fails {
        return match job.ending {
            Ending::Error => Err(StepError::msg("as it was told")),
            Ending::Fatal => Err(StepError::fatal("as it was told")),
            // A panic that nobody prints.
            Ending::Panic => std::panic::resume_unwind(Box::new("as it was told")),
        };
    }
    Ok(job.millis * 10 + u64::from(cx.attempt()))
}

/// Interprets a program. Every worker has it.
#[workflow]
pub(crate) async fn play(ctx: Context, program: Program) -> Result<String, Error> {
    interpret(&ctx, &program).await
}

/// Interprets a program. Some builds of workers lack it.
#[workflow]
pub(crate) async fn rare(ctx: Context, program: Program) -> Result<String, Error> {
    interpret(&ctx, &program).await
}

/// The queue that not every worker serves.
pub(crate) const FAR: &str = "far";

/// The header of runs whose steps are queued: their children have it too.
pub(crate) const QUEUES: &str = "queues";

impl Job {
    /// Lets the step travel, in some runs, by what it is rather than by chance: so programs are the same
    /// with and without queues.
    fn in_line(&self, ctx: &Context, step: StepOperation<u64, Self>) -> StepOperation<u64, Self> {
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

/// An operation of any kind.
enum Asked {
    Step(StepOperation<u64, Job>),
    Call(StepOperation<u64, u8>),
    Timer(TimerOperation),
    Hook(HookOperation<u64>),
    Child(ChildOperation<String>),
    Abandoned(AbandonedChild),
    Text(StepOperation<String, Job>),
    Number(ChildOperation<u64>),
}

impl Leaf {
    fn ask(&self, ctx: &Context) -> Asked {
        match self {
            Self::Work(job) => Asked::Step(job.in_line(ctx, ctx.step(work, job))),
            Self::Once(job) => Asked::Step(job.in_line(ctx, ctx.step(once, job))),
            Self::Hasty(job) => Asked::Step(job.in_line(ctx, ctx.step(hasty, job))),
            Self::Call(number) => {
                let call = async |number: u8| Ok::<_, StepError>(u64::from(number));
                Asked::Call(ctx.call(&format!("call-{number}"), *number, call))
            }
            Self::Sleep(millis) => Asked::Timer(ctx.sleep(format!("{millis}ms"))),
            Self::Hook(name, timeout) => {
                let hook = ctx.hook(format!("hook-{name}"));
                Asked::Hook(match timeout {
                    Some(millis) => hook.timeout(format!("{millis}ms")),
                    None => hook,
                })
            }
            Self::Child { program, timeout, end, key, is_rare } => {
                let child = if *is_rare { ctx.child(rare, &**program) } else { ctx.child(play, &**program) };
                let mut child = child.on_parent_end(*end);
                if let Some(millis) = timeout {
                    child = child.timeout(format!("{millis}ms"));
                }
                if let Some(key) = key {
                    child = child.key(format!("child-{key}"));
                }
                Asked::Child(child)
            }
            Self::Abandoned { program, key } => {
                let mut child = ctx.child(play, &**program);
                if let Some(key) = key {
                    child = child.key(format!("child-{key}"));
                }
                Asked::Abandoned(child.abandon())
            }
            Self::Misread(job) => Asked::Text(ctx.step(WORK_AS_TEXT, job)),
            Self::MisreadChild(program) => Asked::Number(ctx.child(PLAY_AS_NUMBER, &**program)),
            Self::MisledChild(number) => Asked::Child(ctx.child(PLAY_A_NUMBER, number)),
        }
    }
}

impl Asked {
    async fn outcome(self) -> Result<String, Error> {
        match self {
            Self::Step(step) => step.await.map(|output| format!("s{output}")),
            Self::Call(call) => call.await.map(|output| format!("s{output}")),
            Self::Timer(timer) => timer.await.map(|()| "t".into()),
            Self::Hook(hook) => hook.await.map(|payload| format!("h{payload}")),
            Self::Child(child) => child.await.map(|output| format!("c{}", output.len())),
            Self::Abandoned(child) => child.await.map(|run| format!("a{run}")),
            Self::Text(step) => step.await.map(|text| format!("x{text}")),
            Self::Number(child) => child.await.map(|number| format!("n{number}")),
        }
    }
}

type Interpreted<'a> = Pin<Box<dyn Future<Output = Result<String, Error>> + Send + 'a>>;

/// Runs a program and returns a trace of what it saw.
fn interpret<'a>(ctx: &'a Context, program: &'a Program) -> Interpreted<'a> {
    Box::pin(async move {
        Ok(match program {
            Program::Await(leaf) => leaf.ask(ctx).outcome().await?,
            Program::Seq(programs) => {
                let mut seen = Vec::new();
                for program in programs {
                    seen.push(interpret(ctx, program).await?);
                }
                format!("({})", seen.join(" "))
            }
            Program::Forget(leaf) => {
                drop(leaf.ask(ctx));
                "forgot".into()
            }
            Program::DropAfter(leaf, program) => {
                let asked = leaf.ask(ctx);
                let seen = interpret(ctx, program).await?;
                drop(asked);
                seen
            }
            Program::AwaitAfter(leaf, program) => {
                let asked = leaf.ask(ctx);
                let seen = interpret(ctx, program).await?;
                format!("{seen} {}", asked.outcome().await?)
            }
            Program::CleanUp(program, clean_up) => match interpret(ctx, program).await {
                Err(_) if ctx.is_cancelled() => interpret(ctx, clean_up).await?,
                seen => seen?,
            },
            Program::Toss(programs) => {
                let chosen = ctx.random() % programs.len().max(1) as u64;
                interpret(ctx, &programs[chosen as usize]).await?
            }
            Program::Try(program) => format!("try{:?}", interpret(ctx, program).await),
            Program::Record(name) => {
                let now = ctx.now().as_micros();
                format!("v{}", ctx.record(&format!("value-{name}"), || now)?)
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
            Program::Take(name, count) => {
                let mut taken = Vec::new();
                for _ in 0..*count {
                    taken.push(ctx.hook::<u64>(format!("hook-{name}")).await?);
                }
                format!("{taken:?}")
            }
            Program::Look => {
                let deadline = ctx.deadline().map(|deadline| deadline.as_micros());
                format!("{deadline:?} {} {} {:?}", ctx.uuid(), ctx.root(), ctx.tags())
            }
            Program::Fail => return Err(Error::msg("as it was told")),
            many => at_once(ctx, many).await?,
        })
    })
}

fn each<'a>(ctx: &'a Context, programs: &'a [Program]) -> Vec<Interpreted<'a>> {
    programs.iter().map(|program| interpret(ctx, program)).collect()
}

/// Runs several programs at once.
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
