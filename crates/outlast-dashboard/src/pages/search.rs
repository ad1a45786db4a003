//! The search box: opens a run if one fits, and lists runs otherwise.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect};
use outlast_api::{QueryPairs, QueryReader, ResolveQuery, RunFilter};

use super::problem::{Answer, OnSite};
use crate::app::App;
use crate::site::Site;

/// `GET /search?q=`.
pub(crate) async fn search(State(app): State<App>, site: Site) -> Answer {
    let q = QueryReader::new(&site.query).and_then(|mut reader| reader.text("q")).on(&site)?;
    let q = q.unwrap_or_default().trim().to_owned();
    if q.is_empty() {
        return Ok(Redirect::to(&site.href("/runs")).into_response());
    }
    let found = app.service.resolve(&ResolveQuery { q: q.clone() }).await;
    if let Ok([only]) = found.as_ref().map(|found| found.candidates.as_slice()) {
        return Ok(Redirect::to(&site.href(&format!("/runs/{}", only.id))).into_response());
    }
    let filter = RunFilter { text: Some(q), ..RunFilter::default() };
    Ok(Redirect::to(&site.href(&format!("/runs?{}", filter.to_query()))).into_response())
}
