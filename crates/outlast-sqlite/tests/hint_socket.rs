//! What another process does is noticed at once, by a doorbell: here the slow poll behind it is off.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{Noon, Place, block_on, new_start};
use outlast_core::{
    Headers, Join, MessageBody, MessageId, NewMessage, Outcome, Payload, RunId, SessionId, SuspectRoom,
    Timestamp, World,
};
use outlast_sqlite::{SqliteOptions, SqliteWorld};

/// How long a test waits for what must come. Its end is a failed test, not a measurement.
const PATIENCE: Duration = Duration::from_secs(20);

fn open(path: &Path) -> Arc<SqliteWorld> {
    open_with(path, "poll=off")
}

fn open_with(path: &Path, query: &str) -> Arc<SqliteWorld> {
    let url = format!("sqlite:{}?{query}", path.display());
    Arc::new(SqliteWorld::open(&url, SqliteOptions::new(Arc::new(Noon))).unwrap())
}

/// Listens for a change since now, in a thread of its own.
fn listen(world: &Arc<SqliteWorld>) -> Receiver<()> {
    let epoch = epoch(world);
    let (heard, hears) = channel();
    let world = world.clone();
    std::thread::spawn(move || {
        block_on(world.changed(epoch, Timestamp::NEVER));
        let _ = heard.send(());
    });
    hears
}

/// How often the world's change signal has fired, as a claim would say.
fn epoch(world: &SqliteWorld) -> u64 {
    static SESSIONS: AtomicU64 = AtomicU64::new(900);
    let session = SessionId::from_bits(SESSIONS.fetch_add(1, Ordering::Relaxed).into());
    let join = Join {
        session,
        host: "here".into(),
        pid: 1,
        build: "b".into(),
        code: Arc::new([]),
        queues: outlast_core::queue::default_queues(),
        time: Duration::from_secs(10),
        rules: outlast_core::event::RULES,
        format: outlast_core::event::FORMAT,
    };
    block_on(world.join(join)).unwrap();
    let request = outlast_core::ClaimRequest {
        limit: 0,
        code: Arc::new([]),
        queues: outlast_core::queue::default_queues(),
        build: "b".into(),
        format: outlast_core::event::FORMAT,
        suspects: SuspectRoom::Nothing,
        ends_overdue_from: Timestamp::NEVER,
    };
    block_on(world.claim(session, request)).unwrap().epoch
}

fn start(world: &SqliteWorld, run: u128) {
    block_on(world.start(vec![new_start(RunId::from_bits(run))])).unwrap().remove(0).unwrap();
}

fn send(world: &SqliteWorld, run: u128, body: MessageBody) {
    let id = MessageId::from_bits(run + 1_000);
    let message = NewMessage { id, run: RunId::from_bits(run), body, headers: Headers::new() };
    block_on(world.send(vec![message])).unwrap().remove(0).unwrap();
}

fn cancel() -> MessageBody {
    MessageBody::Cancel { reason: "enough".into() }
}

#[track_caller]
fn must_hear(hears: &Receiver<()>) {
    hears.recv_timeout(PATIENCE).expect("the doorbell rang in vain");
}

/// Looks again and again until it is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..PATIENCE.as_millis() / 5 {
        if is_so() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("waited in vain until {what}");
}

fn bells(path: &Path) -> Vec<PathBuf> {
    let mut folder = path.as_os_str().to_owned();
    folder.push("-bells");
    std::fs::read_dir(folder)
        .map_or_else(|_| Vec::new(), |files| files.map(|file| file.unwrap().path()).collect())
}

#[test]
fn a_start_a_message_and_a_cancel_by_another_process_are_noticed_within_milliseconds() {
    let place = Place::new();
    let (here, there) = (open(&place.path()), open(&place.path()));
    let mut quickest = [Duration::MAX; 3];
    // The quickest of some: others use this machine too.
    for round in 1..=10 {
        let changes: [&dyn Fn(); 3] =
            [&|| start(&there, round), &|| send(&there, round, MessageBody::Wake { op: None }), &|| {
                let id = MessageId::from_bits(round + 2_000);
                let run = RunId::from_bits(round);
                let message = NewMessage { id, run, body: cancel(), headers: Headers::new() };
                block_on(there.send(vec![message])).unwrap().remove(0).unwrap();
            }];
        for (change, quickest) in changes.iter().zip(&mut quickest) {
            let hears = listen(&here);
            #[allow(clippy::disallowed_methods, reason = "a measurement")]
            let began = Instant::now();
            change();
            must_hear(&hears);
            *quickest = began.elapsed().min(*quickest);
        }
    }
    println!("start, message, cancel: {quickest:?}");
    assert!(quickest.iter().all(|time| *time < Duration::from_millis(50)), "{quickest:?}");
}

#[test]
fn the_end_of_a_run_in_another_process_is_told_to_those_who_wait() {
    let place = Place::new();
    let (here, there) = (open(&place.path()), open(&place.path()));
    start(&there, 1);
    let (ended, ends) = channel();
    let waiting = here.clone();
    std::thread::spawn(move || {
        let _ = ended.send(block_on(waiting.ended(RunId::from_bits(1), Timestamp::NEVER)));
    });
    common::end_run(&there, RunId::from_bits(1));
    let ended = ends.recv_timeout(PATIENCE).expect("the end was not told").unwrap().unwrap();
    assert_eq!(ended.outcome, Outcome::Completed(Payload::null()));
}

#[test]
fn every_one_of_many_processes_is_told() {
    let place = Place::new();
    let worlds: Vec<_> = (0..12).map(|_| open(&place.path())).collect();
    let listeners: Vec<_> = worlds.iter().map(listen).collect();
    start(&worlds[5], 1);
    for hears in &listeners {
        must_hear(hears);
    }
}

