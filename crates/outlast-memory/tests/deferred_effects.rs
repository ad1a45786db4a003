//! `MemoryWorld` passes the conformance suite if the effects of turns on other runs are applied later.

use std::sync::Arc;

use outlast_core::{SessionId, World};
use outlast_memory::MemoryWorld;
use outlast_testkit::TestClock;
use outlast_testkit::conformance::Subject;

outlast_testkit::conformance!(open);

#[test]
fn the_world_behaves_like_the_model() {
    outlast_testkit::model::check_world(open, 0..200, 60);
}

async fn open(clock: TestClock) -> MemorySubject {
    MemorySubject(Arc::new(MemoryWorld::new(Arc::new(clock)).with_deferred_effects()))
}

struct MemorySubject(Arc<MemoryWorld>);

#[async_trait::async_trait]
impl Subject for MemorySubject {
    fn world(&self) -> Arc<dyn World> {
        self.0.clone()
    }

    async fn other_handle(&self) -> Arc<dyn World> {
        self.0.clone()
    }

    async fn crash(&self, _: Arc<dyn World>, session: SessionId) {
        self.0.kill(session);
    }
}
