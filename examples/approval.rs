//! An approval by token: a link in a mail contains a secret token, and whoever has it decides. A colleague can ask how
//! far it is.

use outlast::TokenDelivery;
use outlast::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Decision {
    by: String,
    approved: bool,
}

/// The decision that a link sends, and the text that its page shows.
const DECISION: Hook<Decision, String> = Hook::new("decision");

/// Sends the link. It prints the token, so that this example can play the receiver.
#[step]
async fn mail(token: String) {
    println!("    mail     https://approvals.example/{token}");
}

#[workflow]
async fn expense(ctx: Context, what: String) -> Result<String, Error> {
    // Without `.token(…)` the engine generates one: 256 bits that nobody can guess.
    let link = ctx.open_hook(DECISION).metadata(&what).keep_for("30d").await?;
    ctx.step(mail, link.token()).await?;
    let message = link.next().timeout("7d").received().await?;
    let Decision { by, approved } = &message.payload;
    let verdict = if *approved { "approved" } else { "refused" };
    message.reply(&format!("thank you, {by}"))?;
    Ok(format!("{what}: {verdict} by {by}"))
}

/// Only one run may import the data of a customer at a time.
#[workflow]
async fn import(ctx: Context, customer: String) -> Result<u32, Error> {
    let rows = ctx.open_hook::<u32>("rows").token(format!("import-{customer}")).await?;
    rows.next().await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let worker = Worker::builder(world.clone()).register((expense, import, mail)).start().await?;
    let client = Client::new(world);

    println!("1. Whoever has the link decides, and gets a reply.");
    let run = client.start(expense, "a new chair").await?;
    let token = generated_token(&client, run.id()).await?;
    let shown: String = client
        .token(&token)
        .await?
        .and_then(|view| view.metadata)
        .map_or(Ok(String::new()), |m| m.decode())?;
    println!("    page     {shown}");
    let decision = Decision { by: "Ada".into(), approved: true };
    let reply: String = client.ask_token(&token, &decision).key("click").await?;
    println!("    reply    {reply}");
    println!("    output   {}", run.output().await?);

    println!("2. A second click with the same key gets the same reply, and a late one is refused.");
    let again: String = client.ask_token(&token, &decision).key("click").await?;
    println!("    reply    {again}");
    assert_eq!(client.send_to_token(&token, &decision).await?, TokenDelivery::Closed);
    println!("    late     closed");

    println!("3. Of two runs one gets a chosen token, and the other learns who has it.");
    let first = client.start(import, "ada").await?;
    while client.token("import-ada").await?.is_none() {
        tokio::task::yield_now().await;
    }
    let second = client.start(import, "ada").await?;
    let owner = second.output().await.err().and_then(|error| error.conflicting_run());
    println!(
        "    taken    {}",
        if owner == Some(first.id()) { "by the first import" } else { "by somebody" }
    );
    client.send_to_token("import-ada", &1_000).await?;
    println!("    output   {} rows", first.output().await?);
    worker.stop().await
}

/// The token in the mail of a run.
async fn generated_token(client: &Client, run: outlast::RunId) -> Result<String, Error> {
    loop {
        let operations = client.operations(run).await?;
        let mailed = operations.iter().find(|operation| &*operation.name == "mail" && !operation.is_open());
        if let Some(token) = mailed.and_then(|mail| mail.input_as().ok().flatten()) {
            return Ok(token);
        }
        tokio::task::yield_now().await;
    }
}
