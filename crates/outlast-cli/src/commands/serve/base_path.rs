//! A server below a path, behind a proxy.

use std::str::FromStr;

use axum::Router;
use axum::extract::{OriginalUri, Request};
use axum::http::Uri;
use tower::ServiceExt;

/// The path below which people reach the server, such as `/ops/outlast`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BasePath(String);

impl FromStr for BasePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.trim_end_matches('/');
        let is_path = path.starts_with('/') && !path.contains("//");
        let is_plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte));
        match is_path && is_plain {
            true => Ok(Self(path.to_owned())),
            false => Err(format!("`{text}` is not a path such as /ops/outlast")),
        }
    }
}

impl BasePath {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The application below this path. A proxy may pass the path on, or remove it: links contain it in both cases.
    pub(crate) fn below(self, app: Router) -> Router {
        Router::new().fallback(move |mut request: Request| {
            let (app, addresses) = (app.clone(), self.addresses(request.uri()));
            async move {
                if let Some((original, stripped)) = addresses {
                    request.extensions_mut().insert(OriginalUri(original));
                    *request.uri_mut() = stripped;
                }
                app.oneshot(request).await.unwrap_or_else(|never| match never {})
            }
        })
    }

    /// The address of a request with the path, and without it.
    fn addresses(&self, uri: &Uri) -> Option<(Uri, Uri)> {
        let address = uri.path_and_query()?.as_str();
        let rest =
            address.strip_prefix(&self.0).filter(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
        let rest = rest.unwrap_or(address);
        let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        Some((format!("{}{rest}", self.0).parse().ok()?, rest.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_may_remove_the_path_or_pass_it_on() {
        let base: BasePath = "/ops/outlast/".parse().unwrap();
        let addresses = |uri: &str| {
            let (original, stripped) = base.addresses(&uri.parse().unwrap()).unwrap();
            (original.to_string(), stripped.to_string())
        };
        let both = |rest: &str| (format!("/ops/outlast{rest}"), rest.to_owned());
        assert_eq!(addresses("/ops/outlast/runs?open=true"), both("/runs?open=true"));
        assert_eq!(addresses("/runs?open=true"), both("/runs?open=true"));
        assert_eq!(addresses("/ops/outlast"), both("/"));
        assert_eq!(addresses("/ops/outlast?a=b"), both("/?a=b"));
        assert_eq!(addresses("/"), both("/"));
        assert_eq!(addresses("/ops/outlasting"), both("/ops/outlasting"));
        for wrong in ["ops", "", "/", "/a//b", "/a b", "/a?b", "https://host/a", "/{x}"] {
            assert!(wrong.parse::<BasePath>().is_err(), "{wrong}");
        }
    }
}
