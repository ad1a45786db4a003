//! Retries: policies, errors that control them, notifications, and checking for an effect before repeating it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use outlast::prelude::*;

/// A bank that books every payment, but whose first response to each payment is lost.
#[derive(Default)]
struct Bank {
    payments: Mutex<BTreeMap<String, u64>>,
}

impl Bank {
    async fn pay(&self, key: &str, cents: u64) -> Result<String, std::io::Error> {
        println!("    bank     books {cents} cents");
        let before = self.payments.lock().map(|mut payments| payments.insert(key.to_owned(), cents));
        match before {
            Ok(Some(_)) => Ok(format!("{cents} cents paid, twice")),
            _ => Err(std::io::ErrorKind::ConnectionReset.into()),
        }
    }

    async fn find(&self, key: &str) -> Option<u64> {
        self.payments.lock().ok()?.get(key).copied()
    }
}

/// A preset with shorter pauses for this example. An error can set the time of the next attempt.
#[step(retry = "api", initial = "10ms", attempts = 4)]
async fn rate(cx: StepContext, currency: String) -> Result<f64, StepError> {
    match cx.attempt() {
        1 => Err(StepError::retry_after("too many requests", "30ms").class(ErrorClass::RateLimit)),
        2 => Err(StepError::msg("internal server error").class(ErrorClass::Server)),
        _ if currency == "EUR" => Ok(0.5),
        _ => Err(StepError::fatal(format!("there is no currency {currency}"))), // not retried
    }
}

/// The payment succeeds and only the response is lost, so a second attempt would pay twice.
#[step(reconcile = find_payment, retry = "network", initial = "10ms")]
async fn pay(cx: StepContext<Bank>, cents: u64) -> Result<String, StepError> {
    Ok(cx.state().pay(&cx.key(), cents).await?)
}

/// Checks for the payment. It is called before every attempt that may not be the first, also after a crash.
async fn find_payment(cx: StepContext<Bank>, _cents: u64) -> Result<Option<String>, StepError> {
    let found = cx.state().find(&cx.key()).await;
    Ok(found.map(|cents| format!("{cents} cents paid, once")))
}

#[workflow]
async fn buy(ctx: Context, cents: u64, currency: String) -> Result<String, Error> {
    // The call overrides the step's own policy.
    let picky = Retry::linear().initial("10ms").only(&[ErrorClass::RateLimit, ErrorClass::Server]);
    let rate = ctx.step(rate, &currency).retry(picky).timeout("5s").await?;
    ctx.step(pay, (cents as f64 * rate) as u64).await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    println!("1. Outside workflows: a connection that needs several attempts. Nothing is recorded.");
    let mut calls = 0;
    let world = outlast::retry(Retry::network().initial("10ms"), || {
        calls += 1;
        println!("    connect  call {calls}");
        let is_up = calls == 3;
        async move { if is_up { outlast::open("memory:").await } else { Err(Error::msg("not up yet")) } }
    });
    let world = world.await?;

    println!("2. Steps: every retry is recorded and reported.");
    let worker = Worker::builder(world.clone())
        .state(Bank::default())
        .register((buy, rate, pay))
        .on_retry(|about| {
            println!("    retry    {} after attempt {}: {}", about.step, about.attempt, about.message)
        })
        .start()
        .await?;
    let client = Client::new(world);
    let run = client.start(buy, (8400, "EUR".to_owned())).await?;
    println!("    output   {}", run.output().await?);

    println!("3. A fatal error, which is not retried.");
    let run = client.start(buy, (8400, "XYZ".to_owned())).await?;
    if let Err(error) = run.output().await {
        println!("    error    {error}; exhausted: {}", error.is_exhausted());
    }
    worker.stop().await
}
