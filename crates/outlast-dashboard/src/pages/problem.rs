//! Pages that say what went wrong. A failed query never looks like an empty result.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use outlast_api::{Problem, ProblemCode};

use crate::app::App;
use crate::site::Site;
use crate::ui::layout::Page;
use crate::ui::parts::icon;
use crate::ui::sentence::with_code;

/// The result of a handler.
pub(crate) type Answer = Result<Response, Refusal>;

/// A problem and the site that shows it.
#[derive(Debug)]
pub(crate) struct Refusal(Box<(Site, Problem)>);

impl Refusal {
    /// A problem on this site.
    pub(crate) fn new(site: &Site, problem: Problem) -> Self {
        Self(Box::new((site.clone(), problem)))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        problem_response(&self.0.0, &self.0.1)
    }
}

/// Adds the site to the problem of a result.
pub(crate) trait OnSite<T> {
    /// The same result, whose problem the site shows.
    fn on(self, site: &Site) -> Result<T, Refusal>;
}

impl<T> OnSite<T> for Result<T, Problem> {
    fn on(self, site: &Site) -> Result<T, Refusal> {
        self.map_err(|problem| Refusal::new(site, problem))
    }
}

/// The page of a problem, with its status.
pub(crate) fn problem_response(site: &Site, problem: &Problem) -> Response {
    let body = html! {
        h1 { (problem.title) }
        (problem_box(site, problem))
        p { a.button href=(site.href("/runs")) { "All runs" } }
    };
    let mut response = Page::new(problem.title.clone(), body).response(site);
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// A problem as a part of a page.
pub(crate) fn problem_box(site: &Site, problem: &Problem) -> Markup {
    html! {
        div.problem role="alert" {
            (icon(site, "stuck"))
            div {
                p { (with_code(&problem.detail)) }
                @for error in problem.errors.iter().filter(|error| error.message != problem.detail) {
                    p { code { (error.pointer) } " " (with_code(&error.message)) }
                }
                p.muted { code { (problem.code) } " · " a href="" { "Try again" } }
            }
        }
    }
}

/// The page for an address that does not exist.
pub(crate) async fn not_found(State(_): State<App>, site: Site) -> Response {
    let detail = format!("there is no page `{}`", site.path);
    problem_response(&site, &Problem::new(ProblemCode::NotFound, detail))
}
