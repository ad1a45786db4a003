//! Naming a run.

use outlast::RunId;
use outlast_api::RunJson;

use super::support::Place;

#[tokio::test(flavor = "multi_thread")]
async fn all_names_of_a_run_mean_it() {
    let place = Place::new().await;
    place.call(&["start", "checkout", "1", "--wait"]).await.ok();
    let run: RunJson =
        place.call(&["start", "checkout", "2", "--key", "order-42", "--json"]).await.ok().json();
    let id = run.id.to_string();
    let suffix = &id[id.len() - 6..];
    let (shown, begin) = (format!("run_…{suffix}"), &id[..id.len() - 2]);
    for name in ["@last", "@last:checkout", "order-42", suffix, &shown, begin, &id, &suffix.to_lowercase()] {
        let found: RunJson = place.call(&["show", name, "--json"]).await.ok().json();
        assert_eq!(found.id, run.id, "{name}");
    }
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ambiguous_name_lists_its_candidates() {
    let place = Place::new().await;
    let first: RunJson = place.call(&["start", "checkout", "1", "--json"]).await.ok().json();
    let second: RunJson = place.call(&["start", "checkout", "2", "--json"]).await.ok().json();
    // Both ids begin with the same digits of their time.
    let (first, second): (RunId, RunId) = (first.id, second.id);
    let called = place.call(&["show", &first.to_string()[..8]]).await;
    assert_eq!(called.code, 2);
    for id in [first, second] {
        assert!(called.err.contains(&id.to_string()), "{called:?}");
    }
    assert!(called.err.contains("checkout v1"), "{called:?}");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_that_failed_last_has_a_name() {
    let place = Place::new().await;
    assert_eq!(place.call(&["show", "@failed"]).await.code, 3);
    assert_eq!(place.call(&["start", "checkout", "13", "--key", "bad", "--wait"]).await.code, 7);
    place.call(&["start", "checkout", "1", "--wait"]).await.ok();
    let found: RunJson = place.call(&["show", "@failed", "--json"]).await.ok().json();
    assert_eq!(found.key.as_deref(), Some("bad"));
    assert_eq!(place.call(&["show", "@first"]).await.code, 2);
    place.stop().await;
}
