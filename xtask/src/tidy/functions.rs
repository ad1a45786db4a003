//! The length of functions.

use super::Finding;
use super::source::{Source, Token};

/// The maximum number of lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 60;

/// Finds functions over the limit. Test modules and the bodies of `macro_rules!` are exempt.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let tokens = source.tokens();
    let mut findings = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if let Some(end) = exempt(&tokens, at) {
            at = end;
            continue;
        }
        if let Some(finding) = function(&tokens, at) {
            findings.push(finding);
        }
        at += 1;
    }
    findings
}

/// The finding for a function that begins at this token, if it is too long.
fn function(tokens: &[Token], at: usize) -> Option<Finding> {
    // A name follows, unless `fn` begins a function pointer type.
    let name = tokens.get(at + 1).filter(|next| tokens[at].is("fn") && next.is_word())?;
    let open = body(tokens, at)?;
    let first = tokens[at].line;
    let last = tokens[closing(tokens, open)].line;
    let lines = last + 1 - first;
    (lines > FUNCTION_LINES_MAX).then(|| {
        let name = &name.text;
        (first, format!("function `{name}` has {lines} lines, the limit is {FUNCTION_LINES_MAX}; split it"))
    })
}

/// The end of an exempt item that begins at this token.
pub(super) fn exempt(tokens: &[Token], at: usize) -> Option<usize> {
    let rest = &tokens[at..];
    if begins_with(rest, &["macro_rules", "!"]) {
        let open = at + rest.iter().position(|token| token.is("{") || token.is("("))?;
        return Some(closing(tokens, open) + 1);
    }
    let is_test = begins_with(rest, &["#", "[", "cfg", "(", "test", ")"])
        || begins_with(rest, &["#", "[", "cfg", "(", "all", "(", "test"]);
    if !is_test {
        return None;
    }
    // The item after the attribute; an item without a body (`mod tests;`) has no tokens to skip.
    let item = closing(tokens, at + 1) + 1;
    let end = body(tokens, item).map_or(item, |open| closing(tokens, open) + 1);
    Some(end)
}

pub(super) fn begins_with(tokens: &[Token], words: &[&str]) -> bool {
    tokens.len() >= words.len() && tokens.iter().zip(words).all(|(token, word)| token.is(word))
}

/// The opening brace of an item's body; `None` if the item ends with a semicolon.
pub(super) fn body(tokens: &[Token], item: usize) -> Option<usize> {
    let mut at = item;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "(" | "[" => at = closing(tokens, at),
            // A const argument in braces, as in `Buffer<{ SIZE * 2 }>`.
            "{" if tokens[at - 1].is("<") => at = closing(tokens, at),
            "{" => return Some(at),
            // The end of a statement, or of the enclosing item: a field has no body.
            ";" | "}" => return None,
            _ => {}
        }
        at += 1;
    }
    None
}

/// The token that closes the bracket at `open`; the last token if none does.
pub(super) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings in a text in which `$` stands for as many lines as a function may have.
    fn found(text: &str) -> Vec<String> {
        let text = text.replace('$', &"x;\n".repeat(FUNCTION_LINES_MAX));
        let findings = check(&Source::new(&text));
        findings
            .into_iter()
            .map(|(line, message)| format!("{line} {}", &message[..message.find(" has").unwrap()]))
            .collect()
    }

    #[test]
    fn only_a_function_over_the_limit_is_a_violation() {
        let body = |lines| format!("fn f() {{\n{}}}", "x;\n".repeat(lines));
        assert_eq!(found(&body(FUNCTION_LINES_MAX - 2)), [""; 0]);
        assert_eq!(found(&body(FUNCTION_LINES_MAX - 1)), ["1 function `f`"]);
    }

    #[test]
    fn functions_are_found_in_all_items() {
        assert_eq!(found("\nimpl A {\n pub async fn f<'a>(&'a self) -> B { $ } }"), ["3 function `f`"]);
        assert_eq!(found("mod a { fn f() { $ } }"), ["1 function `f`"]);
        assert_eq!(found("fn f() { $ fn g() {} }\nfn h() {}"), ["1 function `f`"]);
        assert_eq!(found("fn f(x: [u8; { 1 }]) -> B<{ 2 }> where C: D { $ }"), ["1 function `f`"]);
    }

    #[test]
    fn braces_in_literals_and_comments_do_not_count() {
        assert_eq!(found("fn f() { \"}\"; '}'; r#\"}\"#; /* } */ // }\n $ }"), ["1 function `f`"]);
        assert_eq!(found("fn f() { \"{\"; b'{'; }\n $"), [""; 0]);
    }

    #[test]
    fn functions_without_a_body_are_ignored() {
        assert_eq!(found("trait T { fn f(&self); fn g(self: [u8; 3]); }\n $"), [""; 0]);
        assert_eq!(found("struct S { f: fn(u8) -> u8 }\n static X: [u8; 1] = { $ };"), [""; 0]);
    }

    #[test]
    fn test_modules_and_macros_are_exempt() {
        assert_eq!(found("#[cfg(test)]\nmod tests { fn f() { $ } }"), [""; 0]);
        assert_eq!(found("#[cfg(all(test, unix))]\n#[allow(x)] mod tests { fn f() { $ } }"), [""; 0]);
        assert_eq!(found("macro_rules! m { () => { fn f() { $ } } }"), [""; 0]);
        assert_eq!(found("#[cfg(test)]\nmod tests;\nfn f() { $ }"), ["3 function `f`"]);
        assert_eq!(found("struct S { #[cfg(test)] a: A, b: B }\nfn f() { $ }"), ["2 function `f`"]);
        assert_eq!(found("#[cfg(not(test))] fn f() { $ }"), ["1 function `f`"]);
    }

    #[test]
    fn invalid_rust_has_no_findings() {
        for text in ["fn", "fn f", "fn f(", "}}}", "#[cfg(test)]", "macro_rules!", "#[cfg(test", "fn f {"] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }
}
