//! `select!`: the first of several futures that is ready, always looked at in the order written.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Block, Error, Expr, ExprBlock, Pat, Result, Token, token};

/// The branches of a `select!`.
pub(crate) struct Select {
    pub(crate) branches: Vec<Branch>,
}

/// `pattern = future => body`
pub(crate) struct Branch {
    pub(crate) pattern: Pat,
    pub(crate) future: Expr,
    pub(crate) body: Expr,
}

impl Parse for Select {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut branches = Vec::new();
        while !input.is_empty() {
            let branch: Branch = input.parse()?;
            let ends_itself = matches!(branch.body, Expr::Block(_));
            branches.push(branch);
            if input.peek(Token![,]) {
                input.parse::<Token![,]>()?;
            } else if !input.is_empty() && !ends_itself {
                return Err(input.error("a branch ends with `,`, unless its body is a block"));
            }
        }
        if branches.is_empty() {
            let message =
                "`select!` without a branch would wait for ever; write `pattern = future => expression`";
            return Err(Error::new(Span::call_site(), message));
        }
        Ok(Self { branches })
    }
}

impl Parse for Branch {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(Token![else]) {
            let message = "`else` is not supported: every branch stays in the race until one is ready; race against \
                           `ctx.sleep(…)` for a way out";
            return Err(input.error(message));
        }
        if input.peek2(Token![;]) && input.fork().parse::<Ident>().is_ok_and(|word| word == "biased") {
            return Err(input.error("remove `biased;`: this `select!` always polls its branches in order"));
        }
        let pattern = Pat::parse_single(input)?;
        if !input.peek(Token![=]) || input.peek(Token![=>]) {
            return Err(input.error("a branch is `pattern = future => expression`"));
        }
        input.parse::<Token![=]>()?;
        let future = input.parse()?;
        if input.peek(Token![,]) && input.peek2(Token![if]) {
            input.parse::<Token![,]>()?;
            let message = "preconditions are not supported: a future that is not wanted is left out before the race; \
                           write an `if` around the `select!`";
            return Err(input.error(message));
        }
        input.parse::<Token![=>]>()?;
        let body = if input.peek(token::Brace) {
            Expr::Block(ExprBlock { attrs: Vec::new(), label: None, block: input.parse::<Block>()? })
        } else {
            input.parse()?
        };
        Ok(Self { pattern, future, body })
    }
}

/// Expands `select! { tokens }`.
pub(crate) fn expand(tokens: TokenStream) -> TokenStream {
    match syn::parse2::<Select>(tokens) {
        Ok(select) => select.expand(),
        Err(error) => error.into_compile_error(),
    }
}

