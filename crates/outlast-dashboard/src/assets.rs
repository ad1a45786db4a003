//! The style sheet, the scripts and the icons, embedded in the program.

use std::io::Write;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::app::App;

/// The files: name, type, content.
pub(crate) const FILES: [(&str, &str, &str); 5] = [
    ("outlast.css", "text/css; charset=utf-8", include_str!("../assets/outlast.css")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("../assets/page.js")),
    ("timeline.js", "text/javascript; charset=utf-8", include_str!("../assets/timeline.js")),
    ("favicon.svg", "image/svg+xml", include_str!("../assets/favicon.svg")),
    ("icons.svg", "image/svg+xml", include_str!("../assets/icons.svg")),
];

/// The files with their compressed forms. All paths contain a digest of all contents, so browsers may keep them.
#[derive(Debug)]
pub(crate) struct Assets {
    digest: String,
    compressed: [Bytes; FILES.len()],
}

impl Assets {
    pub(crate) fn new() -> Self {
        let all = FILES.iter().fold(Sha256::new(), |hash, (_, _, content)| hash.chain_update(content));
        let digest = all.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Self { digest, compressed: FILES.map(|(_, _, content)| gzip(content)) }
    }

    /// The path of a file below the prefix of the dashboard.
    pub(crate) fn path(&self, file: &str) -> String {
        format!("/assets/{}/{file}", self.digest)
    }
}

/// The compressed form of a text.
pub(crate) fn gzip(content: &str) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(content.as_bytes());
    // Writing to memory does not fail; an empty form is never served.
    written.and_then(|()| encoder.finish()).map_or_else(|_| Bytes::new(), Bytes::from)
}

/// `GET /assets/{digest}/{file}`.
pub(crate) async fn serve(
    State(app): State<App>,
    Path((digest, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let found = FILES.iter().position(|(file, ..)| *file == name);
    let Some(index) = found.filter(|_| digest == app.assets.digest) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let (_, kind, content) = FILES[index];
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|accepted| accepted.to_str().ok());
    let compressed = &app.assets.compressed[index];
    let is_compressed = accepted.is_some_and(|accepted| accepted.contains("gzip")) && !compressed.is_empty();
    let body = if is_compressed { compressed.clone() } else { Bytes::from_static(content.as_bytes()) };
    let mut response = body.into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    fields.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if is_compressed {
        fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressed(suffix: &str) -> usize {
        FILES
            .iter()
            .filter(|(name, ..)| name.ends_with(suffix))
            .map(|(_, _, content)| gzip(content).len())
            .sum()
    }

    #[test]
    fn assets_stay_within_their_budgets() {
        assert!(compressed(".css") <= 8 * 1024, "{} bytes", compressed(".css"));
        assert!(compressed(".js") <= 15 * 1024, "{} bytes", compressed(".js"));
        assert!(compressed("page.js") <= 7 * 1024, "{} bytes", compressed("page.js"));
    }

    #[test]
    fn every_icon_that_is_used_exists() {
        let icons =
            FILES.iter().find(|(name, ..)| *name == "icons.svg").map(|(_, _, content)| *content).unwrap();
        let screens = crate::ui::layout::SCREENS.iter().map(|(_, _, icon, _)| *icon);
        let statuses =
            ["pending", "running", "waiting", "stuck", "completed", "failed", "cancelled", "paused"];
        let marks = ["compensated", "quarantined"];
        let kinds =
            ["step", "timer", "hook", "child", "value", "workflow", "stream", "why", "more", "copy", "lock"];
        for icon in screens.chain(statuses).chain(marks).chain(kinds) {
            assert!(icons.contains(&format!("<symbol id=\"{icon}\"")), "{icon}");
        }
    }
}
