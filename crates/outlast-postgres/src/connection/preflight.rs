//! The preflight check of a server, when a world is opened: whether it responds, and whether a world can use it.
//!
//! Errors that need a change by an operator are returned immediately. A server that does not respond yet is tried again
//! for a few seconds.

use std::time::Duration;

use deadpool_postgres::{Object, Pool, PoolError};
use outlast_core::{Backoff, WorldError};
use tokio::runtime::Handle;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::connection::connector::{Connector, SETTINGS_MARKER, pause_before_retry};
use crate::connection::io_runtime::with_timeout;
use crate::error::postgres_error;

/// How long opening a world waits for a server that does not respond.
const OPEN_TIMEOUT: Duration = Duration::from_secs(8);

/// The pauses between two attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(500));

/// The oldest version of Postgres that a world can use.
const VERSION_MIN: i32 = 140_000;

/// The number of checks whether two connections share one server connection.
const SHARING_CHECKS: u32 = 3;

/// How long the check waits for a connection of the pool.
const CHECK_CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);

/// A setting that the check sets on one connection; another connection must not see its value.
const CHECK_SETTING: &str = "outlast.probe";

/// Who owns a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolOwner {
    /// The world: it makes the connections, with its own settings.
    World,
    /// The caller, who may use the pool for other purposes.
    Other,
}

/// Waits until the server responds, and checks that a world can use it. `connector` makes the connections of the pool,
/// if the pool belongs to the world.
pub(crate) async fn check_server(
    pool: &Pool,
    connector: Option<&Connector>,
    place: &str,
    handle: &Handle,
) -> Result<(), WorldError> {
    let (mut last_error, mut backoff) = (None, BACKOFF);
    let attempts = async {
        loop {
            let error = match check_server_once(pool, connector, place, handle).await {
                Err(error) if error.is_transient() => error,
                answer => return answer,
            };
            if last_error.is_none() {
                tracing::warn!(%place, %error, "Postgres cannot be used yet; trying again for some seconds");
            }
            last_error = Some(error);
            pause_before_retry(handle, &mut backoff).await;
        }
    };
    match with_timeout(handle, OPEN_TIMEOUT, attempts).await {
        Some(answer) => answer,
        None => Err(last_error.unwrap_or_else(|| no_response_error(place))),
    }
}

/// Checks the server once, with one connection of the pool.
async fn check_server_once(
    pool: &Pool,
    connector: Option<&Connector>,
    place: &str,
    handle: &Handle,
) -> Result<(), WorldError> {
    let client = match pool.get().await {
        Ok(client) => client,
        Err(PoolError::Backend(error)) if refuses_options(&error) => {
            let why = error.as_db_error().map_or("", |error| error.message());
            return check_behind_pooler(pool, connector, place, handle, why).await;
        }
        Err(PoolError::Backend(error)) => return Err(connect_error(&error, place)),
        Err(PoolError::Timeout(_)) => {
            return Err(WorldError::unavailable(format!(
                "the pool of `{place}` has no free connection; make it larger"
            )));
        }
        Err(error) => {
            return Err(WorldError::invalid(format!(
                "the pool of `{place}` returned no connection ({error})"
            )));
        }
    };
    let query = format!(
        "SELECT current_setting('server_version_num'), pg_is_in_recovery()::text, \
         current_setting('transaction_read_only'), current_setting('{SETTINGS_MARKER}', true)"
    );
    // A simple query, since a pooler may not support prepared statements.
    let row = first_row(&client, &query).await.map_err(|error| connect_error(&error, place))?;
    let is = |column: usize, text: &str| row.get(column).is_some_and(|value| value.as_deref() == Some(text));
    let version = row.first().and_then(|version| version.as_deref()?.parse().ok());
    check_version(version.unwrap_or(0), place)?;
    check_writes(is(1, "true"), is(2, "on"), place)?;
    match connector {
        Some(_) if is(3, "on") => Ok(()),
        Some(_) => {
            // It was made without the settings.
            drop(Object::take(client));
            check_behind_pooler(pool, connector, place, handle, "it drops the settings of a connection").await
        }
        None if pool.status().max_size < 2 => Ok(()),
        None => match connect_within(pool, handle).await {
            Some(Ok(second)) => check_not_shared(client, second, place, handle).await,
            _ => Ok(()),
        },
    }
}

