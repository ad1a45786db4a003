//! `PostgresWorld` keeps every rule of the suite.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;

use common::Place;
use outlast_conformance::WorldUnderTest;
use outlast_core::{SessionId, World};
use outlast_testkit::TestClock;

outlast_conformance::suite!(open);

#[test]
fn the_world_is_like_the_model() {
    outlast_conformance::model::check_world(open, 0..12, 60);
}

async fn open(clock: TestClock) -> OnServer {
    let place = Place::new(clock);
    let world = Arc::new(place.open().await);
    OnServer { world, place }
}

struct OnServer {
    world: Arc<dyn World>,
    place: Place,
}

#[async_trait::async_trait]
impl WorldUnderTest for OnServer {
    fn world(&self) -> Arc<dyn World> {
        self.world.clone()
    }

    async fn other_handle(&self) -> Arc<dyn World> {
        Arc::new(self.place.open().await)
    }

    async fn crash(&self, handle: Arc<dyn World>, _: SessionId) {
        drop(handle);
    }
}
