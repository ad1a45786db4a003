//! A workflow cannot reach the worker's state.

#![allow(unused)]

use outlast::prelude::*;

#[workflow]
async fn checkout(ctx: Context) -> Result<(), Error> {
    let _ = ctx.state();
    Ok(())
}

fn main() {}
