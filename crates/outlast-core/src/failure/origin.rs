//! Where an error of a step was made: its Rust type, and the calls that led to it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::cut;

/// The environment variable that switches backtraces on: any value except an empty one and `0`.
const BACKTRACE_VARIABLE: &str = "OUTLAST_BACKTRACE";

/// Where an error of a step was made. It is for people who read a history, not for code: names of types and lines of
/// code change from build to build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailureOrigin {
    /// The Rust type of the error, such as `std::io::Error`, if one was converted.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<Box<str>>,
    /// The calls that led to the error, if the environment variable `OUTLAST_BACKTRACE` was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<Box<str>>,
}

impl FailureOrigin {
    /// The origin of an error that is made now, with this type; `None` if nothing is known of it.
    pub fn here(type_name: Option<&str>) -> Option<Box<Self>> {
        let backtrace = if has_backtraces() { backtrace() } else { None };
        let type_name = type_name.map(|name| cut(name.to_owned()).into());
        (type_name.is_some() || backtrace.is_some()).then(|| Box::new(Self { type_name, backtrace }))
    }
}

fn has_backtraces() -> bool {
    static HAS_BACKTRACES: OnceLock<bool> = OnceLock::new();
    let is_set = || std::env::var_os(BACKTRACE_VARIABLE).is_some_and(|set| !set.is_empty() && set != "0");
    *HAS_BACKTRACES.get_or_init(is_set)
}

fn backtrace() -> Option<Box<str>> {
    let backtrace = Backtrace::force_capture();
    (backtrace.status() == BacktraceStatus::Captured).then(|| cut(backtrace.to_string()).into())
}
