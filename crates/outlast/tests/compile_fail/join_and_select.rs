//! Operations are polled in the order in which they are written.

#![allow(unused)]

use outlast::prelude::*;

mod futures {
    macro_rules! pretend {
        ($($tokens:tt)*) => {};
    }
    pub(crate) use pretend as select;
}

#[workflow]
async fn joins(ctx: Context) -> Result<(), Error> {
    let _ = tokio::join!(ctx.sleep("1h"), ctx.sleep("2h"));
    let _ = tokio::try_join!(ctx.sleep("1h"), ctx.sleep("2h"));
    Ok(())
}

#[workflow]
async fn races(ctx: Context) -> Result<(), Error> {
    tokio::select! {
        _ = ctx.sleep("1h") => {}
        _ = ctx.sleep("2h") => {}
    }
    futures::select! {
        _ = ctx.sleep("1h") => {}
    }
    Ok(())
}

fn main() {}
