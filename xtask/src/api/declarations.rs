//! The public declarations of one crate, read from source that rustfmt has formatted.

use std::collections::BTreeSet;

/// The public declarations of a crate, one per line, sorted. `sources` are the files of its folder `src`.
pub(super) fn listing(sources: &[(&str, &str)]) -> String {
    let hidden: Vec<String> = sources.iter().flat_map(|(path, text)| hidden_modules(path, text)).collect();
    let mut found = Declarations::default();
    for (path, text) in sources {
        let is_hidden = hidden.iter().any(|module| is_in(path, module));
        if path.ends_with(".rs") && !is_hidden {
            Scan::new(text, *path == "lib.rs", &mut found).run();
        }
    }
    found.into_text()
}

/// The modules that a file declares hidden or for tests only, as paths without `.rs`.
fn hidden_modules(path: &str, text: &str) -> Vec<String> {
    let folder = match path.rsplit_once('/') {
        _ if matches!(path, "lib.rs" | "main.rs") => String::new(),
        _ => format!("{}/", path.trim_end_matches(".rs").trim_end_matches("/mod")),
    };
    let mut attributes = Vec::new();
    let mut modules = Vec::new();
    for line in text.lines() {
        if line.starts_with("#[") {
            attributes.push(line);
            continue;
        }
        let module = line.split("mod ").nth(1).and_then(|rest| rest.strip_suffix(';'));
        if let Some(name) = module.filter(|_| attributes.iter().any(|attribute| hides(attribute))) {
            modules.push(format!("{folder}{name}"));
        }
        if !line.starts_with("//") {
            attributes.clear();
        }
    }
    modules
}

