//! What Postgres refuses, sorted by what the caller does next.

use outlast_core::WorldError;
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

/// Whether the same statement may succeed at once: others were in the way, and nothing of it was done.
pub(crate) fn is_overtaken(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE))
}

/// Whether others waited for each other in a circle with the statement: at once it may happen again.
pub(crate) fn is_deadlock(error: &Error) -> bool {
    error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED)
}

/// Whether somebody else had locked what the statement changes for too long.
pub(crate) fn is_locked(error: &Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// The rules that every joined worker knows, when a start was refused because it has higher ones.
pub(crate) fn known_rules(error: &Error) -> Option<u32> {
    let refused = error.as_db_error().filter(|refused| refused.code().code() == "OL001")?;
    refused.detail()?.parse().ok()
}

/// Whether the statement was refused for what it says, so that a part of it may be accepted. What is wrong with the
/// connection, the server or the schema concerns all statements; everything else is about this one, also what a
/// trigger of somebody else raises.
pub(crate) fn is_about_data(error: &Error) -> bool {
    match error.code() {
        // What cannot be encoded never left this process.
        None => !error.is_closed() && std::error::Error::source(error).is_some_and(|source| !is_io(source)),
        Some(code) => !concerns_all(code.code()),
    }
}

/// Whether a statement with turns was refused for what becomes of one of them. Beside what it says, that is what its rows
/// are like (`XX`), what a trigger needs (`55`), and what others always do at the same time (`40`): no other turn is to wait
/// for that. Locks are waited for.
pub(crate) fn is_of_turn(error: &Error) -> bool {
    let is_of_rows = |code: &SqlState| {
        ["40", "55", "XX"].iter().any(|class| code.code().starts_with(class))
            && *code != SqlState::LOCK_NOT_AVAILABLE
    };
    is_about_data(error) || error.code().is_some_and(is_of_rows)
}

/// Whether a statement with turns may have been refused for one of them, though such a refusal usually concerns all
/// statements: a trigger may raise whatever it likes. What it cannot do is to end the connection; and a connection whose
/// statements or transactions are not as they should be is not its doing.
pub(crate) fn may_be_of_turn(error: &Error) -> bool {
    error.as_db_error().is_some_and(|refused| {
        let code = refused.code().code();
        refused.parsed_severity() == Some(Severity::Error)
            && !code.starts_with("26")
            && !code.starts_with("25P")
            && !matches!(code, "42P05" | "55P03")
    })
}

/// Whether the statement was given up because it took too long, or somebody stopped it.
pub(crate) fn is_cancelled(error: &Error) -> bool {
    error.code() == Some(&SqlState::QUERY_CANCELED)
}

/// Whether the server had no room for what the statement writes, or could not write it.
pub(crate) fn is_about_space(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("53") || code.code().starts_with("58"))
}

/// Whether the same statement is refused every time: its values cannot be stored (`22`, `54`), a constraint does not hold
/// for them (`23`), or what a trigger asks for does not exist (`0A`, `21`, `42`; but a table or a right that is missing may
/// be there a moment later). What never left this process is the same
/// next time too. Everything else, as what a trigger raises, may be different a moment later.
pub(crate) fn is_permanent(error: &Error) -> bool {
    error.code().is_none_or(|code| {
        ["0A", "21", "22", "23", "42", "54"].iter().any(|class| code.code().starts_with(class))
            && !concerns_all(code.code())
    })
}

/// Whether a code says that something is wrong with more than one statement, or only for a while: connections,
/// rights, the schema, resources, an operator, the system; and what others did at the same time.
fn concerns_all(code: &str) -> bool {
    const CLASSES: [&str; 11] = ["08", "25", "26", "28", "3D", "3F", "40", "53", "55", "57", "58"];
    CLASSES.iter().any(|class| code.starts_with(class))
        || code.starts_with("XX")
        || matches!(code, "42501" | "42P01" | "42883" | "42703" | "42P05")
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
    let text = match code.code() {
        text if text.starts_with("22") || text.starts_with("54") => {
            return WorldError::Invalid(format!("Postgres at `{place}` cannot store this ({why})"));
        }
        text if !text.starts_with("23") && !concerns_all(text) => {
            return WorldError::Invalid(format!("Postgres at `{place}` refuses this ({why}, {text})"));
        }
        text if text.starts_with("23") || text.starts_with("XX") => {
            return WorldError::Corrupt(format!(
                "Postgres at `{place}` holds what does not fit together ({why}); stop, and restore a backup"
            ));
        }
        text => text,
    };
    // What somebody mends at the server: work waits for it.
    WorldError::Unavailable(match remedy(text) {
        Some((what, remedy)) => format!("Postgres at `{place}` {what} ({why}); {remedy}"),
        None => format!("Postgres at `{place}` did not do it: {why} ({text})"),
    })
}

/// What a refusal means, and what to do.
fn remedy(code: &str) -> Option<(&'static str, &'static str)> {
    Some(match code {
        "25006" => ("takes no writes", "connect to the primary server"),
        "28P01" | "28000" => {
            ("does not let this user in", "check the user, the password and the server's `pg_hba.conf`")
        }
        "42501" => (
            "does not let this user do that",
            "grant it USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its tables",
        ),
        "42P01" | "42883" | "3F000" | "42703" => {
            ("has not the schema that this build needs", "migrate it, or run the right build")
        }
        "55P03" => ("waits for a lock of somebody else", "end the transaction that holds it"),
        "53100" => ("has no space left on its disk", "free some; work goes on by itself"),
        "53200" => ("has no memory left", "give it more, or use a smaller `pool`; work goes on by itself"),
        "53300" | "53400" => {
            ("has no connection left", "raise its `max_connections`, or write a smaller `pool` in the URL")
        }
        "57014" => ("took too long", "look what keeps it busy, or raise `timeout` in the URL"),
        "57P01" | "57P02" | "57P03" => {
            ("is being started, stopped or restarted", "work goes on by itself when it is back")
        }
        "26000" | "42P05" => (
            "has lost or confused the statements of a connection, as behind a pooler in transaction mode",
            "connect to the server itself",
        ),
        _ => return None,
    })
}

/// What is asked of a world that is gone.
pub(crate) fn closed() -> WorldError {
    WorldError::Unavailable("the Postgres world is closed; open it again".into())
}

/// A row that no world wrote.
pub(crate) fn corrupt(place: &str, why: &dyn std::fmt::Display) -> WorldError {
    WorldError::Corrupt(format!("Postgres at `{place}` holds a row that no world wrote: {why}"))
}
