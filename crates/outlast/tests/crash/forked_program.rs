//! A program that forks runs: one between two steps, one with another output of a step, and a fork of a fork whose copied
//! events end in the middle of a poll.

use std::sync::Arc;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{OpNumber, RunId, Status, World};
use outlast_conformance::KillerWorld;

use crate::mixed_program::{ExpectedRun, log_output, sleep};
use crate::process_folder::{Ack, Outputs, ProcessFolder};
use crate::snapshot::WorldSnapshot;

const BRANCHES: usize = 2;

/// The runs of the program. A fork has no key of its own; this is the key under which its steps log their effects.
pub(crate) const RUNS: [ExpectedRun; 4] = [
    ExpectedRun { key: "origin", output: "1 2 3", branches: BRANCHES, is_deterministic: true },
    ExpectedRun { key: "other output", output: "9 2 3", branches: BRANCHES, is_deterministic: true },
    ExpectedRun { key: "second", output: "1 2 3", branches: BRANCHES, is_deterministic: true },
    ExpectedRun { key: "third", output: "1 2 3", branches: BRANCHES, is_deterministic: true },
];

/// The ids of the forks: known before they start, so that a repeated call starts none twice.
const FORKS: [(&str, RunId); 3] = [
    ("other output", RunId::from_bits(2 << 64 | 2)),
    ("second", RunId::from_bits(3 << 64 | 3)),
    ("third", RunId::from_bits(4 << 64 | 4)),
];

/// The key of a run: that of its start, or that of the program for a fork.
pub(crate) fn key_of(run: RunId) -> Option<String> {
    FORKS.iter().find(|(_, fork)| *fork == run).map(|(key, _)| (*key).to_owned())
}

/// Starts a run, forks it and one of the forks, and waits until all have completed. It may be killed at any time and run
/// again.
pub(crate) async fn run(process_folder: &ProcessFolder, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let worker = Worker::builder(world.clone())
        .state(process_folder.clone())
        .register((branching, apply))
        .start()
        .await?;
    let client = Client::new(world);
    let mut outputs = Outputs::new();
    let origin = client.start(branching, ()).key("origin").await?;
    process_folder.log_ack(&Ack::Started("origin".into()));
    log_output(process_folder, &origin, &mut outputs).await?;

    let [(_, other), (_, second), (_, third)] = FORKS;
    let other = origin.fork().with_output(OpNumber(0), &9).id(other).await?;
    process_folder.log_ack(&Ack::Started("other output".into()));
    // Between the requests of the second and of the third step.
    let between = 1 + number(&client, origin.id(), |event| is_request(event, 1)).await?;
    let second = origin.fork().at(between).id(second).await?;
    process_folder.log_ack(&Ack::Started("second".into()));
    for run in [&other, &second] {
        log_output(process_folder, run, &mut outputs).await?;
    }
    let forked = number(&client, second.id(), |event| matches!(event, Event::RunForked(_))).await?;
    let third = second.fork().at(forked + 1).id(third).await?;
    process_folder.log_ack(&Ack::Started("third".into()));
    log_output(process_folder, &third, &mut outputs).await?;
    worker.stop().await?;
    Ok(outputs)
}

fn is_request(event: &Event, op: u64) -> bool {
    matches!(event, Event::StepStarted { op: started, .. } if started.0 == op)
}

/// The number of the first such event of a run.
async fn number(client: &Client, run: RunId, is_it: impl Fn(&Event) -> bool) -> Result<u64, Error> {
    let events = client.events(run).await?;
    Ok(events.iter().find(|event| is_it(&event.event)).unwrap().number)
}

/// Checks the histories of the program when all runs have ended.
pub(crate) fn check_end(end: &WorldSnapshot) {
    for (key, forks) in [("origin", 0), ("other output", 1), ("second", 1), ("third", 2)] {
        let run = &end.runs[key];
        assert_eq!(run.view.status, Status::Completed);
        let forked = run.events().filter(|event| matches!(event, Event::RunForked(_))).count();
        assert_eq!(forked, forks, "{key}");
    }
}

/// One step, and then two at the same time.
#[workflow]
async fn branching(ctx: Context) -> Result<String, Error> {
    let first = ctx.step(apply, 1).await?;
    let (second, third) = try_join!(ctx.step(apply, 2), ctx.step(apply, 3))?;
    Ok(format!("{first} {second} {third}"))
}

#[step]
async fn apply(cx: StepContext<ProcessFolder>, number: u32) -> u32 {
    let key = key_of(cx.run()).unwrap_or_else(|| "origin".into());
    cx.state().log_effect(&cx, &key, "apply");
    sleep("5ms").await;
    number
}
