//! A program with tokens and replies: one run takes payloads that are sent to its token and replies to an ask, and opens a
//! generated token in a later generation.

use std::sync::Arc;

use outlast::prelude::*;
use outlast::{TokenDelivery, World};
use outlast_conformance::KillerWorld;

use crate::mixed_program::{ExpectedRun, log_output, sleep};
use crate::process_folder::{Ack, Outputs, ProcessFolder};

const TOKEN: &str = "order-42";
const REVIEW: Hook<u32, String> = Hook::new("review");
const REPLY: &str = "thanks for 3";

/// The runs of the program. The key of each is the name of its workflow.
pub(crate) const RUNS: [ExpectedRun; 1] =
    [ExpectedRun { key: "reviewed", output: "1 2 3 68", branches: 1, is_deterministic: false }];

/// Starts the run, sends to it, and waits until it has ended. It may be killed at any time and run again.
pub(crate) async fn run(process_folder: &ProcessFolder, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let worker = Worker::builder(world.clone()).register(reviewed).start().await?;
    let client = Client::new(world);
    let key = "reviewed".to_owned();
    let run = client.start(reviewed, (key.clone(), Vec::new())).key(&key).await?;
    process_folder.log_ack(&Ack::Started(key));
    for payload in [1, 2] {
        send(&client, &run, payload).await?;
    }
    let reply = client.ask(run.id(), REVIEW, &3).key("3").await?;
    assert_eq!(reply, REPLY, "also if this process was killed after it had asked");
    let mut outputs = Outputs::new();
    log_output(process_folder, &run, &mut outputs).await?;
    assert_eq!(client.send_to_token(TOKEN, &4).await?, TokenDelivery::Unknown, "it was closed");
    worker.stop().await?;
    Ok(outputs)
}

/// Sends to the token, once, unless the run does not need it any more.
async fn send(client: &Client, run: &RunHandle<String>, payload: u32) -> Result<(), Error> {
    loop {
        match client.send_to_token(TOKEN, &payload).key(payload.to_string()).await? {
            TokenDelivery::Unknown if !is_taken(client, run, payload).await? => sleep("2ms").await,
            _ => return Ok(()),
        }
    }
}

/// Whether the run has received a payload.
async fn is_taken(client: &Client, run: &RunHandle<String>, payload: u32) -> Result<bool, Error> {
    let history = client.export(run.id()).await?;
    Ok(history.contains(&format!("\"payload\":{payload}}}")))
}

#[workflow]
async fn reviewed(ctx: Context, (key, taken): (String, Vec<u32>)) -> Result<String, Error> {
    let _ = key;
    if ctx.generation() > 1 {
        let generated = ctx.open_hook(REVIEW).await?;
        let taken: Vec<_> = taken.iter().map(ToString::to_string).collect();
        return Ok(format!("{} {}", taken.join(" "), generated.token().len()));
    }
    let reviews = ctx.open_hook(REVIEW).token(TOKEN).await?;
    let mut taken = vec![reviews.next().await?, reviews.next().await?];
    let message = reviews.next().received().await?;
    taken.push(message.payload);
    message.reply(&format!("thanks for {}", message.payload))?;
    reviews.close();
    ctx.continue_as(&("reviewed".to_owned(), taken))
}
