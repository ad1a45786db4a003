//! Finds calls in a workflow's body that are not deterministic.
//!
//! It checks names, not types: a renamed import is found at run time, as a divergence.

mod rules;

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprMethodCall, FnArg, ItemFn, Macro, Path, Token, UseTree};

use crate::errors::Errors;
use crate::select::Select;

/// Adds an error for every name in the parameters and body of `function` that is not deterministic.
pub(crate) fn check(function: &ItemFn, errors: &mut Errors) {
    let mut visitor = NameVisitor { errors };
    for input in &function.sig.inputs {
        if let FnArg::Typed(parameter) = input {
            visitor.visit_type(&parameter.ty);
        }
    }
    visitor.visit_block(&function.block);
}

struct NameVisitor<'a> {
    errors: &'a mut Errors,
}

impl NameVisitor<'_> {
    /// Adds an error for a path or macro, at its offending segments.
    fn check(&mut self, path: &Path, find_rule: impl Fn(&[String]) -> Option<(usize, String)>) {
        let names: Vec<&Ident> = path.segments.iter().map(|segment| &segment.ident).collect();
        let words: Vec<String> = names.iter().map(ToString::to_string).collect();
        if let Some((length, reason)) = find_rule(&words) {
            let place: TokenStream = names[..length].iter().map(ToTokens::to_token_stream).collect();
            self.errors.at(place, reason);
        }
    }

    /// Adds an error for every name that `use before::tree` imports.
    fn check_use(&mut self, before: &[&Ident], tree: &UseTree) {
        let last = match tree {
            UseTree::Path(path) => return self.check_use(&[before, &[&path.ident]].concat(), &path.tree),
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.check_use(before, tree)),
            UseTree::Name(name) => Some(&name.ident),
            UseTree::Rename(rename) => Some(&rename.ident),
            UseTree::Glob(_) => None,
        };
        let names: Vec<&Ident> = before.iter().copied().chain(last).collect();
        let words: Vec<String> = names.iter().map(ToString::to_string).collect();
        if let Some((_, reason)) = rules::path(&words) {
            self.errors.at(names.last(), reason);
        }
    }

    fn visit_parsed(&mut self, tokens: &TokenStream) {
        for expression in arguments_of(tokens) {
            self.visit_expr(&expression);
        }
    }
}

impl<'ast> Visit<'ast> for NameVisitor<'_> {
    fn visit_path(&mut self, path: &'ast Path) {
        self.check(path, rules::path);
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.check_use(&[], &item.tree);
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        // A step inside a workflow's body may have effects; a workflow is checked by itself.
        if !function.attrs.iter().any(is_definition) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.method != "call" && call.method != "record" {
            return visit::visit_expr_method_call(self, call);
        }
        // A closure of `ctx.call` is a step, and a closure of `ctx.record` is not called by a replay: their results are
        // recorded.
        self.visit_expr(&call.receiver);
        for argument in call.args.iter().filter(|argument| !matches!(argument, Expr::Closure(_))) {
            self.visit_expr(argument);
        }
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.check(&call.path, rules::macro_call);
        match call.path.segments.last().map(|last| last.ident.to_string()).as_deref() {
            Some("stringify") => {}
            Some("select" | "select_biased") => {
                let branches = syn::parse2::<Select>(call.tokens.clone()).map(|select| select.branches);
                for branch in branches.unwrap_or_default() {
                    self.visit_expr(&branch.future);
                    self.visit_expr(&branch.body);
                }
            }
            _ => self.visit_parsed(&call.tokens),
        }
    }
}

/// The expressions in a macro's tokens: `a, b` as in most macros or `a; b` as in `vec!`. Empty for
/// macros with another syntax.
fn arguments_of(tokens: &TokenStream) -> Vec<Expr> {
    let commas = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(tokens.clone());
    let semicolon = |_| Punctuated::<Expr, Token![;]>::parse_separated_nonempty.parse2(tokens.clone());
    match commas {
        Ok(expressions) => expressions.into_iter().collect(),
        Err(error) => semicolon(error).map(|both| both.into_iter().collect()).unwrap_or_default(),
    }
}

