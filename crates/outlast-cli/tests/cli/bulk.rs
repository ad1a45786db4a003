//! Actions on many runs.

use outlast::Status;
use outlast_api::BulkPreview;

use super::support::Place;

async fn place_with_naps() -> Place {
    let place = Place::new().await;
    for index in 0..3 {
        let run = place.client.start_json("nap", 1, "null").key(format!("nap-{index}")).await.unwrap();
        place.suspended(run.id()).await;
    }
    let other = place.client.start_json("survey", 1, "null").await.unwrap();
    place.suspended(other.id()).await;
    place
}

async fn open(place: &Place) -> usize {
    place.client.newest(&[Status::Pending, Status::Running, Status::Waiting], 100).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_and_without_yes_nothing_is_changed() {
    let place = place_with_naps().await;
    let called = place.call(&["run", "cancel", "--workflow", "nap"]).await;
    assert_eq!(called.code, 2);
    assert!(
        called.err.contains("cancel 3 runs of nap: 3 waiting") && called.err.contains("--yes"),
        "{called:?}"
    );
    assert_eq!(open(&place).await, 4);
    assert_eq!(place.call(&["run", "cancel"]).await.code, 2, "neither runs nor filters");
    assert_eq!(place.call(&["run", "cancel", "@last", "-w", "nap"]).await.code, 2, "runs and filters");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing_and_says_what_it_would() {
    let place = place_with_naps().await;
    let preview: BulkPreview =
        place.call(&["run", "terminate", "-w", "nap", "--dry-run", "--json"]).await.ok().json();
    assert_eq!((preview.matched, preview.by_status["waiting"]), (3, 3));
    assert_eq!(open(&place).await, 4);
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_action_concerns_only_the_selected_runs() {
    let place = place_with_naps().await;
    assert_eq!(place.call(&["run", "terminate", "-w", "nap", "--yes", "--at-most", "2"]).await.code, 5);
    assert_eq!(open(&place).await, 4);
    let called = place.call(&["run", "terminate", "-w", "nap", "--yes", "--at-most", "3"]).await.ok();
    assert!(called.err.contains("terminate: 3 done, 0 without effect, 0 refused"), "{called:?}");
    // The worker that holds them ends them.
    for key in ["nap-0", "nap-1", "nap-2"] {
        assert_eq!(place.call(&["run", "output", key, "--wait"]).await.code, 7);
    }
    assert_eq!(open(&place).await, 1);
    place.call(&["run", "delete", "-w", "nap", "--yes"]).await.ok();
    assert!(place.client.newest(&[Status::Cancelled], 10).await.unwrap().is_empty());
    place.stop().await;
}
