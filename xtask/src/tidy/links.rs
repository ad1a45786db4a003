//! Links of documents to files of the project.

use std::path::{Component, Path, PathBuf};

use super::Finding;

/// Finds links to files and headings that do not exist.
pub(super) fn check(root: &Path, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in targets(text) {
        let Some(file) = file_of(path, &target) else { continue };
        let file = file.map(|file| root.join(file));
        if !file.as_ref().is_some_and(|file| file.exists()) {
            findings.push((line, format!("the link `{target}` points to no file of the project")));
        } else if let Some(heading) = heading_of(&target)
            && let Some(document) = file.filter(|file| file.extension().is_some_and(|ending| ending == "md"))
            && !has_heading(&document, heading)
        {
            findings.push((line, format!("the link `{target}` points to no heading of its document")));
        }
    }
    findings.extend(own_headings(text));
    findings
}

/// Links into the same document whose heading does not exist.
fn own_headings(text: &str) -> Vec<Finding> {
    let missing = |(line, target): (usize, String)| {
        let heading = target.strip_prefix('#')?;
        let message = format!("the link `{target}` points to no heading of this document");
        (!headings(text).any(|known| known == heading)).then_some((line, message))
    };
    targets(text).into_iter().filter_map(missing).collect()
}

fn heading_of(target: &str) -> Option<&str> {
    target.split_once('#').map(|(_, heading)| heading)
}

fn has_heading(document: &Path, heading: &str) -> bool {
    // A document that cannot be read is not one of the texts that are checked.
    std::fs::read_to_string(document).map_or(true, |text| headings(&text).any(|known| known == heading))
}

/// The headings of a document as links name them: in lower case, without punctuation, with `-` for spaces.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = lines_outside_fences(text).into_iter();
    let titles =
        lines.filter_map(|(_, line)| line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' '));
    titles.map(|title| {
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || "_- ".contains(*c));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// The targets of all links outside code, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let lines = lines_outside_fences(text);
    let targets = |(number, line): (usize, &str)| -> Vec<_> {
        targets_of_line(&without_code(line)).map(|target| (number, target)).collect()
    };
    lines.into_iter().flat_map(targets).collect()
}

/// The lines of a document that are not in a fenced block of code, with their numbers.
pub(super) fn lines_outside_fences(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let begin = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| begin.starts_with(mark));
        match (fence, mark) {
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, Some(mark)) => fence = Some(mark),
            (None, None) => lines.push((index + 1, line)),
        }
    }
    lines
}

/// The line without its code spans.
fn without_code(line: &str) -> String {
    // Text and code alternate; an unmatched backtick at the end opens no code span.
    let parts: Vec<&str> = line.split('`').collect();
    let kept = parts.iter().enumerate().filter(|(index, _)| index % 2 == 0 || index + 1 == parts.len());
    kept.map(|(_, part)| *part).collect::<Vec<_>>().join("code")
}

/// The targets of `[text](target "title")` and of `[name]: target`.
fn targets_of_line(line: &str) -> impl Iterator<Item = String> {
    let inline = line.match_indices("](").filter_map(|(at, _)| {
        let rest = &line[at + 2..];
        rest.find(')').map(|end| &rest[..end])
    });
    let named = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
    let targets: Vec<String> = inline
        .chain(named)
        .filter_map(|target| {
            let target = target.trim().trim_start_matches('<');
            target.split([' ', '>']).next().map(String::from)
        })
        .collect();
    targets.into_iter()
}

/// The file below the root to which a link points. The outer `None`: it points to no file; the inner `None`: it points
/// out of the project.
fn file_of(from: &str, target: &str) -> Option<Option<PathBuf>> {
    let file = target.split(['#', '?']).next().unwrap_or_default();
    // Without a file it points into the same document; with a colon it is a URL or an item of code.
    if file.is_empty() || file.contains(':') {
        return None;
    }
    let joined = match file.strip_prefix('/') {
        Some(from_root) => PathBuf::from(from_root),
        None => Path::new(from).parent().unwrap_or(Path::new("")).join(file),
    };
    Some(normal(&joined))
}

/// The path without `.` and `..`; `None` if it leads above its beginning.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if !normal.pop() => return None,
            Component::Normal(part) => normal.push(part),
            _ => {}
        }
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(from: &str, text: &str) -> Vec<usize> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        check(root, from, text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn links_to_files_resolve_from_the_document() {
        assert_eq!(found("a.md", "[x](Cargo.toml) [y](src/main.rs#L1) [z](./src \"title\")"), [0; 0]);
        assert_eq!(
            found("src/a.md", "[x](../Cargo.toml) [y](main.rs) [z](/Cargo.toml)\n[n]: main.rs"),
            [0; 0]
        );
        assert_eq!(found("a.md", "\n[x](main.rs) and [y](Cargo.toml)"), [2]);
        assert_eq!(found("a.md", "[x]: gone.md"), [1]);
        assert_eq!(found("a.md", "[x](../xtask/Cargo.toml)"), [1]);
    }

    #[test]
    fn links_to_headings_need_the_heading() {
        assert_eq!(found("a.md", "# A `b`, and c\n[x](#a-b-and-c)\n[y](#a-b)"), [3]);
        assert_eq!(found("a.md", "```\n# part\n```\n[x](#part)"), [4]);
        assert_eq!(found("a.md", "[x](../CONTRIBUTING.md#review)"), [1], "it is not below the root");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(check(root, "a.md", "[x](CONTRIBUTING.md#review) [y](README.md)"), []);
        let found = check(root, "a.md", "[x](CONTRIBUTING.md#reviews)");
        let message = "the link `CONTRIBUTING.md#reviews` points to no heading of its document";
        assert_eq!(found, [(1, message.to_owned())]);
    }

    #[test]
    fn links_to_other_targets_are_ignored() {
        assert_eq!(found("a.md", "[x](https://example.org/a.md) [z](mailto:a@example.org)"), [0; 0]);
        assert_eq!(found("a.md", "[x](crate::World) `[y](gone.md)`\n```\n[z](gone.md)\n```"), [0; 0]);
        assert_eq!(found("a.md", "```\n```\n[z](gone.md)"), [3]);
    }
}
