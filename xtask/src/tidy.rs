//! `cargo xtask tidy`: rules that no compiler checks.

mod functions;
mod links;
pub(crate) mod manifests;
mod named_files;
mod replay;
mod source;
mod type_names;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::api;
use crate::error::{Error, Result};
use crate::tree::{self, TextFile};

use source::Source;

/// The text of `help`.
pub(crate) const HELP: &str = "\
tidy [FOLDER]
    Check the tree: size of files and functions, unfinished code, paths of one machine, comments on
    SQL files, links between documents, files that documents name, manifests of crates, repeated
    names of types, names that the replay must not use, listings of the public API. Prints
    `path:line: message`.";

/// The maximum number of lines of a source file.
const FILE_LINES_MAX: usize = 700;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// The line of a violation, and its message.
type Finding = (usize, String);

/// Checks the tree, or the one in the given folder.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    match arguments {
        [] => check(root),
        [folder] if !folder.starts_with('-') => check(&PathBuf::from(folder)),
        _ => Err(Error::Usage(format!("`tidy` takes one folder at the most: {}", arguments.join(" ")))),
    }
}

/// Prints every violation in the tree, and fails if there is one.
pub(crate) fn check(root: &Path) -> Result<()> {
    let files = tree::files(root)?;
    if files.is_empty() {
        return Err(Error::Failed(format!("there are no files in {}", root.display())));
    }
    let mut violations: Vec<Violation> =
        files.iter().flat_map(|file| check_file(root, file, &files)).collect();
    violations.extend(type_names::check(&files));
    let outdated = api::outdated(&files).into_iter();
    violations.extend(outdated.map(|api::OutdatedListing { path, line, message }| Violation {
        path,
        line,
        message,
    }));
    violations.sort();
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        1 => Err(Error::Failed("the tree has 1 violation, see above".into())),
        count => Err(Error::Failed(format!("the tree has {count} violations, see above"))),
    }
}

/// Checks one file of the tree that has `files`.
fn check_file(root: &Path, file: &TextFile, files: &[TextFile]) -> Vec<Violation> {
    let mut findings = words::check_any(root, &file.text);
    if file.has_extension("rs") {
        let source = Source::new(&file.text);
        findings.extend(check_length(&file.text));
        findings.extend(words::check_rust(&source));
        if !is_test_code(&file.path) {
            findings.extend(functions::check(&source));
            if replay::is_checked(&file.path) {
                findings.extend(replay::check(&source));
            }
        }
    }
    if file.has_extension("sql") {
        findings.extend(words::check_sql(&file.text));
    }
    if file.has_extension("md") {
        findings.extend(links::check(root, &file.path, &file.text));
    }
    if named_files::is_checked(&file.path) {
        findings.extend(named_files::check(&file.text, files));
    }
    if manifests::is_of_a_crate(&file.path) {
        findings.extend(manifests::check(&file.text));
    } else if manifests::is_of_a_package(&file.path, &file.text) {
        findings.extend(manifests::check_unpublished(&file.text));
    }
    let violation = |(line, message)| Violation { path: file.path.clone(), line, message };
    findings.into_iter().map(violation).collect()
}

fn check_length(text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    (lines > FILE_LINES_MAX).then(|| {
        (FILE_LINES_MAX + 1, format!("the file has {lines} lines, the limit is {FILE_LINES_MAX}; split it"))
    })
}

/// Whether the file contains only tests: it is in a folder `tests`, or is a module of that name.
fn is_test_code(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_over_the_limit_is_a_violation() {
        assert_eq!(check_length(&"x\n".repeat(FILE_LINES_MAX)), None);
        assert_eq!(check_length(&"x\n".repeat(FILE_LINES_MAX + 1)).unwrap().0, FILE_LINES_MAX + 1);
    }

    #[test]
    fn test_code_is_known_by_its_path() {
        assert!(is_test_code("crates/a/tests/b.rs") && is_test_code("crates/a/src/b/tests.rs"));
        assert!(!is_test_code("crates/a/src/tests_of_worlds.rs") && !is_test_code("xtask/src/test.rs"));
    }
}
