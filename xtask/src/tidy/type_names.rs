//! The names of types: each exists once in its crate, each public one once in the workspace, and none is that of a type or
//! trait of the standard library that every reader knows.
//!
//! Associated types (`type Output = …` in an `impl` or `trait`), aliases named `Result`, test code and the bodies of
//! `macro_rules!` are exempt. Alternatives for different platforms may repeat names: an item with `#[cfg(not(…))]`, and a
//! file `no_x.rs` beside `x.rs`.

use std::collections::BTreeMap;

use super::Violation;
use super::functions::{begins_with, body, closing, exempt};
use super::is_test_code;
use super::source::{Source, Token};
use crate::tree::TextFile;

/// Names of the standard library's prelude and marker traits, and of types that are as well known.
const STANDARD_NAMES: [&str; 28] = [
    "AsRef", "Box", "Cell", "Clone", "Copy", "Default", "Drop", "Eq", "Fn", "FnMut", "FnOnce", "From",
    "Future", "Into", "Iterator", "None", "Option", "Ord", "Ordering", "Pin", "Poll", "Result", "Send",
    "Some", "String", "Sync", "ToString", "Vec",
];

/// A declaration of a type or trait.
#[derive(Debug)]
struct Declaration<'f> {
    path: &'f str,
    line: usize,
    name: String,
    is_public: bool,
}

/// Finds types with the name of another type, or of one of the standard library.
pub(super) fn check(files: &[TextFile]) -> Vec<Violation> {
    let sources = files.iter().filter(|file| file.has_extension("rs") && !is_test_code(&file.path));
    let declarations: Vec<_> = sources.filter_map(|file| Some((crate_of(&file.path)?, file))).collect();
    let declarations: Vec<_> = declarations
        .into_iter()
        .flat_map(|(owner, file)| declarations_in(file).into_iter().map(move |found| (owner, found)))
        .collect();
    let mut violations: Vec<_> =
        declarations.iter().filter_map(|(_, declaration)| standard_name(declaration)).collect();
    let in_crates = declarations.iter().map(|(owner, found)| ((*owner, found.name.as_str()), found));
    violations.extend(repeated(in_crates, "in the crate"));
    let public = declarations.iter().filter(|(owner, found)| found.is_public && is_library(owner));
    let public = public.map(|(owner, found)| (("", found.name.as_str()), (*owner, found)));
    violations.extend(repeated_in_other_crate(public));
    violations
}

/// The folder of the crate whose `src` holds the file.
fn crate_of(path: &str) -> Option<&str> {
    let at = if path.starts_with("src/") { 0 } else { path.find("/src/")? };
    Some(&path[..at])
}

/// Whether the crate is one that others may depend on.
fn is_library(owner: &str) -> bool {
    owner.starts_with("crates/")
}

fn standard_name(declaration: &Declaration<'_>) -> Option<Violation> {
    let name = STANDARD_NAMES.iter().find(|name| declaration.name == **name)?;
    let message =
        format!("type `{name}` has the name of an item of the standard library; choose another name");
    Some(declaration.violation(message))
}

/// The declarations whose name another one of the same crate has.
fn repeated<'d>(
    declarations: impl Iterator<Item = ((&'d str, &'d str), &'d Declaration<'d>)>,
    scope: &str,
) -> Vec<Violation> {
    let mut first: BTreeMap<(&str, &str), &Declaration<'_>> = BTreeMap::new();
    let mut violations = Vec::new();
    for (key, declaration) in declarations {
        match first.get(&key) {
            None => drop(first.insert(key, declaration)),
            Some(other) if are_alternatives(other.path, declaration.path) => {}
            Some(other) => violations.push(declaration.repeats(other, scope)),
        }
    }
    violations
}

