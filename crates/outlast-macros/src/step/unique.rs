//! `unique = "order.id, action"`: the parts of a step's key.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprField, FnArg, ItemFn, LitStr, Pat, Result, Token, parse_quote};

use crate::signature::Signature;

/// The maximum number of values in a key: serde supports tuples of up to this length.
const VALUES_MAX: usize = 16;

/// The key of a step, as the attribute describes it.
pub(super) struct Unique {
    /// The function of `StepDefinition` that computes the key.
    pub(super) definition: TokenStream,
    /// The indexes of the parameters that the key is made of, in the signature of the function.
    parameters: Vec<usize>,
}

impl Unique {
    /// The function with parameters that its body need not use: the key uses them.
    pub(super) fn allow_unused(&self, function: &ItemFn) -> ItemFn {
        let mut function = function.clone();
        for (index, input) in function.sig.inputs.iter_mut().enumerate() {
            if let FnArg::Typed(typed) = input
                && self.parameters.contains(&index)
            {
                typed.attrs.push(parse_quote!(#[allow(unused_variables)]));
            }
        }
        function
    }
}

/// Reads the values that `text` names.
pub(super) fn read(text: &LitStr, function: &ItemFn, signature: &Signature) -> Result<Unique> {
    let error = |message: String| Error::new_spanned(text, message);
    let how = || {
        error(
            "`unique` names parameters of the step, or fields of them: `unique = \"order.id, action\"`"
                .into(),
        )
    };
    let values = text.parse_with(Punctuated::<Expr, Token![,]>::parse_terminated).map_err(|_| how())?;
    if values.is_empty() {
        return Err(how());
    }
    if values.len() > VALUES_MAX {
        return Err(error(format!("`unique` names at most {VALUES_MAX} values; put them into a type")));
    }
    let input = Ident::new("input", Span::mixed_site());
    let names = parameter_names(function, signature);
    let (mut places, mut parameters) = (Vec::new(), Vec::new());
    for value in &values {
        let (root, fields) = path_of(value).ok_or_else(how)?;
        // A parameter that is used only for the key may begin with an underscore.
        let is_it = |name: &String| *name == root || name.strip_prefix('_') == Some(&root);
        let Some(index) = names.iter().position(is_it) else {
            let known: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(error(format!("the step has no parameter `{root}`; it has {known}")));
        };
        let argument = &signature.spread(&input)[index];
        places.push(quote!(&#argument #(.#fields)*));
        parameters.push(index + usize::from(signature.context.is_some()));
    }
    let definition = quote! {
        fn unique(
            #input: &Self::Input,
        ) -> ::core::result::Result<::core::option::Option<::std::string::String>, ::outlast::__private::StepError> {
            ::outlast::__private::unique_key::<Self>(&(#(#places,)*))
        }
    };
    Ok(Unique { definition, parameters })
}

/// The names of the parameters without the context; empty for one that is a pattern.
fn parameter_names(function: &ItemFn, signature: &Signature) -> Vec<String> {
    let name = |input: &FnArg| match input {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pattern) => pattern.ident.to_string(),
            _ => String::new(),
        },
        FnArg::Receiver(_) => String::new(),
    };
    function.sig.inputs.iter().skip(usize::from(signature.context.is_some())).map(name).collect()
}

/// The parameter that an expression begins with, and the fields after it.
fn path_of(expression: &Expr) -> Option<(String, Vec<TokenStream>)> {
    match expression {
        Expr::Path(path) => Some((path.path.get_ident()?.to_string(), Vec::new())),
        Expr::Field(ExprField { base, member, .. }) => {
            let (root, mut fields) = path_of(base)?;
            fields.push(member.to_token_stream());
            Some((root, fields))
        }
        _ => None,
    }
}
