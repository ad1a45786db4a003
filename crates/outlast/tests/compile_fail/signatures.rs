//! Attributes go on free async functions of owned values, and a workflow's first parameter is its context.

#![allow(unused)]

use outlast::prelude::*;

#[step]
fn not_async() {}

#[workflow]
fn not_async_either(ctx: Context) {}

#[workflow]
async fn no_context(order: u64) {}

#[workflow]
async fn with_state(cx: StepContext<String>) {}

#[step]
async fn borrows(name: &str) {}

#[step]
async fn generic<T>(value: T) {}

#[step]
struct NotAFunction;

fn main() {}
