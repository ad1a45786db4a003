//! What handlers read from requests.

use axum::extract::{FromRequestParts, OriginalUri, RawPathParams};
use axum::http::request::Parts;
use outlast::RunId;
use outlast_api::{Caller, Problem, ProblemCode, QueryPairs, Service};

use crate::reply::ProblemReply;
use crate::state::AppState;

/// The query of a request, as a type.
#[derive(Debug)]
pub(crate) struct QueryOf<T>(pub(crate) T);

impl<S: Send + Sync, T: QueryPairs> FromRequestParts<S> for QueryOf<T> {
    type Rejection = ProblemReply;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemReply> {
        Ok(Self(T::from_query(parts.uri.query().unwrap_or_default())?))
    }
}

/// The parameters of the path.
#[derive(Debug)]
pub(crate) struct PathOf(Vec<(String, String)>);

impl PathOf {
    /// A parameter as text.
    pub(crate) fn text(&self, name: &str) -> Result<&str, Problem> {
        let found = self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
        found.ok_or_else(|| Problem::new(ProblemCode::NotFound, "there is no such route"))
    }

    /// A parameter as a type. What is not of the type does not exist.
    pub(crate) fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        name: &str,
    ) -> Result<T, Problem> {
        let text = self.text(name)?;
        text.parse().map_err(|error: T::Err| Problem::new(ProblemCode::NotFound, error.to_string()))
    }

    /// The run of the path.
    pub(crate) fn run(&self) -> Result<RunId, Problem> {
        self.parse("id")
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathOf {
    type Rejection = ProblemReply;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemReply> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|_| Problem::field("", "the path is not UTF-8"))?;
        Ok(Self(params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }
}

/// The caller, which the layer of the route has found.
#[derive(Clone, Debug)]
pub(crate) struct By(pub(crate) Caller);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = ProblemReply;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemReply> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ProblemReply::new(ProblemCode::Unauthenticated, "the caller is not known"))
    }
}

/// The service as the caller may use it.
#[derive(Debug)]
pub(crate) struct ServiceOf(pub(crate) Service);

impl FromRequestParts<AppState> for ServiceOf {
    type Rejection = ProblemReply;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ProblemReply> {
        let By(caller) = By::from_request_parts(parts, state).await?;
        Ok(Self(state.service_for(&caller)))
    }
}

/// The path below which an application has nested the router: empty, or such as `/outlast`.
#[derive(Clone, Debug)]
pub(crate) struct PrefixOf(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PrefixOf {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let original = parts.extensions.get::<OriginalUri>().map_or("", |OriginalUri(uri)| uri.path());
        Ok(Self(original.strip_suffix(parts.uri.path()).unwrap_or_default().to_owned()))
    }
}
