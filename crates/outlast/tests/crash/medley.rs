//! A program with something of everything: sequential and parallel steps, timers, hooks, retries, a
//! race, a cancel, queued steps, and a family: children, awaited and abandoned, a tag and a recorded value.

use std::sync::Arc;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{RunView, SystemClock, Wait, World};
use outlast_conformance::KillerWorld;
use tokio::sync::Notify;

use crate::ledger::{Ack, Outputs, Place};

/// The runs of the program, each under its workflow's name as its key.
pub(crate) const RUNS: [Expected; 12] = [
    Expected { key: "sequence", output: "one two three", branches: 1, is_fixed: true },
    Expected { key: "parallel", output: "a b c left right", branches: 3, is_fixed: true },
    Expected { key: "nap", output: "before after", branches: 1, is_fixed: true },
    Expected { key: "review", output: "early late true tell", branches: 1, is_fixed: true },
    Expected { key: "flaky", output: "attempt 3", branches: 1, is_fixed: true },
    Expected { key: "race", output: "won prize", branches: 2, is_fixed: true },
    Expected { key: "stopped", output: "Cancelled: cancelled: enough", branches: 1, is_fixed: true },
    Expected { key: "afar", output: "left right", branches: 2, is_fixed: true },
    Expected { key: "family", output: "7 first second Conflict photo", branches: 1, is_fixed: true },
    Expected { key: "family/first", output: "first", branches: 1, is_fixed: true },
    Expected { key: "family/second", output: "second", branches: 1, is_fixed: true },
    Expected { key: "family/gone", output: "gone", branches: 1, is_fixed: true },
];

/// What a run comes to.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) key: &'static str,
    pub(crate) output: &'static str,
    /// How many of its steps may be under way at the same time.
    pub(crate) branches: usize,
    /// Whether it makes the same attempts whenever its process was killed.
    pub(crate) is_fixed: bool,
}

/// When the runs are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Company {
    /// Each when the one before it has ended: every turn is a commit of its own.
    Alone,
    /// All at once: turns share commits.
    Together,
}

/// How the worker goes on after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Replay {
    /// With the future it has.
    WhenNeeded,
    /// With a replayed one.
    EveryTurn,
}

/// Starts all runs, answers and cancels those that want it, and waits until all have ended. It may be
/// killed at any instant and run again.
pub(crate) async fn play(
    place: &Place,
    world: Arc<KillerWorld>,
    company: Company,
    replay: Replay,
) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let state = Outside { place: place.clone(), loser_began: Notify::new() };
    let mut builder = Worker::builder(world.clone())
        .state(state)
        .queues(["default", "far"])
        // So that a process is also killed between two parts of a turn.
        .part_events(2)
        .register((sequence, parallel, nap, review, flaky, race, stopped, afar, family, member))
        .register((mark, fail_twice, win, lose));
    if replay == Replay::EveryTurn {
        builder = builder.paranoid();
    }
    if company == Company::Alone && place.elsewhere.is_none() {
        // So long that neither its end nor a beat can be what makes the next process take over.
        builder = builder.session_time("60s");
    }
    let worker = builder.start().await?;
    let player = Player { place: place.clone(), client: Client::new(world), company };
    let outputs = player.play().await?;
    worker.stop().await?;
    Ok(outputs)
}

struct Player {
    place: Place,
    client: Client,
    company: Company,
}

/// Starts a run under the workflow's name as its key.
macro_rules! start {
    ($player:expr, $workflow:ident) => {{
        let key = stringify!($workflow).to_owned();
        let run = $player.client.start($workflow, &key).key(&key).await?;
        $player.place.note_ack(&Ack::Started(key));
        run
    }};
}

impl Player {
    async fn play(&self) -> Result<Outputs, Error> {
        match self.company {
            Company::Alone => self.one_after_another().await,
            Company::Together => self.all_at_once().await,
        }
    }

    async fn one_after_another(&self) -> Result<Outputs, Error> {
        let mut outputs = Outputs::new();
        note_output(&self.place, &start!(self, sequence), &mut outputs).await?;
        note_output(&self.place, &start!(self, parallel), &mut outputs).await?;
        note_output(&self.place, &start!(self, nap), &mut outputs).await?;
        note_output(&self.place, &start!(self, flaky), &mut outputs).await?;
        note_output(&self.place, &start!(self, race), &mut outputs).await?;
        note_output(&self.place, &start!(self, afar), &mut outputs).await?;
        note_output(&self.place, &start!(self, family), &mut outputs).await?;
        self.note_children(&mut outputs).await?;
        let review = start!(self, review);
        self.answer_early(&review).await?;
        self.answer_late(&review).await?;
        note_output(&self.place, &review, &mut outputs).await?;
        let stopped = start!(self, stopped);
        self.stop(&stopped).await?;
        note_output(&self.place, &stopped, &mut outputs).await?;
        Ok(outputs)
    }

