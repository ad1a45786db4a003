//! Commands that read runs, for people.

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
