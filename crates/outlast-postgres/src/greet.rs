//! The first words with a server: whether it is there, and is one that a world can live on.
//!
//! What will not mend itself is said at once; a server that is not there yet is waited for.

use std::time::Duration;

use deadpool_postgres::{Object, Pool, PoolError};
use outlast_core::WorldError;
use tokio::runtime::Handle;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::connect::{MARK, pause};
use crate::error::of_postgres;
use crate::home::within;

/// For so long a server that is not there is waited for when a world is opened.
const OPEN_PATIENCE: Duration = Duration::from_secs(8);

/// The pause between two tries.
const OPEN_PAUSE: Duration = Duration::from_millis(250);

/// The oldest Postgres that has what is needed.
const VERSION_MIN: i32 = 140_000;

/// How often it is looked whether two connections share one of the server's.
const PROBES: u32 = 3;

/// How long a second connection of a pool is waited for.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);

/// A setting that one connection makes and another must not see.
const PROBE: &str = "outlast.probe";

/// Whose pool it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The world's: its connections are made by the URL.
    World,
    /// Somebody else's, who may use it for other things.
    Other,
}

/// Waits until the server is there, and says what stands in the way.
pub(crate) async fn greet(pool: &Pool, owner: Owner, place: &str, handle: &Handle) -> Result<(), WorldError> {
    let mut last = None;
    let tries = async {
        loop {
            let refused = match greet_once(pool, owner, place, handle).await {
                Err(error) if error.is_transient() => error,
                answer => return answer,
            };
            if last.is_none() {
                tracing::warn!(%place, error = %refused, "Postgres cannot be used yet; trying again");
            }
            last = Some(refused);
            pause(handle, OPEN_PAUSE).await;
        }
    };
    match within(handle, OPEN_PATIENCE, tries).await {
        Some(answer) => answer,
        None => Err(last.unwrap_or_else(|| silent(place))),
    }
}

async fn greet_once(pool: &Pool, owner: Owner, place: &str, handle: &Handle) -> Result<(), WorldError> {
    let client = match pool.get().await {
        Ok(client) => client,
        Err(PoolError::Backend(error)) => return Err(at_first(&error, place)),
        Err(PoolError::Timeout(_)) => {
            return Err(WorldError::Unavailable(format!(
                "the pool of `{place}` has no connection free; make it larger"
            )));
        }
        Err(error) => {
            return Err(WorldError::Invalid(format!("the pool of `{place}` gives no connection ({error})")));
        }
    };
    let asked = format!(
        "SELECT current_setting('server_version_num'), pg_is_in_recovery()::text, \
         current_setting('transaction_read_only'), current_setting('{MARK}', true)"
    );
    // No prepared statement: a pooler may not know those.
    let row = first_row(&client, &asked).await.map_err(|error| at_first(&error, place))?;
    let is = |column: usize, text: &str| row.get(column).is_some_and(|value| value.as_deref() == Some(text));
    let version = row.first().and_then(|version| version.as_deref()?.parse().ok());
    check_version(version.unwrap_or(0), place)?;
    check_writes(is(1, "true"), is(2, "on"), place)?;
    match owner {
        Owner::World if is(3, "on") => Ok(()),
        Owner::World => Err(pooled(place, "the settings of a connection are lost on the way")),
        // In a task, which also ends what it began when nobody waits any more.
        Owner::Other => {
            let looked = look_for_sharing(pool.clone(), client, place.to_owned(), handle.clone());
            handle.spawn(looked).await.unwrap_or(Ok(()))
        }
    }
}

fn silent(place: &str) -> WorldError {
    WorldError::Unavailable(format!(
        "Postgres at `{place}` has not answered for {OPEN_PATIENCE:?}; look at the network and at the server"
    ))
}

/// Whether the server has what is needed.
fn check_version(version: i32, place: &str) -> Result<(), WorldError> {
    if version >= VERSION_MIN {
        return Ok(());
    }
    Err(WorldError::Conflict(format!(
        "Postgres at `{place}` is version {}, which is too old; use {} or a later one",
        version / 10_000,
        VERSION_MIN / 10_000
    )))
}

/// Whether the server takes writes.
fn check_writes(is_replica: bool, is_read_only: bool, place: &str) -> Result<(), WorldError> {
    if is_replica {
        return Err(WorldError::Conflict(format!(
            "Postgres at `{place}` is a replica that takes no writes; connect to the primary server, or give \
             all hosts and `target_session_attrs=read-write` in the URL"
        )));
    }
    if is_read_only {
        return Err(WorldError::Conflict(format!(
            "Postgres at `{place}` takes no writes, since `default_transaction_read_only` is on; turn it off \
             for this user and database, or connect to the primary server"
        )));
    }
    Ok(())
}

