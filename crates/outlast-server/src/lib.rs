//! The HTTP API of Outlast: a router for axum, and the extension that lets a worker serve it.
//!
//! ```no_run
//! use outlast::prelude::*;
//! use outlast_server::ServeExt;
//!
//! #[workflow]
//! async fn greet(ctx: Context, name: String) -> Result<String, Error> {
//!     Ok(format!("hello {name}"))
//! }
//!
//! # async fn serve() -> Result<(), Error> {
//! let world = outlast::open("memory:").await?;
//! let served = Worker::builder(world).register(greet).serve("127.0.0.1:4700").await?;
//! println!("http://{}/api/runs", served.address());
//! served.run_until_signal().await
//! # }
//! ```
//!
//! [`router`] gives the same routes to an application of its own:
//!
//! ```
//! use outlast::Client;
//! use outlast_server::{AccessKey, AccessKeys, Config, router};
//! use outlast_api::Role;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), outlast::Error> {
//! let client = Client::new(outlast::open("memory:").await?);
//! let (secret, stored) = AccessKey::generate("ci", Role::Operate)?;
//! let keys = AccessKeys::new([stored]);
//! let app: axum::Router = axum::Router::new().nest("/outlast", router(client, Config::keys(keys)));
//! # drop((app, secret));
//! # Ok(()) }
//! ```
//!
//! Every route is a row of one table with the role that it needs; a layer enforces the role, and what is not in the table
//! is not found. Refusals are problem documents of RFC 9457.
//!
//! # Nesting
//!
//! `nest` and `nest_service` with any path, and `fallback_service` at the root work. axum itself panics on `nest("/")`;
//! use `merge` for an application without another fallback, or `fallback_service`.

mod config;

mod access;
mod audit;
mod enforce;
mod guard;
mod rate;
mod request_id;

mod routes;

mod body;
mod extract;
mod handlers;
mod reply;

mod live;

mod health;
mod metrics;
#[cfg(feature = "openapi")]
mod openapi;
mod state;

mod built_ins;
mod connections;
mod probes;
mod serve;

pub use access::keys::{AccessKey, AccessKeys, StoredKey};
pub use access::trusted_proxy::TrustedProxy;
pub use access::{Access, AccessError};
pub use built_ins::start_built_ins;
pub use config::Config;
pub use outlast_api::Caller;
pub use probes::probes_router;
pub use routes::{RequiredRole, RouteInfo, route_table};
#[cfg(unix)]
pub use serve::serve_unix;
pub use serve::{ServeCall, ServeExt, ServedWorker, serve};

use outlast::Client;

/// The routes of the API, for an application of axum.
///
/// In the local mode, serve the application with
/// [`into_make_service_with_connect_info`](axum::Router::into_make_service_with_connect_info), so that the server knows
/// the address of its callers; [`serve`] does.
pub fn router(client: Client, config: Config) -> axum::Router {
    routes::build(state::ServerState::new(client, config))
}
