//! Steps do not nest.

#![allow(unused)]

use outlast::prelude::*;

#[step]
async fn inner(number: u64) -> u64 {
    number
}

#[step]
async fn outer(cx: StepContext, number: u64) -> Result<u64, StepError> {
    Ok(cx.step(inner, number).await?)
}

fn main() {}
