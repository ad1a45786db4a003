//! The argument `on_failure` of `#[workflow]`.

use std::time::Duration;

use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::Expr;
use syn::punctuated::Punctuated;

use crate::arguments::Argument;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::{arguments, duration};

const STRATEGIES: &str = "`fail`, `retry`, `retry(attempts = 5, …)`, `cascade` or `quarantine`";

/// The first pause by default. The same as in `Retry::WORKFLOW`.
const INITIAL_DEFAULT: Duration = Duration::from_secs(5);

const KNOWN: [&str; 4] = ["attempts", "initial", "multiplier", "pause_max"];

/// What happens when a run fails.
pub(crate) enum OnFailure {
    Fail,
    /// The settings of the policy, as calls of its methods.
    Retry(TokenStream),
    Cascade,
    Quarantine,
}

impl OnFailure {
    /// Reads the value of the argument.
    pub(crate) fn read(argument: &Argument, errors: &mut Errors) -> Option<Self> {
        match argument.expression() {
            Some(Expr::Path(path)) => match path.path.get_ident()?.to_string().as_str() {
                "fail" => return Some(Self::Fail),
                "retry" => return Some(Self::Retry(TokenStream::new())),
                "cascade" => return Some(Self::Cascade),
                "quarantine" => return Some(Self::Quarantine),
                _ => {}
            },
            Some(Expr::Call(call)) if is_retry(&call.func) => {
                return Some(Self::Retry(settings(&call.args, errors)));
            }
            _ => {}
        }
        errors.push(argument.error(format!("`on_failure` is {STRATEGIES}")));
        None
    }

    /// The strategy as an expression.
    pub(crate) fn expression(&self) -> TokenStream {
        match self {
            Self::Fail => quote!(::outlast::__private::FailureStrategy::Fail),
            Self::Retry(settings) => {
                quote!(::outlast::__private::FailureStrategy::Retry(::outlast::__private::Retry::WORKFLOW #settings))
            }
            Self::Cascade => quote!(::outlast::__private::FailureStrategy::Cascade),
            Self::Quarantine => quote!(::outlast::__private::FailureStrategy::Quarantine),
        }
    }
}

fn is_retry(function: &Expr) -> bool {
    matches!(function, Expr::Path(path) if path.path.is_ident("retry"))
}

/// The settings in `retry(attempts = 5, initial = "1m")`, as calls of the methods of `Retry`.
fn settings(given: &Punctuated<Expr, syn::Token![,]>, errors: &mut Errors) -> TokenStream {
    let (mut attempts, mut multiplier) = (None, None);
    let (mut initial, mut pause_max) = (None, None);
    for argument in arguments::read(quote!(#given), Kind::Workflow, &KNOWN, errors) {
        match argument.name().as_str() {
            "attempts" => attempts = errors.keep(argument.count()).map(Literal::u32_unsuffixed),
            "initial" => initial = errors.keep(argument.duration()),
            "multiplier" => multiplier = errors.keep(argument.factor()).map(Literal::f64_unsuffixed),
            _ => {
                pause_max = errors.keep(argument.duration());
                if pause_max.is_some_and(|max| max < initial.unwrap_or(INITIAL_DEFAULT)) {
                    errors.push(
                        argument.error("the first pause is longer than `pause_max`; raise `pause_max`"),
                    );
                }
            }
        }
    }
    let attempts = attempts.map(|attempts| quote!(.attempts(#attempts)));
    let initial = initial.map(duration::tokens).map(|initial| quote!(.initial(#initial)));
    let multiplier = multiplier.map(|multiplier| quote!(.multiplier(#multiplier)));
    let pause_max = pause_max.map(duration::tokens).map(|max| quote!(.max(#max)));
    quote!(#attempts #initial #multiplier #pause_max)
}
