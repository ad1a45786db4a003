//! A shop order that survives its process: kill the program at any time, start it again, and the order continues.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use outlast::core::{Clock, Event};
use outlast::prelude::*;
use outlast::{IntoDuration, SystemClock, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    name: String,
    cents: u64,
    email: String,
    pause: String,
}

/// The state of the worker, which steps can access and workflows cannot.
struct Bank;

impl Bank {
    /// Charges a card. The key is the same in every attempt, so a real bank would recognize a repeated request.
    async fn charge(&self, cents: u64, key: &str, attempt: u32) -> Result<String, std::io::Error> {
        if attempt == 1 {
            say("charge", "attempt 1: the bank does not respond, the step will be retried");
            return Err(std::io::Error::other("the bank does not respond"));
        }
        say("charge", &format!("attempt {attempt}: {} EUR charged", cents / 100));
        Ok(format!("payment {key}"))
    }
}

#[step(attempts = 5, timeout = "30s")]
async fn charge(cx: StepContext<Bank>, order: Order) -> Result<String, StepError> {
    Ok(cx.state().charge(order.cents, &cx.key(), cx.attempt()).await?) // an error leads to another attempt
}

#[step]
async fn ship(name: String) -> String {
    say("ship", "the parcel is on its way");
    format!("parcel of order {name}")
}

#[step]
async fn thank(email: String) {
    say("thank", &format!("mail sent to {email}"));
}

#[workflow]
async fn checkout(ctx: Context, order: Order) -> Result<String, Error> {
    let payment = ctx.step(charge, &order).await?;
    let (parcel, ()) = try_join!(ctx.step(ship, &order.name), ctx.step(thank, &order.email))?;
    ctx.sleep(order.pause.as_str()).await?;
    Ok(format!("{parcel}, {payment}"))
}

/// Starts the order, or finds the one that was started before, and waits for its end.
async fn sell(file: &str, order: Order) -> Result<(), Error> {
    let world = outlast::open(&format!("sqlite:{file}")).await?;
    let client = Client::new(world.clone());
    let run = client.start(checkout, &order).key(format!("order-{}", order.name)).await?;
    say("order", &format!("{} is {}: {}", order.name, if run.is_new() { "new" } else { "known" }, run.id()));
    let mut names = BTreeMap::new();
    for event in client.history(run.id()).await?.iter().flat_map(|turn| &turn.events) {
        match event {
            Event::StepStarted { op, name, .. } => drop(names.insert(*op, name.clone())),
            Event::StepCompleted { op, .. } => say(&names[op], "is recorded and does not run again"),
            _ => {}
        }
    }
    let worker = Worker::builder(world).state(Bank).register((checkout, charge, ship, thank)).start().await?;
    let receipt = loop {
        match run.output_within("1s").await {
            Err(error) if error.is_timeout() => {
                let left = run.view().await?.wake_at.map(|due| due.since(SystemClock.now()).as_secs_f64());
                say(
                    "asleep",
                    &format!("{:.1} s left; kill this program and start it again", left.unwrap_or(0.0)),
                );
            }
            receipt => break receipt?,
        }
    };
    worker.stop().await?;
    say("receipt", &receipt);
    let query = format!("select seq, kind, op, body from events where run = '{}' order by seq", run.id());
    println!("\nStart the program again to get the recorded receipt; no step runs. To start another order:");
    let next = order.name.parse::<u64>().map_or(43, |number| number.wrapping_add(1));
    println!(
        "\n  cargo run --example quickstart -- --order {next}\n\nTo show the history:\n\n  sqlite3 {file} \"{query}\""
    );
    Ok(())
}

/// Prints a line with the seconds since the program started.
fn say(who: &str, what: &str) {
    static BEGIN: LazyLock<Timestamp> = LazyLock::new(|| SystemClock.now());
    let begin = *BEGIN;
    println!("{:6.2} s  {who:<8} {what}", SystemClock.now().since(begin).as_secs_f64());
}

const HELP: &str = "\
Usage: cargo run --example quickstart -- [FILE] [--order NAME] [--pause DURATION]
  FILE              the SQLite file in which orders are stored (default: shop.db)
  --order NAME      the order to start or continue (default: 42)
  --pause DURATION  how long the order sleeps, such as 300ms or 1m (default: 5s); an order keeps its pause";

/// Returns the file and the order from the arguments, or `None` if they ask for help.
fn arguments() -> Result<Option<(String, Order)>, Error> {
    let (mut file, mut name, mut pause) = ("shop.db".to_owned(), "42".to_owned(), "5s".to_owned());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let wrong = |what| Error::msg(format!("{word}: {what}; run with --help for the usage"));
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--order" => name = words.next().ok_or_else(|| wrong("a name is missing"))?,
            "--pause" => pause = words.next().ok_or_else(|| wrong("a duration is missing"))?,
            option if option.starts_with('-') => return Err(wrong("there is no such option")),
            _ => file = word,
        }
    }
    pause.as_str().into_duration()?;
    Ok(Some((file, Order { name, cents: 4200, email: "ada@example.org".into(), pause })))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let Some((file, order)) = arguments()? else {
        println!("{HELP}");
        return Ok(());
    };
    println!(
        "Kill this program with Ctrl-C or kill -9 {} and start it again: the order continues.\n",
        std::process::id()
    );
    sell(&file, order).await
}
