//! Errors of Postgres, classified by what the caller does next.

use outlast_core::WorldError;
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

/// Whether the statement was rolled back because of a conflict with other transactions, and may succeed if it is
/// repeated.
pub(crate) fn is_conflict(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE))
}

/// Whether another transaction held a lock for longer than the statement waits.
pub(crate) fn is_lock_timeout(error: &Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// The highest rules that every joined worker knows, if a start was refused because it has higher ones.
pub(crate) fn known_rules(error: &Error) -> Option<u32> {
    let db_error = error.as_db_error().filter(|db_error| db_error.code().code() == "OL001")?;
    db_error.detail()?.parse().ok()
}

/// Whether the cause lies in this statement's values, so that a part of them may be accepted. Errors of the connection,
/// the server and the schema affect all statements; all others are specific to the statement, including errors that a
/// user's trigger raises.
pub(crate) fn is_statement_specific(error: &Error) -> bool {
    match error.code() {
        // A value could not be encoded; the statement was not sent.
        None => !error.is_closed() && std::error::Error::source(error).is_some_and(|source| !is_io(source)),
        Some(code) => !affects_all_statements(code.code()),
    }
}

/// Whether the cause lies in one of the statement's turns. In addition to errors of its values, that may be a damaged
/// row of the run (`XX`), a precondition of a trigger (`55`), or a conflict that occurs every time (`40`): turns of
/// other runs must not wait for these. A lock timeout is not one of them, since it passes.
pub(crate) fn is_caused_by_turn(error: &Error) -> bool {
    let is_about_rows = |code: &SqlState| {
        ["40", "55", "XX"].iter().any(|class| code.code().starts_with(class))
            && *code != SqlState::LOCK_NOT_AVAILABLE
    };
    is_statement_specific(error) || error.code().is_some_and(is_about_rows)
}

/// Whether the cause may lie in one of the statement's turns although the error usually affects all statements: a
/// trigger may raise any error code. Excluded are errors that a trigger cannot cause: those that end the connection
/// (severity above `ERROR`), and those about prepared statements and the state of transactions.
pub(crate) fn may_be_caused_by_turn(error: &Error) -> bool {
    error.as_db_error().is_some_and(|db_error| {
        let code = db_error.code().code();
        db_error.parsed_severity() == Some(Severity::Error)
            && !code.starts_with("26")
            && !code.starts_with("25P")
            && !matches!(code, "42P05" | "55P03")
    })
}

/// Whether a table, a function, a column or the schema does not exist, or did not exist any more during the statement.
pub(crate) fn is_missing_object(error: &Error) -> bool {
    error.code().is_some_and(|code| {
        matches!(code.code(), "42P01" | "42883" | "42703" | "3F000") || code.code().starts_with("XX")
    })
}

/// Whether the statement was cancelled, by the server's statement timeout or by an operator.
pub(crate) fn is_cancelled(error: &Error) -> bool {
    error.code() == Some(&SqlState::QUERY_CANCELED)
}

/// Whether the server had no space for the statement's data, or could not write it.
pub(crate) fn is_out_of_space(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("53") || code.code().starts_with("58"))
}

/// Whether the same statement would fail every time: its values cannot be stored (`22`, `54`) or violate a constraint
/// (`23`), or a trigger uses something that does not exist (`0A`, `21`, `42`, except a missing table or privilege,
/// which may be added). A value that cannot be encoded (no code) fails every time as well. All other errors, for
/// example those that a trigger raises, may pass.
pub(crate) fn is_permanent(error: &Error) -> bool {
    error.code().is_none_or(|code| {
        ["0A", "21", "22", "23", "42", "54"].iter().any(|class| code.code().starts_with(class))
            && !affects_all_statements(code.code())
    })
}

/// Whether an error code affects more than one statement, or passes: errors of connections, privileges, the schema,
/// resources, the system, an operator's intervention, and conflicts with other transactions.
fn affects_all_statements(code: &str) -> bool {
    const CLASSES: [&str; 11] = ["08", "25", "26", "28", "3D", "3F", "40", "53", "55", "57", "58"];
    CLASSES.iter().any(|class| code.starts_with(class))
        || code.starts_with("XX")
        || matches!(code, "42501" | "42P01" | "42883" | "42703" | "42P05")
}

fn is_io(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some()
}

/// The error of the world for an error of Postgres, which is its source.
pub(crate) fn postgres_error(error: &Error, place: &str) -> WorldError {
    classified(error, place).caused_by(error)
}

/// The kind of the error, by the code of Postgres: is the statement, the data or the state of the server the cause?
fn classified(error: &Error, place: &str) -> WorldError {
    let Some(db_error) = error.as_db_error() else {
        let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        if is_statement_specific(error) {
            return WorldError::invalid(format!(
                "a value for Postgres at `{place}` cannot be encoded ({why})"
            ));
        }
        return WorldError::unavailable(format!(
            "the connection to Postgres at `{place}` is lost ({why}); work resumes when the server is back"
        ));
    };
    let why = db_error.message();
    let code = match db_error.code().code() {
        code if code.starts_with("22") || code.starts_with("54") => {
            return WorldError::invalid(format!("Postgres at `{place}` cannot store this ({why})"));
        }
        code if !code.starts_with("23") && !affects_all_statements(code) => {
            return WorldError::invalid(format!("Postgres at `{place}` rejects this ({why}, {code})"));
        }
        code if code.starts_with("23") || code.starts_with("XX") => {
            return WorldError::corrupt(format!(
                "the data in Postgres at `{place}` is inconsistent ({why}); stop, and restore a backup"
            ));
        }
        code => code,
    };
    // An operator can fix these at the server; work waits until then.
    WorldError::unavailable(match remedy(code) {
        Some((what, remedy)) => format!("Postgres at `{place}` {what} ({why}); {remedy}"),
        None => format!("Postgres at `{place}` returned an error: {why} ({code})"),
    })
}

/// What an error code means, and its remedy.
fn remedy(code: &str) -> Option<(&'static str, &'static str)> {
    Some(match code {
        "25006" => ("accepts no writes", "connect to the primary server"),
        "28P01" | "28000" => {
            ("refuses the login of this user", "check the user, the password and the server's `pg_hba.conf`")
        }
        "42501" => (
            "denies this user a privilege",
            "grant it USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its tables",
        ),
        "42P01" | "42883" | "3F000" | "42703" => {
            ("does not have the schema that this build needs", "migrate it, or run the right build")
        }
        "55P03" => ("waits for a lock of another transaction", "end the transaction that holds it"),
        "53100" => ("has no disk space left", "free some; work then resumes"),
        "53200" => ("has no memory left", "add some, or use a smaller `pool`; work then resumes"),
        "53300" | "53400" => {
            ("has no connection left", "raise its `max_connections`, or write a smaller `pool` in the URL")
        }
        "57014" => ("took too long", "check what keeps it busy, or raise `timeout` in the URL"),
        "57P01" | "57P02" | "57P03" => {
            ("is being started, stopped or restarted", "work resumes when it is back")
        }
        "26000" | "42P05" => (
            "has lost or mixed up the prepared statements of a connection, as behind a pooler in transaction mode",
            "connect to the server itself",
        ),
        _ => return None,
    })
}

/// The error of a call to a world that is closed.
pub(crate) fn closed_error() -> WorldError {
    WorldError::Unavailable("the Postgres world is closed; open it again".into())
}

/// The error for a row that cannot be read.
pub(crate) fn corrupt_error(place: &str, why: &dyn std::fmt::Display) -> WorldError {
    WorldError::corrupt(format!("Postgres at `{place}` has an invalid row: {why}"))
}
