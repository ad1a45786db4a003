//! What the shop's programs agree on: names, types and policies. There is no code of workflows or steps in
//! it, so a program that only starts orders depends on nothing that carries them out.

use outlast::{Error, Retry, Step, Workflow};
use serde::{Deserialize, Serialize};

/// Sells one order. Starts of orders that make no sense are refused, and leave nothing behind.
pub const CHECKOUT: Workflow<Order, Receipt> = Workflow::new("checkout").check(check_order);

/// Takes the money, and returns the number of the payment.
pub const CHARGE: Step<Order, String> = Step::new("charge").retry(Retry::api()).timeout("30s");

/// Hands the parcel over, and returns its number.
pub const SHIP: Step<(Order, String), String> = Step::new("ship").attempts(10);

/// The hook to which the customer's address is sent.
pub const ADDRESS: &str = "address";

/// What someone buys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The number on the invoice.
    pub id: u32,
    /// What it is.
    pub item: String,
    /// What it costs.
    pub cents: u64,
}

/// What the customer gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// The number of the payment.
    pub payment: String,
    /// The number of the parcel.
    pub parcel: String,
}

fn check_order(order: &Order) -> Result<(), Error> {
    match order.cents {
        0 => Err(Error::msg(format!("order {} costs nothing; we do not sell gifts", order.id))),
        _ => Ok(()),
    }
}
