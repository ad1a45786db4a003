//! Server-sent events. Check 8.

use axum::body::{Body, BodyDataStream};
use axum::http::{Method, StatusCode};
use futures_util::StreamExt;
use outlast_server::Config;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::common::{Api, request};

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    name: String,
    id: Option<String>,
    data: Value,
}

/// An open stream.
struct Stream {
    status: StatusCode,
    body: BodyDataStream,
    text: String,
}

impl Stream {
    async fn open(api: &Api, path: &str, last: Option<&str>) -> Self {
        let mut get = request(Method::GET, path, None);
        if let Some(last) = last {
            get.headers_mut().insert("last-event-id", last.parse().unwrap());
        }
        let peer: std::net::SocketAddr = "127.0.0.1:50000".parse().unwrap();
        get.extensions_mut().insert(axum::extract::ConnectInfo(peer));
        let response = tower::ServiceExt::oneshot(api.app.clone(), get).await.unwrap();
        let status = response.status();
        if status == 200 {
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            assert_eq!(response.headers()["x-accel-buffering"], "no");
        }
        Self { status, body: Body::new(response.into_body()).into_data_stream(), text: String::new() }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = parse(event);
                self.text = rest.to_owned();
                match event {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let bytes = self.body.next().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// The next event with this name.
    async fn next_named(&mut self, name: &str) -> Option<Event> {
        loop {
            let event = self.next().await?;
            if event.name == name {
                return Some(event);
            }
        }
    }
}

fn parse(text: &str) -> Option<Event> {
    let field = |name: &str| {
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned()))
    };
    Some(Event {
        name: field("event")?,
        id: field("id"),
        data: serde_json::from_str(&field("data")?).unwrap(),
    })
}

