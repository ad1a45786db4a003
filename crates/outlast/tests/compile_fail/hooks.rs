//! A payload has the type that the hook's constant names, and the constant has a valid name.

#![allow(unused)]

use outlast::RunId;
use outlast::prelude::*;

const RATING: Hook<u8> = Hook::new("rating");
const NAMELESS: Hook<u8> = Hook::new("");

#[workflow]
async fn survey(ctx: Context) -> Result<String, Error> {
    ctx.hook(RATING).await
}

async fn rate(client: Client, run: RunId) -> Result<(), Error> {
    client.send(run, RATING, "five").await
}

async fn rate_by_handle(run: RunHandle<u8>) -> Result<(), Error> {
    run.send(RATING, &5_u64).await
}

fn main() {
    let _ = NAMELESS;
}
