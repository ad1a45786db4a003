//! Durable HTTP: requests as a built-in step.
//!
//! [`Context::fetch`] sends a request in the step `outlast:fetch`, which every worker with the feature `http` has. Its
//! outcome is recorded once, and it is attempted again when the server cannot be reached or is overloaded.
//!
//! ```
//! use outlast::http::Request;
//! use outlast::prelude::*;
//!
//! #[workflow]
//! async fn pay(ctx: Context, cents: u64) -> Result<String, Error> {
//!     let request = Request::post("https://bank.example/payments").json(&cents).bearer("bank");
//!     let response = ctx.fetch(request).attempts(10).await?;
//!     response.json()
//! }
//! # let mut run = outlast_testkit::Rehearsal::of(pay, 42);
//! # run.completes(outlast::http::FETCH, outlast::http::Response::new(200).with_json(&"payment 7"));
//! # assert_eq!(run.output().unwrap(), "payment 7");
//! ```
//!
//! | response | what happens |
//! |---|---|
//! | none: no connection, a timeout, a response that is cut off | another attempt |
//! | 408, 425, 429 and 5xx | another attempt, after the time in `Retry-After` (at most an hour) if there is one |
//! | other 4xx | the step fails, with the [code](crate::Error::code) `http_404` and the beginning of the body in its [details](crate::Error::details) |
//! | a redirect | it is followed, at most 5 times |
//! | others | the response is the output of the step |
//!
//! Every attempt has the same header `Idempotency-Key`, the [key](crate::StepContext::key) of the step.
//!
//! # Secrets
//!
//! Requests and responses are recorded. A secret is only named in the request, and the worker that attempts it inserts
//! the value that was given to [`WorkerBuilder::secret`](crate::WorkerBuilder::secret). Do not put secrets into a URL, a
//! header or a body. A redirect to another origin does not carry credentials.
//!
//! # Addresses
//!
//! A URL may come from a user, and must not reach the inside of your network. A worker connects only to public
//! addresses: not to loopback, private, link-local, shared, multicast or reserved ones, nor to their IPv6 forms. It
//! checks the address to which it then connects, again at each redirect, and uses no proxy.
//! [`WorkerBuilder::allow_network`](crate::WorkerBuilder::allow_network) makes exceptions. Connections are not reused.

mod request;

mod response;

mod secrets;

mod network;

mod target;

mod connection;

mod exchange;

use std::fmt;
use std::sync::{Arc, OnceLock};

use outlast_core::Retry;
use rustls::ClientConfig;

pub(crate) use self::exchange::fetch;
pub(crate) use self::network::Network;
pub use self::request::{Method, Request};
pub use self::response::Response;
pub(crate) use self::secrets::Secrets;
use crate::authoring::context::Context;
use crate::authoring::operation::StepOperation;
use crate::authoring::step::Step;

/// The handle of the built-in step behind [`Context::fetch`], for mocks and rehearsals:
/// `.mock(FETCH, |request| Ok(Response::new(200)))`.
pub const FETCH: Step<Request, Response> = Step::new("outlast:fetch").retry(Retry::api());

impl Context {
    /// Sends an HTTP request, as a step that every worker has. See [`http`](crate::http).
    ///
    /// The methods of the returned operation change the number of attempts and their pauses; the default is
    /// [`Retry::api`]. [`Request::timeout`] limits one attempt.
    #[track_caller]
    pub fn fetch(&self, request: Request) -> StepOperation<Response, Request> {
        self.step(FETCH, request)
    }
}

/// The settings of a worker for its requests.
#[derive(Clone, Default)]
pub(crate) struct FetchSettings {
    pub(crate) secrets: Secrets,
    /// Networks that are allowed in addition to public addresses.
    pub(crate) allowed: Vec<Network>,
    /// The settings for TLS, made by the first request that needs them.
    tls: Arc<OnceLock<Result<Arc<ClientConfig>, String>>>,
}

impl fmt::Debug for FetchSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchSettings")
            .field("secrets", &self.secrets)
            .field("allowed", &self.allowed)
            .finish()
    }
}
