//! The functions of `reconcile` and `check` must match the signature of their step or workflow.

#![allow(unused)]

use outlast::prelude::*;

#[step(reconcile = look_up)]
async fn charge(cx: StepContext<String>, cents: u64) -> Result<String, StepError> {
    Ok(format!("{cents}"))
}

async fn look_up(cents: u64) -> Result<Option<u64>, StepError> {
    Ok(Some(cents))
}

#[step(reconcile = find)]
async fn refund(cents: u64, reason: String) -> Result<String, StepError> {
    Ok(reason)
}

async fn find(cents: u64) -> Result<Option<String>, StepError> {
    Ok(None)
}

#[step(unique = "order.id, user")]
async fn notify(order: (u64, String), _id: u64) -> Result<(), StepError> {
    Ok(())
}

#[step(unique = "order.id")]
async fn no_such_field(order: (u64, String)) -> Result<(), StepError> {
    Ok(())
}

#[workflow(check = check)]
async fn checkout(ctx: Context, cents: u64) -> Result<(), Error> {
    Ok(())
}

fn check(cents: &String) -> Result<(), String> {
    Ok(())
}

#[workflow(check = "check")]
async fn in_quotes(ctx: Context, cents: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
