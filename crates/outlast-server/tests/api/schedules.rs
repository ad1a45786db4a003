//! Schedules over HTTP.

use axum::body::Body;
use axum::http::{Method, Request};
use outlast::prelude::*;
use outlast_api::{FiringJson, ItemPage, ProblemCode, ScheduleControlledJson, ScheduleJson};
use outlast_server::{Config, router};
use serde_json::{Value, json};

use crate::common::{Answer, Api, request, send_to};

fn nightly() -> Value {
    json!({
        "id": "nightly", "cron": "0 3 * * MON-FRI", "zone": "Europe/Berlin", "workflow": "checkout",
        "input": 1970670598291982290_u64, "tags": { "team": "sales" }, "overlap": "queue", "catch_up": "all",
        "catch_up_limit": 3, "jitter": "30s", "deadline": "2h",
    })
}

fn put(id: &str, body: &Value, tag: Option<&str>) -> Request<Body> {
    let mut request = request(Method::PUT, &format!("/api/schedules/{id}"), Some(body.to_string()));
    if let Some(tag) = tag {
        request.headers_mut().insert("if-match", tag.parse().unwrap());
    }
    request
}

fn schedule(answer: &Answer) -> ScheduleJson {
    serde_json::from_str(&answer.text).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

#[tokio::test]
async fn a_schedule_is_created_shown_and_listed() {
    let api = Api::local().await;
    let created = api.post("/api/schedules", nightly()).await.expect(201);
    assert_eq!(created.header("location"), "/api/schedules/nightly");
    assert_eq!(created.header("etag"), "\"1\"");
    let shown = api.get("/api/schedules/nightly").await.expect(200);
    assert_eq!(shown.header("etag"), "\"1\"");
    let found = schedule(&shown);
    assert_eq!(found.next.len(), 5);
    assert_eq!(found.description, "At 03:00, on Monday to Friday, Europe/Berlin");
    assert_eq!(found.definition.input.as_ref().unwrap().get(), "1970670598291982290");
    assert_eq!(shown.json()["definition"], {
        let mut expected = nightly();
        for (name, value) in [("version", json!(1)), ("queue", json!("default")), ("priority", json!(0))] {
            expected[name] = value;
        }
        expected["headers"] = json!({ "actor": "local" });
        expected
    });
    let listed: ItemPage<ScheduleJson> =
        serde_json::from_str(&api.get("/api/schedules?workflow=checkout&paused=false").await.text).unwrap();
    assert_eq!(listed.items[0].id, "nightly");
    assert_eq!(api.get("/api/schedules?paused=true").await.json()["items"], json!([]));
    api.post("/api/schedules", nightly()).await.expect(409).refused(ProblemCode::Conflict);
    api.get("/api/schedules/other").await.refused(ProblemCode::NotFound);
    api.stop().await;
}

#[tokio::test]
async fn a_schedule_is_replaced_only_in_the_revision_that_the_caller_has_seen() {
    let api = Api::local().await;
    api.post("/api/schedules", nightly()).await.expect(201);
    let mut changed = nightly();
    changed["cron"] = "0 4 * * *".into();
    api.send(put("nightly", &changed, None)).await.expect(428).refused(ProblemCode::PreconditionRequired);
    let replaced = api.send(put("nightly", &changed, Some("\"1\""))).await.expect(200);
    assert_eq!((replaced.header("etag"), &replaced.json()["did"]), ("\"2\"", &json!("requested")));
    assert_eq!(replaced.json()["schedule"]["definition"]["cron"], "0 4 * * *");
    changed["cron"] = "0 5 * * *".into();
    let stale =
        api.send(put("nightly", &changed, Some("\"1\""))).await.expect(412).refused(ProblemCode::Stale);
    assert_eq!(stale.etag.as_deref(), Some("\"2\""));
    assert_eq!(schedule(&api.get("/api/schedules/nightly").await).definition.cron.unwrap(), "0 4 * * *");
    api.send(put("nightly", &changed, Some("*"))).await.expect(200);
    let again = api.send(put("nightly", &changed, Some("*"))).await.expect(200);
    assert_eq!((&again.json()["did"], again.header("etag")), (&json!("already"), "\"3\""));
    changed["id"] = "other".into();
    api.send(put("nightly", &changed, Some("*"))).await.refused(ProblemCode::InvalidRequest);
    api.send(put("missing", &nightly(), Some("*"))).await.refused(ProblemCode::NotFound);
    api.stop().await;
}

#[tokio::test]
async fn a_schedule_is_controlled() {
    let api = Api::local().await;
    let every = json!({ "id": "poll", "every": "1h", "workflow": "checkout", "input": 7 });
    api.post("/api/schedules", every).await.expect(201);
    let act = async |action: &str, body: Value| -> ScheduleControlledJson {
        let answer = api.post(&format!("/api/schedules/poll/{action}"), body).await.expect(200);
        serde_json::from_str(&answer.text).unwrap()
    };
    let did = |controlled: &ScheduleControlledJson| serde_json::to_value(controlled.did).unwrap();
    let paused = act("pause", json!({ "reason": "holidays" })).await;
    assert_eq!((did(&paused), &*paused.schedule.paused.unwrap().reason), (json!("requested"), "holidays"));
    assert_eq!(did(&act("pause", json!({})).await), "already");
    assert_eq!(did(&act("resume", json!({})).await), "requested");
    assert_eq!(did(&act("resume", json!({})).await), "nothing");
    let triggered = act("trigger", json!({})).await;
    assert_eq!(did(&triggered), "requested");
    api.output(&triggered.schedule.last.unwrap().run.to_string()).await;
    let firings = api.get("/api/schedules/poll/firings").await.expect(200);
    let firings: ItemPage<FiringJson> = serde_json::from_str(&firings.text).unwrap();
    assert!(firings.items[0].triggered && firings.items[0].scheduled_at.is_some());
    assert_eq!(firings.items[0].run.tags["outlast:schedule"], "poll");
    let range = json!({ "from": "2026-01-01T00:00:00Z", "to": "2026-01-01T03:00:00Z", "dry_run": true });
    let counted = api.post("/api/schedules/poll/backfill", range.clone()).await.expect(200).json();
    assert_eq!(
        (&counted["instants"], &counted["did"], &counted["more"]),
        (&json!(3), &json!("nothing"), &json!(false))
    );
    let future = json!({ "from": "2026-01-01T00:00:00Z", "to": "2999-01-01T00:00:00Z" });
    api.post("/api/schedules/poll/backfill", future).await.refused(ProblemCode::InvalidRequest);
    let stale = request(Method::DELETE, "/api/schedules/poll", None);
    let mut stale = stale;
    stale.headers_mut().insert("if-match", "\"99\"".parse().unwrap());
    api.send(stale).await.refused(ProblemCode::Stale);
    api.send(request(Method::DELETE, "/api/schedules/poll", None)).await.expect(204);
    api.get("/api/schedules/poll").await.refused(ProblemCode::NotFound);
    api.stop().await;
}

#[tokio::test]
async fn many_schedules_are_paused_and_resumed_together() {
    let api = Api::local().await;
    for id in ["a", "b"] {
        let every = json!({ "id": id, "every": "1h", "workflow": "checkout", "input": 7 });
        api.post("/api/schedules", every).await.expect(201);
    }
    let paused =
        api.post("/api/schedules/pause", json!({ "all": true, "reason": "audit" })).await.expect(200);
    assert_eq!(paused.json()["results"].as_array().unwrap().len(), 2);
    assert_eq!(api.get("/api/schedules?paused=true").await.json()["items"].as_array().unwrap().len(), 2);
    let resumed =
        api.post("/api/schedules/resume", json!({ "ids": ["a", "missing"] })).await.expect(200).json();
    assert_eq!(resumed["results"][0]["did"], "requested");
    assert_eq!(resumed["results"][1]["problem"]["code"], "not_found");
    for wrong in [json!({}), json!({ "all": true, "ids": ["a"] })] {
        api.post("/api/schedules/pause", wrong).await.refused(ProblemCode::InvalidRequest);
    }
    api.stop().await;
}

#[tokio::test]
async fn a_preview_says_when_a_rule_fires() {
    let api = Api::local().await;
    let preview =
        json!({ "cron": "30 2 * * *", "zone": "Europe/Berlin", "count": 2, "after": "2026-03-28T12:00:00Z" });
    let shown = api.post("/api/schedules/preview", preview).await.expect(200).json();
    // 02:30 does not exist on the 29th: clocks go forward.
    assert_eq!(shown["instants"], json!(["2026-03-29T01:00:00.000000Z", "2026-03-30T00:30:00.000000Z"]));
    assert_eq!(
        (&shown["description"], &shown["zone"]),
        (&json!("At 02:30, Europe/Berlin"), &json!("Europe/Berlin"))
    );
    for (wrong, pointer) in [
        (json!({ "cron": "61 * * * *" }), "/cron"),
        (json!({ "cron": "0 0 31 2 *" }), "/cron"),
        (json!({ "every": "1ms" }), "/every"),
        (json!({ "every": "5m", "zone": "UTC" }), "/zone"),
        (json!({ "cron": "@daily", "count": 51 }), "/count"),
        (json!({}), "/cron"),
    ] {
        let problem = api.post("/api/schedules/preview", wrong).await.refused(ProblemCode::InvalidRequest);
        assert_eq!(problem.errors[0].pointer, pointer);
    }
    api.stop().await;
}

#[tokio::test]
async fn a_definition_that_is_not_valid_names_its_field() {
    let api = Api::local().await;
    for (field, value, pointer) in [
        ("cron", json!("never"), "/cron"),
        ("workflow", json!("outlast:bulk"), "/workflow"),
        ("queue", json!("outlast:"), "/queue"),
        ("priority", json!(10), "/priority"),
        ("catch_up_limit", json!(100_000), "/catch_up_limit"),
        ("jitter", json!("soon"), "/jitter"),
        ("id", json!("outlast:x"), "/id"),
        ("colour", json!("blue"), "/colour"),
    ] {
        let mut wrong = nightly();
        wrong[field] = value;
        let problem = api.post("/api/schedules", wrong).await.refused(ProblemCode::InvalidRequest);
        assert_eq!(problem.errors[0].pointer, pointer);
    }
    let mut wrong = nightly();
    wrong["input"] = json!("not a number");
    api.post("/api/schedules", wrong).await.expect(422).refused(ProblemCode::InputInvalid);
    api.stop().await;
}

/// The change is stored, but nobody has made it.
#[tokio::test(start_paused = true)]
async fn a_change_that_no_worker_makes_is_answered_with_503() {
    let world = outlast::open("memory:").await.unwrap();
    let app = router(Client::new(world), Config::local());
    let create = request(Method::POST, "/api/schedules", Some(nightly().to_string()));
    send_to(&app, create).await.expect(201);
    let pause = request(Method::POST, "/api/schedules/nightly/pause", Some("{}".into()));
    let refused = send_to(&app, pause).await.expect(503).refused(ProblemCode::Unavailable);
    assert!(
        refused.detail.contains("the change is stored") && refused.detail.contains("`default`"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_server_that_only_reads_still_answers_previews() {
    let api = Api::with(Config::local().read_only()).await;
    api.post("/api/schedules/preview", json!({ "cron": "@daily" })).await.expect(200);
    api.post("/api/schedules", nightly()).await.refused(ProblemCode::ReadOnly);
    api.stop().await;
}
