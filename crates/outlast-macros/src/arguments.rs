//! The arguments of an attribute: `attempts = 5, timeout = "30s"`.

use std::time::Duration;

use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Lit, LitStr, Path, Result, Token};

use crate::duration;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::names;

/// The highest priority. The same limit as `outlast_core::limits::PRIORITY_MAX`.
const PRIORITY_MAX: u8 = 9;

/// Reads the arguments of an attribute. Unknown and repeated ones are errors and left out.
pub(crate) fn read(tokens: TokenStream, kind: Kind, known: &[&str], errors: &mut Errors) -> Vec<Argument> {
    let parser = Punctuated::<Argument, Token![,]>::parse_terminated;
    let mut arguments: Vec<Argument> = Vec::new();
    for argument in errors.keep(parser.parse2(tokens)).into_iter().flatten() {
        let name = argument.name();
        if !known.contains(&name.as_str()) {
            let known = known.join("`, `");
            errors.at(&argument.key, format!("unknown argument `{name}`; {kind} knows `{known}`"));
        } else if arguments.iter().any(|other| other.key == argument.key) {
            errors.at(&argument.key, format!("`{name}` is given twice; remove one"));
        } else {
            arguments.push(argument);
        }
    }
    arguments
}

/// One argument: a name and, where it was written, a value.
pub(crate) struct Argument {
    key: Ident,
    value: Option<Expr>,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let key = Ident::parse_any(input)?;
        let value = match input.parse::<Option<Token![=]>>()? {
            Some(_) => Some(input.parse()?),
            None => None,
        };
        Ok(Self { key, value })
    }
}

impl Argument {
    /// The argument's name.
    pub(crate) fn name(&self) -> String {
        self.key.to_string()
    }

    /// An error that points at the value, or at the name where there is no value.
    pub(crate) fn error(&self, message: impl std::fmt::Display) -> Error {
        match &self.value {
            Some(value) => Error::new_spanned(value, message),
            None => Error::new_spanned(&self.key, message),
        }
    }

    /// A word without a value.
    pub(crate) fn flag(&self) -> Result<()> {
        match &self.value {
            None => Ok(()),
            Some(_) => Err(self.error(format!("`{0}` is a word by itself, without a value", self.key))),
        }
    }

    /// A whole number from 1.
    pub(crate) fn count(&self) -> Result<u32> {
        match self.literal() {
            Some(Lit::Int(number)) => number.base10_parse().ok().filter(|count| *count >= 1),
            _ => None,
        }
        .ok_or_else(|| {
            let name = &self.key;
            self.error(format!("`{name}` is a whole number from 1 to {}, such as `{name} = 5`", u32::MAX))
        })
    }

    /// How urgent something is.
    pub(crate) fn priority(&self) -> Result<u8> {
        match self.literal() {
            Some(Lit::Int(number)) => number.base10_parse().ok().filter(|priority| *priority <= PRIORITY_MAX),
            _ => None,
        }
        .ok_or_else(|| {
            self.error(format!(
                "`priority` is a number from 0 (the default) to {PRIORITY_MAX} (the most urgent), such as `priority = 3`"
            ))
        })
    }

    /// The name of a queue.
    pub(crate) fn queue(&self) -> Result<LitStr> {
        let name = self.text()?;
        match names::problem_of(&name.value()) {
            Some(problem) => Err(self.error(problem)),
            None => Ok(name),
        }
    }

    /// A number that is at least 1.
    pub(crate) fn factor(&self) -> Result<f64> {
        match self.literal() {
            Some(Lit::Float(number)) => number.base10_parse().ok(),
            Some(Lit::Int(number)) => number.base10_parse().ok(),
            _ => None,
        }
        .filter(|factor: &f64| factor.is_finite() && *factor >= 1.0)
        .ok_or_else(|| {
            let name = &self.key;
            self.error(format!("`{name}` is a number of at least 1, such as `{name} = 2.0`"))
        })
    }

    /// A duration as text, such as `"30s"`.
    pub(crate) fn duration(&self) -> Result<Duration> {
        let name = &self.key;
        let Some(Lit::Str(text)) = self.literal() else {
            return Err(self.error(format!("`{name}` is a duration in quotes, such as `{name} = \"30s\"`")));
        };
        let text = text.value();
        duration::parse(&text).ok_or_else(|| {
            self.error(format!(
                "`{text}` is not a duration; write numbers with units us, ms, s, m, h, d or w, such as `30s` \
                 or `1h30m`"
            ))
        })
    }

    /// A text in quotes.
    pub(crate) fn text(&self) -> Result<LitStr> {
        match self.literal() {
            Some(Lit::Str(text)) => Ok(text.clone()),
            _ => Err(self.error(format!("`{0}` is a text in quotes: `{0} = \"…\"`", self.key))),
        }
    }

    /// One text in quotes, or several in brackets.
    pub(crate) fn texts(&self) -> Result<Vec<LitStr>> {
        let texts = match self.value.as_ref().map(plain) {
            Some(Expr::Array(array)) => array.elems.iter().map(text_of).collect(),
            Some(other) => text_of(other).map(|text| vec![text]),
            None => None,
        };
        texts.filter(|texts| !texts.is_empty()).ok_or_else(|| {
            let name = &self.key;
            self.error(format!(
                "`{name}` is a text, or texts in brackets: `{name} = \"a\"`, `{name} = [\"a\", \"b\"]`"
            ))
        })
    }

    /// The name of a function, which may be a path.
    pub(crate) fn function(&self) -> Result<Path> {
        match self.value.as_ref().map(plain) {
            Some(Expr::Path(path)) if path.qself.is_none() => Ok(path.path.clone()),
            _ => Err(self.error(format!(
                "`{0}` is the name of a function, without quotes: `{0} = my_function`",
                self.key
            ))),
        }
    }

    /// The value as an expression.
    pub(crate) fn expression(&self) -> Option<&Expr> {
        self.value.as_ref().map(plain)
    }

    fn literal(&self) -> Option<&Lit> {
        literal_of(self.value.as_ref()?)
    }
}

/// The expression without the invisible brackets that `macro_rules!` puts around it.
fn plain(expression: &Expr) -> &Expr {
    match expression {
        Expr::Group(group) => plain(&group.expr),
        other => other,
    }
}

fn literal_of(expression: &Expr) -> Option<&Lit> {
    match plain(expression) {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        _ => None,
    }
}

fn text_of(expression: &Expr) -> Option<LitStr> {
    match literal_of(expression)? {
        Lit::Str(text) => Some(text.clone()),
        _ => None,
    }
}
