//! The kinds of definitions, and their texts.

use std::fmt;

use proc_macro2::{Ident, Span};
use quote::format_ident;
use syn::ext::IdentExt;

/// What an attribute defines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// `#[step]`
    Step,
    /// `#[step(blocking)]`
    BlockingStep,
    /// `#[workflow]`
    Workflow,
}

impl Kind {
    /// The word for it, as in the attribute.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Step | Self::BlockingStep => "step",
            Self::Workflow => "workflow",
        }
    }

    /// The name of the type of its context.
    pub(crate) fn context(self) -> &'static str {
        match self {
            Self::Step | Self::BlockingStep => "StepContext",
            Self::Workflow => "Context",
        }
    }

    /// How its context is usually written as a parameter.
    pub(crate) fn context_parameter(self) -> &'static str {
        match self {
            Self::Step | Self::BlockingStep => "cx: StepContext",
            Self::Workflow => "ctx: Context",
        }
    }

    /// The name of the type that carries the definition of `function`.
    pub(crate) fn marker(self, function: &Ident) -> Ident {
        let span = Span::call_site().located_at(function.span());
        format_ident!("__{}_{}", self.word(), function.unraw(), span = span)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`#[{}]`", self.word())
    }
}
