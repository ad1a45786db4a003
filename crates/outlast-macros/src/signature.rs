//! The signature of a definition's function: what is allowed, and what its parts mean.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{FnArg, ItemFn, Lifetime, Pat, PatType, ReturnType, Type, TypeImplTrait, TypeReference};

use crate::errors::Errors;
use crate::kind::{Database, Kind};

/// The function's parameters and return type, as written and as used.
pub(crate) struct Signature {
    /// All parameters, the context included.
    pub(crate) parameters: Vec<Parameter>,
    /// Whether the first parameter is the context.
    pub(crate) context: Option<ContextParameter>,
    /// What the function returns.
    pub(crate) return_kind: ReturnKind,
}

/// One parameter.
pub(crate) struct Parameter {
    /// Its name in the generated function: its own if it has one.
    pub(crate) name: Ident,
    /// Its type.
    pub(crate) ty: Type,
}

/// The type of a context parameter.
pub(crate) enum ContextParameter {
    /// `StepContext` or `Context`.
    Plain,
    /// `StepContext<State>`.
    Of(TokenStream),
}

/// What a function returns.
pub(crate) enum ReturnKind {
    /// A `Result`, by the last word of its path; the type is the whole `Result`.
    Result(Type),
    /// Anything else, which cannot fail.
    Value(Type),
}

impl Signature {
    /// Reads the signature of a function with an attribute. `None` when there are errors.
    pub(crate) fn of(function: &ItemFn, kind: Kind, errors: &mut Errors) -> Option<Self> {
        let mut found = Errors::default();
        refuse_qualifiers(function, kind, &mut found);
        let mut typed = Vec::new();
        for input in &function.sig.inputs {
            match input {
                FnArg::Typed(parameter) => typed.push(parameter),
                FnArg::Receiver(receiver) => {
                    found.at(
                        receiver,
                        format!("{kind} goes on a free function; pass a value instead of `self`"),
                    );
                }
            }
        }
        if let Kind::TransactionalStep(database) = kind {
            // The transaction is an argument of the code, not of the step.
            refuse_transaction(typed.remove(0), database, &mut found);
        }
        let has_context = typed.first().is_some_and(|first| last_segment(&first.ty) == kind.context());
        for parameter in typed.iter().skip(usize::from(has_context)) {
            refuse_parameter(parameter, kind, &mut found);
        }
        let return_kind = ReturnKind::of(&function.sig.output);
        refuse_borrowed(return_kind.ty(), "return", &mut found);

        let signature = Self {
            context: typed.first().filter(|_| has_context).map(|first| ContextParameter::of(&first.ty)),
            parameters: typed.iter().enumerate().map(|(index, typed)| Parameter::of(index, typed)).collect(),
            return_kind,
        };
        let fine = found.is_empty();
        errors.absorb(found);
        fine.then_some(signature)
    }

    /// The parameters without the context.
    pub(crate) fn arguments(&self) -> &[Parameter] {
        &self.parameters[usize::from(self.context.is_some())..]
    }

