//! Replays recorded histories with the current code.

use std::path::{Path, PathBuf};

use outlast::Register;
use outlast::core::queue::BUILT_IN_PREFIX;
use outlast_core::{Event, History};

/// Replays exported histories with the given code, and panics with a report for the first one that does not match.
///
/// `files` is a path whose last part may contain `*`: `"histories/*.json"`. It is relative to the folder of the crate. The
/// files contain the output of `Client::export`. Steps need not be given: a replay attempts none.
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
/// When the code does not match a history or the history's workflow is not in it, when a file is no
/// history, or there is no such file. What is compared is the kind, name and order of operations.
#[track_caller]
pub fn assert_replays<R, M>(code: R, files: &str)
where
    R: Register<(), M> + Clone,
{
    let paths = paths_of(files);
    assert!(!paths.is_empty(), "there is no file `{files}`; export some histories with `Client::export`");
    for path in paths {
        let shown = path.display();
        // Without closures: a panic in a closure would not show the test's line.
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => panic!("{shown}: {error}"),
        };
        let history = match History::from_json(&text) {
            Ok(history) => history,
            Err(error) => panic!("{shown}: {error}"),
        };
        let missing = missing_code(code.clone(), &history);
        if let Err(error) = outlast::replay(code.clone(), history) {
            panic!("{shown}: {}", missing.as_deref().unwrap_or(error.message()));
        }
    }
}

/// The message if the workflow of a history is not among the given code.
fn missing_code<R: Register<(), M>, M>(code: R, history: &History) -> Option<String> {
    let Event::RunStarted(started) = history.turns.first()?.events.first()? else { return None };
    let (workflow, version) = (&*started.workflow, started.version);
    let given = outlast::test_support::rehearse::workflows_of(code).ok()?;
    if given.iter().any(|(name, given)| name == workflow && *given == version) {
        return None;
    }
    let own = given.iter().filter(|(name, _)| !name.starts_with(BUILT_IN_PREFIX));
    let given: Vec<_> = own.map(|(name, version)| format!("`{name}` version {version}")).collect();
    let given = if given.is_empty() { "no workflow".to_owned() } else { given.join(", ") };
    Some(format!(
        "run {} is one of workflow `{workflow}`, version {version}, and `assert_replays` was given {given}; \
         give it that function as well, as a tuple, or remove the file when no such run is left",
        history.run
    ))
}

/// The files that match a pattern, sorted by name.
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

/// Whether a name matches a pattern, in which `*` stands for any text.
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
