//! Login with an access key: the browser gets a signed cookie, and never keeps the key.
//!
//! A session lasts 12 hours, and 2 hours without a request. It names the key by its id, so that it ends as soon as the
//! key is revoked: every request asks for the caller of that id again.

pub(crate) mod limiter;
mod page;
mod session;

use std::fmt;
use std::sync::Arc;

use outlast_api::Caller;

pub(crate) use page::{log_in, log_out, show};
pub(crate) use session::{LoginSession, session_of, set_cookie};

/// The access keys with which people log in to the dashboard.
pub trait LoginKeys: Send + Sync + 'static {
    /// The caller that has this key, if it is valid now. The caller's `scope` is the id of the key.
    fn caller_of_key(&self, key: &str) -> Option<Caller>;

    /// The caller that has the key with this id, if it is still valid.
    fn caller_of_id(&self, id: &str) -> Option<Caller>;
}

/// The keys of a configuration.
#[derive(Clone)]
pub(crate) struct SharedKeys(pub(crate) Arc<dyn LoginKeys>);

impl fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKeys")
    }
}
