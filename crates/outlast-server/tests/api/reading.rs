//! Reading runs, on SQLite and Postgres.

use std::collections::BTreeSet;

use outlast_api::{ProblemCode, RunFilter};
use outlast_server::Config;
use serde_json::{Value, json};

use crate::common::{Api, sqlite};

/// Everything that can be read of a run that has ended.
async fn a_run_can_be_read_completely(api: &Api) {
    let id = api.start("checkout", json!(42)).await;
    api.output(&id).await;
    let operations = api.get(&format!("/api/runs/{id}/operations?payloads=full")).await.expect(200).json();
    let step = &operations["items"][0];
    assert_eq!((step["kind"].as_str(), step["name"].as_str()), (Some("step"), Some("charge")));
    assert_eq!((&step["input"]["json"], &step["output"]["json"]), (&json!(42), &json!(42)));
    assert_eq!(step["attempts"].as_array().unwrap().len(), 1);
    let one = api.get(&format!("/api/runs/{id}/operations/{}", step["op"])).await.expect(200).json();
    assert_eq!(one["name"], "charge");
    api.get(&format!("/api/runs/{id}/operations/999")).await.expect(404).refused(ProblemCode::NotFound);

    let events = api.get(&format!("/api/runs/{id}/events")).await.expect(200).json();
    let kinds: Vec<_> =
        events["items"].as_array().unwrap().iter().map(|event| event["kind"].clone()).collect();
    assert_eq!(kinds, ["run_started", "step_started", "step_completed", "run_completed"]);
    let newest = api.get(&format!("/api/runs/{id}/events?order=newest&limit=1")).await.json();
    assert_eq!(
        (newest["items"][0]["kind"].as_str(), newest["next"].is_string()),
        (Some("run_completed"), true)
    );
    let of_kind = api.get(&format!("/api/runs/{id}/events?kind=step_completed")).await.json();
    assert_eq!(of_kind["items"].as_array().unwrap().len(), 1);

    let export = api.get(&format!("/api/runs/{id}/export")).await.expect(200);
    assert_eq!(export.header("content-disposition"), format!("attachment; filename=\"{id}.json\""));
    assert_eq!(export.json()["run"], json!(id));
    let state = api.get(&format!("/api/runs/{id}/state")).await.expect(200).json();
    assert_eq!((&state["state"]["json"], state["ended"].as_bool()), (&json!({ "paid": 42 }), Some(true)));
    let streams = api.get(&format!("/api/runs/{id}/streams")).await.expect(200).json();
    assert_eq!((&streams["items"][0]["name"], &streams["items"][0]["closed"]), (&json!("log"), &json!(true)));
    let chunks = api.get(&format!("/api/runs/{id}/streams/log?from=-1")).await.expect(200).json();
    assert_eq!((&chunks["items"][0]["value"]["json"], &chunks["done"]), (&json!("paid"), &json!(true)));
    let explained = api.get(&format!("/api/runs/{id}/explain")).await.expect(200).json();
    assert_eq!(explained["because"]["kind"], "ended");
    assert!(explained["because"]["at"].as_str().unwrap().ends_with('Z'), "{explained}");
    let counts = api.get("/api/counts").await.expect(200).json();
    assert_eq!(counts["counts"]["completed"], 1);
    assert_eq!((&counts["marks"]["paused"], &counts["flags"]["retrying"]), (&json!(0), &json!(0)));
}

