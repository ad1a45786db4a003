//! The expansion of `#[step]`, and its errors.

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
    let policy = StepArguments::read(attribute.parse().unwrap(), &mut errors).policy();
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
        impl ::outlast::__private::StepDefinition for __step_charge {
            type Input = Order;
            type Output = <Result<Payment, BankError> as ::outlast::__private::ResultParts>::Ok;
            const NAME: &'static str = "charge";
            const WAS: &'static [&'static str] = &["pay"];
            fn policy() -> ::outlast::__private::Policy {
                let mut policy = ::outlast::__private::Policy::DEFAULT;
                policy.retry = ::outlast::__private::Retry::DEFAULT.attempts(3);
                policy.timeout = ::core::option::Option::Some(
                    ::core::time::Duration::from_secs(30),
                );
                policy
            }
        }
        #[automatically_derived]
        impl<
            __S: ::core::marker::Send + ::core::marker::Sync + 'static,
        > ::outlast::__private::StepCode<__S> for __step_charge
        where
            __S: ::outlast::__private::StateFor<Bank, Self>,
        {
            fn attempt(
                cx: ::outlast::__private::StepContext<__S>,
                input: Self::Input,
            ) -> ::outlast::__private::Attempt<Self> {
                charge(<__S as ::outlast::__private::StateFor<Bank, Self>>::context(cx), input)
            }
        }
        /// Takes the money.
        pub fn charge(
            cx: StepContext<Bank>,
            order: Order,
        ) -> ::outlast::__private::Attempt<__step_charge> {
            #[allow(clippy::unused_async)]
            #[tracing::instrument]
            async fn __outlast_body(
                cx: StepContext<Bank>,
                mut order: Order,
            ) -> Result<Payment, BankError> {
                cx.state().charge(&mut order).await
            }
            ::outlast::__private::Attempt::new(async move {
                ::core::result::Result::map_err(
                    __outlast_body(cx, order).await,
                    ::core::convert::Into::into,
                )
            })
        }
    "##]]
    .assert_eq(&prettyplease::unparse(&syn::parse2(expansion.unwrap()).unwrap()));
}

