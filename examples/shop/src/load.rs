//! The load of the shop: first one run of each kind, then an order every second or two.

use std::time::Duration;

use outlast::prelude::*;

use crate::workflows::{Order, approval, checkout, import, rating, restock};

const CUSTOMERS: [&str; 6] = ["ada", "grace", "alan", "edsger", "barbara", "donald"];
const ARTICLES: [&str; 6] = ["lamp", "chair", "kettle", "desk", "clock", "teapot"];

/// An order with this number.
pub(crate) fn order(number: u64) -> Order {
    let pick = |from: &[&str]| from[usize::try_from(number).unwrap_or(0) % from.len()].to_owned();
    let article = if number % 17 == 3 { "unicorn".to_owned() } else { pick(&ARTICLES) };
    Order { number, customer: pick(&CUSTOMERS), article, cents: 900 + number * 379 % 9_000 }
}

/// Starts a run whose input has the type of an older program: it is stuck until a fixed build is deployed. A worker in
/// the same process would refuse the start, so this is called before one is started.
pub(crate) async fn start_with_old_input(client: &Client) -> Result<(), Error> {
    client.start_json("loyalty", 1, r#"{"points": "twelve"}"#).key("loyalty-12").await.map(drop)
}

/// Starts one run of each kind, unless an earlier start of the program has done so.
pub(crate) async fn start_one_of_each(client: &Client) -> Result<(), Error> {
    client.start(import, 60_000).key("import-spring").tag("file", "spring.csv").await?;
    client.start(rating, order(1)).key("rating-1").tag("customer", "ada").await?;
    client.start(approval, order(2)).key("approval-2").tag("customer", "grace").await?;
    client.start(restock, "Rotterdam".to_owned()).key("restock-rotterdam").await?;
    client.start(checkout, order(3)).key("gift-3").queue("gift-wrap").await?;
    let paused = client.start(rating, order(5)).key("rating-5").tag("customer", "barbara").await?;
    client.pause(paused.id()).reason("the customer has moved").await?;
    let unwanted = client.start(approval, order(7)).key("approval-7").await?;
    unwanted.cancel("ordered twice").await?;
    for number in 10..22 {
        client.start(checkout, order(number)).key(format!("order-{number}")).await?;
    }
    Ok(())
}

/// Starts an order from time to time, for ever.
#[allow(clippy::disallowed_methods, reason = "customers come in real time")]
pub(crate) async fn sell(client: Client) -> Result<(), Error> {
    // The program can be started again on the same file: it goes on with the next number.
    let mut number = client.counts().await?.values().sum::<u64>().max(22);
    loop {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(700..2_500))).await;
        number += 1;
        client.start(checkout, order(number)).key(format!("order-{number}")).await?;
        if number % 15 == 0 {
            client.start(rating, order(number)).key(format!("rating-{number}")).await?;
        }
    }
}
