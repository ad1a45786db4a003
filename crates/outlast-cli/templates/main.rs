//! A durable workflow, and the commands to run it.

use outlast::prelude::*;

/// Work with side effects: its outcome is recorded once, and it is tried again when it fails.
#[step(attempts = 5, timeout = "30s")]
async fn charge(cx: StepContext, cents: u64) -> Result<String, StepError> {
    println!("charging {cents} cents");
    Ok(format!("payment {}", cx.key())) // the same key in every attempt: pass it to the bank
}

/// An ordinary async function that survives crashes, deploys and long sleeps.
#[workflow]
async fn checkout(ctx: Context, name: String, cents: u64) -> Result<String, Error> {
    let payment = ctx.step(charge, cents).await?;
    ctx.sleep("3s").await?; // it could be "30d"
    let stars = ctx.hook::<u8>("rating").timeout("30d").await?; // waits for input from outside
    Ok(format!("{payment}, {stars} stars from {name}"))
}

fn main() -> std::process::ExitCode {
    outlast_cli::App::new().register((checkout, charge)).main()
}
