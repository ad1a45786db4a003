//! Random workflows: a program is a tree that one workflow interprets, and its children too.

use std::pin::Pin;
use std::task::Poll;

use fastrand::Rng;
use outlast::prelude::*;
use outlast::{AbandonedChild, ChildOperation, HookOperation, StepOperation, TimerOperation};
use serde::{Deserialize, Serialize};

use super::clock::sleep;
use super::ledger::Desk;

/// What a step does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// How long it takes.
    millis: u64,
    /// How many attempts fail.
    fails: u32,
    ending: Ending,
    /// Whether it stops when it is told to.
    heeds: bool,
    /// Whether it is asked for through a shielded context, which its run says when it asks.
    #[serde(default)]
    is_shielded: bool,
}

/// How the failed attempts of a step end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Ending {
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
    Hook(u8, Option<u64>),
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
    Take(u8, u8),
    Fail,
}

/// Retried, with pauses.
#[step(attempts = 4, initial = "200ms", multiplier = 3.0)]
pub(super) async fn work(cx: StepContext<Desk>, job: Job) -> Result<u64, StepError> {
    attempt(&cx, &job, false).await
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
    let working = sleep(std::time::Duration::from_millis(job.millis));
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
    interpret(&ctx, &program).await
}

/// Interprets a program. Some builds of workers lack it.
#[workflow]
pub(super) async fn rare(ctx: Context, program: Program) -> Result<String, Error> {
    interpret(&ctx, &program).await
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
enum Asked {
    Step(StepOperation<u64>),
    Timer(TimerOperation),
    Hook(HookOperation<u64>),
    Child(ChildOperation<String>),
    Abandoned(AbandonedChild),
}

impl Leaf {
    fn ask(&self, ctx: &Context) -> Asked {
        match self {
            Self::Work(job) => Asked::Step(job.in_line(ctx, ctx.step(work, job.paced(ctx)))),
            Self::Once(job) => Asked::Step(job.in_line(ctx, ctx.step(once, job.paced(ctx)))),
            Self::Hasty(job) => Asked::Step(job.in_line(ctx, ctx.step(hasty, job.paced(ctx)))),
            Self::Call(number) => {
                let call = async |number: u8| Ok::<_, StepError>(u64::from(number));
                Asked::Step(ctx.call(&format!("call-{number}"), *number, call))
            }
            Self::Sleep(millis) => Asked::Timer(ctx.sleep(format!("{}ms", paced(ctx, *millis)))),
            Self::Hook(name, timeout) => {
                let hook = ctx.hook(&format!("hook-{name}"));
                Asked::Hook(match timeout {
                    Some(millis) => hook.timeout(format!("{}ms", paced(ctx, *millis))),
                    None => hook,
                })
            }
            Self::Child { program, timeout, end, key, is_rare } => {
                let child = if *is_rare { ctx.child(rare, &**program) } else { ctx.child(play, &**program) };
                let mut child = child.on_parent_end(*end);
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

impl Asked {
    async fn outcome(self) -> Result<String, Error> {
        match self {
            Self::Step(step) => step.await.map(|output| format!("s{output}")),
            Self::Timer(timer) => timer.await.map(|()| "t".into()),
            Self::Hook(hook) => hook.await.map(|payload| format!("h{payload}")),
            Self::Child(child) => child.await.map(|output| format!("c{}", output.len())),
            Self::Abandoned(child) => child.await.map(|run| format!("a{run}")),
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
                Err(_) if ctx.is_cancelled() => interpret(&ctx.shielded(), clean_up).await?,
                seen => seen?,
            },
            Program::Toss(programs) => {
                let chosen = ctx.random() % programs.len().max(1) as u64;
                interpret(ctx, &programs[chosen as usize]).await?
            }
            Program::Shield(program) => interpret(&ctx.shielded(), program).await?,
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
            Program::Take(name, count) => take(ctx, *name, *count).await?,
            Program::Fail => return Err(Error::msg("as it was told")),
            many => at_once(ctx, many).await?,
        })
    })
}

async fn take(ctx: &Context, name: u8, count: u8) -> Result<String, Error> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(ctx.hook::<u64>(&format!("hook-{name}")).await?);
    }
    Ok(format!("{taken:?}"))
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

/// A program by chance, that nests so deep.
pub(super) fn any_program(rng: &mut Rng, depth: u32) -> Program {
    let parts = (0..rng.usize(1..5)).map(|_| any_part(rng, depth)).collect();
    let goes_on = rng.bool();
    let guard = |part| if goes_on { Program::Try(Box::new(part)) } else { part };
    let parts: Vec<Program> = parts;
    Program::Seq(parts.into_iter().map(guard).collect())
}

fn any_part(rng: &mut Rng, depth: u32) -> Program {
    if depth == 0 || rng.u32(0..3) == 0 {
        return any_simple(rng, depth);
    }
    let depth = depth - 1;
    let some = |rng: &mut Rng| (0..rng.usize(1..4)).map(|_| any_part(rng, depth)).collect::<Vec<_>>();
    let boxed = |rng: &mut Rng| Box::new(any_part(rng, depth));
    match rng.u32(0..15) {
        0 | 1 => Program::Seq(some(rng)),
        2 => Program::Join(some(rng)),
        3 => Program::Unordered(some(rng)),
        4 | 5 => Program::Race(some(rng)),
        6 => Program::RaceUnordered(some(rng)),
        7 => Program::DropAfter(any_leaf(rng, depth), boxed(rng)),
        8 => Program::AwaitAfter(any_leaf(rng, depth), boxed(rng)),
        9 => Program::CleanUp(boxed(rng), boxed(rng)),
        10 => Program::Parallel(some(rng), rng.usize(1..4)),
        11 => Program::Patch(rng.u8(0..2), boxed(rng), boxed(rng)),
        12 => Program::Toss(some(rng)),
        13 => Program::Shield(boxed(rng)),
        _ => Program::Try(boxed(rng)),
    }
}

fn any_simple(rng: &mut Rng, depth: u32) -> Program {
    match rng.u32(0..26) {
        0 => Program::Forget(any_leaf(rng, depth)),
        1 => Program::Record(rng.u8(0..2)),
        2 => Program::Tag(rng.u8(0..2)),
        3 => Program::Fail,
        4 | 5 => Program::Take(rng.u8(0..2), rng.u8(1..4)),
        _ => Program::Await(any_leaf(rng, depth)),
    }
}

fn any_leaf(rng: &mut Rng, depth: u32) -> Leaf {
    match rng.u32(0..16) {
        0..=3 => Leaf::Work(any_job(rng)),
        4 => Leaf::Once(any_job(rng)),
        5 => Leaf::Hasty(any_job(rng)),
        6 => Leaf::Call(rng.u8(0..3)),
        7..=9 => Leaf::Sleep(any_millis(rng)),
        10..=12 => Leaf::Hook(rng.u8(0..2), rng.bool().then(|| any_millis(rng))),
        13 | 14 if depth > 0 => Leaf::Child {
            program: Box::new(any_program(rng, depth - 1)),
            timeout: (rng.u32(0..3) == 0).then(|| any_millis(rng)),
            end: [ParentEnd::Cancel, ParentEnd::Wait, ParentEnd::Abandon][rng.usize(0..3)],
            key: (rng.u32(0..4) == 0).then(|| rng.u8(0..3)),
            is_rare: rng.u32(0..4) == 0,
        },
        15 if depth > 0 => Leaf::Abandoned {
            program: Box::new(any_program(rng, depth - 1)),
            key: rng.bool().then(|| rng.u8(0..3)),
        },
        _ => Leaf::Call(rng.u8(0..3)),
    }
}

fn any_job(rng: &mut Rng) -> Job {
    let millis = if rng.bool() { rng.u64(0..50) } else { any_millis(rng) };
    let fails = if rng.bool() { 0 } else { rng.u32(0..5) };
    let ending = [Ending::Error, Ending::Error, Ending::Fatal, Ending::Panic][rng.usize(0..4)];
    Job { millis, fails, ending, heeds: rng.u32(0..3) == 0, is_shielded: false }
}

/// A duration: most are short.
fn any_millis(rng: &mut Rng) -> u64 {
    match rng.u32(0..4) {
        0 => rng.u64(0..10),
        1 => rng.u64(0..300),
        2 => rng.u64(0..3_000),
        _ => rng.u64(0..15_000),
    }
}
