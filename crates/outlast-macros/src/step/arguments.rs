//! The arguments of `#[step]`, and its policy.

use std::time::Duration;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{LitStr, Path};

use crate::arguments::{self, Argument};
use crate::duration;
use crate::errors::Errors;
use crate::kind::Kind;

const KNOWN: [&str; 17] = [
    "attempts",
    "timeout",
    "retry",
    "initial",
    "multiplier",
    "pause_max",
    "heartbeat_timeout",
    "limit",
    "blocking",
    "transactional",
    "at_most_once",
    "reconcile",
    "unique",
    "queue",
    "priority",
    "name",
    "was",
];

/// Arguments that contradict `at_most_once`.
const FOR_RETRIES: [&str; 5] = ["attempts", "retry", "initial", "multiplier", "pause_max"];

/// Arguments that contradict `transactional`, and why.
const NOT_TRANSACTIONAL: [(&str, &str); 4] = [
    ("at_most_once", "its effect happens exactly once"),
    ("reconcile", "an attempt that did not complete had no effect"),
    ("unique", "its effect happens exactly once, without a key"),
    ("blocking", "on SQLite its code has a thread of its own, and on Postgres it is `async`"),
];

/// The values of `retry = "…"`: the functions of `Retry` without parameters.
const RETRIES: [&str; 10] = [
    "exponential",
    "linear",
    "constant",
    "quick",
    "standard",
    "aggressive",
    "api",
    "database",
    "network",
    "none",
];

/// The values of `retry` without a multiplier.
const WITHOUT_MULTIPLIER: [&str; 2] = ["linear", "constant"];
/// The arguments of `#[step]`; what is left out is as in `Policy::DEFAULT`.
#[derive(Default)]
pub(super) struct StepArguments {
    attempts: Option<u32>,
    timeout: Option<Duration>,
    retry: Option<Ident>,
    initial: Option<Duration>,
    multiplier: Option<f64>,
    pause_max: Option<Duration>,
    heartbeat_timeout: Option<Duration>,
    limit: Option<u32>,
    pub(super) is_blocking: bool,
    pub(super) is_transactional: bool,
    is_at_most_once: bool,
    queue: Option<LitStr>,
    priority: Option<u8>,
    /// The function that checks whether an earlier attempt had its effect.
    pub(super) reconcile: Option<Path>,
    /// The parts of the key, as written.
    pub(super) unique: Option<LitStr>,
    pub(super) name: Option<LitStr>,
    pub(super) was: Vec<LitStr>,
}

impl StepArguments {
    pub(super) fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut step = Self::default();
        let arguments = arguments::read(tokens, Kind::Step, &KNOWN, errors);
        for argument in &arguments {
            match argument.name().as_str() {
                "attempts" => step.attempts = errors.keep(argument.count()),
                "timeout" => step.timeout = errors.keep(time_limit(argument)),
                "heartbeat_timeout" => step.heartbeat_timeout = errors.keep(time_limit(argument)),
                "limit" => step.limit = errors.keep(argument.count()),
                "blocking" => step.is_blocking = errors.keep(argument.flag()).is_some(),
                "transactional" => step.is_transactional = errors.keep(argument.flag()).is_some(),
                "at_most_once" => step.is_at_most_once = errors.keep(argument.flag()).is_some(),
                "retry" => step.retry = errors.keep(retry(argument)),
                "initial" => step.initial = errors.keep(argument.duration()),
                "multiplier" => step.multiplier = errors.keep(argument.factor()),
                "pause_max" => step.pause_max = errors.keep(argument.duration()),
                "reconcile" => step.reconcile = errors.keep(argument.function()),
                "queue" => step.queue = errors.keep(argument.queue()),
                "priority" => step.priority = errors.keep(argument.priority()),
                "unique" => step.unique = errors.keep(argument.text()),
                "name" => step.name = errors.keep(argument.text()),
                _ => step.was = errors.keep(argument.texts()).unwrap_or_default(),
            }
        }
        step.refuse_contradictions(&arguments, errors);
        step
    }

    /// Refuses arguments that contradict each other.
    fn refuse_contradictions(&self, arguments: &[Argument], errors: &mut Errors) {
        if self.is_at_most_once {
            for argument in
                arguments.iter().filter(|argument| FOR_RETRIES.contains(&argument.name().as_str()))
            {
                let name = argument.name();
                let message = format!("a step that is `at_most_once` has no second attempt; remove `{name}`");
                errors.push(argument.error(message));
            }
        }
        if self.is_transactional {
            for argument in arguments {
                let name = argument.name();
                if let Some((_, why)) = NOT_TRANSACTIONAL.iter().find(|(refused, _)| *refused == name) {
                    errors.push(
                        argument.error(format!("a step is `transactional`, so {why}; remove `{name}`")),
                    );
                }
            }
        }
        let find = |name: &str| arguments.iter().find(|argument| argument.name() == name);
        if self.queue.is_none()
            && let Some(priority) = find("priority")
            && find("queue").is_none()
        {
            let message =
                "only a queued step has a priority; set its queue with `queue = \"…\"`, or remove `priority`";
            errors.push(priority.error(message));
        }
        if self.pause_max.is_some()
            && self.initial > self.pause_max
            && let Some(initial) = find("initial")
        {
            errors.push(initial.error("the first pause is longer than `pause_max`; raise `pause_max`"));
        }
        if self.retry.as_ref().is_some_and(|retry| WITHOUT_MULTIPLIER.iter().any(|name| retry == name))
            && let Some(multiplier) = find("multiplier")
        {
            errors.push(multiplier.error("only exponential pauses have a `multiplier`; remove it"));
        }
    }

    /// The statements and the expression that make the policy.
    pub(super) fn policy(&self) -> TokenStream {
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
        if self.is_transactional {
            statements.extend(quote!(#policy.is_transactional = true;));
        }
        if self.is_at_most_once {
            statements.extend(quote!(#policy.is_at_most_once = true;));
        }
        if let Some(queue) = &self.queue {
            statements.extend(quote!(#policy.queue = ::core::option::Option::Some(#queue);));
        }
        if let Some(priority) = self.priority.map(Literal::u8_unsuffixed) {
            statements.extend(quote!(#policy.priority = ::core::option::Option::Some(#priority);));
        }
        if statements.is_empty() {
            return quote!(::outlast::__private::Policy::DEFAULT);
        }
        quote! {
            let mut #policy = ::outlast::__private::Policy::DEFAULT;
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
            Some(name) => quote!(::outlast::__private::Retry::#name()),
            None => quote!(::outlast::__private::Retry::DEFAULT),
        };
        let methods = calls.iter().map(|(method, _)| Ident::new(method, Span::call_site()));
        let values = calls.iter().map(|(_, value)| value);
        Some(quote!(#begin #(.#methods(#values))*))
    }
}

/// A time limit, which must not be zero.
fn time_limit(argument: &Argument) -> syn::Result<Duration> {
    let limit = argument.duration()?;
    if limit.is_zero() {
        let name = argument.name();
        return Err(
            argument.error(format!("an attempt needs more time than zero; give a longer `{name}`, or none"))
        );
    }
    Ok(limit)
}

/// The function of `Retry` that an argument names.
fn retry(argument: &Argument) -> syn::Result<Ident> {
    let name = argument.text().ok().map(|text| text.value());
    match name.filter(|name| RETRIES.contains(&name.as_str())) {
        Some(name) => Ok(Ident::new(&name, Span::call_site())),
        None => {
            let known = RETRIES.join("\"`, `\"");
            Err(argument.error(format!("`retry` is one of `\"{known}\"`")))
        }
    }
}