/// The public declarations whose name a public one of another crate has.
fn repeated_in_other_crate<'d>(
    declarations: impl Iterator<Item = ((&'d str, &'d str), (&'d str, &'d Declaration<'d>))>,
) -> Vec<Violation> {
    let mut first: BTreeMap<(&str, &str), (&str, &Declaration<'_>)> = BTreeMap::new();
    let mut violations = Vec::new();
    for (key, (owner, declaration)) in declarations {
        match first.get(&key) {
            None => drop(first.insert(key, (owner, declaration))),
            Some((other_owner, other)) if *other_owner != owner => {
                violations.push(declaration.repeats(other, "in the workspace"));
            }
            Some(_) => {}
        }
    }
    violations
}

/// Whether one of two files is the alternative of the other for platforms that lack something.
fn are_alternatives(one: &str, other: &str) -> bool {
    let parts = |path| str::rsplit_once(path, '/').unwrap_or(("", path));
    let ((folder, one), (other_folder, other)) = (parts(one), parts(other));
    let is_of = |without: &str, with: &str| without.strip_prefix("no_") == Some(with);
    folder == other_folder && (is_of(one, other) || is_of(other, one))
}

impl Declaration<'_> {
    fn violation(&self, message: String) -> Violation {
        Violation { path: self.path.to_owned(), line: self.line, message }
    }

    fn repeats(&self, other: &Self, scope: &str) -> Violation {
        let (name, place) = (&self.name, format!("{}:{}", other.path, other.line));
        self.violation(format!("type `{name}` exists twice {scope}, also at {place}; rename one of them"))
    }
}

/// The types and traits that a file declares.
fn declarations_in(file: &TextFile) -> Vec<Declaration<'_>> {
    let tokens = Source::new(&file.text).tokens();
    let (mut found, mut at) = (Vec::new(), 0);
    // The end of the last `impl` or `trait` so far: a `type` before it is an associated one.
    let mut associated_until = 0;
    let mut alternative = None;
    while at < tokens.len() {
        if let Some(end) = exempt(&tokens, at) {
            at = end.max(at + 1);
            continue;
        }
        if begins_with(&tokens[at..], &["#", "[", "cfg", "(", "not"]) {
            alternative = Some(keyword_after(&tokens, at));
        }
        if tokens[at].is("impl") || tokens[at].is("trait") {
            let end = body(&tokens, at + 1).map_or(at, |open| closing(&tokens, open));
            associated_until = associated_until.max(end);
        }
        let is_alias = tokens[at].is("type");
        let is_item = ["struct", "enum", "trait"].iter().any(|word| tokens[at].is(word))
            || is_alias && at >= associated_until;
        if let Some(name) = tokens.get(at + 1).filter(|name| is_item && name.is_word())
            && !(is_alias && name.is("Result"))
            && alternative != Some(at)
        {
            let (line, name, is_public) = (name.line, name.text.clone(), is_public(&tokens[..at]));
            found.push(Declaration { path: &file.path, line, name, is_public });
        }
        at += 1;
    }
    found
}

/// The keyword of the item after the attribute at `at`: the first token that is neither an attribute nor a visibility.
fn keyword_after(tokens: &[Token], at: usize) -> usize {
    let mut at = at;
    loop {
        let is_restricted = tokens.get(at + 1).is_some_and(|next| next.is("("));
        match tokens.get(at) {
            Some(token) if token.is("#") => at = closing(tokens, at + 1) + 1,
            Some(token) if token.is("pub") && is_restricted => at = closing(tokens, at + 1) + 1,
            Some(token) if token.is("pub") => at += 1,
            _ => return at,
        }
    }
}

