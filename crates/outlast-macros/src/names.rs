//! The durable name of a definition, and the names it had before.

use proc_macro2::Ident;
use syn::LitStr;
use syn::ext::IdentExt;

use crate::errors::Errors;

/// Bytes of a name. The same limit as `outlast_core::limits::NAME_BYTES_MAX`.
const NAME_BYTES_MAX: usize = 128;

/// The name that histories know a definition by, and its earlier names.
#[derive(Debug, PartialEq)]
pub(crate) struct Names {
    pub(crate) name: String,
    pub(crate) was: Vec<String>,
}

impl Names {
    /// The function's own name, or the `name` given instead; every name is checked.
    pub(crate) fn of(function: &Ident, name: Option<LitStr>, was: Vec<LitStr>, errors: &mut Errors) -> Self {
        let name = match name {
            Some(given) => {
                if let Some(problem) = problem_of(&given.value()) {
                    errors.at(&given, problem);
                }
                given.value()
            }
            None => {
                let own = function.unraw().to_string();
                if let Some(problem) = problem_of(&own) {
                    errors.at(function, format!("{problem}, or give one with `name = \"…\"`"));
                }
                own
            }
        };
        let mut names = Self { name, was: Vec::new() };
        for old in was {
            let text = old.value();
            if let Some(problem) = problem_of(&text) {
                errors.at(&old, problem);
            } else if text == names.name {
                errors.at(&old, format!("`{text}` is the present name; `was` is for earlier ones"));
            } else if names.was.contains(&text) {
                errors.at(&old, format!("`{text}` is given twice; remove one"));
            } else {
                names.was.push(text);
            }
        }
        names
    }
}

/// The problem of a name, with the remedy.
pub(crate) fn problem_of(name: &str) -> Option<String> {
    match name.len() {
        0 => Some(format!("a name has 1 to {NAME_BYTES_MAX} bytes; this one is empty")),
        1..=NAME_BYTES_MAX => None,
        bytes => Some(format!(
            "a name has at most {NAME_BYTES_MAX} bytes and this one has {bytes}; choose a shorter one"
        )),
    }
}
