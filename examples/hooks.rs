//! An approval: a run that waits for a payload from outside, with a timeout, and can be cancelled.

use outlast::prelude::*;
use outlast::{Cancel, Status, Wait};
use serde::{Deserialize, Serialize};

/// A request for approval.
#[derive(Serialize, Deserialize)]
struct Request {
    what: String,
    patience: String,
}

/// The payload of the hook.
#[derive(Serialize, Deserialize)]
struct Answer {
    by: String,
    approved: bool,
}

#[step]
async fn mail(text: String) {
    println!("    mail     {text}");
}

#[workflow]
async fn approval(ctx: Context, request: Request) -> Result<String, Error> {
    let Request { what, patience } = request;
    ctx.step(mail, format!("please decide on {what}, within {patience}")).await?;
    match ctx.hook::<Answer>("answer").timeout(patience.as_str()).await {
        Ok(Answer { by, approved: true }) => Ok(format!("{what}: approved by {by}")),
        Ok(Answer { by, approved: false }) => Ok(format!("{what}: refused by {by}")),
        Err(error) if error.is_timeout() => Ok(format!("{what}: nobody answered in time")),
        Err(error) if error.is_cancelled() => {
            // Open operations have ended, and new ones fail as cancelled, unless they are shielded.
            ctx.shielded().step(mail, format!("never mind {what}")).await?;
            Err(error)
        }
        Err(error) => Err(error),
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let client = Client::new(world.clone());
    let ask = |what: &str, patience: &str| Request { what: what.into(), patience: patience.into() };
    let answer = |by: &str, approved| Answer { by: by.into(), approved };

    println!("1. The answer is sent before the run waits for it: it is kept.");
    let early = client.start(approval, ask("a new chair", "1h")).await?;
    early.send("answer", &answer("Ada", true)).await?;
    let worker = Worker::builder(world).register((approval, mail)).start().await?;
    println!("    output   {}", early.output().await?);

    println!("2. The answer is sent while the run waits: the run wakes up.");
    let late = client.start(approval, ask("a yacht", "3d")).await?;
    until_waiting(&late).await?;
    late.send("answer", &answer("Grace", false)).await?;
    println!("    output   {}", late.output().await?);

    println!("3. Nobody answers: the wait times out.");
    let silent = client.start(approval, ask("a day off", "200ms")).await?;
    println!("    output   {}", silent.output().await?);

    println!("4. The run is cancelled: the workflow is notified and cleans up.");
    let unwanted = client.start(approval, ask("a fax machine", "3d")).await?;
    until_waiting(&unwanted).await?;
    assert_eq!(unwanted.cancel("we have e-mail").await?, Cancel::Requested);
    match unwanted.output().await {
        Err(error) if error.is_cancelled() => println!("    error    {error}"),
        other => println!("    not cancelled: {other:?}"),
    }

    println!("5. The answer is sent after the run has ended: it is refused.");
    match late.send("answer", &answer("Ada", true)).await {
        Err(error) => println!("    error    {error}"),
        Ok(()) => println!("    it was accepted, which is a bug"),
    }
    worker.stop().await
}

/// Returns when the run waits. Only this demonstration needs it: a payload that is sent earlier is kept.
async fn until_waiting(run: &RunHandle<String>) -> Result<(), Error> {
    while run.view().await?.status != Status::Waiting {
        tokio::task::yield_now().await;
    }
    for wait in run.view().await?.waits {
        if let Wait::Hook { name, until: Some(until), .. } = wait {
            println!("    waits    for hook `{name}` until {until}");
        }
    }
    Ok(())
}
