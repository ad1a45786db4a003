//! Ids of runs in tables.

use outlast::RunId;

use super::style::Look;

/// How many characters of the end of an id are shown. Ids begin with their time, so new runs share their beginning.
const END: usize = 6;

/// The id of a run: its end in a terminal, otherwise all of it.
pub(crate) fn short_id(look: Look, run: RunId) -> String {
    let full = run.to_string();
    if !look.is_terminal {
        return full;
    }
    format!("run_{}{}", look.either("…", ".."), &full[full.len() - END..])
}

/// The id as a person types it in the next command.
pub(crate) fn typed_id(look: Look, run: RunId) -> String {
    let full = run.to_string();
    if look.is_terminal { full[full.len() - END..].to_owned() } else { full }
}
