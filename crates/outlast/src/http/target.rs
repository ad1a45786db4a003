//! Where a request goes: a URL, checked and taken apart.

use hyper::Uri;
use hyper::http::uri::{PathAndQuery, Scheme};

/// The target of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) is_tls: bool,
    /// The host, without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// The path and the query.
    pub(super) path: PathAndQuery,
}

impl Target {
    /// Parses an absolute URL.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and the remedy. The URL is not repeated, because it could contain a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        // The fragment stays with the sender.
        let url = url.split('#').next().unwrap_or_default();
        let uri: Uri = url.parse().map_err(|error| {
            format!("the URL is not valid ({error}); write it as `https://host/path`, percent-encoded")
        })?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("the URL must begin with `https://` or `http://`".to_owned()),
        };
        let authority = uri.authority().ok_or("the URL has no host; write it as `https://host/path`")?;
        if authority.as_str().contains('@') {
            return Err(
                "the URL contains a user or password, which would be recorded; use `.basic(user, secret)`"
                    .to_owned(),
            );
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() {
            return Err("the URL has no host; write it as `https://host/path`".to_owned());
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            // `http` accepts ports that are too large, and calls them absent.
            None if authority.as_str().ends_with(|last: char| last.is_ascii_digit() || last == ':')
                && authority.as_str().rsplit_once(':').is_some_and(|(before, _)| !before.contains(':')) =>
            {
                return Err("the port of the URL is not a number from 1 to 65535".to_owned());
            }
            None if is_tls => 443,
            None => 80,
        };
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self { is_tls, host, port, path })
    }

    /// The target of a redirect from here.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub(super) fn join(&self, location: &str) -> Result<Self, String> {
        let location = location.split('#').next().unwrap_or_default();
        let is_absolute = location.split_once(':').is_some_and(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && is_scheme(scheme)
        });
        if is_absolute {
            return Self::parse(location);
        }
        let scheme = if self.is_tls { "https" } else { "http" };
        if location.starts_with("//") {
            return Self::parse(&format!("{scheme}:{location}"));
        }
        let path = match location.chars().next() {
            None => self.path.as_str().to_owned(),
            Some('/') => location.to_owned(),
            Some('?') => format!("{}{location}", self.path.path()),
            Some(_) => {
                let folder = self.path.path().rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{location}")
            }
        };
        Self::parse(&format!("{scheme}://{}{}", self.authority(), without_dots(&path)))
    }

    /// Whether credentials for one target may be sent to the other.
    pub(super) fn is_same_origin(&self, other: &Self) -> bool {
        (self.is_tls, &self.host, self.port) == (other.is_tls, &other.host, other.port)
    }

    /// The value of the header `Host`: without the port if it is the usual one.
    pub(super) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = if self.is_tls { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }
}

impl std::fmt::Display for Target {
    /// Without the query, which may contain what should not be in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path.path())
    }
}

fn is_scheme(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// The path without `.` and `..`, before the query.
fn without_dots(path: &str) -> String {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        Target::parse(url).unwrap()
    }

    #[test]
    fn a_url_is_taken_apart() {
        let bank = target("https://Bank.example/pay?now=1#top");
        assert_eq!(
            (bank.is_tls, &*bank.host, bank.port, bank.path.as_str()),
            (true, "bank.example", 443, "/pay?now=1")
        );
        assert_eq!(
            (bank.authority(), bank.to_string()),
            ("bank.example".into(), "https://bank.example/pay".into())
        );
        let local = target("http://[::1]:8080");
        assert_eq!((&*local.host, local.port, local.authority()), ("::1", 8080, "[::1]:8080".into()));
        assert_eq!(target("http://[::1]/").port, 80);
    }

    #[test]
    fn other_urls_are_refused_without_repeating_them() {
        for (url, why) in [
            ("ftp://host/", "must begin with `https://`"),
            ("/path", "must begin with `https://`"),
            ("https://user:hunter2@host/", "use `.basic(user, secret)`"),
            ("https://ho st/", "the URL is not valid"),
            ("https://host:99999/", "port"),
            ("", "the URL is not valid"),
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(error.contains(why) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn a_redirect_is_relative_to_its_origin() {
        let from = target("https://a.example/x/y?z=1");
        for (location, expected) in [
            ("https://b.example/q", "https://b.example/q"),
            ("http://a.example/q", "http://a.example/q"),
            ("//b.example/q", "https://b.example/q"),
            ("/q?w=2", "https://a.example/q?w=2"),
            ("q", "https://a.example/x/q"),
            ("../q", "https://a.example/q"),
            ("../../../q/.", "https://a.example/q/"),
            ("?w=2", "https://a.example/x/y?w=2"),
            ("", "https://a.example/x/y?z=1"),
            ("q:1/2", "refused"),
        ] {
            match from.join(location) {
                Ok(joined) => assert_eq!(joined, target(expected), "{location}"),
                Err(_) => assert_eq!(expected, "refused", "{location}"),
            }
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let origin = target("https://a.example/x");
        assert!(origin.is_same_origin(&target("https://A.example:443/y")));
        for other in ["http://a.example/x", "https://b.example/x", "https://a.example:444/x"] {
            assert!(!origin.is_same_origin(&target(other)), "{other}");
        }
    }
}