/// Looks whether connections share those of the server, transaction by transaction, as behind some poolers:
/// statements and locks of one would be another's.
async fn look_for_sharing(
    pool: Pool,
    first: Object,
    place: String,
    handle: Handle,
) -> Result<(), WorldError> {
    if pool.status().max_size < 2 {
        return Ok(());
    }
    let Some(Ok(second)) = within(&handle, PROBE_PATIENCE, pool.get()).await else { return Ok(()) };
    for round in 0..PROBES {
        let (one, other) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        let is_shared = is_shared(one, other, round).await;
        if is_shared.map_err(|error| at_first(&error, &place))? {
            return Err(pooled(&place, "connections share those of the server"));
        }
    }
    Ok(())
}

async fn is_shared(one: &Client, other: &Client, round: u32) -> Result<bool, Error> {
    let word = format!("{}-{round}", std::process::id());
    let look = format!("SELECT current_setting('{PROBE}', true)");
    one.batch_execute(&format!("SET {PROBE} = '{word}'")).await?;
    // While its transaction is open, the other one has a connection of the server for itself.
    other.batch_execute("BEGIN").await?;
    let is_seen = first_row(other, &look).await.map(|row| row.first() == Some(&Some(word.clone())));
    let is_lost = match is_seen {
        Ok(false) => first_row(one, &look).await.map(|row| row.first() != Some(&Some(word))),
        seen => seen,
    };
    other.batch_execute("ROLLBACK").await?;
    one.batch_execute(&format!("RESET {PROBE}")).await?;
    is_lost
}

/// The columns of the first row, asked for without a prepared statement.
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

fn pooled(place: &str, why: &str) -> WorldError {
    WorldError::Invalid(format!(
        "there is a pooler such as pgbouncer before Postgres at `{place}` ({why}), which a world cannot use: \
         a worker's session is a lock of one connection; connect to the server itself"
    ))
}

/// What a refusal of the first connection means.
fn at_first(error: &Error, place: &str) -> WorldError {
    let Some(refused) = error.as_db_error() else { return unreached(error, place) };
    let why = refused.message();
    match refused.code().code() {
        "08P01" if why.contains("startup parameter") => pooled(place, why),
        "3D000" => {
            WorldError::Invalid(format!("there is no such database at `{place}` ({why}); create it first"))
        }
        "28P01" | "28000" | "42501" => WorldError::Invalid(match of_postgres(error, place) {
            WorldError::Unavailable(text) => text,
            other => other.to_string(),
        }),
        _ => of_postgres(error, place),
    }
}

/// Why there is no connection, though no server said so.
fn unreached(error: &Error, place: &str) -> WorldError {
    let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let text = error.to_string();
    if why.contains("Temporary failure in name resolution") {
        return WorldError::Unavailable(format!(
            "the host of Postgres at `{place}` cannot be looked up now ({why}); check its name and the network"
        ));
    }
    if why.contains("lookup") || why.contains("not known") || why.contains("resolve") {
        return WorldError::Invalid(format!(
            "the host of Postgres at `{place}` is not known ({why}); check its name"
        ));
    }
    if text.contains("TLS") {
        return WorldError::Invalid(format!(
            "no safe connection to Postgres at `{place}` can be made ({why}); {}",
            tls_remedy(&why)
        ));
    }
    if text.contains("authentication") || why.contains("password") {
        return WorldError::Invalid(format!(
            "Postgres at `{place}` does not let this user in ({why}); give the password in the URL, in \
             `PGPASSWORD` or in a password file"
        ));
    }
    WorldError::Unavailable(format!(
        "Postgres at `{place}` does not answer ({why}); start the server, or check host and port"
    ))
}

fn tls_remedy(why: &str) -> &'static str {
    if why.contains("does not support TLS") {
        "turn `ssl` on at the server, or write `sslmode=disable` where nobody can listen"
    } else if why.contains("UnknownIssuer") {
        "give the certificate of who signed the server's by `sslrootcert=/path/to/ca.pem`"
    } else if why.contains("not valid for name") {
        "use the name that the server's certificate is for as the host"
    } else if why.contains("CaUsedAsEndEntity") {
        "let an authority of your own sign the server's certificate, and give that by `sslrootcert`"
    } else {
        "check the server's certificate"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_named_with_the_oldest_that_will_do() {
        let refused = check_version(130_014, "db:5432/shop").unwrap_err();
        let WorldError::Conflict(text) = refused else { panic!("{refused}") };
        assert_eq!(text, "Postgres at `db:5432/shop` is version 13, which is too old; use 14 or a later one");
        assert!(check_version(140_000, "db").is_ok() && check_version(180_001, "db").is_ok());
    }
}
