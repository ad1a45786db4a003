//! Collections without a fixed order are refused in workflows, also as an input.

#![allow(unused)]

use std::collections::{HashMap, HashSet};

use outlast::prelude::*;

#[workflow]
async fn totals(ctx: Context, prices: HashMap<String, u64>) -> Result<u64, Error> {
    let seen: HashSet<u64> = prices.values().copied().collect();
    let empty = std::collections::HashMap::<u64, u64>::new();
    Ok(seen.len() as u64 + empty.len() as u64)
}

fn main() {}
