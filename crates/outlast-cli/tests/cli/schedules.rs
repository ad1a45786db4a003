//! Schedules on the command line.

use outlast_api::{FiringJson, ItemPage, ScheduleControlledJson, ScheduleJson, SchedulePreviewJson};

use super::support::{Place, call};

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_created_changed_controlled_and_ended() {
    let place = Place::new().await;
    let create = ["schedule", "create", "nightly", "-w", "checkout", "--cron", "0 3 * * *", "--input", "7"];
    let created = place.call(&create).await.ok().out;
    for part in ["nightly  starts checkout v1", "At 03:00, UTC", "overlap skip", "revision 1", "next"] {
        assert!(created.contains(part), "{part}: {created}");
    }
    assert_eq!(place.call(&create).await.code, 5, "it exists");
    let listed = place.call(&["schedule", "list"]).await.ok().out;
    assert!(listed.contains("nightly") && listed.contains("At 03:00, UTC"), "{listed}");
    let update = ["schedule", "update", "nightly", "--every", "6h", "--overlap", "queue", "--json"];
    let updated: ScheduleControlledJson = place.call(&update).await.ok().json();
    assert_eq!(updated.schedule.definition.every.as_deref(), Some("6h"));
    assert_eq!(updated.schedule.definition.input.unwrap().get(), "7", "it stays as it is");
    assert_eq!(
        place.call(&["schedule", "update", "nightly", "--every", "7h", "--revision", "1"]).await.code,
        5
    );
    place.call(&["schedule", "pause", "--all", "--reason", "holidays"]).await.ok();
    let paused: ItemPage<ScheduleJson> =
        place.call(&["schedule", "list", "--paused", "--json"]).await.ok().json();
    assert_eq!(paused.items[0].paused.as_ref().unwrap().reason, "holidays");
    place.call(&["schedule", "resume", "nightly"]).await.ok();
    let fired = place.call(&["schedule", "trigger", "nightly"]).await.ok();
    place.call(&["run", "output", fired.out.trim(), "--wait"]).await.ok();
    let firings: ItemPage<FiringJson> =
        place.call(&["schedule", "firings", "nightly", "--json"]).await.ok().json();
    assert_eq!(firings.items[0].run.id.to_string(), fired.out.trim());
    let backfill = ["schedule", "backfill", "nightly", "--from", "1d"];
    assert!(place.call(&[&backfill[..], &["--dry-run"]].concat()).await.ok().out.contains("4 instants"));
    assert_eq!(place.call(&backfill).await.code, 2, "nobody can confirm it");
    place.call(&[&backfill[..], &["--yes"]].concat()).await.ok();
    assert_eq!(place.call(&["schedule", "delete", "nightly"]).await.code, 2, "nobody can confirm it");
    place.call(&["schedule", "delete", "nightly", "--yes"]).await.ok();
    assert_eq!(place.call(&["schedule", "show", "nightly"]).await.code, 3);
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_explained_without_a_world() {
    let folder = tempfile::tempdir().unwrap();
    let preview = ["schedule", "preview", "30 2 * * MON", "--zone", "Europe/Berlin", "-n", "3"];
    let shown = call(folder.path(), &preview, &[]).await.ok().out;
    assert!(
        shown.starts_with("At 02:30, only on Monday, Europe/Berlin\n") || shown.contains("Monday"),
        "{shown}"
    );
    assert_eq!(shown.lines().filter(|line| line.starts_with("Mon ")).count(), 3, "{shown}");
    let json: SchedulePreviewJson =
        call(folder.path(), &[&preview[..], &["--json"]].concat(), &[]).await.ok().json();
    assert_eq!(json.instants.len(), 3);
    assert_eq!(call(folder.path(), &["schedule", "preview", "61 * * * *"], &[]).await.code, 2);
}
