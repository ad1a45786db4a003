//! Random programs: a live run and the replay of every prefix of its history have the same state, and continue in the
//! same way.
//!
//! A program is a tree that one workflow interprets. A driver replaces worker and world: it delivers random outcomes,
//! timers, payloads and cancels, several per turn, and records them. `proptest` generates programs and seeds, and prints
//! the smallest that fails.

mod driver;

use std::pin::Pin;
use std::task::Poll;

use futures_util::future::join_all;
use outlast_core::event::RULES;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Case, history};
use crate::prelude::*;
use crate::{AbandonedChild, ChildOperation, HookOperation, StepOperation, TimerOperation};
use driver::{RecordedRun, record_run};

/// One operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Leaf {
    Step(u8),
    Call(u8),
    Sleep(u32),
    Hook(u8, Option<u32>),
    Child(u8, Option<u32>, ParentEnd),
    Abandoned(u8, bool),
}

/// What a workflow does.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Program {
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
    /// Asks for an operation, does something else, cancels the operation, and awaits it.
    CancelAfter(Leaf, Box<Program>),
    /// The first to succeed; the others are dropped.
    RaceOk(Vec<Program>),
    /// Does the second when the run was cancelled meanwhile.
    CleanUp(Box<Program>, Box<Program>),
    /// One by chance.
    Toss(Vec<Program>),
    /// One by the clock.
    Clock(Vec<Program>),
    /// Goes on when it fails.
    Try(Box<Program>),
    /// With a shielded context.
    Shield(Box<Program>),
    /// Some at a time, until one fails.
    Parallel(Vec<Program>, usize),
    /// Some at a time, to the end.
    ParallelAll(Vec<Program>, usize),
    /// Records a value.
    Record(u8),
    /// Sets a tag.
    Tag(u8),
    /// The first when the run takes the new side of a patch, else the second.
    Patch(u8, Box<Program>, Box<Program>),
    /// Wakes itself.
    GiveWay,
    Fail,
}

#[step(attempts = 3)]
async fn work(number: u8) -> Result<u32, StepError> {
    Ok(number.into())
}

const CHILD: Workflow<u8, u32> = Workflow::new("child");

/// An operation of any kind.
enum RequestedOperation {
    Step(StepOperation<u32, u8>),
    Timer(TimerOperation),
    Hook(HookOperation<u32>),
    Child(ChildOperation<u32>),
    Abandoned(AbandonedChild),
}

impl Leaf {
    fn ask(&self, ctx: &Context) -> RequestedOperation {
        match self {
            Self::Step(number) => RequestedOperation::Step(ctx.step(work, *number)),
            Self::Call(number) => {
                let call = async |number: u8| Ok::<_, StepError>(u32::from(number));
                RequestedOperation::Step(ctx.call(&format!("call-{number}"), *number, call))
            }
            Self::Sleep(seconds) => RequestedOperation::Timer(ctx.sleep(format!("{seconds}s"))),
            Self::Hook(name, None) => RequestedOperation::Hook(ctx.hook(format!("hook-{name}"))),
            Self::Hook(name, Some(seconds)) => {
                RequestedOperation::Hook(ctx.hook(format!("hook-{name}")).timeout(format!("{seconds}s")))
            }
            Self::Child(number, timeout, choice) => {
                let child = ctx.child(CHILD, *number).on_parent_end(*choice);
                let child = if *number == 0 { child.cancel_on_drop() } else { child };
                RequestedOperation::Child(match timeout {
                    Some(seconds) => child.timeout(format!("{seconds}s")),
                    None => child,
                })
            }
            Self::Abandoned(number, has_key) => {
                let child = ctx.child(CHILD, *number);
                let child = if *has_key { child.key(format!("child-{number}")) } else { child };
                RequestedOperation::Abandoned(child.abandon())
            }
        }
    }
}

impl RequestedOperation {
    fn cancel(&self) {
        match self {
            Self::Step(step) => step.cancel(),
            Self::Timer(timer) => timer.cancel(),
            Self::Hook(hook) => hook.cancel(),
            Self::Child(child) => child.cancel(),
            Self::Abandoned(_) => {}
        }
    }