fn is_in(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Whether an attribute hides its item from users.
fn hides(attribute: &str) -> bool {
    ["doc(hidden)", "cfg(test)", "cfg(any(test", "\"test-support\""]
        .iter()
        .any(|word| attribute.contains(word))
}

/// What was found in a crate.
#[derive(Default)]
struct Declarations {
    lines: BTreeSet<String>,
    /// The names of public types and traits.
    public: BTreeSet<String>,
    /// The names of all other traits.
    private_traits: BTreeSet<String>,
    /// The headers of implementations of traits.
    implementations: BTreeSet<String>,
}

impl Declarations {
    /// The sorted lines, with the implementations that concern a public type.
    fn into_text(mut self) -> String {
        for header in std::mem::take(&mut self.implementations) {
            let mut words = header.split(|c: char| !c.is_alphanumeric() && c != '_');
            let is_public = words.clone().any(|word| self.public.contains(word));
            if is_public && !words.any(|word| self.private_traits.contains(word)) {
                self.lines.insert(header);
            }
        }
        self.lines.into_iter().map(|line| line + "\n").collect()
    }
}

/// A block whose items are read: its indentation, and the name of the type that it belongs to.
struct Block {
    indentation: usize,
    owner: Option<String>,
}

/// One pass over a file.
struct Scan<'a> {
    lines: Vec<&'a str>,
    at: usize,
    is_root: bool,
    blocks: Vec<Block>,
    attributes: Vec<String>,
    found: &'a mut Declarations,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str, is_root: bool, found: &'a mut Declarations) -> Self {
        let (blocks, attributes) = (Vec::new(), Vec::new());
        Self { lines: text.lines().collect(), at: 0, is_root, blocks, attributes, found }
    }

    fn run(mut self) {
        while let Some(line) = self.lines.get(self.at).copied() {
            let (text, indentation) = (line.trim(), indentation_of(line));
            if text.is_empty() || text.starts_with("//") {
                self.at += 1;
            } else if text.starts_with('}') {
                self.blocks.retain(|block| block.indentation < indentation);
                self.at += 1;
            } else if indentation != self.blocks.last().map_or(0, |block| block.indentation + 4) {
                self.at += 1;
            } else if text.starts_with("#[") {
                let attribute = self.gather(|text| text.ends_with(']'));
                self.attributes.push(attribute);
            } else {
                self.item(text, indentation);
                self.attributes.clear();
            }
        }
    }

    /// Reads an item, or the first line of something else.
    fn item(&mut self, text: &str, indentation: usize) {
        if self.attributes.iter().any(|attribute| hides(attribute)) {
            self.skip(indentation);
        } else if text.starts_with("impl") {
            self.implementation(indentation);
        } else if text.starts_with("macro_rules!") || text.ends_with("=> {") {
            self.blocks.push(Block { indentation, owner: None });
            self.at += 1;
        } else if let Some(declared) = text.strip_prefix("pub ") {
            self.public_item(declared, indentation);
        } else {
            let private =
                text.rsplit_once("trait ").filter(|(before, _)| before.is_empty() || before.ends_with(") "));
            self.found.private_traits.extend(private.map(|(_, name)| first_word(name)));
            self.at += 1;
        }
    }

    /// Skips an item with its body.
    fn skip(&mut self, indentation: usize) {
        let header = self.gather(ends_header);
        while header.ends_with('{') && self.at < self.lines.len() {
            let line = self.lines[self.at];
            self.at += 1;
            if line.trim().starts_with('}') && indentation_of(line) == indentation {
                return;
            }
        }
    }

    fn implementation(&mut self, indentation: usize) {
        let header = self.gather(ends_header);
        if header.contains(" for ") {
            let header = header.trim_end_matches(['{', '}']).trim_end().to_owned();
            self.found.implementations.insert(header);
        } else if header.ends_with('{') {
            let owner = Some(type_of_implementation(&header));
            self.blocks.push(Block { indentation, owner });
        }
    }

    fn public_item(&mut self, declared: &str, indentation: usize) {
        let mut words = declared.split_whitespace().skip_while(|word| ["async", "unsafe"].contains(word));
        let first = words.next().unwrap_or_default();
        let second = words.next().unwrap_or_default();
        match first {
            "fn" => self.function(),
            "const" if second == "fn" || second == "async" || second == "unsafe" => self.function(),
            "const" | "static" => {
                let text = self.gather(|text| text.ends_with(';'));
                self.add(text.split(" = ").next().unwrap_or(&text).trim_end_matches(';'));
            }
            "struct" | "enum" | "trait" | "union" => self.type_or_trait(first, indentation),
            "use" | "type" => {
                let text = self.gather(|text| text.ends_with(';'));
                if first == "type" || self.is_root {
                    self.add(text.trim_end_matches(';'));
                }
            }
            "mod" => {
                let header = self.gather(ends_header);
                if self.is_root {
                    self.add(header.trim_end_matches([' ', '{', ';']));
                }
                if header.ends_with('{') {
                    self.blocks.push(Block { indentation, owner: None });
                }
            }
            _ => self.field(),
        }
    }

    fn function(&mut self) {
        let header = self.gather(ends_header);
        self.add(header.trim_end_matches([' ', '{', '}', ';']));
    }

    /// A field of a struct, if its line is one.
    fn field(&mut self) {
        let text = self.gather(|text| text.ends_with(',') || text.ends_with(';'));
        if self.blocks.last().is_some_and(|block| block.owner.is_some()) {
            self.add(text.trim_end_matches(','));
        }
    }

    fn type_or_trait(&mut self, kind: &str, indentation: usize) {
        let header = self.gather(ends_header);
        let name = header.split(&format!("{kind} ")).nth(1).map(first_word).unwrap_or_default();
        let mut declared = header.trim_end_matches([' ', '{', '}', ';']).to_owned();
        for attribute in &self.attributes {
            if attribute.starts_with("#[derive") || attribute.contains("non_exhaustive") {
                declared = format!("{declared} {attribute}");
            }
        }
        self.add(&declared);
        self.found.public.insert(name.clone());
        if !header.ends_with('{') {
            return;
        }
        match kind {
            "enum" | "trait" => self.members(&name, indentation),
            _ => self.blocks.push(Block { indentation, owner: Some(name) }),
        }
    }

    /// The variants of an enum, or the items of a trait.
    fn members(&mut self, owner: &str, indentation: usize) {
        self.blocks.push(Block { indentation, owner: Some(owner.to_owned()) });
        while let Some(line) = self.lines.get(self.at).copied() {
            let text = line.trim();
            if text.starts_with('}') && indentation_of(line) == indentation {
                break;
            }
            if text.starts_with("#[") {
                self.gather(|text| text.ends_with(']'));
            } else if indentation_of(line) != indentation + 4
                || text.is_empty()
                || text.starts_with(['}', '/'])
            {
                self.at += 1;
            } else {
                let begin = self.at;
                let member = self.gather(|text| text.ends_with([',', ';', '{', '}']));
                let is_variant = member.chars().next().is_some_and(char::is_uppercase);
                if is_variant && member.ends_with('{') {
                    self.at = begin;
                    let member = self.gather(|text| text == "}," || text == "}");
                    self.add(member.trim_end_matches(','));
                } else if member.ends_with('{') {
                    self.add(&format!("{member} … }}"));
                } else {
                    self.add(member.trim_end_matches([',', ';']));
                }
            }
        }
    }

    /// The text from this line to one that ends it, on one line and without comments. Goes on to the line after it.
    fn gather(&mut self, is_end: impl Fn(&str) -> bool) -> String {
        let mut gathered: Vec<&str> = Vec::new();
        while let Some(line) = self.lines.get(self.at) {
            self.at += 1;
            let text = line.trim().split(" // ").next().unwrap_or_default();
            if text.starts_with("//") || !gathered.is_empty() && text.starts_with("#[") {
                continue;
            }
            gathered.push(text);
            if is_end(text) {
                break;
            }
        }
        on_one_line(&gathered.join(" "))
    }

    /// Adds a declaration, after the name of its type if it has one.
    fn add(&mut self, declaration: &str) {
        let declaration = declaration.strip_prefix("pub ").unwrap_or(declaration);
        let line = match self.blocks.last().and_then(|block| block.owner.as_deref()) {
            Some(owner) => format!("{owner}: {declaration}"),
            None => declaration.to_owned(),
        };
        self.found.lines.insert(line);
    }
}

