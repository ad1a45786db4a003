//! The dashboard of Outlast: server-rendered pages as an [`axum::Router`].
//!
//! Every page is complete without JavaScript. Scripts add live updates, keyboard shortcuts and local times. The pages
//! load nothing from other hosts and contain no inline scripts or styles, so the strictest content security policy
//! applies. The router can be nested under any path; links follow the prefix of the request.
//!
//! ```
//! use outlast::prelude::*;
//! use outlast_dashboard::{DashboardConfig, Service};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
//! let client = Client::new(outlast::open("memory:").await?);
//! let pages = outlast_dashboard::router(Service::new(client), DashboardConfig::local());
//! let app: axum::Router = axum::Router::new().nest("/ops/outlast", pages);
//! # let _ = app;
//! # Ok(()) }
//! ```
//!
//! [`DashboardConfig`] decides who may see the pages. There is no default: either only this machine
//! ([`DashboardConfig::local`]), people who log in with an access key ([`DashboardConfig::keys`]), or the callers that the
//! application in front has let through ([`DashboardConfig::callers`]).

mod config;

mod app;
mod routes;

mod access;
mod assets;
mod form_token;
mod login;
mod site;

mod ui;

mod pages;
mod timeline;

mod actions;
mod audit;
mod live;

pub use config::DashboardConfig;
pub use login::LoginKeys;
pub use outlast_api::{Caller, Role, Service};
pub use routes::router;