    async fn outcome(self) -> Result<String, Error> {
        match self {
            Self::Step(step) => step.await.map(|output| format!("s{output}")),
            Self::Timer(timer) => timer.await.map(|()| "t".into()),
            Self::Hook(hook) => hook.await.map(|payload| format!("h{payload}")),
            Self::Child(child) => child.await.map(|output| format!("c{output}")),
            Self::Abandoned(child) => child.await.map(|run| format!("a{run}")),
        }
    }
}

type Interpreted<'a> = Pin<Box<dyn Future<Output = Result<String, Error>> + Send + 'a>>;

/// Runs a program and returns a trace of what it saw.
fn interpret<'a>(ctx: &'a Context, program: &'a Program) -> Interpreted<'a> {
    let each = |programs: &'a [Program]| programs.iter().map(|program| interpret(ctx, program));
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
            Program::Join(programs) => format!("join{:?}", join_all(each(programs)).await),
            Program::Unordered(programs) => {
                let ends: Vec<_> = each(programs).collect::<FuturesUnordered<_>>().collect().await;
                format!("all{ends:?}")
            }
            Program::Race(programs) => format!("first{:?}", first(each(programs).collect()).await),
            Program::RaceUnordered(programs) => {
                let end = each(programs).collect::<FuturesUnordered<_>>().next().await;
                format!("any{end:?}")
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
            Program::CancelAfter(leaf, program) => {
                let asked = leaf.ask(ctx);
                let seen = interpret(ctx, program).await?;
                asked.cancel();
                format!("{seen} {:?}", asked.outcome().await)
            }
            Program::RaceOk(programs) => format!("ok{:?}", race_ok(each(programs)).await),
            Program::CleanUp(program, clean_up) => {
                let seen = interpret(ctx, program).await;
                match seen {
                    Err(_) if ctx.is_cancelled() => interpret(ctx, clean_up).await?,
                    seen => seen?,
                }
            }
            Program::Toss(programs) => one(ctx, programs, ctx.random()).await?,
            Program::Clock(programs) => one(ctx, programs, ctx.now().as_micros().unsigned_abs()).await?,
            Program::Shield(program) => {
                let ctx = ctx.shielded();
                interpret(&ctx, program).await?
            }
            Program::Try(program) => format!("try{:?}", interpret(ctx, program).await),
            Program::Parallel(programs, limit) => {
                let seen = ctx.parallel(programs, *limit, |_, program| interpret(ctx, program)).await?;
                format!("some{seen:?}")
            }
            Program::ParallelAll(programs, limit) => {
                let seen = ctx.parallel_all(programs, *limit, |_, program| interpret(ctx, program)).await;
                format!("each{seen:?}")
            }
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
            Program::GiveWay => give_way().await,
            Program::Fail => return Err(Error::msg("as it was told")),
        })
    })
}

