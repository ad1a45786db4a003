//! A router on a world, and what requests return.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use outlast::World;
use outlast::prelude::*;
use outlast_api::{Problem, ProblemCode};
use outlast_server::{Config, router};
use serde_json::{Value, json};
use tower::ServiceExt;

/// A program with every kind of operation that the tests look at.
#[step(attempts = 3, initial = "1ms")]
pub(crate) async fn charge(cents: u64) -> Result<u64, StepError> {
    if cents == 13 { Err(StepError::msg("the card was declined").with_code("declined")) } else { Ok(cents) }
}

#[workflow]
pub(crate) async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    let paid = ctx.step(charge, cents).await?;
    ctx.publish(&json!({ "paid": paid }));
    ctx.stream("log").write("paid");
    Ok(format!("paid {paid}"))
}

#[workflow]
pub(crate) async fn approval(ctx: Context) -> Result<Value, Error> {
    ctx.hook::<Value>("decision").await
}

#[workflow]
pub(crate) async fn nap(ctx: Context, input: Value) -> Result<Value, Error> {
    ctx.sleep("3d").await?;
    Ok(input)
}

#[workflow]
pub(crate) async fn parent(ctx: Context) -> Result<String, Error> {
    ctx.child(checkout, 7).await
}

/// A response, read completely.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The problem document, which every refusal must be.
    pub(crate) fn problem(&self) -> Problem {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem: Problem = serde_json::from_str(&self.text).unwrap();
        assert_eq!(problem.status, self.status.as_u16());
        assert_eq!(problem.instance, self.header("x-request-id"));
        assert_eq!(problem.uri, format!("urn:outlast:problem:{}", problem.code));
        assert!(ProblemCode::ALL.iter().any(|code| problem.is(*code)), "unknown code: {problem:?}");
        assert!(!problem.detail.is_empty() && !problem.title.is_empty());
        problem
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn refused(self, code: ProblemCode) -> Problem {
        let problem = self.problem();
        assert!(problem.is(code), "expected {code}: {problem:?}");
        problem
    }
}

/// A router, a world and a worker.
pub(crate) struct Api {
    pub(crate) world: Arc<dyn World>,
    pub(crate) client: Client,
    pub(crate) app: Router,
    worker: Option<Worker>,
    _folder: Option<tempfile::TempDir>,
}

pub(crate) async fn sqlite() -> (Arc<dyn World>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let world = outlast::open(&format!("sqlite:{}", folder.path().join("api.db").display())).await.unwrap();
    (world, folder)
}

impl Api {
    /// A local router on SQLite.
    pub(crate) async fn local() -> Self {
        let (world, folder) = sqlite().await;
        Self { _folder: Some(folder), ..Self::on(world, Config::local()).await }
    }

    pub(crate) async fn with(config: Config) -> Self {
        let (world, folder) = sqlite().await;
        Self { _folder: Some(folder), ..Self::on(world, config).await }
    }

    pub(crate) async fn on(world: Arc<dyn World>, config: Config) -> Self {
        let code = (checkout, charge, approval, nap, parent);
        Self::of(Worker::builder(world.clone()).register(code), world, config).await
    }

    /// With a worker of its own.
    pub(crate) async fn of(
        builder: outlast::WorkerBuilder<()>,
        world: Arc<dyn World>,
        config: Config,
    ) -> Self {
        let worker = builder.build("tests").start().await.unwrap();
        let client = Client::new(world.clone());
        let app = router(client.clone(), config);
        Self { world, client, app, worker: Some(worker), _folder: None }
    }

    /// Keeps the folder of its world.
    pub(crate) fn keeping(self, folder: tempfile::TempDir) -> Self {
        Self { _folder: Some(folder), ..self }
    }

    pub(crate) async fn stop(mut self) {
        self.worker.take().unwrap().stop().await.unwrap();
    }

    /// Sends a request from a local address.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        send_to(&self.app, request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path, None)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(request(Method::POST, path, Some(body.to_string()))).await
    }

    pub(crate) async fn post_text(&self, path: &str, body: &str) -> Answer {
        self.send(request(Method::POST, path, Some(body.to_owned()))).await
    }

    /// Starts a run over HTTP, and returns its id.
    pub(crate) async fn start(&self, workflow: &str, input: Value) -> String {
        let answer =
            self.post("/api/runs", json!({ "workflow": workflow, "input": input })).await.expect(201);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Waits for the end of a run over HTTP.
    pub(crate) async fn output(&self, run: &str) -> Value {
        let answer = self.get(&format!("/api/runs/{run}/output?wait=60s")).await.expect(200).json();
        assert_eq!(answer["ended"], true, "{answer}");
        answer
    }
}

pub(crate) fn request(method: Method, path: &str, body: Option<String>) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path).header("host", "127.0.0.1:4700");
    if body.is_some() {
        builder = builder.header("content-type", "application/json");
    }
    builder.body(body.map_or_else(Body::empty, Body::from)).unwrap()
}

pub(crate) async fn send_to(app: &Router, mut request: Request<Body>) -> Answer {
    let peer: SocketAddr = "127.0.0.1:50000".parse().unwrap();
    if request.extensions().get::<ConnectInfo<SocketAddr>>().is_none() {
        request.extensions_mut().insert(ConnectInfo(peer));
    }
    let response = app.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}
