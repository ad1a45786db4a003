//! Workflows of the simulation: a program is a tree that one workflow interprets, and its children too.

use std::fmt::Debug;
use std::pin::Pin;
use std::task::Poll;

use outlast::prelude::*;
use outlast::{AbandonedChild, ChildOperation, HookOperation, StepOperation, TimerOperation};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

use super::clock::sleep;
use super::ledger::Desk;
use super::values::{Number, Text, Wanted, note_hook};

/// What a step does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// How long it takes.
    pub(super) millis: u64,
    /// How many attempts fail.
    pub(super) fails: u32,
    pub(super) ending: Ending,
    /// Whether it stops when it is told to.
    pub(super) heeds: bool,
    /// Whether its attempts send heartbeats with details.
    pub(super) beats: bool,
    /// Whether it is asked for through a shielded context, which its run says when it asks.
    pub(super) is_shielded: bool,
}

/// What the older build reads as a job: it does not know all of them.
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
    Hasty(Job),
    Call(u8),
    Sleep(u64),
    Hook { name: u8, timeout: Option<u64>, wanted: Wanted },
    Child { program: Box<Program>, timeout: Option<u64>, end: ParentEnd, key: Option<u8>, is_rare: bool },
    Abandoned { program: Box<Program>, key: Option<u8> },
}

/// What a workflow does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Program {
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
    /// With a shielded context.
    Shield(Box<Program>),
    /// Some at a time, until one fails.
    Parallel(Vec<Program>, usize),
    /// Records a value.
    Record(u8),
    /// Sets a tag.
    Tag(u8),
    /// The first when the run takes the new side of a patch, else the second.
    Patch(u8, Box<Program>, Box<Program>),
    /// Takes payloads of a hook until so many came.
    Take {
        name: u8,
        count: u8,
        wanted: Wanted,
    },
    /// The same as what is in it. The older build does not know it as an input.
    Newer(Box<Program>),
    Fail,
}

/// What the older build reads as a program: it does not know all of them.
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

/// Retried, with pauses.
#[step(attempts = 4, initial = "200ms", multiplier = 3.0)]
pub(super) async fn work(cx: StepContext<Desk>, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job, false).await
}

/// As [`work`], in the older build.
#[step(name = "work", attempts = 4, initial = "200ms", multiplier = 3.0)]
pub(super) async fn work_older(cx: StepContext<Desk>, job: OlderJob) -> Result<u64, StepError> {
    attempt(&cx, &job.0, false).await
}

/// Never attempted again.
#[step(at_most_once)]
pub(super) async fn once(cx: StepContext<Desk>, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job, true).await
}

/// Impatient, and one at a time.
#[step(attempts = 3, initial = "50ms", timeout = "1s", limit = 1)]
pub(super) async fn hasty(cx: StepContext<Desk>, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job, false).await
}