fn numbers(events: &Value) -> Vec<u64> {
    events["items"].as_array().unwrap().iter().map(|event| event["number"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_stream_cut_after_each_event_yields_the_history_exactly_once() {
    let api = Api::local().await;
    let id = api.start("approval", Value::Null).await;
    let path = format!("/api/runs/{id}/live");
    let (mut seen, mut last): (Vec<u64>, Option<String>) = (Vec::new(), None);
    let mut is_sent = false;
    let end = loop {
        let mut stream = Stream::open(&api, &path, last.as_deref()).await;
        assert_eq!(stream.status, 200);
        assert_eq!(stream.next().await.unwrap().name, "hello");
        // Cut the connection after one event of the history.
        let event = loop {
            let event = stream.next().await.unwrap();
            match event.name.as_str() {
                "event" | "end" => break event,
                // The run waits: let it continue while the stream is open.
                _ if !is_sent && seen.len() >= 2 => {
                    is_sent = true;
                    let hook = format!("/api/runs/{id}/hooks/decision");
                    api.post(&hook, json!({ "payload": 1 })).await.expect(200);
                }
                _ => {}
            }
        };
        if event.name == "end" {
            break event;
        }
        assert_eq!(event.id, Some(event.data["number"].to_string()));
        seen.push(event.data["number"].as_u64().unwrap());
        last = event.id;
        if event.data["kind"] == "run_completed" {
            // The history is complete; a stream that is not told the last event ends by itself.
            let mut rest = Stream::open(&api, &format!("{path}?from={}", seen.len()), None).await;
            break rest.next_named("end").await.unwrap();
        }
    };
    assert_eq!(end.data, json!({ "status": "completed" }));
    let history = api.get(&format!("/api/runs/{id}/events")).await.json();
    assert_eq!(seen, numbers(&history));
    let finished = Stream::open(&api, &path, last.as_deref()).await;
    assert_eq!(finished.status, 204, "a client that knows everything must not connect again");
    api.stop().await;
}

#[tokio::test]
async fn a_stream_shows_a_run_as_it_happens_and_closes_with_its_end() {
    let api = Api::local().await;
    let id = api.start("approval", Value::Null).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(Stream::open(&api, &format!("/api/runs/{id}/live"), None).await);
    }
    for stream in &mut streams {
        let run = stream.next_named("run").await.unwrap();
        assert_eq!(run.data["id"], json!(id));
    }
    api.post(&format!("/api/runs/{id}/hooks/decision"), json!({ "payload": 1 })).await.expect(200);
    for stream in &mut streams {
        let (mut kinds, mut last) = (Vec::new(), String::new());
        while let Some(event) = stream.next().await {
            last = event.name.clone();
            if event.name == "event" {
                kinds.push(event.data["kind"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!((kinds.last().unwrap().as_str(), last.as_str()), ("run_completed", "end"));
    }
    api.stop().await;
}

#[tokio::test]
async fn a_run_that_is_deleted_ends_its_stream() {
    let api = Api::local().await;
    let mut missing = Stream::open(&api, "/api/runs/run_00000000000000000000000000/live", None).await;
    assert_eq!(missing.status, 404);
    assert_eq!(missing.next().await, None);
    let id = api.start("nap", json!(1)).await;
    let bad = Stream::open(&api, &format!("/api/runs/{id}/live"), Some("x")).await;
    assert_eq!(bad.status, 400);
    api.stop().await;
}

#[tokio::test]
async fn a_stream_of_chunks_resumes_at_its_index() {
    let api = Api::local().await;
    let id = api.start("checkout", json!(3)).await;
    api.output(&id).await;
    let path = format!("/api/runs/{id}/streams/log/live");
    let mut stream = Stream::open(&api, &path, None).await;
    let chunk = stream.next_named("chunk").await.unwrap();
    assert_eq!((chunk.id.as_deref(), &chunk.data["value"]["json"]), (Some("0"), &json!("paid")));
    assert_eq!(stream.next().await.unwrap().name, "done");
    assert_eq!(stream.next().await, None);
    let mut again = Stream::open(&api, &path, Some("0")).await;
    assert_eq!(again.next().await.unwrap().name, "hello");
    assert_eq!(again.next().await.unwrap().name, "done");
    api.stop().await;
}

#[tokio::test]
async fn a_live_list_shows_new_changed_and_removed_runs_and_resumes() {
    let api = Api::local().await;
    let path = "/api/live?topics=counts,runs,workers&open=true";
    let mut stream = Stream::open(&api, path, None).await;
    assert_eq!(stream.next().await.unwrap().name, "hello");
    let worker = stream.next_named("worker").await.unwrap();
    assert_eq!(worker.data["build"], "tests");
    let id = api.start("approval", Value::Null).await;
    let run = stream.next_named("run").await.unwrap();
    assert_eq!(run.data["id"], json!(id));
    let position = run.id.unwrap();
    api.post(&format!("/api/runs/{id}/hooks/decision"), json!({ "payload": 1 })).await.expect(200);
    let gone = stream.next_named("gone").await.unwrap();
    assert_eq!(gone.data, json!({ "id": id }));

    let mut resumed = Stream::open(&api, path, Some(&position)).await;
    assert_eq!(resumed.next_named("gone").await.unwrap(), gone, "with the same id and data");
    let mut unknown = Stream::open(&api, path, Some("0000000000000000-1")).await;
    assert_eq!(unknown.next().await.unwrap().name, "hello");
    assert_eq!(unknown.next().await.unwrap().data, json!({ "reason": "unknown_position" }));
    assert!(unknown.next_named("counts").await.is_some(), "then everything again");
    for query in ["topics=colours", "topics=queue", "cursor=x", "text=x", "mark=x"] {
        assert_eq!(Stream::open(&api, &format!("/api/live?{query}"), None).await.status, 400, "{query}");
    }
    api.stop().await;
}

#[tokio::test]
async fn a_list_of_queues_tells_what_came_changed_and_went() {
    let api = Api::local().await;
    let path = "/api/live?topics=queues";
    let mut stream = Stream::open(&api, path, None).await;
    let served = stream.next_named("queue").await.unwrap();
    assert_eq!((&served.data["name"], &served.data["workers"]), (&json!("default"), &json!(1)));
    let start = json!({ "workflow": "nap", "input": 1, "queue": "gpu" });
    let run = api.post("/api/runs", start).await.expect(201).json()["id"].as_str().unwrap().to_owned();
    let ready = stream.next_named("queue").await.unwrap();
    assert_eq!((&ready.data["name"], &ready.data["ready"]), (&json!("gpu"), &json!(1)));
    api.post(&format!("/api/runs/{run}/terminate"), json!({})).await.expect(200);
    let gone = stream.next_named("queue_gone").await.unwrap();
    assert_eq!(gone.data, json!({ "name": "gpu" }));
    let mut resumed = Stream::open(&api, path, ready.id.as_deref()).await;
    assert_eq!(resumed.next_named("queue_gone").await.unwrap(), gone, "with the same id and data");
    api.stop().await;
}

#[tokio::test]
async fn streams_say_bye_when_the_server_stops() {
    let shutdown = CancellationToken::new();
    let api = Api::with(Config::local().shutdown(shutdown.clone())).await;
    let id = api.start("nap", json!(1)).await;
    let mut streams = Vec::new();
    for number in 0..200 {
        let path = if number % 2 == 0 { format!("/api/runs/{id}/live") } else { "/api/live".into() };
        let mut stream = Stream::open(&api, &path, None).await;
        assert_eq!(stream.next().await.unwrap().name, "hello");
        streams.push(stream);
    }
    assert_eq!(api.get("/readyz").await.expect(200).json()["ready"], true);
    shutdown.cancel();
    for stream in &mut streams {
        let bye = stream.next_named("bye").await.unwrap();
        assert_eq!(bye.data, json!({ "reason": "shutdown" }));
        assert_eq!(stream.next().await, None);
    }
    assert_eq!(api.get("/readyz").await.expect(503).json()["ready"], false);
    api.get("/livez").await.expect(200);
    let waited = api.get(&format!("/api/runs/{id}/output?wait=60s")).await.expect(200).json();
    assert_eq!(waited["ended"], false);
    api.stop().await;
}
