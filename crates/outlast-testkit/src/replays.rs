//! Recorded histories as tests: does today's code still match them?

use std::path::{Path, PathBuf};

use outlast::Register;
use outlast_core::History;

/// Replays exported histories with the given code, and panics with the report of the first that does not
/// match.
///
/// `files` is a path, whose last part may hold `*`: `"histories/*.json"`. It is taken from the folder in
/// which tests run, that of the crate. The files are what `Client::export` returns. Steps need not be
/// given: a replay attempts none.
///
/// ```
/// use outlast::prelude::*;
/// use outlast_testkit::assert_replays;
///
/// #[workflow]
/// async fn greet(ctx: Context, name: String) -> Result<String, Error> {
///     ctx.sleep("3d").await?;
///     Ok(format!("hello {name}"))
/// }
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let history = r#"{"run":"run_00000000000000000000000001","turns":[{"id":"turn_00000000000000000000000002","at":0,"build":"a","events":[
/// #   {"kind":"run_started","workflow":"greet","version":1,"format":1,"input":"Ada"},{"kind":"timer_started","op":0,"fire_at":1}]}]}"#;
/// # std::fs::write(folder.path().join("asleep.json"), history).unwrap();
/// # let files = folder.path().join("*.json");
/// # let files = files.to_str().unwrap();
/// // let files = "histories/*.json";
/// assert_replays(greet, files);
/// ```
///
/// # Panics
///
/// When the code does not match a history, a file is no history, or there is no such file.
#[track_caller]
pub fn assert_replays<R, M>(code: R, files: &str)
where
    R: Register<(), M> + Clone,
{
    let paths = paths_of(files);
    assert!(!paths.is_empty(), "there is no file `{files}`; export some histories with `Client::export`");
    for path in paths {
        let shown = path.display();
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{shown}: {error}"));
        let history = History::from_json(&text).unwrap_or_else(|error| panic!("{shown}: {error}"));
        if let Err(error) = outlast::replay(code.clone(), history) {
            panic!("{shown}: {}", error.message());
        }
    }
}

/// The files that a pattern means, in the order of their names.
fn paths_of(files: &str) -> Vec<PathBuf> {
    let path = Path::new(files);
    let pattern = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| is_like(name, pattern)))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

/// Whether a name is like a pattern, in which `*` stands for anything.
fn is_like(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.into_iter().any(|at| is_like(&rest[at..], after))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn a_star_stands_for_anything() {
        for (name, pattern) in [("a.json", "*.json"), ("a.json", "a.json"), ("abcab", "a*b*b"), ("", "*")] {
            assert!(is_like(name, pattern), "{name} {pattern}");
        }
        for (name, pattern) in [("a.txt", "*.json"), ("b.json", "a*"), ("ab", "a"), ("a", "ab*")] {
            assert!(!is_like(name, pattern), "{name} {pattern}");
        }
    }
}
