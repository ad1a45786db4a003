//! `MemoryWorld` passes the conformance suite if the effects of turns on other runs are applied later.

mod subject;

use std::sync::Arc;

use outlast_memory::MemoryWorld;
use outlast_testkit::TestClock;
use subject::MemorySubject;

outlast_conformance::suite!(open);

#[test]
fn the_world_behaves_like_the_model() {
    outlast_conformance::model::check_world(open, 0..200, 60);
}

async fn open(clock: TestClock) -> MemorySubject {
    MemorySubject::direct(MemoryWorld::new(Arc::new(clock)).with_deferred_effects())
}
