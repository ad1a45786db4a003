//! `SqliteWorld` passes the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use outlast_core::{SessionId, World};
use outlast_sqlite::{SqliteOptions, SqliteWorld};
use outlast_testkit::TestClock;
use outlast_testkit::conformance::Subject;

outlast_testkit::conformance!(open);

#[test]
fn the_world_behaves_like_the_model() {
    outlast_testkit::model::check_world(open, 0..40, 60);
}

async fn open(clock: TestClock) -> SqliteSubject {
    let folder = tempfile::tempdir().unwrap();
    let world = open_in(&folder, &clock);
    SqliteSubject { world, clock, folder }
}

fn open_in(folder: &tempfile::TempDir, clock: &TestClock) -> Arc<dyn World> {
    let path = folder.path().join("world.db");
    let options = SqliteOptions::new(Arc::new(clock.clone()));
    Arc::new(SqliteWorld::open(path.to_str().unwrap(), options).unwrap())
}

struct SqliteSubject {
    world: Arc<dyn World>,
    clock: TestClock,
    folder: tempfile::TempDir,
}

#[async_trait::async_trait]
impl Subject for SqliteSubject {
    fn world(&self) -> Arc<dyn World> {
        self.world.clone()
    }

    async fn other_handle(&self) -> Arc<dyn World> {
        open_in(&self.folder, &self.clock)
    }

    async fn crash(&self, handle: Arc<dyn World>, _: SessionId) {
        drop(handle);
    }
}
