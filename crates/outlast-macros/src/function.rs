//! The function that an attribute generates: it has the same name and parameters, but returns a future that
//! carries the definition.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, ItemFn};

use crate::kind::{Database, Kind};
use crate::signature::{ReturnKind, Signature};

/// Attributes that apply to the generated function. All others, such as
/// `#[tracing::instrument]`, expect an `async fn` and stay on the original one.
const CALLER_ATTRIBUTES: [&str; 9] =
    ["allow", "cfg_attr", "deny", "deprecated", "doc", "expect", "forbid", "must_use", "warn"];

/// The type that carries the definition. It has no values.
pub(crate) fn marker(function: &ItemFn, kind: Kind) -> TokenStream {
    let (vis, marker, cfg) = (&function.vis, kind.marker(&function.sig.ident), conditions(function));
    quote! {
        #(#cfg)*
        #[doc(hidden)]
        #[allow(non_camel_case_types, unreachable_pub)]
        #[derive(Debug)]
        #vis struct #marker;
    }
}

/// The function with the original inside, its future made by `future_type::new`.
pub(crate) fn wrapped(
    function: &ItemFn,
    signature: &Signature,
    kind: Kind,
    future_type: &Ident,
) -> TokenStream {
    let name = &function.sig.ident;
    let (vis, marker, cfg) = (&function.vis, kind.marker(name), conditions(function));
    let for_callers = function.attrs.iter().filter(|attribute| is_for_callers(attribute));
    // The signature has the user's spans, so that lints about unused or undocumented functions apply.
    let fn_token = &function.sig.fn_token;
    let output = quote_spanned!(name.span()=> -> ::outlast::__private::#future_type<#marker>);
    let original = original(function);
    let names: Vec<_> = signature.parameters.iter().map(|parameter| &parameter.name).collect();
    let types = signature.parameters.iter().map(|parameter| &parameter.ty);

    // Located at the name, so that "the future is not `Send`" points there and not at the attribute.
    let here = Span::mixed_site().located_at(name.span());
    let tx = Ident::new("__outlast_tx", here);
    let call = match kind {
        Kind::TransactionalStep(_) => quote_spanned!(here=> __outlast_body(#tx, #(#names),*)),
        _ => quote_spanned!(here=> __outlast_body(#(#names),*)),
    };
    let is_async = function.sig.asyncness.is_some();
    let call = if is_async { quote_spanned!(here=> #call.await) } else { call };
    let result = into_result(call, &signature.return_kind);
    let body = match kind {
        Kind::BlockingStep => {
            quote_spanned!(here=> ::outlast::__private::#future_type::blocking(move || #result))
        }
        Kind::TransactionalStep(Database::Sqlite) => {
            quote_spanned!(here=> ::outlast::__private::#future_type::in_sqlite(move |#tx| #result))
        }
        Kind::TransactionalStep(Database::Postgres) => {
            let future = quote_spanned!(here=> ::std::boxed::Box::pin(async move { #result }));
            quote_spanned!(here=> ::outlast::__private::#future_type::in_postgres(move |#tx| #future))
        }
        Kind::Step | Kind::Workflow => {
            quote_spanned!(here=> ::outlast::__private::#future_type::new(async move { #result }))
        }
    };
    let mut block = TokenStream::new();
    function.block.brace_token.surround(&mut block, |block| block.extend(quote!(#original #body)));
    quote! {
        #(#cfg)*
        #(#for_callers)*
        #vis #fn_token #name(#(#names: #types),*) #output #block
    }
}

/// The `#[cfg]`s of the function, which every generated item repeats.
pub(crate) fn conditions(function: &ItemFn) -> Vec<&Attribute> {
    function.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect()
}

/// Lets the generated call of a function that is `#[deprecated]` pass without a warning.
pub(crate) fn deprecated_allowed(function: &ItemFn) -> Option<TokenStream> {
    let deprecated = function.attrs.iter().any(|attribute| attribute.path().is_ident("deprecated"));
    deprecated.then(|| quote!(#[allow(deprecated)]))
}

/// The original function, under another name: inside it, the function's own name is the generated function, so that a
/// workflow may start itself as a child.
fn original(function: &ItemFn) -> TokenStream {
    let mut original = function.clone();
    original.vis = syn::Visibility::Inherited;
    original.sig.ident =
        Ident::new("__outlast_body", Span::call_site().located_at(function.sig.ident.span()));
    original.attrs.retain(|attribute| !is_for_callers(attribute) && !attribute.path().is_ident("cfg"));
    quote! {
        #[allow(clippy::unused_async)]
        #original
    }
}

/// The result of the original with the error that the SDK expects.
fn into_result(call: TokenStream, return_kind: &ReturnKind) -> TokenStream {
    // Located at the return type, so that an error type without a conversion is shown there.
    let here = Span::mixed_site().located_at(return_kind.ty().span());
    match return_kind {
        ReturnKind::Result(_) => {
            quote_spanned!(here=> ::core::result::Result::map_err(#call, ::core::convert::Into::into))
        }
        ReturnKind::Value(_) => quote_spanned!(here=> ::core::result::Result::Ok(#call)),
    }
}

fn is_for_callers(attribute: &Attribute) -> bool {
    CALLER_ATTRIBUTES.iter().any(|name| attribute.path().is_ident(name))
}