async fn a_failed_run_shows_its_attempts_and_failure(api: &Api) {
    let id = api.start("checkout", json!(13)).await;
    let output = api.output(&id).await;
    assert_eq!((&output["status"], &output["failure"]["code"]), (&json!("failed"), &json!("declined")));
    let operation =
        api.get(&format!("/api/runs/{id}/operations")).await.expect(200).json()["items"][0].clone();
    let attempts = operation["attempts"].as_array().unwrap();
    let numbers: Vec<_> = attempts.iter().map(|attempt| attempt["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt["failure"]["code"] == "declined" && attempt["build"] == "tests")
    );
    assert_eq!((&operation["attempt_count"], &operation["status"]), (&json!(3), &json!("failed")));
}

async fn children_are_listed_with_their_counts(api: &Api) {
    let id = api.start("parent", Value::Null).await;
    api.output(&id).await;
    let children = api.get(&format!("/api/runs/{id}/children")).await.expect(200).json();
    assert_eq!((&children["counts"], &children["more"]), (&json!({ "completed": 1 }), &json!(false)));
    assert_eq!(children["items"][0]["parent"]["run"], json!(id));
}

async fn lists_are_paged_in_both_directions(api: &Api) {
    let mut started = BTreeSet::new();
    for number in 0..7 {
        let body = json!({ "workflow": "nap", "input": number, "tags": { "list": "a" } });
        let run = api.post("/api/runs", body).await.expect(201).json();
        started.insert(run["id"].as_str().unwrap().to_owned());
    }
    let list = async |cursor: Option<&Value>| {
        let cursor = cursor.map_or(String::new(), |cursor| format!("&cursor={}", cursor.as_str().unwrap()));
        api.get(&format!("/api/runs?tag=list:a&limit=3{cursor}")).await.expect(200).json()
    };
    let mut pages = vec![list(None).await];
    while pages.last().unwrap()["next"].is_string() {
        let next = list(Some(&pages.last().unwrap()["next"])).await;
        pages.push(next);
    }
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
    };
    let all: Vec<_> = pages.iter().flat_map(ids).collect();
    assert!(all.is_sorted_by(|one, other| one > other), "the newest first: {all:?}");
    assert_eq!(all.iter().cloned().collect::<BTreeSet<_>>(), started);
    let before = list(Some(&pages[1]["prev"])).await;
    assert_eq!(ids(&before), ids(&pages[0]));
    let cursor = pages[0]["next"].as_str().unwrap();
    let other = api.get(&format!("/api/runs?tag=list:b&cursor={cursor}")).await;
    other.expect(400).refused(ProblemCode::CursorMismatch);
}

async fn runs_are_found_by_parts_of_their_ids_and_by_key(api: &Api) {
    let body = json!({ "workflow": "nap", "key": "find me" });
    let id = api.post("/api/runs", body).await.expect(201).json()["id"].as_str().unwrap().to_owned();
    for text in [id.as_str(), &id[..28], &id[4..28], &id[20..], "find%20me", &id[4..].to_lowercase()[..24]] {
        let found = api.get(&format!("/api/resolve?q={text}")).await.expect(200).json();
        assert!(found["candidates"].as_array().unwrap().iter().any(|run| run["id"] == json!(id)), "{text}");
    }
    api.get("/api/resolve?q=nobody").await.expect(404).refused(ProblemCode::NotFound);
    api.get("/api/resolve?q=").await.expect(400).refused(ProblemCode::InvalidRequest);
}

async fn the_fleet_is_described(api: &Api) {
    let workers = api.get("/api/workers").await.expect(200).json();
    let worker = &workers["items"][0];
    assert_eq!((&worker["build"], &worker["queues"]), (&json!("tests"), &json!(["default"])));
    let session = worker["session"].as_str().unwrap();
    api.get(&format!("/api/workers/{session}")).await.expect(200);
    let workflows = api.get("/api/workflows").await.expect(200).json();
    let names: Vec<_> =
        workflows["items"].as_array().unwrap().iter().map(|item| item["name"].clone()).collect();
    assert_eq!(names, ["approval", "checkout", "nap", "parent"]);
    assert_eq!(api.get("/api/workflows/nap").await.expect(200).json()["versions"], json!([1]));
    api.get("/api/workflows/none").await.expect(404).refused(ProblemCode::NotFound);
    let world = api.get("/api/world").await.expect(200).json();
    assert_eq!(world["kind"], json!(api.world.describe().kind));
    let me = api.get("/api/me").await.expect(200).json();
    assert_eq!(me, json!({ "actor": "local", "role": "admin", "read_only": false }));
}

async fn everything_is_read(api: &Api) {
    a_run_can_be_read_completely(api).await;
    a_failed_run_shows_its_attempts_and_failure(api).await;
    children_are_listed_with_their_counts(api).await;
    lists_are_paged_in_both_directions(api).await;
    runs_are_found_by_parts_of_their_ids_and_by_key(api).await;
    the_fleet_is_described(api).await;
}

#[tokio::test]
async fn everything_can_be_read_on_sqlite() {
    let (world, _folder) = sqlite().await;
    let api = Api::on(world, Config::local()).await;
    everything_is_read(&api).await;
    api.stop().await;
}

