//! What Postgres refuses, sorted by what the caller does next.

use outlast_core::WorldError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Whether the same statement may succeed at once: others were in the way, and nothing of it was done.
pub(crate) fn is_overtaken(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            &SqlState::T_R_DEADLOCK_DETECTED
                | &SqlState::T_R_SERIALIZATION_FAILURE
                | &SqlState::LOCK_NOT_AVAILABLE
        )
    )
}

/// Whether the statement was refused for what it says, so that a part of it may be accepted.
pub(crate) fn is_about_data(error: &Error) -> bool {
    match error.code() {
        // What cannot be encoded never left this process.
        None => !error.is_closed() && std::error::Error::source(error).is_some_and(|source| !is_io(source)),
        Some(code) => {
            code.code().starts_with("22") || code.code().starts_with("23") || code.code().starts_with("54")
        }
    }
}

fn is_io(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some()
}

/// An error of Postgres as an error of the world.
pub(crate) fn of_postgres(error: &Error, place: &str) -> WorldError {
    let Some(refused) = error.as_db_error() else {
        let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        if is_about_data(error) {
            return WorldError::Invalid(format!("what was asked of `{place}` cannot be written ({why})"));
        }
        return WorldError::Unavailable(format!(
            "the connection to Postgres at `{place}` is lost ({why}); work goes on by itself when it is back"
        ));
    };
    let (code, why) = (refused.code(), refused.message());
    match code.code() {
        "25006" => WorldError::Unavailable(format!(
            "Postgres at `{place}` takes no writes ({why}); connect to the primary server"
        )),
        "42501" => WorldError::Invalid(format!(
            "this user may not do that at `{place}` ({why}); grant it the rights on the schema"
        )),
        "42P01" | "42883" | "3F000" | "42703" => WorldError::Conflict(format!(
            "the schema at `{place}` is not the one that this build needs ({why}); migrate it, or run the right build"
        )),
        "53100" => WorldError::Unavailable(format!(
            "the disk of Postgres at `{place}` is full ({why}); free some space, work goes on by itself"
        )),
        "53300" => WorldError::Unavailable(format!(
            "Postgres at `{place}` has no connection left ({why}); raise `max_connections`, or use a smaller `pool`"
        )),
        "57014" => WorldError::Unavailable(format!(
            "Postgres at `{place}` took too long ({why}); try again, or raise `timeout` in the URL"
        )),
        text if text.starts_with("22") || text.starts_with("54") => {
            WorldError::Invalid(format!("Postgres at `{place}` cannot store this ({why})"))
        }
        text if text.starts_with("23") || text.starts_with("XX") => WorldError::Corrupt(format!(
            "Postgres at `{place}` holds what does not fit together ({why}); stop, and restore a backup"
        )),
        _ => WorldError::Unavailable(format!("Postgres at `{place}` did not do it: {why} ({})", code.code())),
    }
}

/// A row that no world wrote.
pub(crate) fn corrupt(place: &str, why: &dyn std::fmt::Display) -> WorldError {
    WorldError::Corrupt(format!("Postgres at `{place}` holds a row that no world wrote: {why}"))
}
