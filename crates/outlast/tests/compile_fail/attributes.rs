//! Unknown arguments of attributes are refused, and disabled checks need a reason.

#![allow(unused)]

use outlast::prelude::*;

#[workflow(unchecked)]
async fn no_reason(ctx: Context) {}

#[workflow(unchecked = "")]
async fn empty_reason(ctx: Context) {}

#[workflow(attempts = 3)]
async fn of_steps(ctx: Context) {}

#[step(attempts = 0)]
async fn never() {}

#[step(timeout = "30 parsecs")]
async fn far() {}

#[step(timeout = 30)]
async fn no_unit() {}

#[step(retries = 3)]
async fn unknown() {}

#[step(name = "")]
async fn nameless() {}

#[step(retry = "sometimes")]
async fn unknown_retry() {}

#[step(blocking)]
async fn blocking_and_async() {}

#[step(at_most_once, attempts = 3)]
async fn once_and_again() {}

#[step(queue = "")]
async fn no_queue() {}

#[step(priority = 3)]
async fn urgent_in_no_line() {}

#[workflow(queue = "reports", priority = 10)]
async fn too_urgent(ctx: Context) {}

#[workflow(name = "step:report")]
async fn as_a_queued_step(ctx: Context) {}

fn main() {}
