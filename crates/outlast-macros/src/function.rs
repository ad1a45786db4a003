//! The function that an attribute leaves: the same name and parameters, but it returns a future that
//! carries the definition.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, ItemFn};

use crate::kind::Kind;
use crate::signature::{Returned, Signature};

/// Attributes of the function that belong to what callers see. All others, such as
/// `#[tracing::instrument]`, expect an `async fn` and stay on the original.
const OUTWARD: [&str; 9] =
    ["allow", "cfg_attr", "deny", "deprecated", "doc", "expect", "forbid", "must_use", "warn"];

/// The type that carries the definition. It is only ever named, never made.
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
    let outward = function.attrs.iter().filter(|attribute| is_outward(attribute));
    // The head of the function has the user's own spans, so that lints treat it as written by hand: it
    // may be unused or undocumented.
    let fn_token = &function.sig.fn_token;
    let output = quote_spanned!(name.span()=> -> ::outlast::#future_type<#marker>);
    let original = original(function);
    let names: Vec<_> = signature.parameters.iter().map(|parameter| &parameter.name).collect();
    let types = signature.parameters.iter().map(|parameter| &parameter.ty);

    // Located at the name, so that "the future is not `Send`" points there and not at the attribute.
    let here = Span::mixed_site().located_at(name.span());
    let call = quote_spanned!(here=> __outlast_body(#(#names),*));
    let body = if kind == Kind::BlockingStep {
        let result = into_result(call, &signature.returned);
        quote_spanned!(here=> ::outlast::#future_type::blocking(move || #result))
    } else {
        let result = into_result(quote_spanned!(here=> #call.await), &signature.returned);
        quote_spanned!(here=> ::outlast::#future_type::new(async move { #result }))
    };
    let mut block = TokenStream::new();
    function.block.brace_token.surround(&mut block, |block| block.extend(quote!(#original #body)));
    quote! {
        #(#cfg)*
        #(#outward)*
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

/// The function as written, under a name that the body cannot mean: inside it, the function's own name
/// stays what it is outside, so a workflow may start itself as a child.
fn original(function: &ItemFn) -> TokenStream {
    let mut original = function.clone();
    original.vis = syn::Visibility::Inherited;
    original.sig.ident =
        Ident::new("__outlast_body", Span::call_site().located_at(function.sig.ident.span()));
    original.attrs.retain(|attribute| !is_outward(attribute) && !attribute.path().is_ident("cfg"));
    quote! {
        #[allow(clippy::unused_async)]
        #original
    }
}

/// The result of the original with the error that the SDK expects.
fn into_result(call: TokenStream, returned: &Returned) -> TokenStream {
    // Located at the return type, so that an error type without a conversion is shown there.
    let here = Span::mixed_site().located_at(returned.ty().span());
    match returned {
        Returned::Result(_) => {
            quote_spanned!(here=> ::core::result::Result::map_err(#call, ::core::convert::Into::into))
        }
        Returned::Value(_) => quote_spanned!(here=> ::core::result::Result::Ok(#call)),
    }
}

fn is_outward(attribute: &Attribute) -> bool {
    OUTWARD.iter().any(|name| attribute.path().is_ident(name))
}
