//! `#[workflow]`: a function that outlasts its process.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{FnArg, ItemFn, LitStr, Path};

use crate::errors::Errors;
use crate::kind::Kind;
use crate::names::Names;
use crate::on_failure::OnFailure;
use crate::signature::Signature;
use crate::{arguments, determinism, function};

const KNOWN: [&str; 9] =
    ["name", "was", "version", "queue", "priority", "on_failure", "on_end", "check", "unchecked"];

/// The prefix of the workflow names of queued steps. The same as
/// `outlast_core::queue::STEP_PREFIX`.
const STEP_PREFIX: &str = "step:";

/// Expands `#[workflow(arguments)] function`. The expansion is `None` if the signature has errors;
/// otherwise there is one even with errors, so that the rest of the crate has no further ones.
pub(crate) fn expand(arguments: TokenStream, function: &ItemFn) -> (Option<TokenStream>, Errors) {
    let mut errors = Errors::default();
    let mut arguments = WorkflowArguments::read(arguments, &mut errors);
    let names = Names::of(
        &function.sig.ident,
        arguments.name.take(),
        std::mem::take(&mut arguments.was),
        &mut errors,
    );
    for name in std::iter::once(&names.name).chain(&names.was).filter(|name| name.starts_with(STEP_PREFIX)) {
        let message = format!(
            "`{name}` begins with `{STEP_PREFIX}`, as the names of queued steps do; choose another name"
        );
        errors.at(&function.sig.ident, message);
    }
    if arguments.determinism_check == DeterminismCheck::On {
        determinism::check(function, &mut errors);
    }
    let expansion = match signature(function, &mut errors) {
        Some(signature) => {
            let marker = function::marker(function, Kind::Workflow);
            let definition = definition(function, &signature, &names, &arguments);
            let future_type = Ident::new("RunFuture", Span::call_site());
            let wrapped = function::wrapped(function, &signature, Kind::Workflow, &future_type);
            Some(quote!(#marker #definition #wrapped))
        }
        None => None,
    };
    (expansion, errors)
}

/// The arguments of `#[workflow]`.
#[derive(Default)]
struct WorkflowArguments {
    name: Option<LitStr>,
    was: Vec<LitStr>,
    version: Option<u32>,
    queue: Option<LitStr>,
    priority: Option<u8>,
    on_failure: Option<OnFailure>,
    /// The step that is started when a run has ended.
    on_end: Option<Path>,
    /// The function that validates the input before a run starts.
    check: Option<Path>,
    determinism_check: DeterminismCheck,
}

/// Whether the body is checked for calls that are not deterministic.
#[derive(Debug, Default, PartialEq)]
enum DeterminismCheck {
    #[default]
    On,
    Off,
}

impl WorkflowArguments {
    fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut workflow = Self::default();
        for argument in arguments::read(tokens, Kind::Workflow, &KNOWN, errors) {
            match argument.name().as_str() {
                "name" => workflow.name = errors.keep(argument.text()),
                "was" => workflow.was = errors.keep(argument.texts()).unwrap_or_default(),
                "version" => workflow.version = errors.keep(argument.count()),
                "queue" => workflow.queue = errors.keep(argument.queue()),
                "priority" => workflow.priority = errors.keep(argument.priority()),
                "on_failure" => workflow.on_failure = OnFailure::read(&argument, errors),
                "on_end" => workflow.on_end = errors.keep(argument.function()),
                "check" => workflow.check = errors.keep(argument.function()),
                _ => {
                    workflow.determinism_check = DeterminismCheck::Off;
                    let reason = errors.keep(argument.text());
                    if reason.is_some_and(|reason| reason.value().trim().is_empty()) {
                        errors
                            .push(argument.error("explain why the body is deterministic without the checks"));
                    }
                }
            }
        }
        workflow
    }
}

/// The signature, with the context that every workflow has.
fn signature(function: &ItemFn, errors: &mut Errors) -> Option<Signature> {
    let signature = Signature::of(function, Kind::Workflow, errors)?;
    if signature.context.is_some() {
        return Some(signature);
    }
    let message = "the first parameter of a workflow is `ctx: Context`";
    match function.sig.inputs.first() {
        Some(FnArg::Typed(first)) => errors.at(&first.ty, format!("{message}, before all others")),
        _ => errors.at(&function.sig.ident, message),
    }
    None
}

/// `impl WorkflowDefinition`: what there is to know, and how to run it.
fn definition(
    function: &ItemFn,
    signature: &Signature,
    names: &Names,
    given: &WorkflowArguments,
) -> TokenStream {
    let cfg = function::conditions(function);
    let (name, marker) = (&function.sig.ident, Kind::Workflow.marker(&function.sig.ident));
    let deprecated = function::deprecated_allowed(function);
    let (ctx, argument) = (Ident::new("ctx", Span::mixed_site()), signature.input_name());
    let arguments = signature.spread(&argument);
    let types = signature.associated_types();
    let (durable_name, was) = (&names.name, &names.was);
    let version = Literal::u32_unsuffixed(given.version.unwrap_or(1));
    let queue = given.queue.as_ref().map(|queue| {
        quote!(const QUEUE: ::core::option::Option<&'static str> = ::core::option::Option::Some(#queue);)
    });
    let priority = given.priority.map(Literal::u8_unsuffixed);
    let priority = priority.map(|priority| quote!(const PRIORITY: u8 = #priority;));
    let ending = ending(given);
    let check = given.check.as_ref().map(|check| checking(check, signature));
    quote! {
        #(#cfg)*
        #[automatically_derived]
        #deprecated
        impl ::outlast::__private::WorkflowDefinition for #marker {
            #types
            const NAME: &'static str = #durable_name;
            const WAS: &'static [&'static str] = &[#(#was),*];
            const VERSION: u32 = #version;
            #queue
            #priority
            #ending
            fn run(#ctx: ::outlast::__private::Context, #argument: Self::Input) -> ::outlast::__private::RunFuture<Self> {
                #name(#ctx, #(#arguments),*)
            }
            #check
        }
    }
}

/// The function of `WorkflowDefinition` that tells what is decided about the ends of runs.
fn ending(given: &WorkflowArguments) -> Option<TokenStream> {
    if given.on_failure.is_none() && given.on_end.is_none() {
        return None;
    }
    let strategy = option(given.on_failure.as_ref().map(OnFailure::expression));
    let step = option(given.on_end.as_ref().map(|step| {
        // With the span of the step's name, so that type errors are shown there.
        let here = Span::call_site().located_at(step.span());
        quote_spanned!(here=> ::outlast::__private::end_step(#step))
    }));
    Some(quote! {
        fn ending() -> ::outlast::__private::EndPlan {
            ::outlast::__private::end_plan(#strategy, #step)
        }
    })
}

fn option(value: Option<TokenStream>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

/// The function of `WorkflowDefinition` that judges an input.
fn checking(check: &Path, signature: &Signature) -> TokenStream {
    let input = signature.input_name();
    // A single input is a reference already.
    let reference = (signature.arguments().len() != 1).then(|| quote!(&));
    let arguments = signature.spread(&input);
    // With the span of the function's name, so that type errors are shown there.
    let here = Span::call_site().located_at(check.span());
    let call = quote_spanned!(here=> ::outlast::__private::checked(#check(#(#reference #arguments),*)));
    quote! {
        fn check(#input: &Self::Input) -> ::core::result::Result<(), ::outlast::__private::Error> {
            #call
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Checks the errors of functions with their attribute, given as written.
    fn refused(items: &[&str], expected: Expect) {
        let mut text = String::new();
        for item in items {
            let mut function: ItemFn = syn::parse_str(item).unwrap();
            let arguments = match function.attrs.remove(0).meta {
                syn::Meta::List(list) => list.tokens,
                _ => TokenStream::new(),
            };
            text += &expand(arguments, &function).1.text();
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn the_expansion_is_small() {
        let function = syn::parse_quote! {
            /// Sells.
            async fn checkout(ctx: Context, order: Order, note: String) -> anyhow::Result<Receipt> {
                Ok(ctx.step(charge, &order).await?)
            }
        };
        let (expansion, errors) = expand(quote!(version = 2, was = ["buy", "order"]), &function);
        assert_eq!(errors.text(), "");
        expect![[r##"
            #[doc(hidden)]
            #[allow(non_camel_case_types, unreachable_pub)]
            #[derive(Debug)]
            struct __workflow_checkout;
            #[automatically_derived]
            impl ::outlast::__private::WorkflowDefinition for __workflow_checkout {
                type Input = (Order, String);
                type Output = <anyhow::Result<Receipt> as ::outlast::__private::ResultParts>::Ok;
                const NAME: &'static str = "checkout";
                const WAS: &'static [&'static str] = &["buy", "order"];
                const VERSION: u32 = 2;
                fn run(
                    ctx: ::outlast::__private::Context,
                    input: Self::Input,
                ) -> ::outlast::__private::RunFuture<Self> {
                    checkout(ctx, input.0, input.1)
                }
            }
            /// Sells.
            fn checkout(
                ctx: Context,
                order: Order,
                note: String,
            ) -> ::outlast::__private::RunFuture<__workflow_checkout> {
                #[allow(clippy::unused_async)]
                async fn __outlast_body(
                    ctx: Context,
                    order: Order,
                    note: String,
                ) -> anyhow::Result<Receipt> {
                    Ok(ctx.step(charge, &order).await?)
                }
                ::outlast::__private::RunFuture::new(async move {
                    ::core::result::Result::map_err(
                        __outlast_body(ctx, order, note).await,
                        ::core::convert::Into::into,
                    )
                })
            }
        "##]]
        .assert_eq(&prettyplease::unparse(&syn::parse2(expansion.unwrap()).unwrap()));
    }

    #[test]
    fn the_plan_for_the_end_is_a_function() {
        let function = syn::parse_quote!(
            async fn f(ctx: Context) {}
        );
        let arguments = quote!(on_failure = retry(initial = "2s", attempts = 5), on_end = notify);
        let (expansion, errors) = expand(arguments, &function);
        assert_eq!(errors.text(), "");
        let text = expansion.unwrap().to_string().replace(' ', "");
        let strategy = "FailureStrategy::Retry(::outlast::__private::Retry::WORKFLOW.attempts(5).initial(";
        assert!(text.contains(strategy) && text.contains("end_step(notify)"), "{text}");
    }

    #[test]
    fn errors_point_at_the_invalid_arguments() {
        refused(
            &[
                "#[workflow(version = 0)] async fn f(ctx: Context) {}",
                r#"#[workflow(unchecked = " ")] async fn f(ctx: Context) { rand::random() }"#,
                "#[workflow(unchecked)] async fn f(ctx: Context) {}",
                "#[workflow(attempts = 3)] async fn f(ctx: Context) {}",
                r#"#[workflow(queue = "")] async fn f(ctx: Context) {}"#,
                "#[workflow(priority = 10)] async fn f(ctx: Context) {}",
                r#"#[workflow(name = "step:f")] async fn f(ctx: Context) {}"#,
                "#[workflow(on_failure = explode)] async fn f(ctx: Context) {}",
                "#[workflow(on_failure)] async fn f(ctx: Context) {}",
                "#[workflow(on_failure = retry(attempts = 0, tries = 2))] async fn f(ctx: Context) {}",
                r#"#[workflow(on_failure = retry(pause_max = "1s"))] async fn f(ctx: Context) {}"#,
                r#"#[workflow(on_end = "notify")] async fn f(ctx: Context) {}"#,
            ],
            expect![[r#"
                0
                    `version` is a whole number from 1 to 4294967295, such as `version = 5`
                " "
                    explain why the body is deterministic without the checks
                unchecked
                    `unchecked` is a text in quotes: `unchecked = "…"`
                attempts
                    unknown argument `attempts`; `#[workflow]` knows `name`, `was`, `version`, `queue`, `priority`, `on_failure`, `on_end`, `check`, `unchecked`
                ""
                    a name has 1 to 128 bytes; this one is empty
                10
                    `priority` is a number from 0 (the default) to 9 (the most urgent), such as `priority = 3`
                f
                    `step:f` begins with `step:`, as the names of queued steps do; choose another name
                explode
                    `on_failure` is `fail`, `retry`, `retry(attempts = 5, …)`, `cascade` or `quarantine`
                on_failure
                    `on_failure` is `fail`, `retry`, `retry(attempts = 5, …)`, `cascade` or `quarantine`
                tries
                    unknown argument `tries`; `#[workflow]` knows `attempts`, `initial`, `multiplier`, `pause_max`
                0
                    `attempts` is a whole number from 1 to 4294967295, such as `attempts = 5`
                "1s"
                    the first pause is longer than `pause_max`; raise `pause_max`
                "notify"
                    `on_end` is the name of a function, without quotes: `on_end = my_function`
            "#]],
        );
    }

    #[test]
    fn a_reason_turns_the_checks_off() {
        refused(
            &[r#"#[workflow(unchecked = "a test")] async fn f(ctx: Context) { rand::random() }"#],
            expect![[""]],
        );
    }

    #[test]
    fn the_context_comes_first_and_by_value() {
        refused(
            &[
                "#[workflow] async fn f() {}",
                "#[workflow] async fn f(order: Order) {}",
                "#[workflow] async fn f(ctx: &Context, order: Order) {}",
                "#[workflow] async fn f(order: Order, ctx: Context) {}",
                "#[workflow] async fn f(cx: StepContext<Bank>) {}",
                "#[workflow] async fn f(_: outlast::Context) {}",
            ],
            expect![[r#"
                f
                    the first parameter of a workflow is `ctx: Context`
                Order
                    the first parameter of a workflow is `ctx: Context`, before all others
                &Context
                    `Context` is the first parameter, taken by value: `ctx: Context`
                Context
                    `Context` is the first parameter, taken by value: `ctx: Context`
                StepContext<Bank>
                    the first parameter of a workflow is `ctx: Context`, before all others
            "#]],
        );
    }

    #[test]
    fn all_errors_are_shown_together() {
        refused(
            &["#[workflow(version = 0)] fn f(x: u8) { Uuid::new_v4(); rand::random() }"],
            expect![[r#"
            0
                `version` is a whole number from 1 to 4294967295, such as `version = 5`
            Uuid::new_v4
                `Uuid::new_v4` differs on every replay; use `ctx.uuid()`
            rand::random
                `rand::random` returns different numbers on every replay; use `ctx.random()`
            fn
                `#[workflow]` goes on an `async fn`; write `async fn f`
        "#]],
        );
    }
}
