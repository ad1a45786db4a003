//! More than 24 functions are registered with several calls, or with tuples in a tuple.

#![allow(unused)]

use std::sync::Arc;

use outlast::prelude::*;

#[step]
async fn a() {}

fn too_many(world: Arc<dyn outlast::World>) {
    let _ = Worker::builder(world)
        .register((a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a));
}

fn main() {}
