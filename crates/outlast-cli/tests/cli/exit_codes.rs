//! Each documented exit code.

use std::time::Duration;

use super::support::{Place, call, program};

#[tokio::test(flavor = "multi_thread")]
async fn each_exit_code_is_produced() {
    let place = Place::new().await;
    // 0: done.
    assert_eq!(place.call(&["start", "checkout", "4200", "--wait"]).await.code, 0);
    // 1: failure. The file exists already.
    std::fs::write(place.folder.path().join("history.json"), "").unwrap();
    assert_eq!(place.call(&["run", "export", "@last", "--to", "history.json"]).await.code, 1);
    // 2: usage, configuration, input that is not JSON.
    assert_eq!(place.call(&["list", "--no-such-flag"]).await.code, 2);
    assert_eq!(place.call(&["start", "checkout", "not json"]).await.code, 2);
    assert_eq!(place.call_with(&["list"], &[("OUTLAST_FORMAT", "xml")]).await.code, 2);
    // 3: not found.
    assert_eq!(place.call(&["show", "order-1"]).await.code, 3);
    // 5: conflict. The key belongs to a run with another input, and an ended run takes no payload.
    place.call(&["start", "checkout", "1", "--key", "order-1", "--wait"]).await.ok();
    assert_eq!(place.call(&["start", "checkout", "2", "--key", "order-1"]).await.code, 5);
    assert_eq!(place.call(&["send", "order-1", "rating", "5"]).await.code, 5);
    // 6: timed out.
    place.call(&["start", "nap"]).await.ok();
    assert_eq!(place.call(&["run", "output", "@last", "--wait", "10ms"]).await.code, 6);
    assert_eq!(place.call(&["--timeout", "50ms", "run", "output", "@last", "--wait"]).await.code, 6);
    // 7: the awaited run did not complete.
    let failed = place.call(&["start", "checkout", "13", "--wait"]).await;
    assert_eq!(failed.code, 7);
    assert!(failed.err.contains("card declined"), "{failed:?}");
    // 8: world or server unavailable.
    assert_eq!(place.call(&["list", "--world", "sqlite:none.db"]).await.code, 8);
    assert_eq!(place.call(&["list", "--server", "http://127.0.0.1:1"]).await.code, 8);
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_command_exits_with_130() {
    let place = Place::new().await;
    place.call(&["start", "nap"]).await.ok();
    let mut command =
        program(place.folder.path(), &["watch", "@last"], &[("OUTLAST_WORLD", "sqlite:shop.db")]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // It has printed an event, so it handles signals.
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status =
        tokio::time::timeout(Duration::from_secs(20), tokio::task::spawn_blocking(move || child.wait()));
    assert_eq!(status.await.unwrap().unwrap().unwrap().code(), Some(130));
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_configuration_a_command_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".git")).unwrap();
    let called = call(folder.path(), &["list"], &[]).await;
    assert_eq!(called.code, 2);
    assert!(called.err.contains("no world is configured; give `--world sqlite:shop.db`"), "{called:?}");
}
