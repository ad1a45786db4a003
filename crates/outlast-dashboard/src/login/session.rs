//! The session of a person who has logged in, as a signed cookie.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use outlast_core::Timestamp;
use sha2::{Digest, Sha256};

use crate::app::AppState;

/// How long a session lasts.
const LIFETIME: Duration = Duration::from_secs(12 * 3_600);

/// How long a session lasts without a request.
const IDLE: Duration = Duration::from_secs(2 * 3_600);

/// The cookie is written again when it was last written longer ago.
const REFRESH: Duration = Duration::from_secs(600);

/// A session: the id of the key, when it began, and when it was last used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoginSession {
    pub(crate) key: String,
    pub(crate) began: Timestamp,
    pub(crate) seen: Timestamp,
}

impl LoginSession {
    /// A session that begins now.
    pub(crate) fn begin(key: &str, now: Timestamp) -> Self {
        Self { key: key.to_owned(), began: now, seen: now }
    }

    /// Whether it has not expired.
    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        now.since(self.began) < LIFETIME && now.since(self.seen) < IDLE
    }

    /// The same session, used now, if its cookie is to be written again.
    pub(crate) fn refreshed(&self, now: Timestamp) -> Option<Self> {
        (now.since(self.seen) > REFRESH).then(|| Self { seen: now, ..self.clone() })
    }

    fn body(&self) -> String {
        format!("{}.{}.{}", self.key, self.began.as_micros(), self.seen.as_micros())
    }

    fn read(app: &AppState, text: &str) -> Option<Self> {
        let (body, signature) = text.rsplit_once('.')?;
        if !app.secret.accepts(&signed(body), signature) {
            return None;
        }
        let mut parts = body.rsplitn(3, '.');
        let mut time = || Some(Timestamp::from_micros(parts.next()?.parse().ok()?));
        let (seen, began) = (time()?, time()?);
        Some(Self { key: parts.next()?.to_owned(), began, seen })
    }

    fn text(&self, app: &AppState) -> String {
        let body = self.body();
        let signature = app.secret.token(&signed(&body));
        format!("{body}.{signature}")
    }
}

/// What is signed: nothing that could also be the name of a caller of a form.
fn signed(body: &str) -> String {
    format!("session\u{0}{body}")
}

/// The name of the cookie. Servers of other worlds and ports on the same host have other cookies.
pub(crate) fn cookie_name(app: &AppState, headers: &HeaderMap, prefix: &str) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    let digest = Sha256::new().chain_update(app.service.world().place).chain_update(port).finalize();
    let id: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    match (app.config.is_https, prefix.is_empty()) {
        (true, true) => format!("__Host-outlast_{id}"),
        (true, false) => format!("__Secure-outlast_{id}"),
        (false, _) => format!("outlast_{id}"),
    }
}

/// The session of a request, if it has one that is valid.
pub(crate) fn session_of(app: &AppState, headers: &HeaderMap, prefix: &str) -> Option<LoginSession> {
    let name = cookie_name(app, headers, prefix);
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let text = pairs.find(|(found, _)| *found == name)?.1;
    LoginSession::read(app, text).filter(|session| session.is_valid(app.service.now().0))
}

/// The header that sets the cookie, or removes it.
pub(crate) fn set_cookie(
    app: &AppState,
    headers: &HeaderMap,
    prefix: &str,
    session: Option<&LoginSession>,
) -> Option<HeaderValue> {
    let name = cookie_name(app, headers, prefix);
    let path = if prefix.is_empty() { "/" } else { prefix };
    let secure = if app.config.is_https { "; Secure" } else { "" };
    let (value, age) = session.map_or((String::new(), 0), |session| (session.text(app), LIFETIME.as_secs()));
    let cookie = format!("{name}={value}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&cookie).ok()
}
