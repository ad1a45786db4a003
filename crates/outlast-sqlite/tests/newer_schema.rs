//! A program passes the conformance suite on a file that a newer program migrates by an additive step while it is open.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use outlast_core::{SessionId, World};
use outlast_sqlite::{SqliteOptions, SqliteWorld};
use outlast_testkit::TestClock;
use outlast_testkit::conformance::Subject;

outlast_testkit::conformance!(open);

async fn open(clock: TestClock) -> MigratedSubject {
    let folder = tempfile::tempdir().unwrap();
    let world = open_in(&folder, &clock);
    // Statements are prepared before the migration, and used after it.
    world.counts().await.unwrap();
    assert!(world.workers().await.unwrap().is_empty());
    migrate(&folder);
    MigratedSubject { world, clock, folder }
}

/// The largest change that a newer program may make while this one uses the file: a new table, and a new column in
/// every table.
fn migrate(folder: &tempfile::TempDir) {
    let connection = rusqlite::Connection::open(folder.path().join("world.db")).unwrap();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut statement = connection.prepare(tables).unwrap();
    let tables: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(tables.len() > 8, "{tables:?}");
    let mut batch = "BEGIN IMMEDIATE; CREATE TABLE later (a INTEGER) STRICT;".to_owned();
    for table in tables {
        batch.push_str(&format!("ALTER TABLE {table} ADD COLUMN later TEXT NOT NULL DEFAULT 'later';"));
    }
    connection.execute_batch(&batch).unwrap();
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    connection.pragma_update(None, "user_version", version + 1).unwrap();
    connection.execute_batch("COMMIT").unwrap();
}

fn open_in(folder: &tempfile::TempDir, clock: &TestClock) -> Arc<dyn World> {
    let path = folder.path().join("world.db");
    let options = SqliteOptions::new(Arc::new(clock.clone()));
    Arc::new(SqliteWorld::open(path.to_str().unwrap(), options).unwrap())
}

struct MigratedSubject {
    world: Arc<dyn World>,
    clock: TestClock,
    folder: tempfile::TempDir,
}

#[async_trait::async_trait]
impl Subject for MigratedSubject {
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