fn one<'a>(ctx: &'a Context, programs: &'a [Program], chance: u64) -> Interpreted<'a> {
    match programs.get((chance % programs.len().max(1) as u64) as usize) {
        Some(program) => interpret(ctx, program),
        None => Box::pin(std::future::ready(Ok(String::new()))),
    }
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

async fn give_way() -> String {
    let mut gave = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut gave, true) {
            return Poll::Ready("gave way".into());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[workflow]
async fn interpreter(ctx: Context, program: Program) -> Result<String, Error> {
    interpret(&ctx, &program).await
}

fn any_leaf() -> impl Strategy<Value = Leaf> {
    prop_oneof![
        3 => (0..3_u8).prop_map(Leaf::Step),
        1 => (0..3_u8).prop_map(Leaf::Call),
        3 => (0..100_u32).prop_map(Leaf::Sleep),
        4 => (0..2_u8, prop::option::of(1..100_u32)).prop_map(|(name, timeout)| Leaf::Hook(name, timeout)),
        3 => (0..3_u8, prop::option::of(1..100_u32), any_end())
            .prop_map(|(number, timeout, end)| Leaf::Child(number, timeout, end)),
        1 => (0..3_u8, any::<bool>()).prop_map(|(number, has_key)| Leaf::Abandoned(number, has_key)),
    ]
}

fn any_end() -> impl Strategy<Value = ParentEnd> {
    prop::sample::select(vec![ParentEnd::Cancel, ParentEnd::Wait, ParentEnd::Abandon])
}

/// Some parts after each other: with one alone most runs would be over in a turn.
fn any_program() -> impl Strategy<Value = Program> {
    (prop::collection::vec(any_part(), 1..7), any::<bool>()).prop_map(|(parts, goes_on)| {
        let guard = |part| if goes_on { Program::Try(Box::new(part)) } else { part };
        Program::Seq(parts.into_iter().map(guard).collect())
    })
}

fn any_part() -> impl Strategy<Value = Program> {
    let leaf = prop_oneof![
        20 => any_leaf().prop_map(Program::Await),
        1 => any_leaf().prop_map(Program::Forget),
        2 => (0..2_u8).prop_map(Program::Record),
        1 => (0..2_u8).prop_map(Program::Tag),
        1 => Just(Program::GiveWay),
        1 => Just(Program::Fail),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..5);
        let boxed = || inner.clone().prop_map(Box::new);
        prop_oneof![
            4 => some().prop_map(Program::Seq),
            2 => some().prop_map(Program::Join),
            2 => some().prop_map(Program::Unordered),
            2 => some().prop_map(Program::Race),
            2 => some().prop_map(Program::RaceUnordered),
            1 => (any_leaf(), boxed()).prop_map(|(leaf, program)| Program::DropAfter(leaf, program)),
            2 => (any_leaf(), boxed()).prop_map(|(leaf, program)| Program::AwaitAfter(leaf, program)),
            2 => (any_leaf(), boxed()).prop_map(|(leaf, program)| Program::CancelAfter(leaf, program)),
            1 => some().prop_map(Program::RaceOk),
            2 => (boxed(), boxed()).prop_map(|(program, clean_up)| Program::CleanUp(program, clean_up)),
            2 => (some(), 1..4_usize).prop_map(|(programs, limit)| Program::Parallel(programs, limit)),
            1 => (some(), 1..4_usize).prop_map(|(programs, limit)| Program::ParallelAll(programs, limit)),
            1 => (0..2_u8, boxed(), boxed()).prop_map(|(name, new, old)| Program::Patch(name, new, old)),
            1 => some().prop_map(Program::Toss),
            1 => some().prop_map(Program::Clock),
            3 => boxed().prop_map(Program::Try),
            2 => boxed().prop_map(Program::Shield),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_prefix_replays_to_what_the_live_run_was_and_goes_on_like_it(
        program in any_program(),
        seed in any::<u64>(),
        rules in 1..=RULES,
    ) {
        let case = Case::new(interpreter, serde_json::to_value(&program).unwrap()).with_rules(rules);
        let recorded = record_run(&case, seed);
        for turns in 1..=recorded.turns.len() {
            recorded.replay_and_continue(&case, turns);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_part_of_a_turn_replays_to_the_whole_turn_and_goes_on_like_it(
        program in any_program(),
        seed in any::<u64>(),
        rules in 1..=RULES,
    ) {
        let case = Case::new(interpreter, serde_json::to_value(&program).unwrap()).with_rules(rules);
        let recorded = record_run(&case, seed);
        for turns in 1..=recorded.turns.len() {
            recorded.replay_parts(&case, turns);
        }
    }
}

#[test]
fn the_random_programs_are_worth_running() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut kinds = std::collections::BTreeMap::<&str, u32>::new();
    let mut parts = 0;
    for seed in 0..400 {
        let program = any_program().new_tree(&mut runner).unwrap().current();
        let case = Case::new(interpreter, serde_json::to_value(&program).unwrap());
        let case = case.with_rules(1 + seed as u32 % RULES);
        let recorded = record_run(&case, seed);
        parts += (1..=recorded.turns.len()).map(|turns| recorded.replay_parts(&case, turns)).sum::<usize>();
        let RecordedRun { turns, .. } = recorded;
        for event in turns.iter().flat_map(|turn| &turn.events) {
            *kinds.entry(event.kind()).or_default() += 1;
        }
    }
    let rare: Vec<_> = kinds.iter().filter(|(_, count)| **count < 10).collect();
    assert!(kinds.len() == 30 && rare.is_empty(), "{kinds:?}");
    assert!(parts > 400, "{parts} parts");
}