#[test]
fn a_blocking_step_is_a_plain_function_inside() {
    let function = syn::parse_quote! {
        fn hash(text: String) -> Result<u64, Broken> { Ok(0) }
    };
    let (expansion, errors) = expand(quote!(blocking, limit = 2), &function);
    assert_eq!(errors.text(), "");
    let text = prettyplease::unparse(&syn::parse2(expansion.unwrap()).unwrap());
    let rest = text.split_once("fn hash").unwrap().1;
    expect![[r#"
        (text: String) -> ::outlast::__private::Attempt<__step_hash> {
            #[allow(clippy::unused_async)]
            fn __outlast_body(text: String) -> Result<u64, Broken> {
                Ok(0)
            }
            ::outlast::__private::Attempt::blocking(move || ::core::result::Result::map_err(
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
        impl ::outlast::__private::StepDefinition for __step_greet {
            type Input = ((String, String), u8);
            type Output = ();
            const NAME: &'static str = "greet";
            const WAS: &'static [&'static str] = &[];
            fn policy() -> ::outlast::__private::Policy {
                ::outlast::__private::Policy::DEFAULT
            }
        }
        #[automatically_derived]
        impl<
            __S: ::core::marker::Send + ::core::marker::Sync + 'static,
        > ::outlast::__private::StepCode<__S> for __step_greet {
            fn attempt(
                _cx: ::outlast::__private::StepContext<__S>,
                input: Self::Input,
            ) -> ::outlast::__private::Attempt<Self> {
                greet(input.0, input.1)
            }
        }
        fn greet(
            argument_0: (String, String),
            argument_1: u8,
        ) -> ::outlast::__private::Attempt<__step_greet> {
            #[allow(clippy::unused_async)]
            async fn __outlast_body((first, last): (String, String), _times: u8) {}
            ::outlast::__private::Attempt::new(async move {
                ::core::result::Result::Ok(__outlast_body(argument_0, argument_1).await)
            })
        }
    "##]]
    .assert_eq(&prettyplease::unparse(&syn::parse2(expansion.unwrap()).unwrap()));
}

#[test]
fn the_policy_is_the_default_and_what_is_given() {
    assert_eq!(policy(""), "::outlast::__private::Policy::DEFAULT");
    assert_eq!(
        policy("attempts = 1, timeout = \"1h30m\", initial = \"0s\", multiplier = 1, pause_max = \"90ms\""),
        "letmutpolicy=::outlast::__private::Policy::DEFAULT;policy.retry=::outlast::__private::Retry::DEFAULT.attempts(1)\
         .initial(from_secs(0)).multiplier(1.0).max(from_millis(90));\
         policy.timeout=::core::option::Option::Some(from_secs(5400));policy"
    );
    assert_eq!(
        policy("retry = \"api\", attempts = 2"),
        "letmutpolicy=::outlast::__private::Policy::DEFAULT;policy.retry=::outlast::__private::Retry::api().attempts(2);policy"
    );
}

#[test]
fn errors_point_at_the_invalid_arguments() {
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
                an attempt needs more time than zero; give a longer `timeout`, or none
            "5 s"
                `5 s` is not a duration; write numbers with units us, ms, s, m, h, d or w, such as `30s` or `1h30m`
            5
                `pause_max` is a duration in quotes, such as `pause_max = "30s"`
            "2m"
                the first pause is longer than `pause_max`; raise `pause_max`
            0.5
                `multiplier` is a number of at least 1, such as `multiplier = 2.0`
            retries
                unknown argument `retries`; `#[step]` knows `attempts`, `timeout`, `retry`, `initial`, `multiplier`, `pause_max`, `heartbeat_timeout`, `limit`, `blocking`, `transactional`, `at_most_once`, `reconcile`, `unique`, `queue`, `priority`, `name`, `was`
            "apis"
                `retry` is one of `"exponential"`, `"linear"`, `"constant"`, `"quick"`, `"standard"`, `"aggressive"`, `"api"`, `"database"`, `"network"`, `"none"`
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
fn errors_point_at_the_invalid_names() {
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
                a durable name belongs to one type, so generic parameters and lifetimes are not allowed; write the types out, or call a generic function from here
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

#[test]
fn reconcile_and_unique_add_functions() {
    let function = syn::parse_quote! {
        async fn charge(cx: StepContext<Bank>, order: Order, _user: u64) -> Result<Payment, BankError> {}
    };
    let arguments = quote!(reconcile = bank::look_up, unique = "order.id.0, user");
    let (expansion, errors) = expand(arguments, &function);
    assert_eq!(errors.text(), "");
    let text = prettyplease::unparse(&syn::parse2(expansion.unwrap()).unwrap());
    let key = text.split_once("    fn unique").unwrap().1.split_once("#[automatically").unwrap().0;
    expect![[r#"
        (
                input: &Self::Input,
            ) -> ::core::result::Result<
                ::core::option::Option<::std::string::String>,
                ::outlast::__private::StepError,
            > {
                ::outlast::__private::unique_key::<Self>(&(&input.0.id.0, &input.1))
            }
        }
    "#]]
    .assert_eq(key);
    let function = text.split_once("async fn __outlast_body").unwrap().1.split_once('{').unwrap().0;
    assert_eq!(
        function.matches("#[allow(unused_variables)]").count(),
        2,
        "the key uses both parameters: {function}"
    );
    let look_up = text.split_once("    const RECONCILES").unwrap().1.split_once("fn charge").unwrap().0;
    expect![[r#"
        : bool = true;
            fn reconcile(
                cx: ::outlast::__private::StepContext<__S>,
                input: Self::Input,
            ) -> ::outlast::__private::Reconciling<Self> {
                ::outlast::__private::reconciling::<
                    Self,
                    _,
                    _,
                    _,
                >(
                    bank::look_up,
                    <__S as ::outlast::__private::StateFor<Bank, Self>>::context(cx),
                    input,
                )
            }
        }
    "#]]
    .assert_eq(look_up);
}

#[test]
fn a_key_is_made_of_parameters_and_their_fields() {
    refused(
        &[
            r#"#[step(unique = "")] async fn f(id: u8) {}"#,
            r#"#[step(unique = "id, user")] async fn f(id: u8, name: String) {}"#,
            r#"#[step(unique = "cx")] async fn f(cx: StepContext) {}"#,
            r#"#[step(unique = "id.to_string()")] async fn f(id: u8) {}"#,
            r#"#[step(unique = "a b")] async fn f(id: u8) {}"#,
            "#[step(unique = id)] async fn f(id: u8) {}",
            r#"#[step(reconcile = "look")] async fn f(id: u8) {}"#,
            "#[step(reconcile)] async fn f(id: u8) {}",
        ],
        expect![[r#"
            ""
                `unique` names parameters of the step, or fields of them: `unique = "order.id, action"`
            "id, user"
                the step has no parameter `user`; it has `id`, `name`
            "cx"
                the step has no parameter `cx`; it has none
            "id.to_string()"
                `unique` names parameters of the step, or fields of them: `unique = "order.id, action"`
            "a b"
                `unique` names parameters of the step, or fields of them: `unique = "order.id, action"`
            id
                `unique` is a text in quotes: `unique = "…"`
            "look"
                `reconcile` is the name of a function, without quotes: `reconcile = my_function`
            reconcile
                `reconcile` is the name of a function, without quotes: `reconcile = my_function`
        "#]],
    );
}

/// The messages for a function with its attribute, given as written.
fn messages(item: &str) -> String {
    let mut function: ItemFn = syn::parse_str(item).unwrap();
    let syn::Meta::List(list) = function.attrs.remove(0).meta else { panic!("it has no arguments") };
    expand(list.tokens, &function).1.text()
}

#[test]
fn a_transactional_step_takes_the_transaction_of_its_database() {
    let cases = [
        (
            "#[step(transactional)] fn f(n: u64) {}",
            "the first parameter of a transactional step is the transaction",
        ),
        (
            "#[step(transactional)] fn f() {}",
            "the first parameter of a transactional step is the transaction",
        ),
        ("#[step(transactional)] async fn f(tx: &SqliteTx<'_>) {}", "on SQLite is not `async`"),
        (
            "#[step(transactional)] fn f(tx: &mut PgTx<'_>) {}",
            "on Postgres is an `async fn`; write `async fn f`",
        ),
        ("#[step(transactional)] async fn f(tx: &PgTx<'_>) {}", "write `tx: &mut PgTx<'_>`"),
        ("#[step(transactional)] fn f(tx: SqliteTx<'_>) {}", "write `tx: &SqliteTx<'_>`"),
        (
            "#[step(limit = 1)] async fn f(tx: &mut PgTx<'_>) {}",
            "first parameter of a `#[step(transactional)]`",
        ),
        ("#[step(transactional, at_most_once)] fn f(tx: &SqliteTx<'_>) {}", "remove `at_most_once`"),
        ("#[step(transactional, reconcile = g)] fn f(tx: &SqliteTx<'_>) {}", "remove `reconcile`"),
        ("#[step(transactional, blocking)] fn f(tx: &SqliteTx<'_>) {}", "remove `blocking`"),
        (r#"#[step(transactional, unique = "n")] fn f(tx: &SqliteTx<'_>, n: u64) {}"#, "remove `unique`"),
    ];
    for (item, expected) in cases {
        let messages = messages(item);
        assert!(messages.contains(expected), "{item}: {messages}");
    }
    for item in [
        "#[step(transactional)] fn f(tx: &SqliteTx<'_>, n: u64) {}",
        "#[step(transactional)] async fn f(tx: &mut outlast::PgTx<'_>, cx: StepContext<Bank>, n: u64) {}",
    ] {
        assert_eq!(messages(item), "", "{item}");
    }
}