    async fn all_at_once(&self) -> Result<Outputs, Error> {
        let review = start!(self, review);
        self.answer_early(&review).await?;
        let stopped = start!(self, stopped);
        let others = [
            start!(self, sequence),
            start!(self, parallel),
            start!(self, nap),
            start!(self, flaky),
            start!(self, race),
            start!(self, afar),
            start!(self, family),
        ];
        try_join!(self.answer_late(&review), self.stop(&stopped))?;
        let mut outputs = Outputs::new();
        for run in others.iter().chain([&review, &stopped]) {
            note_output(&self.place, run, &mut outputs).await?;
        }
        self.note_children(&mut outputs).await?;
        Ok(outputs)
    }

    async fn note_children(&self, outputs: &mut Outputs) -> Result<(), Error> {
        for member in ["first", "second", "gone"] {
            let run = self.client.find(format!("family/{member}")).await?;
            note_output(&self.place, &run.ok_or_else(|| Error::msg(format!("no child {member}")))?, outputs)
                .await?;
        }
        Ok(())
    }

    /// Sends the first payload before anyone waits for it, most of the time.
    async fn answer_early(&self, review: &RunHandle<String>) -> Result<(), Error> {
        if review.view().await?.sent == 0 {
            review.send("early", &"early").await?;
            self.place.note_ack(&Ack::Sent("review".into(), 1));
        }
        Ok(())
    }

    /// Sends the second payload when it is awaited.
    async fn answer_late(&self, review: &RunHandle<String>) -> Result<(), Error> {
        let view = self.when(review, |view| view.sent > 1 || waits_for(view, "late")).await?;
        if view.sent == 1 {
            review.send("late", &"late").await?;
            self.place.note_ack(&Ack::Sent("review".into(), 2));
        }
        Ok(())
    }

    /// Cancels a run that waits.
    async fn stop(&self, stopped: &RunHandle<String>) -> Result<(), Error> {
        let view = self.when(stopped, |view| view.sent > 0 || waits_for(view, "never")).await?;
        if view.sent == 0 {
            stopped.cancel("enough").await?;
            self.place.note_ack(&Ack::Sent("stopped".into(), 1));
        }
        Ok(())
    }

    async fn when(
        &self,
        run: &RunHandle<String>,
        is_so: impl Fn(&RunView) -> bool,
    ) -> Result<RunView, Error> {
        loop {
            let view = run.view().await?;
            if is_so(&view) {
                return Ok(view);
            }
            pass("2ms").await;
        }
    }
}

/// Waits for the end of a run, and notes what it came to.
pub(crate) async fn note_output(
    place: &Place,
    run: &RunHandle<String>,
    outputs: &mut Outputs,
) -> Result<(), Error> {
    let output = run.output().await;
    let key = run.view().await?.key.unwrap();
    place.note_ack(&Ack::Ended(key.clone()));
    outputs.insert(key, output.unwrap_or_else(|error| format!("{:?}: {}", error.kind(), error.message())));
    Ok(())
}

pub(crate) fn waits_for(view: &RunView, hook: &str) -> bool {
    view.waits.iter().any(|wait| matches!(wait, Wait::Hook { name, .. } if name == hook))
}

/// Lets time pass in a child: the programs wait for real things.
pub(crate) async fn pass(time: &str) {
    let time = outlast::IntoDuration::into_duration(time).unwrap();
    SystemClock.sleep_until(SystemClock.now().plus(time)).await;
}

// --- workflows ---

#[workflow]
async fn sequence(ctx: Context, key: String) -> Result<String, Error> {
    let one = ctx.step(mark, named(&key, "one")).await?;
    let two = ctx.step(mark, named(&key, "two")).await?;
    let three = ctx.step(mark, named(&key, "three")).await?;
    Ok([one, two, three].join(" "))
}

#[workflow]
async fn parallel(ctx: Context, key: String) -> Result<String, Error> {
    let (left, right) = try_join!(ctx.step(mark, named(&key, "left")), ctx.step(mark, named(&key, "right")))?;
    let mut parts: FuturesUnordered<_> =
        ["a", "b", "c"].into_iter().map(|part| ctx.step(mark, named(&key, part))).collect();
    let mut ended = vec![left, right];
    while let Some(part) = parts.next().await {
        ended.push(part?);
    }
    // The order in which they ended is not the same in every life of the program.
    ended.sort();
    Ok(ended.join(" "))
}

