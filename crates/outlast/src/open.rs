//! Opens a world by its URL.

use std::sync::Arc;

use outlast_core::{Clock, World};
use outlast_memory::MemoryWorld;

use crate::clock::SystemClock;
use crate::error::Error;

/// Opens the world that a URL describes.
///
/// | URL | world |
/// |---|---|
/// | `memory:` | runs are kept in memory, as long as the returned world exists |
/// | `sqlite:shop.db`, `sqlite:/var/lib/shop.db` | runs are stored in one file; with `?sync=normal`, commits are faster and a power failure may lose the last ones; `?timeout=` limits the seconds that a call waits for another process's write lock |
/// | `postgres://user@host/database` | runs are stored in a schema of a Postgres database, for any number of processes; `?schema=` names the schema, `?pool=` limits the connections; requires the feature `postgres` |
///
/// # Errors
///
/// If the URL is invalid, its world is not enabled in this build, or the world cannot be opened.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), outlast::Error> {
/// let world = outlast::open("memory:").await?;
/// # drop(world); Ok(()) }
/// ```
pub async fn open(url: &str) -> Result<Arc<dyn World>, Error> {
    open_with_clock(url, Arc::new(SystemClock)).await
}

/// Opens the world that a URL describes, with a given clock, such as the virtual clock of a test.
///
/// # Errors
///
/// As [`open`].
pub async fn open_with_clock(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn World>, Error> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(MemoryWorld::new(clock))),
        Some(("memory", _)) => Err(Error::invalid(format!("`{url}` is not a world; write `memory:`"))),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", _)) => open_sqlite(url, clock),
        #[cfg(not(feature = "sqlite"))]
        Some(("sqlite", _)) => {
            Err(Error::invalid(format!("`{url}` needs the feature `sqlite` of the crate `outlast`")))
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => open_postgres(url, clock).await,
        #[cfg(not(feature = "postgres"))]
        Some(("postgres" | "postgresql", _)) => {
            // Without the URL, which may contain a password.
            Err(Error::invalid("`postgres:` needs the feature `postgres` of the crate `outlast`"))
        }
        _ => Err(Error::invalid(format!(
            "`{}` is not a world; write `memory:`, `sqlite:shop.db` or `postgres://user@host/database`",
            without_user(url)
        ))),
    }
}

/// The URL without its user part, which may contain a password.
fn without_user(url: &str) -> String {
    match (url.find("//"), url.rfind('@')) {
        (Some(begin), Some(end)) if begin < end => format!("{}//…{}", &url[..begin], &url[end..]),
        _ => url.to_owned(),
    }
}

#[cfg(feature = "sqlite")]
fn open_sqlite(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn World>, Error> {
    let world = outlast_sqlite::SqliteWorld::open(url, outlast_sqlite::SqliteOptions::new(clock))?;
    Ok(Arc::new(world))
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn World>, Error> {
    let options = outlast_postgres::PostgresOptions::new().clock(clock);
    Ok(Arc::new(outlast_postgres::PostgresWorld::open(url, options).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_in_a_misspelt_url_is_not_shown() {
        for (url, shown) in [
            ("postgress://u:secret@db/shop", "`postgress://…@db/shop` is not a world"),
            ("shop.db", "`shop.db` is not a world"),
        ] {
            let error = open(url).await.unwrap_err().to_string();
            assert!(error.contains(shown) && !error.contains("secret"), "{error}");
        }
    }
}
