//! Files, the environment, processes and the network belong in steps.

#![allow(unused)]

use outlast::prelude::*;

mod reqwest {
    pub async fn get(_: &str) {}
}

#[workflow]
async fn effects(ctx: Context) -> Result<(), Error> {
    let _ = std::fs::read_to_string("prices.txt");
    let _ = std::env::var("PRICES");
    let _ = std::process::id();
    let _ = std::net::TcpStream::connect("example.org:80");
    reqwest::get("https://example.org").await;
    // The same in a step that is written in place is fine.
    let _: String = ctx.call("read", (), async |()| std::fs::read_to_string("prices.txt")).await?;
    Ok(())
}

fn main() {}