fn indentation_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether a line ends the header of an item.
fn ends_header(text: &str) -> bool {
    text.ends_with(['{', ';']) || text.ends_with("{}")
}

/// The first word of a text, which ends before generic parameters.
fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// `Client` of `impl<'a> Client<'a> {`.
fn type_of_implementation(header: &str) -> String {
    let mut depth = 0_i32;
    let rest = header.trim_start_matches("impl");
    let end = rest.char_indices().find(|(_, c)| {
        depth += match c {
            '<' => 1,
            '>' => -1,
            _ => 0,
        };
        depth == 0 && *c != '>'
    });
    let rest = end.map_or("", |(at, _)| &rest[at..]);
    rest.trim_end_matches([' ', '{']).split(" where ").next().unwrap_or_default().trim().to_owned()
}

/// The text as rustfmt would write it if lines had no end.
fn on_one_line(text: &str) -> String {
    text.replace("( ", "(")
        .replace(", )", ")")
        .replace(" )", ")")
        .replace("< ", "<")
        .replace(", >", ">")
        .replace(" .", ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The listing of a crate with one file besides its root.
    fn listed(text: &str) -> Vec<String> {
        listing(&[("lib.rs", "mod a;\n"), ("a.rs", text)]).lines().map(str::to_owned).collect()
    }

    #[test]
    fn items_are_listed_without_comments_and_bodies() {
        let text = "/// Text.\npub async fn start(\n    name: &str, // why\n) -> u8 {\n    pub_(1)\n}\n\
                    pub(crate) fn hidden() {}\nfn private() {}\npub const MAX: u8 = 1;\npub type Name = u8;\n";
        assert_eq!(listed(text), ["async fn start(name: &str) -> u8", "const MAX: u8", "type Name = u8"]);
    }

    #[test]
    fn members_have_the_name_of_their_type() {
        let text = "#[derive(Clone)]\n#[non_exhaustive]\npub struct Run {\n    /// Its id.\n    pub id: u8,\n    \
                    secret: u8,\n}\n\nimpl<'a> Run {\n    pub fn id(&self) -> u8 {\n        1\n    }\n\n    \
                    fn own(&self) {}\n}\n\nimpl From<u8> for Run {\n    fn from(id: u8) -> Self {\n    }\n}\n";
        let expected = [
            "Run: fn id(&self) -> u8",
            "Run: id: u8",
            "impl From<u8> for Run",
            "struct Run #[derive(Clone)] #[non_exhaustive]",
        ];
        assert_eq!(listed(text), expected);
    }

    #[test]
    fn variants_and_the_items_of_traits_are_public() {
        let text = "pub enum Kind {\n    /// One.\n    One,\n    #[default]\n    Two {\n        at: u8,\n    },\n}\n\n\
                    pub trait World {\n    type Tx;\n    fn start(&self);\n    fn stop(&self) {\n        \
                    self.start()\n    }\n}\n";
        let expected = [
            "Kind: One",
            "Kind: Two { at: u8, }",
            "World: fn start(&self)",
            "World: fn stop(&self) { … }",
            "World: type Tx",
            "enum Kind",
            "trait World",
        ];
        assert_eq!(listed(text), expected);
    }

    #[test]
    fn what_is_hidden_or_for_tests_is_left_out() {
        let text = "#[doc(hidden)]\npub fn a() {\n    b()\n}\n#[cfg(test)]\nmod tests {\n    pub fn c() {}\n}\n\
                    trait Own {}\npub struct D;\nimpl Own for D {}\n";
        assert_eq!(listed(text), ["struct D"]);
        let sources = [
            ("lib.rs", "#[doc(hidden)]\npub mod a;\n"),
            ("a.rs", "pub fn x() {}"),
            ("a/b.rs", "pub fn y() {}"),
        ];
        assert_eq!(listing(&sources), "");
    }

    #[test]
    fn modules_and_reexports_are_those_of_the_root() {
        let sources = [("lib.rs", "pub mod a;\npub use a::{\n    B, C,\n};\n"), ("a.rs", "pub use b::B;\n")];
        assert_eq!(listing(&sources), "mod a\nuse a::{ B, C, }\n");
    }
}
