//! The replay does no I/O: its code names neither a world nor a clock, nor the parts of the library that use them. So the
//! same history and code always lead to the same operations, and it could become a crate of its own.

use super::Finding;
use super::source::Source;

const FILE: &str = "crates/outlast/src/replay.rs";
const FOLDER: &str = "crates/outlast/src/replay/";

/// Types and traits that the replay must not name.
const TYPES: [&str; 6] = ["Client", "Clock", "Instant", "SystemTime", "World", "Worker"];

/// Modules of the library that it must not use.
const MODULES: [&str; 4] = ["client", "clock", "open", "worker"];

/// Whether the file belongs to the replay.
pub(super) fn is_checked(path: &str) -> bool {
    path == FILE || path.starts_with(FOLDER)
}

/// Finds names that the replay must not use.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let tokens = source.tokens();
    let is_of_crate =
        |at: usize| at >= 3 && tokens[at - 1].is(":") && tokens[at - 2].is(":") && tokens[at - 3].is("crate");
    let is_refused =
        |(at, text): (usize, &str)| TYPES.contains(&text) || MODULES.contains(&text) && is_of_crate(at);
    tokens
        .iter()
        .enumerate()
        .filter(|(at, token)| is_refused((*at, token.text.as_str())))
        .map(|(_, token)| {
            let name = &token.text;
            (
                token.line,
                format!("the replay names `{name}`; it uses neither worlds nor clocks, pass it the value"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&Source::new(text)).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn worlds_and_clocks_are_found() {
        assert_eq!(lines("use outlast_core::{RunId, World};\nfn f(now: Instant) {}"), [1, 2]);
        assert_eq!(lines("use crate::clock::monotonic;\nlet now = crate::worker::now();"), [1, 2]);
    }

    #[test]
    fn comments_literals_and_other_words_are_not() {
        assert_eq!(lines("/// As a [`World`] does.\nlet clock = \"World\";\nuse self::clock;"), [0; 0]);
    }

    #[test]
    fn only_the_replay_is_checked() {
        assert!(
            is_checked("crates/outlast/src/replay.rs") && is_checked("crates/outlast/src/replay/machine.rs")
        );
        assert!(!is_checked("crates/outlast/src/replay_tools.rs") && !is_checked("chaos/src/replay/a.rs"));
    }
}
