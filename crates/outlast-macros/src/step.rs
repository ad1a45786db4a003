//! `#[step]`: a function whose outcome is recorded once.

use std::time::Duration;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{ItemFn, LitStr};

use crate::errors::Errors;
use crate::kind::Kind;
use crate::names::Names;
use crate::signature::{Context, Signature};
use crate::{arguments, duration, function};

const KNOWN: [&str; 12] = [
    "attempts",
    "timeout",
    "retry",
    "initial",
    "multiplier",
    "pause_max",
    "heartbeat_timeout",
    "limit",
    "blocking",
    "at_most_once",
    "name",
    "was",
];

/// What makes no sense for a step without a second attempt.
const FOR_RETRIES: [&str; 5] = ["attempts", "retry", "initial", "multiplier", "pause_max"];

/// What `retry = "…"` may name: the functions of `Retry` without parameters.
const RETRIES: [&str; 7] = ["exponential", "linear", "constant", "api", "database", "network", "none"];

/// Those of them whose pauses do not grow by a factor.
const WITHOUT_MULTIPLIER: [&str; 2] = ["linear", "constant"];

/// Expands `#[step(arguments)] function`. With errors in it the function is left so that the rest of the crate sees
/// as few new ones as possible.
pub(crate) fn expand(arguments: TokenStream, function: &ItemFn) -> (TokenStream, Errors) {
    let mut errors = Errors::default();
    let mut arguments = Arguments::read(arguments, &mut errors);
    let names = Names::of(
        &function.sig.ident,
        arguments.name.take(),
        std::mem::take(&mut arguments.was),
        &mut errors,
    );
    let kind = if arguments.is_blocking { Kind::BlockingStep } else { Kind::Step };
    let expansion = match Signature::of(function, kind, &mut errors) {
        Some(signature) => {
            let marker = function::marker(function, kind);
            let definition = definition(function, &signature, &names, &arguments);
            let code = code(function, &signature);
            let future_type = Ident::new("Attempt", Span::call_site());
            let wrapped = function::wrapped(function, &signature, kind, &future_type);
            quote!(#marker #definition #code #wrapped)
        }
        None => quote!(#function),
    };
    (expansion, errors)
}

/// The arguments of `#[step]`; what is left out is as in `Policy::DEFAULT`.
#[derive(Default)]
struct Arguments {
    attempts: Option<u32>,
    timeout: Option<Duration>,
    retry: Option<Ident>,
    initial: Option<Duration>,
    multiplier: Option<f64>,
    pause_max: Option<Duration>,
    heartbeat_timeout: Option<Duration>,
    limit: Option<u32>,
    is_blocking: bool,
    is_at_most_once: bool,
    name: Option<LitStr>,
    was: Vec<LitStr>,
}

impl Arguments {
    fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut step = Self::default();
        let arguments = arguments::read(tokens, Kind::Step, &KNOWN, errors);
        for argument in &arguments {
            match argument.name().as_str() {
                "attempts" => step.attempts = errors.keep(argument.count()),
                "timeout" => step.timeout = errors.keep(time_limit(argument)),
                "heartbeat_timeout" => step.heartbeat_timeout = errors.keep(time_limit(argument)),
                "limit" => step.limit = errors.keep(argument.count()),
                "blocking" => step.is_blocking = errors.keep(argument.flag()).is_some(),
                "at_most_once" => step.is_at_most_once = errors.keep(argument.flag()).is_some(),
                "retry" => step.retry = errors.keep(retry(argument)),
                "initial" => step.initial = errors.keep(argument.duration()),
                "multiplier" => step.multiplier = errors.keep(argument.factor()),
                "pause_max" => step.pause_max = errors.keep(argument.duration()),
                "name" => step.name = errors.keep(argument.text()),
                _ => step.was = errors.keep(argument.texts()).unwrap_or_default(),
            }
        }
        if step.is_at_most_once {
            for argument in
                arguments.iter().filter(|argument| FOR_RETRIES.contains(&argument.name().as_str()))
            {
                let name = argument.name();
                let message = format!("a step that is `at_most_once` has no second attempt; remove `{name}`");
                errors.push(argument.error(message));
            }
        }
        let find = |name: &str| arguments.iter().find(|argument| argument.name() == name);
        if step.pause_max.is_some()
            && step.initial > step.pause_max
            && let Some(initial) = find("initial")
        {
            errors.push(initial.error("the first pause is longer than `pause_max`; raise `pause_max`"));
        }
        if step.retry.as_ref().is_some_and(|retry| WITHOUT_MULTIPLIER.iter().any(|name| retry == name))
            && let Some(multiplier) = find("multiplier")
        {
            errors.push(multiplier.error("only exponential pauses have a `multiplier`; remove it"));
        }
        step
    }

    /// The statements and the expression that make the policy.
    fn policy(&self) -> TokenStream {
        let mut statements = TokenStream::new();
        let policy = Ident::new("policy", Span::mixed_site());
        if let Some(retry) = self.retry() {
            statements.extend(quote!(#policy.retry = #retry;));
        }
        if let Some(timeout) = self.timeout.map(duration::tokens) {
            statements.extend(quote!(#policy.timeout = ::core::option::Option::Some(#timeout);));
        }
        if let Some(timeout) = self.heartbeat_timeout.map(duration::tokens) {
            statements.extend(quote!(#policy.heartbeat_timeout = ::core::option::Option::Some(#timeout);));
        }
        if let Some(limit) = self.limit.map(Literal::u32_unsuffixed) {
            statements.extend(quote!(#policy.limit = ::core::option::Option::Some(#limit);));
        }
        if self.is_blocking {
            statements.extend(quote!(#policy.is_blocking = true;));
        }
        if self.is_at_most_once {
            statements.extend(quote!(#policy.is_at_most_once = true;));
        }
        if statements.is_empty() {
            return quote!(::outlast::Policy::DEFAULT);
        }
        quote! {
            let mut #policy = ::outlast::Policy::DEFAULT;
            #statements
            #policy
        }
    }

    /// The expression that makes the retry, where anything is said about it.
    fn retry(&self) -> Option<TokenStream> {
        let calls: Vec<(&str, TokenStream)> = [
            ("attempts", self.attempts.map(|attempts| Literal::u32_unsuffixed(attempts).into_token_stream())),
            ("initial", self.initial.map(duration::tokens)),
            ("multiplier", self.multiplier.map(|factor| Literal::f64_unsuffixed(factor).into_token_stream())),
            ("max", self.pause_max.map(duration::tokens)),
        ]
        .into_iter()
        .filter_map(|(method, value)| Some((method, value?)))
        .collect();
        if calls.is_empty() && self.retry.is_none() {
            return None;
        }
        let begin = match &self.retry {
            Some(name) => quote!(::outlast::Retry::#name()),
            None => quote!(::outlast::Retry::DEFAULT),
        };
        let methods = calls.iter().map(|(method, _)| Ident::new(method, Span::call_site()));
        let values = calls.iter().map(|(_, value)| value);
        Some(quote!(#begin #(.#methods(#values))*))
    }
}

/// How long something may take, which is not no time.
fn time_limit(argument: &arguments::Argument) -> syn::Result<Duration> {
    let limit = argument.duration()?;
    if limit.is_zero() {
        let name = argument.name();
        return Err(argument.error(format!("no attempt ends in no time; give a longer `{name}`, or none")));
    }
    Ok(limit)
}

/// The function of `Retry` that an argument names.
fn retry(argument: &arguments::Argument) -> syn::Result<Ident> {
    let name = argument.text().ok().map(|text| text.value());
    match name.filter(|name| RETRIES.contains(&name.as_str())) {
        Some(name) => Ok(Ident::new(&name, Span::call_site())),
        None => {
            let known = RETRIES.join("\"`, `\"");
            Err(argument.error(format!("`retry` is one of `\"{known}\"`")))
        }
    }
}

/// `impl StepDefinition`: what there is to know without running it.
fn definition(function: &ItemFn, signature: &Signature, names: &Names, arguments: &Arguments) -> TokenStream {
    let cfg = function::conditions(function);
    let marker = Kind::Step.marker(&function.sig.ident);
    let (types, policy) = (signature.associated_types(), arguments.policy());
    let Names { name, was } = names;
    quote! {
        #(#cfg)*
        #[automatically_derived]
        impl ::outlast::StepDefinition for #marker {
            #types
            const NAME: &'static str = #name;
            const WAS: &'static [&'static str] = &[#(#was),*];
            fn policy() -> ::outlast::Policy {
                #policy
            }
        }
    }
}

/// `impl StepCode`: for the state that the context asks for, or for every state.
fn code(function: &ItemFn, signature: &Signature) -> TokenStream {
    let cfg = function::conditions(function);
    let (name, marker) = (&function.sig.ident, Kind::Step.marker(&function.sig.ident));
    let deprecated = function::deprecated_allowed(function);
    let cx = if signature.context.is_some() { "cx" } else { "_cx" };
    let (cx, input) = (Ident::new(cx, Span::mixed_site()), signature.input_name());
    let arguments = signature.spread(&input);
    let (generics, state, context) = match &signature.context {
        Some(Context::Of(state)) => (None, state.clone(), Some(quote!(#cx,))),
        Some(Context::Plain) => (Some(every_state()), quote!(S), Some(quote!(#cx.stateless(),))),
        None => (Some(every_state()), quote!(S), None),
    };
    quote! {
        #(#cfg)*
        #[automatically_derived]
        #deprecated
        impl #generics ::outlast::StepCode<#state> for #marker {
            fn attempt(#cx: ::outlast::StepContext<#state>, #input: Self::Input) -> ::outlast::Attempt<Self> {
                #name(#context #(#arguments),*)
            }
        }
    }
}

fn every_state() -> TokenStream {
    quote!(<S: ::core::marker::Send + ::core::marker::Sync + 'static>)
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

    fn policy(attribute: &str) -> String {
        let mut errors = Errors::default();
        let policy = Arguments::read(attribute.parse().unwrap(), &mut errors).policy();
        assert_eq!(errors.text(), "");
        policy.to_string().replace(' ', "").replace("::core::time::Duration::", "")
    }

    #[test]
    fn the_expansion_is_small() {
        let function = syn::parse_quote! {
            /// Takes the money.
            #[tracing::instrument]
            pub async fn charge(cx: StepContext<Bank>, mut order: Order) -> Result<Payment, BankError> {
                cx.state().charge(&mut order).await
            }
        };
        let (expansion, errors) = expand(quote!(attempts = 3, timeout = "30s", was = "pay"), &function);
        assert_eq!(errors.text(), "");
        expect![[r##"
            #[doc(hidden)]
            #[allow(non_camel_case_types, unreachable_pub)]
            #[derive(Debug)]
            pub struct __step_charge;
            #[automatically_derived]
            impl ::outlast::StepDefinition for __step_charge {
                type Input = Order;
                type Output = <Result<Payment, BankError> as ::outlast::ResultParts>::Ok;
                const NAME: &'static str = "charge";
                const WAS: &'static [&'static str] = &["pay"];
                fn policy() -> ::outlast::Policy {
                    let mut policy = ::outlast::Policy::DEFAULT;
                    policy.retry = ::outlast::Retry::DEFAULT.attempts(3);
                    policy.timeout = ::core::option::Option::Some(
                        ::core::time::Duration::from_secs(30),
                    );
                    policy
                }
            }
            #[automatically_derived]
            impl ::outlast::StepCode<Bank> for __step_charge {
                fn attempt(
                    cx: ::outlast::StepContext<Bank>,
                    input: Self::Input,
                ) -> ::outlast::Attempt<Self> {
                    charge(cx, input)
                }
            }
            /// Takes the money.
            pub fn charge(cx: StepContext<Bank>, order: Order) -> ::outlast::Attempt<__step_charge> {
                #[allow(clippy::unused_async)]
                #[tracing::instrument]
                async fn __outlast_body(
                    cx: StepContext<Bank>,
                    mut order: Order,
                ) -> Result<Payment, BankError> {
                    cx.state().charge(&mut order).await
                }
                ::outlast::Attempt::new(async move {
                    ::core::result::Result::map_err(
                        __outlast_body(cx, order).await,
                        ::core::convert::Into::into,
                    )
                })
            }
        "##]]
        .assert_eq(&prettyplease::unparse(&syn::parse2(expansion).unwrap()));
    }

    #[test]
    fn a_blocking_step_is_a_plain_function_inside() {
        let function = syn::parse_quote! {
            fn hash(text: String) -> Result<u64, Broken> { Ok(0) }
        };
        let (expansion, errors) = expand(quote!(blocking, limit = 2), &function);
        assert_eq!(errors.text(), "");
        let text = prettyplease::unparse(&syn::parse2(expansion).unwrap());
        let rest = text.split_once("fn hash").unwrap().1;
        expect![[r#"
            (text: String) -> ::outlast::Attempt<__step_hash> {
                #[allow(clippy::unused_async)]
                fn __outlast_body(text: String) -> Result<u64, Broken> {
                    Ok(0)
                }
                ::outlast::Attempt::blocking(move || ::core::result::Result::map_err(
                    __outlast_body(text),
                    ::core::convert::Into::into,
                ))
            }
        "#]]
        .assert_eq(rest);
    }

    #[test]
    fn a_step_without_context_has_code_for_every_state() {
        let function = syn::parse_quote! {
            async fn greet((first, last): (String, String), _times: u8) {}
        };
        let (expansion, errors) = expand(TokenStream::new(), &function);
        assert_eq!(errors.text(), "");
        expect![[r##"
            #[doc(hidden)]
            #[allow(non_camel_case_types, unreachable_pub)]
            #[derive(Debug)]
            struct __step_greet;
            #[automatically_derived]
            impl ::outlast::StepDefinition for __step_greet {
                type Input = ((String, String), u8);
                type Output = ();
                const NAME: &'static str = "greet";
                const WAS: &'static [&'static str] = &[];
                fn policy() -> ::outlast::Policy {
                    ::outlast::Policy::DEFAULT
                }
            }
            #[automatically_derived]
            impl<S: ::core::marker::Send + ::core::marker::Sync + 'static> ::outlast::StepCode<S>
            for __step_greet {
                fn attempt(
                    _cx: ::outlast::StepContext<S>,
                    input: Self::Input,
                ) -> ::outlast::Attempt<Self> {
                    greet(input.0, input.1)
                }
            }
            fn greet(
                argument_0: (String, String),
                argument_1: u8,
            ) -> ::outlast::Attempt<__step_greet> {
                #[allow(clippy::unused_async)]
                async fn __outlast_body((first, last): (String, String), _times: u8) {}
                ::outlast::Attempt::new(async move {
                    ::core::result::Result::Ok(__outlast_body(argument_0, argument_1).await)
                })
            }
        "##]]
        .assert_eq(&prettyplease::unparse(&syn::parse2(expansion).unwrap()));
    }

    #[test]
    fn the_policy_is_the_default_and_what_is_given() {
        assert_eq!(policy(""), "::outlast::Policy::DEFAULT");
        assert_eq!(
            policy(
                "attempts = 1, timeout = \"1h30m\", initial = \"0s\", multiplier = 1, pause_max = \"90ms\""
            ),
            "letmutpolicy=::outlast::Policy::DEFAULT;policy.retry=::outlast::Retry::DEFAULT.attempts(1)\
             .initial(from_secs(0)).multiplier(1.0).max(from_millis(90));\
             policy.timeout=::core::option::Option::Some(from_secs(5400));policy"
        );
        assert_eq!(
            policy("retry = \"api\", attempts = 2"),
            "letmutpolicy=::outlast::Policy::DEFAULT;policy.retry=::outlast::Retry::api().attempts(2);policy"
        );
    }

    #[test]
    fn bad_arguments_are_refused_where_they_stand() {
        refused(
            &[
                "#[step(attempts = 0)] async fn f() {}",
                "#[step(attempts = -1, attempts = 2)] async fn f() {}",
                r#"#[step(timeout = "0s", initial = "5 s", pause_max = 5)] async fn f() {}"#,
                r#"#[step(initial = "2m", pause_max = "1m")] async fn f() {}"#,
                "#[step(multiplier = 0.5)] async fn f() {}",
                "#[step(retries = 5)] async fn f() {}",
                r#"#[step(retry = "apis")] async fn f() {}"#,
                r#"#[step(retry = "linear", multiplier = 2.0)] async fn f() {}"#,
                "#[step(timeout)] async fn f() {}",
                "#[step(blocking = true, limit = 0)] async fn f() {}",
                "#[step(blocking)] async fn f() {}",
                "#[step(at_most_once, attempts = 3, retry = \"api\")] async fn f() {}",
                "#[step(attempts: 5)] async fn f() {}",
            ],
            expect![[r#"
                0
                    `attempts` is a whole number from 1 to 4294967295, such as `attempts = 5`
                attempts
                    `attempts` is given twice; remove one
                -1
                    `attempts` is a whole number from 1 to 4294967295, such as `attempts = 5`
                "0s"
                    no attempt ends in no time; give a longer `timeout`, or none
                "5 s"
                    `5 s` is not a duration; write numbers with units us, ms, s, m, h, d or w, such as `30s` or `1h30m`
                5
                    `pause_max` is a duration in quotes, such as `pause_max = "30s"`
                "2m"
                    the first pause is longer than `pause_max`; raise `pause_max`
                0.5
                    `multiplier` is a number of at least 1, such as `multiplier = 2.0`
                retries
                    unknown argument `retries`; `#[step]` knows `attempts`, `timeout`, `retry`, `initial`, `multiplier`, `pause_max`, `heartbeat_timeout`, `limit`, `blocking`, `at_most_once`, `name`, `was`
                "apis"
                    `retry` is one of `"exponential"`, `"linear"`, `"constant"`, `"api"`, `"database"`, `"network"`, `"none"`
                2.0
                    only exponential pauses have a `multiplier`; remove it
                timeout
                    `timeout` is a duration in quotes, such as `timeout = "30s"`
                true
                    `blocking` is a word by itself, without a value
                0
                    `limit` is a whole number from 1 to 4294967295, such as `limit = 5`
                async
                    a step that is `blocking` is not `async`; remove one of the two
                3
                    a step that is `at_most_once` has no second attempt; remove `attempts`
                "api"
                    a step that is `at_most_once` has no second attempt; remove `retry`
                :
                    expected `,`
            "#]],
        );
    }

    #[test]
    fn bad_names_are_refused_where_they_stand() {
        refused(
            &[
                r#"#[step(name = "", was = ["", "a", "a"])] async fn f() {}"#,
                "#[step(name = 5, was = [])] async fn f() {}",
                r#"#[step(was = "f")] async fn f() {}"#,
            ],
            expect![[r#"
                ""
                    a name has 1 to 128 bytes; this one is empty
                ""
                    a name has 1 to 128 bytes; this one is empty
                "a"
                    `a` is given twice; remove one
                5
                    `name` is a text in quotes: `name = "…"`
                []
                    `was` is a text, or texts in brackets: `was = "a"`, `was = ["a", "b"]`
                "f"
                    `f` is the present name; `was` is for earlier ones
            "#]],
        );
    }

    #[test]
    fn functions_that_cannot_be_steps_are_refused_with_the_remedy() {
        refused(
            &[
                "#[step] fn f() {}",
                r#"#[step] const unsafe extern "C" fn f(x: u8, ...) {}"#,
                "#[step] async fn f<'a, T>(&self, x: T) {}",
                "#[step] async fn f(a: &str, b: Vec<&Order>, c: &[u8], d: Cow<'_, str>, e: impl Copy) {}",
                "#[step] async fn f() -> Result<&'static str, Error> {}",
                "#[step] async fn f(a: u8, cx: StepContext) {}",
                "#[step] async fn f(cx: &StepContext<Bank>) {}",
            ],
            expect![[r#"
                fn
                    `#[step]` goes on an `async fn`; write `async fn f`, or `#[step(blocking)]`
                fn
                    `#[step]` goes on an `async fn`; write `async fn f`, or `#[step(blocking)]`
                const
                    `#[step]` does not go on a `const fn`; remove `const`
                unsafe
                    `#[step]` does not go on an `unsafe fn`; use an `unsafe` block inside
                extern "C"
                    `#[step]` does not go on an `extern fn`; remove `extern`
                ...
                    variable arguments cannot be stored; take a `Vec`
                <'a, T>
                    one durable name stands for one type: generic parameters and lifetimes are not possible; write the types out, or call a generic function from here
                &self
                    `#[step]` goes on a free function; pass a value instead of `self`
                &str
                    a reference cannot be read back from storage; take a `String`
                &Order
                    a reference cannot be read back from storage; take `Order` itself
                &[u8]
                    a reference cannot be read back from storage; take a `Vec` or another owned type
                '_
                    borrowed data cannot be read back from storage; take an owned type
                impl Copy
                    `impl Trait` names no type to store; take a type with a name
                &'static str
                    a reference cannot be read back from storage; return a `String`
                StepContext
                    `StepContext` is the first parameter, taken by value: `cx: StepContext`
                &StepContext<Bank>
                    `StepContext` is the first parameter, taken by value: `cx: StepContext`
            "#]],
        );
    }

    #[test]
    fn owned_and_static_types_are_allowed() {
        refused(
            &["#[step] async fn f(cx: outlast::StepContext<&'static Bank>, c: Cow<'static, str>) {}"],
            expect![[""]],
        );
    }

    #[test]
    fn a_name_has_a_limit() {
        refused(&[&format!("#[step(name = {:?})] async fn f() {{}}", "x".repeat(128))], expect![[""]]);
        refused(
            &[&format!("#[step(was = {:?})] async fn f() {{}}", "x".repeat(129))],
            expect![[r#"
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                a name has at most 128 bytes and this one has 129; choose a shorter one
        "#]],
        );
        refused(
            &[&format!("#[step] async fn {}() {{}}", "x".repeat(129))],
            expect![[r#"
            xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
                a name has at most 128 bytes and this one has 129; choose a shorter one, or give one with `name = "…"`
        "#]],
        );
    }
}