async fn attempt(cx: &StepContext<Desk>, job: &Job, is_at_most_once: bool) -> Result<u64, StepError> {
    cx.state().begin(cx, is_at_most_once, job.is_shielded).await;
    let part = std::time::Duration::from_millis(job.millis) / 2;
    let working = async {
        for _ in 0..2 {
            if job.beats {
                cx.state().beat(cx).await;
            }
            sleep(part).await;
        }
    };
    if job.heeds {
        select! {
            () = cx.cancelled() => return Err(StepError::fatal("it was told to stop")),
            () = working => {}
        }
    } else {
        working.await;
    }
    if cx.attempt() <= job.fails {
        cx.state().node.pass().await;
        return match job.ending {
            Ending::Error => Err(StepError::msg("as it was told")),
            Ending::Fatal => Err(StepError::fatal("as it was told")),
            // A panic that nobody prints.
            Ending::Panic => std::panic::resume_unwind(Box::new("as it was told")),
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

/// Interprets a program. Some builds of workers lack it.
#[workflow]
pub(super) async fn rare(ctx: Context, program: Program) -> Result<String, Error> {
    interpret::<false>(&ctx, &program).await
}

/// The queue that not every worker serves.
pub(super) const FAR: &str = "far";

/// The header of runs whose steps are queued: their children have it too.
pub(super) const QUEUES: &str = "queues";

/// The header of runs in real time, whose pauses are a part of what their programs say: their children have it
/// too.
pub(super) const HASTE: &str = "haste";

/// How much shorter pauses are in real time.
const HASTE_FACTOR: u64 = 20;

/// A pause of a program, as long as its run takes it.
fn paced(ctx: &Context, millis: u64) -> u64 {
    if ctx.headers().contains_key(HASTE) { millis / HASTE_FACTOR } else { millis }
}

impl Job {
    fn paced(&self, ctx: &Context) -> Self {
        Self { millis: paced(ctx, self.millis), is_shielded: ctx.is_shielded(), ..self.clone() }
    }

    /// Lets the step travel, in some runs, by what it is rather than by chance: so programs are the same
    /// with and without queues.
    fn in_line(&self, ctx: &Context, step: StepOperation<u64>) -> StepOperation<u64> {
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
enum Asked<const OLDER: bool> {
    Step(StepOperation<u64>),
    Call(StepOperation<Number<OLDER>>),
    Timer(TimerOperation),
    Number(HookOperation<Number<OLDER>>),
    Text(HookOperation<String>),
    Pair(HookOperation<(u64, bool)>),
    Child(ChildOperation<Text<OLDER>>),
    Abandoned(AbandonedChild),
}

impl Leaf {
    fn ask<const OLDER: bool>(&self, ctx: &Context) -> Asked<OLDER> {
        match self {
            Self::Work(job) => Asked::Step(job.in_line(ctx, ctx.step(work, job.paced(ctx)))),
            Self::Once(job) => Asked::Step(job.in_line(ctx, ctx.step(once, job.paced(ctx)))),
            Self::Hasty(job) => Asked::Step(job.in_line(ctx, ctx.step(hasty, job.paced(ctx)))),
            Self::Call(number) => {
                let call = async |number: u8| Ok::<_, StepError>(Number::<OLDER>(u64::from(number)));
                Asked::Call(ctx.call(&format!("call-{number}"), *number, call))
            }
            Self::Sleep(millis) => Asked::Timer(ctx.sleep(format!("{}ms", paced(ctx, *millis)))),
            Self::Hook { name, timeout, wanted } => {
                let (name, timeout) = (format!("hook-{name}"), timeout.map(|millis| paced(ctx, millis)));
                match wanted {
                    Wanted::Number => Asked::Number(hook(ctx, &name, timeout, *wanted)),
                    Wanted::Text => Asked::Text(hook(ctx, &name, timeout, *wanted)),
                    Wanted::Pair => Asked::Pair(hook(ctx, &name, timeout, *wanted)),
                }
            }
            Self::Child { program, timeout, end, key, is_rare } => {
                let workflow = Workflow::<Program, Text<OLDER>>::new(if *is_rare { "rare" } else { "play" });
                let mut child = ctx.child(workflow, &**program).on_parent_end(*end);
                if let Some(millis) = timeout {
                    child = child.timeout(format!("{}ms", paced(ctx, *millis)));
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
        }
    }
}

fn hook<T: DeserializeOwned + Debug>(
    ctx: &Context,
    name: &str,
    timeout: Option<u64>,
    wanted: Wanted,
) -> HookOperation<T> {
    let hook = ctx.hook(name);
    note_hook(ctx.run(), &hook, wanted);
    match timeout {
        Some(millis) => hook.timeout(format!("{millis}ms")),
        None => hook,
    }
}

impl<const OLDER: bool> Asked<OLDER> {
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

/// Runs a program and returns a trace of what it saw.
fn interpret<'a, const OLDER: bool>(ctx: &'a Context, program: &'a Program) -> Interpreted<'a> {
    Box::pin(async move {
        Ok(match program {
            Program::Await(leaf) => leaf.ask::<OLDER>(ctx).outcome().await?,
            Program::Seq(programs) => {
                let mut seen = Vec::new();
                for program in programs {
                    seen.push(interpret::<OLDER>(ctx, program).await?);
                }
                format!("({})", seen.join(" "))
            }
            Program::Forget(leaf) => {
                drop(leaf.ask::<OLDER>(ctx));
                "forgot".into()
            }
            Program::DropAfter(leaf, program) => {
                let asked = leaf.ask::<OLDER>(ctx);
                let seen = interpret::<OLDER>(ctx, program).await?;
                drop(asked);
                seen
            }
            Program::AwaitAfter(leaf, program) => {
                let asked = leaf.ask::<OLDER>(ctx);
                let seen = interpret::<OLDER>(ctx, program).await?;
                format!("{seen} {}", asked.outcome().await?)
            }
            Program::CleanUp(program, clean_up) => match interpret::<OLDER>(ctx, program).await {
                Err(_) if ctx.is_cancelled() => interpret::<OLDER>(&ctx.shielded(), clean_up).await?,
                seen => seen?,
            },
            Program::Toss(programs) => {
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
            Program::Take { name, count, wanted } => {
                let leaf = Leaf::Hook { name: *name, timeout: None, wanted: *wanted };
                take::<OLDER>(ctx, &leaf, *count).await?
            }
            Program::Newer(program) => interpret::<OLDER>(ctx, program).await?,
            Program::Fail => return Err(Error::msg("as it was told")),
            many => at_once::<OLDER>(ctx, many).await?,
        })
    })
}

async fn take<const OLDER: bool>(ctx: &Context, leaf: &Leaf, count: u8) -> Result<String, Error> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(leaf.ask::<OLDER>(ctx).outcome().await?);
    }
    Ok(format!("{taken:?}"))
}

fn each<'a, const OLDER: bool>(ctx: &'a Context, programs: &'a [Program]) -> Vec<Interpreted<'a>> {
    programs.iter().map(|program| interpret::<OLDER>(ctx, program)).collect()
}

/// Runs several programs at once.
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
