//! Compile errors, gathered so that one build shows all of them.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ItemFn;

use crate::function;

/// The compile errors found so far.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    /// Adds an error.
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Adds an error that points at `place`.
    pub(crate) fn at(&mut self, place: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(place, message));
    }

    /// Adds all errors of `other`.
    pub(crate) fn absorb(&mut self, other: Self) {
        if let Some(error) = other.0 {
            self.push(error);
        }
    }

    /// The value of a success; an error is added.
    pub(crate) fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Whether there are no errors.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The errors as tokens that do not compile; nothing when there are none.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.map_or_else(TokenStream::new, syn::Error::into_compile_error)
    }

    /// The errors, with a stub instead of the function that has them: a constant whose type contains the first error.
    /// The compiler accepts every use of such a value, so it reports nothing else.
    pub(crate) fn into_stub(self, function: &ItemFn) -> TokenStream {
        let mut errors = self.0.into_iter().flatten();
        let Some(first) = errors.next().map(syn::Error::into_compile_error) else {
            return TokenStream::new();
        };
        let others = errors.map(syn::Error::into_compile_error);
        let (vis, name, cfg) = (&function.vis, &function.sig.ident, function::conditions(function));
        quote! {
            #(#others)*
            #(#cfg)*
            #[doc(hidden)]
            #[allow(non_upper_case_globals, dead_code, unreachable_pub)]
            #vis const #name: [(); #first] = loop {};
        }
    }

    /// The span and message of each error, as text.
    #[cfg(test)]
    pub(crate) fn text(self) -> String {
        let line = |error: syn::Error| {
            let place = error.span().source_text().filter(|place| !place.is_empty());
            let place = place.as_deref().unwrap_or("(all)");
            format!("{place}\n    {error}\n")
        };
        self.0.into_iter().flatten().map(line).collect()
    }
}