/// Whether `pub` alone stands before an item; `pub(crate)` ends with a parenthesis.
fn is_public(before: &[Token]) -> bool {
    let mut words = before.iter().rev();
    let last = words.next();
    let last = if last.is_some_and(|token| token.is("unsafe")) { words.next() } else { last };
    last.is_some_and(|token| token.is("pub"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The violations in a tree of these files, as `path:line name`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| TextFile { path: (*path).into(), text: (*text).into() };
        let files: Vec<TextFile> = files.iter().map(file).collect();
        let name = |message: &str| message.split('`').nth(1).unwrap_or_default().to_owned();
        let found = check(&files);
        found.iter().map(|found| format!("{}:{} {}", found.path, found.line, name(&found.message))).collect()
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn a_type_name_exists_once_in_a_crate() {
        let one = ("crates/a/src/one.rs", "struct Plan;\nenum Kind {}");
        assert_eq!(found(&[one, ("crates/a/src/two.rs", "\nstruct Plan;")]), ["crates/a/src/two.rs:2 Plan"]);
        assert_eq!(found(&[one, ("crates/a/src/two.rs", "trait Kind {}")]), ["crates/a/src/two.rs:1 Kind"]);
        assert_eq!(found(&[one, ("bench/src/two.rs", "struct Plan; type Kind = u8;")]), NOTHING);
    }

    #[test]
    fn a_public_type_name_exists_once_in_the_workspace() {
        let one = ("crates/a/src/lib.rs", "pub struct Plan;");
        assert_eq!(
            found(&[one, ("crates/b/src/lib.rs", "pub enum Plan {}")]),
            ["crates/b/src/lib.rs:1 Plan"]
        );
        assert_eq!(found(&[one, ("crates/b/src/lib.rs", "pub(crate) struct Plan;")]), NOTHING);
        assert_eq!(found(&[one, ("bench/src/main.rs", "pub struct Plan;")]), NOTHING);
    }

    #[test]
    fn no_type_has_a_name_of_the_standard_library() {
        assert_eq!(found(&[("crates/a/src/lib.rs", "enum From {}")]), ["crates/a/src/lib.rs:1 From"]);
        assert_eq!(found(&[("chaos/src/main.rs", "struct Result;")]), ["chaos/src/main.rs:1 Result"]);
        assert_eq!(found(&[("crates/a/src/lib.rs", "pub type Result<T> = X<T>;")]), NOTHING);
        assert_eq!(found(&[("crates/a/src/lib.rs", "struct FromText; impl From<u8> for A {}")]), NOTHING);
    }

    #[test]
    fn associated_types_are_exempt() {
        let text = "impl A for B { type Output = u8; }\nimpl C for D { type Output = u8; }\n\
                    trait E { type Item; }\ntrait G<T: H> { type Item; }";
        assert_eq!(found(&[("crates/a/src/lib.rs", text)]), NOTHING);
        let text = "impl A { fn f() {} }\ntype Output = u8;\nfn g(x: impl H) {}\nstruct Output;";
        assert_eq!(found(&[("crates/a/src/lib.rs", text)]), ["crates/a/src/lib.rs:4 Output"]);
    }

    #[test]
    fn tests_and_macros_are_exempt() {
        let one =
            ("crates/a/src/lib.rs", "struct Plan;\n#[cfg(test)]\nmod tests { struct Plan; struct Vec; }");
        assert_eq!(found(&[one, ("crates/a/tests/a.rs", "struct Plan;")]), NOTHING);
        assert_eq!(found(&[one, ("crates/a/src/b/tests.rs", "struct Plan;")]), NOTHING);
        assert_eq!(
            found(&[one, ("crates/a/src/c.rs", "macro_rules! m { () => { struct Plan; } }")]),
            NOTHING
        );
        assert_eq!(
            found(&[one, ("crates/a/src/d.rs", "// struct Plan;\nconst X: &str = \"struct Plan\";")]),
            NOTHING
        );
    }

    #[test]
    fn alternatives_for_platforms_may_repeat_names() {
        let one = ("crates/a/src/socket.rs", "struct Hint;");
        assert_eq!(found(&[one, ("crates/a/src/no_socket.rs", "struct Hint;")]), NOTHING);
        assert_eq!(found(&[one, ("crates/a/src/b/no_socket.rs", "struct Hint;")]).len(), 1);
        let text =
            "#[cfg(unix)]\nstruct A;\n#[cfg(not(unix))]\n#[derive(Debug)]\npub(crate) struct A;\nstruct A;";
        assert_eq!(found(&[("crates/a/src/lib.rs", text)]), ["crates/a/src/lib.rs:6 A"]);
    }
}