#[workflow]
async fn nap(ctx: Context, key: String) -> Result<String, Error> {
    let before = ctx.step(mark, named(&key, "before")).await?;
    ctx.sleep("10ms").await?;
    let after = ctx.step(mark, named(&key, "after")).await?;
    Ok(format!("{before} {after}"))
}

#[workflow]
async fn review(ctx: Context, key: String) -> Result<String, Error> {
    ctx.step(mark, named(&key, "ask")).await?;
    let early = ctx.hook::<String>("early").timeout("1h").await?;
    let late = ctx.hook::<String>("late").timeout("1h").await?;
    let nobody = ctx.hook::<String>("nobody").timeout("5ms").await;
    let silence = nobody.is_err_and(|error| error.is_timeout());
    let told = ctx.step(mark, named(&key, "tell")).await?;
    Ok(format!("{early} {late} {silence} {told}"))
}

#[workflow]
async fn flaky(ctx: Context, key: String) -> Result<String, Error> {
    ctx.step(fail_twice, &key).await
}

#[workflow]
async fn race(ctx: Context, key: String) -> Result<String, Error> {
    let first = select! {
        won = ctx.step(win, &key) => won?,
        lost = ctx.step(lose, &key) => lost?,
        late = ctx.sleep("1h") => {
            late?;
            "late".to_owned()
        }
    };
    let prize = ctx.step(mark, named(&key, "prize")).await?;
    Ok(format!("{first} {prize}"))
}

#[workflow]
async fn stopped(ctx: Context, key: String) -> Result<String, Error> {
    ctx.step(mark, named(&key, "reserve")).await?;
    let answer = ctx.hook::<String>("never").await;
    ctx.shielded().step(mark, named(&key, "release")).await?;
    answer
}

#[workflow]
async fn afar(ctx: Context, key: String) -> Result<String, Error> {
    let far = |name: &str| ctx.step(mark, named(&key, name)).queue("far");
    let (left, right) = try_join!(far("left"), far("right"))?;
    Ok(format!("{left} {right}"))
}

#[workflow]
async fn family(ctx: Context, key: String) -> Result<String, Error> {
    ctx.tag("kind", "family")?;
    let seven: u32 = ctx.record("seven", || 7)?;
    let child = |name: &str| ctx.child(member, name.to_owned()).key(format!("{key}/{name}"));
    let gone = child("gone").abandon();
    let (first, second) = try_join!(child("first"), child("second").timeout("1h"))?;
    gone.await?;
    let taken = child("first").await.unwrap_err();
    let photo = ctx.step(mark, named(&key, "photo")).await?;
    Ok(format!("{seven} {first} {second} {:?} {photo}", taken.kind()))
}

#[workflow]
async fn member(ctx: Context, name: String) -> Result<String, Error> {
    ctx.sleep("2ms").await?;
    ctx.step(mark, named(&format!("family/{name}"), &name)).await
}

fn named(key: &str, name: &str) -> (String, String) {
    (key.into(), name.into())
}

// --- steps ---

#[derive(Debug)]
struct Outside {
    place: Place,
    loser_began: Notify,
}

#[step]
async fn mark(cx: StepContext<Outside>, key: String, name: String) -> Result<String, StepError> {
    cx.state().place.note_effect(&cx, &key, &name);
    Ok(name)
}

#[step]
async fn fail_twice(cx: StepContext<Outside>, key: String) -> Result<String, StepError> {
    cx.state().place.note_effect(&cx, &key, "fail_twice");
    if cx.attempt() < 3 {
        return Err(StepError::retry_after("not yet", "5ms"));
    }
    Ok(format!("attempt {}", cx.attempt()))
}

/// Wins when the loser is on its way, so that both have effects.
#[step]
async fn win(cx: StepContext<Outside>, key: String) -> Result<String, StepError> {
    cx.state().place.note_effect(&cx, &key, "win");
    cx.state().loser_began.notified().await;
    Ok("won".into())
}

#[step]
async fn lose(cx: StepContext<Outside>, key: String) -> Result<String, StepError> {
    cx.state().place.note_effect(&cx, &key, "lose");
    cx.state().loser_began.notify_one();
    cx.cancelled().await;
    Ok("lost".into())
}
