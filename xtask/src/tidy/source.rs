//! Splits Rust source into code, comments and literals, and its code into tokens.

/// The kind of a character of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharacterKind {
    Code,
    Comment,
    Literal,
}

/// A source file, with the kind of each character.
#[derive(Debug)]
pub(super) struct Source {
    characters: Vec<char>,
    kinds: Vec<CharacterKind>,
}

/// A word or a punctuation character of code.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The word or the character.
    pub(super) text: String,
    /// Its line, from 1.
    pub(super) line: usize,
}

impl Token {
    /// Whether the token has this text.
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    /// Whether the token is a word.
    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_character)
    }
}

impl Source {
    /// Classifies the characters of a text.
    pub(super) fn new(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let mut kinds = vec![CharacterKind::Code; characters.len()];
        let mut at = 0;
        while at < characters.len() {
            let (kind, end) = next_part(&characters, at);
            kinds[at..end].fill(kind);
            at = end;
        }
        Self { characters, kinds }
    }

    /// The text with literals replaced by spaces, so that lines and columns stay.
    pub(super) fn without_literals(&self) -> String {
        self.keep(|kind| kind != CharacterKind::Literal)
    }

    /// The tokens of the code.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let mut tokens: Vec<Token> = Vec::new();
        let (mut line, mut in_word) = (1, false);
        for character in self.keep(|kind| kind == CharacterKind::Code).chars() {
            let continues_word = is_word_character(character);
            match tokens.last_mut() {
                Some(last) if in_word && continues_word => last.text.push(character),
                _ if character.is_whitespace() => {}
                _ => tokens.push(Token { text: character.into(), line }),
            }
            in_word = continues_word;
            line += usize::from(character == '\n');
        }
        tokens
    }

    fn keep(&self, keeps: impl Fn(CharacterKind) -> bool) -> String {
        let pairs = self.characters.iter().zip(&self.kinds);
        pairs.map(|(&c, &kind)| if keeps(kind) || c == '\n' { c } else { ' ' }).collect()
    }
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The kind of the part that begins at `at`, and its end.
fn next_part(text: &[char], at: usize) -> (CharacterKind, usize) {
    let rest = &text[at..];
    match rest {
        ['/', '/', ..] => (CharacterKind::Comment, at + position(rest, |c| c == '\n')),
        ['/', '*', ..] => (CharacterKind::Comment, at + block_comment(rest)),
        ['"', ..] => (CharacterKind::Literal, at + quoted(rest, '"')),
        ['\'', ..] => match character(rest) {
            Some(length) => (CharacterKind::Literal, at + length),
            None => (CharacterKind::Code, at + 1),
        },
        [first, ..] if is_word_character(*first) => word_or_literal(text, at),
        _ => (CharacterKind::Code, at + 1),
    }
}

/// A word; or a literal if the word is its prefix, as in `br#"…"#`.
fn word_or_literal(text: &[char], at: usize) -> (CharacterKind, usize) {
    let end = at + position(&text[at..], |c| !is_word_character(c));
    let prefix: String = text[at..end].iter().collect();
    let rest = &text[end..];
    match (prefix.as_str(), rest.first()) {
        ("r" | "br" | "cr", Some('"' | '#')) => match raw_string(rest) {
            Some(length) => (CharacterKind::Literal, end + length),
            None => (CharacterKind::Code, end),
        },
        ("b" | "c", Some('"')) => (CharacterKind::Literal, end + quoted(rest, '"')),
        ("b", Some('\'')) => (CharacterKind::Literal, end + quoted(rest, '\'')),
        _ => (CharacterKind::Code, end),
    }
}

/// The length of the text before the first matching character.
fn position(text: &[char], is_end: impl Fn(char) -> bool) -> usize {
    text.iter().position(|&c| is_end(c)).unwrap_or(text.len())
}

/// The length of a block comment, which may be nested.
fn block_comment(text: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        match &text[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a literal between two quotes, with escapes.
fn quoted(text: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// The length of a character literal; `None` when the quote begins a lifetime or a label.
fn character(text: &[char]) -> Option<usize> {
    match text {
        ['\'', '\\', ..] => Some(quoted(text, '\'')),
        ['\'', _, '\'', ..] => Some(3),
        _ => None,
    }
}

/// The length of `"…"` or `#"…"#` after the prefix `r`; `None` when it was a raw identifier.
fn raw_string(text: &[char]) -> Option<usize> {
    let hashes = position(text, |c| c != '#');
    if text.get(hashes) != Some(&'"') {
        return None;
    }
    let is_end = |window: &[char]| window[0] == '"' && window[1..].iter().all(|&c| c == '#');
    let body = &text[hashes + 1..];
    let length = body.windows(hashes + 1).position(is_end).map(|end| end + hashes + 1);
    Some(hashes + 1 + length.unwrap_or(body.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> String {
        let tokens = Source::new(text).tokens();
        tokens.into_iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        for (text, code) in [
            ("a // {\nb", "a b"),
            ("a /* { /* } */ { */ b", "a b"),
            (r#"a("{ \" {")"#, "a ( )"),
            (r#####"a(r"\", r#"{"{"#, br##"}"#}"##)"#####, "a ( , , )"),
            (r#"a(b"{", c"}", b'{', '{', '\'', '\\', '\u{7b}', '"')"#, "a ( , , , , , , , )"),
            ("fn f<'a>(x: &'a str) { 'l: loop {} }", "fn f < ' a > ( x : & ' a str ) { ' l : loop { } }"),
            ("r#fn + br + r", "r # fn + br + r"),
            ("é'é'é", "é é"),
            ("a \"never ends {", "a"),
            ("a /* never ends {", "a"),
            ("a r#\"never ends {\"", "a"),
            ("a '\\", "a"),
        ] {
            assert_eq!(tokens(text), code, "{text}");
        }
    }

    #[test]
    fn tokens_know_their_lines() {
        let tokens = Source::new("a\n/*\n*/ \"\n\" b;").tokens();
        let lines: Vec<_> = tokens.iter().map(|token| (token.text.as_str(), token.line)).collect();
        assert_eq!(lines, [("a", 1), ("b", 4), (";", 4)]);
    }

    #[test]
    fn blanking_keeps_lines_and_columns() {
        let source = Source::new("a(\"x\ny\") // z");
        assert_eq!(source.without_literals(), "a(  \n  ) // z");
    }
}
