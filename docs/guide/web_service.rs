use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use outlast::prelude::*;
use outlast::{ErrorKind, RunId, Status, World};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Serialize, Deserialize)]
struct Order {
    name: String,
    cents: u64,
}

#[step]
async fn charge(order: Order) -> Result<String, StepError> {
    Ok(format!("{} paid {}", order.name, order.cents))
}

#[workflow]
async fn checkout(ctx: Context, order: Order) -> Result<String, Error> {
    let approved = ctx.hook::<bool>("approval").timeout("3d").await?;
    if approved { ctx.step(charge, &order).await } else { Ok("refused".to_owned()) }
}

type Failure = (StatusCode, String);

/// `POST /orders` starts a run. A repeated request returns the run of the first one.
async fn create(
    State(client): State<Client>,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> Result<(StatusCode, Json<RunId>), Failure> {
    let key = format!("order:{}", key_of(&headers)?);
    let run = client.start(checkout, &order).key(key).await.map_err(failure)?;
    Ok((if run.is_new() { StatusCode::CREATED } else { StatusCode::OK }, Json(run.id())))
}

/// `GET /orders/{run}` returns the status of a run.
async fn status(State(client): State<Client>, Path(run): Path<RunId>) -> Result<Json<Status>, Failure> {
    Ok(Json(client.run(run).await.map_err(failure)?.status))
}

/// `POST /orders/{run}/approval` sends a decision to the hook of a run.
async fn approve(
    State(client): State<Client>,
    Path(run): Path<RunId>,
    headers: HeaderMap,
    Json(approved): Json<bool>,
) -> Result<StatusCode, Failure> {
    client.send(run, "approval", &approved).key(key_of(&headers)?).await.map_err(failure)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /orders/{run}/output` returns the output, or 202 if the run has not ended within 10 seconds.
async fn output(State(client): State<Client>, Path(run): Path<RunId>) -> Result<Response, Failure> {
    match client.handle::<String>(run).output_within("10s").await {
        Ok(output) => Ok(Json(output).into_response()),
        Err(error) if error.is_timeout() && !has_ended(&client, run).await => {
            Ok(StatusCode::ACCEPTED.into_response())
        }
        Err(error) => Err(failure(error)),
    }
}

/// A workflow may fail with a timeout of its own, so look whether the run has ended.
async fn has_ended(client: &Client, run: RunId) -> bool {
    client.run(run).await.is_ok_and(|view| view.status.is_final())
}

fn key_of(headers: &HeaderMap) -> Result<&str, Failure> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    key.ok_or_else(|| (StatusCode::BAD_REQUEST, "send an Idempotency-Key header".to_owned()))
}

fn failure(error: Error) -> Failure {
    let status = match error.kind() {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::Invalid | ErrorKind::Limit => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, error.to_string())
}

async fn serve(
    world: Arc<dyn World>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let worker = Worker::builder(world.clone()).register((checkout, charge)).drain("15s").start().await?;
    let routes = Router::new()
        .route("/orders", post(create))
        .route("/orders/{run}", get(status))
        .route("/orders/{run}/approval", post(approve))
        .route("/orders/{run}/output", get(output))
        .with_state(Client::new(world));
    let served = axum::serve(listener, routes).with_graceful_shutdown(stop);
    tokio::select! {
        // Returns when the open requests have been answered; the worker serves them until then.
        served = served.into_future() => served?,
        // The worker has stopped by itself, because the file of its world was moved or removed.
        error = worker.failed() => return Err(error),
    }
    worker.stop().await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("sqlite:shop.db").await?;
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        terminate.recv().await;
    };
    serve(world, listener, stop).await
}
