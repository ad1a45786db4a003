//! A client of a shop. It depends only on the contract in `contract/`; the worker need not be running.
//!
//! ```text
//! cargo run --example contract_client -- shop.db
//! ```

use outlast::prelude::*;
use outlast_example_contract::{ADDRESS, CHECKOUT, Order};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "shop.db".to_owned());
    let client = Client::new(outlast::open(&format!("sqlite:{file}")).await?);

    let invalid = Order { id: 41, item: "a lamp".into(), cents: 0 };
    if let Err(error) = client.start(CHECKOUT, &invalid).await {
        println!("refused  {error}");
    }

    let order = Order { id: 42, item: "a chair".into(), cents: 4200 };
    let run = client.start(CHECKOUT, &order).key("order-42").await?;
    println!("started  {} in {file}; start the worker if it is not running", run.id());
    run.send(ADDRESS, "12 St James's Square").await?; // kept until the run waits for it

    let receipt = run.output().await?; // has the type that the contract defines
    println!("receipt  {}, {}", receipt.payment, receipt.parcel);

    // Without the types, a name and JSON are sufficient.
    let again = client.start_json("checkout", 1, r#"{"id": 42, "item": "a chair", "cents": 4200}"#);
    let again = again.key("order-42").await?;
    println!("same run {}, as JSON: {}", again.id() == run.id(), again.output().await?);
    Ok(())
}
