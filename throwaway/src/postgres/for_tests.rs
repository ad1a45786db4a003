//! The server that the tests of a process share, and the schemas on it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Postgres, VARIABLE, install};
use crate::error::Result;

/// Ends the calling test as skipped when there is no Postgres for tests on this machine; the report contains the reason.
/// The test returns nothing.
#[macro_export]
macro_rules! needs_postgres {
    () => {
        if let Some(reason) = $crate::postgres::missing_for_tests() {
            fn here() {}
            $crate::skipped::report(std::any::type_name_of_val(&here), &reason);
            return;
        }
    };
}

/// Why tests have no Postgres server: [`VARIABLE`] names none, and the programs of Postgres are not installed. The reason
/// contains the remedy.
pub fn missing_for_tests() -> Option<String> {
    if std::env::var_os(VARIABLE).is_some() {
        return None;
    }
    install::find().err().map(|error| error.to_string())
}

/// The URL of a server for tests, as its superuser: the one that [`VARIABLE`] names, or one that is
/// started at the first call and ends with this process.
///
/// # Panics
///
/// When there is no server and none can be started; the message says why.
pub fn for_tests() -> &'static str {
    static SERVER: LazyLock<Result<(String, Option<Postgres>)>> = LazyLock::new(|| {
        if let Ok(url) = std::env::var(VARIABLE) {
            return Ok((url, None));
        }
        let server = Postgres::builder().quick().start()?;
        Ok((server.url(), Some(server)))
    });
    match &*SERVER {
        Ok((url, _)) => url,
        Err(error) => panic!("this test has no Postgres server: {error}"),
    }
}

/// The name of a schema that no other test uses. It begins with `prefix`.
pub fn new_schema_name(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The URL of a schema on a server, as `outlast::open` accepts it. Further parameters can be appended with `&`.
pub fn schema_url(server: &str, schema: &str) -> String {
    let separator = if server.contains('?') { '&' } else { '?' };
    format!("{server}{separator}schema={schema}")
}

/// The URL of a schema that no other test uses, on the server [for tests](for_tests). The schema does not exist yet.
///
/// # Panics
///
/// As [`for_tests`].
pub fn new_schema_url(prefix: &str) -> String {
    schema_url(for_tests(), &new_schema_name(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_schema_keeps_the_parameters_of_the_server() {
        assert_eq!(schema_url("postgres://a/b", "c"), "postgres://a/b?schema=c");
        assert_eq!(schema_url("postgres://a/b?host=d", "c"), "postgres://a/b?host=d&schema=c");
        assert_ne!(new_schema_name("test"), new_schema_name("test"));
    }
}