impl Select {
    fn expand(&self) -> TokenStream {
        let hygienic = |name: &str| Ident::new(name, Span::mixed_site());
        let selected = hygienic("__OutlastSelected");
        let (cx, value) = (hygienic("__outlast_cx"), hygienic("__outlast_value"));
        let names = |prefix: &str| -> Vec<Ident> {
            (0..self.branches.len()).map(|index| hygienic(&format!("{prefix}{index}"))).collect()
        };
        let (variants, futures) = (names("Branch"), names("__outlast_future"));
        let expressions = self.branches.iter().map(|branch| {
            let future = &branch.future;
            let into = Span::mixed_site().located_at(future.span());
            quote_spanned!(into=> ::core::future::IntoFuture::into_future(#future))
        });
        let arms = self.branches.iter().zip(&variants).map(|(Branch { pattern, body, .. }, variant)| {
            // A body in braces is how a branch without a comma is written, not a slip.
            quote! {
                #[allow(unused_braces)]
                #selected::#variant(#value) => {
                    let #pattern = #value;
                    #body
                }
            }
        });
        // The futures are bound by a `match` so that temporaries in their expressions live as long as
        // they would before an `.await`. All are gone when the statement ends: before any body runs.
        quote! {{
            enum #selected<#(#variants),*> { #(#variants(#variants)),* }
            let #value = match (#(#expressions,)*) {
                (#(#futures,)*) => {
                    #(let mut #futures = ::core::pin::pin!(#futures);)*
                    ::core::future::poll_fn(|#cx| {
                        #(if let ::core::task::Poll::Ready(#value) =
                            ::core::future::Future::poll(#futures.as_mut(), #cx)
                        {
                            return ::core::task::Poll::Ready(#selected::#variants(#value));
                        })*
                        ::core::task::Poll::Pending
                    })
                    .await
                }
            };
            match #value { #(#arms)* }
        }}
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn refused(branches: &str, expected: Expect) {
        let error = syn::parse_str::<Select>(branches).err().unwrap();
        let mut errors = crate::errors::Errors::default();
        errors.push(error);
        expected.assert_eq(&errors.text());
    }

    #[test]
    fn the_expansion_is_small() {
        let block = syn::parse2::<Block>(expand(quote! {
            paid = ctx.hook::<Payment>("paid") => { paid? }
            _ = ctx.sleep("1d") => return Err(late),
        }));
        let function: syn::File = {
            let block = block.unwrap();
            syn::parse_quote!(async fn body() #block)
        };
        expect![[r#"
            async fn body() {
                enum __OutlastSelected<Branch0, Branch1> {
                    Branch0(Branch0),
                    Branch1(Branch1),
                }
                let __outlast_value = match (
                    ::core::future::IntoFuture::into_future(ctx.hook::<Payment>("paid")),
                    ::core::future::IntoFuture::into_future(ctx.sleep("1d")),
                ) {
                    (__outlast_future0, __outlast_future1) => {
                        let mut __outlast_future0 = ::core::pin::pin!(__outlast_future0);
                        let mut __outlast_future1 = ::core::pin::pin!(__outlast_future1);
                        ::core::future::poll_fn(|__outlast_cx| {
                                if let ::core::task::Poll::Ready(__outlast_value) = ::core::future::Future::poll(
                                    __outlast_future0.as_mut(),
                                    __outlast_cx,
                                ) {
                                    return ::core::task::Poll::Ready(
                                        __OutlastSelected::Branch0(__outlast_value),
                                    );
                                }
                                if let ::core::task::Poll::Ready(__outlast_value) = ::core::future::Future::poll(
                                    __outlast_future1.as_mut(),
                                    __outlast_cx,
                                ) {
                                    return ::core::task::Poll::Ready(
                                        __OutlastSelected::Branch1(__outlast_value),
                                    );
                                }
                                ::core::task::Poll::Pending
                            })
                            .await
                    }
                };
                match __outlast_value {
                    #[allow(unused_braces)]
                    __OutlastSelected::Branch0(__outlast_value) => {
                        let paid = __outlast_value;
                        { paid? }
                    }
                    #[allow(unused_braces)]
                    __OutlastSelected::Branch1(__outlast_value) => {
                        let _ = __outlast_value;
                        return Err(late);
                    }
                }
            }
        "#]].assert_eq(&prettyplease::unparse(&function));
    }

    #[test]
    fn commas_may_be_left_out_after_blocks_and_at_the_end() {
        for branches in ["a = b => c", "a = b => c,", "a = b => {} c = d => e", "a = b => {}, c = d => {}"] {
            assert!(syn::parse_str::<Select>(branches).is_ok(), "{branches}");
        }
    }

    #[test]
    fn what_is_not_supported_says_so() {
        refused(
            "",
            expect![[r#"
                (all)
                    `select!` without a branch would wait for ever; write `pattern = future => expression`
            "#]],
        );
        refused(
            "a = b => c, else => d",
            expect![[r#"
            else
                `else` is not supported: every branch stays in the race until one is ready; race against `ctx.sleep(…)` for a way out
        "#]],
        );
        refused(
            "a = b, if c => d",
            expect![[r#"
            if
                preconditions are not supported: a future that is not wanted is left out before the race; write an `if` around the `select!`
        "#]],
        );
        refused(
            "biased; a = b => c",
            expect![[r#"
            biased
                remove `biased;`: this `select!` always polls its branches in order
        "#]],
        );
        refused(
            "complete => a",
            expect![[r#"
            =
                a branch is `pattern = future => expression`
        "#]],
        );
        refused(
            "a = b => c d = e => f",
            expect![[r#"
            d
                a branch ends with `,`, unless its body is a block
        "#]],
        );
    }
}
