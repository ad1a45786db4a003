//! Commands that read runs, for people.

use outlast_api::FailureListJson;

use super::support::Place;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_shown_with_its_reason_and_the_next_command() {
    let place = Place::new().await;
    let run =
        place.client.start_json("survey", 1, "null").key("survey-1").tag("team", "sales").await.unwrap();
    place.suspended(run.id()).await;
    let shown = place.call(&["show", "survey-1"]).await.ok().out;
    let id = run.id();
    assert!(shown.starts_with(&format!("{id}  survey v1  ⧗ waiting\n")), "{shown}");
    for part in ["key survey-1", "queue default", "tags team=sales", "hook rating", "why ", "outlast send"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let listed = place.call(&["list", "--open", "-t", "team=sales"]).await.ok().out;
    assert!(listed.contains("survey-1") && listed.contains("hook rating"), "{listed}");
    assert!(place.call(&["explain", "survey-1"]).await.ok().out.contains("rating"));
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_run_is_followed_to_its_end() {
    let place = Place::new().await;
    let run = place.client.start_json("survey", 1, "null").await.unwrap();
    place.suspended(run.id()).await;
    let (watched, sent) =
        tokio::join!(place.call(&["watch", "@last"]), place.call(&["send", "@last", "rating", "4"]));
    sent.ok();
    let watched = watched.ok().out;
    assert!(watched.contains("run_started") && watched.trim_end().ends_with("✓ completed"), "{watched}");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_controlled_by_name() {
    let place = Place::new().await;
    let run = place.client.start_json("nap", 1, "null").key("nap-1").await.unwrap();
    place.suspended(run.id()).await;
    place.call(&["run", "pause", "nap-1", "--reason", "test"]).await.ok();
    assert!(place.call(&["list"]).await.ok().out.contains("paused"));
    place.call(&["run", "resume", "nap-1"]).await.ok();
    place.call(&["run", "wake", "nap-1"]).await.ok();
    place.call(&["run", "output", "nap-1", "--wait"]).await.ok();
    place.call(&["run", "quarantine", "nap-1"]).await.ok();
    assert_eq!(place.call(&["run", "delete", "nap-1"]).await.code, 5, "it is protected");
    place.call(&["run", "release", "nap-1"]).await.ok();
    let restarted = place.call(&["run", "restart", "nap-1"]).await.ok().out;
    assert_ne!(restarted.trim(), run.id().to_string());
    place.call(&["run", "delete", &run.id().to_string()]).await.ok();
    assert_eq!(place.call(&["show", &run.id().to_string()]).await.code, 3);
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_are_started_from_a_file() {
    let place = Place::new().await;
    let lines =
        "{\"workflow\":\"checkout\",\"input\":1,\"key\":\"a\"}\n\n{\"workflow\":\"checkout\",\"input\":2}\n";
    std::fs::write(place.folder.path().join("starts.jsonl"), lines).unwrap();
    let called = place.call(&["start", "--batch", "starts.jsonl"]).await.ok();
    assert_eq!(called.out.lines().count(), 2);
    assert!(called.err.contains("2 started, 0 existed already, 0 refused"), "{called:?}");
    let again = place.call(&["start", "--batch", "starts.jsonl"]).await.ok();
    assert!(again.err.contains("1 started, 1 existed already"), "{again:?}");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_failures_workers_and_workflows_are_shown() {
    let place = Place::new().await;
    let run = place.client.start_json("survey", 1, "null").key("survey-1").await.unwrap();
    place.suspended(run.id()).await;
    let hooks = place.call(&["hook", "list", "--name", "rating"]).await.ok().out;
    assert!(hooks.contains("rating") && hooks.contains("survey-1"), "{hooks}");
    assert!(place.call(&["hook", "list", "--name", "other"]).await.ok().err.contains("no run waits"));
    for _ in 0..2 {
        assert_eq!(place.call(&["start", "checkout", "13", "--wait"]).await.code, 7);
    }
    let failures: FailureListJson = place.call(&["failure", "list", "--json"]).await.ok().json();
    assert_eq!((failures.items.len(), failures.items[0].count), (1, 2));
    let listed = place.call(&["failure", "list"]).await.ok().out;
    assert!(listed.contains("card declined") && listed.contains("charge"), "{listed}");
    let shown = place.call(&["failure", "show", &failures.items[0].fingerprint]).await.ok().out;
    assert_eq!(shown.matches("✕ failed").count(), 2, "{shown}");
    assert_eq!(place.call(&["failure", "show", "0000000000000001"]).await.code, 3);
    let worker = place.client.workers().await.unwrap().remove(0);
    let shown = place.call(&["worker", "show", &worker.session.to_string()]).await.ok().out;
    assert!(shown.contains("queues     default") && shown.contains("checkout v1"), "{shown}");
    assert_eq!(place.call(&["worker", "show", "nobody:1"]).await.code, 3);
    let shown = place.call(&["workflow", "show", "checkout"]).await.ok().out;
    assert!(
        shown.contains("versions  v1") && shown.contains("ended     newest 2: 0.0 % completed"),
        "{shown}"
    );
    place.client.start_json("nap", 1, "null").queue("gpu").await.unwrap();
    let listed = place.call(&["queue", "list"]).await.ok().out;
    assert!(listed.contains("gpu") && listed.contains("nobody serves this queue"), "{listed}");
    let shown = place.call(&["queue", "show", "gpu"]).await.ok().out;
    assert!(shown.contains("ready     1, the oldest") && shown.contains("nobody serves"), "{shown}");
    assert_eq!(place.call(&["queue", "show", "none"]).await.code, 3);
    assert_eq!(place.call(&["workflow", "show", "other"]).await.code, 3);
    place.stop().await;
}
