//! `PostgresWorld` passes the conformance suite and the model test.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;

use common::TestSchema;
use outlast_core::{SessionId, World};
use outlast_testkit::TestClock;
use outlast_testkit::conformance::Subject;

outlast_testkit::conformance!(open);

#[test]
fn random_calls_have_the_same_results_as_in_the_model() {
    outlast_testkit::model::check_world(open, 0..12, 60);
}

async fn open(clock: TestClock) -> PostgresSubject {
    let test_schema = TestSchema::new(clock);
    let world = Arc::new(test_schema.open().await);
    PostgresSubject { world, test_schema }
}

struct PostgresSubject {
    world: Arc<dyn World>,
    test_schema: TestSchema,
}

#[async_trait::async_trait]
impl Subject for PostgresSubject {
    fn world(&self) -> Arc<dyn World> {
        self.world.clone()
    }

    async fn other_handle(&self) -> Arc<dyn World> {
        Arc::new(self.test_schema.open().await)
    }

    async fn crash(&self, handle: Arc<dyn World>, _: SessionId) {
        drop(handle);
    }
}
