//! `GET /api/runs/{id}/streams/{name}/live`: a stream, as it is written.

use axum::extract::State;
use axum::http::HeaderMap;
use outlast_api::{ChunkFilter, Problem, ResetJson, StreamFollower, StreamFrame};

use super::sse::{EventSource, event, last_event_id, response};
use crate::extract::{By, PathOf, QueryOf};
use crate::reply::Reply;
use crate::state::AppState;

pub(crate) async fn handler(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    headers: HeaderMap,
    QueryOf(filter): QueryOf<ChunkFilter>,
) -> Reply {
    let from = match last_event_id(&headers) {
        None => filter.from.unwrap_or(0),
        Some(id) => match id.parse::<i64>() {
            Ok(last) if last >= 0 => last.saturating_add(1),
            _ => return Err(Problem::field("Last-Event-ID", "expected the index of a chunk").into()),
        },
    };
    let follower = state.service_for(&caller).follow_stream(path.run()?, path.text("name")?, from).await?;
    let permit = state.live.permits.take(&caller.scope, "stream")?;
    let source = ChunkSource { follower, is_over: false };
    Ok(response(source, state.service.now(), state.config.shutdown.clone(), permit))
}

struct ChunkSource {
    follower: StreamFollower,
    is_over: bool,
}

impl EventSource for ChunkSource {
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        match self.follower.next().await {
            Ok(Some(frames)) => Some(frames.iter().map(text_of).collect()),
            Ok(None) => {
                self.is_over = true;
                Some(event("done", None, &serde_json::json!({})))
            }
            Err(problem) => {
                self.is_over = true;
                Some(event("reset", None, &ResetJson { reason: problem.code.clone() }))
            }
        }
    }
}

fn text_of(frame: &StreamFrame) -> String {
    match frame {
        StreamFrame::Chunk(chunk) => event("chunk", Some(&chunk.index.to_string()), chunk),
        StreamFrame::Restarted(index, restarted) => event("restarted", Some(&index.to_string()), restarted),
    }
}
