//! Where the servers of a worker can be reached.

use super::WorkerBuilder;
use crate::error::Error;

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Sets where the servers of the world can be reached from outside, such as `https://outlast.example.com`, or
    /// `https://example.com/outlast` if the server is below a path. The URLs of webhooks begin with it.
    ///
    /// The code of a run that opens a webhook records it, so the URLs of open webhooks do not change with the setting.
    #[must_use]
    pub fn public_url(mut self, url: impl AsRef<str>) -> Self {
        match checked(url.as_ref()) {
            Ok(url) => self.registry.set_public_url(url),
            Err(problem) => self.problem = Some(Error::invalid(problem)),
        }
        self
    }

    /// Sets the public URL if there is none; for a server in the same process.
    #[doc(hidden)]
    #[must_use]
    pub fn default_public_url(self, url: &str) -> Self {
        if self.registry.has_public_url() { self } else { self.public_url(url) }
    }
}

/// The URL without a slash at its end.
fn checked(url: &str) -> Result<&str, String> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let is_url = rest.is_some_and(|rest| {
        !rest.starts_with('/') && !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic())
    });
    if !is_url {
        return Err(format!(
            "the public URL `{url}` is not a URL; it begins with `https://` or `http://` and a host"
        ));
    }
    if url.contains(['?', '#', '@']) {
        return Err(format!("the public URL `{url}` has a query, a fragment or a user; remove it"));
    }
    Ok(url.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_is_that_of_a_server() {
        assert_eq!(checked("https://a.example/b/"), Ok("https://a.example/b"));
        assert_eq!(checked("http://127.0.0.1:4700"), Ok("http://127.0.0.1:4700"));
        for url in [
            "",
            "a.example",
            "https://",
            "https:///a",
            "ftp://a",
            "https://a?b",
            "https://u@a",
            "https://a b",
        ] {
            assert!(checked(url).is_err(), "{url}");
        }
    }
}
