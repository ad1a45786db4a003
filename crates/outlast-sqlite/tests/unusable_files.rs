//! A file that cannot be used is refused with the remedy, and left as it was.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::Place;
use outlast_core::WorldError;
use rusqlite::Connection;

#[track_caller]
fn refusal(place: &Place) -> WorldError {
    place.try_open().expect_err("the file cannot be used")
}

#[test]
fn a_missing_folder_is_named() {
    let place = Place::new();
    let options = outlast_sqlite::SqliteOptions::new(std::sync::Arc::new(place.clock.clone()));
    let path = place.path().with_file_name("nowhere").join("world.db");
    let error = outlast_sqlite::SqliteWorld::open(path.to_str().unwrap(), options).unwrap_err();
    assert!(matches!(&error, WorldError::Invalid(message) if message.contains("create it first")), "{error}");
    assert!(!path.parent().unwrap().exists());
}

#[test]
fn a_folder_is_no_file() {
    let place = Place::new();
    std::fs::create_dir(place.path()).unwrap();
    let error = refusal(&place);
    assert!(matches!(&error, WorldError::Invalid(message) if message.contains("is a folder")), "{error}");
}

#[test]
fn a_file_that_is_not_sqlite_is_left_alone() {
    let place = Place::new();
    let text = "dear diary, ".repeat(100);
    std::fs::write(place.path(), &text).unwrap();
    let error = refusal(&place);
    assert!(
        matches!(&error, WorldError::Corrupt(message) if message.contains("not an SQLite file")),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(place.path()).unwrap(), text);
}

#[test]
fn the_file_of_another_program_is_left_alone() {
    let place = Place::new();
    let connection = Connection::open(place.path()).unwrap();
    connection.execute_batch("CREATE TABLE diary (entry TEXT)").unwrap();
    let before = std::fs::read(place.path()).unwrap();
    let error = refusal(&place);
    assert!(
        matches!(&error, WorldError::Conflict(message) if message.contains("another program")),
        "{error}"
    );
    assert_eq!(std::fs::read(place.path()).unwrap(), before);
}

#[test]
fn a_file_with_another_programs_mark_is_left_alone() {
    let place = Place::new();
    Connection::open(place.path()).unwrap().pragma_update(None, "application_id", 7).unwrap();
    let error = refusal(&place);
    assert!(
        matches!(&error, WorldError::Conflict(message) if message.contains("another program")),
        "{error}"
    );
}

#[test]
fn a_newer_schema_that_this_build_cannot_use_is_left_to_a_newer_build() {
    let place = Place::new();
    drop(place.open());
    let connection = Connection::open(place.path()).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    drop(place.open());
    connection.execute("UPDATE compatibility SET schema_min = 998", []).unwrap();
    let error = refusal(&place);
    let said = "has schema 999, which needs a build that knows schema 998";
    assert!(matches!(&error, WorldError::Conflict(message) if message.contains(said)), "{error}");
}

#[test]
fn a_read_only_file_is_refused_at_once() {
    let place = Place::new();
    drop(place.open());
    let mut permissions = std::fs::metadata(place.path()).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(place.path(), permissions).unwrap();
    let error = refusal(&place);
    assert!(
        matches!(&error, WorldError::Invalid(message) if message.contains("make it writable")),
        "{error}"
    );
}

#[test]
fn an_empty_file_becomes_a_world() {
    let place = Place::new();
    std::fs::write(place.path(), "").unwrap();
    place.open();
    place.open();
}

#[test]
fn a_file_that_is_being_written_is_awaited() {
    let place = Place::new();
    drop(place.open());
    let other = Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let world = place.open();
    let writing = std::thread::spawn(move || common::block_on(outlast_core::World::leave(&world, ID)));
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(writing.join().unwrap(), Ok(()));
}

const ID: outlast_core::SessionId = outlast_core::SessionId::from_bits(1);

#[test]
fn a_new_file_may_be_opened_by_many_at_the_same_moment() {
    for _ in 0..20 {
        let place = Place::new();
        let gate = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    gate.wait();
                    place.open()
                });
            }
        });
    }
}

/// Whether permissions mean something to this user: to root they do not.
fn is_bound_by_permissions(folder: &std::path::Path) -> bool {
    std::fs::write(folder.join("probe"), "").is_err()
}

fn set_readonly(path: &std::path::Path, readonly: bool) {
    let mut permissions = std::fs::metadata(path).unwrap().permissions();
    permissions.set_readonly(readonly);
    std::fs::set_permissions(path, permissions).unwrap();
}

#[test]
fn a_read_only_folder_is_refused_with_the_remedy() {
    let place = Place::new();
    let folder = place.path().parent().unwrap().to_path_buf();
    set_readonly(&folder, true);
    if !is_bound_by_permissions(&folder) {
        set_readonly(&folder, false);
        return println!("skipped: permissions do not bind this user; do not be root to run it");
    }
    let error = refusal(&place);
    set_readonly(&folder, false);
    let text = error.to_string();
    assert!(text.contains("world.db") && text.contains("this user may write there"), "{text}");
    place.open();
}

#[test]
fn a_lock_that_cannot_be_made_refuses_the_join_and_says_where() {
    let place = Place::new();
    let world = place.open();
    let folder = place.path().with_file_name("world.db-sessions");
    std::fs::write(&folder, "in the way").unwrap();
    let join = || outlast_core::Join {
        session: ID,
        host: "here".into(),
        pid: 1,
        build: "b".into(),
        code: std::sync::Arc::new([]),
        queues: outlast_core::queue::default_queues(),
        time: std::time::Duration::from_secs(10),
        rules: outlast_core::event::RULES,
        format: outlast_core::event::FORMAT,
    };
    let error = common::block_on(outlast_core::World::join(&world, join())).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, WorldError::Unavailable(_)), "{error:?}");
    assert!(text.contains("world.db-sessions") && text.contains("check that the folder is there"), "{text}");
    std::fs::remove_file(folder).unwrap();
    common::block_on(outlast_core::World::join(&world, join())).unwrap();
}
