//! The example of the documentation, as a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outlast::prelude::*;
use outlast_testkit::TestClock;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    cents: u64,
    email: String,
}
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Payment(String);
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Parcel(u64);
#[derive(Serialize, Deserialize)]
struct Decision {
    approved: bool,
}
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    payment: Payment,
    parcel: Parcel,
}

#[derive(Clone, Default)]
struct Bank(Arc<AtomicU32>);

impl Bank {
    async fn charge(&self, order: &Order, key: String) -> Result<Payment, std::io::Error> {
        if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
            return Err(std::io::Error::other("bank is closed"));
        }
        Ok(Payment(format!("{} for {}", order.cents, key.rsplit('.').next().unwrap_or_default())))
    }
}

#[step(attempts = 5, timeout = "30s")]
async fn charge(cx: StepContext<Bank>, order: Order) -> Result<Payment, StepError> {
    if order.cents == 0 {
        return Err(StepError::fatal("empty order"));
    }
    Ok(cx.state().charge(&order, cx.key()).await?)
}

#[step]
async fn ship(order: Order) -> Result<Parcel, StepError> {
    Ok(Parcel(order.cents))
}

#[step]
async fn thank(email: String) {
    let _ = email;
}

#[workflow]
async fn checkout(ctx: Context, order: Order) -> Result<Receipt, Error> {
    let payment = ctx.step(charge, &order).await?;

    if order.cents > 100_000 {
        let decision = ctx.hook::<Decision>("review").timeout("3d").await?;
        if !decision.approved {
            return Err(Error::msg("not approved"));
        }
    }
    let (parcel, _) = try_join!(ctx.step(ship, &order), ctx.step(thank, &order.email))?;
    ctx.sleep("1h").await?;
    Ok(Receipt { payment, parcel })
}

async fn checkout_on(url: &str) -> Result<(), Error> {
    let clock = TestClock::new();
    let world = outlast::open_with_clock(url, Arc::new(clock.clone())).await?;
    let worker = Worker::builder(world.clone())
        .state(Bank::default())
        .register((checkout, charge, ship, thank))
        .paranoid()
        .start()
        .await?;
    let client = Client::new(world);
    let order = Order { cents: 200_000, email: "ada@example.org".into() };
    let run = client.start(checkout, &order).key("order-42").await?;
    clock.settle().await;
    run.send("review", &Decision { approved: true }).await?;
    clock.run_until_idle().await;
    let receipt: Receipt = run.output().await?;
    assert_eq!(receipt, Receipt { payment: Payment("200000 for 0".into()), parcel: Parcel(200_000) });
    let again = client.start(checkout, &order).key("order-42").await?;
    assert_eq!(again.id(), run.id());
    assert!(!again.is_new());
    worker.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_checkout_runs_on_memory() {
    checkout_on("memory:").await.unwrap();
}

#[tokio::test]
async fn a_checkout_runs_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    checkout_on(&format!("sqlite:{}/shop.db", folder.path().display())).await.unwrap();
}

#[workflow]
async fn forgetful(ctx: Context) -> Result<(), Error> {
    ctx.step(thank, "ada@example.org".to_owned()).await
}

#[tokio::test]
async fn waiting_for_a_stuck_run_fails_with_the_reason() {
    let clock = TestClock::new();
    let world = outlast::open_with_clock("memory:", Arc::new(clock.clone())).await.unwrap();
    let _worker = Worker::builder(world.clone()).register((forgetful,)).start().await.unwrap();
    let run = Client::new(world).start(forgetful, ()).await.unwrap();
    clock.run_until_idle().await;
    for error in [run.output().await.unwrap_err(), run.output_within("0s").await.unwrap_err()] {
        assert!(error.is_stuck() && error.to_string().contains("step `thank` is not registered"), "{error}");
    }
}

#[tokio::test]
async fn a_run_is_found_again_by_its_key() {
    let clock = TestClock::new();
    let world = outlast::open_with_clock("memory:", Arc::new(clock.clone())).await.unwrap();
    let client = Client::new(world);
    let order = Order { cents: 1, email: "ada@example.org".into() };
    let run = client.start(checkout, &order).key("order-42").await.unwrap();
    assert_eq!(client.find::<Receipt>("order-42").await.unwrap().map(|found| found.id()), Some(run.id()));
    assert!(client.find::<Receipt>("order-43").await.unwrap().is_none());
}