    /// The type of the input: `()`, the type of the only argument, or a tuple.
    fn input(&self) -> TokenStream {
        let types = self.arguments().iter().map(|argument| &argument.ty);
        match self.arguments() {
            [one] => one.ty.to_token_stream(),
            _ => quote!((#(#types),*)),
        }
    }

    /// The associated types `Input` and `Output`, with the spans of the function's types.
    pub(crate) fn associated_types(&self) -> TokenStream {
        let (input, output) = (self.input(), self.return_kind.output());
        let at =
            |span: Option<Span>| span.map_or_else(Span::call_site, |span| Span::call_site().located_at(span));
        let input_at = at(self.arguments().first().map(|argument| argument.ty.span()));
        let output_at = at(Some(self.return_kind.ty().span()));
        let input = quote_spanned!(input_at=> type Input = #input;);
        let output = quote_spanned!(output_at=> type Output = #output;);
        quote!(#input #output)
    }

    /// A name for a value of the input type.
    pub(crate) fn input_name(&self) -> Ident {
        let name = if self.arguments().is_empty() { "_input" } else { "input" };
        Ident::new(name, Span::mixed_site())
    }

    /// How a value of the input type, named `input`, becomes arguments of a call.
    pub(crate) fn spread(&self, input: &Ident) -> Vec<TokenStream> {
        match self.arguments() {
            [_one] => vec![input.to_token_stream()],
            several => {
                let field = |index| {
                    let index = syn::Index::from(index);
                    quote!(#input.#index)
                };
                (0..several.len()).map(field).collect()
            }
        }
    }
}

impl Parameter {
    fn of(index: usize, parameter: &PatType) -> Self {
        let name = match &*parameter.pat {
            Pat::Ident(pattern)
                if pattern.by_ref.is_none()
                    && pattern.subpat.is_none()
                    && !pattern.ident.to_string().starts_with('_') =>
            {
                pattern.ident.clone()
            }
            // A name with an underscore means "unused", but this name is used.
            _ => format_ident!("argument_{index}", span = Span::mixed_site()),
        };
        Self { name, ty: (*parameter.ty).clone() }
    }
}

impl ContextParameter {
    fn of(ty: &Type) -> Self {
        let Type::Path(path) = bare(ty) else { return Self::Plain };
        match path.path.segments.last().map(|segment| &segment.arguments) {
            Some(syn::PathArguments::AngleBracketed(arguments)) if !arguments.args.is_empty() => {
                Self::Of(arguments.args.to_token_stream())
            }
            _ => Self::Plain,
        }
    }
}

impl ReturnKind {
    fn of(output: &ReturnType) -> Self {
        match output {
            ReturnType::Default => Self::Value(syn::parse_quote!(())),
            ReturnType::Type(_, ty) if last_segment(ty) == "Result" => Self::Result((**ty).clone()),
            ReturnType::Type(_, ty) => Self::Value((**ty).clone()),
        }
    }

    /// The type as written.
    pub(crate) fn ty(&self) -> &Type {
        match self {
            Self::Result(ty) | Self::Value(ty) => ty,
        }
    }

    /// The type of the output that is stored.
    fn output(&self) -> TokenStream {
        match self {
            Self::Result(ty) => quote!(<#ty as ::outlast::__private::ResultParts>::Ok),
            Self::Value(ty) => ty.to_token_stream(),
        }
    }
}

/// The last word of a type's path, such as `Result` in `anyhow::Result<()>`; empty when it has none.
pub(crate) fn last_segment(ty: &Type) -> String {
    match bare(ty) {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
    .unwrap_or_default()
}

/// The type without brackets around it, visible or from `macro_rules!`.
pub(crate) fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        other => other,
    }
}

fn refuse_qualifiers(function: &ItemFn, kind: Kind, errors: &mut Errors) {
    let signature = &function.sig;
    let name = &signature.ident;
    match (&signature.asyncness, kind) {
        (Some(asyncness), Kind::BlockingStep) => {
            errors.at(asyncness, "a step that is `blocking` is not `async`; remove one of the two");
        }
        (Some(asyncness), Kind::TransactionalStep(Database::Sqlite)) => errors.at(
            asyncness,
            "a transactional step on SQLite is not `async`, because the file is locked until it returns; remove `async`",
        ),
        (None, Kind::TransactionalStep(Database::Postgres)) => errors.at(
            signature.fn_token,
            format!("a transactional step on Postgres is an `async fn`; write `async fn {name}`"),
        ),
        (None, Kind::Step) => errors.at(
            signature.fn_token,
            format!("{kind} goes on an `async fn`; write `async fn {name}`, or `#[step(blocking)]`"),
        ),
        (None, Kind::Workflow) => {
            errors.at(signature.fn_token, format!("{kind} goes on an `async fn`; write `async fn {name}`"));
        }
        _ => {}
    }
    if let Some(constness) = &signature.constness {
        errors.at(constness, format!("{kind} does not go on a `const fn`; remove `const`"));
    }
    if let Some(unsafety) = &signature.unsafety {
        errors.at(unsafety, format!("{kind} does not go on an `unsafe fn`; use an `unsafe` block inside"));
    }
    if let Some(abi) = &signature.abi {
        errors.at(abi, format!("{kind} does not go on an `extern fn`; remove `extern`"));
    }
    if let Some(variadic) = &signature.variadic {
        errors.at(variadic, "variable arguments cannot be stored; take a `Vec`");
    }
    let generics = &signature.generics;
    if !generics.params.is_empty() {
        let message = "a durable name belongs to one type, so generic parameters and lifetimes are not allowed; \
                       write the types out, or call a generic function from here";
        errors.at(generics, message);
    } else if let Some(clause) = &generics.where_clause {
        errors.at(clause, "a `where` clause has no effect without generic parameters; remove it");
    }
}

/// The database whose transaction is the first parameter of a step.
pub(crate) fn transaction_of(function: &ItemFn) -> Option<Database> {
    match function.sig.inputs.first()? {
        FnArg::Typed(first) => Database::of_transaction(&last_segment(referenced(&first.ty))),
        FnArg::Receiver(_) => None,
    }
}

/// Refuses a transaction that is not taken as the engine gives it.
fn refuse_transaction(parameter: &PatType, database: Database, errors: &mut Errors) {
    let is_mutable = match bare(&parameter.ty) {
        Type::Reference(reference) => Some(reference.mutability.is_some()),
        _ => None,
    };
    if is_mutable != Some(database == Database::Postgres) {
        let written = database.parameter();
        errors.at(&parameter.ty, format!("the transaction is borrowed from the engine; write `{written}`"));
    }
}

/// The type that a reference refers to, or the type itself.
fn referenced(ty: &Type) -> &Type {
    match bare(ty) {
        Type::Reference(reference) => &reference.elem,
        other => other,
    }
}

fn refuse_parameter(parameter: &PatType, kind: Kind, errors: &mut Errors) {
    let inner = referenced(&parameter.ty);
    if let Some(database) = Database::of_transaction(&last_segment(inner)) {
        let written = database.parameter();
        errors.at(
            &parameter.ty,
            format!("a transaction is the first parameter of a `#[step(transactional)]`: `{written}`"),
        );
    } else if last_segment(inner) == kind.context() {
        let (context, written) = (kind.context(), kind.context_parameter());
        errors.at(&parameter.ty, format!("`{context}` is the first parameter, taken by value: `{written}`"));
    } else {
        refuse_borrowed(&parameter.ty, "take", errors);
    }
}

/// Refuses types that cannot be read back from storage: references, lifetimes and unnamed types.
fn refuse_borrowed(ty: &Type, verb: &'static str, errors: &mut Errors) {
    BorrowVisitor { verb, errors }.visit_type(ty);
}

struct BorrowVisitor<'a> {
    verb: &'static str,
    errors: &'a mut Errors,
}

impl<'ast> Visit<'ast> for BorrowVisitor<'_> {
    fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
        let verb = self.verb;
        let example = match last_segment(&reference.elem).as_str() {
            "" => "a `Vec` or another owned type".to_owned(),
            "str" => "a `String`".to_owned(),
            owned => format!("`{owned}` itself"),
        };
        self.errors.at(reference, format!("a reference cannot be read back from storage; {verb} {example}"));
    }

    fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
        let verb = self.verb;
        self.errors.at(ty, format!("`impl Trait` names no type to store; {verb} a type with a name"));
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        if lifetime.ident != "static" {
            let verb = self.verb;
            self.errors.at(
                lifetime,
                format!("borrowed data cannot be read back from storage; {verb} an owned type"),
            );
        }
        visit::visit_lifetime(self, lifetime);
    }
}
