//! Words that no file may contain, and the comment at the beginning of SQL files.

use std::path::Path;

use super::Finding;
use super::source::Source;

// Each in two parts, so that this file does not contain them.
const UNFINISHED: &[&str] = &[concat!("FIX", "ME")];
const UNFINISHED_CODE: &[&str] = &[concat!("todo", "!("), concat!("unimplemented", "!(")];
const HOMES: &[&str] =
    &[concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/ro", "ot/"), concat!(r"C:\Us", "ers")];

/// Finds marks of unfinished work, and paths of one machine.
pub(super) fn check_any(root: &Path, text: &str) -> Vec<Finding> {
    let root = checkout(root);
    let places: Vec<&str> = HOMES.iter().copied().chain(root.as_deref()).collect();
    let mut findings = Vec::new();
    for (line, text) in lines(text) {
        for mark in UNFINISHED.iter().filter(|mark| text.contains(**mark)) {
            findings.push((line, format!("`{mark}` marks unfinished work; finish it, or open an issue")));
        }
        if let Some(place) = places.iter().find(|place| holds_path(text, place)) {
            findings
                .push((line, format!("`{place}` is a path of one machine; use a relative or temporary one")));
        }
    }
    findings
}

/// Finds macros for unfinished code, and private items of dependencies. Literals may contain them.
pub(super) fn check_rust(source: &Source) -> Vec<Finding> {
    let text = source.without_literals();
    let mut findings = Vec::new();
    for (line, text) in lines(&text) {
        if uses_private_item(text) {
            findings.push((line, "`::__…` is a private item of another crate; use its public API".into()));
        }
        for mark in UNFINISHED_CODE.iter().filter(|mark| text.contains(**mark)) {
            findings.push((line, format!("`{mark}…)` is unfinished code; finish it, or remove it")));
        }
    }
    findings
}

/// Whether the line names an item with two leading underscores of another crate than `outlast`, whose macros need one.
fn uses_private_item(line: &str) -> bool {
    line.match_indices("::__")
        .any(|(at, _)| !line[..at].ends_with("outlast") && !line[..at].ends_with("crate"))
}

/// Finds SQL files that do not begin with a comment.
pub(super) fn check_sql(text: &str) -> Option<Finding> {
    let has_comment = text.starts_with("--") || text.starts_with("/*");
    (!has_comment).then(|| (1, "the file does not start with a comment; explain the statement".into()))
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// The path of this checkout, unless it is directly below `/`, which is too short to search for.
fn checkout(root: &Path) -> Option<String> {
    let root = root.canonicalize().ok()?;
    (root.components().count() > 2).then(|| root.to_string_lossy().into_owned())
}

/// Whether the line contains an absolute path that begins with `place`.
fn holds_path(line: &str, place: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || "._-~*{}<>$/".contains(c);
    line.match_indices(place).any(|(at, _)| !line[..at].ends_with(continues))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(text: &str) -> Vec<usize> {
        check_any(Path::new("no such folder"), text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn marks_of_unfinished_work_are_found_in_any_text() {
        assert_eq!(any(concat!("a\n# FIX", "ME later")), [2]);
        assert_eq!(any("fix me"), [0; 0]);
    }

    #[test]
    fn unfinished_code_is_found_except_in_literals() {
        let found = |text| check_rust(&Source::new(text)).len();
        assert_eq!(found(concat!("fn f() { todo", "!() }")), 1);
        assert_eq!(found(concat!("/// unimplemented", "!(\"x\")")), 1);
        assert_eq!(found(concat!("\"todo", "!()\"")), 0);
    }

    #[test]
    fn private_items_of_dependencies_are_found() {
        let found = |text| check_rust(&Source::new(text)).len();
        assert_eq!(found("let error = Error::__private_api_timeout();"), 1);
        assert_eq!(found("quote!(::outlast::__private::Context)"), 0);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        assert_eq!(any(concat!("see /ho", "me/ada/x")), [1]);
        assert_eq!(any(concat!("\"/Us", "ers/ada\"")), [1]);
        assert_eq!(any(concat!("https://example.org/ho", "me/x and $TMP/ro", "ot/")), [0; 0]);
        let here = std::env::current_dir().unwrap();
        let text = format!("(see {})", here.canonicalize().unwrap().display());
        assert!(!check_any(&here, &text).is_empty());
    }

    #[test]
    fn an_sql_file_begins_with_a_comment() {
        assert_eq!(check_sql("-- Why.\nSELECT 1;"), None);
        assert_eq!(check_sql("SELECT 1; -- Why.").unwrap().0, 1);
    }
}
