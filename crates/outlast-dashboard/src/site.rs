//! What a page knows about the request: prefix, caller, theme, time.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OriginalUri, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Uri, header};
use outlast_api::{Action, Caller, Role, WorldJson};
use outlast_core::Timestamp;

use crate::app::{App, AppState};

/// The cookie with the theme.
pub(crate) const THEME_COOKIE: &str = "outlast_theme";

/// What a page knows about the request.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The path under which the dashboard is nested; empty at the root.
    pub(crate) prefix: String,
    /// The path of the page below the prefix.
    pub(crate) path: String,
    /// The query of the request.
    pub(crate) query: String,
    pub(crate) caller: Caller,
    pub(crate) is_read_only: bool,
    pub(crate) environment: Option<String>,
    /// The theme that the person has chosen; otherwise that of the system.
    pub(crate) theme: Option<&'static str>,
    pub(crate) now: Timestamp,
    pub(crate) world: WorldJson,
    /// Whether the person has logged in, and can log out.
    pub(crate) has_session: bool,
    /// The token of the forms of the page.
    pub(crate) token: String,
    style: String,
    script: String,
    timeline_script: String,
    icons: String,
    favicon: String,
}

impl Site {
    fn new(app: &AppState, caller: Caller, uri: &Uri, headers: &HeaderMap, extensions: &Extensions) -> Self {
        let prefix = prefix(extensions.get::<OriginalUri>().map(|original| original.0.path()), uri.path());
        let asset = |file: &str| format!("{prefix}{}", app.assets.path(file));
        Self {
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
            is_read_only: app.config.is_read_only || !caller.role.includes(Role::Operate),
            has_session: extensions.get::<crate::login::LoginSession>().is_some(),
            environment: app.config.environment.clone(),
            theme: theme(headers),
            now: app.service.now().0,
            world: app.service.world(),
            token: app.secret.token(&caller.actor),
            style: asset("outlast.css"),
            script: asset("page.js"),
            timeline_script: asset("timeline.js"),
            icons: asset("icons.svg"),
            favicon: asset("favicon.svg"),
            caller,
            prefix,
        }
    }

    /// The site of a request that was refused: it may see nothing but the refusal.
    pub(crate) fn of_stranger(app: &App, request: &Request) -> Self {
        let caller = Caller { actor: String::new(), scope: String::new(), role: Role::Metrics };
        Self::new(app, caller, request.uri(), request.headers(), request.extensions())
    }

    /// The address of a page of the dashboard.
    pub(crate) fn href(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// Whether the caller may do this here.
    pub(crate) fn may(&self, action: Action) -> bool {
        !self.is_read_only && self.caller.role.includes(action.role())
    }

    pub(crate) fn style(&self) -> &str {
        &self.style
    }

    pub(crate) fn script(&self) -> &str {
        &self.script
    }

    pub(crate) fn timeline_script(&self) -> &str {
        &self.timeline_script
    }

    pub(crate) fn favicon(&self) -> &str {
        &self.favicon
    }

    /// The address of an icon of the sprite.
    pub(crate) fn icon_href(&self, name: &str) -> String {
        format!("{}#{name}", self.icons)
    }
}

impl FromRequestParts<App> for Site {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        // The layer in front has inserted the caller; a stranger may do nothing.
        let stranger = || Caller { actor: String::new(), scope: String::new(), role: Role::Metrics };
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_else(stranger);
        Ok(Self::new(app, caller, &parts.uri, &parts.headers, &parts.extensions))
    }
}

/// The part of the original path that nesting has removed. A stripped `/` may be missing in the original.
fn prefix(original: Option<&str>, stripped: &str) -> String {
    let original = original.unwrap_or(stripped);
    let prefix = original.strip_suffix(stripped).or_else(|| (stripped == "/").then_some(original));
    prefix.unwrap_or_default().trim_end_matches('/').to_owned()
}

fn theme(headers: &HeaderMap) -> Option<&'static str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    match pairs.find(|(name, _)| *name == THEME_COOKIE)?.1 {
        "light" => Some("light"),
        "dark" => Some("dark"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::prefix;

    #[test]
    fn the_prefix_is_what_nesting_has_removed() {
        assert_eq!(prefix(None, "/runs"), "");
        assert_eq!(prefix(Some("/runs"), "/runs"), "");
        assert_eq!(prefix(Some("/a/b/runs"), "/runs"), "/a/b");
        assert_eq!(prefix(Some("/a/b"), "/"), "/a/b");
        assert_eq!(prefix(Some("/a/b/"), "/"), "/a/b");
        assert_eq!(prefix(Some("/"), "/"), "");
    }
}