#[test]
fn the_doorbell_of_a_dead_process_is_cleaned_away() {
    let place = Place::new();
    drop(open(&place.path()));
    let folder = place.path().with_file_name("world.db-bells");
    std::fs::create_dir_all(&folder).unwrap();
    let stale = folder.join("0123456789abcdef");
    drop(UnixDatagram::bind(&stale).unwrap());
    assert!(stale.exists(), "a socket's file outlives it");
    let world = open(&place.path());
    assert!(!stale.exists());
    assert_eq!(bells(&place.path()).len(), 1);

    let other = open(&place.path());
    let hears = listen(&other);
    start(&world, 1);
    must_hear(&hears);
}

#[test]
fn who_closes_the_world_takes_its_doorbell_along() {
    let place = Place::new();
    let (first, second) = (open(&place.path()), open(&place.path()));
    assert_eq!(bells(&place.path()).len(), 2);
    drop(first);
    assert_eq!(bells(&place.path()).len(), 1);
    start(&second, 1);
    drop(second);
    assert!(!place.path().with_file_name("world.db-bells").exists());
}

#[test]
fn a_path_too_long_for_a_socket_has_its_doorbell_elsewhere() {
    let place = Place::new();
    let folder = place.path().with_file_name("a-rather-long-name".repeat(8));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("world.db");
    let (here, there) = (open(&path), open(&path));
    let hints = here.describe().hints;
    assert!(hints.starts_with("at once, by the doorbell `") && hints.contains("outlast-"), "{hints}");
    let hears = listen(&here);
    start(&there, 1);
    must_hear(&hears);
}

#[test]
fn where_no_doorbell_can_be_made_polling_does_it_and_the_world_says_so() {
    let place = Place::new();
    drop(open(&place.path()));
    let blocked = place.path().with_file_name("world.db-bells");
    std::fs::write(&blocked, "in the way").unwrap();
    let file = place.path().metadata().unwrap();
    let spare = std::env::temp_dir().join(format!("outlast-{:x}-{:x}", file.dev(), file.ino()));
    std::fs::write(&spare, "in the way").unwrap();
    let (here, there) = (open_with(&place.path(), ""), open_with(&place.path(), ""));
    std::fs::remove_file(spare).unwrap();
    let hints = here.describe().hints;
    assert!(hints.starts_with("within 500ms, by polling, since no doorbell can be made"), "{hints}");
    assert!(hints.contains("world.db-bells"), "{hints}");
    let hears = listen(&here);
    start(&there, 1);
    must_hear(&hears);
}

#[test]
fn a_world_says_how_it_hears_of_others() {
    let place = Place::new();
    assert!(open(&place.path()).describe().hints.starts_with("at once, by the doorbell `"));
    let polling = open_with(&place.path(), "doorbell=off").describe().hints;
    assert_eq!(polling, "within 500ms, by polling, as the URL asks");
}

#[test]
fn worlds_in_a_folder_that_is_moved_still_hear_of_each_other() {
    let place = Place::new();
    let (old, new) = (place.path().with_file_name("old"), place.path().with_file_name("new"));
    std::fs::create_dir(&old).unwrap();
    let before = open(&old.join("world.db"));
    std::fs::rename(&old, &new).unwrap();
    let after = open(&new.join("world.db"));
    let hears = listen(&before);
    start(&after, 1);
    must_hear(&hears);
    let hears = listen(&after);
    start(&before, 2);
    must_hear(&hears);
}

#[test]
fn a_doorbell_that_was_removed_is_hung_again() {
    let place = Place::new();
    let here = open_with(&place.path(), "");
    let before = bells(&place.path());
    std::fs::remove_dir_all(place.path().with_file_name("world.db-bells")).unwrap();
    until("there is another", || bells(&place.path()).len() == 1);
    assert_ne!(bells(&place.path()), before);
    let there = open(&place.path());
    let hears = listen(&here);
    start(&there, 1);
    must_hear(&hears);
}

#[test]
fn a_ring_during_a_flood_is_not_lost() {
    let place = Place::new();
    let (here, there) = (open(&place.path()), open(&place.path()));
    // More than a socket's queue takes.
    for run in 1..=200 {
        start(&there, run);
    }
    let hears = listen(&here);
    start(&there, 201);
    must_hear(&hears);
}

#[test]
fn lock_files_of_joins_that_were_cut_short_are_swept_away() {
    let place = Place::new();
    let world = place.open();
    let folder = place.path().with_file_name("world.db-sessions");
    std::fs::create_dir_all(&folder).unwrap();
    let (left, held) = (SessionId::from_bits(5), SessionId::from_bits(6));
    std::fs::write(folder.join(left.to_string()), "").unwrap();
    let joining = std::fs::File::create(folder.join(held.to_string())).unwrap();
    joining.lock().unwrap();
    std::fs::write(folder.join("readme"), "not ours").unwrap();
    epoch(&world);
    let has = |name: &str| folder.join(name).exists();
    assert!(!has(&left.to_string()), "nobody locks it and no session owns it");
    assert!(has(&held.to_string()), "someone is about to join with it");
    assert!(has("readme"), "it is no lock of ours");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3, "with the lock of who joined just now");
}

#[test]
fn a_process_without_a_doorbell_rings_those_of_others() {
    let place = Place::new();
    let (here, mute) = (open(&place.path()), open_with(&place.path(), "doorbell=off"));
    let hears = listen(&here);
    start(&mute, 1);
    must_hear(&hears);
}
