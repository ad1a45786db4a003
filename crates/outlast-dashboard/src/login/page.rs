//! The page with the login, and what it does.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use outlast_api::{Caller, QueryReader};

use super::session::{LoginSession, session_of, set_cookie};
use crate::app::App;
use crate::audit;
use crate::config::Admission;
use crate::pages::problem::problem_response;
use crate::site::Site;
use crate::ui::layout::Page;
use crate::ui::parts::icon;

/// The page that a person comes from, if it is one of this dashboard.
fn next_page(site: &Site) -> String {
    let next = QueryReader::new(&site.query).ok().and_then(|mut reader| reader.text("next").ok().flatten());
    next.filter(|next| next.starts_with('/') && !next.starts_with("//") && !next.contains('\\'))
        .unwrap_or_else(|| "/runs".to_owned())
}

fn login_page(site: &Site, error: Option<&str>) -> Response {
    let body = html! {
        section.login {
            div.brand { (icon(site, "logo")) span { "Outlast" } }
            h1 { "Log in" }
            @if let Some(error) = error { p.bad role="alert" { (error) } }
            form method="post" action={ (site.href("/login")) "?" (site.query) } {
                div.field {
                    label for="key" { "Access key" }
                    input type="password" id="key" name="key" required autofocus autocomplete="current-password" aria-describedby="key-hint";
                    p.hint #key-hint { "It begins with olk_. Make one with " code { "outlast access create" } "." }
                }
                button.button.primary { "Log in" }
            }
        }
    };
    Page::new("Log in", body).bare().response(site)
}

/// `GET /login`.
pub(crate) async fn show(State(_): State<App>, site: Site) -> Response {
    login_page(&site, None)
}

/// `POST /login`.
pub(crate) async fn log_in(State(app): State<App>, site: Site, request: Request) -> Response {
    let Admission::Keys(keys) = &app.config.admission else {
        return Redirect::to(&site.href("/runs")).into_response();
    };
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
    let now = app.service.now().0;
    if !app.logins.allows(address, now) {
        let mut response = login_page(&site, Some("Too many wrong keys. Wait a minute, and try again."));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        return response;
    }
    let (headers, from) = (request.headers().clone(), audit::address(&request));
    let body = axum::body::to_bytes(request.into_body(), 4_096).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&body).into_owned();
    let key = QueryReader::new(&body).ok().and_then(|mut reader| reader.text("key").ok().flatten());
    match key.and_then(|key| keys.0.caller_of_key(key.trim())) {
        Some(caller) => match audit::session(&app, &caller, "log_in", from).await {
            Ok(()) => begin(&app, &site, &headers, &caller),
            Err(problem) => problem_response(&site, &problem),
        },
        None => {
            app.logins.count(address, now);
            tracing::warn!(?address, "a login with a wrong access key was refused");
            let mut response = login_page(&site, Some("This key is not known, or has expired."));
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            response
        }
    }
}

fn begin(app: &App, site: &Site, headers: &HeaderMap, caller: &Caller) -> Response {
    let session = LoginSession::begin(&caller.scope, app.service.now().0);
    let mut response = Redirect::to(&site.href(&next_page(site))).into_response();
    if let Some(cookie) = set_cookie(app, headers, &site.prefix, Some(&session)) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// `POST /logout`.
pub(crate) async fn log_out(State(app): State<App>, site: Site, request: Request) -> Response {
    let (headers, from) = (request.headers().clone(), audit::address(&request));
    let session = session_of(&app, &headers, &site.prefix);
    if let (Some(session), Admission::Keys(keys)) = (session, &app.config.admission)
        && let Some(caller) = keys.0.caller_of_id(&session.key)
    {
        // Nobody is kept from logging out.
        let _ = audit::session(&app, &caller, "log_out", from).await;
    }
    let mut response = Redirect::to(&site.href("/login")).into_response();
    if let Some(cookie) = set_cookie(&app, &headers, &site.prefix, None) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
