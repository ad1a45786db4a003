//! Inputs and outputs are serde values, and errors are errors.

#![allow(unused)]

use outlast::prelude::*;

struct Order;

#[step]
async fn takes(order: Order) {
    drop(order);
}

#[workflow]
async fn returns(ctx: Context) -> Result<Order, Error> {
    Ok(Order)
}

#[step]
async fn fails(cents: u64) -> Result<u64, Order> {
    Ok(cents)
}

fn main() {}