/// A connection of the pool, if there is one soon.
async fn connect_within(pool: &Pool, handle: &Handle) -> Option<Result<Object, PoolError>> {
    with_timeout(handle, CHECK_CONNECTION_TIMEOUT, pool.get()).await
}

/// Checks a server behind a pooler that does not pass on the settings of a connection. If each client has a connection
/// to the server for itself, as in session mode, the settings can be made by statements.
async fn check_behind_pooler(
    pool: &Pool,
    connector: Option<&Connector>,
    place: &str,
    handle: &Handle,
    why: &str,
) -> Result<(), WorldError> {
    let Some(connector) = connector.filter(|connector| !connector.sets_by_statement()) else {
        return Err(pooler_error(place, why));
    };
    let plain_pool = connector.without_settings().pool(2)?;
    let (first, second) =
        match (connect_within(&plain_pool, handle).await, connect_within(&plain_pool, handle).await) {
            (Some(Ok(first)), Some(Ok(second))) => (first, second),
            (Some(Err(PoolError::Backend(error))), _) | (_, Some(Err(PoolError::Backend(error)))) => {
                return Err(connect_error(&error, place));
            }
            _ => return Err(no_response_error(place)),
        };
    check_not_shared(first, second, place, handle).await?;
    tracing::debug!(%place, why, "a pooler in session mode is in front of Postgres; settings are made by statements");
    connector.switch_to_set_statement();
    Box::pin(check_server_once(pool, Some(connector), place, handle)).await
}

/// Whether a pooler refuses the settings of a connection as startup options.
fn refuses_options(error: &Error) -> bool {
    error.as_db_error().is_some_and(|db_error| {
        db_error.code().code() == "08P01" && db_error.message().contains("startup parameter")
    })
}

fn no_response_error(place: &str) -> WorldError {
    WorldError::unavailable(format!(
        "Postgres at `{place}` has not responded for {OPEN_TIMEOUT:?}; check the network and the server"
    ))
}

/// Checks the server's version.
fn check_version(version: i32, place: &str) -> Result<(), WorldError> {
    if version >= VERSION_MIN {
        return Ok(());
    }
    Err(WorldError::conflict(format!(
        "Postgres at `{place}` is version {}, which is too old; use version {} or later",
        version / 10_000,
        VERSION_MIN / 10_000
    )))
}

/// Checks that the server accepts writes.
fn check_writes(is_replica: bool, is_read_only: bool, place: &str) -> Result<(), WorldError> {
    if is_replica {
        return Err(WorldError::conflict(format!(
            "Postgres at `{place}` is a replica and accepts no writes; connect to the primary server, or give \
             all hosts and `target_session_attrs=read-write` in the URL"
        )));
    }
    if is_read_only {
        return Err(WorldError::conflict(format!(
            "Postgres at `{place}` accepts no writes, since `default_transaction_read_only` is on; turn it off \
             for this user and database, or connect to the primary server"
        )));
    }
    Ok(())
}

/// Checks that two connections do not share connections of the server, as behind a pooler in transaction mode: prepared
/// statements and locks of one would be visible to another.
async fn check_not_shared(
    first: Object,
    second: Object,
    place: &str,
    handle: &Handle,
) -> Result<(), WorldError> {
    let check = async move {
        for round in 0..SHARING_CHECKS {
            let (one, other) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
            if shares_server_connection(one, other, round).await? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    // In a task, so that the check's transaction ends even if the caller stops waiting.
    match handle.spawn(check).await {
        Ok(Ok(false)) => Ok(()),
        Ok(Ok(true)) => Err(pooler_error(place, "connections of the pool share connections of the server")),
        Ok(Err(error)) => Err(connect_error(&error, place)),
        Err(_) => Err(no_response_error(place)),
    }
}

/// Whether `other` sees a setting of `one`, or `one` loses it while `other` has a transaction.
async fn shares_server_connection(one: &Client, other: &Client, round: u32) -> Result<bool, Error> {
    let value = format!("{}-{round}", std::process::id());
    let read_setting = format!("SELECT current_setting('{CHECK_SETTING}', true)");
    one.batch_execute(&format!("SET {CHECK_SETTING} = '{value}'")).await?;
    // While its transaction is open, `other` has a server connection for itself.
    other.batch_execute("BEGIN").await?;
    let is_visible =
        first_row(other, &read_setting).await.map(|row| row.first() == Some(&Some(value.clone())));
    let is_shared = match is_visible {
        Ok(false) => first_row(one, &read_setting).await.map(|row| row.first() != Some(&Some(value))),
        result => result,
    };
    other.batch_execute("ROLLBACK").await?;
    one.batch_execute(&format!("RESET {CHECK_SETTING}")).await?;
    is_shared
}

/// The columns of the first row of a simple query.
async fn first_row(client: &Client, sql: &str) -> Result<Vec<Option<String>>, Error> {
    let messages = client.simple_query(sql).await?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
        }
        _ => None,
    });
    Ok(row.unwrap_or_default())
}