#[tokio::test]
async fn everything_can_be_read_in_memory() {
    let api = Api::on(outlast::open("memory:").await.unwrap(), Config::local()).await;
    everything_is_read(&api).await;
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_can_be_read_on_postgres() {
    throwaway::needs_postgres!();
    let world = outlast::open(&throwaway::postgres::new_schema_url("api")).await.unwrap();
    let api = Api::on(world, Config::local()).await;
    everything_is_read(&api).await;
    api.stop().await;
}

#[tokio::test]
async fn a_query_that_is_not_known_is_refused() {
    let api = Api::local().await;
    for query in [
        "colour=red",
        "status=done",
        "limit=0",
        "limit=1001",
        "limit=x",
        "open=yes",
        "tag=a",
        "mark=m",
        "created_from=today",
        "parent=x",
        "order=up",
        "cursor=!",
        "open=true&status=failed",
        "limit=1&limit=2",
    ] {
        let problem =
            api.get(&format!("/api/runs?{query}")).await.expect(400).refused(ProblemCode::InvalidRequest);
        let name = query.split('=').next().unwrap();
        assert_eq!(problem.errors[0].pointer, format!("?{name}"), "{query}");
    }
    api.stop().await;
}

#[tokio::test]
async fn filters_select_runs() {
    let api = Api::local().await;
    let done = api.start("checkout", json!(1)).await;
    api.output(&done).await;
    let open = api.start("nap", json!(1)).await;
    let (done, open) = (done.as_str(), open.as_str());
    let ids = async |query: &str| -> Vec<String> {
        let page = api.get(&format!("/api/runs?{query}")).await.expect(200).json();
        page["items"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids("open=true").await, [open]);
    assert_eq!(ids("status=completed").await, [done]);
    assert_eq!(
        ids("status=completed&status=waiting&status=running&status=pending&order=oldest").await,
        [done, open]
    );
    assert_eq!(ids("workflow=nap").await, [open]);
    assert_eq!(ids("text=NAP").await, [open]);
    assert_eq!(ids("ended_from=2000-01-01T00:00:00Z").await, [done]);
    assert_eq!(ids("ended_before=2000-01-01T00:00:00Z").await, [] as [&str; 0]);
    assert_eq!(ids("flag=retrying").await, [] as [&str; 0]);
    assert_eq!(ids("queue=night").await, [] as [&str; 0]);
    assert_eq!(ids("created_before=2000-01-01T00:00:00Z").await, [] as [&str; 0]);
    assert_eq!(RunFilter::default().filters(), "");
    api.stop().await;
}

#[tokio::test]
async fn an_unchanged_run_is_not_sent_again() {
    let api = Api::local().await;
    let id = api.start("checkout", json!(1)).await;
    api.output(&id).await;
    for path in [format!("/api/runs/{id}"), format!("/api/runs/{id}/operations"), "/api/workflows".into()] {
        let first = api.get(&path).await.expect(200);
        assert!(first.header("etag").starts_with("W/\""), "{first:?}");
        let mut again = crate::common::request(axum::http::Method::GET, &path, None);
        again.headers_mut().insert("if-none-match", first.header("etag").parse().unwrap());
        let again = api.send(again).await.expect(304);
        assert_eq!((again.text.as_str(), again.header("etag")), ("", first.header("etag")));
    }
    api.stop().await;
}

/// Check 7: the response comes with the end, not with the next poll of the client.
#[tokio::test]
async fn a_waiting_request_is_answered_when_the_run_ends() {
    let api = Api::local().await;
    let id = api.start("approval", Value::Null).await;
    let wait = format!("/api/runs/{id}/output?wait=60s");
    let output = api.get(&wait);
    let send = async {
        api.post(&format!("/api/runs/{id}/hooks/decision"), json!({ "payload": "yes" })).await.expect(200);
        outlast::core::Clock::now(&outlast::SystemClock)
    };
    let (output, sent_at) = tokio::join!(output, send);
    let took = outlast::core::Clock::now(&outlast::SystemClock).since(sent_at);
    assert_eq!(output.expect(200).json()["output"]["json"], "yes");
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
    let again = api.get(&format!("/api/runs/{id}/output")).await.expect(200).json();
    assert_eq!((&again["ended"], &again["status"]), (&json!(true), &json!("completed")));
    api.stop().await;
}

#[tokio::test]
async fn a_wait_that_is_over_says_that_the_run_has_not_ended() {
    let api = Api::local().await;
    let id = api.start("nap", json!(1)).await;
    let output = api.get(&format!("/api/runs/{id}/output?wait=1ms")).await.expect(200).json();
    assert_eq!(output["ended"], false);
    api.get(&format!("/api/runs/{id}/output?wait=soon"))
        .await
        .expect(400)
        .refused(ProblemCode::InvalidRequest);
    api.stop().await;
}
