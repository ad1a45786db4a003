//! Probes.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use outlast_api::ReadinessJson;

use crate::reply::{Reply, json, ok};
use crate::state::AppState;

/// The time in which the world must answer.
const WORLD_TIME: Duration = Duration::from_secs(1);

/// Whether the process answers. It does nothing else.
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether the world answers and the server is not stopping.
pub(crate) async fn readyz(State(state): State<AppState>) -> Reply {
    let reason = match () {
        () if state.config.shutdown.is_cancelled() => Some("the server is stopping"),
        () => match tokio::time::timeout(WORLD_TIME, state.service.client().world().counts()).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the world does not answer a probe");
                Some("the world does not answer")
            }
            Err(_) => Some("the world does not answer within a second"),
        },
    };
    match reason {
        None => ok(&ReadinessJson { ready: true, reason: None }),
        Some(reason) => json(
            StatusCode::SERVICE_UNAVAILABLE,
            &ReadinessJson { ready: false, reason: Some(reason.into()) },
        ),
    }
}