fn is_definition(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "step" || last.ident == "workflow")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn refused(body: &str, expected: Expect) {
        let function = syn::parse_str(&format!("async fn f(ctx: Context) {{ {body} }}")).unwrap();
        let mut errors = Errors::default();
        check(&function, &mut errors);
        expected.assert_eq(&errors.text());
    }

    fn allowed(body: &str) {
        refused(body, expect![[""]]);
    }

    #[test]
    fn time_and_random_numbers_come_from_the_context() {
        refused(
            "std::time::SystemTime::now(); Instant::now(); Utc::now(); chrono::Local::now();",
            expect![[r#"
                std::time::SystemTime::now
                    `std::time::SystemTime::now` differs on every replay; use `ctx.now()`
                Instant::now
                    `Instant::now` differs on every replay; use `ctx.now()`
                Utc::now
                    `Utc::now` differs on every replay; use `ctx.now()`
                chrono::Local::now
                    `chrono::Local::now` differs on every replay; use `ctx.now()`
            "#]],
        );
        refused(
            "rand::rng().random::<u8>(); rand::random::<u8>(); fastrand::u8(..); thread_rng();",
            expect![[r#"
                rand::rng
                    `rand::rng` returns different numbers on every replay; use `ctx.random()`
                rand::random
                    `rand::random` returns different numbers on every replay; use `ctx.random()`
                fastrand::u8
                    `fastrand::u8` returns different numbers on every replay; use `ctx.random()`
                thread_rng
                    `thread_rng` returns different numbers on every replay; use `ctx.random()`
            "#]],
        );
        refused(
            "Uuid::new_v4(); uuid::Uuid::now_v7();",
            expect![[r#"
            Uuid::new_v4
                `Uuid::new_v4` differs on every replay; use `ctx.uuid()`
            uuid::Uuid::now_v7
                `uuid::Uuid::now_v7` differs on every replay; use `ctx.uuid()`
        "#]],
        );
        refused(
            "tokio::time::sleep(A).await; tokio::time::Instant::now(); time::timeout(A, b);",
            expect![[r#"
                tokio::time::sleep
                    `tokio::time::sleep` does not outlast the process; use `ctx.sleep(…)`, or `.timeout(…)` on the operation
                tokio::time::Instant::now
                    `tokio::time::Instant::now` differs on every replay; use `ctx.now()`
                time::timeout
                    `time::timeout` does not outlast the process; use `ctx.sleep(…)`, or `.timeout(…)` on the operation
            "#]],
        );
    }

    #[test]
    fn spawned_tasks_are_refused() {
        refused(
            "tokio::spawn(a); tokio::task::spawn_blocking(b); task::spawn(c);",
            expect![[r#"
            tokio::spawn
                `tokio::spawn` runs outside the history; await operations together with `join!`, and do the work in a step
            tokio::task::spawn_blocking
                `tokio::task::spawn_blocking` runs outside the history; await operations together with `join!`, and do the work in a step
            task::spawn
                `task::spawn` runs outside the history; await operations together with `join!`, and do the work in a step
        "#]],
        );
        refused(
            "std::thread::spawn(a); thread::spawn(b); thread::sleep(c);",
            expect![[r#"
            std::thread::spawn
                `std::thread::spawn` runs outside the history; do the work in a step or in `ctx.call(…)`
            thread::spawn
                `thread::spawn` runs outside the history; do the work in a step or in `ctx.call(…)`
            thread::sleep
                `thread::sleep` does not outlast the process; use `ctx.sleep(…)`, or `.timeout(…)` on the operation
        "#]],
        );
    }

    #[test]
    fn macros_that_poll_in_random_order_are_refused() {
        refused(
            "tokio::join!(a, b); tokio::try_join!(a, b);",
            expect![[r#"
            tokio::join
                `tokio::join!` polls in a different order each time; use `join!` or `try_join!` of `outlast::prelude`
            tokio::try_join
                `tokio::try_join!` polls in a different order each time; use `join!` or `try_join!` of `outlast::prelude`
        "#]],
        );
        refused(
            "tokio::select! { x = a => x } futures::select! { x = a => x } futures_util::select!{}",
            expect![[r#"
                tokio::select
                    `tokio::select!` chooses a branch at random; use `outlast::select!`, which polls them in order
                futures::select
                    `futures::select!` chooses a branch at random; use `outlast::select!`, which polls them in order
                futures_util::select
                    `futures_util::select!` chooses a branch at random; use `outlast::select!`, which polls them in order
            "#]],
        );
    }

    #[test]
    fn input_and_output_are_refused_outside_steps() {
        refused(
            "std::fs::read(p); tokio::fs::read(p).await; fs::write(p, q); std::env::var(a); env::var(b);",
            expect![[r#"
                std::fs::read
                    `std::fs::read` may return a different value on replay; use files in a step or in `ctx.call(…)`
                tokio::fs::read
                    `tokio::fs::read` may return a different value on replay; use files in a step or in `ctx.call(…)`
                fs::write
                    `fs::write` may return a different value on replay; use files in a step or in `ctx.call(…)`
                std::env::var
                    `std::env::var` may differ on the worker that continues the run; read it in `ctx.call(…)`, or make it part of the input
                env::var
                    `env::var` may differ on the worker that continues the run; read it in `ctx.call(…)`, or make it part of the input
            "#]],
        );
        refused(
            "std::net::TcpStream::connect(a); tokio::net::lookup_host(b); reqwest::get(u); ureq::get(u); hyper::x();",
            expect![[r#"
                std::net::TcpStream::connect
                    `std::net::TcpStream::connect` may return a different value on replay; use the network in a step or in `ctx.call(…)`
                tokio::net::lookup_host
                    `tokio::net::lookup_host` may return a different value on replay; use the network in a step or in `ctx.call(…)`
                reqwest::get
                    `reqwest::get` may return a different value on replay; use the network in a step or in `ctx.call(…)`
                ureq::get
                    `ureq::get` may return a different value on replay; use the network in a step or in `ctx.call(…)`
                hyper::x
                    `hyper::x` may return a different value on replay; use the network in a step or in `ctx.call(…)`
            "#]],
        );
        refused(
            "std::process::Command::new(a);",
            expect![[r#"
            std::process::Command::new
                `std::process::Command::new` may return a different value on replay; use processes in a step or in `ctx.call(…)`
        "#]],
        );
    }

    #[test]
    fn maps_without_an_order_are_refused() {
        refused(
            "let m: HashMap<u8, SystemTime> = HashMap::new(); let s = x.collect::<std::collections::HashSet<_>>();",
            expect![[r#"
                HashMap
                    `HashMap` iterates in a different order on every replay; use `BTreeMap`, or a `Vec`
                HashMap
                    `HashMap` iterates in a different order on every replay; use `BTreeMap`, or a `Vec`
                std::collections::HashSet
                    `std::collections::HashSet` iterates in a different order on every replay; use `BTreeSet`, or a `Vec`
            "#]],
        );
        let function = syn::parse_str("async fn f(ctx: Context, m: HashMap<u8, u8>) {}").unwrap();
        let mut errors = Errors::default();
        check(&function, &mut errors);
        expect![[r#"
            HashMap
                `HashMap` iterates in a different order on every replay; use `BTreeMap`, or a `Vec`
        "#]]
        .assert_eq(&errors.text());
    }

    #[test]
    fn imports_inside_the_body_are_checked() {
        refused(
            "use std::{fs, collections::{BTreeMap, HashMap as Map}, thread::*}; use rand::Rng;",
            expect![[r#"
                fs
                    `std::fs` may return a different value on replay; use files in a step or in `ctx.call(…)`
                HashMap
                    `std::collections::HashMap` iterates in a different order on every replay; use `BTreeMap`, or a `Vec`
                thread
                    `std::thread` runs outside the history; do the work in a step or in `ctx.call(…)`
                Rng
                    `rand::Rng` returns different numbers on every replay; use `ctx.random()`
            "#]],
        );
    }

    #[test]
    fn closures_given_to_call_may_do_anything() {
        allowed("ctx.call(\"a\", id, async |id| reqwest::get(id).await).attempts(3).await?");
        allowed("ctx.call(\"a\", (), move || async move { tokio::fs::read(p).await })");
        allowed("let rate: f64 = ctx.record(\"rate\", || rand::random())?;");
        refused(
            "ctx.call(\"a\", Instant::now(), async |_| Instant::now())",
            expect![[r#"
            Instant::now
                `Instant::now` differs on every replay; use `ctx.now()`
        "#]],
        );
        refused(
            "items.map(|item| Instant::now())",
            expect![[r#"
            Instant::now
                `Instant::now` differs on every replay; use `ctx.now()`
        "#]],
        );
    }

    #[test]
    fn steps_defined_inside_may_do_anything() {
        allowed(
            "#[step] async fn a() { Instant::now(); } #[outlast::step(attempts = 1)] async fn b() { rand::random() }",
        );
        refused(
            "fn helper() { Instant::now(); }",
            expect![[r#"
            Instant::now
                `Instant::now` differs on every replay; use `ctx.now()`
        "#]],
        );
    }

    #[test]
    fn arguments_of_macros_are_read() {
        refused(
            "println!(\"{:?} {x}\", Utc::now(), x = rand::random());",
            expect![[r#"
            Utc::now
                `Utc::now` differs on every replay; use `ctx.now()`
            rand::random
                `rand::random` returns different numbers on every replay; use `ctx.random()`
        "#]],
        );
        refused(
            "vec![Uuid::new_v4(); 3]; vec![Uuid::new_v4(), b];",
            expect![[r#"
            Uuid::new_v4
                `Uuid::new_v4` differs on every replay; use `ctx.uuid()`
            Uuid::new_v4
                `Uuid::new_v4` differs on every replay; use `ctx.uuid()`
        "#]],
        );
        refused(
            "try_join!(ctx.step(a, &x), tokio::time::sleep(y))?; assert!(Instant::now() > z);",
            expect![[r#"
                tokio::time::sleep
                    `tokio::time::sleep` does not outlast the process; use `ctx.sleep(…)`, or `.timeout(…)` on the operation
                Instant::now
                    `Instant::now` differs on every replay; use `ctx.now()`
            "#]],
        );
        refused(
            "select! { x = tokio::time::sleep(y) => Instant::now(), _ = z => {} }",
            expect![[r#"
            tokio::time::sleep
                `tokio::time::sleep` does not outlast the process; use `ctx.sleep(…)`, or `.timeout(…)` on the operation
            Instant::now
                `Instant::now` differs on every replay; use `ctx.now()`
        "#]],
        );
        allowed("try_join!(ctx.call(\"a\", (), async |_| reqwest::get(u).await), b)?;");
        allowed("stringify!(Instant::now()); json!({ \"a\": Instant::now() }); info!(x = ?Instant::now());");
    }

    #[test]
    fn what_replays_is_allowed() {
        allowed("println!(\"x\"); let rand = ctx.random(); rand.next(); let fs = 1; f(fs);");
        allowed("let a: std::net::IpAddr = b; tokio::time::Duration::from_secs(1); reqwest::StatusCode::OK;");
        allowed("let t: SystemTime = ctx.now(); join!(a, b); futures::join!(a, b); select! { x = a => x }");
        allowed("crate::rand::pick(); my::fs::read(); Vec::<u8>::new(); BTreeMap::new();");
    }
}
