//! Faults of a server, before and while a world uses it. Errors that an operator must fix contain the remedy, and never
//! the password; faults that pass are waited for.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{
    NO_EXPIRY, TestSchema, claim, commit, completed, join, new_start, one_event_turn, start, try_join,
    wait_until,
};
use outlast_core::{Event, Payload, RunId, SessionId, Status, Then, Turn, World, WorldError};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;
use throwaway::{Address, Postgres};

const RUN: RunId = RunId::from_bits(1);
const SESSION: SessionId = SessionId::from_bits(1);

async fn open(url: &str) -> Result<PostgresWorld, WorldError> {
    PostgresWorld::open(url, PostgresOptions::new()).await
}

async fn open_error(url: &str) -> WorldError {
    open(url).await.unwrap_err()
}

fn start_server() -> Postgres {
    Postgres::builder().quick().start().unwrap()
}

fn schema_on(server: &Postgres) -> TestSchema {
    TestSchema::on(&server.url(), TestClock::new())
}

/// Creates a role without privileges except to connect. Returns its address.
async fn new_role(test_schema: &TestSchema, server: &str) -> Address {
    let name = format!("role_{}", test_schema.schema);
    let client = test_schema.connect().await;
    client.batch_execute(&format!("CREATE ROLE {name} LOGIN PASSWORD 'its-secret'")).await.unwrap();
    let address: Address = server.parse().unwrap();
    Address { user: name, password: "its-secret".into(), ..address }
}

#[tokio::test]
async fn the_error_for_a_wrong_password_comes_immediately_and_does_not_contain_it() {
    let test_schema = TestSchema::new(TestClock::new());
    let address: Address = throwaway::postgres::for_tests().parse().unwrap();
    let wrong = Address { password: "not-my-secret".into(), ..address };
    let started_at = Instant::now();
    let error = open_error(&wrong.to_string()).await;
    assert!(started_at.elapsed() < Duration::from_secs(5), "{:?}", started_at.elapsed());
    assert!(matches!(&error, WorldError::Invalid(why) if why.contains("check the user")), "{error}");
    assert!(!error.to_string().contains("not-my-secret"), "{error}");
    let none = format!("postgres://{}@{}:{}/postgres", wrong.user, wrong.host, wrong.port);
    let error = open_error(&none).await;
    assert!(matches!(&error, WorldError::Invalid(why) if why.contains("PGPASSWORD")), "{error}");
    drop(test_schema);
}

#[tokio::test]
async fn the_error_for_a_user_without_privileges_names_the_grants_and_with_them_the_user_can_work() {
    let test_schema = TestSchema::new(TestClock::new());
    let role = new_role(&test_schema, throwaway::postgres::for_tests()).await;
    let url = format!("{role}?schema={}&pool=2", test_schema.schema);
    let error = open_error(&url).await;
    assert!(matches!(&error, WorldError::Invalid(why) if why.contains("migrate=off")), "{error}");
    let error = open_error(&format!("{url}&migrate=off")).await;
    assert!(
        matches!(&error, WorldError::Conflict(why) if why.contains("outlast::postgres::migrate")),
        "{error}"
    );
    outlast_postgres::migrate(&test_schema.url()).await.unwrap();
    let client = test_schema.connect().await;
    let (schema, user) = (&test_schema.schema, &role.user);
    let error = open_error(&format!("{url}&migrate=off")).await;
    assert!(matches!(&error, WorldError::Invalid(why) if why.contains("GRANT USAGE ON SCHEMA")), "{error}");
    let grant = format!(
        "GRANT USAGE ON SCHEMA {schema} TO {user}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {user}"
    );
    client.batch_execute(&grant).await.unwrap();
    let error = open_error(&format!("{url}&migrate=off")).await;
    assert!(matches!(&error, WorldError::Invalid(why) if why.contains("INSERT, UPDATE, DELETE")), "{error}");
    let grant = format!("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}");
    client.batch_execute(&grant).await.unwrap();
    let world = open(&format!("{url}&migrate=off")).await.unwrap();
    start(&world, RUN).await;
    join(&world, SESSION, NO_EXPIRY).await;
    let claimed = claim(&world, SESSION).await.remove(0);
    // Privileges that are revoked later interrupt work, but no turn is rejected permanently.
    client.batch_execute(&format!("REVOKE INSERT ON {schema}.runs FROM {user}")).await.unwrap();
    let error = world.start(vec![new_start(RunId::from_bits(2))]).await.unwrap_err();
    assert!(matches!(&error, WorldError::Unavailable(why) if why.contains("grant it")), "{error}");
    assert!(!error.to_string().contains("its-secret"), "{error}");
    client.batch_execute(&format!("GRANT INSERT ON {schema}.runs TO {user}")).await.unwrap();
    let turn = one_event_turn(RUN, claimed.turn, claimed.seq, 9, Then::Release);
    for privilege in ["INSERT ON {}.turns", "UPDATE ON {}.runs", "UPDATE ON {}.counts"] {
        let privilege = privilege.replace("{}", schema);
        client.batch_execute(&format!("REVOKE {privilege} FROM {user}")).await.unwrap();
        always_unavailable(&world, &turn).await;
        client.batch_execute(&format!("GRANT {privilege} TO {user}")).await.unwrap();
    }
    commit(&world, SESSION, turn).await.unwrap();
}

