//! Files of the project that documents name as code, such as `worker/session/beat.rs`.

use super::Finding;
use super::links::lines_outside_fences;
use crate::tree::TextFile;

/// The extensions of files whose names are checked.
const EXTENSIONS: [&str; 7] = ["rs", "sql", "md", "js", "css", "json", "yaml"];

/// Whether the document describes the code as it is: `ARCHITECTURE.md`, `docs/commit.md` and the like. Decisions and the
/// changelog describe the past, and the guide names files of its readers.
pub(super) fn is_checked(path: &str) -> bool {
    match path.strip_prefix("docs/") {
        Some(name) => !name.contains('/') && name.ends_with(".md"),
        None => !path.contains('/') && path.ends_with(".md") && path != "CHANGELOG.md",
    }
}

/// Finds names of files that no file of the project has. A name may leave out folders at its beginning.
pub(super) fn check(text: &str, files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in lines_outside_fences(text) {
        // Text and code alternate.
        for name in text.split('`').skip(1).step_by(2).filter(|code| is_file_name(code)) {
            if !files.iter().any(|file| is_named(&file.path, name)) {
                findings.push((line, format!("no file of the project is named `{name}`")));
            }
        }
    }
    findings
}

/// Whether the code is the name of one file, without placeholders such as `*` and `…`.
fn is_file_name(code: &str) -> bool {
    let known = code.rsplit_once('.').is_some_and(|(stem, extension)| {
        stem.chars().any(char::is_alphanumeric) && EXTENSIONS.contains(&extension)
    });
    known && code.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c))
}

fn is_named(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|folders| folders.is_empty() || folders.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Finding> {
        let file = |path: &str| TextFile { path: path.into(), text: String::new() };
        check(text, &[file("README.md"), file("crates/a/src/run/task.rs")])
    }

    #[test]
    fn a_name_may_leave_out_the_first_folders() {
        assert_eq!(found("`task.rs`, `run/task.rs`, `crates/a/src/run/task.rs`, `README.md`"), []);
    }

    #[test]
    fn a_file_that_does_not_exist_is_named_with_its_line() {
        let message = "no file of the project is named `run/tasks.rs`";
        assert_eq!(found("first\n`run/task.rs` and `run/tasks.rs`"), [(2, message.to_owned())]);
        assert_eq!(found("`un/task.rs`").len(), 1, "a folder has its whole name");
    }

    #[test]
    fn code_fences_patterns_and_other_code_are_left_alone() {
        assert_eq!(found("`sql/*.sql` `worker/` `Retry.rs::x` `.rs` `shop.db`\n```text\n`gone.rs`\n```"), []);
    }

    #[test]
    fn documents_of_the_present_are_checked() {
        assert!(["ARCHITECTURE.md", "docs/commit.md"].map(is_checked) == [true; 2]);
        let past =
            ["CHANGELOG.md", "docs/decisions/0001-x.md", "docs/guide/src/time.md", "crates/a/src/lib.rs"];
        assert!(past.map(is_checked) == [false; 4]);
    }
}