fn pooler_error(place: &str, why: &str) -> WorldError {
    WorldError::invalid(format!(
        "there is a pooler such as pgbouncer in front of Postgres at `{place}` ({why}), which a world cannot use: \
         a worker's session is a lock of one connection; connect to the server itself, or set the pooler's `pool_mode` \
         to `session`"
    ))
}

/// The error of the world when the first connection is refused, whose source is the error of the connection.
fn connect_error(error: &Error, place: &str) -> WorldError {
    classified(error, place).caused_by(error)
}

fn classified(error: &Error, place: &str) -> WorldError {
    let Some(db_error) = error.as_db_error() else { return no_connection_error(error, place) };
    let why = db_error.message();
    match db_error.code().code() {
        // Also a pooler in statement mode, which refuses transactions.
        "08P01" if refuses_options(error) || why.contains("pooling mode") => pooler_error(place, why),
        "3D000" => {
            WorldError::invalid(format!("the database at `{place}` does not exist ({why}); create it first"))
        }
        "28P01" | "28000" | "42501" => WorldError::invalid(postgres_error(error, place).to_string()),
        _ => postgres_error(error, place),
    }
}

/// The error of the world when a connection fails before the server has responded.
fn no_connection_error(error: &Error, place: &str) -> WorldError {
    let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let text = error.to_string();
    if why.contains("Temporary failure in name resolution") {
        return WorldError::unavailable(format!(
            "the host of Postgres at `{place}` cannot be looked up now ({why}); check its name and the network"
        ));
    }
    if why.contains("lookup") || why.contains("not known") || why.contains("resolve") {
        return WorldError::invalid(format!(
            "the host of Postgres at `{place}` is unknown ({why}); check its name"
        ));
    }
    if text.contains("TLS") {
        return WorldError::invalid(format!(
            "no encrypted connection to Postgres at `{place}` can be made ({why}); {}",
            tls_remedy(&why)
        ));
    }
    if text.contains("authentication") || why.contains("password") {
        return WorldError::invalid(format!(
            "Postgres at `{place}` refuses the login of this user ({why}); give the password in the URL, in \
             `PGPASSWORD` or in a password file"
        ));
    }
    WorldError::unavailable(format!(
        "Postgres at `{place}` does not respond ({why}); start the server, or check host and port"
    ))
}

fn tls_remedy(why: &str) -> &'static str {
    if why.contains("does not support TLS") {
        "turn `ssl` on at the server, or write `sslmode=disable` if the network is trusted"
    } else if why.contains("UnknownIssuer") {
        "give the certificate of the authority that signed the server's, by `sslrootcert=/path/to/ca.pem`"
    } else if why.contains("not valid for name") {
        "use the host name that the server's certificate is issued for"
    } else if why.contains("CaUsedAsEndEntity") {
        "sign the server's certificate with an authority of your own, and give that authority by `sslrootcert`"
    } else {
        "check the server's certificate"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_an_old_server_names_the_oldest_usable_version() {
        let error = check_version(130_014, "db:5432/shop").unwrap_err();
        assert!(matches!(error, WorldError::Conflict(_)), "{error}");
        assert_eq!(
            error.to_string(),
            "Postgres at `db:5432/shop` is version 13, which is too old; use version 14 or later"
        );
        assert!(check_version(140_000, "db").is_ok() && check_version(180_001, "db").is_ok());
    }
}
