//! Futures of steps and workflows are `Send`.

#![allow(unused)]

use std::rc::Rc;

use outlast::prelude::*;

#[step]
async fn charge(cents: u64) {
    let cents = Rc::new(cents);
    std::future::ready(()).await;
    drop(cents);
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<(), Error> {
    let cents = Rc::new(cents);
    ctx.sleep("1h").await?;
    drop(cents);
    Ok(())
}

fn main() {}
