//! `#[step]`: a function whose outcome is recorded once.

mod arguments;
mod unique;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{ItemFn, Path};

use self::arguments::StepArguments;
use crate::errors::Errors;
use crate::function;
use crate::kind::{Database, Kind};
use crate::names::Names;
use crate::signature::{ContextParameter, Signature, transaction_of};

/// Expands `#[step(arguments)] function`. The expansion is `None` if the signature has errors;
/// otherwise there is one even with errors, so that the rest of the crate has no further ones.
pub(crate) fn expand(arguments: TokenStream, function: &ItemFn) -> (Option<TokenStream>, Errors) {
    let mut errors = Errors::default();
    let mut arguments = StepArguments::read(arguments, &mut errors);
    let names = Names::of(
        &function.sig.ident,
        arguments.name.take(),
        std::mem::take(&mut arguments.was),
        &mut errors,
    );
    let Some(kind) = kind_of(function, &arguments, &mut errors) else { return (None, errors) };
    let expansion = match Signature::of(function, kind, &mut errors) {
        Some(signature) => {
            let marker = function::marker(function, kind);
            // A transactional step with `unique` is refused.
            let unique = arguments.unique.as_ref().filter(|_| !arguments.is_transactional);
            let unique = unique.map(|text| unique::read(text, function, &signature));
            let unique = unique.and_then(|unique| errors.keep(unique));
            let with_allowed = unique.as_ref().map(|unique| unique.allow_unused(function));
            let key = unique.map(|unique| unique.definition);
            let definition = definition(function, &signature, &names, &arguments, key);
            let code = code(function, &signature, kind, arguments.reconcile.as_ref());
            let future_type = Ident::new("Attempt", Span::call_site());
            let original = with_allowed.as_ref().unwrap_or(function);
            let wrapped = function::wrapped(original, &signature, kind, &future_type);
            Some(quote!(#marker #definition #code #wrapped))
        }
        None => None,
    };
    (expansion, errors)
}

/// The kind of the step; `None` if it is transactional and has no transaction.
fn kind_of(function: &ItemFn, arguments: &StepArguments, errors: &mut Errors) -> Option<Kind> {
    if !arguments.is_transactional {
        return Some(if arguments.is_blocking { Kind::BlockingStep } else { Kind::Step });
    }
    let database = transaction_of(function);
    if database.is_none() {
        let (sqlite, postgres) = (Database::Sqlite.parameter(), Database::Postgres.parameter());
        let message = format!(
            "the first parameter of a transactional step is the transaction: `{postgres}` or `{sqlite}`"
        );
        match function.sig.inputs.first() {
            Some(first) => errors.at(first, message),
            None => errors.at(&function.sig.ident, message),
        }
    }
    database.map(Kind::TransactionalStep)
}

/// `impl StepDefinition`: the name, the types and the policy.
fn definition(
    function: &ItemFn,
    signature: &Signature,
    names: &Names,
    arguments: &StepArguments,
    unique: Option<TokenStream>,
) -> TokenStream {
    let cfg = function::conditions(function);
    let marker = Kind::Step.marker(&function.sig.ident);
    let (types, policy) = (signature.associated_types(), arguments.policy());
    let Names { name, was } = names;
    quote! {
        #(#cfg)*
        #[automatically_derived]
        impl ::outlast::__private::StepDefinition for #marker {
            #types
            const NAME: &'static str = #name;
            const WAS: &'static [&'static str] = &[#(#was),*];
            fn policy() -> ::outlast::__private::Policy {
                #policy
            }
            #unique
        }
    }
}

/// `impl StepCode`: for the state that the context requests, or for every state.
fn code(function: &ItemFn, signature: &Signature, kind: Kind, reconcile: Option<&Path>) -> TokenStream {
    let cfg = function::conditions(function);
    let (name, marker) = (&function.sig.ident, Kind::Step.marker(&function.sig.ident));
    let deprecated = function::deprecated_allowed(function);
    let cx = if signature.context.is_some() { "cx" } else { "_cx" };
    let (cx, input) = (Ident::new(cx, Span::mixed_site()), signature.input_name());
    let arguments = signature.spread(&input);
    // A bound instead of an implementation for one state, for the sake of its compile error.
    let bound = match &signature.context {
        Some(ContextParameter::Of(state)) => {
            Some(quote!(where __S: ::outlast::__private::StateFor<#state, Self>))
        }
        _ => None,
    };
    let context = signature.context.as_ref().map(|parameter| with_state(parameter, &cx));
    let context = context.map(|context| quote!(#context,));
    let transaction = match kind {
        Kind::TransactionalStep(database) => {
            let variant = database.variant();
            Some(quote! {
                const TRANSACTION: ::core::option::Option<::outlast::__private::TransactionKind> =
                    ::core::option::Option::Some(::outlast::__private::TransactionKind::#variant);
            })
        }
        _ => None,
    };
    let reconcile = reconcile.map(|look_up| reconcile_function(look_up, signature.context.as_ref()));
    quote! {
        #(#cfg)*
        #[automatically_derived]
        #deprecated
        impl<__S: ::core::marker::Send + ::core::marker::Sync + 'static> ::outlast::__private::StepCode<__S> for #marker
        #bound
        {
            #transaction
            fn attempt(#cx: ::outlast::__private::StepContext<__S>, #input: Self::Input) -> ::outlast::__private::Attempt<Self> {
                #name(#context #(#arguments),*)
            }
            #reconcile
        }
    }
}

/// The function of `StepCode` that checks whether an earlier attempt had its effect.
fn reconcile_function(look_up: &Path, context: Option<&ContextParameter>) -> TokenStream {
    let (cx, input) = (Ident::new("cx", Span::mixed_site()), Ident::new("input", Span::mixed_site()));
    let given = with_state(context.unwrap_or(&ContextParameter::Plain), &cx);
    // With the span of the function's name, so that type errors are shown there.
    let here = Span::call_site().located_at(look_up.span());
    let call =
        quote_spanned!(here=> ::outlast::__private::reconciling::<Self, _, _, _>(#look_up, #given, #input));
    quote! {
        const RECONCILES: bool = true;
        fn reconcile(#cx: ::outlast::__private::StepContext<__S>, #input: Self::Input) -> ::outlast::__private::Reconciling<Self> {
            #call
        }
    }
}

/// The context of the worker's state, as the step's own context.
fn with_state(parameter: &ContextParameter, cx: &Ident) -> TokenStream {
    match parameter {
        ContextParameter::Of(state) => {
            quote!(<__S as ::outlast::__private::StateFor<#state, Self>>::context(#cx))
        }
        ContextParameter::Plain => quote!(#cx.stateless()),
    }
}

#[cfg(test)]
mod tests;
