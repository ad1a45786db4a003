//! The contract of the shop's programs: names, types and policies. It contains no code of workflows or steps, so a
//! program that only starts orders does not depend on the code that executes them.

use outlast::{Error, Hook, Retry, Step, Workflow};
use serde::{Deserialize, Serialize};

/// Sells one order. The start of an invalid order is rejected, and nothing is stored.
pub const CHECKOUT: Workflow<Order, Receipt> = Workflow::new("checkout").check(check_order);

/// Charges the customer, and returns the number of the payment.
pub const CHARGE: Step<Order, String> = Step::new("charge").retry(Retry::api()).timeout("30s");

/// Ships the order, and returns the number of the parcel.
pub const SHIP: Step<(Order, String), String> = Step::new("ship").attempts(10);

/// The hook to which the customer's address is sent.
pub const ADDRESS: Hook<String> = Hook::new("address");

/// An order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The number on the invoice.
    pub id: u32,
    /// The item that is sold.
    pub item: String,
    /// The price in cents.
    pub cents: u64,
}

/// The receipt for the customer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// The number of the payment.
    pub payment: String,
    /// The number of the parcel.
    pub parcel: String,
}

fn check_order(order: &Order) -> Result<(), Error> {
    match order.cents {
        0 => Err(Error::msg(format!("order {} has no price; set `cents`", order.id))),
        _ => Ok(()),
    }
}
