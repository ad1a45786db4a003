//! The routes of the dashboard.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Redirect;
use axum::routing::get;
use outlast_api::Service;

use crate::app::{App, AppState, load_secret, sample_stats};
use crate::config::DashboardConfig;
use crate::pages::{
    audit, failures, fleet, hooks, problem, queues, run, run_tabs, runs, schedules, search, settings,
    workflows,
};
use crate::site::Site;
use crate::{access, actions, assets, live, login};

/// The login, which nobody needs a session for.
fn login_routes(app: &App) -> Router<App> {
    Router::new()
        .route("/login", get(login::show).post(login::log_in))
        .route("/logout", axum::routing::post(login::log_out))
        .layer(from_fn_with_state(app.clone(), access::admit_login))
}

/// Workflows, queues, workers, and who did what to them.
fn fleet_routes() -> Router<App> {
    Router::new()
        .route("/workflows", get(workflows::list))
        .route("/workflows/{name}", get(workflows::show))
        .route("/queues", get(queues::list))
        .route("/queues/{name}", get(queues::show))
        .route("/queues/{name}/live", get(live::queue))
        .route("/workers", get(fleet::workers))
        .route("/workers/{session}", get(fleet::worker))
        .route("/audit", get(audit::show))
}

/// The screens whose content is replaced as a whole when it changes.
const LIVE_SCREENS: [&str; 5] = ["failures", "hooks", "all-queues", "workers", "schedules"];

/// The pages of the dashboard, as a router that can be nested under any path.
///
/// If it admits [only this machine](DashboardConfig::local), it needs the address of the peer: serve it with
/// `into_make_service_with_connect_info::<SocketAddr>()`.
pub fn router(service: Service, config: DashboardConfig) -> Router {
    let app = Arc::new(AppState::new(service, config));
    sample_stats(&app);
    let mut pages = Router::new()
        .route("/", get(async |site: Site| Redirect::to(&site.href("/runs"))))
        .route("/runs", get(runs::show))
        .route("/runs/live", get(live::runs))
        .route("/runs/new", get(actions::ask_start).post(actions::start))
        .route("/runs/selected", get(actions::ask_selected).post(actions::perform_selected))
        .route("/runs/bulk", get(actions::ask_bulk).post(actions::start_bulk))
        .route("/bulk/{id}", get(actions::show_bulk))
        .route("/bulk/{id}/live", get(live::page))
        .route("/bulk/{id}/stop", get(actions::ask_stop_bulk).post(actions::stop_bulk))
        .route("/runs/{id}", get(run::show))
        .route("/runs/{id}/live", get(live::run))
        .route("/runs/{id}/timeline", get(run::block))
        .route("/runs/{id}/ops/{op}", get(run_tabs::show_operation))
        .route("/runs/{id}/events", get(run_tabs::events))
        .route("/runs/{id}/data", get(run_tabs::data))
        .route("/runs/{id}/children", get(run_tabs::children))
        .route("/runs/{id}/export", get(run_tabs::export))
        .merge(forms_of_runs())
        .merge(fleet_routes())
        .route("/search", get(search::search))
        .route("/failures", get(failures::show))
        .route("/schedules", get(schedules::list))
        .route("/schedules/new", get(actions::ask_new_schedule).post(actions::create_schedule))
        .route("/schedules/{id}", get(schedules::show))
        .route("/schedules/{id}/edit", get(actions::ask_schedule_change).post(actions::control_schedule))
        .route("/hooks", get(hooks::show))
        .route("/settings", get(settings::show))
        .route("/settings/prune", get(actions::ask_prune).post(actions::prune))
        .route("/settings/theme", get(settings::set_theme));
    #[cfg(debug_assertions)]
    {
        pages = pages.route("/_kit", get(crate::pages::kit::show));
    }
    for screen in LIVE_SCREENS {
        pages = pages.route(&format!("/{screen}/live"), get(live::page));
    }
    for control in actions::CONTROLS {
        let path = format!("/runs/{{id}}/{}", control.path);
        pages = pages.route(&path, get(actions::confirm).post(actions::perform));
    }
    for control in actions::SCHEDULE_CONTROLS.iter().filter(|control| control.path != "edit") {
        let path = format!("/schedules/{{id}}/{}", control.path);
        pages = pages.route(&path, get(actions::ask_schedule).post(actions::control_schedule));
    }
    pages
        .fallback(problem::not_found)
        .layer(from_fn_with_state(app.clone(), access::admit))
        .merge(login_routes(&app))
        // Assets contain nothing about runs, and the page of a refusal needs them.
        .route("/assets/{digest}/{file}", get(assets::serve))
        .layer(from_fn_with_state(app.clone(), load_secret))
        .layer(from_fn(access::set_headers))
        .with_state(app)
}

/// Forms on one run that are more than a question.
fn forms_of_runs() -> Router<App> {
    Router::new()
        .route("/runs/{id}/fork", get(actions::ask_fork).post(actions::fork))
        .route("/runs/{id}/send", get(actions::ask_payload).post(actions::send))
}
