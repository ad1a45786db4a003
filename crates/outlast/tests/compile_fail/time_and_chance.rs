//! Time and random numbers come from the context.

#![allow(unused)]

use std::time::{Duration, Instant, SystemTime};

use outlast::prelude::*;

mod rand {
    pub fn random() -> u64 {
        4
    }
}

struct Uuid;

impl Uuid {
    fn new_v4() -> u128 {
        4
    }
}

#[workflow]
async fn clocks(ctx: Context) -> Result<(), Error> {
    let _ = SystemTime::now();
    let _ = std::time::SystemTime::now();
    let _ = Instant::now();
    Ok(())
}

#[workflow]
async fn dice(ctx: Context) -> Result<(), Error> {
    let _ = rand::random();
    let _ = Uuid::new_v4();
    Ok(())
}

#[workflow]
async fn naps(ctx: Context) -> Result<(), Error> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _ = tokio::time::timeout(Duration::from_secs(1), ctx.sleep("1h")).await;
    std::thread::sleep(Duration::from_secs(1));
    Ok(())
}

fn main() {}