/// Commits a turn more often than a rejected turn is tried, and checks that it is never rejected.
async fn always_unavailable(world: &PostgresWorld, turn: &Turn) {
    for _ in 0..25 {
        let answer = world.commit(SESSION, std::slice::from_ref(turn)).await;
        assert!(matches!(answer, Err(WorldError::Unavailable(_))), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_turn_is_rejected_by_a_server_that_accepts_no_writes_or_lacks_a_table() {
    let server = start_server();
    let test_schema = schema_on(&server);
    let world = test_schema.open_real_time().await;
    start(&world, RUN).await;
    join(&world, SESSION, NO_EXPIRY).await;
    let claimed = claim(&world, SESSION).await.remove(0);
    let turn = Turn {
        events: vec![completed()],
        ..one_event_turn(RUN, claimed.turn, claimed.seq, 9, Then::End(Status::Completed))
    };
    let client = test_schema.connect().await;
    let rename = |from: &str, to: &str| format!("ALTER TABLE {}.{from} RENAME TO {to}", test_schema.schema);
    // A missing table is an error for good, but if it returns, the turn can be committed.
    client.batch_execute(&rename("turns", "away")).await.unwrap();
    for _ in 0..25 {
        let answer = world.commit(SESSION, std::slice::from_ref(&turn)).await;
        assert!(matches!(answer, Err(WorldError::Gone(_))), "{answer:?}");
    }
    client.batch_execute(&rename("away", "turns")).await.unwrap();
    client.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    wait_until("no writes are accepted", async || {
        world.start(vec![new_start(RunId::from_bits(2))]).await.is_err()
    })
    .await;
    always_unavailable(&world, &turn).await;
    client.batch_execute("ALTER SYSTEM SET default_transaction_read_only = off").await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    wait_until("the turn is written", async || {
        matches!(world.commit(SESSION, std::slice::from_ref(&turn)).await.as_deref(), Ok([Ok(_)]))
    })
    .await;
    assert_eq!(world.run(RUN).await.unwrap().status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_free_connection_is_waited_for() {
    let server = Postgres::builder()
        .quick()
        .setting("max_connections", "3")
        .setting("superuser_reserved_connections", "0")
        .setting("max_wal_senders", "0")
        .start()
        .unwrap();
    let test_schema = schema_on(&server);
    let others = [test_schema.connect().await, test_schema.connect().await, test_schema.connect().await];
    let error = open_error(&test_schema.url()).await;
    assert!(matches!(&error, WorldError::Unavailable(why) if why.contains("max_connections")), "{error}");
    let url = test_schema.url();
    let opening = tokio::spawn(async move { open(&url).await });
    drop(others);
    let world = opening.await.unwrap().unwrap();
    // The world may have four connections, and works with fewer.
    let starts = (1..20).map(|number| world.start(vec![new_start(RunId::from_bits(number))]));
    for answer in futures_util::future::join_all(starts).await {
        assert!(!matches!(answer, Err(ref error) if !error.is_transient()), "{answer:?}");
    }
    wait_until("the world works", async || world.start(vec![new_start(RUN)]).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_takes_too_long_is_cancelled_at_the_server_and_can_be_repeated() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = open(&format!("{}&timeout=1", test_schema.url())).await.unwrap();
    let other = test_schema.connect().await;
    other.batch_execute(&format!("BEGIN; LOCK TABLE {}.runs", test_schema.schema)).await.unwrap();
    let late = world.start(vec![new_start(RUN)]).await.unwrap_err();
    assert!(matches!(&late, WorldError::Unavailable(why) if why.contains("raise `timeout`")), "{late}");
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass";
    let table = format!("{}.runs", test_schema.schema);
    let left = other.query_one(waiting, &[&table]).await.unwrap().get::<_, i64>(0);
    assert_eq!(left, 0, "the statement does not continue at the server");
    other.batch_execute("ROLLBACK").await.unwrap();
    start(&world, RUN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_server_is_an_error_when_opening_and_is_waited_for_later() {
    let server = start_server();
    let test_schema = schema_on(&server);
    let world = test_schema.open_real_time().await;
    start(&world, RUN).await;
    let client = test_schema.connect().await;
    let set = async |value: &str| {
        client
            .batch_execute(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"))
            .await
            .unwrap();
        client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    };
    // `ALTER SYSTEM` works on a read-only server.
    set("on").await;
    wait_until("no writes are accepted", async || {
        match world.start(vec![new_start(RunId::from_bits(2))]).await {
            Ok(_) => false,
            Err(WorldError::Unavailable(why)) => {
                assert!(why.contains("connect to the primary server"), "{why}");
                true
            }
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    let error = open_error(&test_schema.url()).await;
    assert!(
        matches!(&error, WorldError::Conflict(why) if why.contains("default_transaction_read_only")),
        "{error}"
    );
    // A worker tries again and again, each time with another session.
    for session in 1..=3 {
        try_join(&world, SessionId::from_bits(session), NO_EXPIRY).await.unwrap_err();
    }
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(client.query_one(locks, &[]).await.unwrap().get::<_, i64>(0), 0);
    set("off").await;
    wait_until("the world works", async || world.start(vec![new_start(RunId::from_bits(3))]).await.is_ok())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_refused_until_it_becomes_the_primary() {
    let primary = start_server();
    let test_schema = schema_on(&primary);
    start(&test_schema.open_real_time().await, RUN).await;
    // A new server, whose files are replaced by a copy of the primary's.
    let mut replica = start_server();
    replica.stop().unwrap();
    let data = replica.folder().join("data");
    let owner = std::fs::metadata(&data).unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    let mut backup = Command::new(primary.programs().join("pg_basebackup"));
    backup
        .arg("-R")
        .arg("--checkpoint=fast")
        .arg("--no-sync")
        .arg("-D")
        .arg(&data)
        .arg("-d")
        .arg(primary.url());
    backup.current_dir("/").gid(owner.gid()).uid(owner.uid());
    let copied = backup.output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    replica.start().unwrap();
    let (one, two) = (primary.address(), replica.address());
    let copy = Address { password: one.password.clone(), ..two.clone() }.to_string();
    let there = TestSchema { schema: test_schema.schema.clone(), ..TestSchema::on(&copy, TestClock::new()) };
    let error = open_error(&there.url()).await;
    assert!(matches!(&error, WorldError::Conflict(why) if why.contains("replica")), "{error}");
    // Given both servers, the world finds the one that accepts writes.
    let both = format!(
        "postgres://{}:{}@{}:{},{}:{}/{}?schema={}&target_session_attrs=read-write",
        one.user, one.password, two.host, two.port, one.host, one.port, one.database, test_schema.schema
    );
    let world = open(&both).await.unwrap();
    assert_eq!(world.run(RUN).await.unwrap().id, RUN);
    drop(primary);
    there.connect().await.query("SELECT pg_promote()", &[]).await.unwrap();
    wait_until("the new primary is found", async || {
        world.start(vec![new_start(RunId::from_bits(2))]).await.is_ok()
    })
    .await;
}

/// A small file system, which is unmounted when dropped.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// Mounts one for the user of the server. Returns why if that is not possible.
    fn mount(at: &Path, owner: &std::fs::Metadata) -> Result<Self, String> {
        let options = format!("size=6m,uid={},gid={},mode=700", owner.uid(), owner.gid());
        std::fs::create_dir(at).map_err(|error| error.to_string())?;
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output();
        let mounted = mount.map_err(|error| error.to_string())?;
        if mounted.status.success() {
            return Ok(Self(at.to_owned()));
        }
        Err(String::from_utf8_lossy(&mounted.stderr).trim().to_owned())
    }

    fn grow(&self) {
        let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&self.0).status();
        assert!(grown.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_server_loses_no_data_and_work_resumes_when_there_is_space() {
    let server = start_server();
    let test_schema = schema_on(&server);
    let path = server.folder().join("disk");
    let disk = match SmallDisk::mount(&path, &std::fs::metadata(server.folder()).unwrap()) {
        Ok(disk) => disk,
        Err(why) => {
            return println!("skipped: no small file system can be mounted ({why}); run the test as root");
        }
    };
    let client = test_schema.connect().await;
    client.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", path.display())).await.unwrap();
    let world = open(&format!("{}&options=-c%20default_tablespace=small", test_schema.url())).await.unwrap();
    join(&world, SESSION, NO_EXPIRY).await;
    start(&world, RUN).await;
    let claimed = claim(&world, SESSION).await.remove(0);
    let mut bits = 1;
    let mut start_another = async || {
        bits += 1;
        let mut start = new_start(RunId::from_bits(bits));
        // Data that cannot be compressed.
        let noise: String = (0..4_000_u64)
            .map(|i| format!("{:x}", (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ bits as u64)))
            .collect();
        start.input = Payload::from_json_text(format!("\"{noise}\""));
        world.start(vec![start]).await.map(|mut answers| answers.remove(0))
    };
    let mut started = 0;
    let full = loop {
        match start_another().await {
            Ok(answer) => answer.unwrap(),
            Err(error) => break error,
        };
        started += 1;
        assert!(started < 1_000, "the disk is not full");
    };
    assert!(matches!(&full, WorldError::Unavailable(why) if why.contains("no disk space left")), "{full}");
    assert_eq!(
        world.counts().await.unwrap().values().sum::<u64>(),
        started + 1,
        "all acknowledged starts are there"
    );
    // An output that does not fit into existing pages.
    let noise: String =
        (1..40_000_u64).map(|i| format!("{:x}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    let output = Payload::from_json_text(format!("\"{noise}\""));
    let turn = Turn {
        events: vec![Event::RunCompleted { output }],
        ..one_event_turn(RUN, claimed.turn, claimed.seq, 9, Then::End(Status::Completed))
    };
    always_unavailable(&world, &turn).await;
    disk.grow();
    commit(&world, SESSION, turn).await.unwrap();
    start_another().await.unwrap().unwrap();
    assert_eq!(world.counts().await.unwrap().values().sum::<u64>(), started + 2);
    println!("full after {started} starts");
    drop((world, client, server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_gives_up_a_server_that_accepts_connections_and_does_not_respond() {
    let server = start_server();
    let pid = server.pid().unwrap().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    let started_at = Instant::now();
    let error = open_error(&schema_on(&server).url()).await;
    signal("-CONT");
    assert!(matches!(&error, WorldError::Unavailable(why) if why.contains("has not responded")), "{error}");
    assert!(started_at.elapsed() < Duration::from_secs(20), "{:?}", started_at.elapsed());
    open(&schema_on(&server).url()).await.unwrap();
}

#[tokio::test]
#[ignore = "run by another test, with the environment variables of libpq"]
async fn opens_by_environment_variables_alone() {
    let schema = std::env::var("TEST_SCHEMA").unwrap();
    let world = open(&format!("postgres://?schema={schema}")).await.unwrap();
    start(&world, RUN).await;
}

#[tokio::test]
async fn missing_parts_of_the_url_come_from_the_environment_variables_of_libpq() {
    let test_schema = TestSchema::new(TestClock::new());
    let address: Address = throwaway::postgres::for_tests().parse().unwrap();
    let folder = std::env::temp_dir().join(format!("outlast-{}", test_schema.schema));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("pgpass");
    std::fs::write(&file, format!("*:*:*:{}:{}\n", address.user, address.password)).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).unwrap();
    for (number, (name, value)) in
        [("PGPASSWORD", address.password.as_str()), ("PGPASSFILE", file.to_str().unwrap())].iter().enumerate()
    {
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "opens_by_environment_variables_alone", "--ignored"])
            .env("PGHOST", &address.host)
            .env("PGPORT", address.port.to_string())
            .env("PGUSER", &address.user)
            .env("PGDATABASE", &address.database)
            .env("PGSSLMODE", "disable")
            .env("PGAPPNAME", "by variables")
            .env("PGCONNECT_TIMEOUT", "5")
            .env(name, value)
            .env("TEST_SCHEMA", format!("{}_{number}", test_schema.schema))
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        let sql = format!("SELECT count(*) FROM {}_{number}.runs", test_schema.schema);
        assert_eq!(test_schema.connect().await.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0), 1);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
