//! A file that cannot be used is refused with a remedy, and is not changed.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::TempDatabase;
use outlast_core::WorldError;
use rusqlite::Connection;

#[track_caller]
fn open_error(database: &TempDatabase) -> WorldError {
    database.try_open().expect_err("the file cannot be used")
}

#[test]
fn a_missing_folder_is_refused_and_not_created() {
    let database = TempDatabase::new();
    let options = outlast_sqlite::SqliteOptions::new(std::sync::Arc::new(database.clock.clone()));
    let path = database.path().with_file_name("nowhere").join("world.db");
    let error = outlast_sqlite::SqliteWorld::open(path.to_str().unwrap(), options).unwrap_err();
    assert!(matches!(&error, WorldError::Invalid(message) if message.contains("create it first")), "{error}");
    assert!(!path.parent().unwrap().exists());
}

#[test]
fn the_path_of_a_folder_is_refused() {
    let database = TempDatabase::new();
    std::fs::create_dir(database.path()).unwrap();
    let error = open_error(&database);
    assert!(matches!(&error, WorldError::Invalid(message) if message.contains("is a folder")), "{error}");
}

#[test]
fn a_file_that_is_not_sqlite_is_refused_unchanged() {
    let database = TempDatabase::new();
    let text = "some text, ".repeat(100);
    std::fs::write(database.path(), &text).unwrap();
    let error = open_error(&database);
    assert!(
        matches!(&error, WorldError::Corrupt(message) if message.contains("not an SQLite file")),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(database.path()).unwrap(), text);
}

#[test]
fn the_file_of_another_program_is_refused_unchanged() {
    let database = TempDatabase::new();
    let connection = Connection::open(database.path()).unwrap();
    connection.execute_batch("CREATE TABLE notes (entry TEXT)").unwrap();
    let before = std::fs::read(database.path()).unwrap();
    let error = open_error(&database);
    assert!(
        matches!(&error, WorldError::Conflict(message) if message.contains("another program")),
        "{error}"
    );
    assert_eq!(std::fs::read(database.path()).unwrap(), before);
}

#[test]
fn a_file_with_another_application_id_is_refused() {
    let database = TempDatabase::new();
    Connection::open(database.path()).unwrap().pragma_update(None, "application_id", 7).unwrap();
    let error = open_error(&database);
    assert!(
        matches!(&error, WorldError::Conflict(message) if message.contains("another program")),
        "{error}"
    );
}

#[test]
fn a_newer_schema_is_refused_only_if_this_build_cannot_use_it() {
    let database = TempDatabase::new();
    drop(database.open());
    let connection = Connection::open(database.path()).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    drop(database.open());
    connection.execute("UPDATE compatibility SET schema_min = 998", []).unwrap();
    let error = open_error(&database);
    let expected = "has schema 999, which needs a build that knows schema 998";
    assert!(matches!(&error, WorldError::Conflict(message) if message.contains(expected)), "{error}");
}

#[test]
fn a_read_only_file_is_refused_when_it_is_opened() {
    let database = TempDatabase::new();
    drop(database.open());
    let mut permissions = std::fs::metadata(database.path()).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(database.path(), permissions).unwrap();
    let error = open_error(&database);
    assert!(
        matches!(&error, WorldError::Invalid(message) if message.contains("make it writable")),
        "{error}"
    );
}

#[test]
fn an_empty_file_becomes_a_world() {
    let database = TempDatabase::new();
    std::fs::write(database.path(), "").unwrap();
    database.open();
    database.open();
}

#[test]
fn a_write_waits_until_another_connection_commits() {
    let database = TempDatabase::new();
    drop(database.open());
    let other = Connection::open(database.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let world = database.open();
    let writing = std::thread::spawn(move || common::block_on(outlast_core::World::leave(&world, ID)));
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(writing.join().unwrap(), Ok(()));
}

const ID: outlast_core::SessionId = outlast_core::SessionId::from_bits(1);

#[test]
fn several_threads_can_create_a_file_at_the_same_time() {
    for _ in 0..20 {
        let database = TempDatabase::new();
        let gate = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    gate.wait();
                    database.open()
                });
            }
        });
    }
}

fn set_mode(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs a test that depends on permissions. They do not apply to root, so as root it runs in a child process with
/// another user.
#[cfg(unix)]
fn with_permissions(name: &str, test: fn(&TempDatabase)) {
    use std::os::unix::process::CommandExt;

    const NOBODY: u32 = 65_534;
    let database = TempDatabase::new();
    let folder = database.path().parent().unwrap().to_path_buf();
    set_mode(&folder, 0o500);
    let is_bound = std::fs::write(folder.join("probe"), "").is_err();
    set_mode(&folder, 0o700);
    if is_bound {
        return test(&database);
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env("TMPDIR", "/tmp").current_dir("/");
    match command.uid(NOBODY).gid(NOBODY).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("skipped: the test cannot be run as another user than root ({error})"),
    }
}

#[track_caller]
fn assert_invalid(error: WorldError, parts: &[&str]) {
    let WorldError::Invalid(text) = &error else { panic!("{error:?}") };
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

#[cfg(unix)]
#[test]
fn a_read_only_folder_is_refused_with_the_permission() {
    with_permissions("a_read_only_folder_is_refused_with_the_permission", |database| {
        let folder = database.path().parent().unwrap().to_path_buf();
        for _ in 0..2 {
            set_mode(&folder, 0o500);
            let error = open_error(database);
            set_mode(&folder, 0o700);
            assert_invalid(error, &["no permission to write in the folder", "world.db", "mode 0500"]);
            // In the second round the file exists, but not the files that SQLite creates next to it.
            drop(database.open());
        }
    });
}

#[cfg(unix)]
#[test]
fn a_file_without_permissions_is_refused_with_its_mode() {
    with_permissions("a_file_without_permissions_is_refused_with_its_mode", |database| {
        drop(database.open());
        set_mode(&database.path(), 0o000);
        assert_invalid(open_error(database), &["world.db", "(mode 0000, owner"]);
        set_mode(&database.path(), 0o200);
        assert_invalid(open_error(database), &["no permission to read and write", "(mode 0200, owner"]);
        set_mode(&database.path(), 0o400);
        assert_invalid(open_error(database), &["is read-only for this user (mode 0400, owner"]);
        set_mode(&database.path(), 0o600);
        database.open();
    });
}

#[cfg(unix)]
#[test]
fn a_backup_into_a_read_only_folder_is_refused_with_the_permission() {
    with_permissions("a_backup_into_a_read_only_folder_is_refused_with_the_permission", |database| {
        let world = database.open();
        let folder = database.path().with_file_name("backups");
        std::fs::create_dir(&folder).unwrap();
        set_mode(&folder, 0o500);
        let error = common::block_on(world.backup(folder.join("copy.db"))).unwrap_err();
        set_mode(&folder, 0o700);
        assert_invalid(error, &["no permission to write in the folder", "copy.db", "mode 0500"]);
    });
}

#[test]
fn a_join_without_a_lock_file_is_refused_with_the_path() {
    let database = TempDatabase::new();
    let world = database.open();
    let folder = database.path().with_file_name("world.db-sessions");
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
    assert!(text.contains("world.db-sessions") && text.contains("check that the folder exists"), "{text}");
    std::fs::remove_file(folder).unwrap();
    common::block_on(outlast_core::World::join(&world, join())).unwrap();
}
