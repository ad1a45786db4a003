//! `cargo xtask api`: the public items of each published crate, as text that a test keeps true.
//!
//! The lint `unreachable_pub` makes sure that an item with `pub` can be used from outside of its crate, and all code is
//! formatted by rustfmt. So the listing needs no compiler: it has every declaration that begins with `pub`, in the order
//! of names, without bodies. What a macro generates appears as the macro declares it, and what is hidden in the
//! documentation, or exists for tests only, does not appear.

mod declarations;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::tidy::manifests;
use crate::tree::{self, TextFile};

/// The text of `help`.
pub(crate) const HELP: &str = "\
api
    Write the public items of the published crates to `docs/api`. `tidy` fails while they differ.";

/// The folder of the listings.
const FOLDER: &str = "docs/api";

/// A published crate without a listing: its public functions are the cases of the suite, which its own macros call.
const UNLISTED: &str = "outlast-conformance";

/// Writes the listings.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if let Some(argument) = arguments.first() {
        return Err(Error::Usage(format!("`api` takes no arguments: {argument}")));
    }
    let failed = |path: &str, error| Error::Failed(format!("cannot write {path}: {error}"));
    fs::create_dir_all(root.join(FOLDER)).map_err(|error| failed(FOLDER, error))?;
    for (path, text) in listings(&tree::files(root)?) {
        fs::write(root.join(&path), text).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// A listing that does not agree with the code: its path, its first line that differs, and what to do.
pub(crate) struct OutdatedListing {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// Compares the listings with the code. A tree without the folder of the listings needs none.
pub(crate) fn outdated(files: &[TextFile]) -> Vec<OutdatedListing> {
    let stored: BTreeMap<&str, &str> = files
        .iter()
        .filter(|file| file.path.strip_prefix(FOLDER).is_some_and(|name| name.ends_with(".txt")))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    if stored.is_empty() {
        return Vec::new();
    }
    let expected = listings(files);
    let removed = stored.keys().filter(|path| !expected.contains_key(**path));
    let removed = removed.map(|path| OutdatedListing {
        path: (*path).to_owned(),
        line: 1,
        message: "no published crate has this name; remove the file".to_owned(),
    });
    let changed = expected.iter().filter_map(|(path, text)| compare(path, stored.get(path.as_str()), text));
    changed.chain(removed).collect()
}

fn compare(path: &str, stored: Option<&&str>, expected: &str) -> Option<OutdatedListing> {
    let stored = stored.copied().unwrap_or_default();
    let line = stored
        .lines()
        .zip(expected.lines())
        .position(|(stored, expected)| stored != expected)
        .unwrap_or_else(|| stored.lines().count().min(expected.lines().count()));
    let message = match (stored.lines().nth(line), expected.lines().nth(line)) {
        (None, None) if stored == expected => return None,
        (_, Some(expected)) => format!("the public API differs, here it is `{expected}`"),
        (_, None) => "the public API differs, the listing ends before this line".to_owned(),
    };
    let message = format!("{message}; if the change is intended, run `cargo xtask api`");
    Some(OutdatedListing { path: path.to_owned(), line: line + 1, message })
}

/// The listing of each published crate, by its path.
fn listings(files: &[TextFile]) -> BTreeMap<String, String> {
    let is_crate =
        |file: &&TextFile| manifests::is_of_a_crate(&file.path) && manifests::is_published(&file.text);
    let named = files.iter().filter(is_crate).filter_map(|file| Some((file, manifests::name(&file.text)?)));
    named
        .filter(|(_, name)| name != UNLISTED)
        .map(|(manifest, name)| {
            let source = format!("{}src/", manifest.path.strip_suffix("Cargo.toml").unwrap_or_default());
            let sources: Vec<_> = files
                .iter()
                .filter_map(|file| Some((file.path.strip_prefix(&source)?, file.text.as_str())))
                .collect();
            (format!("{FOLDER}/{name}.txt"), declarations::listing(&sources))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of the violations in a tree with this code and this listing of the crate `a`.
    fn found(code: &str, listing: &str) -> Vec<String> {
        let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
        let files = [
            file("crates/a/Cargo.toml", "[package]\nname = \"a\"\nlicense = \"MIT\"\n"),
            file("crates/a/src/lib.rs", code),
            file("docs/api/a.txt", listing),
        ];
        let found = outdated(&files);
        found.iter().map(|found| format!("{}:{}: {}", found.path, found.line, found.message)).collect()
    }

    #[test]
    fn a_listing_that_agrees_is_no_violation() {
        assert!(found("pub fn f() {\n}\n", "fn f()\n").is_empty());
    }

    #[test]
    fn the_first_difference_is_named_with_the_remedy() {
        let advice = "; if the change is intended, run `cargo xtask api`";
        let code = "pub fn f() {\n}\n\npub fn g() {\n}\n";
        let place = "docs/api/a.txt:2: the public API differs,";
        assert_eq!(found(code, "fn f()\n"), [format!("{place} here it is `fn g()`{advice}")]);
        assert_eq!(
            found(code, "fn f()\nfn g()\nfn h()\n"),
            [format!("docs/api/a.txt:3: the public API differs, the listing ends before this line{advice}")]
        );
    }

    #[test]
    fn a_listing_without_a_crate_is_to_be_removed() {
        let files = [TextFile { path: "docs/api/gone.txt".into(), text: String::new() }];
        assert_eq!(outdated(&files).len(), 1);
        assert!(outdated(&[]).is_empty());
    }
}
