//! Nothing runs outside the history.

#![allow(unused)]

use outlast::prelude::*;

#[workflow]
async fn tasks(ctx: Context) -> Result<(), Error> {
    tokio::spawn(async {});
    tokio::task::spawn_blocking(|| {});
    std::thread::spawn(|| {});
    Ok(())
}

fn main() {}
